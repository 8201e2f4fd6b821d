//! The entry of a call in the call table: enters and moves calls, and records their requests.

use std::net::SocketAddr;

use tidegate_balance::Backend;
use tidegate_world::Flow;

use crate::dialog::{CallRef, NoPlace, Transaction};
use crate::network::{caller_of, canonical};
use crate::rejection::Rejection;
use crate::routing::next_hop::NextHop;
use crate::settings::BackendRef;
use crate::state::RoutingState;
use crate::step::Step;

/// Checks that the call table has room for a new call with the Call-ID of `fingerprint` from the
/// source of `flow`.
pub(super) fn check_room_for_call(
    step: &Step<'_>,
    flow: &Flow,
    fingerprint: u128,
) -> Result<(), Rejection> {
    let calls = &step.routing.calls;
    calls.check_room(fingerprint).map_err(|why| no_place(step, why))?;
    let is_over_share = calls.is_scarce()
        && step.snapshot.share_of(flow).is_some_and(|bucket| calls.is_exhausted(bucket));
    if is_over_share {
        step.counters().calls_over_share.add(1);
        return Err(Rejection::CALL_SHARE_USED);
    }
    Ok(())
}

/// Moves `call` to the back end, or enters a new call if `call` is `None`. Returns the call entry.
pub(super) fn enter_or_move(
    step: &mut Step<'_>,
    call: Option<CallRef>,
    fingerprint: u128,
    identity: u64,
    backend_ref: BackendRef,
) -> Result<CallRef, Rejection> {
    match call {
        Some(call) => {
            move_call(step, call, identity, backend_ref);
            Ok(call)
        }
        None => {
            let inserted = step.routing.calls.insert(step.now, fingerprint, backend_ref);
            let call = inserted.map_err(|why| no_place(step, why))?;
            record_address_generation(step, call, backend_ref);
            Ok(call)
        }
    }
}

/// Moves a call to another back end for the request with this identity, and counts the move.
pub(crate) fn move_call(
    step: &mut Step<'_>,
    call: CallRef,
    identity: u64,
    backend_ref: BackendRef,
) {
    if step.routing.calls.move_to(step.now, call, identity, backend_ref) {
        record_address_generation(step, call, backend_ref);
        step.counters().moved.add(1);
    }
}

/// Moves a call to the back end that has answered its INVITE with a 2xx, and counts the call there.
/// `identity` is the identity of the INVITE. Returns whether the call is at this back end now. An
/// established call does not move.
pub(crate) fn settle(
    step: &mut Step<'_>,
    call: CallRef,
    identity: u64,
    backend_ref: BackendRef,
) -> bool {
    let RoutingState { calls, pickers, .. } = &mut *step.routing;
    let Some(entry) = calls.get(call) else { return false };
    if entry.backend_ref == backend_ref {
        return true;
    }
    let picker = &pickers[usize::from(backend_ref.pool)];
    let has_moved = calls.settle(step.now, call, identity, backend_ref, picker);
    if has_moved {
        record_address_generation(step, call, backend_ref);
    }
    has_moved
}

/// [Settles](settle) a call at the back end that has this address now. Prefers the pool of the
/// call. Returns `false` if there is no such back end, or if the call does not move.
pub(crate) fn settle_at(
    step: &mut Step<'_>,
    call: CallRef,
    identity: u64,
    address: SocketAddr,
) -> bool {
    let Some(entry) = step.routing.calls.get(call) else { return false };
    let (snapshot, pool) = (step.snapshot, entry.backend_ref.pool);
    let is_at = |backend: &Backend| backend.address().map(canonical) == Some(address);
    let in_pool = snapshot.pool(pool).pool.backends().iter().position(|backend| is_at(backend));
    let in_pool = in_pool.map(|backend| BackendRef { pool, backend: backend as u16 });
    // The call may have moved to a backup pool. A former address of a host name does not count,
    // because the entry records the present one.
    let in_any = || {
        let found = snapshot.addresses.backend_ref(address);
        found.filter(|backend_ref| is_at(snapshot.backend(*backend_ref)))
    };
    in_pool.or_else(in_any).is_some_and(|backend_ref| settle(step, call, identity, backend_ref))
}

/// Records in the call entry the address to which the name of the back end resolves now. Later
/// requests of the call go to that address.
fn record_address_generation(step: &mut Step<'_>, call: CallRef, backend_ref: BackendRef) {
    let backend = step.snapshot.backend(backend_ref);
    if backend.named().is_some() {
        step.routing.calls.set_address_generation(call, backend.generation());
    }
}

/// Records the source of a request in its call entry, unless the call of the entry is ongoing. An
/// ongoing call keeps its source for two reasons: the Call-ID is not secret, so other sources may
/// use it, and a call that passes through a back end has two legs with one entry.
pub(super) fn record_source(step: &mut Step<'_>, call: CallRef, flow: &Flow) {
    let calls = &step.routing.calls;
    if calls.get(call).is_none_or(|entry| entry.phase.goes_on()) {
        return;
    }
    let share = calls.is_scarce().then(|| step.snapshot.share_of(flow)).flatten();
    step.routing.calls.set_source(call, caller_of(flow.remote.ip()), share);
}

/// Returns the rejection of a call for which the call table has no place. Counts it if the table is
/// full.
fn no_place(step: &Step<'_>, why: NoPlace) -> Rejection {
    match why {
        NoPlace::TableFull => {
            step.counters().calls_rejected.add(1);
            Rejection::CALLS_FULL
        }
        NoPlace::SameCallId => Rejection::SAME_CALL_ID,
    }
}

/// Records in the call table a request that is about to be forwarded.
pub(crate) fn record_request(step: &mut Step<'_>, hop: &mut NextHop, transaction: Transaction) {
    let lease = hop.lease.take();
    let NextHop { call, evidence, backend_ref, .. } = *hop;
    let RoutingState { calls, pickers, .. } = &mut *step.routing;
    match backend_ref.filter(|_| hop.toward_backend) {
        Some(backend_ref) => {
            let picker = &pickers[usize::from(backend_ref.pool)];
            calls.on_request(step.now, call, transaction, evidence, backend_ref, picker, lease);
        }
        None => calls.on_request_from_backend(step.now, call, transaction, evidence),
    }
}
