//! Detects loops, and distinguishes them from spirals: RFC 3261 §16.3 item 4, RFC 5393 §4.

use arrayvec::ArrayVec;
use tidegate_sip::HeaderName;
use tidegate_world::Received;

use crate::message::branch::Branch;
use crate::message::request::Request;
use crate::message::transaction_branch::TransactionBranch;
use crate::message::way_back::ways_back;
use crate::rejection::Rejection;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// Maximum number of parts of a request that are hashed at once.
const PARTS_MAX: usize = 16;

/// The loop hash of a request that never forks. RFC 5393 §4.2.2: "This second part will not be
/// present if the message was not forked when that Via header field value was added."
const NONE: u32 = 0;

/// Maximum number of times that a request may pass this proxy without a transaction. RFC 5393 §4.1
/// does not require loop detection for such requests: "A SIP proxy forwarding a request to only one
/// location MAY perform loop detection but is not required to." Without this limit, only
/// Max-Forwards would end a loop.
const PASSES_MAX: usize = 8;

/// Rejects a request that has looped. RFC 5393 §4.2.2: "Each Via header field value in the request
/// whose sent-by value matches a value placed into previous requests by this proxy MUST be
/// inspected for the "second part" [...]. If these values are equal, the request has looped and the
/// proxy MUST reject the request with a 482 (Loop Detected) response."
///
/// RFC 5393 §4.1: "When a SIP proxy forks a particular request to more than one location, it MUST
/// ensure that request is not looping through this proxy." "It is RECOMMENDED that proxies meet
/// this requirement by performing the loop-detection steps defined in this document."
///
/// RFC 5393 §4.2.2: "Proxies required to perform loop detection by RFC 5393 MUST perform the
/// following loop-detection test before forwarding a request." "If the second field is present, the
/// proxy MUST perform the second-part calculation described in Section 4.2.1 of RFC 5393 on this
/// request and compare the result to the value from the Via header field."
pub(crate) fn check_loop(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
) -> Result<(), Rejection> {
    let keys = &snapshot.keys;
    let has_streams = snapshot.addresses.has_streams();
    let mut hash = None;
    let mut passes = 0;
    // A Via that cannot be read is not ours. Neither is the Via above it, because the MAC in our
    // branch covers an address from the Via below. The MAC proves more than the sent-by: it proves
    // that this very proxy sent the request, for the element named in the Via below.
    let mut below = request.essentials.via;
    for via in request.message.lower_vias().filter_map(Result::ok) {
        let above = std::mem::replace(&mut below, via);
        let branch = above.branch().unwrap_or_default();
        let mut is_stateless = false;
        let ours = ways_back(&below, has_streams).find_map(|target| {
            let ours = TransactionBranch::decode(branch, keys, target);
            is_stateless |= ours.is_none() && Branch::decode(branch, keys, target).is_some();
            ours
        });
        let Some(ours) = ours else {
            // Our branch of a request without transaction has no second part. It must be the same
            // for the CANCEL (RFC 3261 §16.11), and a CANCEL has no Via below that would show
            // whether a second part is needed. The number of passes ends such a loop.
            passes += usize::from(is_stateless);
            if passes >= PASSES_MAX {
                return Err(Rejection::usual(482, "the request has passed this proxy too often"));
            }
            continue;
        };
        if ours.loop_hash == NONE {
            continue;
        }
        let hash = hash.get_or_insert_with(|| {
            loop_hash(snapshot, request, snapshot.addresses.origin(&received.flow))
        });
        if ours.loop_hash == *hash {
            return Err(Rejection::usual(482, "the request has passed this proxy before"));
        }
    }
    Ok(())
}

/// Returns the hash that detects loops, the "second part" of RFC 5393 §4.2.1: "This second part
/// MUST vary with any field used by the location service logic in determining where to retarget or
/// forward this request". The hash also varies with the origin of the request. "This second part
/// MUST NOT vary with the request method."
///
/// RFC 3261 §16.6: "If a proxy wishes to detect loops, the "branch" parameter it supplies MUST
/// depend on all information affecting processing of a request, including the incoming Request-URI
/// and any header fields affecting the request's admission or routing." "The request method MUST
/// NOT be included in the calculation of the branch parameter."
///
/// RFC 5393 §4.2.1: "Hence, the second part MUST depend at least on the received Request-URI and
/// any Route header field values used when processing the received request."
pub(crate) fn loop_hash(snapshot: &Snapshot, request: &Request<'_>, origin: Origin) -> u32 {
    let essentials = &request.essentials;
    // An in-dialog request follows its Routes and never forks.
    if essentials.to_tag.is_some() {
        return NONE;
    }
    let origin = match origin {
        Origin::Stranger => [0; 5],
        Origin::Trusted => [1; 5],
        Origin::Backend(BackendRef { pool, backend }) => {
            let ([p0, p1], [b0, b1]) = (pool.to_be_bytes(), backend.to_be_bytes());
            [2, p0, p1, b0, b1]
        }
    };
    // RFC 5393 §4.2.4: "When forming the second part using a hash, implementations SHOULD include
    // at least one field in the input to the hash that varies between different transactions
    // attempting to reach the same destination to avoid repeated failure should the hash collide."
    let number = essentials.cseq.number.to_be_bytes();
    let mut parts = ArrayVec::<&[u8], PARTS_MAX>::new();
    parts.extend([&origin[..], request.uri_text, essentials.call_id, &number]);
    parts.extend(essentials.from_tag);
    // §4.2.1: "the second part MUST depend at least on the received Request-URI and any Route
    // header field values used when processing the received request." Credentials, which a CANCEL
    // lacks, have no influence here.
    let mut routes = request.message.fields_of(HeaderName::Route).map(|field| field.value);
    parts.extend(routes.by_ref().take(PARTS_MAX - parts.len()));
    let hash = |parts: &[&[u8]]| snapshot.keys.loops.hash(parts);
    let hash = routes.fold(hash(&parts), |before, route| hash(&[&before.to_be_bytes(), route]));
    (hash as u32).max(NONE + 1)
}
