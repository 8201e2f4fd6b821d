//! What came of a point.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was counted of one run. Calls are those whose intended moment lay in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls offered.
    pub offered: u64,
    /// Of these, set up, in time or not.
    pub set_up: u64,
    /// Of these, set up within the deadline.
    pub set_up_in_time: u64,
    /// Calls refused by 503.
    pub refused: u64,
    /// INVITEs sent again, until the deadline of the last call: callers who went on would repeat
    /// them further.
    pub repeated_invites: u64,
    /// Seconds measured.
    pub measured_s: f64,
    /// Set-up delay of the calls that were set up; `None` if none was.
    pub set_up_delay: Option<Quantiles>,
    /// Who made the load.
    pub generator: Generator,
    /// CPU time of Tidegate in seconds, of the whole run.
    pub tidegate_cpu_s: f64,
    /// How often it was run until the generator kept up, this time included.
    pub attempts: u32,
    /// What Tidegate said of itself at the end (`/status`).
    pub status: Value,
}

/// Quantiles of delays, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half took no longer.
    pub p50_ms: f64,
    /// 90 % took no longer.
    pub p90_ms: f64,
    /// 99 % took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How the generator did, callers and answerers together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Use of a core by the callers, 0..1.
    pub caller_load: f64,
    /// The same of the busiest answerer.
    pub answerer_load: f64,
    /// Datagrams lost at its sockets, and such that could not be sent.
    pub drops: u64,
    /// Why it could not offer what it was asked to, if so.
    pub too_slow: Option<String>,
}

impl Generator {
    /// It offered what it was asked to and lost nothing, so that what came is the server's
    /// doing.
    pub fn kept_up(&self) -> bool {
        self.too_slow.is_none() && self.drops == 0
    }
}

impl Outcome {
    /// Calls offered a second.
    pub fn offered_cps(&self) -> f64 {
        self.offered as f64 / self.measured_s
    }

    /// Calls a second that were set up in time.
    pub fn goodput_cps(&self) -> f64 {
        self.set_up_in_time as f64 / self.measured_s
    }

    /// INVITEs sent again for each sent first.
    pub fn retransmission_ratio(&self) -> f64 {
        self.repeated_invites as f64 / self.offered.max(1) as f64
    }

    /// The part of the offered calls that was refused.
    pub fn refused_part(&self) -> f64 {
        self.refused as f64 / self.offered.max(1) as f64
    }
}
