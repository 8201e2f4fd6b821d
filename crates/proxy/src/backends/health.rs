//! Derives the health of back ends from the results of requests, and limits how many back ends
//! failed requests may exclude.
//!
//! Evidence from requests needs no extra messages, but each failure costs a caller's request. A
//! probe detects a dead back end before a caller does, and also detects its return. The state of a
//! back end is [`tidegate_balance::State`].

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use hashbrown::HashSet;
use tidegate_balance::{Backend, Parties, UNTIL_PROBED};
use tidegate_sip::{Host, Uri};
use tidegate_world::Timestamp;

use crate::message::address_of_record::unescaped;
use crate::message::request::Request;
use crate::network::networks_of;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;

/// Returns how long a failed back end gets no new calls, unless it answers earlier.
pub(crate) fn pause_of(snapshot: &Snapshot, backend_ref: BackendRef) -> Duration {
    // If the back end is in several pools, only its first pool decides whether it is probed.
    let first = snapshot.first(backend_ref);
    let is_probed = snapshot.pool(first.pool).health.probe.is_some();
    if is_probed { UNTIL_PROBED } else { snapshot.failure_pause }
}

/// Returns the caller and the callee of a request. The [evidence](Parties) that a back end is
/// overloaded counts the different callers and callees of the rejected requests.
///
/// The callee is the user of the Request-URI, because back ends find the callee by this user, while
/// a To header may contain anything.
pub(crate) fn parties(snapshot: &Snapshot, source: IpAddr, request: &Request<'_>) -> Parties {
    let Uri { host, text, .. } = request.uri;
    let destination = match (number_of(&request.uri), host) {
        (Some(number), _) => snapshot.keys.call.hash(&[&number]),
        (None, Some(Host::Name(name))) => snapshot.keys.call.hash(&[b"", name]),
        (None, _) => snapshot.keys.call.hash(&[b"", text]),
    };
    let source = snapshot.keys.call.hash(&[&subscriber_of(source).to_be_bytes()]);
    Parties::of(source, destination)
}

/// Returns the called number: the user without parameters and escapes, as a registrar reads it (RFC
/// 3261 §10.3). Otherwise one number could count as many.
fn number_of<'a>(uri: &Uri<'a>) -> Option<Cow<'a, [u8]>> {
    let user = uri.user?;
    Some(unescaped(user.split(|&b| b == b';').next().unwrap_or(user)))
}

/// Returns the number of the IPv4 address or of the IPv6 /56 that counts as one caller. One
/// subscriber often has a /60 or a /56, and can send from all its networks (RFC 6177 §2).
fn subscriber_of(source: IpAddr) -> u128 {
    networks_of(source).take(2).last().unwrap_or_default()
}

/// Records that a new request goes to a back end. Returns the caller and the callee of the request,
/// or `None` if they are not recorded, because no back end of the pool has recently rejected a
/// request.
pub(crate) fn record_given(
    now: Timestamp,
    snapshot: &Snapshot,
    backend_ref: BackendRef,
    source: IpAddr,
    request: &Request<'_>,
) -> Option<Parties> {
    let backend = snapshot.backend(backend_ref);
    if !backend.is_watched(now) {
        return None;
    }
    let parties = parties(snapshot, source, request);
    backend.on_given(now, parties);
    Some(parties)
}

/// Limits how many back ends are excluded from new calls, after requests have given a reason to
/// exclude `backend_ref`. If too many back ends of a pool are excluded because of requests, some of
/// them get new calls again.
pub(crate) fn cap_exclusions(now: Timestamp, snapshot: &Snapshot, backend_ref: BackendRef) {
    let backend = snapshot.backend(backend_ref);
    if !backend.is_clear(now) {
        backend.record_excluded(now);
        spare(now, snapshot);
    }
}

/// Selects again the back ends that get calls although failed requests have excluded them: those
/// that at least one of their pools [spares](tidegate_balance::Pool::spare). A pool spares none if
/// a backup pool has a back end that is up. Returns whether an additional back end now gets calls.
///
/// If two shards call this function at the same time, one may undo the result of the other, until
/// the next exclusion.
pub(crate) fn spare(now: Timestamp, snapshot: &Snapshot) -> bool {
    // Each request that finds no back end up calls this function, also if only probes have failed.
    let matters = |backend: &Backend| backend.is_spared() || backend.is_excluded_by_requests(now);
    if !snapshot.backend_refs().any(|(_, backend)| matters(backend)) {
        return false;
    }
    let mut spared = HashSet::new();
    for (pool, settings) in (0..).zip(&snapshot.pools) {
        let mut backups = snapshot.and_backups(pool).skip(1);
        let has_other = backups.any(|pool| snapshot.pool(pool).pool.can_be_up(now));
        let of_pool = settings.pool.spare(now, settings.health.eject_max, !has_other);
        let backend_ref = |index: usize| BackendRef { pool, backend: index as u16 };
        spared.extend(of_pool.into_iter().map(|index| snapshot.first(backend_ref(index))));
    }
    // A back end of several pools has one health. So it changes only after all pools have selected.
    let mut is_any_new = false;
    for (backend_ref, backend) in snapshot.each_backend() {
        is_any_new |= backend.set_spared(now, spared.contains(&backend_ref));
    }
    is_any_new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 §10.3 item 5: "any escaped characters MUST be converted to their unescaped form".
    #[test]
    fn one_number_counts_once_in_any_spelling() {
        for text in ["sip:alice@a.example", "sip:al%69ce@b.example", "sip:%61lice;x=1@a.example"] {
            let uri = Uri::parse(text.as_bytes()).unwrap();
            assert_eq!(number_of(&uri).as_deref(), Some(&b"alice"[..]), "{text}");
        }
    }

    /// RFC 6177 §2: a site may have a whole /56.
    #[test]
    fn the_ipv6_networks_of_one_subscriber_are_one_caller() {
        let of = |text: &str| subscriber_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:10::1"), of("2001:db8:0:1f::2"), "two networks of a /60");
        assert_ne!(of("2001:db8:0:10::1"), of("2001:db8:0:110::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
