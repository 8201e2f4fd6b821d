//! `[overload]` and `[emulate]`: what is admitted, and how slow a server is to seem.

use std::time::Duration;

use tidegate_control::{Estimation, Scheme, Settings, ShedOrder, Values};
use tidegate_proxy::{self as proxy, Class};
use tidegate_world::Work;
use toml::Spanned;

use super::diagnostic::Report;
use super::params;
use super::section::Section;
use super::sources;
use super::tables::{
    BURST, CHECK, CLASSES, Classes, DECIDE, DISPOSAL, INTERVAL_MS, LAW, MEMORY_MAX, OCCUPANCY,
    OFFER_US, PAD, PARAMS, QUEUE, RATE_CPS, RATE_MIN_CPS, RECEIVE_US, REFUSE_US, REFUSING_MAX,
    REINVITES, RETRY_AFTER, SCALED, SERVE_STATELESS_US, SERVE_US, SESSION_WEIGHT, SESSIONS, SHADOW,
    SHADOW_LAW, SHADOW_PARAMS, SHED, SHED_BY, SOCKET_MAX, STATEFUL_MAX, STICKY, THROTTLE,
};

/// Costs of messages in model time, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulate {
    /// To take a datagram from its buffer, whatever becomes of it.
    pub receive: Duration,
    /// To look at one and decide what becomes of it.
    pub offer: [Duration; Work::CLASSES_MAX],
    /// To serve one.
    pub serve: [Duration; Work::CLASSES_MAX],
    /// To serve one without keeping anything of it; `None`: as much.
    pub serve_stateless: Option<[Duration; Work::CLASSES_MAX]>,
    /// To refuse one.
    pub refuse: [Duration; Work::CLASSES_MAX],
    /// Datagrams that a receive buffer holds.
    pub socket_max: usize,
}

/// What `[overload]` says; `None` when something was reported.
pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<proxy::Overload> {
    let law = section.value(&LAW, report).map(Spanned::into_inner);
    let scheme = scheme(section, report);
    let reinvites = section.value(&REINVITES, report).map(Spanned::into_inner);
    let retry_after = retry_after(section, report);
    let decide = section.value(&DECIDE, report).map(Spanned::into_inner);
    let queueing = section.value(&QUEUE, report).map(Spanned::into_inner);
    let throttle = section.value(&THROTTLE, report).map(Spanned::into_inner);
    let burst = section.value(&BURST, report).map(Spanned::into_inner);
    let disposal = section.value(&DISPOSAL, report).map(Spanned::into_inner);
    let refusing_max = refusing_max(section, disposal, report);
    let stateful_max = section.value(&STATEFUL_MAX, report).map(Spanned::into_inner);
    let pad = pad(section, disposal, report);
    let occupancy = section.value(&OCCUPANCY, report).map(Spanned::into_inner);
    let sticky = section.value(&STICKY, report).map(Spanned::into_inner);
    let memory_max = section.value(&MEMORY_MAX, report).map(Spanned::into_inner);
    let sources = sources::read(section, report);
    let law = law?;
    let sessions = section.read_one(&SESSIONS, sessions, report);
    let law = section.read_one(&PARAMS, |given, report| params::read(law, given, report), report);
    let (told_apart, sources) = sources?;
    let shadow = section.read_one(&SHADOW, read_shadow, report);
    Some(proxy::Overload {
        gate: Settings {
            law: law?,
            shadow: shadow?,
            decide: decide?,
            scheme: scheme?,
            throttle: throttle?,
            burst: u32::try_from(burst?).ok()?,
            occupancy: occupancy?,
            sticky: sticky?,
            memory_max: usize::try_from(memory_max?).ok()?,
            sessions: sessions?,
            sources: told_apart,
        },
        queueing: queueing?,
        disposal: disposal?,
        reinvites: reinvites?,
        retry_after: retry_after?,
        pad: pad?,
        refusing_max: refusing_max?,
        stateful_max: stateful_max?,
        sources,
    })
}

/// The law that looks on, if there is to be one; `None` when something was reported.
fn read_shadow(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Values>> {
    let Some(law) = section.value(&SHADOW_LAW, report)?.into_inner() else {
        let given = |params: &Section<'_, '_>, report: &mut Report| {
            let idle = params.each().next().map(|(key, _)| key.span());
            if let Some(span) = idle.clone() {
                let help = "name the law, or remove them";
                report.error(span, "parameters without a law", "the shadow is off", help);
            }
            idle.is_none()
        };
        return section.read_one(&SHADOW_PARAMS, given, report).then_some(None);
    };
    section
        .read_one(&SHADOW_PARAMS, |given, report| params::read(law, given, report), report)
        .map(Some)
}

/// What is shed; `None` when something was reported.
fn scheme(section: &Section<'_, '_>, report: &mut Report) -> Option<Scheme> {
    let classes = section.value(&CLASSES, report).map(Spanned::into_inner);
    let scaled = section.value(&SCALED, report);
    let order = section.value(&SHED, report);
    let weight = section.value(&SHED_BY, report);
    let classes = classes?;
    let mut idle = |keys: &[&str], wanted: &str| {
        let instead = format!("write `classes = \"{wanted}\"`");
        section.report_idle(keys, "not used with these `classes`", &instead, report);
    };
    if classes != Classes::Simplified {
        idle(&[SCALED.name], "simplified");
    }
    if classes != Classes::Multi {
        idle(&[SHED.name, SHED_BY.name], "multi");
    }
    let number = |class: Spanned<Class>| class.into_inner() as u8;
    Some(match classes {
        Classes::Simplified => Scheme::Simplified { scaled: scaled?.into_inner() },
        Classes::Single => Scheme::Single,
        Classes::Multi => Scheme::Multi(ShedOrder {
            order: order?.into_inner().into_iter().map(number).collect(),
            weight: weight?.into_inner(),
        }),
    })
}

/// How calls are estimated.
fn sessions(section: &Section<'_, '_>, report: &mut Report) -> Option<Estimation> {
    let check = section.value(&CHECK, report).map(Spanned::into_inner);
    let interval_ms = section.value(&INTERVAL_MS, report).map(Spanned::into_inner);
    let mut number = |knob| section.value(knob, report).map(Spanned::into_inner);
    let (weight, rate_cps) = (number(&SESSION_WEIGHT), number(&RATE_CPS));
    let rate_min_cps = number(&RATE_MIN_CPS);
    Some(Estimation {
        check: check?,
        end: Some(Class::Bye as u8),
        interval: Duration::from_millis(interval_ms?),
        weight: weight?,
        rate_cps: rate_cps?,
        rate_min_cps: rate_min_cps?,
    })
}

/// What refusing may take; `None` when something was reported.
fn refusing_max(
    section: &Section<'_, '_>,
    disposal: Option<proxy::Disposal>,
    report: &mut Report,
) -> Option<f64> {
    let given = section.value(&REFUSING_MAX, report)?;
    if disposal.is_some_and(|disposal| disposal != proxy::Disposal::Kernel) {
        let instead = "write `disposal = \"kernel\"`";
        section.report_idle(&[REFUSING_MAX.name], "not used with this `disposal`", instead, report);
    }
    Some(given.into_inner())
}

/// The length of a 503, if it is to have one; `None` when something was reported.
fn pad(
    section: &Section<'_, '_>,
    disposal: Option<proxy::Disposal>,
    report: &mut Report,
) -> Option<Option<usize>> {
    if !section.has(&PAD) {
        return Some(None);
    }
    let given = section.given(&PAD, report)?;
    if disposal == Some(proxy::Disposal::Drop) {
        let instead = "write `disposal = \"reject\"`";
        section.report_idle(&[PAD.name], "dropped requests get no 503", instead, report);
    }
    usize::try_from(given.into_inner()).ok().map(Some)
}

/// Bounds of Retry-After, if there is to be one; `None` when something was reported.
fn retry_after(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<(u32, u32)>> {
    if !section.has(&RETRY_AFTER) {
        return Some(None);
    }
    let given = section.given(&RETRY_AFTER, report)?;
    let span = given.span();
    let bounds: Vec<_> =
        given.into_inner().into_iter().map(|s| u32::try_from(s.into_inner()).ok()).collect();
    match bounds[..] {
        [Some(least), Some(most)] if least <= most => Some(Some((least, most))),
        _ => {
            let title = format!("`{}` is not valid", RETRY_AFTER.name);
            let label = "not a minimum and a maximum in seconds";
            report.error(span, title, label, "write two numbers in order, such as `[5, 15]`");
            None
        }
    }
}

/// What `[emulate]` says; `None` when something was reported.
pub fn read_emulate(section: &Section<'_, '_>, report: &mut Report) -> Option<Emulate> {
    let mut cost = |knob| section.value(knob, report).map(Spanned::into_inner);
    let (offer, serve, refuse) = (cost(&OFFER_US), cost(&SERVE_US), cost(&REFUSE_US));
    let serve_stateless = match section.has(&SERVE_STATELESS_US) {
        false => Some(None),
        true => section.given(&SERVE_STATELESS_US, report).map(Spanned::into_inner).map(Some),
    };
    let receive = section.value(&RECEIVE_US, report).map(Spanned::into_inner);
    let socket_max = section.value(&SOCKET_MAX, report).map(Spanned::into_inner);
    Some(Emulate {
        receive: Duration::from_secs_f64(receive? / 1e6),
        offer: offer?,
        serve: serve?,
        serve_stateless: serve_stateless?,
        refuse: refuse?,
        socket_max: usize::try_from(socket_max?).ok()?,
    })
}
