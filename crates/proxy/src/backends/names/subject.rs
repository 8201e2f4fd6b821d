//! Subjects of DNS queries: a host name of a back end, or a domain whose servers are back ends.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_balance::{Backend, Lookups, Named, Service};
use tidegate_world::{QueryAnswer, Question, RecordType, SrvRecord};

use crate::resolution::{Records, default_port, service_prefix};

/// Time for which an answer without SRV records is valid, if the answer states no time.
const ABSENCE_HOLDS: Duration = Duration::from_secs(60);

/// A name to resolve, with the object that stores the result.
pub(super) enum Subject {
    Host {
        backend: Arc<Backend>,
        /// True if SRV records list the host, so its name is absolute.
        is_listed: bool,
    },
    /// A domain whose servers are back ends.
    Service(Arc<Service>),
}

/// Result of applying a usable DNS answer.
pub(super) struct Learned {
    /// Time for which the answer is valid.
    pub(super) holds: Duration,
    /// True if the back end has a new address.
    pub(super) has_moved: bool,
}

/// Reason why a DNS query has no usable answer.
#[derive(Clone, Copy)]
pub(super) enum Failure {
    /// The name has no records of the requested type.
    NotFound,
    /// The name server did not answer.
    Unanswered,
    /// The proxy can use none of the addresses in the answer.
    Unusable,
}

impl Failure {
    /// Returns the counter of failures of this kind.
    pub(super) fn of(self, lookups: &Lookups) -> &AtomicU64 {
        match self {
            Self::NotFound => &lookups.not_found,
            Self::Unanswered => &lookups.unanswered,
            Self::Unusable => &lookups.unusable,
        }
    }
}

impl Subject {
    /// Returns a number that identifies the subject as long as it exists.
    pub(super) fn identity(&self) -> usize {
        match self {
            Self::Host { backend, .. } => Arc::as_ptr(backend).addr(),
            Self::Service(service) => Arc::as_ptr(service).addr(),
        }
    }

    /// Returns the DNS question for the subject. The question for a host name asks for records of
    /// the type `record`.
    pub(super) fn question(&self, record: RecordType) -> Question {
        match self {
            // RFC 2782: the target is "The domain name of the target host". So the resolver must
            // not complete it by the search list of the machine. It may complete a name in the
            // configuration.
            Self::Host { backend, is_listed } => {
                let host = named(backend).host();
                let name = if *is_listed { format!("{host}.").into() } else { Arc::clone(host) };
                Question::Resolve { name, record }
            }
            // RFC 3263 §4.2: "If it was not, because a transport was specified explicitly, the
            // client performs an SRV query for that specific transport". The listener of the pool
            // specifies the transport, so there is no query for NAPTR records.
            Self::Service(service) => {
                let prefix = service_prefix(service.transport());
                let name = format!("{prefix}{}", service.domain()).into();
                Question::Resolve { name, record: RecordType::Srv }
            }
        }
    }

    /// Returns the type of the address record of the present address. Returns `None` if there is no
    /// address yet, and for a domain.
    pub(super) fn present(&self) -> Option<RecordType> {
        match self {
            Self::Host { backend, .. } => {
                named(backend).address().map(|at| RecordType::of(at.ip()))
            }
            Self::Service(_) => None,
        }
    }

    /// Returns the counters of the outcomes of the queries for this subject.
    pub(super) fn lookups(&self) -> &Lookups {
        match self {
            Self::Host { backend, .. } => &named(backend).lookups,
            Self::Service(service) => &service.lookups,
        }
    }

    /// Marks the last answer, if there is one, as stale: in use although its TTL has expired.
    pub(super) fn set_stale(&self) {
        match self {
            Self::Host { backend, .. } => named(backend).set_stale(named(backend).is_known()),
            Self::Service(service) => service.set_stale(service.servers().is_some()),
        }
    }

    /// Applies an answer to a query. An address in the answer is used only if `may_be` accepts it
    /// as a possible address of a back end.
    pub(super) fn learn(
        &self,
        answer: &QueryAnswer,
        may_be: impl Fn(SocketAddr) -> bool,
    ) -> Result<Learned, Failure> {
        let learned = match self {
            Self::Host { backend, .. } => learn_address(backend, answer, may_be),
            Self::Service(service) => learn_servers(service, answer),
        }?;
        self.lookups().found.fetch_add(1, Relaxed);
        Ok(learned)
    }
}

fn named(backend: &Backend) -> &Named {
    backend.named().expect("only back ends with a name are entered")
}

fn learn_address(
    backend: &Backend,
    answer: &QueryAnswer,
    may_be: impl Fn(SocketAddr) -> bool,
) -> Result<Learned, Failure> {
    let named = named(backend);
    match answer {
        QueryAnswer::Addresses(addresses, ttl) if !addresses.is_empty() => {
            let ip = choose(named, addresses, may_be).ok_or(Failure::Unusable)?;
            named.set_stale(false);
            let has_moved = backend.move_to(ip);
            if has_moved {
                named.lookups.moved.fetch_add(1, Relaxed);
            }
            Ok(Learned { holds: *ttl, has_moved })
        }
        QueryAnswer::NoAnswer => Err(Failure::Unanswered),
        _ => Err(Failure::NotFound),
    }
}

/// Selects the address of a back end from an answer: the current address if the answer contains it
/// and `may_be` still accepts it, otherwise the first address that `may_be` accepts. If the name
/// server rotates the addresses of the name, the selected address therefore stays the same.
fn choose(
    named: &Named,
    addresses: &[IpAddr],
    may_be: impl Fn(SocketAddr) -> bool,
) -> Option<IpAddr> {
    let present = named.address().map(|address| address.ip());
    let can = |ip: &IpAddr| may_be(SocketAddr::new(*ip, named.port()));
    let found = addresses.iter().copied();
    found.clone().find(|ip| Some(*ip) == present && can(ip)).or_else(|| found.clone().find(can))
}

fn learn_servers(service: &Service, answer: &QueryAnswer) -> Result<Learned, Failure> {
    let (records, holds) = Records::of(RecordType::Srv, answer).ok_or(Failure::Unanswered)?;
    let servers = match records {
        Records::Servers(servers) => servers,
        // RFC 2782: "A Target of "." means that the service is decidedly not available at this
        // domain."
        Records::Declined => Arc::default(),
        // RFC 3263 §4.2: "If no SRV records were found, the client performs an A or AAAA record
        // lookup of the domain name. The result will be a list of IP addresses, each of which can
        // be contacted using the transport protocol determined previously, at the default port for
        // that transport."
        _ => {
            let domain: Arc<[_]> = [domain_itself(service)].into();
            // If other servers are known, this answer counts as a failure, and they stay in use.
            let known = service.servers();
            if known.is_some_and(|known| known != domain) {
                return Err(Failure::NotFound);
            }
            domain
        }
    };
    service.set_servers(servers);
    service.set_stale(false);
    Ok(Learned { holds: holds.unwrap_or(ABSENCE_HOLDS), has_moved: false })
}

/// Returns the server of a domain without SRV records: the domain name itself, at the default port.
fn domain_itself(service: &Service) -> SrvRecord {
    let target = Arc::clone(service.domain());
    SrvRecord { priority: 0, weight: 0, port: default_port(service.transport()), target }
}
