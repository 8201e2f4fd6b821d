//! The facts that accompany an admitted message to its service.

use super::request::RequestHashes;

/// Facts that admission has found about a message that is to be served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admitted {
    /// Keyed hash that the message shares with its retransmissions, or `None` if the message does
    /// not request new work.
    pub(crate) fingerprint: Option<u64>,
    /// True if the message is a retransmission of a request that was already counted.
    pub(crate) is_again: bool,
    pub(crate) has_priority: bool,
    /// True if the message claims to belong to a call or transaction, but the proxy found none when
    /// the message arrived.
    pub(crate) is_unverified: bool,
    /// True if the message has waited for the DNS or a store for the maximum time.
    pub(crate) is_overdue: bool,
    /// Hashes of the branch and the Call-ID, if they were computed on arrival.
    pub(crate) hashes: Option<RequestHashes>,
}
