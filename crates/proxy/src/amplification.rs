//! Limits the bytes sent to an address that has never proved that it receives them.
//!
//! UDP sources can be forged, and the responses to a request are longer and more numerous than the
//! request. RFC 9000 §8.1: "Prior to validating the client address, servers MUST NOT send more than
//! three times as many bytes as the number of bytes they have received." SIP cannot be as strict.
//! An INVITE is not retransmitted after a 100, so its response must be sent however long it is.
//! Therefore the proxy always sends these responses of each transaction: the first of each kind of
//! provisional response, and two final responses, normally the first and one retransmission. All
//! other responses are retransmissions, and responses of other branches of a fork. The proxy sends
//! them only while all bytes sent are at most `amplification_max` times the bytes received (3 by
//! default). There is no such limit if the address is verified, or belongs to a back end or a
//! trusted source.
//!
//! An address is verified by a message that only a receiver of a response could have sent. There
//! are two kinds: the ACK to a final response, with the To-tag that the responder has chosen, and
//! an ACK or PRACK with the route token of the response. While an address is not verified, requests
//! that a back end or a user sends to this address within the call, such as a BYE, are
//! retransmitted only once. Back ends and users know the To-tag and the route token. They are
//! trusted not to verify an address for a forger.
//!
//! Streams have no such limits, because a peer receives the messages sent on its connection.

use std::time::Duration;

use tidegate_world::{Flow, Timestamp};

use crate::dialog::{Call, CallRef};
use crate::network::caller_of;
use crate::step::Step;
use crate::transport::addresses::Origin;
use crate::transport::budget::Budget;

/// Time for which Tidegate retransmits a request from a back end or a user even to an unverified
/// address. It begins with the first transmission of the request, and allows one retransmission.
/// RFC 3261 §17.1.2.2: "the client transaction MUST set timer E to fire in T1 seconds". Timer E
/// fires again 2·T1 later.
const REPEATED_FOR: Duration = Duration::from_secs(1);

/// Returns whether a response of `length` bytes may be sent on `flow`. If it may, counts the bytes
/// as sent in `budget`.
pub(crate) fn may_send(
    step: &Step<'_>,
    budget: &mut Budget,
    flow: &Flow,
    status: u16,
    length: usize,
) -> bool {
    let Step { now, snapshot, peers, .. } = step;
    let ratio = snapshot.amplification_max;
    let may = ratio == 0
        || flow.transport.is_reliable()
        || budget.covers(status, length, ratio)
        || peers.is_verified(*now, &snapshot.keys, flow)
        || snapshot.addresses.origin(flow) != Origin::Stranger;
    if may {
        budget.on_sent(status, length);
    } else {
        step.counters().responses_withheld.add(1);
    }
    may
}

/// Does the same as [`may_send`] for a call that is served without transactions, with the budget
/// that the call table has for the call. Returns `true` if the call is not in the table.
pub(crate) fn may_send_back(
    step: &mut Step<'_>,
    call: CallRef,
    flow: &Flow,
    status: u16,
    length: usize,
) -> bool {
    let Some(mut budget) = step.routing.calls.get(call).map(|entry| entry.budget) else {
        return true;
    };
    let may = may_send(step, &mut budget, flow, status, length);
    step.routing.calls.set_budget(call, budget);
    may
}

/// Returns whether a request may be retransmitted on `flow`. A back end or a user first sent the
/// request at `since`.
///
/// Retransmissions are withheld only from unverified addresses of two kinds: the address of a
/// caller, and an address that the other party of the dialog names but does not send from. If the
/// INVITE was forged, no element at such an address acknowledges the 2xx or answers the BYE that
/// follows. A phone that a back end calls gets all retransmissions, and so does a phone on the flow
/// of its registration.
///
/// If the call is in the call table, its entry names the caller. A call to a registered user is in
/// the table only if a back end makes it. For other calls `is_claimed` decides. It is true if the
/// route token shows that the request goes to the caller, or if the other party wrote into its
/// Contact an address from which it does not send.
pub(crate) fn may_repeat(
    step: &Step<'_>,
    since: Timestamp,
    call: CallRef,
    is_claimed: bool,
    flow: &Flow,
) -> bool {
    let Step { now, snapshot, peers, routing, .. } = step;
    let is_caller = |entry: &Call| entry.caller == caller_of(flow.remote.ip());
    if snapshot.amplification_max == 0
        || flow.transport.is_reliable()
        || *now < since + REPEATED_FOR
        || !(is_claimed || routing.calls.get(call).is_some_and(is_caller))
    {
        return true;
    }
    let may = peers.is_verified(*now, &snapshot.keys, flow)
        || snapshot.addresses.origin(flow) != Origin::Stranger;
    step.counters().requests_withheld.add(u64::from(!may));
    may
}
