//! Selects the back end for a new request, falling back to backup pools.

use smallvec::SmallVec;
use tidegate_balance::{Assignment, Backend, CallLease, Demand, Key, NoBackend, Pool, fnv1a};
use tidegate_control::Tier;
use tidegate_control::feedback::Category;
use tidegate_sip::Method;
use tidegate_world::Timestamp;

use crate::backends::health::spare;
use crate::backends::unavailable::{unassigned, unavailable};
use crate::dialog::CallRef;
use crate::message::request::Request;
use crate::pushback::next_hops::Admission;
use crate::rejection::Rejection;
use crate::routing::callee::callee;
use crate::routing::fork::groups;
use crate::routing::tier::tier;
use crate::settings::{BackendRef, Mode};
use crate::snapshot::Snapshot;
use crate::state::{Room, RoutingState};
use crate::step::Step;
use crate::target::Target;

/// The back end selected for a new request.
pub(crate) struct Selected {
    pub(crate) backend_ref: BackendRef,
    /// The key by which the policy selected the back end.
    pub(crate) key: u64,
    /// The call's lease at the back end.
    pub(crate) lease: Option<CallLease>,
    /// The admission by the overload restriction of the back end, or `None` if the restriction was
    /// not checked.
    pub(crate) admission: Option<Admission>,
}

/// The reason why no back end was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSelected {
    /// No back end can take the request.
    NoBackend(NoBackend),
    /// The overload restriction that the back end has requested does not admit the request.
    Restricted,
}

impl From<NoBackend> for NotSelected {
    fn from(why: NoBackend) -> Self {
        Self::NoBackend(why)
    }
}

/// A new request for which a back end is selected.
#[derive(Clone, Copy)]
pub(crate) struct NewRequest<'s, 'a> {
    pub(crate) room: Room,
    pub(crate) request: &'s Request<'a>,
    /// The fingerprint of the Call-ID of the request.
    pub(crate) fingerprint: u128,
    /// The existing call with the Call-ID of the request.
    pub(crate) call: Option<CallRef>,
    /// The headroom that the back end must have for the request. If `None`, the back end only has
    /// to be up.
    pub(crate) demand: Option<Demand>,
    /// True if the overload restriction of a back end has rejected the request. Then the request
    /// goes only to a back end that had room according to its last feedback.
    pub(crate) is_restricted: bool,
}

/// Returns the key by which the policy of a pool selects a back end for a request. `fingerprint` is
/// the fingerprint of the Call-ID of the request.
pub(crate) fn choice_key(
    snapshot: &Snapshot,
    state: &RoutingState,
    pool: u16,
    request: &Request<'_>,
    fingerprint: u128,
) -> u64 {
    match state.picker(pool).key() {
        Key::Call => fingerprint as u64,
        Key::CallId => fnv1a(request.essentials.call_id),
        Key::Callee => callee(&snapshot.keys.callee, &request.essentials.to),
    }
}

/// Selects a back end of `pool`, or of the first of its backups that can take the request.
pub(crate) fn select(
    step: &mut Step<'_>,
    pool: u16,
    new: NewRequest<'_, '_>,
) -> Result<Selected, Rejection> {
    step.routing.picker_mut(pool).retries().earn();
    let Step { now, snapshot, .. } = *step;
    let mut again = || try_select(step, pool, new);
    match again() {
        // If no back end is left, use one that is down only because of failed requests.
        Err(Rejection::PoolDown(_)) if spare(now, snapshot) => again(),
        selected => selected,
    }
}

fn try_select(
    step: &mut Step<'_>,
    pool: u16,
    new: NewRequest<'_, '_>,
) -> Result<Selected, Rejection> {
    let Step { now, snapshot, .. } = *step;
    let NewRequest { room, request, fingerprint, call, demand, mut is_restricted } = new;
    let pools: SmallVec<[u16; 4]> = snapshot.and_backups(pool).collect();
    let may_have = |pool: &Pool| match demand {
        Some(demand) => pool.has_headroom(now, demand),
        None => pool.is_up(now),
    };
    let mut is_any_up = false;
    let category = request.category();
    for &pool in &pools {
        // Skip the selection if no back end can be selected, because a selection that fails would
        // still draw a random number or advance the round robin.
        let backends = &snapshot.pool(pool).pool;
        if pools.len() > 1 && !may_have(backends) {
            is_any_up |= backends.is_up(now);
            continue;
        }
        if demand.is_some() {
            check_room(step, room, pool, call)?;
        }
        let key = choice_key(snapshot, step.routing, pool, request, fingerprint);
        if let Some(group) = groups(now, snapshot, pool).front() {
            let backend_ref = BackendRef { pool, backend: group[0] };
            return Ok(Selected { backend_ref, key, lease: None, admission: None });
        }
        let slow = slow_readers(step, pool);
        let among_readers = (!slow.is_empty() && !is_restricted).then(|| {
            let reads = |index, _: &Backend| !slow.contains(&index);
            select_in(step, pool, key, demand, category, reads)
        });
        let is_free = |index: usize, backend: &Backend| {
            !slow.contains(&index) && is_known_free(now, snapshot, backend)
        };
        let selected = match among_readers {
            None | Some(Err(NotSelected::NoBackend(_))) => {
                let may_have = |index, backend: &Backend| !is_restricted || is_free(index, backend);
                select_in(step, pool, key, demand, category, may_have)
            }
            // RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than
            // allowed". So a restriction that has rejected the request is not asked again.
            Some(selected) => selected,
        };
        match selected {
            Ok(selected) => return Ok(selected),
            // RFC 7339 §5.10: "The client can accomplish this task by sending some of the requests
            // that would have gone to the overloaded element to a different destination." "It needs
            // to ensure, however, that this destination is not in overload and is capable of
            // processing the extra load."
            Err(NotSelected::Restricted) => {
                is_restricted = true;
                if let Ok(selected) = select_in(step, pool, key, demand, category, is_free) {
                    return Ok(selected);
                }
            }
            // Another shard may have just taken the remaining capacity.
            Err(NotSelected::NoBackend(NoBackend::Full)) => is_any_up = true,
            Err(NotSelected::NoBackend(NoBackend::Down)) => {}
        }
    }
    if is_restricted {
        return Err(Rejection::Restricted);
    }
    let why = if is_any_up { NoBackend::Full } else { NoBackend::Down };
    Err(unassigned(now, snapshot, pool, why))
}

/// Checks a request against the overload restriction of a back end, counts the request, and returns
/// the admission. Returns `None` for a back end without an address, which restricts nothing.
///
/// # Errors
/// Returns [`Rejection::Restricted`] if the restriction does not admit the request.
pub(crate) fn admit(
    now: Timestamp,
    snapshot: &Snapshot,
    backend_ref: BackendRef,
    category: Category,
) -> Result<Option<Admission>, Rejection> {
    let address = snapshot.backend(backend_ref).address();
    address.map(|address| snapshot.admit(now, backend_ref, address, category)).transpose()
}

/// Returns whether the last feedback of a back end showed that it has room.
fn is_known_free(now: Timestamp, snapshot: &Snapshot, backend: &Backend) -> bool {
    backend.address().is_some_and(|address| snapshot.next_hops.is_known_free(now, address))
}

/// Returns the indexes of the back ends of a pool that read their connections too slowly for new
/// work. Such a back end gets a new request only if no other back end can take the request.
fn slow_readers(step: &Step<'_>, pool: u16) -> SmallVec<[usize; 4]> {
    let Step { now, snapshot, .. } = *step;
    let peers = &*step.peers;
    if !peers.has_slow_readers(now) {
        return SmallVec::new();
    }
    let transport = snapshot.transport(pool);
    let is_slow = |address| peers.reads_slowly(now, &Target::new(transport, address));
    let backends = snapshot.pool(pool).pool.backends().iter().enumerate();
    let slow = backends.filter(|(_, backend)| backend.address().is_some_and(is_slow));
    slow.map(|(index, _)| index).collect()
}

/// Checks that the transaction table has room for a new request to `pool`, if the request needs a
/// transaction. Call this function before a back end is selected, because each selection is
/// counted.
pub(crate) fn check_room(
    step: &Step<'_>,
    room: Room,
    pool: u16,
    call: Option<CallRef>,
) -> Result<(), Rejection> {
    let is_stateful = match call {
        Some(call) => tier(step.snapshot, &step.routing.calls, pool, call) == Tier::Stateful,
        // In adaptive mode, a call that finds no room gets no transaction.
        None => step.snapshot.pool(pool).mode == Mode::Transaction,
    };
    if is_stateful { check_transaction_room(step, room) } else { Ok(()) }
}

/// Checks that the transaction table has room for a new request.
pub(crate) fn check_transaction_room(step: &Step<'_>, room: Room) -> Result<(), Rejection> {
    if room.is_full_for_new {
        step.counters().transactions_rejected.add(1);
        Err(Rejection::TRANSACTIONS_FULL)
    } else if room.is_over_share {
        step.counters().transactions_over_share.add(1);
        Err(Rejection::TRANSACTION_SHARE_USED)
    } else {
        Ok(())
    }
}

/// Selects a back end of one pool for a new request by its [`choice_key`]. A back end is considered
/// only if `may_have` returns `true` for it. If there is a `demand`, the back end must also have
/// headroom for it. If the overload restriction of the back end does not admit the request, the
/// request takes no headroom and is not counted as assigned.
pub(crate) fn select_in(
    step: &mut Step<'_>,
    pool: u16,
    key: u64,
    demand: Option<Demand>,
    category: Category,
    may_have: impl Fn(usize, &Backend) -> bool,
) -> Result<Selected, NotSelected> {
    let Step { now, snapshot, .. } = *step;
    let backend_ref = |index: usize| BackendRef { pool, backend: index as u16 };
    let is_admitted = |index| {
        let admission = admit(now, snapshot, backend_ref(index), category);
        admission.map_err(|_| NotSelected::Restricted)
    };
    let picker = step.routing.picker_mut(pool);
    let (Assignment { index, lease }, admission) =
        picker.assign_admitted(now, key, demand, may_have, is_admitted)?;
    Ok(Selected { backend_ref: backend_ref(index), key, lease, admission })
}

/// Reserves headroom for a request at the one back end to which it must go. Returns the lease if
/// the request starts a call, and the admission by the overload restriction of the back end.
pub(crate) fn take_at(
    step: &Step<'_>,
    backend_ref: BackendRef,
    demand: Demand,
    category: Category,
) -> Result<(Option<CallLease>, Option<Admission>), Rejection> {
    let Step { now, snapshot, .. } = *step;
    let BackendRef { pool, backend } = backend_ref;
    let is_admitted = || {
        let admission = admit(now, snapshot, backend_ref, category);
        admission.map_err(|_| NotSelected::Restricted)
    };
    match step.routing.picker(pool).assign_to(now, backend.into(), demand, is_admitted) {
        Ok((Assignment { lease, .. }, admission)) => Ok((lease, admission)),
        Err(NotSelected::Restricted) => Err(Rejection::Restricted),
        Err(NotSelected::NoBackend(why)) => Err(unassigned(now, snapshot, pool, why)),
    }
}

/// Selects a back end for a request that another back end sends to a pool or to one of its backups.
/// As RFC 3261 §16.11 requires, the selection depends on the message alone as long as the same back
/// ends are up. So retransmissions, CANCEL and ACK get the same back end.
pub(crate) fn select_by_call(
    now: Timestamp,
    snapshot: &Snapshot,
    state: &RoutingState,
    pool: u16,
    fingerprint: u128,
    from: BackendRef,
) -> Result<BackendRef, Rejection> {
    let is_up = |&pool: &u16| snapshot.pool(pool).pool.is_up(now);
    let pool = snapshot.and_backups(pool).find(is_up).unwrap_or(pool);
    let not = (from.pool == pool).then(|| usize::from(from.backend));
    let selected = state.picker(pool).pick_by_call(now, fingerprint as u64, not);
    let backend_ref = selected.map(|backend| BackendRef { pool, backend: backend as u16 });
    backend_ref.ok_or_else(|| unavailable(now, snapshot, pool, Some(from)))
}

/// Returns the headroom that a new request with this method needs at a back end.
pub(crate) fn demand_of(method: Method, has_priority: bool) -> Demand {
    match method {
        Method::Invite if has_priority => Demand::Priority,
        Method::Invite => Demand::Call,
        _ => Demand::Single,
    }
}
