//! Books: the counts that nodes report about themselves since their start.

use std::collections::BTreeMap;

/// The book of a node: the counts that the node reports about itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Book {
    /// A group of callers.
    Caller(CallerBook),
    /// A user agent that takes calls.
    Answerer(AnswererBook),
    /// A proxy.
    Proxy(ProxyBook),
}

/// The number of a caller's ended calls, for each way in which a call can end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// Established calls that the caller's BYE ended.
    pub left: u64,
    /// Established calls that the other side's BYE ended.
    pub hung_up: u64,
    /// Calls that the caller ended before the INVITE was answered.
    pub abandoned: u64,
    /// Calls whose INVITE got no response in time.
    pub unanswered: u64,
    /// Calls whose INVITE was rejected, by status.
    pub rejected: BTreeMap<u16, u64>,
    /// Calls in which the caller's BYE got no response.
    pub bye_unanswered: u64,
    /// Calls in which the caller's BYE was rejected, by status.
    pub bye_rejected: BTreeMap<u16, u64>,
}

impl Endings {
    /// Returns the number of all ended calls.
    pub fn total(&self) -> u64 {
        let Self { left, hung_up, abandoned, unanswered, rejected, bye_unanswered, bye_rejected } =
            self;
        let by_status: u64 = rejected.values().chain(bye_rejected.values()).sum();
        left + hung_up + abandoned + unanswered + bye_unanswered + by_status
    }
}

/// The counts that a caller reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerBook {
    /// Calls that were due, whether the caller started them or not.
    pub offered: u64,
    /// Calls that the caller did not start because its call table was full.
    pub not_begun: u64,
    /// Calls whose INVITE was sent.
    pub begun: u64,
    /// True if a tap sees each message at the time when the caller sends it. False on a stream,
    /// where a message may wait in a buffer and may never be sent.
    pub is_seen: bool,
    /// Open calls.
    pub open: u64,
    /// Maximum number of open calls.
    pub open_max: u64,
    /// Calls whose 2xx came before the caller gave up.
    pub set_up: u64,
    /// Calls whose 2xx the caller could not use because it was malformed.
    pub malformed: u64,
    /// Ended calls.
    pub ended: Endings,
}

/// The counts that an answerer reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswererBook {
    /// New calls that arrived.
    pub calls: u64,
    /// Calls to which the answerer sent no 2xx, for any reason.
    pub not_answered: u64,
    /// Calls to which the answerer sent a 2xx.
    pub answered: u64,
    /// Answered calls whose ACK arrived.
    pub acknowledged: u64,
    /// Answered calls that have ended.
    pub ended: u64,
    /// Open calls.
    pub open: u64,
    /// Calls in the call table, whether they have ended or not.
    pub held: u64,
    /// Maximum number of calls in the call table.
    pub held_max: u64,
}

/// The counts that a proxy reports about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxyBook {
    /// Messages that the proxy has read.
    pub received: u64,
    /// Datagrams lost at full receive buffers.
    pub overflowed: u64,
    /// Datagrams that were dropped before the receive buffers because the core wanted to shed them.
    pub filtered: u64,
    /// Messages that the proxy lost at a full queue, or dropped because of a ban. Some of them may
    /// also be counted in `received`.
    pub perhaps_dropped: u64,
    /// Messages sent, except ACKs of one hop and the first transmissions of CANCELs of one hop.
    pub sent: u64,
    /// First transmissions of CANCELs of one hop.
    pub cancels: u64,
    /// Messages that the proxy counted as sent, although no connection accepted them.
    pub unsent: u64,
    /// Number of entries in the call table, and the maximum number.
    pub calls: Fill,
    /// Ended calls that the proxy forgot early because its call table was full.
    pub evicted: u64,
    /// Number of server transactions, and the maximum number.
    pub server_transactions: Fill,
    /// Number of client transactions. They have no limit of their own.
    pub client_transactions: u64,
    /// Number of transactions that wait for their final response, in all calls together.
    pub open: u64,
    /// Number of messages that wait for service, and the maximum number.
    pub queued: Fill,
    /// Largest number of messages that have waited in one queue of a shard at the same time, and
    /// the maximum number.
    pub longest_queue: Fill,
    /// Number of INVITEs that the gate admitted, without those that it rejected later because they
    /// had waited too long. `None` if the proxy cannot report this number at every moment.
    pub admitted: Option<u64>,
    /// Number of the gate's decisions that the proxy remembers for retransmissions, and the maximum
    /// number.
    pub remembered: Fill,
    /// Calls and work of each back end, as the proxy counts them.
    pub backends: Vec<Held>,
}

/// The number of entries in a table or a queue, and the maximum number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Number of entries.
    pub used: u64,
    /// Maximum number of entries.
    pub max: u64,
}

/// The calls and the work of a back end, as its proxy counts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Name of the back end.
    pub name: String,
    /// Open calls.
    pub calls: u64,
    /// Limit on the number of calls of the back end. `None` if the back end has no limit on its
    /// calls, or has another limit in addition.
    pub calls_max: Option<u64>,
    /// Sum of the weights of the back end's open transactions, in hundredths of the weight of a BYE
    /// (an INVITE weighs 175).
    pub work: u64,
    /// Availability of the back end for new calls.
    pub standing: Standing,
    /// Rate that the proxy has learned for the back end, in requests a second, or `None` if it has
    /// not learned one.
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
