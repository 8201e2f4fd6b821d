//! `[[pool]]` and `[[pool.backend]]`: the servers behind.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;

use tidegate_balance::Policy;
use toml::Spanned;

use super::diagnostic::{Report, quoted};
use super::section::Section;
use super::tables::{BACKEND, BACKEND_NAME, MODE, POLICY, POOL_NAME, URI, WEIGHT};

/// Servers among which calls are divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name, different from every other pool's.
    pub name: String,
    /// Who gets the next call.
    pub policy: Policy,
    /// What is kept of what is forwarded.
    pub mode: Mode,
    /// Its servers, at least one, in the order of the file.
    pub backends: Vec<Backend>,
}

/// A server of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its name, different from every other back end's in any pool.
    pub name: String,
    /// Where it is; no other back end in any pool is there.
    pub address: SocketAddr,
    /// Its share of the calls in proportion to the others' weights, at least 1.
    pub weight: u32,
}

/// What is kept of what is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No transactions, RFC 3261 §16.11; the choice for each call is held.
    Stateless,
}

impl Mode {
    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
        }
    }
}

/// A `[[pool]]` as far as it could be read; what is missing was reported.
pub(super) struct Draft {
    pub span: Range<usize>,
    pub name: Option<Spanned<String>>,
    pub backends: Vec<BackendDraft>,
    policy: Option<Policy>,
    mode: Option<Mode>,
}

/// A `[[pool.backend]]` as far as it could be read.
pub(super) struct BackendDraft {
    pub address: Option<Spanned<SocketAddr>>,
    name: Option<Spanned<String>>,
    weight: Option<u32>,
}

impl Draft {
    pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        Self {
            span: section.span(),
            name: section.value(&POOL_NAME, report),
            policy: section.value(&POLICY, report).map(Spanned::into_inner),
            mode: section.value(&MODE, report).map(Spanned::into_inner),
            backends: section.read_all(&BACKEND, BackendDraft::read, report),
        }
    }

    pub(super) fn finish(self) -> Option<Pool> {
        Some(Pool {
            name: self.name?.into_inner(),
            policy: self.policy?,
            mode: self.mode?,
            backends: self.backends.into_iter().map(BackendDraft::finish).collect::<Option<_>>()?,
        })
    }
}

impl BackendDraft {
    fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let address = section.value(&URI, report);
        let name = if section.has(&BACKEND_NAME) {
            section.given(&BACKEND_NAME, report)
        } else {
            address.as_ref().map(|at| Spanned::new(at.span(), at.get_ref().to_string()))
        };
        let weight = section
            .value(&WEIGHT, report)
            .and_then(|weight| u32::try_from(weight.into_inner()).ok());
        Self { address, name, weight }
    }

    fn finish(self) -> Option<Backend> {
        Some(Backend {
            name: self.name?.into_inner(),
            address: self.address?.into_inner(),
            weight: self.weight?,
        })
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
    let mut addresses: HashMap<SocketAddr, Range<usize>> = HashMap::new();
    for backend in drafts.iter().flat_map(|pool| &pool.backends) {
        let twin = backend.address.as_ref().and_then(|address| {
            addresses.insert(*address.get_ref(), address.span()).map(|first| (address, first))
        });
        if let Some((address, first)) = twin {
            report.clash(
                format!("two back ends at {}", address.get_ref()),
                (address.span(), "used already"),
                (first, "here"),
                "remove one of them: a server belongs to one pool, where its calls are counted",
            );
            continue;
        }
        let Some(name) = &backend.name else { continue };
        if let Some(first) = names.insert(name.get_ref(), name.span()) {
            report.clash(
                format!("two back ends named {}", quoted(name.get_ref())),
                (name.span(), "used already"),
                (first, "here"),
                "give each back end a name of its own, in whatever pool",
            );
        }
    }
}
