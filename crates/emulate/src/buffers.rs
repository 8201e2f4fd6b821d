//! The receive buffers of an emulated server: a single buffer, or one for requests for new work and
//! one for all other datagrams.

use tidegate_world::{Received, Shedding, Timestamp};

use super::buffer::Buffer;

/// Number of ordinary datagrams (all except requests for new work) that are taken before requests
/// for new work, while both wait. The default limit of the real driver for a turn is the same.
const ORDINARY: usize = 256;
/// Number of requests for new work that are taken after [`ORDINARY`] other datagrams. The default
/// limit of the real driver for a turn is the same.
const NEW_WORK: usize = 64;

/// The buffers in which datagrams wait from their arrival until they are offered to the core.
#[derive(Debug)]
pub(super) struct Buffers {
    ordinary: Buffer,
    new_work: Buffer,
    split: bool,
    /// Number of ordinary datagrams, and number of requests for new work, that were taken in this
    /// turn while both kinds waited.
    turn: (usize, usize),
}

impl Buffers {
    /// Creates two buffers if `split` is true, otherwise one. Each has room for `max` datagrams,
    /// and for `bytes` bytes as Linux charges them. `None` means no limit on the bytes.
    pub(super) fn new(split: bool, max: usize, bytes: Option<usize>) -> Self {
        let [ordinary, new_work] = [(); 2].map(|()| Buffer::new(max, bytes));
        Self { ordinary, new_work, split, turn: (0, 0) }
    }

    /// Keeps a datagram that arrived at `at`. If the buffer for the datagram is full, drops the
    /// datagram and returns `false`.
    pub(super) fn push(&mut self, at: Timestamp, received: Received) -> bool {
        let is_new_work = self.split && self.is_beside_new_work(&received.bytes);
        let buffer = if is_new_work { &mut self.new_work } else { &mut self.ordinary };
        buffer.push(at, received)
    }

    /// Returns whether a datagram with these bytes goes to the same buffer as requests for new
    /// work.
    pub(super) fn is_beside_new_work(&self, bytes: &[u8]) -> bool {
        !self.split || Shedding::may_be_dropped(bytes)
    }

    /// Returns the earlier of the arrival times of the datagrams at the front of the buffers.
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        [&self.ordinary, &self.new_work].into_iter().filter_map(Buffer::earliest).min()
    }

    /// Returns whether a datagram that has arrived by `now` can be taken.
    pub(super) fn waits(&self, now: Timestamp) -> bool {
        self.waiting(now) != [false; 2]
    }

    /// Returns, for each buffer, whether a datagram that has arrived by `now` can be taken from it.
    /// The first buffer is for ordinary datagrams, the second for requests for new work.
    pub(super) fn waiting(&self, now: Timestamp) -> [bool; 2] {
        [&self.ordinary, &self.new_work].map(|buffer| buffer.waits(now))
    }

    /// Takes a datagram from a buffer: 0 or 1, as in [`waiting`](Self::waiting).
    pub(super) fn take_from(&mut self, buffer: usize) -> Option<Received> {
        [&mut self.ordinary, &mut self.new_work][buffer].pop()
    }

    /// Returns, for each buffer, the maximum number of datagrams that the server reads from it in a
    /// turn. `batch` limits the requests for new work, or all datagrams if there is only one
    /// buffer.
    pub(super) fn limits(&self, batch: usize) -> [usize; 2] {
        if self.split { [ORDINARY, batch] } else { [batch, 0] }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Received> {
        let [ordinary, new_work] = self.waiting(now);
        let buffer = match (ordinary, new_work) {
            (true, true) if self.turn.0 < ORDINARY => {
                self.turn.0 += 1;
                &mut self.ordinary
            }
            (true, true) => {
                self.turn.1 += 1;
                if self.turn.1 == NEW_WORK {
                    self.turn = (0, 0);
                }
                &mut self.new_work
            }
            (true, false) => &mut self.ordinary,
            (false, _) => {
                self.turn = (0, 0);
                &mut self.new_work
            }
        };
        buffer.pop()
    }

    /// Returns the part of the fullest buffer that is filled, 0 to 1.
    pub(super) fn fill(&self) -> f32 {
        self.ordinary.fill().max(self.new_work.fill())
    }

    pub(super) fn len(&self) -> usize {
        self.ordinary.len() + self.new_work.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.new_work.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Flow, Pool};

    use super::*;

    fn datagram(text: &str) -> Received {
        let address = "127.0.0.1:1".parse().unwrap();
        let bytes = Pool::new().copy(text.as_bytes());
        Received::new(Timestamp::ZERO, Flow::udp(address, address), bytes)
    }

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    /// Takes all datagrams that have arrived by `now`, and returns their first letters.
    fn taken(buffers: &mut Buffers, now: u64) -> String {
        let next = || buffers.take(at(now)).map(|received| char::from(received.bytes[0]));
        std::iter::from_fn(next).collect()
    }

    fn filled(split: bool) -> Buffers {
        let mut buffers = Buffers::new(split, 3, None);
        for (ns, text) in [(1, "INVITE"), (2, "BYE"), (3, "INV"), (4, "INVI"), (9, "ACK")] {
            buffers.push(at(ns), datagram(text));
        }
        buffers
    }

    #[test]
    fn without_a_split_there_is_one_fifo() {
        let mut buffers = filled(false);
        assert_eq!(buffers.fill(), 1.0);
        assert_eq!(buffers.earliest(), Some(at(1)));
        assert_eq!(taken(&mut buffers, 2), "IB");
        assert_eq!((buffers.earliest(), buffers.waits(at(2))), (Some(at(3)), false));
        assert_eq!(taken(&mut buffers, 9), "I", "the others did not fit");
        assert!(buffers.is_empty());
    }

    #[test]
    fn invites_have_their_own_buffer_and_wait_for_other_datagrams() {
        let mut buffers = filled(true);
        assert_eq!(buffers.fill(), 1.0);
        assert_eq!(buffers.earliest(), Some(at(1)));
        assert!(!buffers.waits(at(0)) && buffers.waits(at(1)));
        assert_eq!(buffers.take(at(5)).unwrap().bytes[..], b"BYE"[..]);
        assert_eq!(buffers.take(at(5)).unwrap().bytes[..], b"INV"[..]);
        assert_eq!(taken(&mut buffers, 5), "II");
        assert_eq!(buffers.fill(), 1.0 / 3.0);
        assert_eq!(taken(&mut buffers, 9), "A");
        assert!(buffers.is_empty());
    }

    #[test]
    fn a_full_buffer_takes_no_more_and_the_other_still_does() {
        let mut buffers = Buffers::new(true, 2, None);
        let fits: Vec<_> = ["INVITE", "REGISTER", "INVITE", "BYE"]
            .map(|text| buffers.push(at(0), datagram(text)))
            .into();
        assert_eq!(fits, [true, true, false, true]);
    }

    #[test]
    fn a_flood_of_other_datagrams_does_not_starve_invites() {
        let mut buffers = Buffers::new(true, 2048, None);
        for text in ["INVITE", "BYE"] {
            (0..1000).for_each(|_| assert!(buffers.push(at(0), datagram(text))));
        }
        let turn = "B".repeat(256) + &"I".repeat(64);
        assert_eq!(taken(&mut buffers, 0)[..640], turn.repeat(2));
    }
}
