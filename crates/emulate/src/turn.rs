//! The turns of a server that reads a batch of datagrams, and then serves messages.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Maximum time for which a turn serves messages, unless it has read for longer. Then it serves for
/// as long as it has read. The real driver has the same rule.
const QUANTUM: Duration = Duration::from_micros(500);

/// A turn of a server: it reads up to a number of datagrams from each buffer, and then serves
/// messages. It stops serving when no message waits, and at the latest after [`QUANTUM`], or after
/// the time for which it has read if that was longer. Interruptions are included, so a server that
/// is interrupted while it reads may serve for longer.
#[derive(Debug)]
pub(super) struct Turn {
    /// Maximum number of datagrams that the server reads in a turn from each buffer.
    limits: [usize; 2],
    /// Number of datagrams that the server has read in this turn from each buffer.
    read: [usize; 2],
    began: Timestamp,
    /// Time at which service ends, or `None` while the server reads.
    serves_until: Option<Timestamp>,
}

impl Turn {
    pub(super) fn new(limits: [usize; 2]) -> Self {
        Self { limits, read: [0; 2], began: Timestamp::ZERO, serves_until: None }
    }

    /// Returns the number of the buffer from which the step at `at` reads a datagram, or `None` if
    /// the step serves a message. `offers` tells for each buffer whether a datagram waits in it,
    /// and `serves` whether a message waits to be served. The first buffer is read before the
    /// second one.
    pub(super) fn reads(
        &mut self,
        at: Timestamp,
        offers: [bool; 2],
        serves: bool,
    ) -> Option<usize> {
        if let Some(until) = self.serves_until {
            if serves && at < until {
                return None;
            }
            *self = Self::new(self.limits);
        }
        if self.read == [0; 2] {
            self.began = at;
        }
        let may_read = |turn: &Self| (0..2).find(|&i| offers[i] && turn.read[i] < turn.limits[i]);
        let mut next = may_read(self);
        if next.is_none() && serves {
            self.serves_until = Some(at + QUANTUM.max(at.since(self.began)));
            return None;
        }
        if next.is_none() {
            // Nothing was left to serve, so another turn begins.
            *self = Self { began: at, ..Self::new(self.limits) };
            next = may_read(self);
        }
        if let Some(buffer) = next {
            self.read[buffer] += 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(us)
    }

    /// Returns the steps at these times in µs: `o` and `n` for reading the first and the second
    /// buffer, `s` for service. `offers` tells in which buffers datagrams wait. Messages always
    /// wait.
    fn steps(limits: [usize; 2], offers: [bool; 2], times: &[u64]) -> String {
        let mut turn = Turn::new(limits);
        let step = |&us| turn.reads(at(us), offers, true).map_or('s', |buffer| ['o', 'n'][buffer]);
        times.iter().map(step).collect()
    }

    fn steps_of_one(limit: usize, times: &[u64]) -> String {
        steps([limit, 1], [true, false], times)
    }

    #[test]
    fn a_turn_reads_a_batch_and_serves_for_a_quantum() {
        assert_eq!(steps_of_one(1, &[0, 10, 200, 509, 510, 520]), "osssos");
        assert_eq!(steps_of_one(3, &[0, 10, 20, 30, 529, 530]), "ooosso");
    }

    #[test]
    fn each_buffer_has_its_own_limit_in_a_turn() {
        assert_eq!(steps([2, 1], [true; 2], &[0, 10, 20, 30, 529, 530]), "oonsso");
        assert_eq!(steps([2, 1], [false, true], &[0, 10, 509, 510]), "nssn");
    }

    #[test]
    fn service_lasts_as_long_as_reading_by_the_clock() {
        // An interruption of 4 ms during reading makes the service longer.
        assert_eq!(steps_of_one(2, &[0, 4_010, 4_020, 8_039, 8_040, 8_050, 8_060]), "oossoos");
        // An interruption during service does not make the service longer.
        assert_eq!(steps_of_one(2, &[0, 10, 20, 4_520, 4_530, 4_540]), "oosoos");
    }

    #[test]
    fn a_server_without_messages_reads_and_one_without_datagrams_serves() {
        let mut turn = Turn::new([2, 2]);
        let mut reads = |us, offers, serves| turn.reads(at(us), [offers, false], serves).is_some();
        assert!((0..9).all(|us| reads(us, true, false)));
        assert!((10..19).all(|us| !reads(us, false, true)));
        // The quantum is not over, but nothing waits any more.
        assert!(reads(20, true, false));
        assert!(!reads(21, false, false));
    }
}
