//! Queries: what a core asks of things that are slow, and their answers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Addresses of one answer at the most. A world that finds more leaves out those behind.
pub const ADDRESSES_MAX: usize = 64;

/// What a core calls a query of its own, to know the answer by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query {:x}", self.0)
    }
}

/// A question to the world.
///
/// The world answers it once, or never, at any later time. So whoever asks bounds what waits for
/// answers, and for how long: without an answer by then there is none, and one that comes later
/// is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// By which the core knows the answer.
    pub id: QueryId,
    /// What it wants to know.
    pub question: Question,
}

/// What a core may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The addresses of a host, by its name.
    Resolve(Arc<str>, Family),
}

/// Which addresses of a host are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4: the records A of the DNS.
    V4,
    /// IPv6: the records AAAA.
    V6,
}

impl Family {
    /// That of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The addresses, in the order in which they were found, at most [`ADDRESSES_MAX`], and how
    /// long they may be used without asking again.
    Addresses(Arc<[IpAddr]>, Duration),
    /// There is no such host, or it has no address of that family.
    NotFound,
    /// Nobody could say.
    NoAnswer,
}
