//! Requests that wait for an external answer, such as the address of a name.
//!
//! A request is parked as it was received if its plan needs an answer. After the answer has
//! arrived, the request is served again from the beginning, and this time the answer is known. A
//! plan changes nothing, so nothing has to be undone. Parked requests are bounded in number and
//! time. A copy of a parked request is absorbed, and its CANCEL ends it. Until the request
//! continues, the proxy has no other state of it and sends no 100, so the sender retransmits it.
//!
//! Each parked request takes one of a limited number of places. Strangers may use half of the
//! places. A source may use at most as many places as remain free, as in the shared
//! [tables](crate::shares). The same limit applies to all requests together that wait for one
//! query. So one source, or one name that is not resolved, cannot prevent other requests from being
//! parked.

mod places;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_transaction::Key;
use tidegate_world::{Received, Timestamp};

use crate::message::class::Class;
use crate::resolution::Ticket;
use places::Places;
pub(crate) use places::RequestSource;

/// Maximum time for which a request is parked. It is longer than a DNS query takes, and shorter
/// than a client waits for a provisional response.
const PARKED_FOR: Duration = Duration::from_secs(10);

/// Time for which a cancelled INVITE is remembered, for late copies: 64·T1.
const CANCELLED_FOR: Duration = Duration::from_secs(32);

/// A request that waits for an answer from the DNS or a store.
pub(crate) struct Waiting {
    pub(crate) received: Box<Received>,
    pub(crate) class: Class,
    /// Fingerprint that the request shares with its retransmissions, if it is new work.
    pub(crate) fingerprint: Option<u64>,
    pub(crate) has_priority: bool,
    /// Identity and method of the transaction of the request.
    pub(crate) key: Key,
    pub(crate) source: RequestSource,
    /// Whether the request has waited for the maximum time.
    pub(crate) is_overdue: bool,
    is_cancelled: bool,
    until: Timestamp,
    /// Ticket of the query for which the request waits, once it is parked.
    ticket: Option<Ticket>,
}

/// Number of a parked request. A request that was parked later has a greater number.
type Number = u64;

/// Parked requests of a shard.
#[derive(Default)]
pub(crate) struct Parked {
    /// Requests by number.
    waiting: BTreeMap<Number, Waiting>,
    by_ticket: BTreeMap<Ticket, Vec<Number>>,
    by_key: HashMap<Key, Number>,
    /// The times at which requests are overdue, or cancelled ones are forgotten, the earliest
    /// first.
    deadlines: BTreeSet<(Timestamp, Number)>,
    /// Requests that may continue, in the order in which they are served.
    resumed: VecDeque<Number>,
    numbers: Number,
    places: Places,
}

impl Waiting {
    /// Creates a waiting request. Its maximum time counts from its arrival.
    pub(crate) fn new(
        received: Box<Received>,
        class: Class,
        fingerprint: Option<u64>,
        has_priority: bool,
        key: Key,
        source: RequestSource,
    ) -> Self {
        let until = received.arrived + PARKED_FOR;
        let (is_overdue, is_cancelled) = (false, false);
        Self {
            received,
            class,
            fingerprint,
            has_priority,
            key,
            source,
            is_overdue,
            is_cancelled,
            until,
            ticket: None,
        }
    }
}

impl Parked {
    /// Returns the number of parked requests.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether a request of this source can be parked if no other request waits for its
    /// query.
    pub(crate) fn has_room(&self, source: RequestSource) -> bool {
        self.places.has_room(source)
    }

    /// Returns whether a request of this source can be parked until the query of this ticket is
    /// answered.
    pub(crate) fn may_wait(&self, source: RequestSource, ticket: Ticket) -> bool {
        self.places.has_room(source) && self.places.has_room_for(source, ticket)
    }

    /// Parks a request until this ticket may continue. [`may_wait`](Self::may_wait) must have
    /// allowed it.
    pub(crate) fn park(&mut self, ticket: Ticket, waiting: Waiting) {
        debug_assert!(self.may_wait(waiting.source, ticket), "the caller looks first");
        self.numbers += 1;
        self.by_key.insert(waiting.key, self.numbers);
        self.deadlines.insert((waiting.until, self.numbers));
        self.places.take(waiting.source, ticket, waiting.received.bytes.capacity());
        self.waiting.insert(self.numbers, Waiting { ticket: Some(ticket), ..waiting });
        self.by_ticket.entry(ticket).or_default().push(self.numbers);
    }

    /// Returns whether the request of this transaction is parked.
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Cancels the request of a transaction, so that it does not continue. The request is
    /// remembered for a while. Returns the request, even if it was cancelled before.
    pub(crate) fn cancel(&mut self, now: Timestamp, key: Key) -> Option<&Waiting> {
        let number = *self.by_key.get(&key)?;
        let waiting = self.waiting.get_mut(&number)?;
        if !waiting.is_cancelled {
            self.deadlines.remove(&(waiting.until, number));
            (waiting.is_cancelled, waiting.until) = (true, now + CANCELLED_FOR);
            self.deadlines.insert((waiting.until, number));
        }
        Some(waiting)
    }

    /// Returns the request of a transaction if it was cancelled.
    pub(crate) fn cancelled(&self, key: Key) -> Option<&Waiting> {
        let number = self.by_key.get(&key)?;
        self.waiting.get(number).filter(|waiting| waiting.is_cancelled)
    }

    fn remove(&mut self, number: Number) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        self.by_key.remove(&waiting.key);
        self.deadlines.remove(&(waiting.until, number));
        if let Some(ticket) = waiting.ticket {
            self.places.give_back(waiting.source, ticket, waiting.received.bytes.capacity());
        }
        Some(waiting)
    }

    /// Marks the requests that wait for this ticket as ready to continue.
    pub(crate) fn resume(&mut self, ticket: Ticket) {
        let numbers = self.by_ticket.remove(&ticket).unwrap_or_default();
        self.resumed.extend(numbers.into_iter().filter(|number| self.waiting.contains_key(number)));
    }

    /// Removes and returns the next request that may continue.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        while let Some(number) = self.resumed.pop_front() {
            if self.waiting.get(&number).is_some_and(|waiting| !waiting.is_cancelled) {
                return self.remove(number);
            }
        }
        None
    }

    /// Marks overdue requests as overdue and ready to continue, and removes cancelled requests that
    /// are no longer needed.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(&(until, number)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            let Some(waiting) = self.waiting.get_mut(&number) else { continue };
            if waiting.is_cancelled {
                self.remove(number);
            } else {
                waiting.is_overdue = true;
                self.resumed.push_back(number);
            }
        }
        if self.waiting.is_empty() {
            self.by_ticket.clear();
        }
    }

    /// Returns when the next request is overdue.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_sip::Method;
    use tidegate_world::{Flow, Pool};

    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(s)
    }

    fn source(network: u128) -> RequestSource {
        RequestSource { network, is_stranger: false }
    }

    fn waiting(s: u64, identity: u64) -> Waiting {
        let address = ([127, 0, 0, 1], 5060).into();
        let received = Received::new(at(s), Flow::udp(address, address), Pool::new().take());
        let key = Key::new(identity, Method::Invite);
        Waiting::new(Box::new(received), Class::Invite, None, false, key, source(1))
    }

    fn identities(parked: &mut Parked) -> Vec<(Key, bool)> {
        std::iter::from_fn(|| parked.next()).map(|w| (w.key, w.is_overdue)).collect()
    }

    fn key(identity: u64) -> Key {
        Key::new(identity, Method::Invite)
    }

    #[test]
    fn requests_of_one_ticket_go_on_in_their_order() {
        let mut parked = Parked::default();
        for (identity, ticket) in [(1, 7), (2, 8), (3, 7)] {
            parked.park(Ticket::of(ticket), waiting(0, identity));
        }
        parked.resume(Ticket::of(7));
        assert_eq!(identities(&mut parked), [(key(1), false), (key(3), false)]);
        assert_eq!(
            (parked.len(), parked.contains(key(1)), parked.contains(key(2))),
            (1, false, true)
        );
        parked.resume(Ticket::of(7));
        assert!(parked.next().is_none());
    }

    #[test]
    fn a_cancelled_request_does_not_go_on_and_is_remembered() {
        let mut parked = Parked::default();
        parked.park(Ticket::of(7), waiting(0, 1));
        parked.park(Ticket::of(7), waiting(0, 2));
        assert!(parked.cancelled(key(1)).is_none() && parked.cancel(at(1), key(3)).is_none());
        assert!(parked.cancel(at(1), key(1)).is_some() && parked.cancel(at(2), key(1)).is_some());
        parked.resume(Ticket::of(7));
        assert_eq!(identities(&mut parked), [(key(2), false)]);
        assert!(parked.cancelled(key(1)).is_some());
        parked.handle_timeout(at(32));
        assert!(parked.contains(key(1)));
        parked.handle_timeout(at(33));
        assert!(!parked.contains(key(1)) && parked.next().is_none());
        assert!(parked.places.are_free());
        assert_eq!((parked.len(), parked.poll_timeout()), (0, None));
    }

    #[test]
    fn a_request_whose_time_is_over_goes_on_once_and_is_marked() {
        let mut parked = Parked::default();
        parked.park(Ticket::of(7), waiting(0, 1));
        parked.park(Ticket::of(8), waiting(1, 2));
        assert_eq!(parked.poll_timeout(), Some(at(10)));
        parked.handle_timeout(at(10));
        assert_eq!(parked.poll_timeout(), Some(at(11)));
        parked.handle_timeout(at(10));
        parked.resume(Ticket::of(7));
        assert_eq!(identities(&mut parked), [(key(1), true)]);
        parked.handle_timeout(at(11));
        assert_eq!(identities(&mut parked), [(key(2), true)]);
        assert_eq!(parked.poll_timeout(), None);
    }

    #[test]
    fn places_are_taken_and_given_back() {
        let mut parked = Parked::default();
        let mut number = 0;
        while parked.may_wait(source(1), Ticket::of(7)) {
            number += 1;
            parked.park(Ticket::of(7), waiting(0, number));
        }
        assert!(!parked.has_room(source(1)) && parked.has_room(source(2)));
        assert!(!parked.may_wait(source(2), Ticket::of(7)));
        assert!(parked.may_wait(source(2), Ticket::of(8)));
        parked.resume(Ticket::of(7));
        assert!(!parked.has_room(source(1)), "they have their places until they are served");
        assert!(parked.next().is_some() && parked.may_wait(source(1), Ticket::of(9)));
        assert_eq!(identities(&mut parked).len() as u64, number - 1);
        assert!(parked.places.are_free() && parked.by_key.is_empty());
    }
}
