//! The turns of new work among the messages of existing calls and transactions.
//!
//! Messages of existing calls and transactions finish work that has been admitted, so they are
//! served before new work. But if they always came first, the load of a server with slow back ends
//! would oscillate: while the answers to many calls occupy the processor, no new call is served, so
//! a little later few answers come, and the processor is idle. So a law can ask for turns
//! ([`QueueControl::takes_turns`]): while new work waits, it has a turn after as many messages as a
//! piece of new work usually brings. This is the ratio in which both kinds arrive in the long run,
//! so both are served as fast as they arrive.
//!
//! A callee without an ACK retransmits its 200 after T1 (RFC 3261 §13.3.1.4), and both the 200 and
//! the ACK wait in the proxy. So the messages of existing calls must not wait for long:
//!
//! - If one of them has waited for a fifth of T1, new work has fewer turns. At two fifths of T1 it
//!   has a turn only after [`AHEAD_MAX`] messages.
//! - If one of them has always waited for more than a tenth of T1 for two T1, they form a standing
//!   queue, and perhaps many of them are retransmissions. Then new work has only these few turns
//!   until the queue is nearly empty.
//!
//! Anybody can send a BYE, or a message that looks like a response. So even a flood of them leaves
//! new work a turn after [`AHEAD_MAX`] messages.

use std::time::Duration;

#[cfg(doc)]
use tidegate_control::QueueControl;
use tidegate_world::Timestamp;

/// Maximum number of messages of existing calls and transactions, and of INVITEs with priority,
/// that are served before one message of other new work, while such work waits.
const AHEAD_MAX: u32 = 15;

/// Minimum of this number. A call brings at least a provisional and a final response, an ACK, a BYE
/// and its response.
const AHEAD_MIN: u32 = 4;

/// The time after which a queue counts as standing, in units of a fifth of T1.
const STANDING: u32 = 10;

/// Time after which the counts of served messages are halved.
const HALVED_AFTER: Duration = Duration::from_secs(1);

/// A scheduler that decides what is served next: new work, or messages of existing calls and
/// transactions.
#[derive(Debug)]
pub(super) struct Turns {
    /// A fifth of T1: the wait of a message of an existing call or transaction above which new work
    /// has fewer turns. At twice this wait it has the fewest.
    patience: Duration,
    /// Time at which no message of an existing call or transaction had waited for more than half of
    /// `patience`.
    relaxed: Timestamp,
    /// True while a standing queue of such messages is served.
    drains: bool,
    /// Number of messages that were served since the last turn of new work without priority:
    /// messages of existing calls and transactions, and new INVITEs with priority.
    ahead: u32,
    /// Number of recently served messages of existing calls and transactions.
    finishing: u32,
    /// Number of recently served pieces of new work, without those with priority.
    new: u32,
    /// Time at which both counts were halved.
    halved: Timestamp,
}

impl Turns {
    /// Creates the turns of a proxy with this T1 (RFC 3261 §17.1.1.1).
    pub(super) fn new(t1: Duration) -> Self {
        Self {
            patience: t1 / 5,
            relaxed: Timestamp::ZERO,
            drains: false,
            ahead: 0,
            finishing: 0,
            new: 0,
            halved: Timestamp::ZERO,
        }
    }

    /// Returns whether waiting new work is served next. `wait` is the longest wait of a message of
    /// an existing call or transaction, or zero if none waits.
    pub(super) fn is_of_new(&mut self, now: Timestamp, wait: Duration) -> bool {
        if wait <= self.patience / 2 {
            self.relaxed = now;
            self.drains &= wait > self.patience / 8;
        } else if now.since(self.relaxed) >= STANDING * self.patience {
            self.drains = true;
        }
        let excess = wait.saturating_sub(self.patience);
        let needed = if self.drains || excess >= self.patience {
            AHEAD_MAX
        } else if excess.is_zero() {
            self.usual()
        } else {
            let usual = self.usual();
            let excess = excess.as_secs_f64() / self.patience.as_secs_f64();
            usual + (f64::from(AHEAD_MAX - usual) * excess) as u32
        };
        self.ahead >= needed
    }

    /// Returns whether waiting new work is served next if it has the fewest turns.
    pub(super) fn is_rarely_of_new(&self) -> bool {
        self.ahead >= AHEAD_MAX
    }

    /// Records that no message waits, or that new work has the fewest turns anyway.
    pub(super) fn relax(&mut self, now: Timestamp) {
        (self.relaxed, self.drains) = (now, false);
    }

    /// Returns the number of messages that a piece of new work usually brings, within the limits.
    fn usual(&self) -> u32 {
        let mean = (self.finishing + self.new / 2).checked_div(self.new);
        mean.map_or(AHEAD_MAX, |mean| mean.clamp(AHEAD_MIN, AHEAD_MAX))
    }

    /// Records that a message of an existing call or transaction is served.
    pub(super) fn on_finishing(&mut self, now: Timestamp) {
        self.forget(now);
        self.ahead = self.ahead.saturating_add(1);
        self.finishing = self.finishing.saturating_add(1);
    }

    /// Records that an INVITE with priority is served.
    pub(super) fn on_priority(&mut self) {
        self.ahead = self.ahead.saturating_add(1);
    }

    /// Records that new work without priority is served.
    pub(super) fn on_new(&mut self, now: Timestamp) {
        self.forget(now);
        self.ahead = 0;
        self.new = self.new.saturating_add(1);
    }

    fn forget(&mut self, now: Timestamp) {
        if now.since(self.halved) >= HALVED_AFTER {
            self.halved = now;
            (self.finishing, self.new) = (self.finishing / 2, self.new / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: Duration = Duration::from_millis(500);

    fn at_ms(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// Serves `rounds` pieces of new work, each followed by `each` other messages.
    fn served(turns: &mut Turns, rounds: u32, each: u32) {
        for _ in 0..rounds {
            turns.on_new(at_ms(1));
            (0..each).for_each(|_| turns.on_finishing(at_ms(1)));
        }
    }

    /// Returns the number of messages after which new work has a turn at the time `ms`.
    fn ahead(turns: &mut Turns, ms: u64, wait_ms: u64) -> u32 {
        turns.on_new(at_ms(1));
        let mut served = 0;
        while !turns.is_of_new(at_ms(ms), Duration::from_millis(wait_ms)) {
            turns.on_finishing(at_ms(1));
            served += 1;
        }
        served
    }

    #[test]
    fn new_work_has_a_turn_after_as_many_messages_as_it_brings() {
        for (each, expected) in [(5, 5), (9, 9), (1, 4), (40, 15)] {
            let mut turns = Turns::new(T1);
            served(&mut turns, 100, each);
            assert_eq!(ahead(&mut turns, 1, 0), expected, "{each}");
        }
    }

    #[test]
    fn at_first_it_has_the_fewest_turns() {
        let mut turns = Turns { ahead: 14, ..Turns::new(T1) };
        assert!(!turns.is_of_new(at_ms(1), Duration::ZERO));
        turns.on_priority();
        assert!(turns.is_of_new(at_ms(1), Duration::ZERO));
    }

    #[test]
    fn it_has_fewer_turns_while_other_messages_wait_for_long() {
        let mut turns = Turns::new(T1);
        served(&mut turns, 100, 5);
        let waits = [100, 150, 200, 900];
        assert_eq!(waits.map(|wait_ms| ahead(&mut turns, 1, wait_ms)), [5, 10, 15, 15]);
    }

    // Without this rule, a server whose callers have a T1 of 100 ms stayed at two thirds of its
    // goodput: the messages of existing calls waited for 100 ms, so each of them came twice.
    #[test]
    fn it_has_the_fewest_turns_until_a_standing_queue_is_served() {
        let mut turns = Turns::new(T1);
        served(&mut turns, 100, 5);
        assert_eq!(ahead(&mut turns, 1, 50), 5);
        for (ms, wait_ms, expected) in
            [(1000, 60, 5), (1001, 60, 15), (1100, 20, 15), (1200, 12, 5), (1300, 60, 5)]
        {
            assert_eq!(ahead(&mut turns, ms, wait_ms), expected, "at {ms} ms");
        }
    }

    #[test]
    fn a_long_wait_after_a_rest_is_no_standing_queue() {
        let mut turns = Turns::new(T1);
        served(&mut turns, 100, 5);
        turns.relax(at_ms(9000));
        assert_eq!(ahead(&mut turns, 9990, 60), 5);
    }

    #[test]
    fn without_turns_it_has_the_fewest() {
        let mut turns = Turns::new(T1);
        served(&mut turns, 100, 5);
        turns.ahead = 14;
        assert!(!turns.is_rarely_of_new());
        turns.on_priority();
        assert!(turns.is_rarely_of_new());
        // Nothing but messages of existing calls for weeks.
        turns.ahead = u32::MAX;
        turns.on_finishing(at_ms(1));
        turns.on_priority();
        assert!(turns.is_rarely_of_new());
    }

    #[test]
    fn old_counts_are_forgotten() {
        let mut turns = Turns::new(T1);
        served(&mut turns, 1000, 5);
        for s in 1..12 {
            turns.on_finishing(at_ms(1000 * s + 1));
        }
        assert!(turns.new == 0 && turns.finishing < 10, "{turns:?}");
        assert_eq!(turns.usual(), AHEAD_MAX);
    }
}
