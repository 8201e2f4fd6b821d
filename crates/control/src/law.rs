//! The laws of overload control, one file each. The comment at the start of a file describes the
//! signal of the law, when it trips, how it recovers, its cold start, its known bias, and its
//! source.

pub(crate) mod acceptance;
pub(crate) mod aro;
pub(crate) mod asterisk;
#[cfg(test)]
mod bench;
pub(crate) mod breakwater;
mod cadence;
pub(crate) mod cinnamon;
pub(crate) mod clearwater;
pub(crate) mod codel;
pub(crate) mod cpu_threshold;
pub(crate) mod dagor;
pub(crate) mod deadline;
pub(crate) mod envoy_gradient;
pub(crate) mod gradient2;
pub(crate) mod kamailio_feedback;
mod latency;
pub(crate) mod none;
pub(crate) mod occ;
pub(crate) mod occupancy;
pub(crate) mod ohta;
pub(crate) mod pi;
pub(crate) mod rate_abs;
pub(crate) mod rate_occ;
pub(crate) mod sired;
mod target_ratio;
pub(crate) mod tide;
pub(crate) mod vegas;
pub(crate) mod win_auto;
pub(crate) mod win_cont;
pub(crate) mod win_disc;
mod window;

use std::fmt::Debug;
use std::time::Duration;

use tidegate_world::{Kind, Timestamp};

use crate::{Control, Signals};

/// The marker type of registry entries for laws.
#[derive(Debug)]
pub enum Laws {}

impl Kind for Laws {
    const WORD: &'static str = "law";
    type Build = fn(&Values) -> Box<dyn Law>;
}

/// The name, documentation and parameters of a law.
pub type Entry = tidegate_world::param::Entry<Laws>;

/// The values of a law's parameters, each within its bounds.
pub type Values = tidegate_world::Values<Laws>;

/// A law that decides, from the signals of a server, how much new work it admits.
///
/// The law may change the control in any of its methods, and only reads the signals.
pub trait Law: Debug + Send {
    /// Takes over a server that already runs. The law ignores all counts before `now`, and starts
    /// as on a new server.
    fn on_begin(&mut self, _now: Timestamp, _signals: &Signals) {}

    /// Changes the values of the law's parameters, and keeps its measurements. Returns `false`, and
    /// changes nothing, if the law cannot do this. Then the caller replaces it by a new law.
    fn adjust(&mut self, _values: &Values) -> bool {
        false
    }

    /// Handles the first message after a time without ticks, in which the law was [at
    /// rest](Self::is_at_rest). The next tick measures from the arrival of this message.
    fn on_wake(&mut self, _now: Timestamp, _signals: &Signals) {}

    /// Handles the arrival of a message. The signals include the message, but not yet the decision
    /// on it.
    fn on_arrival(&mut self, _now: Timestamp, _signals: &Signals, _control: &mut Control) {}

    /// Handles the start of a message's service.
    fn on_service(&mut self, _now: Timestamp, _signals: &Signals, _control: &mut Control) {}

    /// Handles the completion of a message's service.
    fn on_completion(&mut self, _now: Timestamp, _signals: &Signals, _control: &mut Control) {}

    /// Handles a tick. While nothing arrives and the law [is at rest](Self::is_at_rest), ticks are
    /// skipped. So the next tick may come late.
    fn on_tick(&mut self, _now: Timestamp, _signals: &Signals, _control: &mut Control) {}

    /// Returns the time between two ticks, or `None` if the law needs no ticks.
    fn tick(&self) -> Option<Duration> {
        None
    }

    /// Returns the occupancy, 0 to 1, that the law aims at, or `None` if it aims at none.
    fn occupancy_aimed_at(&self) -> Option<f64> {
        None
    }

    /// Returns whether ticks would change nothing until something arrives.
    fn is_at_rest(&self) -> bool {
        true
    }
}
