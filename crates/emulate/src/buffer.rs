//! A receive buffer of an emulated socket.

use std::collections::VecDeque;

use tidegate_world::{Received, Timestamp};

/// A FIFO queue of datagrams, with a limited size.
#[derive(Debug)]
pub(super) struct Buffer {
    datagrams: VecDeque<(Timestamp, Received)>,
    max: usize,
    /// Limit on the bytes in the buffer, counted as Linux charges them, or `None` without a limit.
    bytes_max: Option<usize>,
    charged: usize,
    /// Number of datagrams at the front that belong to the queue of the reader. The kernel moves
    /// all waiting datagrams to this queue when the reader finds it empty.
    moved: usize,
    /// Bytes of datagrams that were taken but are still charged.
    unreleased: usize,
}

impl Buffer {
    pub(super) fn new(max: usize, bytes_max: Option<usize>) -> Self {
        assert!(max > 0, "a buffer without room for a datagram");
        let datagrams = VecDeque::new();
        Self { datagrams, max, bytes_max, charged: 0, moved: 0, unreleased: 0 }
    }

    /// Keeps a datagram that arrived at `at`. Returns `false` if there is no room for it.
    pub(super) fn push(&mut self, at: Timestamp, received: Received) -> bool {
        // The kernel drops a datagram that would exceed the limit, unless the buffer is empty.
        // Kernels before 6.18 let the last datagram exceed the limit.
        let charged = self.charged + charge(received.bytes.len());
        let room = self.charged == 0 || self.bytes_max.is_none_or(|max| charged <= max);
        let fits = room && self.datagrams.len() < self.max;
        if fits {
            self.charged = charged;
            self.datagrams.push_back((at, received));
        }
        fits
    }

    /// Returns the arrival time of the first datagram.
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        self.datagrams.front().map(|(at, _)| *at)
    }

    pub(super) fn waits(&self, now: Timestamp) -> bool {
        self.earliest().is_some_and(|at| at <= now)
    }

    pub(super) fn pop(&mut self) -> Option<Received> {
        if self.moved == 0 {
            self.moved = self.datagrams.len();
        }
        let (_, received) = self.datagrams.pop_front()?;
        self.moved -= 1;
        self.unreleased += charge(received.bytes.len());
        // The kernel releases the bytes of several read datagrams together: when they are a quarter
        // of the buffer, or when the queue of the reader is empty (`udp_rmem_release`).
        let quarter = self.bytes_max.map_or(0, |max| max / 4);
        if self.moved == 0 || self.unreleased >= quarter {
            self.charged -= std::mem::take(&mut self.unreleased);
        }
        Some(received)
    }

    /// Returns the part of the buffer that is filled, 0 to 1: the bytes or the datagrams, whichever
    /// is nearer to its limit.
    pub(super) fn fill(&self) -> f32 {
        let datagrams = self.datagrams.len() as f32 / self.max as f32;
        let bytes = self.bytes_max.map_or(0.0, |max| self.charged as f32 / max.max(1) as f32);
        datagrams.max(bytes.min(1.0))
    }

    pub(super) fn len(&self) -> usize {
        self.datagrams.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }
}

/// Returns the bytes that Linux charges a socket for a datagram of `payload` bytes (its
/// `truesize`). This is 256 for the `sk_buff` structure, plus the block with the data, the headers
/// and the `skb_shared_info` structure. A block has 576 bytes or a power of two. From 16,005 bytes
/// of payload on, the payload is in pages, in addition to a block of 576 bytes.
///
/// Measured with Linux 6.18 over the loopback interface (`SK_MEMINFO_RMEM_ALLOC`). Other
/// interfaces, whose drivers allocate before they know the length, may charge more.
fn charge(payload: usize) -> usize {
    const SK_BUFF: usize = 256;
    const SMALL: usize = 576;
    const BESIDE_PAYLOAD: usize = 379;
    const LINEAR_MAX: usize = 16_384;
    let block = match payload + BESIDE_PAYLOAD {
        small if small <= SMALL => SMALL,
        linear if linear < LINEAR_MAX => linear.next_power_of_two(),
        _ => SMALL + payload,
    };
    SK_BUFF + block
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Flow, Pool};

    use super::*;

    fn datagram(bytes: usize) -> Received {
        let address = "127.0.0.1:1".parse().unwrap();
        let bytes = Pool::new().copy(&vec![b'x'; bytes]);
        Received::new(Timestamp::ZERO, Flow::udp(address, address), bytes)
    }

    #[test]
    fn a_datagram_is_charged_what_linux_was_seen_to_charge() {
        let seen = [
            (0, 832),
            (100, 832),
            (197, 832),
            (198, 1280),
            (645, 1280),
            (646, 2304),
            (1669, 2304),
            (1670, 4352),
            (3718, 8448),
            (7813, 8448),
            (7814, 16_640),
            (16_004, 16_640),
            (16_005, 16_837),
            (65_000, 65_832),
        ];
        for (payload, charged) in seen {
            assert_eq!(charge(payload), charged, "{payload} bytes");
        }
    }

    #[test]
    fn a_buffer_takes_and_releases_bytes_as_linux_was_seen_to() {
        let mut buffer = Buffer::new(1000, Some(131_072));
        let push = |buffer: &mut Buffer| buffer.push(Timestamp::ZERO, datagram(500));
        let held = |buffer: &Buffer| buffer.charged / 1280;
        assert_eq!((0..300).filter(|_| push(&mut buffer)).count(), 102);
        let seen =
            [(25, 102), (26, 76), (51, 76), (52, 50), (77, 50), (78, 24), (101, 24), (102, 0)];
        let mut taken = 0;
        for (until, expected) in seen {
            (taken..until).for_each(|_| assert!(buffer.pop().is_some()));
            taken = until;
            assert_eq!(held(&buffer), expected, "after {until}");
        }
        // The first read moves two datagrams to the queue of the reader. The next two arrive later,
        // so this queue is empty after two reads.
        (0..2).for_each(|_| assert!(push(&mut buffer)));
        buffer.pop();
        (0..2).for_each(|_| assert!(push(&mut buffer)));
        assert_eq!(held(&buffer), 4);
        buffer.pop();
        assert_eq!(held(&buffer), 2);
    }

    #[test]
    fn a_datagram_that_exceeds_the_limit_in_bytes_fits_only_into_an_empty_buffer() {
        let mut buffer = Buffer::new(100, Some(2 * 1280));
        let push = |buffer: &mut Buffer, bytes| buffer.push(Timestamp::ZERO, datagram(bytes));
        assert!(push(&mut buffer, 3000), "4,352 bytes");
        assert!(!push(&mut buffer, 0));
        assert_eq!(buffer.fill(), 1.0);
        assert_eq!(buffer.pop().unwrap().bytes.len(), 3000);
        assert_eq!((buffer.fill(), buffer.is_empty()), (0.0, true));
        assert_eq!(
            [500, 0, 500, 100].map(|bytes| push(&mut buffer, bytes)),
            [true, true, false, false]
        );
        buffer.pop();
        buffer.pop();
        push(&mut buffer, 500);
        assert_eq!(buffer.fill(), 0.5, "one in a hundred, but half of the bytes");
    }
}
