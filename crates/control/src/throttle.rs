//! Throttles, which select the new work that passes when not all of it may pass.
//!
//! Some throttles count pieces of work to enforce a share. Others measure time to enforce a rate.
//! If a law sets a rate, a throttle that enforces shares uses this rate divided by the rate of
//! arrivals. If a law sets a share, a throttle that enforces rates uses this share of the rate of
//! arrivals. A window limits the work that waits, and all throttles enforce it in the same way.

mod deterministic;
mod gapping;
mod leaky_bucket;
mod random;
#[cfg(test)]
mod tests;
mod token_bucket;
mod window;

use tidegate_world::{Stream, Timestamp, unit_enum};

use crate::Allowance;
use crate::arrival_rate::ArrivalRate;
pub(crate) use deterministic::Deterministic;
use gapping::Gapping;
pub(crate) use leaky_bucket::LeakyBucket;
use random::Random;
pub(crate) use token_bucket::TokenBucket;

unit_enum! {
    /// The method by which a throttle selects the work that passes. The configuration uses these
    /// names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ThrottleKind {
        /// Passes a share of the work, evenly spread (paper 000 §3.4).
        Deterministic = "deterministic",
        /// Passes a share of the work, by a random draw for each piece (paper 002 §2.4).
        Random = "random",
        /// Passes work at a rate, and short bursts above the rate (RFC 7415 §3.5.1).
        LeakyBucket = "leaky-bucket",
        /// Passes work at a rate. If less work arrives than the rate allows, the unused part of the
        /// rate can be used later, in a burst.
        TokenBucket = "token-bucket",
        /// Passes work at a rate, with a minimum time between two pieces.
        Gapping = "gapping",
    }
}

/// A throttle that enforces an [`Allowance`] on the work of one bucket.
#[derive(Clone, Debug)]
pub struct Throttle {
    arrivals: ArrivalRate,
    pick: Pick,
}

#[derive(Clone, Debug)]
enum Pick {
    Deterministic(Deterministic),
    Random(Random),
    LeakyBucket(LeakyBucket),
    TokenBucket(TokenBucket),
    Gapping(Gapping),
}

impl Throttle {
    /// Creates a throttle of this kind. A leaky or token bucket lets `burst` pieces (at least one)
    /// pass at once. The random throttle draws from `stream`.
    pub fn new(kind: ThrottleKind, burst: u32, stream: Stream) -> Self {
        let pick = match kind {
            ThrottleKind::Deterministic => Pick::Deterministic(Deterministic::default()),
            ThrottleKind::Random => Pick::Random(Random::new(stream)),
            ThrottleKind::LeakyBucket => Pick::LeakyBucket(LeakyBucket::new(burst)),
            ThrottleKind::TokenBucket => Pick::TokenBucket(TokenBucket::new(burst)),
            ThrottleKind::Gapping => Pick::Gapping(Gapping::default()),
        };
        Self { arrivals: ArrivalRate::default(), pick }
    }

    /// Returns whether the next piece of work passes while `in_progress` pieces count in the
    /// window: those that entered the queue and are not served yet.
    pub fn passes(&mut self, now: Timestamp, allowance: Allowance, in_progress: u64) -> bool {
        self.arrivals.on_arrival(now);
        match allowance {
            Allowance::Open => true,
            Allowance::Closed => false,
            Allowance::Window(size) => window::passes(size, in_progress),
            // A shallow bucket would hold back a part of an uneven stream.
            Allowance::Fraction(fraction) if fraction >= 1.0 => true,
            Allowance::Fraction(fraction) => self.passes_share(now, fraction.max(0.0)),
            Allowance::Rate(rate) if rate > 0.0 => self.passes_rate(now, rate),
            Allowance::Rate(_) => false,
        }
    }

    fn passes_share(&mut self, now: Timestamp, fraction: f64) -> bool {
        match &mut self.pick {
            Pick::Deterministic(throttle) => throttle.passes(fraction),
            Pick::Random(throttle) => throttle.passes(fraction),
            _ if fraction == 0.0 => false,
            Pick::Gapping(throttle) => {
                throttle.passes(now, gapping::rate_of(fraction, self.arrivals.rate()))
            }
            Pick::LeakyBucket(_) | Pick::TokenBucket(_) => {
                let rate = fraction * self.arrivals.rate();
                // The rate is unknown before the second arrival.
                rate == 0.0 || self.passes_rate(now, rate)
            }
        }
    }

    fn passes_rate(&mut self, now: Timestamp, rate: f64) -> bool {
        let share = Allowance::Rate(rate).fraction(self.arrivals.rate());
        match &mut self.pick {
            Pick::Deterministic(throttle) => throttle.passes(share),
            Pick::Random(throttle) => throttle.passes(share),
            Pick::LeakyBucket(throttle) => throttle.passes(now, rate),
            Pick::TokenBucket(throttle) => throttle.passes(now, rate),
            Pick::Gapping(throttle) => throttle.passes(now, rate),
        }
    }
}
