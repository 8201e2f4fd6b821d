//! The turns of a server that reads a batch of datagrams, and then serves messages.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Time after which service ends in a turn, unless reading took longer. The real driver has the
/// same limit.
const QUANTUM: Duration = Duration::from_micros(500);

/// A turn of a server: it reads up to a number of datagrams, and then serves messages. Service ends
/// when no message waits, or after [`QUANTUM`], or after the time that reading took if that was
/// longer. Interruptions count, so a server that is interrupted while it reads serves for longer.
#[derive(Debug)]
pub(super) struct Turn {
    /// Maximum number of datagrams that the server reads in a turn.
    batch: usize,
    read: usize,
    began: Timestamp,
    /// Time at which service ends, or `None` while the server reads.
    serves_until: Option<Timestamp>,
}

impl Turn {
    pub(super) fn new(batch: usize) -> Self {
        Self { batch, read: 0, began: Timestamp::ZERO, serves_until: None }
    }

    /// Returns whether the step at `at` reads a datagram. `offers` tells whether a datagram waits
    /// to be read, and `serves` whether a message waits to be served.
    pub(super) fn reads(&mut self, at: Timestamp, offers: bool, serves: bool) -> bool {
        if let Some(until) = self.serves_until {
            if serves && at < until {
                return false;
            }
            *self = Self::new(self.batch);
        }
        if self.read == 0 {
            self.began = at;
        }
        let is_full = self.read == self.batch;
        if offers && !is_full {
            self.read += 1;
            return true;
        }
        if serves {
            self.serves_until = Some(at + QUANTUM.max(at.since(self.began)));
            return false;
        }
        // Nothing was left to serve, so another turn begins.
        *self = Self { read: usize::from(offers), began: at, ..Self::new(self.batch) };
        offers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(us)
    }

    /// Returns the steps at these times in µs while datagrams and messages wait: `r` for reading,
    /// `s` for service.
    fn steps(batch: usize, times: &[u64]) -> String {
        let mut turn = Turn::new(batch);
        times.iter().map(|&us| if turn.reads(at(us), true, true) { 'r' } else { 's' }).collect()
    }

    #[test]
    fn a_turn_reads_a_batch_and_serves_for_a_quantum() {
        assert_eq!(steps(1, &[0, 10, 200, 509, 510, 520]), "rsssrs");
        assert_eq!(steps(3, &[0, 10, 20, 30, 529, 530]), "rrrssr");
    }

    #[test]
    fn service_lasts_as_long_as_reading_by_the_clock() {
        // An interruption of 4 ms during reading makes the service longer.
        assert_eq!(steps(2, &[0, 4_010, 4_020, 8_039, 8_040, 8_050, 8_060]), "rrssrrs");
        // An interruption during service does not make the service longer.
        assert_eq!(steps(2, &[0, 10, 20, 4_520, 4_530, 4_540]), "rrsrrs");
    }

    #[test]
    fn a_server_without_messages_reads_and_one_without_datagrams_serves() {
        let mut turn = Turn::new(2);
        let reads = |turn: &mut Turn, us, offers, serves| turn.reads(at(us), offers, serves);
        assert!((0..9).all(|us| reads(&mut turn, us, true, false)));
        assert!((10..19).all(|us| !reads(&mut turn, us, false, true)));
        // The quantum is not over, but nothing waits any more.
        assert!(reads(&mut turn, 20, true, false));
        assert!(!reads(&mut turn, 21, false, false));
    }
}
