//! `[[listen]]`: the addresses at which SIP arrives.

use std::net::SocketAddr;

use ipnet::IpNet;
use tidegate_proxy::{Disposal, Overload};
use tidegate_world::Transport;
use toml::Spanned;

use super::address::{HostPort, SIP_PORT};
use super::diagnostic::{Report, quoted};
use super::section::Section;
use super::tables::{
    ADVERTISE, LISTEN_ADDRESS, LISTEN_NAME, RECEIVE_BUFFER, SHARED, Sharing, TRANSPORT, TRUST,
    TRUST_IDENTITY,
};

/// An address at which SIP arrives and from which it leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// How messages travel.
    pub transport: Transport,
    /// Where to listen. Port 0 stands for any free port, a wildcard for every address.
    pub address: SocketAddr,
    /// What peers are told in Via and Record-Route; `None`: the address bound,
    /// which is then not a wildcard.
    pub advertise: Option<HostPort>,
    /// Peers whose requests may go where they say themselves.
    pub trust: Vec<IpNet>,
    /// Further peers whose P-Asserted-Identity is believed.
    pub trust_identity: Vec<IpNet>,
    /// Bytes of the kernel's receive buffer asked for each socket.
    pub receive_buffer: usize,
    /// Who else listens there.
    pub shared: Sharing,
}

/// A `[[listen]]` as far as it could be read; what is missing was reported.
pub(super) struct Draft {
    pub name: Option<Spanned<String>>,
    pub address: Option<Spanned<SocketAddr>>,
    pub advertise: Option<Spanned<HostPort>>,
    pub trust: Option<Vec<IpNet>>,
    trust_identity: Option<Vec<IpNet>>,
    transport: Option<Transport>,
    receive_buffer: Option<usize>,
    shared: Option<Spanned<Sharing>>,
}

impl Draft {
    pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let trust = section.value(&TRUST, report);
        let trust_identity = section.value(&TRUST_IDENTITY, report);
        let draft = Self {
            name: section.given(&LISTEN_NAME, report),
            transport: section.value(&TRANSPORT, report).map(Spanned::into_inner),
            address: section.value(&LISTEN_ADDRESS, report),
            advertise: section.given(&ADVERTISE, report),
            trust: trust.map(networks),
            trust_identity: trust_identity.map(networks),
            shared: section.value(&SHARED, report),
            receive_buffer: section
                .value(&RECEIVE_BUFFER, report)
                .and_then(|bytes| usize::try_from(bytes.into_inner()).ok()),
        };
        if !section.has(&ADVERTISE) {
            draft.check_wildcard(report);
        }
        draft
    }

    pub(super) fn finish(self) -> Option<Listen> {
        Some(Listen {
            transport: self.transport?,
            address: self.address?.into_inner(),
            advertise: self.advertise.map(Spanned::into_inner),
            trust: self.trust?,
            trust_identity: self.trust_identity?,
            receive_buffer: self.receive_buffer?,
            shared: self.shared?.into_inner(),
        })
    }

    fn sharing(&self) -> Sharing {
        self.shared.as_ref().map_or(Sharing::No, |shared| *shared.get_ref())
    }

    /// RFC 3261 §18.1.1: the sent-by of a Via is where responses are to arrive,
    /// and no peer can send to a wildcard.
    fn check_wildcard(&self, report: &mut Report) {
        let Some(address) = &self.address else { return };
        if address.get_ref().ip().is_unspecified() {
            let port = match address.get_ref().port() {
                0 => SIP_PORT,
                port => port,
            };
            report.error(
                address.span(),
                "a wildcard `address` needs `advertise`",
                "not an address peers can send to",
                format!(
                    "add the address by which peers reach this listener, such as \
                     `advertise = \"sip.example.com:{port}\"`"
                ),
            );
        }
    }
}

fn networks(listed: Spanned<Vec<Spanned<IpNet>>>) -> Vec<IpNet> {
    listed.into_inner().into_iter().map(Spanned::into_inner).collect()
}

/// Reports shared listeners without one that is not shared, and those that cannot be.
pub(super) fn check_sharing(drafts: &[Draft], overload: Option<&Overload>, report: &mut Report) {
    let family = |draft: &Draft| draft.address.as_ref().map(|at| at.get_ref().is_ipv4());
    for draft in drafts {
        let (Some(shared), Some(address)) = (&draft.shared, &draft.address) else { continue };
        if *shared.get_ref() == Sharing::No {
            continue;
        }
        let is_own = |other: &&Draft| {
            other.sharing() == Sharing::No && family(other).is_none_or(|f| Some(f) == family(draft))
        };
        if !drafts.iter().any(|other| is_own(&other)) {
            report.error(
                shared.span(),
                "a shared listener, but none for this instance alone",
                "responses of back ends could reach another instance",
                "add a `[[listen]]` of the same family with an address that no other instance has",
            );
        }
        if *shared.get_ref() == Sharing::Processes {
            if address.get_ref().ip().is_unspecified() || address.get_ref().port() == 0 {
                report.clash(
                    "an address that processes cannot share",
                    (address.span(), "not one address and port"),
                    (shared.span(), "shared here"),
                    "write the address and port that all processes use",
                );
            }
            if overload.is_some_and(|overload| overload.disposal == Disposal::Kernel) {
                report.error(
                    shared.span(),
                    "the kernel cannot drop messages at an address that processes share",
                    "`disposal = \"kernel\"` needs an address of its own",
                    "leave `shared` out, or write `disposal = \"reject\"`",
                );
            }
        }
    }
}

/// Reports names and addresses used twice.
pub(super) fn check_distinct(drafts: &[Draft], report: &mut Report) {
    let names: Vec<_> = drafts.iter().filter_map(|draft| draft.name.as_ref()).collect();
    for (i, name) in names.iter().enumerate() {
        if let Some(twin) = names[..i].iter().find(|other| other.get_ref() == name.get_ref()) {
            report.clash(
                format!("two listeners named {}", quoted(name.get_ref())),
                (name.span(), "used already"),
                (twin.span(), "here"),
                "give each listener a name of its own",
            );
        }
    }
    let addresses: Vec<_> = drafts.iter().filter_map(|draft| draft.address.as_ref()).collect();
    for (i, address) in addresses.iter().enumerate() {
        // Port 0 is another port each time.
        let twin = addresses[..i]
            .iter()
            .find(|other| other.get_ref() == address.get_ref() && address.get_ref().port() != 0);
        if let Some(twin) = twin {
            report.clash(
                "two listeners at one address",
                (address.span(), "already the address of a listener"),
                (twin.span(), "here"),
                "remove one of them or give it another port",
            );
        }
    }
}
