//! Records evidence about the health of back ends from the outcome of requests.

use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_balance::Parties;
use tidegate_sip::Message;
use tidegate_world::Timestamp;

use super::branches::read_again;
use super::context::{Branch, Context, Live, Pending};
use crate::backends::health::{cap_exclusions, parties};
use crate::network::canonical;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::step::Step;

/// Returns whether a response from `remote` was sent by the target of its branch. Another element
/// that has seen our Via, such as a phone behind the target, may respond too. Such a response says
/// nothing about the target.
pub(crate) fn has_sent(snapshot: &Snapshot, branch: &Branch, remote: SocketAddr) -> bool {
    branch.target.address == canonical(remote)
        || branch.backend_ref.is_some()
            && branch.backend_ref == snapshot.addresses.backend_ref(remote)
}

/// Records that the target of a branch has rejected the request with a 503, the response `answer`.
pub(super) fn record_rejected(
    now: Timestamp,
    snapshot: &Snapshot,
    branch: &Branch,
    pending: &mut Pending,
    parties: Option<Parties>,
    answer: &[u8],
) {
    let Some(backend_ref) = target_of(snapshot, branch) else { return };
    let backend = snapshot.backend(backend_ref);
    // A request within a call is no evidence: the other requests within calls, which the back end
    // accepted, are not counted.
    if !pending.is_new {
        return backend.count_rejection();
    }
    let max = snapshot.pool(backend_ref.pool).health.retry_after_max(backend.learns());
    // RFC 3261 §21.5.4: "It SHOULD NOT forward any other requests to that server for the duration
    // specified in the Retry-After header field, if present." The 503 may come from any server
    // behind the back end, such as the phone of one callee. So Retry-After is obeyed once several
    // callers are rejected for several callees.
    let asked = || Message::parse(answer).ok()?.retry_after().ok()?;
    let wait = if max.is_zero() { None } else { asked() };
    let wait = wait.map(|seconds| Duration::from_secs(seconds.into()).min(max));
    let sources = snapshot.pool(backend_ref.pool).pool.watch(now);
    let teaches = backend.on_rejected(now, parties, sources, wait);
    cap_exclusions(now, snapshot, backend_ref);
    if mem::take(&mut pending.may_teach) {
        backend.on_not_taken(pending.since, teaches);
    }
}

/// Records that the target of a branch has sent no response since the request was sent. This
/// function is called at the end of `failover_after_ms`, and again at Timer B or F if the request
/// could not fail over. Each request counts only once.
pub(super) fn record_silent(
    step: &mut Step<'_>,
    branch: &Branch,
    pending: &mut Pending,
    parties: Option<Parties>,
) {
    let Step { now, snapshot, .. } = *step;
    let Some(backend_ref) = target_of(snapshot, branch) else { return };
    // A large request may still wait for its connection, which says nothing about the back end over
    // UDP. A probe shows whether the back end answers.
    if branch.is_large && !step.peers.is_connected(&branch.target) {
        return step.output.suspect(backend_ref, pending.since);
    }
    let (backend, since) = (snapshot.backend(backend_ref), pending.since);
    let silences = backend.on_silent(now, since);
    if silences == 0 {
        return;
    }
    if mem::take(&mut pending.may_teach) {
        let sources = snapshot.pool(backend_ref.pool).pool.watch(now);
        let is_proved = backend.on_unserved(now, parties, sources);
        backend.on_not_taken(since, is_proved);
    }
    if silences >= snapshot.pool(backend_ref.pool).health.error_limit {
        step.output.suspect(backend_ref, since);
    }
}

/// Returns the caller and the callee of the request of a context, or `None` if the stored request
/// cannot be parsed.
pub(super) fn parties_of(snapshot: &Snapshot, context: &Context, live: &Live) -> Option<Parties> {
    let message = Message::parse(&live.request).ok()?;
    Some(parties(
        snapshot,
        live.source(&context.back).ip(),
        &read_again(snapshot, &message, context, live)?,
    ))
}

/// Returns the back end to which a branch goes, or `None` if the request comes from a back end and
/// goes elsewhere.
fn target_of(snapshot: &Snapshot, branch: &Branch) -> Option<BackendRef> {
    branch.backend_ref.filter(|&backend_ref| {
        snapshot.backend(backend_ref).address() == Some(branch.target.address)
    })
}
