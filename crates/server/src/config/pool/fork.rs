//! Checks the pools that send each request to all their back ends.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tidegate_proxy::{FORK_MAX, Mode};
use toml::Spanned;

use super::{Draft, first_entries};
use crate::config::address::SIP_PORT;
use crate::config::diagnostic::Report;
use crate::config::endpoint::Endpoint;
use crate::config::tables::pool::BackendDraft;

/// Reports pools that cannot fork because of their mode, a domain among their back ends, the limits
/// or the number of their back ends. Also reports `priority` in pools that fork, and `q` in all
/// other pools.
pub(in crate::config) fn check(drafts: &[Draft], report: &mut Report) {
    let firsts = first_entries(drafts);
    let others = drafts.iter().filter(|draft| !draft.forks());
    let ordered: HashSet<&Endpoint> =
        others.flat_map(|draft| &draft.backends).filter_map(endpoint_of).collect();
    for (index, draft) in drafts.iter().enumerate() {
        match &draft.policy_entry {
            None => {}
            Some(policy) if policy.get_ref().is_some() => check_q(draft, report),
            Some(policy) => {
                check_fork(&policy.span(), draft, report);
                check_priorities(draft, &ordered, report);
                check_own_limits(draft, report);
                check_limits_elsewhere(index, drafts, &firsts, report);
            }
        }
    }
}

fn endpoint_of(backend: &BackendDraft) -> Option<&Endpoint> {
    backend.endpoint.as_ref().map(Spanned::get_ref)
}

/// Reports the first `q` in a pool that does not fork.
fn check_q(draft: &Draft, report: &mut Report) {
    let given =
        |backend: &&BackendDraft| backend.q.as_ref().is_some_and(|q| q.span() != backend.span);
    let stray = draft.backends.iter().find(given);
    if let Some(q) = stray.and_then(|backend| backend.q.as_ref()) {
        report.error(
            q.span(),
            "`q` has no effect in a pool that does not fork",
            "only the policy `fork` uses this key",
            "remove `q`, or write `policy = \"fork\"` in the pool",
        );
    }
}

/// Reports a mode with which a pool cannot fork, domains among its back ends, and too many back
/// ends. `policy` is the position of the key `policy` in the file.
fn check_fork(policy: &Range<usize>, draft: &Draft, report: &mut Report) {
    // RFC 3261 §16.1: "Any request that is forwarded to more than one location MUST be
    // handled statefully."
    if let Some(mode) = &draft.mode
        && *mode.get_ref() != Mode::Transaction
    {
        let word = mode.get_ref().name();
        report.error(
            policy.clone(),
            "a pool cannot fork without transactions",
            format!("`fork` needs transactions, but `mode` is `{word}`"),
            "remove `mode`, or choose another policy",
        );
    }
    for endpoint in draft.backends.iter().filter_map(|backend| backend.endpoint.as_ref()) {
        if let Endpoint::Domain(domain) = endpoint.get_ref() {
            // RFC 3263 §4: the servers of a domain are tried one after another.
            report.error(
                endpoint.span(),
                "a pool that forks cannot have a domain as a back end",
                "`fork` needs single servers, and a domain can have several",
                format!("write a port: `\"sip:{domain}:{SIP_PORT}\"`"),
            );
        }
    }
    if draft.backends.len() > FORK_MAX {
        report.error(
            policy.clone(),
            format!("a pool that forks has at most {FORK_MAX} back ends"),
            format!("this pool has {}", draft.backends.len()),
            "divide the back ends among several pools, or choose another policy",
        );
    }
}

/// Reports each `priority` except 0 in a pool that forks. `ordered` are the servers of all other
/// pools: the `priority` of these servers has an effect there.
fn check_priorities(draft: &Draft, ordered: &HashSet<&Endpoint>, report: &mut Report) {
    let is_idle = |backend: &&BackendDraft| {
        endpoint_of(backend).is_some_and(|endpoint| !ordered.contains(endpoint))
    };
    let priorities = draft.backends.iter().filter(is_idle);
    let priorities = priorities.filter_map(|backend| backend.priority.as_ref());
    for priority in priorities.filter(|priority| *priority.get_ref() != 0) {
        report.error(
            priority.span(),
            "`priority` has no effect in a pool that forks",
            "`fork` does not use this key",
            "remove it, or write `q`: calls go to the back ends with the highest `q` first",
        );
    }
}

/// Returns the position of the first configured limit of a back end.
fn limit_of(backend: &BackendDraft) -> Option<Range<usize>> {
    let calls_max = backend.calls_max.as_ref().map(Spanned::span);
    calls_max.or_else(|| backend.cps_max.as_ref().map(Spanned::span))
}

/// Reports configured and learned limits in a pool that forks. Such a pool sends each call to all
/// back ends, whatever their limits.
fn check_own_limits(draft: &Draft, report: &mut Report) {
    let configured = draft.backends.iter().find_map(limit_of);
    if let Some(span) = configured.or_else(|| draft.learned().map(Spanned::span)) {
        report.error(
            span,
            "a pool that forks cannot have limits",
            "`fork` sends calls to all back ends, whatever their limits",
            "remove the limit, or choose another policy",
        );
    }
}

/// Reports the first back end that has a limit from an earlier pool. `pool` is the index of a pool
/// that forks and has this back end.
fn check_limits_elsewhere(
    pool: usize,
    drafts: &[Draft],
    firsts: &HashMap<&Endpoint, (usize, &BackendDraft)>,
    report: &mut Report,
) {
    let limited = drafts[pool].backends.iter().find_map(|backend| {
        let endpoint = backend.endpoint.as_ref()?;
        let &(first, entry) = firsts.get(endpoint.get_ref()).filter(|(first, _)| *first != pool)?;
        let learned = || drafts[first].learned().map(Spanned::span);
        Some((endpoint, limit_of(entry).or_else(learned)?))
    });
    if let Some((endpoint, limit)) = limited {
        report.clash(
            format!("the server at {} has a limit, but this pool forks", endpoint.get_ref()),
            (endpoint.span(), "`fork` sends calls to this server, whatever its limits"),
            (limit, "the limit of the server"),
            "remove the limit, or choose another policy than `fork`",
        );
    }
}
