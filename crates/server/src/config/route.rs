//! `[[route]]`: where requests outside any dialog go.

use std::ops::Range;

use ipnet::IpNet;
use toml::Spanned;

use super::diagnostic::{Report, alternatives, nearest, quoted};
use super::section::Section;
use super::tables::{DOMAIN, FROM, METHOD, TO};
use super::{listen, pool};

/// Where a request outside any dialog goes: the first route that matches decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Who sent it.
    pub from: Origin,
    /// Its method is one of these; empty: whatever it is.
    pub methods: Vec<String>,
    /// The host of its Request-URI, in lower case, is one of these; empty: whatever
    /// it is.
    pub domains: Vec<String>,
    /// Where it goes.
    pub to: Target,
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Anybody.
    Any,
    /// A peer in the listener's `trust`.
    Trusted,
    /// A back end of any pool.
    Pool,
    /// A peer of this network.
    Network(IpNet),
}

impl Origin {
    /// Whether strangers are among those meant.
    fn is_everybody(self) -> bool {
        match self {
            Self::Any => true,
            Self::Network(net) => net.prefix_len() == 0,
            Self::Trusted | Self::Pool => false,
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a pool: its index in [`Config::pool`](super::Config::pool).
    Pool(usize),
    /// Where its Request-URI says.
    RequestUri,
}

/// Where a request goes, as the file writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Pool(String),
    RequestUri,
}

/// A `[[route]]` as far as it could be read; what is missing was reported.
pub(super) struct Draft {
    span: Range<usize>,
    from: Option<Spanned<Origin>>,
    methods: Option<Vec<String>>,
    domains: Option<Vec<String>>,
    to: Option<Spanned<Destination>>,
}

impl Draft {
    pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let draft = Self {
            span: section.span(),
            from: section.value(&FROM, report),
            methods: words(section, &METHOD, report),
            domains: words(section, &DOMAIN, report),
            to: section.value(&TO, report),
        };
        draft.check_relay(report);
        draft
    }

    /// The route, its pool found among `pools`.
    pub(super) fn finish(self, pools: &[pool::Pool]) -> Option<Route> {
        let to = match self.to?.into_inner() {
            Destination::RequestUri => Target::RequestUri,
            Destination::Pool(name) => {
                Target::Pool(pools.iter().position(|pool| pool.name == name)?)
            }
        };
        let from = self.from?.into_inner();
        Some(Route { from, methods: self.methods?, domains: self.domains?, to })
    }

    /// Strangers reach only pools: a proxy that relays for everybody hides where
    /// an attack comes from.
    fn check_relay(&self, report: &mut Report) {
        let (Some(from), Some(to)) = (&self.from, &self.to) else { return };
        if *to.get_ref() == Destination::RequestUri && from.get_ref().is_everybody() {
            report.clash(
                "an open relay",
                (to.span(), "sends wherever the request says"),
                (from.span(), "whoever asks"),
                "write `from = \"trusted\"`, `from = \"pool\"` or a network of your own",
            );
        }
    }

    fn matches_everything(&self) -> bool {
        let empty = |list: &Option<Vec<String>>| list.as_ref().is_some_and(Vec::is_empty);
        let anyone = self.from.as_ref().is_some_and(|from| *from.get_ref() == Origin::Any);
        // One that is wrong itself will not stay as it is.
        let to_pool = self.to.as_ref().is_some_and(|to| *to.get_ref() != Destination::RequestUri);
        anyone && to_pool && empty(&self.methods) && empty(&self.domains)
    }
}

/// The words of a list; none when it is not given.
fn words(
    section: &Section<'_, '_>,
    knob: &super::knob::Knob<super::shape::List<super::shape::Text<String>>>,
    report: &mut Report,
) -> Option<Vec<String>> {
    if !section.has(knob) {
        return Some(Vec::new());
    }
    let list = section.given(knob, report)?;
    if list.get_ref().is_empty() {
        report.error(
            list.span(),
            format!("an empty `{}` matches nothing", knob.name),
            "",
            format!("leave `{}` out to match {}", knob.name, knob.absent),
        );
        return None;
    }
    Some(list.into_inner().into_iter().map(Spanned::into_inner).collect())
}

/// Reports routes to pools that do not exist and routes that nothing reaches.
pub(super) fn check(
    drafts: &[Draft],
    pools: &[pool::Draft],
    listeners: &[listen::Draft],
    report: &mut Report,
) {
    for draft in drafts {
        if let Some(to) = &draft.to {
            check_pool_exists(to, pools, report);
        }
        if let Some(from) = &draft.from
            && *from.get_ref() == Origin::Trusted
            && listeners.iter().all(|l| l.trust.as_ref().is_some_and(Vec::is_empty))
        {
            report.error(
                from.span(),
                "a route from `trusted`, and nobody is trusted",
                "matches nothing",
                "add the peers to the listener: `trust = [\"192.0.2.0/24\"]`",
            );
        }
    }
    if let Some(all) = drafts.iter().position(Draft::matches_everything) {
        for later in &drafts[all + 1..] {
            report.clash(
                "a route that nothing reaches",
                (later.span.clone(), "comes after"),
                (drafts[all].span.clone(), "a route that matches everything"),
                "move it up, or narrow the route above by `from`, `method` or `domain`",
            );
        }
    }
    if let ([], [first, second, ..]) = (drafts, pools) {
        report.clash(
            "several pools and no `[[route]]`",
            (second.span.clone(), "calls could go here"),
            (first.span.clone(), "or here"),
            "say what goes where: add `[[route]]` with `to = \"POOL\"` at the end",
        );
    }
}

fn check_pool_exists(to: &Spanned<Destination>, pools: &[pool::Draft], report: &mut Report) {
    let Destination::Pool(name) = to.get_ref() else { return };
    // A pool whose name could not be read may be the one meant.
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
    let help = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `\"{near}\"`?"),
        None if names.is_empty() => "add the pool: `[[pool]]`".to_owned(),
        None => format!("write {}", alternatives(names.iter().map(|name| format!("\"{name}\"")))),
    };
    let title = format!("a route to an unknown pool {}", quoted(name));
    report.error(to.span(), title, "no pool of this name", help);
}
