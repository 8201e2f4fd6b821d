//! The schedule of the demonstration.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_world::unit_enum;

/// Offered loads, as multiples of the capacity.
pub const MULTIPLES: [f64; 4] = [0.5, 1.0, 2.0, 5.0];

/// Longest set-up delay of a call that counts as set up in time.
pub const DEADLINE: Duration = Duration::from_millis(500);

/// Number of back ends of each server.
pub const BACKENDS: usize = 2;

/// The shortest duration of a demonstration, in seconds. It is long enough to show the difference
/// between the two servers.
pub const SECONDS_MIN: u64 = 12;

/// Emulated CPU time to examine a message, in µs. `SERVE_US` is the time to serve a message, and
/// `REJECT_US` the time to answer a message with 503. Each call has six messages. INVITEs that the
/// kernel drops take no time.
const OFFER_US: f64 = 100.0;
const SERVE_US: f64 = 733.0;
const REJECT_US: f64 = 200.0;

/// Emulated CPU time of a whole call, in s: INVITE, 180, 200, ACK, BYE, 200.
pub(crate) const CALL_S: f64 = 6.0 * (OFFER_US + SERVE_US) / 1e6;

/// The rate in calls/s that keeps the emulated processor fully busy.
pub const CAPACITY_CPS: f64 = 1.0 / CALL_S;

/// Returns the greatest possible goodput at `multiple` times the capacity, as a fraction of the
/// capacity. This is the offered load, but at most the capacity.
pub fn bound(multiple: f64) -> f64 {
    multiple.min(1.0)
}

unit_enum! {
    /// One of the two servers that are compared, in the order of display from left to right.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Side {
        /// A server without overload control, and with one queue for all messages.
        Unprotected = "unprotected",
        /// A server with the default overload control of Tidegate.
        Protected = "protected",
    }
}

impl Side {
    /// Returns a short description of this side's overload control.
    pub(crate) const fn manner(self) -> &'static str {
        match self {
            Self::Unprotected => "no overload control, one queue for all",
            Self::Protected => "default: law tide, a queue per class",
        }
    }

    const fn overload(self) -> &'static str {
        match self {
            Self::Unprotected => {
                "[overload]\nlaw = \"none\"\ndecide = \"service\"\nqueue = \"fifo\"\nsticky = false\n\n"
            }
            Self::Protected => "",
        }
    }

    /// Returns the configuration of the server of this side, which sends its calls to `backends`.
    pub fn configuration(
        self,
        state_dir: &Path,
        backends: impl Iterator<Item = SocketAddr>,
    ) -> String {
        let mut text = format!(
            "[server]\nstate_dir = {state_dir:?}\nqueue_max = 1000\n\n\
             [admin]\naddress = \"127.0.0.1:0\"\n\n\
             [[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\n\
             [[pool]]\nname = \"answerers\"\npolicy = \"rr\"\nmode = \"stateless\"\n"
        );
        for backend in backends {
            let _ = writeln!(text, "[[pool.backend]]\nuri = \"sip:{backend}\"");
        }
        let _ = write!(
            text,
            "\n{}[emulate]\noffer_us = {OFFER_US}\nserve_us = {SERVE_US}\n\
             reject_us = {REJECT_US}\n",
            self.overload()
        );
        text
    }
}

/// The schedule of a demonstration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Duration of each load.
    pub load: Duration,
    /// Duration of the first part of each load, which is not measured.
    pub warm_up: Duration,
    /// Duration of the pause between two loads.
    pub pause: Duration,
}

impl Plan {
    /// Creates a plan for a demonstration of about `seconds`, but at least [`SECONDS_MIN`].
    pub fn new(seconds: u64) -> Self {
        let total = Duration::from_secs(seconds.max(SECONDS_MIN));
        let pause = total / 24;
        let phases = MULTIPLES.len() as u32;
        // One second is for the start. Each load is followed by the deadline of its last call.
        let load = (total - Duration::from_secs(1) - pause * (phases - 1)) / phases - DEADLINE;
        Self { load, warm_up: load / 5, pause }
    }

    /// Returns the end of the measured time of a load, relative to its start. The load goes on until
    /// the deadline of the last measured call.
    pub(crate) fn measured_until(&self) -> Duration {
        self.load - DEADLINE
    }

    /// Returns the expected duration of the demonstration, without the start of the servers.
    pub fn total(&self) -> Duration {
        let phases = MULTIPLES.len() as u32;
        (self.load + DEADLINE) * phases + self.pause * (phases - 1)
    }

    /// Returns the time from the start of the first load to the start of the load with index
    /// `phase`.
    pub(crate) fn start_of(&self, phase: usize) -> Duration {
        (self.load + DEADLINE + self.pause) * phase as u32
    }
}

#[cfg(test)]
mod tests {
    use tidegate_server::config::Config;

    use super::*;
    use crate::cost;

    #[test]
    fn a_plan_lasts_for_the_given_time() {
        for seconds in [0, 12, 20, 60, 300] {
            let plan = Plan::new(seconds);
            let expected = seconds.max(SECONDS_MIN) as f64 - 1.0;
            assert!((plan.total().as_secs_f64() - expected).abs() < 1e-6, "{seconds}: {plan:?}");
            assert!(plan.load >= Duration::from_secs(1) && plan.warm_up < plan.measured_until());
            let last = plan.start_of(MULTIPLES.len() - 1) + plan.load + DEADLINE;
            assert_eq!(last, plan.total());
        }
    }

    #[test]
    fn both_configurations_are_right() {
        for side in Side::ALL {
            let backends = ["127.0.0.1:5070", "127.0.0.1:5071"].map(|a| a.parse().unwrap());
            let text = side.configuration(Path::new("/tmp/state"), backends.into_iter());
            let config = Config::parse(Path::new("demo.toml"), text.as_bytes());
            let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
            let law = if side == Side::Protected { "tide" } else { "none" };
            assert_eq!(config.overload.gate.law.entry().name, law);
            let costs = config.emulate.expect("it is slowed down");
            assert!((cost::call(&costs, &cost::CALL).as_secs_f64() - CALL_S).abs() < 1e-9);
            if side == Side::Protected {
                let disposal = config.overload.disposal;
                assert!(cost::rejection(&costs, disposal).is_zero(), "as the bound assumes");
            }
            assert_eq!(config.pool[0].backends.len(), BACKENDS);
        }
    }

    #[test]
    fn the_capacity_is_about_200_calls_a_second() {
        assert!((CAPACITY_CPS - 200.0).abs() < 0.1);
    }
}
