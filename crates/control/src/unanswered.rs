//! Counts the INVITEs that were sent on and that nobody has answered yet. The responses to them are
//! work that will soon arrive.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Number of time slices. An INVITE without an answer counts for this number of slices.
const SLICES: usize = 64;

/// Length of a slice in ns, as a power of two: 8.4 ms. All slices together are 0.54 s long. Calls
/// to servers that answer later are no burst, because such answers come at very different times.
const SLICE_BITS: u32 = 23;

/// The longest time for which an INVITE counts.
const COUNTED_MAX: Duration = Duration::from_nanos((SLICES as u64) << SLICE_BITS);

/// Counts of INVITEs that were sent on, and their answers. An answer is the first response other
/// than 100. Each count except `waiting` is the total since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// INVITEs that were sent on.
    pub sent: u64,
    /// INVITEs that were answered, or for whose answer the server no longer waits.
    pub ended: u64,
    /// The sum of the times from sending to the end, for all ended INVITEs.
    pub waited: Duration,
    /// INVITEs that have not ended.
    pub waiting: u64,
}

/// The INVITEs that were sent within about half a second and that have no answer.
#[derive(Clone, Debug)]
pub struct Unanswered {
    answers: Answers,
    /// For each recent slice, the INVITEs sent in it that have no answer.
    slices: [u32; SLICES],
    /// Number of the newest slice, counted from time zero.
    newest: u64,
}

impl Default for Unanswered {
    fn default() -> Self {
        Self { answers: Answers::default(), slices: [0; SLICES], newest: 0 }
    }
}

impl Unanswered {
    /// Returns the counts at `now`.
    pub fn answers(&mut self, now: Timestamp) -> Answers {
        self.advance(now);
        self.answers
    }

    /// Records an INVITE that was sent on at `sent`, usually `now`.
    pub fn on_sent(&mut self, now: Timestamp, sent: Timestamp) {
        self.advance(now);
        let slice = slice_of(sent);
        if slice + SLICES as u64 <= self.newest {
            return; // It would have ended by its age.
        }
        self.slices[slice as usize % SLICES] += 1;
        self.answers.sent += 1;
        self.answers.waiting += 1;
    }

    /// Records that the INVITE that was sent on at `sent` is answered, or that no answer to it is
    /// expected any more.
    pub fn on_ended(&mut self, now: Timestamp, sent: Timestamp) {
        self.advance(now);
        let slice = slice_of(sent);
        if slice + SLICES as u64 <= self.newest {
            return; // It has ended by its age.
        }
        let count = &mut self.slices[slice as usize % SLICES];
        if *count > 0 {
            *count -= 1;
            self.end(1, now.since(sent));
        }
    }

    /// Ends the INVITEs that were sent too long ago.
    fn advance(&mut self, now: Timestamp) {
        let newest = slice_of(now);
        let passed = newest.saturating_sub(self.newest).min(SLICES as u64);
        self.newest = self.newest.max(newest);
        for slice in 0..passed {
            let oldest = (self.newest - slice) as usize % SLICES;
            let count = std::mem::take(&mut self.slices[oldest]);
            self.end(count, COUNTED_MAX);
        }
    }

    fn end(&mut self, count: u32, waited: Duration) {
        self.answers.ended += u64::from(count);
        self.answers.waiting -= u64::from(count);
        self.answers.waited += waited * count;
    }
}

fn slice_of(at: Timestamp) -> u64 {
    at.as_nanos() >> SLICE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    #[test]
    fn an_invite_counts_until_it_is_answered() {
        let mut unanswered = Unanswered::default();
        unanswered.on_sent(at(100), at(100));
        unanswered.on_sent(at(150), at(150));
        assert_eq!(unanswered.answers(at(160)).waiting, 2);
        unanswered.on_ended(at(200), at(100));
        let waited = Duration::from_millis(100);
        assert_eq!(unanswered.answers(at(200)), Answers { sent: 2, ended: 1, waited, waiting: 1 });
    }

    #[test]
    fn an_invite_without_an_answer_counts_for_half_a_second() {
        let mut unanswered = Unanswered::default();
        unanswered.on_sent(at(100), at(100));
        assert_eq!(unanswered.answers(at(620)).waiting, 1);
        let gone = unanswered.answers(at(645));
        assert_eq!(gone, Answers { sent: 1, ended: 1, waited: COUNTED_MAX, waiting: 0 });
        // An answer that comes later ends nothing, nor does one after a long silence.
        unanswered.on_sent(at(700), at(700));
        unanswered.on_ended(at(700), at(100));
        assert_eq!(unanswered.answers(at(700)).waiting, 1);
        assert_eq!(unanswered.answers(at(1_000_000)).waiting, 0);
    }

    #[test]
    fn an_answer_to_an_uncounted_invite_ends_nothing() {
        let mut unanswered = Unanswered::default();
        unanswered.on_ended(at(500), at(100));
        assert_eq!(unanswered.answers(at(500)), Answers::default());
    }
}
