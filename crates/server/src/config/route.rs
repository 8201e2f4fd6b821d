//! `[[route]]`: the destinations of requests outside any dialog. Each route becomes a [`Rule`] of
//! the proxy.

use std::net::IpAddr;
use std::ops::Range;

use tidegate_proxy::{Rule, RuleTarget, Senders};
use toml::Spanned;

use super::diagnostic::Report;
use super::endpoint::Endpoint;
use super::pool;
use super::tables::listen::ListenDraft;
use super::tables::pool::{BackendDraft, Pool};
use super::tables::route::{Route, RouteDraft};
use super::word::Destination;

impl RouteDraft {
    /// Returns the rule for this route. The name of its pool is looked up in `pools`.
    pub(super) fn rule(self, pools: &[Pool]) -> Option<Rule> {
        let Route { from, method, domain, to } = self.finish()?;
        let to = match to {
            Destination::RequestUri => RuleTarget::RequestUri,
            Destination::Users => RuleTarget::Users,
            Destination::Pool(name) => {
                RuleTarget::Pool(pools.iter().position(|pool| pool.name == name)?)
            }
        };
        let (methods, domains) = (method.unwrap_or_default(), domain.unwrap_or_default());
        Some(Rule { from, methods, domains, to })
    }

    /// Reports a route that lets untrusted senders send requests anywhere through this proxy (an
    /// open relay). Attackers can use an open relay to hide their address.
    fn check_relay(&self, listeners: &[ListenDraft], report: &mut Report) {
        let (Some(from), Some(to)) = (&self.from, &self.to) else { return };
        if *to.get_ref() != Destination::RequestUri {
            return;
        }
        match *from.get_ref() {
            Senders::Any => report.clash(
                "the route makes Tidegate an open relay",
                (to.span(), "this route sends to any address in the Request-URI"),
                (from.span(), "it takes requests from any sender"),
                "write `from = \"trusted\"` or `from = \"pool\"`",
            ),
            Senders::Net(net) => {
                let mut lists = listeners.iter().map(|listener| listener.trust.as_ref());
                // A list that could not be read may contain the network.
                if lists.all(|list| {
                    list.is_some_and(|l| !l.get_ref().iter().any(|own| own.contains(&net)))
                }) {
                    report.clash(
                        "the route lets an untrusted network send to any address",
                        (to.span(), "only trusted peers may send to any address"),
                        (from.span(), "no listener has this network in `trust`"),
                        format!("add this network to a listener: `trust = [\"{net}\"]`"),
                    );
                }
            }
            Senders::Trusted | Senders::Pool => {}
        }
    }

    fn is_open_relay(&self) -> bool {
        self.from.as_ref().is_some_and(|from| *from.get_ref() == Senders::Any)
            && self.to.as_ref().is_some_and(|to| *to.get_ref() == Destination::RequestUri)
    }

    /// Returns the position of the destination in the file, if the destination is `users`.
    pub(super) fn to_users(&self) -> Option<Range<usize>> {
        let to = self.to.as_ref().filter(|to| *to.get_ref() == Destination::Users);
        to.map(Spanned::span)
    }

    /// Returns whether requests for users of `domain` may match this route and go to their
    /// contacts. Also returns true if a part of the route could not be read.
    pub(super) fn may_lead_to_users_of(&self, domain: &String) -> bool {
        let is_for = |domains: &[String]| domains.is_empty() || domains.contains(domain);
        let is_to_users = self.to.as_ref().is_none_or(|to| *to.get_ref() == Destination::Users);
        is_to_users && self.domains().is_none_or(is_for)
    }

    /// Returns the methods of the route. An empty list means every method. Returns `None` if the
    /// methods could not be read, or if the list in the file is empty, which is an error.
    fn methods(&self) -> Option<&[String]> {
        self.list("method", self.method.as_ref())
    }

    /// Returns the domains of the route. An empty list means every name. Returns `None` if the
    /// domains could not be read, or if the list in the file is empty, which is an error.
    fn domains(&self) -> Option<&[String]> {
        self.list("domain", self.domain.as_ref())
    }

    fn list<'a>(
        &self,
        name: &'static str,
        list: Option<&'a Spanned<Vec<String>>>,
    ) -> Option<&'a [String]> {
        match list {
            Some(list) if list.get_ref().is_empty() => None,
            Some(list) => Some(list.get_ref()),
            None if self.wrong.contains(&name) => None,
            None => Some(&[]),
        }
    }

    fn senders(&self) -> Option<Senders> {
        self.from.as_ref().map(|from| *from.get_ref())
    }

    /// Returns whether this route matches all methods and domains of `later`, a route below it in
    /// the file. Senders are not compared. Returns false if a part could not be read, or if this
    /// route is an open relay.
    fn matches_all_of(&self, later: &Self) -> bool {
        let (Some(methods), Some(domains)) = (self.methods(), self.domains()) else { return false };
        let (Some(of_later), Some(at_later)) = (later.methods(), later.domains()) else {
            return false;
        };
        let among = |some: &[String], all: &[String]| some.iter().all(|one| all.contains(one));
        let methods = methods.is_empty() || (!of_later.is_empty() && among(of_later, methods));
        // A route without domains matches every host name, but only the IP addresses of this proxy.
        let is_name =
            |domain: &String| !domain.starts_with('[') && domain.parse::<IpAddr>().is_err();
        let domains = match domains.is_empty() {
            true => at_later.iter().all(is_name),
            false => !at_later.is_empty() && among(at_later, domains),
        };
        // An open relay has been reported, so the operator must change it anyway.
        methods && domains && !self.is_open_relay()
    }
}

/// Kinds of sources that routes distinguish, with one bit for each.
mod kind {
    pub(super) const BACKEND: u8 = 1;
    pub(super) const TRUSTED: u8 = 2;
    pub(super) const STRANGER: u8 = 4;
}

/// Returns the route because of which no request reaches the route `later`. It is the first of the
/// `earlier` routes that, together with the routes before it, matches all requests of `later`.
fn shadow<'d>(
    earlier: &'d [RouteDraft],
    later: &RouteDraft,
    pools: &[pool::Draft],
) -> Option<&'d RouteDraft> {
    let wanted = match later.senders()? {
        Senders::Any => kind::TRUSTED | kind::STRANGER,
        Senders::Trusted => kind::TRUSTED | kind::BACKEND,
        Senders::Pool => kind::BACKEND,
        Senders::Net(net) => {
            let strangers = kind::TRUSTED | kind::STRANGER;
            let may_be_in = |backend: &BackendDraft| {
                let endpoint = backend.endpoint.as_ref().map(Spanned::get_ref);
                let address = endpoint.and_then(Endpoint::address);
                address.is_none_or(|address| net.contains(&address.ip()))
            };
            let has_backends = pools.iter().flat_map(|pool| &pool.backends).any(may_be_in);
            if has_backends { strangers | kind::BACKEND } else { strangers }
        }
    };
    let mut matched = 0;
    earlier.iter().filter(|draft| draft.matches_all_of(later)).find(|draft| {
        matched |= match (draft.senders(), later.senders()) {
            (Some(Senders::Any), _) => kind::TRUSTED | kind::STRANGER,
            (Some(Senders::Trusted), _) => kind::TRUSTED | kind::BACKEND,
            (Some(Senders::Pool), _) => kind::BACKEND,
            (Some(Senders::Net(own)), Some(Senders::Net(net))) if own.contains(&net) => wanted,
            (Some(Senders::Net(_)) | None, _) => 0,
        };
        wanted & !matched == 0
    })
}

/// Reports an empty list, because it would match nothing.
fn check_filled(name: &str, list: Option<&Spanned<Vec<String>>>, all: &str, report: &mut Report) {
    if let Some(list) = list.filter(|list| list.get_ref().is_empty()) {
        let title = format!("an empty `{name}` matches nothing");
        report.error(list.span(), title, "", format!("remove `{name}` to match {all}"));
    }
}

/// Reports errors in each route, routes that no request reaches, and several pools without a route.
pub(super) fn check(
    drafts: &[RouteDraft],
    pools: &[pool::Draft],
    listeners: &[ListenDraft],
    report: &mut Report,
) {
    for draft in drafts {
        if let Some(to) = &draft.to {
            check_pool_exists(to, pools, report);
        }
        check_filled("method", draft.method.as_ref(), "every method", report);
        let every = "every name, and the addresses of Tidegate itself";
        check_filled("domain", draft.domain.as_ref(), every, report);
        draft.check_relay(listeners, report);
    }
    for (i, later) in drafts.iter().enumerate() {
        if let Some(earlier) = shadow(&drafts[..i], later, pools) {
            report.clash(
                "no request reaches this route",
                (later.span.clone(), "this route gets no request"),
                (earlier.span.clone(), "this earlier route matches the same requests"),
                "move the later route up, or add `from`, `method` or `domain` to the earlier route",
            );
        }
    }
    if let ([], [first, second, ..]) = (drafts, pools) {
        report.clash(
            "there are several pools, but no `[[route]]`",
            (second.span.clone(), "calls could go to this pool"),
            (first.span.clone(), "or here"),
            "add a `[[route]]` with `to = \"POOL\"` for each pool, and at the end one for all other \
             requests",
        );
    }
}

fn check_pool_exists(to: &Spanned<Destination>, pools: &[pool::Draft], report: &mut Report) {
    let Destination::Pool(name) = to.get_ref() else { return };
    // If the name of a pool is invalid, a route may mean this pool. So nothing is checked then.
    let Some(names) = pools
        .iter()
        .map(|pool| pool.name.as_ref().map(|name| name.get_ref().as_str()))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    if names.contains(&name.as_str()) {
        return;
    }
    let written = (to.span(), name.as_str());
    let none = "add the pool: `[[pool]]`";
    report.unknown_name(written, "the route leads to", "pool", &names, none);
}
