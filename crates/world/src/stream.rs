//! Random numbers for cores: one seeded stream for each purpose.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The purpose of a stream of random numbers. A draw for one purpose never affects the draws for
/// another purpose. So an additional draw leaves all other streams unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Times at which new calls start.
    Arrivals,
    /// Identifiers that a user agent makes: Call-ID, tags, branches.
    Identity,
    /// Holding times of calls.
    Hold,
    /// Choices among candidates that are equally good.
    Pick,
    /// Loss and delay of packets on a link.
    Link,
    /// Packets of a peer that injects faults.
    Fault,
    /// Admission of new work by a random throttle.
    Throttle,
    /// Times that callers wait for an answer.
    Patience,
    /// Behaviour of a called party.
    Outcome,
    /// Ringing times of calls.
    Ring,
    /// Choice of the calls that the called party ends, and the times at which it ends them.
    HangUp,
    /// States of a bursty arrival process, and their durations.
    Modulation,
    /// Times of the steps of a modelled processor.
    Service,
    /// Random ranks of new work that has no fingerprint, by which an overload-control law rejects a
    /// part of the work.
    Rank,
    /// Times that rejected senders are asked to wait before they try again.
    RetryAfter,
    /// Key of the hash that selects datagrams to drop before they are read.
    Shedding,
    /// Keys of the hashes in a gate's tables of sources.
    Sources,
    /// Key of the hash in the table of possible flooders.
    Floods,
    /// Decisions of the random throttle of a shadow law. They have no effect on calls.
    ShadowThrottle,
    /// Random ranks of new work without a fingerprint, by which a shadow law would decide.
    ShadowRank,
    /// Choice of the back ends that a balancing policy compares.
    Balance,
    /// Outcomes and times of name resolution.
    Resolution,
    /// Times and identifiers of probes.
    Probes,
    /// Packets of attackers.
    Strangers,
    /// Choice of the requests that are held back from a server that asks for fewer requests.
    Restriction,
    /// Key of the hash in the table of the servers that send requests to this proxy, and the
    /// initial states of the throttles for these servers.
    Upstreams,
    /// Decisions of people to call again, and the times at which they do.
    Redial,
    /// Choice of the people who make emergency calls.
    Emergency,
    /// Times at which devices register.
    Registration,
}

/// The seed of a whole run, from which every stream of random numbers is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the stream of random numbers for one purpose at one element (a node, an agent or a
    /// shard), given by the number of the element. Streams for other purposes or elements are
    /// independent of it.
    pub fn stream(self, purpose: Purpose, element: u32) -> Stream {
        let mut rng = ChaCha8Rng::seed_from_u64(self.0);
        // The stream number of ChaCha selects one of 2^64 independent sequences.
        rng.set_stream((purpose as u64) << 32 | u64::from(element));
        Stream(rng)
    }
}

/// A reproducible sequence of random numbers (ChaCha8).
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number that is uniformly distributed in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        // With 53 bits, every value is exactly representable, and 1.0 is never drawn.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number that is uniformly distributed in `0..n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // This is the multiply-shift method of Lemire. Its bias is at most n / 2^64.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Returns a number of the standard normal distribution, by the transform of Box and Muller. It
    /// uses two draws for each number, so that each number is independent of earlier ones.
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
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
        // Standard error of the mean is 2 / sqrt(n) = 0.014. The test allows five times this.
        assert!((sum / f64::from(n) - 2.0).abs() < 0.07);
        // Each third's count has a standard error of sqrt(n * 2 / 9) = 67.
        assert!(thirds.iter().all(|t| t.abs_diff(n / 3) < 5 * 67), "{thirds:?}");
        assert_eq!(s.below(0), 0);
    }
}
