//! Randomness as cores see it: one seeded stream for each purpose.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a stream's numbers are for. A draw for one purpose never disturbs
/// another, so adding a draw somewhere leaves every other trace as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Moments at which new calls begin.
    Arrivals,
    /// Identifiers that a user agent makes: Call-ID, tags, branches.
    Identity,
    /// How long a call is held.
    Hold,
    /// A choice among several equals.
    Pick,
    /// Whether a link loses a packet, and how long it delays it.
    Link,
    /// What a fault-injecting peer sends.
    Fault,
    /// Which new work a random throttle admits.
    Throttle,
    /// How long a caller waits for an answer.
    Patience,
    /// What a called party makes of a call.
    Outcome,
    /// How long a call rings.
    Ring,
    /// Whether and when a called party hangs up.
    HangUp,
    /// In which state arrivals are that come in bursts, and for how long.
    Modulation,
    /// How long a step of a modelled processor takes.
    Service,
    /// The rank of new work that bears nothing to rank it by.
    Rank,
    /// How long a refused sender is asked to wait.
    RetryAfter,
    /// The key by which datagrams are picked that are dropped before they are read.
    Shedding,
    /// Keys of a gate's tables of sources.
    Sources,
    /// Key of the table of those who may flood.
    Floods,
    /// Which new work a random throttle of a law that decides nothing would admit.
    ShadowThrottle,
    /// The rank by which such a law would judge new work that bears nothing to rank it by.
    ShadowRank,
    /// Which back ends a policy of balancing looks at.
    Balance,
    /// Whether and when a name is resolved.
    Resolution,
    /// When back ends are probed, and the identifiers of probes.
    Probes,
    /// Packets of hostile strangers.
    Strangers,
}

/// The seed of a whole run, from which every stream is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream for `purpose` at the element numbered `element` (a node, an
    /// agent, a shard): independent of every other pair.
    pub fn stream(self, purpose: Purpose, element: u32) -> Stream {
        let mut rng = ChaCha8Rng::seed_from_u64(self.0);
        // ChaCha's stream number selects one of 2^64 independent sequences.
        rng.set_stream((purpose as u64) << 32 | u64::from(element));
        Stream(rng)
    }
}

/// A reproducible sequence of random numbers (ChaCha8).
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        // 53 bits: every value is exactly representable and 1.0 is never drawn.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number uniform in `0..n`. Zero when `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        // Lemire's multiply-shift; its bias is at most n / 2^64.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// An exponentially distributed number of the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, purpose: Purpose, element: u32) -> [u64; 4] {
        let mut s = Seed(seed).stream(purpose, element);
        std::array::from_fn(|_| s.next_u64())
    }

    #[test]
    fn a_stream_depends_on_seed_purpose_and_element_and_on_nothing_else() {
        let base = first(1, Purpose::Arrivals, 0);
        assert_eq!(base, first(1, Purpose::Arrivals, 0));
        assert_ne!(base, first(2, Purpose::Arrivals, 0));
        assert_ne!(base, first(1, Purpose::Identity, 0));
        assert_ne!(base, first(1, Purpose::Arrivals, 1));
    }

    #[test]
    fn draws_stay_in_their_range_and_near_their_mean() {
        let mut s = Seed(7).stream(Purpose::Pick, 0);
        let n = 20_000u32;
        let mut sum = 0.0;
        let mut thirds = [0u32; 3];
        for _ in 0..n {
            let u = s.unit();
            assert!((0.0..1.0).contains(&u));
            thirds[s.below(3) as usize] += 1;
            sum += s.exponential(2.0);
        }
        // Standard error of the mean is 2 / sqrt(n) = 0.014; five of them.
        assert!((sum / f64::from(n) - 2.0).abs() < 0.07);
        // Each third's count has a standard error of sqrt(n * 2 / 9) = 67.
        assert!(thirds.iter().all(|t| t.abs_diff(n / 3) < 5 * 67), "{thirds:?}");
        assert_eq!(s.below(0), 0);
    }
}
