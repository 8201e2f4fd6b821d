//! The sample of rejections that is kept for operators.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;
use tidegate_world::{Counter, Timestamp};

use crate::message::class::Class;
use crate::rejection::reply_reason::ReplyReason;

/// Bytes of a method and of a Call-ID that are kept.
pub(super) const METHOD_MAX: usize = 16;
pub(super) const CALL_ID_MAX: usize = 128;

/// Bytes of a From, a To and a Request-URI that are kept.
pub(super) const ADDRESS_MAX: usize = 128;

/// A request that was rejected, and what is known of the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// The sender; of a request that had a transaction, where its responses go.
    pub source: SocketAddr,
    /// The class, if the request was rejected before it was read in full.
    pub class: Option<Class>,
    /// The status of the response; `None` if the request was dropped in silence.
    pub status: Option<u16>,
    /// The method as it stands in the message, cut to 16 bytes.
    pub method: ArrayVec<u8, METHOD_MAX>,
    /// The Call-ID, cut to 128 bytes.
    pub call_id: ArrayVec<u8, CALL_ID_MAX>,
    /// The values of From and To and the Request-URI, each cut to 128 bytes; empty if the message
    /// could not be read.
    pub from: Box<[u8]>,
    /// The same, of To.
    pub to: Box<[u8]>,
    /// The same, of the Request-URI.
    pub uri: Box<[u8]>,
    /// The reason.
    pub reason: ReplyReason,
    /// The cause in words: the text of the Warning, if there was one.
    pub cause: &'static str,
    /// The name of the pool to which the request was routed, if it came so far.
    pub pool: Option<Box<str>>,
    /// The load that the gate saw, if the gate rejected the request.
    pub load: Option<LoadThen>,
}

impl Refusal {
    /// Returns whether the request has this Call-ID, as far as it is kept.
    pub fn is_of(&self, call_id: &[u8]) -> bool {
        self.call_id[..] == call_id[..call_id.len().min(CALL_ID_MAX)]
    }
}

/// The load at the moment of a rejection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadThen {
    /// The share of the new work of its kind that was admitted, 0 to 1.
    pub allowance: f64,
    /// Occupancy of the processor in the last tenth of a second, 0 to 1.
    pub occupancy: f64,
    /// Sojourn of new work in the last second that was over, p99, in ns.
    pub sojourn_p99_ns: u64,
    /// New calls that waited.
    pub waiting: usize,
}

/// The latest of those that were kept. A shard writes, anybody reads: who reads holds up nobody.
#[derive(Debug, Default)]
pub struct Refusals {
    pub(super) kept: Mutex<VecDeque<Refusal>>,
    /// Refusals that were to be kept while somebody read.
    pub missed: Counter,
}

impl Refusals {
    /// All that are kept, the oldest first.
    pub fn list(&self) -> Vec<Refusal> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }

    pub(super) fn keep(&self, refusal: Refusal, kept_max: usize) {
        // A reader copies for some microseconds. The shard does not wait for it.
        let Ok(mut kept) = self.kept.try_lock() else {
            self.missed.add(1);
            return;
        };
        while kept.len() >= kept_max.max(1) {
            kept.pop_front();
        }
        kept.push_back(refusal);
    }
}
