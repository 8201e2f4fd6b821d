//! Connections that have ended, and addresses that cannot be reached. They are remembered for the
//! requests that wait for a response there.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{ConnectionId, Timestamp, Transport};

use crate::target::Target;

/// Maximum number of places (connections or addresses) that a table remembers. A new place replaces
/// the oldest one. A place takes about 150 bytes. The end of a connection is remembered at two
/// places.
const ENDED_MAX: usize = 1 << 15;

/// Time that an end is remembered. A request that waits for its first response checks its
/// connection at intervals of up to 32*T1 (16 s), and waits for at most 64*T1. Large requests to a
/// back end avoid TCP for a minute after a connection to it could not be opened.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(60);

/// The connection or the address under which the end of a connection is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Connection(ConnectionId),
    Address(Transport, SocketAddr),
}

/// The connections that have ended in the last [`KEPT_FOR`], and the addresses that could not be
/// reached.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The time of the last end at each place.
    ends: BTreeMap<Place, Timestamp>,
    /// The places in `ends`, each once, with the time of an end at the place. When a place comes to
    /// the front and a later end has occurred at it, the place moves to the back.
    order: VecDeque<(Timestamp, Place)>,
}

impl Ended {
    /// Records that the connection that `target` names has ended, if `target` names one. If
    /// `is_by_address` is true, also records that requests to the address of `target` may fail if
    /// they name no connection.
    pub(super) fn record(&mut self, now: Timestamp, target: &Target, is_by_address: bool) {
        let Target { connection, transport, address, .. } = *target;
        if let Some(id) = connection {
            self.insert(now, Place::Connection(id));
        }
        if is_by_address {
            self.insert(now, Place::Address(transport, address));
        }
    }

    fn insert(&mut self, now: Timestamp, place: Place) {
        while let Some(&(at, oldest)) = self.order.front() {
            if self.order.len() < ENDED_MAX && now.since(at) <= KEPT_FOR {
                break;
            }
            self.order.pop_front();
            match self.ends.get(&oldest).copied().filter(|&last| last > at) {
                Some(last) => self.order.push_back((last, oldest)),
                None => {
                    self.ends.remove(&oldest);
                }
            }
        }
        if self.ends.insert(place, now).is_none() {
            self.order.push_back((now, place));
        }
    }

    /// Returns whether the connection of `target` has ended at `since` or later. If `target` names
    /// no connection, or may reconnect, any connection to its address counts too.
    pub(super) fn holds(&self, target: &Target, since: Timestamp) -> bool {
        let ended = |place| self.ends.get(&place).is_some_and(|at| *at >= since);
        // If the request may reconnect, it may have been sent on another connection to the address.
        target.connection.is_some_and(|id| ended(Place::Connection(id)))
            || (target.connection.is_none() || target.may_reconnect)
                && ended(Place::Address(target.transport, target.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    /// Returns a target on the connection with this number.
    fn on(number: u32) -> Target {
        let host = [192, 0, 2, (number / 20_000) as u8];
        let address: SocketAddr = (host, 40_000 + (number % 20_000) as u16).into();
        Target { connection: ConnectionId::new(number), ..Target::new(Transport::Tcp, address) }
    }

    /// Number of ends of connections that a table remembers.
    const ENDS: u32 = ENDED_MAX as u32 / 2;

    #[test]
    fn an_end_is_found_by_its_connection_and_by_its_address() {
        let mut ended = Ended::default();
        for number in [2, 3] {
            ended.record(at(10), &on(number), true);
            assert!(ended.holds(&on(number), at(10)), "{number}");
            assert!(!ended.holds(&on(number), at(11)), "the end was before the request");
            let elsewhere = Target { address: on(7).address, ..on(number) };
            assert!(ended.holds(&elsewhere, at(0)), "a Via may name another port");
            let unnamed = Target { connection: None, ..on(number) };
            assert!(ended.holds(&unnamed, at(0)), "{number}");
            let again = Target { address: on(number).address, ..on(number + 10) };
            assert!(!ended.holds(&again, at(0)), "only its own connection counts");
            assert!(ended.holds(&Target { may_reconnect: true, ..again }, at(0)), "{number}");
        }
        assert!(!ended.holds(&on(4), at(0)));
        // A connection with the same id has ended again.
        ended.record(at(20), &on(2), true);
        assert!(ended.holds(&on(2), at(20)));
    }

    /// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed) response
    /// to the request." The ends of very many other connections must not hide the end of the flow.
    #[test]
    fn an_end_is_remembered_for_a_minute_among_many_others() {
        let mut ended = Ended::default();
        ended.record(at(0), &on(2), true);
        for number in 2..ENDS {
            ended.record(at(30_000), &on(2 * number), true);
        }
        assert!(ended.holds(&on(2), at(0)), "as many as a shard remembers");
        assert_eq!(ended.order.len(), ENDED_MAX - 2);
        ended.record(at(60_000), &on(2 * ENDS), true);
        assert!(ended.holds(&on(2), at(0)));
        ended.record(at(60_001), &on(2 * ENDS + 2), true);
        assert!(!ended.holds(&on(2), at(0)) && ended.holds(&on(4), at(0)));
        // The rest is forgotten with the next end.
        ended.record(at(130_000), &on(6), true);
        assert_eq!((ended.order.len(), ended.ends.len()), (2, 2));
    }

    #[test]
    fn many_ends_at_one_place_do_not_replace_others() {
        const LAST: u64 = ENDED_MAX as u64;
        let mut ended = Ended::default();
        ended.record(at(0), &on(2), true);
        for ms in 1..=LAST {
            ended.record(at(ms), &on(4), true);
        }
        assert!(ended.holds(&on(2), at(0)) && ended.holds(&on(4), at(LAST)));
        // The last end at a place counts, and not the first.
        ended.record(at(60_002), &on(6), true);
        assert!(!ended.holds(&on(2), at(0)) && ended.holds(&on(4), at(LAST)));
        assert_eq!((ended.order.len(), ended.ends.len()), (4, 4));
    }

    #[test]
    fn the_number_of_remembered_ends_is_limited() {
        let mut ended = Ended::default();
        for number in 1..=ENDS + 10 {
            ended.record(at(0), &on(2 * number), true);
        }
        assert_eq!((ended.order.len(), ended.ends.len()), (ENDED_MAX, ENDED_MAX));
        assert!(!ended.holds(&on(20), at(0)) && ended.holds(&on(22), at(0)));
    }
}
