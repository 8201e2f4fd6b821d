//! Facts about peers, such as verified addresses, and addresses at which no element listens.

mod ended;

use std::net::SocketAddr;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_world::{ConnectionId, Flow, Timestamp, Transport};

use crate::keys::Keys;
use crate::shares::hash_of;
use crate::target::Target;
use ended::{Ended, KEPT_FOR};

/// Facts that a shard knows about its peers, in bounded tables.
#[derive(Default)]
pub(crate) struct Peers {
    verified: Verified,
    /// Addresses at which back ends cannot be reached.
    unreachable: Ended,
    /// Ended connections with back ends.
    ended_backends: Ended,
    /// Ended connections with peers that are not back ends. They have their own table, so that they
    /// do not evict entries of back ends.
    ended: Ended,
    /// Back ends reached over UDP that have answered a large request over TCP, on a connection that
    /// is still open.
    connected: Targets,
    /// Back ends whose connections did not take a request that begins new work, because the back
    /// ends read too slowly.
    slow_readers: Targets,
}

impl Peers {
    /// Returns whether the other end of `flow` has recently shown that it receives messages sent to
    /// it. A peer with a connection always counts as verified.
    pub(crate) fn is_verified(&self, now: Timestamp, keys: &Keys, flow: &Flow) -> bool {
        flow.transport.is_reliable()
            || self.verified.contains(now, hash_of(&keys.source, flow.remote.ip()))
    }

    /// Records that the other end of `flow` receives messages sent to it.
    pub(crate) fn verify(&mut self, now: Timestamp, keys: &Keys, flow: &Flow) {
        self.verified.insert(now, hash_of(&keys.source, flow.remote.ip()));
    }

    /// Returns whether the transport has reported, at `since` or later, that nothing listens at a
    /// target, or that the connection with it has ended.
    ///
    /// Only a report of the transport counts (RFC 3261 §16.9). A target that does not respond may
    /// only be overloaded, so the transaction timers decide about it.
    pub(crate) fn is_unreachable(&self, target: &Target, since: Timestamp) -> bool {
        let tables = [&self.unreachable, &self.ended_backends, &self.ended];
        tables.iter().any(|table| table.holds(target, since))
    }

    /// Returns whether the transport has reported, within the time `within` before now, that a back
    /// end cannot be reached. The end of a connection does not count, because it says nothing about
    /// the next connection. `within` is at most [`KEPT_FOR`], and `target` names no connection.
    pub(crate) fn is_unreachable_within(
        &self,
        now: Timestamp,
        target: &Target,
        within: Duration,
    ) -> bool {
        debug_assert!(within <= KEPT_FOR && target.connection.is_none());
        self.unreachable.holds(target, time_before(now, within))
    }

    /// Records that the address of a back end cannot be reached.
    pub(crate) fn record_unreachable(
        &mut self,
        now: Timestamp,
        transport: Transport,
        address: SocketAddr,
    ) {
        self.unreachable.record(now, &Target::new(transport, address), true);
    }

    /// Records that the connection of `flow` with a peer has ended. If we opened the connection, or
    /// if the peer is a stranger, requests that name no connection may have used it, so its end
    /// also counts for these requests. They never use a connection that a back end or a trusted
    /// source has opened.
    pub(crate) fn record_ended(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        is_backend: bool,
        is_stranger: bool,
    ) {
        let Flow { transport, remote, connection, .. } = *flow;
        let target = Target { connection, ..Target::new(transport, remote) };
        let is_opened = connection.is_none_or(ConnectionId::is_opened);
        let ended = if is_backend { &mut self.ended_backends } else { &mut self.ended };
        ended.record(now, &target, is_opened || is_stranger);
        self.connected.targets.retain(|(known, _)| !known.is_at(transport, remote));
    }

    /// Records that a back end has answered on a connection to `target`.
    pub(crate) fn record_connected(&mut self, now: Timestamp, target: &Target) {
        self.connected.record(now, *target);
    }

    /// Returns whether a connection to `target` is known to be open.
    pub(crate) fn is_connected(&self, target: &Target) -> bool {
        self.connected.holds(target, Timestamp::ZERO)
    }

    /// Records that the connection to a back end takes no new work, because the back end reads too
    /// slowly.
    pub(crate) fn record_slow_reader(
        &mut self,
        now: Timestamp,
        transport: Transport,
        address: SocketAddr,
    ) {
        self.slow_readers.record(now, Target::new(transport, address));
    }

    /// Returns whether any back end [reads too slowly](Self::reads_slowly).
    pub(crate) fn has_slow_readers(&self, now: Timestamp) -> bool {
        let since = time_before(now, SLOW_FOR);
        self.slow_readers.targets.iter().any(|(_, at)| *at >= since)
    }

    /// Returns whether the connection to a back end has failed to take new work in the last
    /// [`SLOW_FOR`].
    pub(crate) fn reads_slowly(&self, now: Timestamp, target: &Target) -> bool {
        self.slow_readers.holds(target, time_before(now, SLOW_FOR))
    }
}

/// Time during which new work avoids a back end whose connection took no new work, if other back
/// ends are available. A call that the connection does not take ends at once, so most policies
/// would consider the back end idle, and select it for every new call.
const SLOW_FOR: Duration = Duration::from_secs(1);

/// Returns the time `within` before `now`, or [`Timestamp::ZERO`] if that is later.
fn time_before(now: Timestamp, within: Duration) -> Timestamp {
    Timestamp::ZERO + now.since(Timestamp::ZERO).saturating_sub(within)
}

/// Maximum number of addresses that are remembered as verified.
const PLACES: usize = 1 << 14;

/// Number of seconds that an address stays verified.
const VERIFIED_S: u32 = 3600;

/// Addresses that have recently shown that they receive messages. The table has [`PLACES`] places.
/// The hash of an address determines its place, and a newer address replaces an older one there.
#[derive(Default)]
struct Verified {
    /// For each remembered address, a part of its keyed hash, and the time at which it is
    /// forgotten, in seconds since the start of the driver. The list is empty until the first
    /// address is verified.
    places: Vec<(u32, u32)>,
}

impl Verified {
    fn insert(&mut self, now: Timestamp, hash: u64) {
        if self.places.is_empty() {
            self.places.resize(PLACES, (0, 0));
        }
        self.places[hash as usize % PLACES] = ((hash >> 32) as u32, second(now) + VERIFIED_S);
    }

    fn contains(&self, now: Timestamp, hash: u64) -> bool {
        let place = self.places.get(hash as usize % PLACES);
        place.is_some_and(|&(part, until)| part == (hash >> 32) as u32 && second(now) < until)
    }
}

fn second(now: Timestamp) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

/// Maximum number of targets that a table remembers. A new target replaces the oldest one.
const TARGETS_MAX: usize = 64;

/// Targets about which the same fact is known, such as that they read too slowly.
#[derive(Debug, Default)]
struct Targets {
    /// Targets, each with the time at which it was recorded.
    targets: ArrayVec<(Target, Timestamp), TARGETS_MAX>,
}

impl Targets {
    fn record(&mut self, now: Timestamp, target: Target) {
        self.targets.retain(|(known, _)| *known != target);
        if self.targets.is_full() {
            self.targets.remove(0);
        }
        self.targets.push((target, now));
    }

    /// Returns whether `target` was recorded at `since` or later.
    fn holds(&self, target: &Target, since: Timestamp) -> bool {
        let is_target = |known: &Target| known.is_at(target.transport, target.address);
        self.targets.iter().any(|(known, at)| *at >= since && is_target(known))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::ConnectionId;

    use super::*;

    #[test]
    fn an_address_is_verified_for_an_hour_and_the_newer_takes_the_place() {
        let mut verified = Verified::default();
        let at = |s| Timestamp::ZERO + Duration::from_secs(s);
        let hash = |part: u64, place: u64| part << 32 | place;
        assert!(!verified.contains(at(0), 0), "nobody is at first");
        verified.insert(at(5), hash(7, 3));
        assert!(
            verified.contains(at(3604), hash(7, 3)) && !verified.contains(at(3605), hash(7, 3))
        );
        assert!(!verified.contains(at(5), hash(8, 3)) && !verified.contains(at(5), hash(7, 4)));
        verified.insert(at(6), hash(8, 3));
        assert!(!verified.contains(at(6), hash(7, 3)) && verified.contains(at(6), hash(8, 3)));
    }

    fn target(i: usize) -> Target {
        Target::new(Transport::Udp, ([192, 0, 2, 1], 5000 + i as u16).into())
    }

    #[test]
    fn the_last_are_remembered() {
        let mut slow = Targets::default();
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        for i in 0..=TARGETS_MAX {
            slow.record(at(10), target(i));
        }
        assert!(!slow.holds(&target(0), at(0)), "the first had to go");
        assert!(slow.holds(&target(1), at(10)));
        assert!(!slow.holds(&target(1), at(11)), "that was earlier");
        slow.record(at(20), target(1));
        assert!(slow.holds(&target(1), at(20)), "it was noted again");
        assert_eq!(slow.targets.len(), TARGETS_MAX);
    }

    #[test]
    fn a_back_end_reads_slowly_for_a_second() {
        let mut peers = Peers::default();
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        assert!(!peers.has_slow_readers(at(0)) && !peers.reads_slowly(at(0), &target(1)));
        peers.record_slow_reader(at(500), Transport::Udp, target(1).address);
        for (ms, is_slow) in [(500, true), (1500, true), (1501, false)] {
            assert_eq!(peers.has_slow_readers(at(ms)), is_slow, "{ms}");
            assert_eq!(peers.reads_slowly(at(ms), &target(1)), is_slow, "{ms}");
            assert!(!peers.reads_slowly(at(ms), &target(2)), "{ms}");
        }
    }

    /// The guide promises this minute for each back end, however many there are.
    #[test]
    fn all_back_ends_that_refuse_connections_are_remembered_for_a_minute() {
        let mut peers = Peers::default();
        let (at, minute) = (|s| Timestamp::ZERO + Duration::from_secs(s), Duration::from_secs(60));
        let tcp = |i| Target { transport: Transport::Tcp, ..target(i) };
        for i in 0..1000 {
            peers.record_unreachable(at(100), Transport::Tcp, tcp(i).address);
        }
        for i in 0..1000 {
            assert!(peers.is_unreachable(&tcp(i), at(100)), "{i}");
            assert!(peers.is_unreachable_within(at(160), &tcp(i), minute), "{i}");
            assert!(!peers.is_unreachable_within(at(161), &tcp(i), minute), "{i}");
            assert!(!peers.is_unreachable(&target(i), at(0)), "datagrams may arrive");
        }
    }

    #[test]
    fn the_end_of_a_connection_with_a_back_end_does_not_make_it_unreachable() {
        let mut peers = Peers::default();
        let (now, remote) = (Timestamp::ZERO, target(1).address);
        let local = ([192, 0, 2, 9], 5060).into();
        let connection = ConnectionId::new(3);
        let flow = Flow { transport: Transport::Tcp, local, remote, connection };
        peers.record_ended(now, &flow, true, false);
        let tcp = Target { transport: Transport::Tcp, ..target(1) };
        assert!(peers.is_unreachable(&tcp, now), "for the requests that were sent on it");
        assert!(peers.is_unreachable(&Target { connection, ..target(2) }, now));
        assert!(!peers.is_unreachable_within(now, &tcp, Duration::from_secs(60)));
    }

    /// An SBC may connect from the port at which it listens, and a request to it leaves on another
    /// connection.
    #[test]
    fn the_end_of_an_accepted_connection_ends_only_requests_of_strangers_by_its_address() {
        for is_stranger in [false, true] {
            let mut peers = Peers::default();
            let (now, remote) = (Timestamp::ZERO, target(1).address);
            let local = ([192, 0, 2, 9], 5060).into();
            let connection = ConnectionId::new(2);
            let flow = Flow { transport: Transport::Tcp, local, remote, connection };
            peers.record_ended(now, &flow, false, is_stranger);
            let tcp = Target { transport: Transport::Tcp, ..target(1) };
            assert_eq!(peers.is_unreachable(&tcp, now), is_stranger);
            assert!(peers.is_unreachable(&Target { connection, ..tcp }, now));
        }
    }
}
