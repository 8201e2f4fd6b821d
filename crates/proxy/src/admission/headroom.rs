//! Headroom: whether the back ends could take a new call, asked at the door.
//!
//! Where a request leads is known when it is routed, and there it is rejected if no back end there
//! has headroom. But if none has any wherever a stranger's call may lead, that is known before it is
//! read, and it is rejected like what the law does not admit: at that cost, and by the same gate.

use tidegate_balance::Demand;
use tidegate_control::Headroom;
use tidegate_world::{Flow, Timestamp};

use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// Returns for which calls from there is headroom. While no back end is up there is as much as there
/// may be: that is no matter of limits.
pub(crate) fn headroom(now: Timestamp, snapshot: &Snapshot, flow: &Flow) -> Headroom {
    let is_strangers = || snapshot.addresses.origin(flow) == Origin::Stranger;
    let (mut is_any_up, mut left) = (false, Headroom::None);
    for backend in
        snapshot.limited_pools.iter().flat_map(|&pool| snapshot.pool(pool).pool.backends())
    {
        // In a full pool this is all that is asked of most.
        let is_full = backend.free_calls(Demand::Call) == Some(0);
        if is_full && left == Headroom::Priority || !backend.is_up(now) {
            continue;
        }
        is_any_up = true;
        // The first one has some, nearly always.
        if !is_full && backend.has_headroom(now, Demand::Call) {
            return Headroom::Any;
        }
        if left == Headroom::None && backend.has_headroom(now, Demand::Priority) {
            left = Headroom::Priority;
        }
    }
    if is_any_up && is_strangers() { left } else { Headroom::Any }
}
