//! Requests that wait for an external answer, such as the address of a name.
//!
//! A request that cannot be routed without the answer is parked as it was received. After the
//! answer has arrived, the request is served again from the beginning, and this time the answer is
//! known. Until then nothing was changed for the request, so nothing has to be undone. Parked
//! requests are limited in number and time. A copy of a parked request is dropped, and a CANCEL
//! ends a parked INVITE. Until a parked request continues, the proxy has no other state of it and
//! sends no 100, so the sender retransmits the request. The proxy keeps only the transaction key of
//! a cancelled INVITE, to recognize late copies. Such a key does not count as a parked request.
//!
//! Each parked request takes one of a limited number of places. Strangers, which are neither back
//! ends nor trusted, may use half of the places. A source may use at most as many places as are
//! still free, as in the shared [tables](crate::shares). The requests that wait for the same query
//! have this limit too, all together. So one source, or one name that is not resolved, cannot
//! prevent other requests from being parked.

mod places;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_sip::Method;
use tidegate_transaction::Key;
use tidegate_world::{Received, Timestamp};

use crate::message::admitted::Admitted;
use crate::message::class::Class;
use crate::resolution::Ticket;
use crate::stateless::recent::Recent;
use places::Places;
pub(crate) use places::RequestSource;

/// Maximum time that a request stays parked. It is longer than the 8 s after which a query to the
/// DNS is given up, and shorter than the 64·T1 that a client waits for a response.
const PARKED_FOR: Duration = Duration::from_secs(10);

/// Time that a cancelled INVITE is remembered, to recognize late copies: 64·T1.
const CANCELLED_FOR: Duration = Duration::from_secs(32);

/// Maximum number of cancelled INVITEs that are remembered. A late copy of a cancelled INVITE that
/// is not remembered counts as a new INVITE.
const CANCELLED_MAX: usize = 8192;

/// A request that waits for an answer from the DNS or a store.
pub(crate) struct ParkedRequest {
    pub(crate) received: Box<Received>,
    pub(crate) class: Class,
    pub(crate) admitted: Admitted,
    /// Identity and method of the transaction of the request.
    pub(crate) key: Key,
    pub(crate) source: RequestSource,
    until: Timestamp,
    /// Ticket of the query for which the request waits, once it is parked.
    ticket: Option<Ticket>,
}

/// Number of a parked request. A request that was parked later has a greater number.
type Number = u64;

/// Parked requests of a shard.
pub(crate) struct Parked {
    waiting: BTreeMap<Number, ParkedRequest>,
    by_ticket: BTreeMap<Ticket, Vec<Number>>,
    by_key: HashMap<Key, Number>,
    /// The times at which requests are overdue, the earliest first.
    deadlines: BTreeSet<(Timestamp, Number)>,
    /// Requests that may continue, in the order in which they are served.
    resumed: VecDeque<Number>,
    numbers: Number,
    places: Places,
    /// The identities of INVITEs that were cancelled while they were parked.
    cancelled: Recent<()>,
}

impl Default for Parked {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            by_ticket: BTreeMap::new(),
            by_key: HashMap::new(),
            deadlines: BTreeSet::new(),
            resumed: VecDeque::new(),
            numbers: 0,
            places: Places::default(),
            cancelled: Recent::new(CANCELLED_FOR, CANCELLED_MAX),
        }
    }
}

impl ParkedRequest {
    /// Creates a request to be parked. The maximum time for which it is parked counts from its
    /// arrival.
    pub(crate) fn new(
        received: Box<Received>,
        class: Class,
        admitted: Admitted,
        key: Key,
        source: RequestSource,
    ) -> Self {
        let until = received.arrived + PARKED_FOR;
        Self { received, class, admitted, key, source, until, ticket: None }
    }
}

impl Parked {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether a request of this source can be parked if no other request waits for the
    /// same query.
    pub(crate) fn has_room(&self, source: RequestSource) -> bool {
        self.places.has_room(source)
    }

    /// Returns whether a request of this source can be parked until the query of this ticket is
    /// answered.
    pub(crate) fn may_wait(&self, source: RequestSource, ticket: Ticket) -> bool {
        self.places.has_room(source) && self.places.has_room_for(source, ticket)
    }

    /// Parks a request until the query of this ticket is answered. [`may_wait`](Self::may_wait)
    /// must have allowed it.
    pub(crate) fn park(&mut self, ticket: Ticket, request: ParkedRequest) {
        debug_assert!(
            self.may_wait(request.source, ticket),
            "there is no place for it; ask `may_wait` first"
        );
        self.numbers += 1;
        // RFC 3261 §17.2.3: an ACK has the key of its INVITE, which may be parked too. The key must
        // find the INVITE, because a CANCEL cancels the INVITE, not the ACK.
        if request.class != Class::Ack {
            self.by_key.insert(request.key, self.numbers);
        }
        self.deadlines.insert((request.until, self.numbers));
        self.places.take(request.source, ticket, request.received.bytes.capacity());
        self.waiting.insert(self.numbers, ParkedRequest { ticket: Some(ticket), ..request });
        self.by_ticket.entry(ticket).or_default().push(self.numbers);
    }

    /// Returns whether the request of this transaction is parked.
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Returns whether the request of this transaction is parked, or was cancelled while it was
    /// parked.
    pub(crate) fn is_known(&self, now: Timestamp, key: Key) -> bool {
        self.contains(key) || self.was_cancelled(now, key)
    }

    /// Cancels the INVITE of a transaction, so that it does not continue. Returns the INVITE, or
    /// `None` if it is not parked.
    ///
    /// The place of the INVITE is free at once. If the cancelled INVITE kept its place for late
    /// copies, two short messages, an INVITE and its CANCEL, could occupy a place for 32 s.
    pub(crate) fn cancel(&mut self, now: Timestamp, key: Key) -> Option<ParkedRequest> {
        let number = *self.by_key.get(&key)?;
        let invite = self.remove(number)?;
        if let Some(ticket) = invite.ticket
            && let Some(numbers) = self.by_ticket.get_mut(&ticket)
        {
            numbers.retain(|waiting| *waiting != number);
            if numbers.is_empty() {
                self.by_ticket.remove(&ticket);
            }
        }
        self.cancelled.entry(now, key.identity);
        Some(invite)
    }

    /// Returns whether the INVITE of a transaction was cancelled while it was parked, within the
    /// last 32 s.
    pub(crate) fn was_cancelled(&self, now: Timestamp, key: Key) -> bool {
        key.method == Method::Invite && self.cancelled.get(now, key.identity).is_some()
    }

    fn remove(&mut self, number: Number) -> Option<ParkedRequest> {
        let request = self.waiting.remove(&number)?;
        if self.by_key.get(&request.key) == Some(&number) {
            self.by_key.remove(&request.key);
        }
        self.deadlines.remove(&(request.until, number));
        if let Some(ticket) = request.ticket {
            self.places.give_back(request.source, ticket, request.received.bytes.capacity());
        }
        Some(request)
    }

    /// Marks the requests that wait for this ticket as ready to continue.
    pub(crate) fn resume(&mut self, ticket: Ticket) {
        let numbers = self.by_ticket.remove(&ticket).unwrap_or_default();
        self.resumed.extend(numbers.into_iter().filter(|number| self.waiting.contains_key(number)));
    }

    /// Removes and returns the next request that may continue.
    pub(crate) fn next(&mut self) -> Option<ParkedRequest> {
        while let Some(number) = self.resumed.pop_front() {
            if let Some(request) = self.remove(number) {
                return Some(request);
            }
        }
        None
    }

    /// Marks the requests that have waited for the maximum time as overdue and ready to continue.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(&(until, number)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            let Some(request) = self.waiting.get_mut(&number) else { continue };
            request.admitted.is_overdue = true;
            self.resumed.push_back(number);
        }
        if self.waiting.is_empty() {
            self.by_ticket.clear();
        }
    }

    /// Returns the time at which the next request becomes overdue.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Flow, Pool};

    use super::*;
    use crate::testing::at_s as at;

    fn source(network: u128) -> RequestSource {
        RequestSource { network, is_stranger: false }
    }

    fn waiting(s: u64, identity: u64) -> ParkedRequest {
        let address = ([127, 0, 0, 1], 5060).into();
        let received = Received::new(at(s), Flow::udp(address, address), Pool::new().take());
        let key = Key::new(identity, Method::Invite);
        let admitted = Admitted::default();
        ParkedRequest::new(Box::new(received), Class::Invite, admitted, key, source(1))
    }

    fn identities(parked: &mut Parked) -> Vec<(Key, bool)> {
        std::iter::from_fn(|| parked.next()).map(|w| (w.key, w.admitted.is_overdue)).collect()
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
        assert!(!parked.was_cancelled(at(1), key(1)) && parked.cancel(at(1), key(3)).is_none());
        assert_eq!(parked.cancel(at(1), key(1)).map(|invite| invite.key), Some(key(1)));
        assert_eq!((parked.len(), parked.contains(key(1))), (1, false), "its place is free");
        assert!(parked.cancel(at(2), key(1)).is_none());
        parked.resume(Ticket::of(7));
        assert_eq!(identities(&mut parked), [(key(2), false)]);
        assert!(parked.places.are_free());
        assert_eq!((parked.len(), parked.poll_timeout()), (0, None));
        assert!(parked.was_cancelled(at(32), key(1)) && parked.is_known(at(32), key(1)));
        assert!(!parked.was_cancelled(at(32), Key::new(1, Method::Message)));
        assert!(!parked.was_cancelled(at(33), key(1)) && !parked.is_known(at(33), key(1)));
    }

    /// RFC 3261 §9.2: "The TU determines the transaction to be cancelled by taking the CANCEL
    /// request, and then assuming that the request method is anything but CANCEL or ACK".
    #[test]
    fn an_ack_that_is_parked_beside_its_invite_is_not_what_a_cancel_ends() {
        for ack_first in [true, false] {
            let ack = || ParkedRequest { class: Class::Ack, ..waiting(0, 1) };
            let mut parked = Parked::default();
            let both = if ack_first { [ack(), waiting(0, 1)] } else { [waiting(0, 1), ack()] };
            both.into_iter().for_each(|waiting| parked.park(Ticket::of(7), waiting));
            assert!(parked.contains(key(1)));
            let cancelled = parked.cancel(at(1), key(1)).map(|waiting| waiting.class);
            assert_eq!(cancelled, Some(Class::Invite), "{ack_first}");
            parked.resume(Ticket::of(7));
            assert_eq!(parked.next().map(|waiting| waiting.class), Some(Class::Ack));
            assert!(parked.next().is_none() && parked.places.are_free());
        }
        // If the parked ACK continues, its INVITE stays parked.
        let mut parked = Parked::default();
        parked.park(Ticket::of(7), waiting(0, 1));
        parked.park(Ticket::of(8), ParkedRequest { class: Class::Ack, ..waiting(0, 1) });
        parked.resume(Ticket::of(8));
        assert_eq!(parked.next().map(|waiting| waiting.class), Some(Class::Ack));
        assert!(parked.contains(key(1)));
    }

    #[test]
    fn cancelled_requests_leave_nothing_but_their_keys() {
        let mut parked = Parked::default();
        for identity in 0..2 * CANCELLED_MAX as u64 {
            assert!(parked.may_wait(source(1), Ticket::of(7)));
            parked.park(Ticket::of(7), waiting(0, identity));
            assert!(parked.cancel(at(0), key(identity)).is_some());
        }
        assert!(parked.places.are_free() && parked.by_ticket.is_empty());
        assert!(parked.by_key.is_empty() && parked.deadlines.is_empty());
        let remembered = |identity: u64| parked.was_cancelled(at(1), key(identity));
        let count = (0..2 * CANCELLED_MAX as u64).filter(|identity| remembered(*identity)).count();
        assert_eq!(count, CANCELLED_MAX);
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
