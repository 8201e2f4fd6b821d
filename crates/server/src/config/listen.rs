//! `[[listen]]`: the addresses at which SIP arrives.

use std::net::SocketAddr;
use std::ops::Range;

use tidegate_proxy::{Disposal, Overload};
use tidegate_world::Transport;
use toml::Spanned;

use super::address::SIP_PORT;
use super::diagnostic::{Report, quoted};
use super::tables::listen::{ListenDraft, Sharing};

impl ListenDraft {
    fn sharing(&self) -> Sharing {
        self.shared.as_ref().map_or(Sharing::No, |shared| *shared.get_ref())
    }

    /// Returns the position of `shared` in the file if a response to a request from this listener
    /// could reach another instance. Returns `None` for a listener for connections that processes
    /// share, because responses return on the connection of their request.
    pub(super) fn scatters_responses(&self) -> Option<Range<usize>> {
        let is_stream = self.transport.as_ref().is_some_and(|by| by.get_ref().is_reliable());
        let scatters = match self.sharing() {
            Sharing::No => false,
            Sharing::Hosts => true,
            Sharing::Processes => !is_stream,
        };
        self.shared.as_ref().filter(|_| scatters).map(Spanned::span)
    }

    /// Returns whether `drafts`, the listeners of the file, include one that is not shared and has
    /// the same address family as this listener.
    pub(super) fn has_unshared(&self, drafts: &[Self]) -> bool {
        let family = |draft: &Self| draft.address.as_ref().map(|at| at.get_ref().is_ipv4());
        drafts.iter().any(|other| {
            other.sharing() == Sharing::No && family(other).is_none_or(|f| Some(f) == family(self))
        })
    }

    /// Rejects a wildcard address without `advertise`. RFC 3261 §18.1.1: responses must arrive at
    /// the sent-by of a Via, and no peer can send to a wildcard address.
    pub(super) fn check_wildcard(&self, report: &mut Report) {
        let Some(address) = &self.address else { return };
        let is_told = self.advertise.is_some() || self.wrong.contains(&"advertise");
        if !is_told && address.get_ref().ip().is_unspecified() {
            let port = match address.get_ref().port() {
                0 => SIP_PORT,
                port => port,
            };
            report.error(
                address.span(),
                "a wildcard `address` needs `advertise`",
                "peers cannot send to this address",
                format!(
                    "add the address by which peers reach this listener, such as \
                     `advertise = \"sip.example.com:{port}\"`"
                ),
            );
        }
    }
}

/// Reports each shared listener for which no unshared listener has the same address family, and
/// each listener whose settings do not allow sharing.
pub(super) fn check_sharing(
    drafts: &[ListenDraft],
    overload: Option<&Overload>,
    report: &mut Report,
) {
    for draft in drafts {
        let (Some(shared), Some(address)) = (&draft.shared, &draft.address) else { continue };
        if *shared.get_ref() == Sharing::No {
            continue;
        }
        if !draft.has_unshared(drafts) {
            report.error(
                shared.span(),
                "a shared listener needs another listener that is not shared",
                "responses of back ends could reach another instance",
                "add a `[[listen]]` of the same address family, with an address that no other \
                 instance has",
            );
        }
        if *shared.get_ref() == Sharing::Processes {
            if address.get_ref().ip().is_unspecified() || address.get_ref().port() == 0 {
                report.clash(
                    "processes cannot share this address",
                    (address.span(), "this is a wildcard address, or has port 0"),
                    (shared.span(), "shared here"),
                    "write the address and port that all processes use",
                );
            }
            if overload.is_some_and(|overload| overload.disposal == Disposal::Kernel) {
                report.error(
                    shared.span(),
                    "the kernel cannot drop messages at an address that processes share",
                    "`disposal = \"kernel\"` needs a listener that is not shared",
                    "leave `shared` out, or write `disposal = \"reject\"`",
                );
            }
        }
    }
}

/// Reports names and addresses that two listeners have in common.
pub(super) fn check_distinct(drafts: &[ListenDraft], report: &mut Report) {
    let names: Vec<_> = drafts.iter().filter_map(|draft| draft.name.as_ref()).collect();
    for (i, name) in names.iter().enumerate() {
        if let Some(twin) = names[..i].iter().find(|other| other.get_ref() == name.get_ref()) {
            report.clash(
                format!("two listeners have the name {}", quoted(name.get_ref())),
                (name.span(), "used already"),
                (twin.span(), "here"),
                "give each listener its own name",
            );
        }
    }
    let addresses: Vec<_> = drafts
        .iter()
        .filter_map(|draft| {
            let transport = draft.transport.as_ref().map_or(Transport::Udp, |by| *by.get_ref());
            Some((transport.is_reliable(), draft.address.as_ref()?))
        })
        .collect();
    for (i, (is_stream, address)) in addresses.iter().enumerate() {
        // Two listeners with port 0 get different ports. UDP and TCP have separate ports.
        let is_twin = |(other, at): &&(bool, &Spanned<SocketAddr>)| {
            other == is_stream && at.get_ref() == address.get_ref() && at.get_ref().port() != 0
        };
        if let Some((_, twin)) = addresses[..i].iter().find(is_twin) {
            report.clash(
                "two listeners have the same address",
                (address.span(), "another listener has this address"),
                (twin.span(), "here"),
                "remove one of them or give it another port",
            );
        }
    }
}
