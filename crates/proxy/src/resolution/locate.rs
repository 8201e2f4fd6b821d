//! Finds the transports, addresses and ports to which a request with a given URI can be sent, by
//! the procedure of RFC 3263 §4.
//!
//! A [`Walk`] runs the procedure from the beginning, and uses the cached answers. If an answer is
//! missing, the walk sends a query, and the request waits for the answer. When the answer has come,
//! another walk starts and gets further. So no state is kept for each request, and requests to one
//! domain share all queries.
//!
//! A request waits only for the answers that decide on the first target. If the addresses of
//! failover targets are not known yet, the walk queries them, but does not wait for them.

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;
use tidegate_sip::{Host, Scheme, Uri};
use tidegate_world::{RecordType, SrvRecord, Timestamp, Transport};

use super::name::Name;
use super::records::Records;
use super::select::{order_addresses, order_servers, order_services};
use super::transport::{default_port, of_param, service_prefix};
use super::{Asked, Resolution, Ticket};

/// The largest number of targets for a request.
pub const TARGETS_MAX: usize = 16;

/// The largest number of servers of a service that are tried for a request.
const SERVERS_MAX: usize = 8;

/// The largest number of addresses of each server, if there are several servers.
const ADDRESSES_OF_SERVER_MAX: usize = 4;

/// The destination of a request as its URI describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The host to resolve: the TARGET of RFC 3263 §4.
    pub host: Host<'a>,
    /// The port, if the URI gives one.
    pub port: Option<u16>,
    /// The transport parameter, if the URI has one.
    pub transport: Option<&'a [u8]>,
    /// True for a SIPS URI.
    pub secure: bool,
    /// True if the request is too large for a datagram (RFC 3261 §18.1.1).
    pub large: bool,
}

impl<'a> Wanted<'a> {
    /// Reads a URI. Returns `None` if it is not a SIP or SIPS URI, or its `maddr` is not a host.
    pub fn of(uri: &Uri<'a>) -> Option<Self> {
        let secure = match uri.scheme {
            Scheme::Sip => false,
            Scheme::Sips => true,
            Scheme::Tel | Scheme::Urn | Scheme::Other => return None,
        };
        // RFC 3263 §4: "We define TARGET as the value of the maddr parameter of the URI, if
        // present, otherwise, the host value of the hostport component of the URI." RFC 3261
        // §19.1.1: "When an maddr parameter is present, the port and transport components of the
        // URI apply to the address indicated in the maddr parameter value."
        let host = match uri.maddr() {
            Some(maddr) => Host::parse(maddr)?,
            None => uri.host?,
        };
        Some(Self { host, port: uri.port, transport: uri.transport(), secure, large: false })
    }
}

/// A transport and address to which a request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The transport to use.
    pub transport: Transport,
    /// Address and port.
    pub address: SocketAddr,
}

/// Targets in the order of attempts.
pub type Targets = SmallVec<[Target; 4]>;

/// The result of looking for the targets of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// At least one and at most [`TARGETS_MAX`] targets, in the order of attempts. All but the
    /// first are for failover (RFC 3263 §4.3).
    Targets(Targets),
    /// The request has to wait for the query of this ticket.
    Pending(Ticket),
    /// There is no such destination, or the client cannot reach it or may not send to it.
    NotFound,
    /// The DNS failed to answer, or may not be queried now.
    Unavailable,
}

/// One run of the steps of RFC 3263 for a URI.
pub(super) struct Walk<'r, F> {
    pub(super) resolution: &'r mut Resolution,
    pub(super) now: Timestamp,
    /// The identity of the request, which determines the order of its targets.
    pub(super) hash: u64,
    /// The function that tests whether a request may be sent to a target.
    pub(super) may_be: F,
    pub(super) found: Found,
}

/// The targets and missing answers that a walk has found.
#[derive(Default)]
pub(super) struct Found {
    targets: Targets,
    /// The query that must be answered before the first target is known.
    waits: Option<Ticket>,
    /// A query that has failed before and was sent again. The request waits for it only if there is
    /// no other target.
    retried: Option<Ticket>,
    failed: bool,
}

impl<F: Fn(&Target) -> bool> Walk<'_, F> {
    /// Runs the procedure of RFC 3263 §4 for this destination.
    pub(super) fn locate(mut self, wanted: &Wanted<'_>) -> Located {
        let &Wanted { host, port, transport, secure, large } = wanted;
        let transports = &self.resolution.transports;
        // RFC 3263 §4.1: "If the URI specifies a transport protocol in the transport parameter,
        // that transport protocol SHOULD be used."
        let given = transport.map(|value| {
            let transport = of_param(value, secure);
            transport.filter(|transport| transports.supports(*transport))
        });
        // "Otherwise, if no transport protocol is specified, but the TARGET is a numeric IP
        // address, the client SHOULD use UDP for a SIP URI, and TCP for a SIPS URI. Similarly, if
        // no transport protocol is specified, and the TARGET is not numeric, but an explicit port
        // is provided".
        let usual = given.unwrap_or_else(|| transports.default(secure, large));
        let Some(usual) = usual else { return Located::NotFound };
        let usual_port = port.unwrap_or_else(|| default_port(usual));
        let name = match host {
            // RFC 3263 §4.2: "If TARGET is a numeric IP address, the client uses that address. If
            // the URI also contains a port, it uses that port. If no port is specified, it uses the
            // default port for the particular transport protocol."
            Host::V4(ip) => return self.numeric(usual, ip.into(), usual_port),
            Host::V6(ip) => return self.numeric(usual, ip.into(), usual_port),
            Host::Name(name) => str::from_utf8(name).ok().and_then(Name::parse),
        };
        let Some(name) = name else { return Located::NotFound };
        if port.is_some() {
            // RFC 3263 §4.2: "If the TARGET was not a numeric IP address, but a port is present in
            // the URI, the client performs an A or AAAA record lookup of the domain name."
            self.collect(usual, name.as_str(), usual_port, TARGETS_MAX);
            return self.end();
        }
        let choices = match (given, secure) {
            // RFC 3263 §4.2: "If it was not, because a transport was specified explicitly, the
            // client performs an SRV query for that specific transport".
            (Some(_), _) => Choices::from_iter([Choice::new(usual, &name)]),
            (None, secure) => match self.naptr(&name, secure) {
                Ok(choices) => choices,
                Err(ticket) => return Located::Pending(ticket),
            },
        };
        // The transport to use if there are no SRV records.
        let determined = match choices.first() {
            Some(first) if first.by_naptr => first.transport,
            _ => usual,
        };
        self.services(&choices, determined, &name)
    }

    fn numeric(mut self, transport: Transport, ip: IpAddr, port: u16) -> Located {
        self.push(transport, SocketAddr::new(ip, port));
        self.end()
    }

    /// Returns the services of a domain, in the order of preference. Their SRV records are queried
    /// next. If the request has to wait for the NAPTR records of the domain, returns the ticket of
    /// the query for these.
    fn naptr(&mut self, name: &Name, secure: bool) -> Result<Choices, Ticket> {
        // RFC 3263 §4.1: "Otherwise, if no transport protocol or port is specified, and the target
        // is not a numeric IP address, the client SHOULD perform a NAPTR query for the domain in
        // the URI."
        let asked = self.resolution.ask(self.now, RecordType::Naptr, name.as_str());
        let transports = &self.resolution.transports;
        let choices: Choices = match &asked {
            Asked::Waits(ticket) => return Err(*ticket),
            Asked::Known(Records::Services(services)) => {
                let services = order_services(services, transports, secure).into_iter();
                services.filter_map(Choice::of_service).collect()
            }
            // DNS servers that do not understand NAPTR queries must not make a domain unreachable.
            Asked::Known(_) | Asked::Retried(_) | Asked::Failed => Choices::new(),
        };
        if !choices.is_empty() {
            return Ok(choices);
        }
        // RFC 3263 §4.1: "If no NAPTR records are found, the client constructs SRV queries for
        // those transport protocols it supports, and does a query for each. [...] The client MAY
        // use any transport protocol it desires which is supported by the server."
        Ok(transports.of_scheme(secure).map(|transport| Choice::new(transport, name)).collect())
    }

    /// Returns the servers of the first of these services that has any. If none has servers,
    /// returns the addresses of the domain itself.
    fn services(mut self, choices: &Choices, determined: Transport, name: &Name) -> Located {
        let mut declined = false;
        for choice in choices {
            let Some(service) = &choice.service else { continue };
            match self.resolution.ask(self.now, RecordType::Srv, service.as_str()) {
                // If the answer for a preferred service is missing, `end` makes the request wait.
                Asked::Known(Records::Servers(servers)) => {
                    return self.servers(choice.transport, &servers);
                }
                // RFC 2782: "A Target of "." means that the service is decidedly not available at
                // this domain."
                Asked::Known(Records::Declined) => declined |= choice.transport == determined,
                Asked::Known(_) => {}
                asked => self.found.note(&asked),
            }
        }
        // A missing answer does not prove that there are no SRV records.
        if declined || self.found.is_open() {
            return self.end();
        }
        // RFC 3263 §4.2: "If no SRV records were found, the client performs an A or AAAA record
        // lookup of the domain name. The result will be a list of IP addresses, each of which can
        // be contacted using the transport protocol determined previously, at the default port for
        // that transport."
        self.collect(determined, name.as_str(), default_port(determined), TARGETS_MAX);
        self.end()
    }

    /// Returns the addresses of the servers of a service, in the order that RFC 2782 requires.
    fn servers(mut self, transport: Transport, servers: &[SrvRecord]) -> Located {
        let room = if servers.len() > 1 { ADDRESSES_OF_SERVER_MAX } else { TARGETS_MAX };
        for server in order_servers(servers, self.hash).into_iter().take(SERVERS_MAX) {
            self.collect(transport, &server.target, server.port, room);
        }
        self.end()
    }

    /// Adds at most `room` addresses of a host to the targets.
    fn collect(&mut self, transport: Transport, host: &str, port: u16, room: usize) {
        let before = self.found.targets.len();
        for &record in self.resolution.address_records {
            match self.resolution.ask(self.now, record, host) {
                Asked::Known(Records::Addresses(addresses)) => {
                    for ip in order_addresses(&addresses, self.hash) {
                        if self.found.targets.len() < before + room {
                            self.push(transport, SocketAddr::new(ip, port));
                        }
                    }
                }
                Asked::Known(_) => {}
                // Another target can be tried first: do not wait.
                Asked::Waits(_) if !self.found.targets.is_empty() => {}
                asked => self.found.note(&asked),
            }
        }
    }

    fn push(&mut self, transport: Transport, address: SocketAddr) {
        let target = Target { transport, address };
        if address.port() == 0 || !(self.may_be)(&target) {
            self.resolution.counters.unusable.add(1);
        } else if self.found.targets.len() < TARGETS_MAX && !self.found.targets.contains(&target) {
            self.found.targets.push(target);
        }
    }

    fn end(self) -> Located {
        let Found { targets, waits, retried, failed } = self.found;
        match (waits, targets.is_empty(), retried) {
            (Some(ticket), _, _) => Located::Pending(ticket),
            (None, false, _) => Located::Targets(targets),
            (None, true, Some(ticket)) => Located::Pending(ticket),
            (None, true, None) if failed => Located::Unavailable,
            (None, true, None) => Located::NotFound,
        }
    }
}

impl Found {
    /// Records the query for which the request may have to wait, if the records are not known.
    fn note(&mut self, asked: &Asked) {
        match asked {
            Asked::Known(_) => {}
            Asked::Waits(ticket) => _ = self.waits.get_or_insert(*ticket),
            Asked::Retried(ticket) => _ = self.retried.get_or_insert(*ticket),
            Asked::Failed => self.failed = true,
        }
    }

    /// Returns whether an answer is missing.
    fn is_open(&self) -> bool {
        self.waits.is_some() || self.retried.is_some() || self.failed
    }
}

/// Candidate services, in the order of preference.
type Choices = SmallVec<[Choice; 2]>;

/// A service whose servers may be targets: SIP in the domain over one transport.
struct Choice {
    transport: Transport,
    /// The name of its SRV records, or `None` if it would be too long for the DNS.
    service: Option<Name>,
    by_naptr: bool,
}

impl Choice {
    fn new(transport: Transport, name: &Name) -> Self {
        let service = name.service(service_prefix(transport));
        Self { transport, service, by_naptr: false }
    }

    fn of_service(service: &super::records::Service) -> Option<Self> {
        let name = Name::parse(&service.name)?;
        Some(Self { transport: service.transport, service: Some(name), by_naptr: true })
    }
}
