//! The sample of rejections kept for operators.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;
use tidegate_control::Allowance;
use tidegate_world::{Counter, Timestamp};

use crate::message::class::Class;
use crate::rejection::reply_reason::ReplyReason;

/// Maximum number of bytes kept of a method.
pub(super) const METHOD_MAX: usize = 16;
/// Maximum number of bytes kept of a Call-ID.
pub(super) const CALL_ID_MAX: usize = 128;

/// Maximum number of bytes kept of a From, a To and a Request-URI.
pub(super) const ADDRESS_MAX: usize = 128;

/// A rejected request, with the reason and the load at the time of the rejection.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionRecord {
    /// The time of the rejection.
    pub at: Timestamp,
    /// The address of the source. For a request that was forwarded without a transaction and could
    /// not be sent, it is the address to which the response goes.
    pub source: SocketAddr,
    /// The class of the request, if overload control rejected it, or if no possible back end took
    /// it.
    pub class: Option<Class>,
    /// The status of the response, or `None` if the request was dropped.
    pub status: Option<u16>,
    /// The first word of the message, which should be the method, cut to 16 bytes.
    pub method: ArrayVec<u8, METHOD_MAX>,
    /// The Call-ID, cut to 128 bytes.
    pub call_id: ArrayVec<u8, CALL_ID_MAX>,
    /// The value of From, cut to 128 bytes, or empty if the message could not be read.
    pub from: Box<[u8]>,
    /// The value of To, cut to 128 bytes.
    pub to: Box<[u8]>,
    /// The Request-URI, cut to 128 bytes.
    pub uri: Box<[u8]>,
    /// The reason for the rejection.
    pub reason: ReplyReason,
    /// The cause in words: the text of the Warning, or the description of `reason`.
    pub cause: &'static str,
    /// The name of the pool to which the request had been routed, if any.
    pub pool: Option<Box<str>>,
    /// The load that the gate saw, or `None` if `class` is `None`.
    pub load: Option<LoadThen>,
}

impl RejectionRecord {
    /// Returns whether the request has this Call-ID. Only the first 128 bytes are compared.
    pub fn is_of(&self, call_id: &[u8]) -> bool {
        self.call_id[..] == call_id[..call_id.len().min(CALL_ID_MAX)]
    }
}

/// The load at the moment of a rejection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadThen {
    /// The share that the gate admitted of the new work in the bucket of the request, 0 to 1.
    pub allowance: f64,
    /// The limit that the law set on new work in the bucket of the request.
    pub limit: Allowance,
    /// Occupancy of the processor in the last completed window of a tenth of a second, 0 to 1.
    pub occupancy: f64,
    /// The 99th percentile of the sojourn of new work in the last completed second, in ns.
    pub sojourn_p99_ns: u64,
    /// Number of new calls that waited in the queue.
    pub waiting: usize,
}

/// The latest sampled rejections. The shard writes and any thread reads. A reader never delays the
/// shard.
#[derive(Debug, Default)]
pub struct RejectionLog {
    pub(super) kept: Mutex<VecDeque<RejectionRecord>>,
    /// Rejections that were not recorded, because a reader held the lock.
    pub missed: Counter,
}

impl RejectionLog {
    /// Returns all kept rejections, oldest first.
    pub fn list(&self) -> Vec<RejectionRecord> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }

    pub(super) fn keep(&self, rejection: RejectionRecord, kept_max: usize) {
        // A reader copies the list within a few microseconds. The shard does not wait for it.
        let Ok(mut kept) = self.kept.try_lock() else {
            self.missed.add(1);
            return;
        };
        while kept.len() >= kept_max.max(1) {
            kept.pop_front();
        }
        kept.push_back(rejection);
    }
}
