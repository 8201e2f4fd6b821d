//! A law with fixed decisions, and proxies that use it.

use std::time::Duration;

use tidegate_balance::Policy;
use tidegate_control::registry::{Entry, Param};
use tidegate_control::{Allowance, Control, Decide, Law, QueueOrder, Release, Signals, Values};
use tidegate_proxy::{Queueing, Settings};
use tidegate_world::Timestamp;

use crate::script::Script;

const fn param(name: &'static str, default: f64) -> Param {
    Param::real(name, "", default, 0.0, 1e9)
}

/// The number of messages that are admitted before the law acts.
static AFTER: Param = param("after", 0.0);
/// The share of new work that is admitted from then on.
static SHARE: Param = param("share", 1.0);
/// Calls admitted per second. 0 means that the share applies instead.
static CPS: Param = param("cps", 0.0);
/// Calls released per second. 0 means that calls are not paced.
static RATE: Param = param("rate", 0.0);

/// 1 means that the newest call is served first.
static LIFO: Param = param("lifo", 0.0);
/// The wait in ms after which a call is rejected when its turn comes. 0 means no limit.
static WAIT_MAX: Param = param("wait_max", 0.0);
/// The number of unanswered calls from which calls wait in the queue, until a back end sends an
/// INVITE. 0 means no limit.
static UNANSWERED: Param = param("unanswered", 0.0);
/// The rank below which calls are rejected.
static FLOOR: Param = param("floor", 0.0);

static ENTRY: Entry = Entry {
    name: "fixed",
    summary: "",
    source: "",
    doc: "",
    params: &[&AFTER, &SHARE, &CPS, &RATE, &LIFO, &WAIT_MAX, &UNANSWERED, &FLOOR],
    check: |_| Ok(()),
    build: |&values| Box::new(Fixed(values)),
};

#[derive(Debug)]
struct Fixed(Values);

impl Law for Fixed {
    fn on_arrival(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        if signals.messages as f64 > self.0.of(&AFTER) {
            control.admit_of_all(match self.0.of(&CPS) {
                0.0 => Allowance::Fraction(self.0.of(&SHARE)),
                cps => Allowance::Rate(cps),
            });
        }
        if self.0.of(&RATE) > 0.0 {
            control.queue.release = Release::Rate(self.0.of(&RATE));
        }
        control.queue.order =
            if self.0.of(&LIFO) == 1.0 { QueueOrder::Lifo } else { QueueOrder::Fifo };
        let wait_max = Duration::from_secs_f64(self.0.of(&WAIT_MAX) / 1e3);
        control.queue.wait_max = (!wait_max.is_zero()).then_some(wait_max);
        control.queue.takes_turns = self.0.of(&UNANSWERED) > 0.0;
        let is_limiting = control.queue.takes_turns && signals.back_ends_called.is_none();
        control.queue.unanswered_max =
            if is_limiting { self.0.of(&UNANSWERED) } else { f64::INFINITY };
        control.rank_floor = self.0.of(&FLOOR);
    }

    fn tick(&self) -> Option<Duration> {
        (self.0.of(&RATE) + self.0.of(&UNANSWERED) > 0.0).then_some(Duration::from_millis(10))
    }
}

/// Returns the law with these parameters.
pub fn law(given: &[(&str, f64)]) -> Values {
    ENTRY.values(given).unwrap()
}

/// The queueing and the time of decision of a proxy.
pub type Scheme = (Queueing, Decide);

pub const SCHEMES: [Scheme; 4] = [
    (Queueing::Class, Decide::Arrival),
    (Queueing::Class, Decide::Service),
    (Queueing::Fifo, Decide::Arrival),
    (Queueing::Fifo, Decide::Service),
];

/// Makes a proxy that uses the law with these parameters.
pub fn under(scheme: Scheme, given: &[(&str, f64)]) -> Script {
    adjusted(scheme, given, |_| {})
}

/// Makes a proxy that uses the law with these parameters, and adjusts its other settings.
pub fn adjusted(
    scheme: Scheme,
    given: &[(&str, f64)],
    adjust: impl FnOnce(&mut Settings),
) -> Script {
    Script::with(Policy::Rr, |settings| {
        (settings.overload.queueing, settings.overload.gate.decide) = scheme;
        settings.overload.gate.law = law(given);
        adjust(settings);
    })
}

/// Makes a proxy that admits no new work after this number of messages.
pub fn closed_after(scheme: Scheme, messages: u32) -> Script {
    under(scheme, &[("after", messages.into()), ("share", 0.0)])
}
