//! `[[pool]]` and `[[pool.backend]]`: the servers behind the proxy.

mod fork;

use std::collections::HashMap;
use std::ops::{Deref, Range};

use tidegate_balance::{Entry, Learning};
use tidegate_world::Transport;
use toml::Spanned;

use super::address::SIP_PORT;
use super::diagnostic::{Report, quoted};
use super::endpoint::Endpoint;
use super::health;
use super::limit;
use super::params;
use super::section::Section;
use super::tables::health::HEALTH;
use super::tables::limit::POOL_LIMIT;
use super::tables::listen::ListenDraft;
use super::tables::pool::{
    BACKEND, Backend, BackendDraft, POOL_PARAMS, Pool, PoolDraft, Selection,
};
use super::tables::tls::{POOL_TLS, PoolTlsDraft};
use super::usual_transport;
pub(super) use fork::check as check_forks;

/// The port of SIP over TLS, RFC 3261 §19.1.2.
const TLS_PORT: u16 = 5061;

/// Returns the default port of servers that are reached over this transport.
pub(super) fn default_port(transport: Transport) -> u16 {
    if transport.is_secure() { TLS_PORT } else { SIP_PORT }
}

impl Pool {
    /// Returns the domains of the back ends that are configured by domain.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().filter_map(|backend| match &backend.endpoint {
            Endpoint::Domain(domain) => Some(domain.as_str()),
            Endpoint::Address(_) | Endpoint::Name(_) => None,
        })
    }

    /// Returns the back ends that are single servers, that is, all except domains.
    pub fn servers(&self) -> impl Iterator<Item = &Backend> {
        self.backends.iter().filter(|backend| !matches!(backend.endpoint, Endpoint::Domain(_)))
    }
}

/// The parts of a `[[pool]]` that could be read. Missing and invalid parts have been reported.
pub(super) struct Draft {
    own: PoolDraft,
    /// True if an unknown key is probably a misspelling of `transport` or `listener`.
    is_transport_misspelt: bool,
    pub learning: Option<Spanned<Learning>>,
    pub tls: PoolTlsDraft,
    pub backends: Vec<BackendDraft>,
}

impl Deref for Draft {
    type Target = PoolDraft;

    fn deref(&self) -> &PoolDraft {
        &self.own
    }
}

impl Draft {
    pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let mut own = PoolDraft::read(section, report);
        let chosen = own.policy_entry.as_ref().map(|policy| *policy.get_ref());
        own.policy = chosen.and_then(|policy| selection(policy, section, report));
        let learning = section.read_one(&POOL_LIMIT, limit::read, report);
        let mode = own.mode.as_ref().map(|mode| *mode.get_ref());
        let read_health =
            |given: &Section<'_, '_>, report: &mut Report| health::read(given, mode, report);
        own.health = section.read_one(&HEALTH, read_health, report);
        let tls = section.read_one(&POOL_TLS, PoolTlsDraft::read, report);
        tls.check(report);
        let backends = section.read_all(&BACKEND, read_backend, report);
        // The comparison with all keys takes time. Errors that follow would only be counted.
        let is_transport_misspelt = !report.is_full()
            && (section.is_misspelt("transport") || section.is_misspelt("listener"));
        Self { own, is_transport_misspelt, learning, tls, backends }
    }

    /// Sets the port of each back end whose URI has no port to the default port of the pool's
    /// transport.
    pub(super) fn complete(&mut self, listeners: &[ListenDraft]) {
        let port = default_port(self.reached_by(listeners));
        for backend in &mut self.backends {
            if let Some(endpoint) = &mut backend.endpoint
                && let Endpoint::Address(address) = endpoint.get_mut()
                && address.port() == 0
            {
                address.set_port(port);
                backend.name = backend.label().map(Spanned::into_inner);
            }
        }
    }

    /// Returns the transport to the back ends: the transport that the pool names, or else the
    /// transport of the pool's listener. If the pool names neither, [`usual_transport`] decides.
    pub(super) fn reached_by(&self, listeners: &[ListenDraft]) -> Transport {
        let of = |listener: &ListenDraft| Some(*listener.transport.as_ref()?.get_ref());
        let given = self.transport.as_ref().map(|by| *by.get_ref());
        let given = given.or_else(|| of(self.named(listeners)?));
        given.unwrap_or_else(|| usual_transport(listeners.iter().filter_map(of)))
    }

    /// Returns whether the file decides the transport to the back ends. Returns false if a value
    /// that may decide it is missing or invalid, which has been reported.
    pub(super) fn is_transport_known(&self, listeners: &[ListenDraft]) -> bool {
        if self.transport.is_some() {
            return true;
        }
        let is_wrong = |key| self.wrong.contains(&key);
        if is_wrong("transport") || is_wrong("listener") || self.is_transport_misspelt {
            return false;
        }
        match self.listener_name {
            Some(_) => self.named(listeners).is_some_and(|named| named.transport.is_some()),
            None => listeners.iter().all(|listener| listener.transport.is_some()),
        }
    }

    /// Returns the listener that the key `listener` names, or `None` if there is none.
    pub(super) fn named<'l>(&self, listeners: &'l [ListenDraft]) -> Option<&'l ListenDraft> {
        let wanted = self.listener_name.as_ref()?.get_ref();
        listeners.iter().find(|l| l.name.as_ref().is_some_and(|name| name.get_ref() == wanted))
    }

    /// Returns the position of the key `transport` in the file. If the pool does not have this key,
    /// returns the position of the header of the pool.
    pub(super) fn transport_span(&self) -> Range<usize> {
        self.transport.as_ref().map_or(self.span.clone(), Spanned::span)
    }

    /// Returns the settings for learned limits, with the position of the key `learn` in the file, or
    /// `None` if no limit is learned.
    fn learned(&self) -> Option<&Spanned<Learning>> {
        self.learning.as_ref().filter(|learned| *learned.get_ref() != Learning::default())
    }

    /// Returns whether a request goes to all back ends of the pool.
    pub(super) fn forks(&self) -> bool {
        self.policy == Some(Selection::Fork)
    }

    /// Returns the pool, or `None` if a part is missing. `listeners` are the names of all
    /// listeners, by which the index of the pool's listener is found.
    pub(super) fn finish(mut self, listeners: &[Option<String>]) -> Option<Pool> {
        let named = |name: &Spanned<String>| {
            listeners.iter().position(|listener| listener.as_ref() == Some(name.get_ref()))
        };
        self.own.listener = Some(self.listener_name.as_ref().and_then(named));
        self.own.learning = Some(self.learning?.into_inner());
        self.own.tls = Some(self.tls.finish()?);
        self.own.backends =
            Some(self.backends.into_iter().map(BackendDraft::finish).collect::<Option<_>>()?);
        self.own.finish()
    }
}

fn read_backend(section: &Section<'_, '_>, report: &mut Report) -> BackendDraft {
    let mut draft = BackendDraft::read(section, report);
    draft.name = draft.label().map(Spanned::into_inner);
    draft
}

impl BackendDraft {
    /// Returns the name of the back end with its position in the file. A back end without a
    /// configured name is named after its address, and the position is that of the address.
    fn label(&self) -> Option<Spanned<String>> {
        if self.own_name.is_some() || self.wrong.contains(&"name") {
            return self.own_name.clone();
        }
        let endpoint = self.endpoint.as_ref()?;
        Some(Spanned::new(endpoint.span(), endpoint.get_ref().to_string()))
    }

    /// Returns the position in the file of the first of the keys `weight`, `priority`, `calls_max`
    /// and `cps_max`. These keys apply to the server in all its pools.
    fn description(&self) -> Option<Range<usize>> {
        let spans = [
            self.weight.as_ref().map(Spanned::span),
            self.priority.as_ref().map(Spanned::span),
            self.calls_max.as_ref().map(Spanned::span),
            self.cps_max.as_ref().map(Spanned::span),
        ];
        // A value with the position of the table header is a default, which is not in the file.
        let given = spans.into_iter().flatten().filter(|span| *span != self.span);
        given.min_by_key(|span| span.start)
    }

    /// Reports contradictions between this back end and `first`, an earlier entry for the same
    /// server. `is_one_pool` is true if both entries are in one pool.
    fn check_same(&self, is_one_pool: bool, first: &Self, report: &mut Report) {
        let (Some(here), Some(there)) = (&self.endpoint, &first.endpoint) else { return };
        if is_one_pool {
            return report.clash(
                format!("two back ends of a pool have the address {}", here.get_ref()),
                (here.span(), "used already"),
                (there.span(), "here"),
                "remove one of them: a pool can have a server only once",
            );
        }
        if self.name != first.name {
            return report.clash(
                format!("the server at {} has two names", here.get_ref()),
                (here.span(), "a different name"),
                (there.span(), "the same server"),
                "write the same `name` in every pool: the server is one back end, with one count of calls",
            );
        }
        if let Some(own) = self.description() {
            report.clash(
                format!("the server at {} has different keys in two pools", here.get_ref()),
                (own, "this key has no effect here"),
                (there.span(), "the keys of this entry apply"),
                "write `weight`, `priority`, `calls_max` and `cps_max` in the first pool that names \
                 the server",
            );
        }
    }
}

/// Reads the selection of back ends for a new request: one back end by `policy` with the parameters
/// in `section`, or all back ends if `policy` is `None`. Returns `None` if an error was reported.
pub fn selection(
    policy: Option<&'static Entry>,
    section: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Selection> {
    let Some(policy) = policy else {
        let given = |params: &Section<'_, '_>, report: &mut Report| {
            let idle = params.each().next().map(|(key, _)| key.span());
            if let Some(span) = idle.clone() {
                let help = "remove the parameters, or choose a policy that has parameters";
                report.error(
                    span,
                    "the policy has no parameters",
                    "`fork` has no parameters",
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

/// Reports a `cps_max` below the `rate_min_cps` of its pool.
pub(super) fn check_limits(drafts: &[Draft], report: &mut Report) {
    for draft in drafts {
        let Some(learning) = draft.learned().and_then(|learned| learned.get_ref().rate) else {
            continue;
        };
        let limits = draft.backends.iter().filter_map(|backend| backend.cps_max.as_ref());
        for cps_max in limits.filter(|cps_max| *cps_max.get_ref() < learning.rate_min_cps) {
            report.error(
                cps_max.span(),
                "`cps_max` is below the `rate_min_cps` of the pool",
                format!("less than {}", learning.rate_min_cps),
                "write a higher `cps_max`, or a lower `rate_min_cps` in the `[pool.limit]` of this \
                 pool",
            );
        }
    }
}

/// Returns the first entry of each server in the file, with the index of its pool. The keys of this
/// entry and the `[pool.limit]` of its pool apply in all pools of the server.
fn first_entries(drafts: &[Draft]) -> HashMap<&Endpoint, (usize, &BackendDraft)> {
    let mut firsts = HashMap::new();
    for (pool, draft) in drafts.iter().enumerate() {
        for backend in &draft.backends {
            if let Some(endpoint) = &backend.endpoint {
                firsts.entry(endpoint.get_ref()).or_insert((pool, backend));
            }
        }
    }
    firsts
}

/// Reports a `[pool.limit]` that has no effect, because earlier pools contain all back ends of its
/// pool.
pub(super) fn check_learning(drafts: &[Draft], report: &mut Report) {
    let firsts = first_entries(drafts);
    for (i, draft) in drafts.iter().enumerate() {
        let Some(learned) = draft.learned() else { continue };
        let earlier = |backend: &BackendDraft| match backend.endpoint.as_ref()?.get_ref() {
            // In a pool with another transport, a domain may have other servers.
            Endpoint::Domain(_) => None,
            endpoint => Some(firsts.get(endpoint)?.0).filter(|&first| first < i),
        };
        let earlier: Option<Vec<usize>> = draft.backends.iter().map(earlier).collect();
        let Some(&first) = earlier.as_deref().and_then(<[usize]>::first) else { continue };
        let first = &drafts[first];
        report.clash(
            "`[pool.limit]` has no effect in this pool",
            (learned.span(), "earlier pools contain all back ends of this pool"),
            (
                first.name.as_ref().map_or(first.span.clone(), Spanned::span),
                "the `[pool.limit]` of this pool applies",
            ),
            "remove it, or write it below the first pool that names these back ends",
        );
    }
}

/// Reports pools with the same name, back ends with the same name, and contradicting entries for
/// the same server.
pub(super) fn check_distinct(drafts: &[Draft], report: &mut Report) {
    let mut pools: HashMap<&str, Range<usize>> = HashMap::new();
    for name in drafts.iter().filter_map(|pool| pool.name.as_ref()) {
        if let Some(first) = pools.insert(name.get_ref(), name.span()) {
            report.clash(
                format!("two pools have the name {}", quoted(name.get_ref())),
                (name.span(), "used already"),
                (first, "here"),
                "give each pool its own name",
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
        let (Some(name), Some(label)) = (&backend.name, backend.label()) else { continue };
        if let Some(first) = names.insert(name, label.span()) {
            report.clash(
                format!("two back ends have the name {}", quoted(name)),
                (label.span(), "used already"),
                (first, "here"),
                "give each back end its own name, across all pools",
            );
        }
    }
}
