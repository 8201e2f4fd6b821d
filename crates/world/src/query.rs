//! Queries of a core to slow services, such as the DNS, and their answers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of records in an answer. The driver leaves out further records.
pub const RECORDS_MAX: usize = 64;

/// Maximum time for which the driver waits for DNS records. After this time, a core may replace a
/// query that got no answer by another query.
pub const RESOLVE_MAX: Duration = Duration::from_secs(8);

/// Maximum length of a name or text in a record, in bytes (RFC 1035 §2.3.4). The driver leaves out
/// records with a longer name or text.
pub const NAME_MAX: usize = 255;

/// Maximum length of the key of a look-up, in bytes.
pub const KEY_MAX: usize = 512;

/// Maximum length of a value that a look-up can find, in bytes. A longer value counts as not found.
pub const VALUE_MAX: usize = 16 * 1024;

/// The identifier of a query. The core chooses it, and recognises the answer by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query {:x}", self.0)
    }
}

/// A query of a core to a slow service, such as the DNS.
///
/// The driver answers a query at any later time, and at most once. So the core limits the amount of
/// work that waits for answers, and the time for which this work waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The identifier of the query, which the answer repeats.
    pub id: QueryId,
    /// The subject of the query.
    pub question: Question,
}

/// The subject of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// DNS records of one type.
    Resolve {
        /// The domain name, at most [`NAME_MAX`] bytes. A name that ends with a dot is absolute.
        /// The resolver may complete any other name by the search list of the machine.
        name: Arc<str>,
        /// The type of the records.
        record: RecordType,
    },
    /// The value of a key in a store.
    Lookup {
        /// The store to search.
        kind: LookupKind,
        /// The key, at most [`KEY_MAX`] bytes.
        key: Arc<[u8]>,
    },
}

/// Types of DNS records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordType {
    /// IPv4 addresses (RFC 1035).
    A,
    /// IPv6 addresses (RFC 3596).
    Aaaa,
    /// Servers of a service (RFC 2782).
    Srv,
    /// Services of a domain (RFC 3403).
    Naptr,
}

impl RecordType {
    /// Returns the type of the records that contain addresses of the family of `ip`.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::A,
            IpAddr::V6(_) => Self::Aaaa,
        }
    }
}

/// The stores in which a core can look up a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LookupKind {
    /// Users and their contacts. A key is an address of record in its canonical form (RFC 3261
    /// §10.3 item 5): `sip:`, the user without escapes, `@`, and the host in lower case. A value
    /// has one contact on each line, written as in a Contact header field (§20.10). The contacts
    /// are tried in this order. An empty value means that the user exists, but has no contact now.
    User,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryAnswer {
    /// Addresses, in the order in which they were found, at most [`RECORDS_MAX`], and their time to
    /// live.
    Addresses(Arc<[IpAddr]>, Duration),
    /// SRV records, at most [`RECORDS_MAX`], and their time to live.
    Srv(Arc<[SrvRecord]>, Duration),
    /// NAPTR records, at most [`RECORDS_MAX`], and their time to live.
    Naptr(Arc<[NaptrRecord]>, Duration),
    /// The value of a look-up, at most [`VALUE_MAX`] bytes.
    Found(Arc<[u8]>),
    /// There is no record of the requested name and type, or no such key. Contains the time for
    /// which this result may be cached, if the service states one (RFC 2308 §5).
    NotFound(Option<Duration>),
    /// The query failed, so it is not known whether the name or key exists.
    NoAnswer,
}

/// An SRV record (RFC 2782): a server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvRecord {
    /// Priority. Servers with a lower number are tried first.
    pub priority: u16,
    /// Share of the requests that the server gets, relative to other servers of the same priority.
    pub weight: u16,
    /// Port at which the server offers the service.
    pub port: u16,
    /// Absolute name of the server, at most [`NAME_MAX`] bytes. The name `.` means that there is no
    /// such service.
    pub target: Arc<str>,
}

/// A NAPTR record (RFC 3403) without its regular expression, which SIP does not use (RFC 3263
/// §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaptrRecord {
    /// Order of the record. Records with a lower number must be used first.
    pub order: u16,
    /// Preference of the record among those of the same order. Records with a lower number should
    /// be used first.
    pub preference: u16,
    /// Flags that define the use of the replacement, at most [`NAME_MAX`] bytes: `s` if the
    /// replacement is the name of SRV records.
    pub flags: Arc<str>,
    /// Service and protocol, such as `SIP+D2U`. At most [`NAME_MAX`] bytes.
    pub service: Arc<str>,
    /// The name for the next query: absolute, at most [`NAME_MAX`] bytes.
    pub replacement: Arc<str>,
}
