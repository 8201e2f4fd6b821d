//! Checks on arrival whether the back ends could take a new call.
//!
//! The destination of a request is known only when the request is routed. If no back end at the
//! destination has headroom (room for another call), the request is rejected then. But if no back
//! end that a stranger's call can reach has headroom, the gate rejects the call before parsing it.
//! This costs no more than a rejection by the law.

use tidegate_balance::Demand;
use tidegate_control::Headroom;
use tidegate_world::{Flow, Timestamp};

use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// Returns the kinds of calls for which the back ends that a stranger can reach have room. Returns
/// [`Headroom::Any`] if the peer of `flow` is not a stranger, or if no back end in
/// [`Snapshot::limited_pools`] is up, because limits do not matter then.
pub(crate) fn headroom(now: Timestamp, snapshot: &Snapshot, flow: &Flow) -> Headroom {
    let is_strangers = || snapshot.addresses.origin(flow) == Origin::Stranger;
    let (mut is_any_up, mut left) = (false, Headroom::None);
    for backend in
        snapshot.limited_pools.iter().flat_map(|&pool| snapshot.pool(pool).pool.backends())
    {
        // This check is cheap. If the pool is full, most back ends need no other check.
        let is_full = backend.free_calls(Demand::Call) == Some(0);
        if is_full && left == Headroom::Priority || !backend.is_up(now) {
            continue;
        }
        is_any_up = true;
        // The first back end nearly always has headroom.
        if !is_full && backend.has_headroom(now, Demand::Call) {
            return Headroom::Any;
        }
        if left == Headroom::None && backend.has_headroom(now, Demand::Priority) {
            left = Headroom::Priority;
        }
    }
    if is_any_up && is_strangers() { left } else { Headroom::Any }
}
