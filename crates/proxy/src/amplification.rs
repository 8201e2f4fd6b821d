//! How many bytes an address is sent that has never shown that it receives them.
//!
//! UDP sources can be forged, and responses are longer and more than their request. RFC 9000 §8.1:
//! "Prior to validating the client address, servers MUST NOT send more than three times as many
//! bytes as the number of bytes they have received." SIP cannot hold back as strictly: an INVITE is
//! not repeated any more once it has had a 100, so its response must be sent however long it is. So
//! of each transaction these responses are sent in any case: the first of each kind of provisional
//! response, the final one, and one repetition of that. All other ones (repetitions, and what other
//! branches of a fork bring) are sent within three times the bytes received, or if the address is
//! verified.
//!
//! An address is verified by what only somebody could send who has received a response there: the
//! ACK to a final response, with the To-tag that the responder has chosen, or an ACK or PRACK with
//! the route token that came with it. Until then what a back end sends there within the call, such
//! as its BYE, is repeated once.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_world::{Flow, Timestamp};

use crate::calls::{Call, CallRef};
use crate::endpoint::Endpoint;
use crate::network::source_of;
use crate::origin::Origin;
use crate::shares::hash_of;
use crate::stateful::Context;

/// Times that a final response is sent in any case.
const FINALS: u8 = 2;

/// How long after a back end's request it is repeated in any case. RFC 3261 §17.1.2.2: "the client
/// transaction SHOULD set timer E to fire in T1 seconds", and then in twice that: so once.
const REPEATED_FOR: Duration = Duration::from_secs(1);

/// The bytes of a transaction, or of a call that is served without one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    received: u32,
    sent: u32,
    /// Kinds of provisional responses that were sent.
    kinds: u8,
    finals: u8,
}

impl Budget {
    /// A request has come, or has come again.
    pub(crate) fn on_request(&mut self, length: usize, is_repeated: bool) {
        self.received = self.received.saturating_add(length as u32);
        if !is_repeated {
            (self.kinds, self.finals) = (0, 0);
        }
    }

    /// A response with this status is sent.
    pub(crate) fn on_sent(&mut self, status: u16, length: usize) {
        self.sent = self.sent.saturating_add(length as u32);
        match status {
            ..200 => self.kinds |= kind_of(status),
            _ => self.finals = self.finals.saturating_add(1),
        }
    }

    /// Returns whether a response may be sent to an address that is not verified. `ratio` is how
    /// many times the bytes received.
    fn covers(&self, status: u16, length: usize, ratio: u32) -> bool {
        let is_owed = match status {
            ..200 => self.kinds & kind_of(status) == 0,
            _ => self.finals < FINALS,
        };
        is_owed || self.sent as usize + length <= self.received as usize * ratio as usize
    }
}

/// The bit of a kind of provisional responses.
fn kind_of(status: u16) -> u8 {
    match status {
        100 => 1,
        180 => 2,
        181 => 4,
        182 => 8,
        183 => 16,
        _ => 32,
    }
}

/// Addresses that are remembered as verified.
const PLACES: usize = 1 << 14;

/// Seconds for which an address is.
const VERIFIED_S: u32 = 3600;

/// The addresses that have shown lately that they receive what is sent to them: a table of a fixed
/// size, in which the newer takes the place of the older.
#[derive(Default)]
pub(crate) struct Verified {
    /// Part of a keyed hash, and the second at which it stops to count. Empty until there is one.
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

/// A source in 64 bits: the /64 of an IPv6 address, or an IPv4 address.
pub(crate) fn caller_of(address: IpAddr) -> u64 {
    let source = source_of(address);
    (source >> 64) as u64 | source as u64
}

impl Endpoint {
    /// Returns whether a response of so many bytes may leave by `flow`; then it counts as sent.
    pub(crate) fn may_send(
        &self,
        now: Timestamp,
        budget: &mut Budget,
        flow: &Flow,
        status: u16,
        length: usize,
    ) -> bool {
        let ratio = self.amplification_max();
        let may = ratio == 0
            || budget.covers(status, length, ratio)
            || self.is_verified(now, flow)
            || self.addresses().origin(flow) != Origin::Stranger;
        if may {
            budget.on_sent(status, length);
        } else {
            self.counters.responses_withheld.add(1);
        }
        may
    }

    /// As [`may_send`](Self::may_send), in a transaction.
    pub(crate) fn may_respond(
        &self,
        now: Timestamp,
        context: &mut Context,
        status: u16,
        length: usize,
    ) -> bool {
        let Context { budget, back, .. } = context;
        self.may_send(now, budget, back, status, length)
    }

    /// As [`may_send`](Self::may_send), in a call that is served without transactions.
    pub(crate) fn may_pass_back(
        &mut self,
        now: Timestamp,
        call: CallRef,
        flow: &Flow,
        status: u16,
        length: usize,
    ) -> bool {
        let Some(mut budget) = self.calls().get(call).map(|entry| entry.budget) else {
            return true;
        };
        let may = self.may_send(now, &mut budget, flow, status, length);
        self.calls_mut().set_budget(call, budget);
        may
    }

    /// Returns whether to repeat to `target`, from the listener at `egress`, a request that a back
    /// end has sent first at `since`. If `target` is where the call began, its INVITE may be
    /// forged: then nobody there acknowledges the 2xx or answers the BYE that follows. A phone that
    /// the back end calls gets all repetitions.
    pub(crate) fn may_repeat(
        &self,
        now: Timestamp,
        since: Timestamp,
        call: CallRef,
        egress: u8,
        target: SocketAddr,
    ) -> bool {
        let is_caller = |entry: &Call| entry.caller == caller_of(target.ip());
        if self.amplification_max() == 0
            || now < since + REPEATED_FOR
            || !self.calls().get(call).is_some_and(is_caller)
        {
            return true;
        }
        let Some(own) = self.addresses().listener(egress.into()) else { return true };
        let flow = Flow::udp(own.local, target);
        let may =
            self.is_verified(now, &flow) || self.addresses().origin(&flow) != Origin::Stranger;
        self.counters.requests_withheld.add(u64::from(!may));
        may
    }

    /// Returns whether the other end of `flow` has shown lately that it receives what is sent
    /// there.
    pub(crate) fn is_verified(&self, now: Timestamp, flow: &Flow) -> bool {
        self.verified().contains(now, hash_of(&self.keys().source, flow.remote.ip()))
    }

    /// The other end of `flow` has shown that it receives what is sent there.
    pub(crate) fn on_verified(&mut self, now: Timestamp, flow: &Flow) {
        let hash = hash_of(&self.keys().source, flow.remote.ip());
        self.verified_mut().insert(now, hash);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_owed_is_sent_and_the_rest_within_the_ratio() {
        let mut budget = Budget::default();
        budget.on_request(100, false);
        let mut send = |status, length| {
            let may = budget.covers(status, length, 3);
            if may {
                budget.on_sent(status, length);
            }
            may
        };
        assert!(send(100, 150) && send(180, 150), "300 of 300");
        assert!(!send(180, 1) && send(183, 1000) && !send(183, 1000));
        assert!(send(200, 1000) && send(200, 1000) && !send(200, 1000));
        budget.on_request(1000, true);
        assert!(!budget.covers(200, 1000, 3) && budget.covers(200, 0, 3));
        budget.on_request(100, false);
        assert!(budget.covers(200, 1000, 3), "that of another request");
    }

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
}
