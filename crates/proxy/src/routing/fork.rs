//! Forking of requests to several back ends, and its limits: RFC 3261 §16.6, RFC 5393 §5.

use std::cmp::Reverse;
use std::collections::VecDeque;

use tidegate_world::Timestamp;

use crate::message::request::Request;
use crate::rejection::Rejection;
use crate::routing::next_hop::NextHop;
use crate::settings::{BackendRef, Choice};
use crate::snapshot::Snapshot;

/// Maximum number of back ends to which one request is forked. This limit is only a safeguard,
/// because the configuration has a lower one, [`FORK_MAX`](crate::settings::FORK_MAX).
pub(crate) const BRANCHES_MAX: usize = 64;

/// The maximum and default Max-Breadth of a received request.
///
/// RFC 5393 §5.3.3: "If a SIP proxy receives a request with no Max-Breadth header field value, it
/// MUST add one, with a value that is RECOMMENDED to be 60. Proxies MUST have a maximum allowable
/// Incoming Max-Breadth value, which is RECOMMENDED to be 60."
pub(crate) const BREADTH_MAX: u32 = 60;

/// Returns the Max-Breadth of a received request, at most [`BREADTH_MAX`]. For a request without
/// Max-Breadth, returns [`BREADTH_MAX`].
///
/// # Errors
/// Returns the rejection of a request whose Max-Breadth is 0 or malformed.
pub(crate) fn breadth(request: &Request<'_>) -> Result<u32, Rejection> {
    match request.message.max_breadth()? {
        Some(0) => Err(EXCEEDED),
        // RFC 5393 §5.3.3: "If this maximum is exceeded in a received request, the proxy MUST
        // overwrite it with a value that SHOULD be no greater than its allowable maximum." "A proxy
        // MUST NOT decrement Max-Breadth for each hop or otherwise use it to restrict the "depth"
        // of a request's propagation."
        Some(breadth) => Ok(breadth.min(BREADTH_MAX)),
        None => Ok(BREADTH_MAX),
    }
}

/// Returns the groups of back ends to which a request forks, in the order in which the groups are
/// tried. Returns no groups if the request goes to one target.
///
/// RFC 3261 §16.6: "Targets are processed from highest qvalue to lowest. Targets with equal
/// qvalues may be processed in parallel."
pub(crate) fn fork_groups(
    now: Timestamp,
    snapshot: &Snapshot,
    hop: &NextHop,
    breadth: u32,
) -> Result<VecDeque<Vec<u16>>, Rejection> {
    let Some((pool, _)) = hop.choice else { return Ok(VecDeque::new()) };
    let groups = groups(now, snapshot, pool);
    let widest = groups.iter().map(Vec::len).max().unwrap_or_default();
    // RFC 5393 §5.3.3: "If a SIP proxy determines a response context has insufficient Incoming
    // Max-Breadth to carry out a desired parallel fork, and the proxy is unwilling/unable to
    // compensate by forking serially [...], that proxy MUST return a 440".
    if widest as u64 > u64::from(breadth) { Err(EXCEEDED) } else { Ok(groups) }
}

/// Returns the back ends of a pool that are up, grouped by q value, the highest first. Returns no
/// groups if the pool sends each request to one back end.
pub(crate) fn groups(now: Timestamp, snapshot: &Snapshot, pool: u16) -> VecDeque<Vec<u16>> {
    let mut groups = VecDeque::<Vec<u16>>::new();
    let Choice::All(qs) = &snapshot.pool(pool).choice else { return groups };
    let is_up = |&i: &u16| snapshot.backend(BackendRef { pool, backend: i }).is_up(now);
    let mut backends: Vec<u16> = (0..qs.len() as u16).filter(is_up).collect();
    backends.sort_by_key(|&i| Reverse(qs[usize::from(i)]));
    for backend in backends.into_iter().take(BRANCHES_MAX) {
        let q = |i: u16| qs[usize::from(i)];
        match groups.back_mut() {
            Some(group) if q(group[0]) == q(backend) => group.push(backend),
            _ => groups.push_back(vec![backend]),
        }
    }
    groups
}

const EXCEEDED: Rejection =
    Rejection::usual(440, "the request needs more branches than Max-Breadth allows");
