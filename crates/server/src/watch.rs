//! Finds outages and rejections in the states of back ends and the counters of shards, and reports
//! them for the log.
//!
//! The main thread does a check every quarter of a second, so the shards do nothing for the log. A
//! pool, back end or counter that changes gets a log line. After that it gets at most one line
//! every few seconds. A line for several changes contains their number.

mod allowance;
mod counted;
mod follow;
mod name;
mod targeted;
mod unsent;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tidegate_balance::{Backend, BackendRegistry, Pool, Service, State};
use tidegate_control::{BanList, BanView};
use tidegate_world::{Timestamp, Transport};

use crate::bans;
use crate::laws::name_at;
use crate::metrics::collect::ShardCounters;
use crate::wall::{rfc3339, wall_now};
use allowance::Allowance;
use counted::{COUNTED, Counted};
use follow::{Edge, Episodes, Followed};
use name::{NameSeen, News};
use targeted::Targeted;
use unsent::UnsentTargets;

/// Time between two checks of the states and counters.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time for which a failed TLS handshake counts as the cause of a change.
const TLS_ERROR_FOR: Duration = Duration::from_secs(60);

/// A function that returns whether the pool with this name is reached over TLS at present.
pub(crate) type IsOverTls = Box<dyn Fn(&str) -> bool>;

/// The subject of log lines about reloads that were not applied.
const NOT_APPLIED: &str = "reloads are not applied, because removed back ends still have calls and \
                           leave no room for new ones";

/// A change that is reported in the log, with its time.
///
/// `Display` formats the observation as a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Time of the observation.
    pub at: SystemTime,
    /// Text of the observation.
    pub what: String,
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", rfc3339(self.at), self.what)
    }
}

impl Observation {
    /// Creates an observation with the present time.
    pub(crate) fn now(what: String) -> Self {
        Self { at: wall_now(), what }
    }
}

/// An observer of the shared states and counters. It compares their values with those at the
/// previous check, to report changes.
pub(crate) struct Watch {
    registry: BackendRegistry,
    is_over_tls: IsOverTls,
    shards: Vec<ShardCounters>,
    backends: BTreeMap<(String, String), BackendSeen>,
    pools: BTreeMap<String, Followed<bool>>,
    services: BTreeMap<(Arc<str>, Transport), NameSeen>,
    episodes: Vec<Episodes>,
    reloads_rejected: Episodes,
    targeted: Targeted,
    bans: BanView,
    bans_overflowed: Episodes,
    banned: BTreeMap<u128, Timestamp>,
    ban_lines: Allowance,
    unsent: UnsentTargets,
}

struct BackendSeen {
    /// The back end to which `counts` and `name` belong.
    backend: Weak<Backend>,
    state: Followed<State>,
    counts: Counts,
    name: NameSeen,
}

/// Counters of a back end. They show the cause of a state change.
#[derive(Clone, Copy, Default)]
struct Counts {
    probes_failed: u64,
    unreachable: u64,
    rejections: u64,
    falls: u64,
}

impl Watch {
    /// Creates a watch that assumes that all back ends are up, and reports the others at its first
    /// check.
    pub fn new(
        registry: BackendRegistry,
        is_over_tls: IsOverTls,
        shards: Vec<ShardCounters>,
        bans: BanList,
    ) -> Self {
        let total = |counted: &Counted| Episodes::new(shards.iter().map(counted.count).sum());
        Self {
            registry,
            is_over_tls,
            episodes: COUNTED.iter().map(total).collect(),
            reloads_rejected: Episodes::new(reloads_rejected(&shards)),
            targeted: Targeted::new(&shards),
            shards,
            backends: BTreeMap::new(),
            pools: BTreeMap::new(),
            services: BTreeMap::new(),
            bans_overflowed: Episodes::new(bans.overflowed()),
            bans: BanView::new(bans),
            banned: BTreeMap::new(),
            ban_lines: Allowance::default(),
            unsent: UnsentTargets::default(),
        }
    }

    /// Does a check at `now`, and passes each observation to `tell`.
    pub fn look(&mut self, now: Timestamp, mut tell: impl FnMut(Observation)) {
        let at = wall_now();
        let tell = &mut |what| tell(Observation { at, what });
        self.shards.iter().for_each(|shard| shard.recent.record(now, shard));
        self.look_at_pools(now, tell);
        self.look_at_services(now, tell);
        self.look_at_counts(now, tell);
        self.look_at_bans(now, tell);
        self.unsent.look(now, &self.shards, tell);
    }

    fn look_at_pools(&mut self, now: Timestamp, tell: &mut impl FnMut(String)) {
        let pools = self.registry.pools();
        let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pool in &pools {
            let names = pool.backends().iter().map(|backend| backend.name());
            known.entry(pool.name()).or_default().extend(names);
        }
        self.pools.retain(|name, _| known.contains_key(name.as_str()));
        self.backends.retain(|(pool, name), _| {
            known.get(pool.as_str()).is_some_and(|names| names.contains(name.as_str()))
        });
        let mut looked: BTreeSet<*const Backend> = BTreeSet::new();
        for pool in &pools {
            for backend in pool.backends() {
                // A back end in several pools is reported once.
                if looked.insert(Arc::as_ptr(backend)) {
                    self.look_at_backend(now, pool, backend, tell);
                }
            }
            // Its former back ends finish their calls. They are no outage.
            if pool.is_removed() {
                continue;
            }
            let name = pool.name();
            let seen = self.pools.entry(name.to_owned()).or_insert_with(|| Followed::new(true));
            let up = pool.backends().iter().filter(|backend| backend.is_up(now)).count();
            if let Some(changes) = seen.see(now, up > 0, 0) {
                let of = pool.backends().len();
                let what = match up {
                    0 => format!("pool {name}: no back end takes new calls"),
                    _ => {
                        format!("pool {name}: takes new calls again, {up} of {of} back ends are up")
                    }
                };
                tell(what + &more(changes));
            }
        }
    }

    fn look_at_backend(
        &mut self,
        now: Timestamp,
        pool: &Pool,
        backend: &Arc<Backend>,
        tell: &mut impl FnMut(String),
    ) {
        let key = (pool.name().to_owned(), backend.name().to_owned());
        let counts = Counts::of(backend);
        let seen = self.backends.entry(key).or_insert_with(|| BackendSeen {
            backend: Arc::downgrade(backend),
            state: Followed::new(State::Up),
            counts: Counts { falls: counts.falls, ..Counts::default() },
            name: NameSeen::default(),
        });
        // After a reload another back end may have this name, and its counters begin at zero.
        if seen.backend.as_ptr() != Arc::as_ptr(backend) {
            seen.backend = Arc::downgrade(backend);
            (seen.counts, seen.name) = (Counts::default(), NameSeen::default());
        }
        let who = format!("back end {} of pool {}", backend.name(), pool.name());
        let (state, _) = backend.state(now);
        let falls = counts.falls.saturating_sub(seen.counts.falls);
        // With an unchanged state, each fall is an outage between the two checks.
        let unseen = if seen.state.last() == state { falls } else { 0 };
        seen.counts.falls = counts.falls;
        if let Some(changes) = seen.state.see(now, state, unseen) {
            // Before a reload, the pool may have been reached over TLS.
            let is_over_tls = (self.is_over_tls)(pool.name());
            let tls_error = if is_over_tls { tls_error(now, &self.shards, backend) } else { None };
            let cause = cause(now, state, backend, &seen.counts, &counts, tls_error);
            seen.counts = counts;
            tell(format!("{who} is {}{cause}{}", state.name(), more(changes)));
        }
        let Some(named) = backend.named() else { return };
        match seen.name.look(now, &named.lookups) {
            Some(News::Outcome(outcome, changes)) => {
                tell(format!("{who}: {}{}", outcome.of_host(named.host()), more(changes)));
            }
            Some(News::Moved) => {
                if let Some(address) = backend.address() {
                    tell(format!("{who}: {} resolves to {address} now", named.host()));
                }
            }
            None => {}
        }
    }

    /// Reports changed outcomes of the DNS queries for the domains in pools. Changes of the servers
    /// of a domain are reported by `RuntimeControl::follow_domains`.
    fn look_at_services(&mut self, now: Timestamp, tell: &mut impl FnMut(String)) {
        let services = self.registry.services();
        // Two pools may reach a domain over different transports. Then it has two services.
        let key = |service: &Service| (Arc::clone(service.domain()), service.transport());
        self.services.retain(|known, _| services.iter().any(|service| key(service) == *known));
        for service in services {
            let seen = self.services.entry(key(&service)).or_default();
            if let Some(News::Outcome(outcome, changes)) = seen.look(now, &service.lookups) {
                tell(outcome.of_domain(service.domain()) + &more(changes));
            }
        }
    }

    fn look_at_counts(&mut self, now: Timestamp, tell: &mut impl FnMut(String)) {
        let law = self.shards.first().and_then(|shard| name_at(&shard.proxy.in_force.law));
        let law = format!("the law {}", law.unwrap_or("in force"));
        for (index, (counted, episodes)) in COUNTED.iter().zip(&mut self.episodes).enumerate() {
            let total = self.shards.iter().map(counted.count).sum();
            let subject = if index == 0 {
                format!("{law} {}", counted.begins)
            } else {
                counted.begins.to_owned()
            };
            tell_edge(episodes.see(now, total), &subject, counted.of, tell);
        }
        if let Some((edge, subject)) = self.targeted.look(now, &self.shards) {
            tell_edge(Some(edge), &subject, "requests dropped", tell);
        }
        let rejected = self.reloads_rejected.see(now, reloads_rejected(&self.shards));
        tell_edge(rejected, NOT_APPLIED, "reloads not applied", tell);
        let overflowed = self.bans_overflowed.see(now, self.bans.list().overflowed());
        tell_edge(overflowed, "the list of bans is full", "bans ended early or not made", tell);
    }

    fn look_at_bans(&mut self, now: Timestamp, tell: &mut impl FnMut(String)) {
        let version = self.bans.version();
        let listed = self.bans.bans();
        let in_force: Vec<_> = listed.each(now).copied().collect();
        if self.bans.version() != version {
            for ban in &in_force {
                // A ban of a source that is already known was only extended, and is not reported.
                let is_new = self.banned.insert(ban.source, ban.until).is_none();
                if is_new && self.ban_lines.take(now, 1) {
                    let (source, cause) = (bans::written(ban.source), ban.cause.name());
                    let seconds = ban.until.since(now).as_secs_f64();
                    tell(format!("source {source} is banned for {seconds:.0} s: {cause}"));
                }
            }
        }
        if self.banned.len() > in_force.len() {
            self.banned = in_force.iter().map(|ban| (ban.source, ban.until)).collect();
        }
        if let Some(withheld) = self.ban_lines.settle(now) {
            tell(format!("{withheld} more sources were banned in the last few seconds"));
        }
    }
}

/// Returns the number of reloads that were not applied. All shards get each reload, so the counts
/// of the shards are not added up.
fn reloads_rejected(shards: &[ShardCounters]) -> u64 {
    let of_shard = |shard: &ShardCounters| shard.proxy.in_force.commands_rejected.get();
    shards.iter().map(of_shard).max().unwrap_or(0)
}

impl Counts {
    fn of(backend: &Backend) -> Self {
        Self {
            probes_failed: backend.probes().1,
            unreachable: backend.unreachable(),
            rejections: backend.rejections(),
            falls: backend.transitions().0,
        }
    }
}

/// Returns the error of the last TLS handshake of any shard with a back end, if this handshake
/// failed a short time ago.
fn tls_error(now: Timestamp, shards: &[ShardCounters], backend: &Backend) -> Option<String> {
    let address = backend.address()?;
    let outcomes = shards.iter().filter_map(|shard| shard.io.tls_errors.last(address));
    let (at, error) = outcomes.max_by_key(|(at, _)| *at)?;
    error.filter(|_| now.since(at) <= TLS_ERROR_FOR)
}

/// Returns text that explains the `state` of a back end. `before` has the counters at the previous
/// log line about the back end. `tls_error` is the error of its last TLS handshake.
fn cause(
    now: Timestamp,
    state: State,
    backend: &Backend,
    before: &Counts,
    counts: &Counts,
    tls_error: Option<String>,
) -> String {
    let why = match state {
        State::Up | State::SlowStart => return String::new(),
        State::Draining => "an operator has drained it",
        State::Maintenance => "an operator has disabled it",
        State::Removed => "it is no longer configured",
        State::Spared => "it still gets calls, because too many back ends of its pool failed",
        State::Busy => {
            let wait = backend.returns_at().map(|at| at.since(now).as_secs_f64());
            let wait = wait.map_or_else(String::new, |wait| format!(" for {wait:.1} s"));
            return format!(": it answered 503 and gets no new requests{wait}");
        }
        State::Down if backend.address().is_none() => "its name has no address",
        State::Down | State::Suspect => {
            let has_failed_probe = counts.probes_failed > before.probes_failed;
            let status = backend.failed_probe_status().filter(|_| has_failed_probe);
            if counts.unreachable > before.unreachable {
                "no program listens at its port (ICMP port unreachable, or a refused connection)"
            } else if let Some(status) = status {
                return format!(": it answered {status} to a probe");
            } else if let Some(error) = tls_error {
                return format!(": the TLS handshake failed: {error}");
            } else if has_failed_probe {
                "a probe got no answer"
            } else if counts.rejections > before.rejections {
                "it answered 503"
            } else {
                "it did not respond to requests"
            }
        }
    };
    format!(": {why}")
}

fn tell_edge(edge: Option<Edge>, subject: &str, of: &str, tell: &mut impl FnMut(String)) {
    let seconds = |lasted: Duration| lasted.as_secs_f64().max(0.1);
    match edge {
        None => {}
        Some(Edge::Begins) => tell(format!("{subject}: begins")),
        Some(Edge::GoesOn { count, lasted }) => {
            tell(format!("{subject}: continues, {count} {of} in {:.0} s", seconds(lasted)));
        }
        Some(Edge::Ends { count, lasted }) => {
            tell(format!("{subject}: over, {count} {of} in {:.1} s", seconds(lasted)));
        }
    }
}

/// Returns text with the number of changes that a log line reports, or an empty text if there is
/// only one.
fn more(changes: u64) -> String {
    if changes > 1 { format!(" ({changes} changes since the last line)") } else { String::new() }
}

#[cfg(test)]
mod tests;
