//! Loops and spirals: RFC 3261 §16.3 item 4, RFC 5393 §4.

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, response_target};
use tidegate_world::Received;

use crate::message::branch::Branch;
use crate::message::request::Request;
use crate::message::transaction_branch::TransactionBranch;
use crate::rejection::Rejection;
use crate::settings::Member;
use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// Parts of a request that decide where it goes, at the most: of one that has more only these
/// are looked at.
const PARTS_MAX: usize = 16;

/// §4.2.2: "This second part will not be present if the message was not forked when that Via header
/// field value was added."
const NONE: u32 = 0;

/// Times that a request may have passed here without transaction. RFC 5393 §4.1 asks for no
/// detection of loops there: "A SIP proxy forwarding a request to only one location MAY perform
/// loop detection but is not required to." One that is not cut short would end by Max-Forwards.
const PASSES_MAX: usize = 8;

/// RFC 5393 §4.2.2: "Each Via header field value in the request whose sent-by value matches
/// a value placed into previous requests by this proxy MUST be inspected for the "second
/// part" [...]. If these values are equal, the request has looped and the proxy MUST reject
/// the request with a 482 (Loop Detected) response."
pub(crate) fn check_loop(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
) -> Result<(), Rejection> {
    let mut hash = None;
    let mut passes = 0;
    // One that cannot be read is not ours, nor that of whom we have answered to. The MAC says
    // more than the sent-by: that this very proxy has sent the request, for who is named in the
    // Via below.
    let mut below = request.essentials.via;
    for via in request.message.lower_vias().filter_map(Result::ok) {
        let above = std::mem::replace(&mut below, via);
        let Some(target) = response_target(&below) else { continue };
        let branch = above.branch().unwrap_or_default();
        let Some(ours) = TransactionBranch::decode(branch, &snapshot.keys, target) else {
            // A branch of ours without transaction has no such part: it is the same for the
            // CANCEL, which has no Via below that would say whether one is needed (§16.11 of
            // RFC 3261). A loop ends by the number of its turns.
            passes += usize::from(Branch::decode(branch, &snapshot.keys, target).is_some());
            if passes >= PASSES_MAX {
                return Err(Rejection::Reply(482, "the request has been here too often"));
            }
            continue;
        };
        if ours.loop_hash == NONE {
            continue;
        }
        let hash = hash.get_or_insert_with(|| loop_hash(snapshot, received, request));
        if ours.loop_hash == *hash {
            return Err(Rejection::Reply(482, "the request has been here"));
        }
    }
    Ok(())
}

/// RFC 5393 §4.2.1: "This second part MUST vary with any field used by the location service
/// logic in determining where to retarget or forward this request": here also with who has
/// sent it. "This second part MUST NOT vary with the request method."
pub(crate) fn loop_hash(snapshot: &Snapshot, received: &Received, request: &Request<'_>) -> u32 {
    let essentials = &request.essentials;
    // What belongs to a dialog goes where its Routes say, and never forks.
    if essentials.to_tag.is_some() {
        return NONE;
    }
    let origin = match snapshot.addresses.origin(&received.flow) {
        Origin::Stranger => [0; 5],
        Origin::Trusted => [1; 5],
        Origin::Member(Member { pool, backend }) => {
            let ([p0, p1], [b0, b1]) = (pool.to_be_bytes(), backend.to_be_bytes());
            [2, p0, p1, b0, b1]
        }
    };
    // §4.2.4: "implementations SHOULD include at least one field in the input to the hash
    // that varies between different transactions".
    let number = essentials.cseq.number.to_be_bytes();
    let mut parts = ArrayVec::<&[u8], PARTS_MAX>::new();
    parts.extend([&origin[..], request.uri_text, essentials.call_id, &number]);
    parts.extend(essentials.from_tag);
    // §4.2.1: "the second part MUST depend at least on the received Request-URI and any Route
    // header field values used when processing the received request." Credentials, which a
    // CANCEL has not, decide nothing here.
    for field in request.message.fields_of(HeaderName::Route) {
        if parts.try_push(field.value).is_err() {
            break;
        }
    }
    (snapshot.keys.loops.hash(&parts) as u32).max(NONE + 1)
}
