//! The places for parked requests, and how sources share them.

use std::collections::BTreeMap;

use tidegate_world::Flow;

use crate::network::source_of;
use crate::resolution::Ticket;
use crate::shares::Amount;
use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// The number of places for parked requests in a shard, and the maximum number of bytes of these
/// requests.
const ALL: Amount = Amount { entries: 1024, bytes: 16 << 20 };

/// The part of the places that strangers may take, so that requests of back ends and trusted
/// sources find room even if many strangers send requests to users.
const STRANGERS: Amount = Amount { entries: ALL.entries / 2, bytes: ALL.bytes / 2 };

/// The source of a request, for the division of the places among sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSource {
    /// The IPv4 address of the source, or the /64 network of its IPv6 address.
    pub(crate) network: u128,
    /// True if the source is a stranger: neither a back end nor a trusted source.
    pub(crate) is_stranger: bool,
}

impl RequestSource {
    /// Returns the source of a message that arrived on a flow.
    pub(crate) fn of(snapshot: &Snapshot, flow: &Flow) -> Self {
        let is_stranger = snapshot.addresses.origin(flow) == Origin::Stranger;
        Self { network: source_of(flow.remote.ip()), is_stranger }
    }
}

/// A holder of places. Each parked request counts for two holders: its source and the query for
/// which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Source(u128),
    Question(Ticket),
}

/// The places that parked requests have taken.
#[derive(Debug, Default)]
pub(super) struct Places {
    taken: Amount,
    by_strangers: Amount,
    held: BTreeMap<Holder, Amount>,
}

impl Places {
    /// Returns whether there is a place for one more request from this source.
    pub(super) fn has_room(&self, source: RequestSource) -> bool {
        let free = self.free(source);
        let is_any_free = free.entries > 0 && free.bytes > 0;
        is_any_free && !self.held(Holder::Source(source.network)).exhausts(free)
    }

    /// Returns whether one more request from this source may wait for a query.
    pub(super) fn has_room_for(&self, source: RequestSource, ticket: Ticket) -> bool {
        !self.held(Holder::Question(ticket)).exhausts(self.free(source))
    }

    /// Takes a place for a request whose buffer has this many bytes.
    pub(super) fn take(&mut self, source: RequestSource, ticket: Ticket, bytes: usize) {
        self.taken.add(bytes);
        if source.is_stranger {
            self.by_strangers.add(bytes);
        }
        for holder in [Holder::Source(source.network), Holder::Question(ticket)] {
            self.held.entry(holder).or_default().add(bytes);
        }
    }

    /// Gives back the place of a request whose buffer has this many bytes.
    pub(super) fn give_back(&mut self, source: RequestSource, ticket: Ticket, bytes: usize) {
        self.taken.remove(bytes);
        if source.is_stranger {
            self.by_strangers.remove(bytes);
        }
        for holder in [Holder::Source(source.network), Holder::Question(ticket)] {
            if let Some(held) = self.held.get_mut(&holder) {
                held.remove(bytes);
                if held.entries == 0 {
                    self.held.remove(&holder);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn are_free(&self) -> bool {
        let nothing = Amount::default();
        (self.taken, self.by_strangers) == (nothing, nothing) && self.held.is_empty()
    }

    /// Returns the free places that a source may use.
    fn free(&self, source: RequestSource) -> Amount {
        let free = ALL.without(self.taken);
        match source.is_stranger {
            true => free.min(STRANGERS.without(self.by_strangers)),
            false => free,
        }
    }

    fn held(&self, holder: Holder) -> Amount {
        self.held.get(&holder).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(network: u128) -> RequestSource {
        RequestSource { network, is_stranger: true }
    }

    fn trusted(network: u128) -> RequestSource {
        RequestSource { network, is_stranger: false }
    }

    /// Takes as many places as a source gets for requests of this size, each waiting for the
    /// question that `question` returns. Returns their number.
    fn fill(
        places: &mut Places,
        source: RequestSource,
        bytes: usize,
        question: impl Fn(usize) -> u64,
    ) -> usize {
        let mut taken = 0;
        loop {
            let ticket = Ticket::of(question(taken));
            if !places.has_room(source) || !places.has_room_for(source, ticket) {
                return taken;
            }
            places.take(source, ticket, bytes);
            taken += 1;
        }
    }

    fn own(source: u64) -> impl Fn(usize) -> u64 {
        move |number| source << 32 | number as u64
    }

    #[test]
    fn a_source_gets_as_many_places_as_it_leaves_free() {
        let mut places = Places::default();
        assert_eq!(fill(&mut places, stranger(1), 2048, own(1)), STRANGERS.entries / 2);
        assert_eq!(fill(&mut places, stranger(2), 2048, own(2)), STRANGERS.entries / 4);
        assert_eq!(fill(&mut places, trusted(3), 2048, own(3)), (ALL.entries - 384) / 2);
        // A source that has no place always gets one, until all are taken.
        for source in 4.. {
            if fill(&mut places, stranger(source), 2048, own(source as u64)) == 0 {
                break;
            }
        }
        assert_eq!(places.by_strangers.entries, STRANGERS.entries);
        assert!(places.has_room(trusted(0)), "and others have the rest");
    }

    #[test]
    fn a_query_gets_as_many_places_as_it_leaves_free() {
        let mut places = Places::default();
        let ticket = Ticket::of(7);
        for source in 0..STRANGERS.entries as u128 {
            let may_wait = places.has_room_for(stranger(source), ticket);
            assert_eq!(may_wait, source < STRANGERS.entries as u128 / 2);
            if may_wait {
                places.take(stranger(source), ticket, 2048);
            }
        }
        let other = stranger(1000);
        assert!(places.has_room(other) && places.has_room_for(other, Ticket::of(8)));
        assert!(places.has_room_for(trusted(1), ticket), "there are more for others");
    }

    #[test]
    fn a_source_and_a_question_together_leave_room() {
        let mut places = Places::default();
        fill(&mut places, trusted(1), 2048, own(1));
        for source in 2..2000 {
            fill(&mut places, trusted(source), 2048, |_| 7);
        }
        let other = trusted(2000);
        assert!(places.has_room(other) && places.has_room_for(other, Ticket::of(8)));
    }

    #[test]
    fn bytes_are_shared_as_places_are() {
        let mut places = Places::default();
        let bytes = 65_536;
        assert_eq!(fill(&mut places, stranger(1), bytes, own(1)), STRANGERS.bytes / 2 / bytes);
        assert!(places.has_room(stranger(2)));
        for _ in 0..STRANGERS.bytes / 2 / bytes {
            let ticket = Ticket::of(own(1)(places.taken.entries - 1));
            places.give_back(stranger(1), ticket, bytes);
        }
        assert!(places.are_free());
    }
}
