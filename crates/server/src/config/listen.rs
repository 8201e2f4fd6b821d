//! `[[listen]]`: the addresses at which SIP arrives.

use std::net::SocketAddr;

use ipnet::IpNet;
use tidegate_world::Transport;
use toml::Spanned;

use super::address::{HostPort, SIP_PORT};
use super::diagnostic::Report;
use super::section::Section;
use super::tables::{ADVERTISE, LISTEN_ADDRESS, RECEIVE_BUFFER, TRANSPORT, TRUST};

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
    /// Bytes of the kernel's receive buffer asked for each socket.
    pub receive_buffer: usize,
}

/// A `[[listen]]` as far as it could be read; what is missing was reported.
pub(super) struct Draft {
    pub address: Option<Spanned<SocketAddr>>,
    pub advertise: Option<Spanned<HostPort>>,
    pub trust: Option<Vec<IpNet>>,
    transport: Option<Transport>,
    receive_buffer: Option<usize>,
}

impl Draft {
    pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Self {
        let trust = section.value(&TRUST, report);
        let draft = Self {
            transport: section.value(&TRANSPORT, report).map(Spanned::into_inner),
            address: section.value(&LISTEN_ADDRESS, report),
            advertise: section.given(&ADVERTISE, report),
            trust: trust
                .map(|nets| nets.into_inner().into_iter().map(Spanned::into_inner).collect()),
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
            receive_buffer: self.receive_buffer?,
        })
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

/// Reports addresses listened at twice.
pub(super) fn check_distinct(drafts: &[Draft], report: &mut Report) {
    let addresses: Vec<_> = drafts.iter().filter_map(|draft| draft.address.as_ref()).collect();
    for (i, address) in addresses.iter().enumerate() {
        // Port 0 is another port each time.
        let twin = addresses[..i]
            .iter()
            .find(|other| other.get_ref() == address.get_ref() && address.get_ref().port() != 0);
        if let Some(twin) = twin {
            report.clash(
                "two listeners at one address",
                (address.span(), "listened at already"),
                (twin.span(), "here"),
                "remove one of them or give it another port",
            );
        }
    }
}
