//! Checks, when a new call arrives, whether back ends can still take it within their limits
//! (headroom).
//!
//! The destination of a call is known only when the call is routed. If no back end at its
//! destination has headroom, the call is rejected then. But a call of a stranger can reach only
//! some back ends. If none of them has headroom, the gate rejects the call before it is parsed,
//! which costs no more than a rejection by the law.

use tidegate_balance::Demand;
use tidegate_control::Headroom;
use tidegate_world::{Flow, Timestamp};

use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// Records that a call was rejected because only the reserve of the back ends was left.
pub(crate) fn record_reserve_kept(snapshot: &Snapshot) {
    for &pool in &snapshot.limited_pools {
        for backend in snapshot.pool(pool).pool.backends() {
            backend.on_reserve_kept();
        }
    }
}

/// Returns which kinds of calls fit into the limits of the back ends that a stranger can reach.
/// Returns [`Headroom::Any`] if the peer of `flow` is not a stranger. Also returns
/// [`Headroom::Any`] if no back end in [`Snapshot::limited_pools`] is up, because limits do not
/// matter then.
pub(crate) fn headroom(now: Timestamp, snapshot: &Snapshot, flow: &Flow) -> Headroom {
    let is_strangers = || snapshot.addresses.origin(flow) == Origin::Stranger;
    let (mut is_any_up, mut left) = (false, Headroom::None);
    for backend in
        snapshot.limited_pools.iter().flat_map(|&pool| snapshot.pool(pool).pool.backends())
    {
        // This check is cheap. If the pool is full, most back ends need no other check.
        let is_full = backend.free_calls(Demand::Call) == Some(0);
        if is_full && left != Headroom::None || !backend.is_up(now) {
            continue;
        }
        is_any_up = true;
        // If the first back end has no room, the others probably have none either. Then this check
        // is enough, because spare room is room for a call.
        if left == Headroom::Priority && !backend.has_headroom(now, Demand::Call) {
            continue;
        }
        // Usually the first back end has spare room, so the loop ends here.
        if !is_full && backend.has_spare_headroom(now) {
            left = Headroom::Spare;
            break;
        }
        if !is_full && left != Headroom::Reserve && backend.has_headroom(now, Demand::Call) {
            left = Headroom::Reserve;
        }
        if left == Headroom::None && backend.has_headroom(now, Demand::Priority) {
            left = Headroom::Priority;
        }
    }
    if is_any_up && is_strangers() { left } else { Headroom::Any }
}
