//! The tier of a call: with or without transactions.

use tidegate_control::Tier;
use tidegate_sip::Method;

use crate::dialog::{CallRef, Calls};
use crate::message::request::Request;
use crate::settings::Mode;
use crate::snapshot::Snapshot;
use crate::state::Room;
use crate::step::Step;

/// Returns the tier in which requests of `call` to or from `pool` are served.
///
/// In the mode `adaptive`, a call keeps the tier of its first request while it has an entry. So a
/// retransmission finds the transaction of its original, or is forwarded in the same way as the
/// original:
///
/// RFC 3261 §16.11: "In particular, a retransmitted request MUST be forwarded to the same
/// destination each time it is processed. Furthermore, CANCEL and non-Routed ACK requests
/// MUST generate the same choice as their associated INVITE."
pub(crate) fn tier(snapshot: &Snapshot, calls: &Calls, pool: u16, call: CallRef) -> Tier {
    // A call without an entry, or from before a restart, may have been served with transactions,
    // and its endpoints rely on them to retransmit lost messages.
    let chosen = || calls.get(call).map_or(Tier::Stateful, |call| call.tier);
    tier_in(snapshot.pool(pool).mode, chosen)
}

/// Returns the tier of a call in a pool with this mode. In the mode `adaptive`, it is the tier that
/// was `chosen` for the call. In the other modes, no tier is chosen for a single call.
pub(crate) fn tier_in(mode: Mode, chosen: impl FnOnce() -> Tier) -> Tier {
    match mode {
        Mode::Transaction => Tier::Stateful,
        Mode::Stateless => Tier::Stateless,
        Mode::Adaptive => chosen(),
    }
}

/// Chooses the tier of a call in `pool` that begins with `request`.
///
/// RFC 3261 §16.1: "A stateful proxy MAY transition to stateless operation at any time during the
/// processing of a request, so long as it did not do anything that would otherwise prevent it from
/// being stateless initially (forking, for example, or generation of a 100 response)." The tier is
/// chosen before the proxy forks or generates a response, and for the whole call.
pub(crate) fn choose_tier(
    step: &mut Step<'_>,
    room: Room,
    request: &Request<'_>,
    pool: u16,
    call: CallRef,
) {
    if step.snapshot.pool(pool).mode != Mode::Adaptive {
        count_call(step, request);
    } else if let Some(tier) = step.routing.tiering.choose(room.is_free_for_new()) {
        step.routing.calls.serve_in(call, tier);
    }
    step.counters().served(tier(step.snapshot, &step.routing.calls, pool, call)).add(1);
}

/// Counts a call that begins with `request`, in a pool that serves all its calls in one tier. The
/// call is counted because its messages are measured like those of other calls. Requests that begin
/// no call, such as REGISTER, are not counted.
pub(crate) fn count_call(step: &mut Step<'_>, request: &Request<'_>) {
    if request.method == Method::Invite {
        step.routing.tiering.on_begun();
    }
}
