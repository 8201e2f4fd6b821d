//! Books: the counts that nodes report about themselves since their start.

use std::collections::BTreeMap;

/// The book of a node: the counts that it reports about itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Book {
    /// A group of callers.
    Caller(CallerBook),
    /// A user agent that takes calls.
    Answerer(AnswererBook),
    /// A proxy.
    Proxy(ProxyBook),
}

/// The number of ended calls of a caller, for each way in which a call can end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// The call was set up, and the caller's BYE ended it.
    pub left: u64,
    /// The call was set up, and the other side's BYE ended it.
    pub hung_up: u64,
    /// The caller ended the call before there was an answer.
    pub abandoned: u64,
    /// There was no response to the INVITE.
    pub unanswered: u64,
    /// The call was rejected. The counts are by status.
    pub refused: BTreeMap<u16, u64>,
    /// There was no response to the BYE.
    pub bye_unanswered: u64,
    /// The BYE was rejected, by status.
    pub bye_refused: BTreeMap<u16, u64>,
}

impl Endings {
    /// Returns the number of all ended calls.
    pub fn total(&self) -> u64 {
        let Self { left, hung_up, abandoned, unanswered, refused, bye_unanswered, bye_refused } =
            self;
        let by_status: u64 = refused.values().chain(bye_refused.values()).sum();
        left + hung_up + abandoned + unanswered + bye_unanswered + by_status
    }
}

/// The counts that a caller reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerBook {
    /// Calls that were offered.
    pub offered: u64,
    /// Calls for which there was no room.
    pub not_begun: u64,
    /// Calls whose INVITE was sent.
    pub begun: u64,
    /// True if a tap sees the caller's messages when the caller sends them. On a stream, messages
    /// wait and may not be accepted.
    pub is_seen: bool,
    /// Open calls.
    pub open: u64,
    /// Maximum number of open calls.
    pub open_max: u64,
    /// Calls answered with 2xx while the caller was waiting.
    pub set_up: u64,
    /// Calls whose 2xx was malformed.
    pub malformed: u64,
    /// Ended calls.
    pub ended: Endings,
}

/// The counts that an answerer reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswererBook {
    /// New calls.
    pub calls: u64,
    /// Calls that got no 2xx, for any reason.
    pub not_answered: u64,
    /// Calls with a 2xx.
    pub answered: u64,
    /// Answered calls whose ACK arrived.
    pub acknowledged: u64,
    /// Answered calls that have ended.
    pub ended: u64,
    /// Open calls.
    pub open: u64,
    /// Calls in the table, whether they have ended or not.
    pub held: u64,
    /// Maximum number of calls in the table.
    pub held_max: u64,
}

/// The counts that a proxy reports about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxyBook {
    /// Messages read.
    pub received: u64,
    /// Datagrams lost at full receive buffers.
    pub overflowed: u64,
    /// Datagrams that were dropped before the receive buffers at the request of the core.
    pub filtered: u64,
    /// Messages lost at a full queue, or dropped because of a ban. It is unknown whether they had
    /// been read.
    pub perhaps_dropped: u64,
    /// Messages sent, except the ACK and the first CANCEL of one hop.
    pub sent: u64,
    /// First CANCELs of one hop sent.
    pub cancels: u64,
    /// Messages that were counted as sent but that no connection accepted.
    pub unsent: u64,
    /// Number of entries in the call table, and its size.
    pub calls: Fill,
    /// Ended calls that were forgotten early because there was no room.
    pub evicted: u64,
    /// Number of server transactions, and the size of their table.
    pub server_transactions: Fill,
    /// Client transactions. They have no limit of their own.
    pub client_transactions: u64,
    /// Transactions of calls that wait for a final response.
    pub open: u64,
    /// Number of messages that wait for service, and the maximum number.
    pub queued: Fill,
    /// Number of pieces of new work that were admitted, or `None` if this is not known at every
    /// moment.
    pub admitted: Option<u64>,
    /// Number of remembered decisions, and the maximum number.
    pub remembered: Fill,
    /// Work of the back ends, as the proxy counts it.
    pub backends: Vec<Held>,
}

/// The fill of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Number of entries.
    pub used: u64,
    /// Maximum number of entries.
    pub max: u64,
}

/// Work of a back end, as its proxy counts it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Name of the back end.
    pub name: String,
    /// Open calls.
    pub calls: u64,
    /// Limit on the number of its calls, if this is its only limit.
    pub calls_max: Option<u64>,
    /// Work of open transactions.
    pub work: u64,
    /// Availability for new calls.
    pub standing: Standing,
    /// Learned rate in requests a second, if known.
    pub learned_cps: Option<f64>,
}

/// Availability of a back end for new calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The back end gets new calls.
    #[default]
    Available,
    /// The back end gets no new calls because of its behaviour: it is down, or has asked for a
    /// pause.
    Excluded,
    /// The back end gets no new calls for another reason: an operator disabled it, or it has no
    /// address.
    OutOfService,
}
