//! Remembers the challenges (401 and 407 responses) of back ends, so that the overload control law
//! decides only once on each call.
//!
//! If a back end answers a request with a challenge, the caller repeats the request with
//! credentials. To the gate this is a new request. Without this memory the law would decide twice
//! on each challenged call, and would reject some calls after their first request has been served.
//!
//! A stranger cannot use the memory to pass the gate more often than the gate admits requests. A
//! challenge is remembered only if a back end has sent it in response to a request that the gate
//! has admitted. One request with the same source address, method and Call-ID answers the challenge
//! and passes the gate. After that, or after some time, the law decides again. Another challenge of
//! the same call is not remembered. If the memory is full, challenges are not remembered, and the
//! law decides on their answers too.

use std::time::Duration;

use tidegate_control::{Decision, Memory};
use tidegate_world::Timestamp;

/// Maximum time for which a challenge is remembered. [`Memory`] has two generations of 32 s each.
const REMEMBERED: Duration = Duration::from_secs(64);

/// The challenges that back ends have sent in the last 32 to 64 seconds.
pub(crate) struct Challenges {
    /// Maps the keyed hash of a challenged request to [`Decision::Waits`] until the caller has
    /// answered the challenge, and then to [`Decision::Served`].
    memory: Memory,
    /// Time by which all challenges are certainly forgotten.
    until: Timestamp,
}

impl Challenges {
    /// Creates a memory of up to `count_max` challenges in each of its two generations.
    pub(crate) fn new(count_max: usize) -> Self {
        Self { memory: Memory::new(count_max), until: Timestamp::ZERO }
    }

    /// Returns whether a challenge may still be unanswered. If none is, the caller need not compute
    /// the hashes of new requests.
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

    /// Returns whether the challenge with this hash is remembered and still unanswered.
    pub(crate) fn waits(&mut self, now: Timestamp, challenge: u64) -> bool {
        self.memory.recall(now, challenge) == Some(Decision::Waits)
    }

    /// Records that a challenge was answered. Returns false if the memory has no room for this
    /// record. The same challenge could then be answered again, so the caller must not let this
    /// answer pass the gate.
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
    use crate::testing::at_s as at;

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
