//! Queries: questions of a core to slow things, and their answers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The largest number of records in an answer. A world that finds more leaves out the last ones.
pub const RECORDS_MAX: usize = 64;

/// The longest name or text in a record, in bytes (RFC 1035 §2.3.4). A world leaves out records
/// with longer ones.
pub const NAME_MAX: usize = 255;

/// The longest key of a look-up, in bytes.
pub const KEY_MAX: usize = 512;

/// The longest value that a look-up can find, in bytes. A longer one is not found.
pub const VALUE_MAX: usize = 16 * 1024;

/// The name that a core gives a query of its own, by which it recognises the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query {:x}", self.0)
    }
}

/// A question to the world.
///
/// The world answers it once, or never, at any later time. So the core that asks bounds the work
/// that waits for answers, and for how long it waits: without an answer by then there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// By which the core knows the answer.
    pub id: QueryId,
    /// What it wants to know.
    pub question: Question,
}

/// The subject of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The records of one type that the DNS has for a name.
    Resolve {
        /// The name, at most [`NAME_MAX`] bytes. One that ends with a dot is absolute; any other
        /// may be completed by the search list of the machine.
        name: Arc<str>,
        /// The type of the records.
        record: RecordType,
    },
    /// The value that a store has for a key.
    Lookup {
        /// The store that is asked.
        kind: LookupKind,
        /// The key, at most [`KEY_MAX`] bytes.
        key: Arc<[u8]>,
    },
}

/// The types of DNS records that can be asked for.
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
    /// Returns the type of the records that hold addresses of the family of `ip`.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::A,
            IpAddr::V6(_) => Self::Aaaa,
        }
    }
}

/// The stores that look-ups go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LookupKind {
    /// The users, and where they are reached. A key is an address of record in its canonical form
    /// (RFC 3261 §10.3 item 5): `sip:`, the user without escapes, `@`, and the host in lower case. A
    /// value has a contact in each line, as a Contact header field has it (§20.10), in the order in
    /// which they are tried; none: the user exists, and is reached nowhere now.
    User,
}

/// The outcome of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryAnswer {
    /// The addresses, in the order in which they were found, at most [`RECORDS_MAX`], and how
    /// long they may be used without asking again.
    Addresses(Arc<[IpAddr]>, Duration),
    /// The SRV records, at most [`RECORDS_MAX`], and how long they may be used.
    Srv(Arc<[SrvRecord]>, Duration),
    /// The NAPTR records, at most [`RECORDS_MAX`], and how long they may be used.
    Naptr(Arc<[NaptrRecord]>, Duration),
    /// The value of a look-up, at most [`VALUE_MAX`] bytes.
    Found(Arc<[u8]>),
    /// There is no such name, no record of that type, or no such key; and for how long that holds,
    /// if the answer says so (RFC 2308 §5).
    NotFound(Option<Duration>),
    /// The question could not be answered.
    NoAnswer,
}

/// An SRV record (RFC 2782): a server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvRecord {
    /// Servers with a lower one are tried first.
    pub priority: u16,
    /// Share of the requests among servers of one priority.
    pub weight: u16,
    /// Port of the service.
    pub port: u16,
    /// Name of the server, absolute, at most [`NAME_MAX`] bytes. `.`: there is no such service.
    pub target: Arc<str>,
}

/// A NAPTR record (RFC 3403) without its regular expression, which SIP does not use (RFC 3263
/// §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaptrRecord {
    /// Records with a lower one must be used first.
    pub order: u16,
    /// Among records of one order those with a lower one should be used first.
    pub preference: u16,
    /// Meaning of the replacement; `s`: the name of SRV records. At most [`NAME_MAX`] bytes.
    pub flags: Arc<str>,
    /// Service and protocol, such as `SIP+D2U`. At most [`NAME_MAX`] bytes.
    pub service: Arc<str>,
    /// Name to ask for next, absolute, at most [`NAME_MAX`] bytes.
    pub replacement: Arc<str>,
}
