//! What nodes say of themselves. Counts are since the node's beginning.

use std::collections::BTreeMap;

/// The book of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Book {
    /// A crowd of callers.
    Caller(CallerBook),
    /// A user agent that takes calls.
    Answerer(AnswererBook),
    /// A proxy.
    Proxy(ProxyBook),
}

/// How calls ended at their caller: each in one of these ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// Set up, and ended by the caller's BYE.
    pub left: u64,
    /// Set up, and ended by the other side's BYE.
    pub hung_up: u64,
    /// Given up by the caller before there was an answer.
    pub abandoned: u64,
    /// No response to the INVITE.
    pub unanswered: u64,
    /// Refused, by status.
    pub refused: BTreeMap<u16, u64>,
    /// No response to the BYE.
    pub bye_unanswered: u64,
    /// The BYE was refused, by status.
    pub bye_refused: BTreeMap<u16, u64>,
}

impl Endings {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { left, hung_up, abandoned, unanswered, refused, bye_unanswered, bye_refused } =
            self;
        let by_status: u64 = refused.values().chain(bye_refused.values()).sum();
        left + hung_up + abandoned + unanswered + bye_unanswered + by_status
    }
}

/// A crowd's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerBook {
    /// Calls that were to be made.
    pub offered: u64,
    /// Of these, calls for which there was no room.
    pub not_begun: u64,
    /// Of these, calls whose INVITE was sent.
    pub begun: u64,
    /// Whether the wire shows what it sends when it does: on a stream messages wait, and may not be
    /// taken.
    pub is_seen: bool,
    /// Calls that are not over.
    pub open: u64,
    /// Calls that may be open at once.
    pub open_max: u64,
    /// Calls answered with 2xx while the caller was waiting.
    pub set_up: u64,
    /// Calls whose 2xx could not be understood.
    pub malformed: u64,
    /// Calls that are over.
    pub ended: Endings,
}

/// An answerer's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswererBook {
    /// New calls.
    pub calls: u64,
    /// Of these, calls that got no 2xx, in whatever way.
    pub not_answered: u64,
    /// Of these, calls that got a 2xx.
    pub answered: u64,
    /// Answered calls whose ACK came.
    pub acknowledged: u64,
    /// Answered calls that are over.
    pub ended: u64,
    /// Calls that are not over.
    pub open: u64,
    /// Calls in the table, over or not.
    pub held: u64,
    /// Room of the table.
    pub held_max: u64,
}

/// What a proxy counts and holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxyBook {
    /// Messages read.
    pub received: u64,
    /// Datagrams lost at full receive buffers.
    pub overflowed: u64,
    /// Datagrams dropped before the receive buffers, on purpose.
    pub filtered: u64,
    /// Messages lost at a full queue, or dropped because of a ban, where it is not known whether
    /// they had been read.
    pub perhaps_dropped: u64,
    /// Messages sent, but for the ACK and the first CANCEL of one hop.
    pub sent: u64,
    /// First CANCELs of one hop sent.
    pub cancels: u64,
    /// Messages counted as sent that no connection took.
    pub unsent: u64,
    /// Entries of the call table, and its room.
    pub calls: Fill,
    /// Ended calls that were forgotten early, for want of room.
    pub evicted: u64,
    /// Server transactions, and their room.
    pub server_transactions: Fill,
    /// Client transactions. They have no limit of their own.
    pub client_transactions: u64,
    /// Transactions of calls that wait for a final response.
    pub open: u64,
    /// Messages that wait for service, and the room for them.
    pub queued: Fill,
    /// New work that was admitted; `None` where that is not known at every moment.
    pub admitted: Option<u64>,
    /// Decisions that are remembered, and the room for them.
    pub remembered: Fill,
    /// What the proxy believes its back ends to hold.
    pub backends: Vec<Held>,
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Entries.
    pub used: u64,
    /// Entries at the most.
    pub max: u64,
}

/// Work held by a back end, as its proxy counts it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Its name.
    pub name: String,
    /// Open calls.
    pub calls: u64,
    /// Calls that it may be given, if that is limited and it has no others.
    pub calls_max: Option<u64>,
    /// Work of open transactions.
    pub work: u64,
    /// Whether it gets new calls.
    pub standing: Standing,
    /// Requests a second that it takes, if that was learned.
    pub learned_cps: Option<f64>,
}

/// Availability of a back end for new calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    #[default]
    Available,
    /// It does not, because of what it did: it is down, or has asked for a pause.
    Excluded,
    /// It does not, because of something else: an operator wants it so, or it has no address.
    OutOfService,
}
