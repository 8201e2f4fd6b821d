//! `[overload]` and `[emulate]`: what is admitted, and how slow a server is to seem.

use std::time::Duration;

use tidegate_control::{Param, Settings, Values, Wrong};
use tidegate_proxy as proxy;
use tidegate_world::Work;
use toml::Spanned;

use super::diagnostic::{Report, alternatives, nearest, quoted};
use super::knob::Shape;
use super::section::Section;
use super::shape::Real;
use super::tables::{
    CLASSES, DECIDE, DISPOSAL, LAW, MEMORY_MAX, OCCUPANCY, OFFER_US, PARAMS, QUEUE, RECEIVE_US,
    REFUSE_US, SERVE_US, SOCKET_MAX, STICKY, THROTTLE,
};

/// How messages are sorted into what may be shed and what may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classes {
    /// New INVITEs; other new requests; all else, which is never shed.
    Simplified,
}

/// Costs of messages in model time, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulate {
    /// To take a datagram from its buffer, whatever becomes of it.
    pub receive: Duration,
    /// To look at one and decide what becomes of it.
    pub offer: [Duration; Work::CLASSES_MAX],
    /// To serve one.
    pub serve: [Duration; Work::CLASSES_MAX],
    /// To refuse one.
    pub refuse: [Duration; Work::CLASSES_MAX],
    /// Datagrams that a receive buffer holds.
    pub socket_max: usize,
}

/// What `[overload]` says; `None` when something was reported.
pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<proxy::Overload> {
    let law = section.value(&LAW, report).map(Spanned::into_inner);
    // The only scheme there is; whatever else is written was reported.
    let classes = section.value(&CLASSES, report);
    let decide = section.value(&DECIDE, report).map(Spanned::into_inner);
    let queueing = section.value(&QUEUE, report).map(Spanned::into_inner);
    let throttle = section.value(&THROTTLE, report).map(Spanned::into_inner);
    let disposal = section.value(&DISPOSAL, report).map(Spanned::into_inner);
    let occupancy = section.value(&OCCUPANCY, report).map(Spanned::into_inner);
    let sticky = section.value(&STICKY, report).map(Spanned::into_inner);
    let memory_max = section.value(&MEMORY_MAX, report).map(Spanned::into_inner);
    let law = law?;
    classes?;
    let law = section.read_one(&PARAMS, |params, report| values(law, params, report), report);
    Some(proxy::Overload {
        gate: Settings {
            law: law?,
            decide: decide?,
            throttle: throttle?,
            occupancy: occupancy?,
            sticky: sticky?,
            memory_max: usize::try_from(memory_max?).ok()?,
        },
        queueing: queueing?,
        disposal: disposal?,
    })
}

/// The parameters of a law.
fn values(
    law: &'static tidegate_control::Entry,
    section: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Values> {
    let mut given = Vec::new();
    let mut right = true;
    for (key, value) in section.each() {
        let Some(param) = law.params.iter().find(|param| param.name == &**key.get_ref()) else {
            let names = || law.params.iter().map(|param| param.name);
            let help = match nearest(key.get_ref(), names()) {
                Some(known) => format!("did you mean `{known}`?"),
                None if law.params.is_empty() => "remove it".to_owned(),
                None => format!("write {}", alternatives(names())),
            };
            let name = quoted(key.get_ref());
            let title = format!("law `{}` has no parameter {name}", law.name);
            report.error(key.span(), title, "not known to this law", help);
            right = false;
            continue;
        };
        let Param { name, min, max, .. } = **param;
        match Real(min..=max).read(name, value, report) {
            Some(value) => given.push((name, value)),
            None => right = false,
        }
    }
    if !right {
        return None;
    }
    match law.values(&given) {
        Ok(values) => Some(values),
        Err(Wrong::Contradiction(needed)) => {
            let title = format!("the parameters of law `{}` do not fit together", law.name);
            let label = format!("not so: {needed}");
            report.error(section.span(), title, label, format!("write values with {needed}"));
            None
        }
        Err(Wrong::Unknown(_) | Wrong::OutOfBounds(..)) => {
            unreachable!("names and bounds were checked one by one")
        }
    }
}

/// What `[emulate]` says; `None` when something was reported.
pub fn read_emulate(section: &Section<'_, '_>, report: &mut Report) -> Option<Emulate> {
    let mut cost = |knob| section.value(knob, report).map(Spanned::into_inner);
    let (offer, serve, refuse) = (cost(&OFFER_US), cost(&SERVE_US), cost(&REFUSE_US));
    let receive = section.value(&RECEIVE_US, report).map(Spanned::into_inner);
    let socket_max = section.value(&SOCKET_MAX, report).map(Spanned::into_inner);
    Some(Emulate {
        receive: Duration::from_secs_f64(receive? / 1e6),
        offer: offer?,
        serve: serve?,
        refuse: refuse?,
        socket_max: usize::try_from(socket_max?).ok()?,
    })
}
