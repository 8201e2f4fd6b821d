//! `[[pool]]` and `[[pool.backend]]`: the servers behind.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_balance::{Entry, Learning, Values};
use tidegate_proxy::{FORK_MAX, Health, Mode};
use toml::Spanned;

use super::address::SIP_PORT;
use super::diagnostic::{Report, quoted};
use super::endpoint::Endpoint;
use super::health;
use super::limit;
use super::params;
use super::section::Section;
use super::tables::{
    BACKEND, BACKEND_CALLS_MAX, BACKEND_CPS_MAX, BACKEND_NAME, BACKEND_PRIORITY, BACKEND_SOURCES,
    BACKUP, FAILOVER_AFTER_MS, HEALTH, MODE, POLICY, POOL_LIMIT, POOL_LISTENER, POOL_NAME,
    POOL_PARAMS, Q, TRIES_MAX, URI, WEIGHT,
};

/// Servers among which calls are divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name, different from every other pool's.
    pub name: String,
    /// Who gets the next call.
    pub policy: Selection,
    /// What is kept of what is forwarded.
    pub mode: Mode,
    /// A back end silent for this long is given up for another.
    pub failover_after: Duration,
    /// Back ends tried for one request at the most.
    pub tries_max: u8,
    /// How the health of its servers is learnt.
    pub health: Health,
    /// How the rate of each of its servers is learned, if it is.
    pub learning: Option<Learning>,
    /// The pool that stands in for it.
    pub backup: Option<String>,
    /// The index of the listener from which its servers are reached, if one is named.
    pub listener: Option<usize>,
    /// Its servers, at least one, in the order of the file. A domain stands for those that the DNS
    /// lists for it.
    pub backends: Vec<Backend>,
}

impl Pool {
    /// Returns the domains whose servers are found by the DNS.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().filter_map(|backend| match &backend.endpoint {
            Endpoint::Domain(domain) => Some(domain.as_str()),
            Endpoint::Address(_) | Endpoint::Name(_) => None,
        })
    }

    /// Returns the servers, without those of domains.
    pub fn servers(&self) -> impl Iterator<Item = &Backend> {
        self.backends.iter().filter(|backend| !matches!(backend.endpoint, Endpoint::Domain(_)))
    }
}

/// A server of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its name, different from every other back end's in any pool.
    pub name: String,
    /// Where it is; no other back end in any pool is there.
    pub endpoint: Endpoint,
    /// Its share of the calls in proportion to the others' weights, at least 1.
    pub weight: u32,
    /// Which come before it: those of a lower number.
    pub priority: u32,
    /// Calls that it holds at once.
    pub calls_max: Option<u64>,
    /// Requests a second that it is given.
    pub cps_max: Option<f64>,
    /// Networks from which it sends, beside its address.
    pub sources: Vec<IpNet>,
    /// When its turn comes in a fork, 0 to 1.
    pub q: f64,
}

/// Who of a pool gets a new request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// One back end, by a policy and its parameters.
    One(Values),
    /// All of them, by their `q`.
    Fork,
}

impl Selection {
    /// As the configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::One(policy) => policy.entry().name,
            Self::Fork => "fork",
        }
    }
}

/// A `[[pool]]` as far as it could be read; what is missing was reported.
pub(super) struct Draft {
    pub span: Range<usize>,
    pub name: Option<Spanned<String>>,
    pub backends: Vec<BackendDraft>,
    pub backup: Option<Spanned<String>>,
    pub listener: Option<Spanned<String>>,
    pub learning: Option<Option<Spanned<Learning>>>,
    health: Option<Health>,
    policy: Option<Spanned<Option<&'static Entry>>>,
    selection: Option<Selection>,
    mode: Option<Spanned<Mode>>,
    failover_after: Option<Duration>,
    tries_max: Option<u8>,
}

/// A `[[pool.backend]]` as far as it could be read.
pub(super) struct BackendDraft {
    pub endpoint: Option<Spanned<Endpoint>>,
    pub calls_max: Option<Spanned<u64>>,
    pub cps_max: Option<Spanned<f64>>,
    name: Option<Spanned<String>>,
    weight: Option<u32>,
    priority: Option<u32>,
    /// Place of a key that describes the server and not its place in the pool.
    own_keys: Option<Range<usize>>,
    sources: Option<Vec<IpNet>>,
    q: Option<Spanned<f64>>,
    has_q: bool,
}

impl Draft {
    pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let name = section.value(&POOL_NAME, report);
        let policy = section.value(&POLICY, report);
        let chosen = policy.as_ref().map(|policy| *policy.get_ref());
        let selection = chosen.and_then(|policy| selection(policy, section, report));
        let learning = section.read_one(&POOL_LIMIT, limit::read, report);
        let mode = section.value(&MODE, report);
        let of = health::Of {
            mode: mode.as_ref().map(|mode| *mode.get_ref()),
            learns: learning.as_ref().is_some_and(Option::is_some),
        };
        let read_health =
            |given: &Section<'_, '_>, report: &mut Report| health::read(given, of, report);
        if of.mode == Some(Mode::Stateless) {
            let keys = [FAILOVER_AFTER_MS.name, TRIES_MAX.name];
            section.report_idle(&keys, health::STATELESS, health::KEEP_THEM, report);
        }
        Self {
            span: section.span(),
            name,
            policy,
            selection,
            mode,
            failover_after: section
                .value(&FAILOVER_AFTER_MS, report)
                .map(|ms| Duration::from_millis(ms.into_inner())),
            tries_max: section
                .value(&TRIES_MAX, report)
                .and_then(|tries| u8::try_from(tries.into_inner()).ok()),
            backup: section.given(&BACKUP, report),
            listener: section.given(&POOL_LISTENER, report),
            health: section.read_one(&HEALTH, read_health, report),
            learning,
            backends: section.read_all(&BACKEND, BackendDraft::read, report),
        }
    }

    /// Whether its requests go to all.
    pub(super) fn forks(&self) -> bool {
        self.selection == Some(Selection::Fork)
    }

    /// The pool, its listener found among those of these names.
    pub(super) fn finish(self, listeners: &[Option<String>]) -> Option<Pool> {
        let named = |name: Spanned<String>| {
            let name = Some(name.into_inner());
            listeners.iter().position(|listener| *listener == name)
        };
        Some(Pool {
            name: self.name?.into_inner(),
            policy: self.selection?,
            mode: self.mode?.into_inner(),
            failover_after: self.failover_after?,
            tries_max: self.tries_max?,
            health: self.health?,
            learning: self.learning?.map(Spanned::into_inner),
            backup: self.backup.map(Spanned::into_inner),
            listener: self.listener.and_then(named),
            backends: self.backends.into_iter().map(BackendDraft::finish).collect::<Option<_>>()?,
        })
    }
}

impl BackendDraft {
    fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let endpoint = section.value(&URI, report);
        let name = if section.has(&BACKEND_NAME) {
            section.given(&BACKEND_NAME, report)
        } else {
            endpoint.as_ref().map(|at| Spanned::new(at.span(), at.get_ref().to_string()))
        };
        let described =
            [WEIGHT.name, BACKEND_PRIORITY.name, BACKEND_CALLS_MAX.name, BACKEND_CPS_MAX.name];
        let own_keys = section.first_of(&described);
        let weight = section
            .value(&WEIGHT, report)
            .and_then(|weight| u32::try_from(weight.into_inner()).ok());
        let priority = section
            .value(&BACKEND_PRIORITY, report)
            .and_then(|priority| u32::try_from(priority.into_inner()).ok());
        let calls_max = section.given(&BACKEND_CALLS_MAX, report);
        let cps_max = section.given(&BACKEND_CPS_MAX, report);
        let sources = section
            .value(&BACKEND_SOURCES, report)
            .map(|nets| nets.into_inner().into_iter().map(Spanned::into_inner).collect());
        let q = section.value(&Q, report);
        let has_q = section.has(&Q);
        Self { endpoint, calls_max, cps_max, name, weight, priority, own_keys, sources, q, has_q }
    }

    /// Reports what keeps this from being the server that an earlier pool names at the same place.
    fn check_same(&self, is_one_pool: bool, first: &Self, report: &mut Report) {
        let (Some(here), Some(there)) = (&self.endpoint, &first.endpoint) else { return };
        if is_one_pool {
            return report.clash(
                format!("two back ends at {}", here.get_ref()),
                (here.span(), "used already"),
                (there.span(), "here"),
                "remove one of them: a server is in a pool once",
            );
        }
        let name = |draft: &Self| draft.name.as_ref().map(|name| name.get_ref().clone());
        if name(self) != name(first) {
            return report.clash(
                format!("two names of the server at {}", here.get_ref()),
                (here.span(), "another name here"),
                (there.span(), "the same server"),
                "give it the same `name` in every pool: it is one server, with one count of calls",
            );
        }
        if let Some(own) = self.own_keys.clone() {
            report.clash(
                format!("two descriptions of the server at {}", here.get_ref()),
                (own, "has no effect here"),
                (there.span(), "described here"),
                "write `weight`, `priority`, `calls_max` and `cps_max` in the first pool that names \
                 the server",
            );
        }
    }

    fn finish(self) -> Option<Backend> {
        Some(Backend {
            name: self.name?.into_inner(),
            endpoint: self.endpoint?.into_inner(),
            weight: self.weight?,
            priority: self.priority?,
            calls_max: self.calls_max.map(Spanned::into_inner),
            cps_max: self.cps_max.map(Spanned::into_inner),
            sources: self.sources?,
            q: self.q?.into_inner(),
        })
    }
}

/// Who gets a new request: by `policy` with the parameters that are given, or all; `None` when
/// something was reported.
pub fn selection(
    policy: Option<&'static Entry>,
    section: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Selection> {
    let Some(policy) = policy else {
        let given = |params: &Section<'_, '_>, report: &mut Report| {
            let idle = params.each().next().map(|(key, _)| key.span());
            if let Some(span) = idle.clone() {
                let help = "remove them, or choose a policy that has some";
                report.error(
                    span,
                    "parameters for a policy that has none",
                    "`fork` has none",
                    help,
                );
            }
            idle.is_none()
        };
        return section.read_one(&POOL_PARAMS, given, report).then_some(Selection::Fork);
    };
    let read = |given: &Section<'_, '_>, report: &mut Report| params::read(policy, given, report);
    section.read_one(&POOL_PARAMS, read, report).map(Selection::One)
}

/// Reports forks that cannot be, and what only a fork has where there is none.
pub(super) fn check_forks(drafts: &[Draft], report: &mut Report) {
    for draft in drafts {
        let Some(policy) = &draft.policy else { continue };
        if policy.get_ref().is_some() {
            let stray = draft.backends.iter().find(|backend| backend.has_q);
            if let Some(q) = stray.and_then(|backend| backend.q.as_ref()) {
                report.error(
                    q.span(),
                    "`q` in a pool whose calls go to one back end".to_owned(),
                    "has no effect",
                    "remove it, or write `policy = \"fork\"` in its pool".to_owned(),
                );
            }
            continue;
        }
        // RFC 3261 §16.1: "Any request that is forwarded to more than one location MUST be
        // handled statefully."
        if let Some(mode) = &draft.mode
            && *mode.get_ref() != Mode::Transaction
        {
            let word = mode.get_ref().name();
            report.error(
                policy.span(),
                "a pool cannot fork without transactions".to_owned(),
                format!("forks, but `mode` is `{word}`"),
                "remove `mode`, or choose another policy".to_owned(),
            );
        }
        for endpoint in draft.backends.iter().filter_map(|backend| backend.endpoint.as_ref()) {
            if let Endpoint::Domain(domain) = endpoint.get_ref() {
                // RFC 3263 §4: the servers of a domain are tried one after another.
                report.error(
                    endpoint.span(),
                    "a domain in a pool that forks".to_owned(),
                    "its servers are alternatives, not branches",
                    format!("write a port: `\"sip:{domain}:{SIP_PORT}\"`"),
                );
            }
        }
        if draft.backends.len() > FORK_MAX {
            report.error(
                policy.span(),
                format!("a pool that forks has at most {FORK_MAX} back ends"),
                format!("forks to {}", draft.backends.len()),
                "divide them among pools, or choose another policy".to_owned(),
            );
        }
    }
}

/// Reports limits in pools that fork: such a call goes to all, whatever each has room for; and
/// learned rates that could not fall as far as the configured one.
pub(super) fn check_limits(drafts: &[Draft], report: &mut Report) {
    for draft in drafts {
        let learned = draft.learning.as_ref().and_then(Option::as_ref);
        for backend in &draft.backends {
            if let (Some(learning), Some(cps_max)) =
                (learned.map(Spanned::get_ref), &backend.cps_max)
                && *cps_max.get_ref() < learning.rate_min_cps
            {
                report.error(
                    cps_max.span(),
                    "a `cps_max` below the `rate_min_cps` of its pool".to_owned(),
                    format!("less than {}", learning.rate_min_cps),
                    "write a lower `rate_min_cps` in its `[pool.limit]`".to_owned(),
                );
            }
        }
        if !draft.forks() {
            continue;
        }
        let spans = draft.backends.iter().flat_map(|backend| {
            let calls_max = backend.calls_max.as_ref().map(Spanned::span);
            calls_max.or(backend.cps_max.as_ref().map(Spanned::span))
        });
        let span = spans.chain(learned.map(Spanned::span)).next();
        if let Some(span) = span {
            report.error(
                span,
                "a limit in a pool that forks".to_owned(),
                "its calls go to all back ends, not to those with headroom".to_owned(),
                "remove the limit, or choose another policy".to_owned(),
            );
        }
    }
}

/// Reports names and addresses used twice.
pub(super) fn check_distinct(drafts: &[Draft], report: &mut Report) {
    let mut pools: HashMap<&str, Range<usize>> = HashMap::new();
    for name in drafts.iter().filter_map(|pool| pool.name.as_ref()) {
        if let Some(first) = pools.insert(name.get_ref(), name.span()) {
            report.clash(
                format!("two pools named {}", quoted(name.get_ref())),
                (name.span(), "used already"),
                (first, "here"),
                "give each pool a name of its own",
            );
        }
    }

    let mut names: HashMap<&str, Range<usize>> = HashMap::new();
    let mut endpoints: HashMap<&Endpoint, (usize, &BackendDraft)> = HashMap::new();
    let backends = drafts
        .iter()
        .enumerate()
        .flat_map(|(i, pool)| pool.backends.iter().map(move |backend| (i, backend)));
    for (pool, backend) in backends {
        if let Some(endpoint) = &backend.endpoint {
            match endpoints.get(endpoint.get_ref()) {
                Some((other, first)) => {
                    backend.check_same(pool == *other, first, report);
                    continue;
                }
                None => drop(endpoints.insert(endpoint.get_ref(), (pool, backend))),
            }
        }
        let Some(name) = &backend.name else { continue };
        if let Some(first) = names.insert(name.get_ref(), name.span()) {
            report.clash(
                format!("two back ends named {}", quoted(name.get_ref())),
                (name.span(), "used already"),
                (first, "here"),
                "give each back end its own name, across all pools",
            );
        }
    }
}
