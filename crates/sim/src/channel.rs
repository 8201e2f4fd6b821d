//! The state of a link: its queue and its random numbers.

use std::time::Duration;

use tidegate_world::{Flow, Stream, Timestamp};

use crate::link::{Bandwidth, Link, Trip};
use crate::tap::Loss;

/// The state of the link in one direction between two nodes. The random outcome of a packet depends
/// only on the seed and on earlier packets in that direction.
///
/// A channel is small, because a hundred nodes have ten thousand channels, and every packet uses
/// one.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The link that [`Network::connect`](crate::Network::connect) has set, or `None` for the
    /// default link.
    pub link: Option<Box<Link>>,
    /// The link that replaces the normal one during a fault.
    pub impaired: Option<Box<Link>>,
    pub partitioned: bool,
    stream: Stream,
    /// Time at which the transmitter will have sent all packets that it has got so far.
    free_at: Timestamp,
}

/// The trip of a packet that is not lost, and of its copy if the link duplicated the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    pub first: Trip,
    pub copy: Option<Trip>,
}

impl Channel {
    pub fn new(stream: Stream) -> Self {
        Self { link: None, impaired: None, partitioned: false, stream, free_at: Timestamp::ZERO }
    }

    /// Decides when a packet of `bytes` bytes that is sent at `now` arrives. A channel without a
    /// link of its own uses the default link `all`.
    ///
    /// # Errors
    /// Returns an error if the packet is lost.
    pub fn carry(&mut self, all: &Link, now: Timestamp, bytes: usize) -> Result<Carried, Loss> {
        let link = self.impaired.as_deref().or(self.link.as_deref()).unwrap_or(all);
        if self.partitioned || link.cut {
            return Err(Loss::Partition);
        }
        let waits = match link.bandwidth {
            Some(bandwidth) => transmit(&mut self.free_at, now, bytes, bandwidth)?,
            None => Duration::ZERO,
        };
        let (mut first, mut copy) = link.trips(&mut self.stream).ok_or(Loss::Link)?;
        first.after += waits;
        // The link copies packets in transit, so it carries both copies at the cost of one.
        if let Some(copy) = &mut copy {
            copy.after += waits;
        }
        Ok(Carried { first, copy })
    }
}

/// Puts a packet on the link after earlier packets, which occupy the link until `free_at`. Returns
/// the time from `now` until the whole packet is on the link, or an error if the packet finds the
/// queue full.
fn transmit(
    free_at: &mut Timestamp,
    now: Timestamp,
    bytes: usize,
    Bandwidth { bits_per_s, queue_max_bytes }: Bandwidth,
) -> Result<Duration, Loss> {
    let rate = u128::from(bits_per_s.max(1));
    let backlog = free_at.since(now);
    // Rounded up, because a byte counts until it is transmitted completely.
    let waiting_bytes = (backlog.as_nanos() * rate).div_ceil(8 * NANOS);
    if waiting_bytes + bytes as u128 > queue_max_bytes as u128 {
        return Err(Loss::Queue);
    }
    let takes = (bytes as u128 * 8 * NANOS).div_ceil(rate);
    let takes = Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
    *free_at = (*free_at).max(now) + takes;
    Ok(free_at.since(now))
}

const NANOS: u128 = 1_000_000_000;

/// Returns the size of a datagram on the wire, in bytes: the payload, a UDP header of 8, and an IP
/// header of 20 (IPv4) or 40 (IPv6).
pub(crate) fn on_the_wire(flow: Flow, payload: usize) -> usize {
    payload + if flow.remote.is_ipv4() { 28 } else { 48 }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A channel and its link.
    struct Wire {
        link: Link,
        channel: Channel,
    }

    impl Wire {
        fn carry(&mut self, now: Timestamp, bytes: usize) -> Result<Carried, Loss> {
            self.channel.carry(&self.link, now, bytes)
        }
    }

    fn channel(link: Link) -> Wire {
        Wire { link, channel: Channel::new(Seed(1).stream(Purpose::Link, 0)) }
    }

    fn at(ms: u32) -> Timestamp {
        Timestamp::ZERO + ms * MS
    }

    /// Returns a link of one megabit a second: 125 bytes in a millisecond.
    fn narrow(queue_max_bytes: usize) -> Link {
        let bandwidth = Bandwidth { bits_per_s: 1_000_000, queue_max_bytes };
        Link { bandwidth: Some(bandwidth), ..Link::delaying(10 * MS) }
    }

    fn after(carried: Result<Carried, Loss>) -> Result<Duration, Loss> {
        carried.map(|carried| carried.first.after)
    }

    #[test]
    fn packets_are_put_on_a_narrow_link_one_after_the_other() {
        let mut channel = channel(narrow(10_000));
        assert_eq!(after(channel.carry(at(0), 125)), Ok(11 * MS));
        assert_eq!(after(channel.carry(at(0), 250)), Ok(13 * MS));
        assert_eq!(after(channel.carry(at(1), 125)), Ok(13 * MS), "behind two more of its kind");
        assert_eq!(after(channel.carry(at(50), 125)), Ok(11 * MS), "idle time is not saved up");
    }

    #[test]
    fn packets_are_lost_while_the_queue_is_full() {
        let mut channel = channel(narrow(250));
        assert_eq!(after(channel.carry(at(0), 125)), Ok(11 * MS));
        assert_eq!(after(channel.carry(at(0), 125)), Ok(12 * MS));
        assert_eq!(after(channel.carry(at(0), 1)), Err(Loss::Queue));
        assert_eq!(after(channel.carry(at(1), 126)), Err(Loss::Queue));
        assert_eq!(after(channel.carry(at(1), 125)), Ok(12 * MS));
        assert_eq!(after(channel.carry(at(60), 251)), Err(Loss::Queue), "larger than the queue");
    }

    #[test]
    fn lost_and_copied_packets_used_the_link_once() {
        let mut lossy = channel(Link { loss: 1.0, ..narrow(10_000) });
        assert_eq!(lossy.carry(at(0), 125), Err(Loss::Link));
        lossy.link.loss = 0.0;
        assert_eq!(after(lossy.carry(at(0), 125)), Ok(12 * MS));
        let mut copying = channel(Link { duplicate: 1.0, ..narrow(10_000) });
        let carried = copying.carry(at(0), 125).unwrap();
        assert_eq!([carried.first, carried.copy.unwrap()].map(|trip| trip.after), [11 * MS; 2]);
        assert_eq!(after(copying.carry(at(0), 125)), Ok(12 * MS));
    }

    #[test]
    fn a_link_that_is_cut_and_a_partition_let_nothing_through() {
        let mut channel = channel(Link { cut: true, ..Link::default() });
        assert_eq!(channel.carry(at(0), 1), Err(Loss::Partition));
        channel.link.cut = false;
        assert!(channel.carry(at(0), 1).is_ok());
        channel.channel.partitioned = true;
        assert_eq!(channel.carry(at(0), 1), Err(Loss::Partition));
    }

    #[test]
    fn an_impairment_overrides_the_link_and_that_the_default() {
        let delaying = |ms| Some(Box::new(Link::delaying(ms * MS)));
        let mut wire = channel(Link::delaying(MS));
        wire.channel.link = delaying(3);
        assert_eq!(after(wire.carry(at(0), 1)), Ok(3 * MS));
        wire.channel.impaired = delaying(7);
        assert_eq!(after(wire.carry(at(0), 1)), Ok(7 * MS));
        wire.channel.impaired = None;
        assert_eq!(after(wire.carry(at(0), 1)), Ok(3 * MS));
        wire.channel.link = None;
        assert_eq!(after(wire.carry(at(0), 1)), Ok(MS));
    }

    #[test]
    fn headers_count_on_the_wire() {
        let flow = |address: &str| {
            let address = address.parse().unwrap();
            Flow::udp(address, address)
        };
        assert_eq!(on_the_wire(flow("127.0.0.1:1"), 500), 528);
        assert_eq!(on_the_wire(flow("[::1]:1"), 500), 548);
    }
}
