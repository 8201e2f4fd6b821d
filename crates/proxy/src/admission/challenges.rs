//! The requests for credentials (401 and 407) from back ends that callers have not answered yet.
//!
//! If a back end challenges a request with 401 or 407, the caller repeats the request with
//! credentials. To the gate this is a new request. If the challenge were not remembered, the law
//! would decide twice on each such call, and would reject some calls after their first request has
//! been served.
//!
//! A stranger cannot use challenges to pass the gate more often than the gate admits requests. Only
//! a response of a back end to an admitted request leaves a challenge. One request from the same
//! address, with the same method and the same Call-ID, answers the challenge. After that, or after
//! some time, the law decides again. A second challenge of the same call does not count. If the
//! memory is full, the law also decides on the request with credentials.

use std::time::Duration;

use tidegate_control::{Decision, Memory};
use tidegate_world::Timestamp;

/// The longest time for which a challenge is remembered, which is two generations of [`Memory`].
const REMEMBERED: Duration = Duration::from_secs(64);

/// The challenges of the last 32 to 64 seconds.
pub(crate) struct Challenges {
    /// Challenges by the keyed hash of the challenged request. The value is [`Decision::Waits`]
    /// until the caller has answered the challenge, and then [`Decision::Served`].
    memory: Memory,
    /// The latest time at which the newest challenge is forgotten.
    until: Timestamp,
}

impl Challenges {
    /// Creates a memory of up to `count_max` challenges in each generation.
    pub(crate) fn new(count_max: usize) -> Self {
        Self { memory: Memory::new(count_max), until: Timestamp::ZERO }
    }

    /// Returns true if any challenge may still be unanswered. Otherwise no hash of a request need
    /// be computed.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Records a challenge by the keyed hash of the challenged request. Does nothing if a challenge
    /// with this hash is remembered, answered or not.
    pub(crate) fn on_challenge(&mut self, now: Timestamp, challenge: u64) {
        if self.memory.recall(now, challenge).is_none()
            && self.memory.remember(now, challenge, Decision::Waits)
        {
            self.until = now + REMEMBERED;
        }
    }

    /// Returns true if the challenge with this hash is not answered yet.
    pub(crate) fn waits(&mut self, now: Timestamp, challenge: u64) -> bool {
        self.memory.recall(now, challenge) == Some(Decision::Waits)
    }

    /// Records the answer to a challenge. Returns true if the answer is remembered. Otherwise the
    /// same challenge could be answered again, so the answer must not pass the gate.
    #[must_use]
    pub(crate) fn on_answer(&mut self, now: Timestamp, challenge: u64) -> bool {
        self.memory.remember(now, challenge, Decision::Served)
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.memory.overflowed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_challenge_is_answered_once_and_not_renewed_at_once() {
        let mut challenges = Challenges::new(10);
        assert!(!challenges.is_active(at(0)));
        challenges.on_challenge(at(0), 7);
        assert!(challenges.is_active(at(31)) && challenges.waits(at(31), 7));
        assert!(!challenges.waits(at(31), 8));
        assert!(challenges.on_answer(at(31), 7));
        challenges.on_challenge(at(31), 7);
        assert!(!challenges.waits(at(31), 7));
        // An answer is remembered for at least 32 s, and a challenge for at most 64 s.
        challenges.on_challenge(at(62), 7);
        assert!(!challenges.waits(at(62), 7));
        challenges.on_challenge(at(130), 7);
        assert!(challenges.waits(at(130), 7) && !challenges.waits(at(194), 7));
        assert!(!challenges.is_active(at(194)));
    }

    #[test]
    fn a_full_memory_takes_no_challenge() {
        let mut challenges = Challenges::new(1);
        challenges.on_challenge(at(0), 7);
        challenges.on_challenge(at(0), 8);
        assert_eq!([7, 8].map(|challenge| challenges.waits(at(0), challenge)), [true, false]);
        assert_eq!(challenges.overflowed(), 1);
        let mut challenges = Challenges::new(0);
        challenges.on_challenge(at(0), 7);
        assert!(!challenges.is_active(at(0)), "no challenge waits");
    }

    /// A stranger that fills the memory must not be able to answer one challenge any number of
    /// times.
    #[test]
    fn a_challenge_is_answered_once_although_the_memory_is_full() {
        let mut challenges = Challenges::new(1);
        challenges.on_challenge(at(0), 7);
        challenges.on_challenge(at(40), 8);
        for is_first in [true, false] {
            let passes = challenges.waits(at(41), 7) && challenges.on_answer(at(41), 7);
            assert_eq!(passes, is_first);
        }
        assert!(!challenges.on_answer(at(41), 9));
    }
}
