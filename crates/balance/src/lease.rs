//! Leases. A lease counts a call or a transaction at its back end while the lease exists.

use std::fmt;
use std::mem;
use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::response_time::{Waiting, Watch};
use crate::work::LeaseKind;
use crate::{Backend, Work};

const CALL: LeaseKind = LeaseKind { calls: 1, transactions: 0, work: 0 };

/// A call counted at a back end until the lease is dropped, in any thread and for any reason.
#[must_use = "a lease that is dropped at once counts nothing"]
pub struct CallLease(Arc<Backend>);

impl CallLease {
    pub(crate) fn new(backend: &Arc<Backend>) -> Self {
        backend.take(CALL);
        Self(Arc::clone(backend))
    }

    /// Counts a call and returns its lease. If the back end already has `calls_max` calls, counts
    /// nothing and returns `None`.
    pub(crate) fn within(backend: &Arc<Backend>, calls_max: u64) -> Option<Self> {
        backend.take_call(calls_max).then(|| Self(Arc::clone(backend)))
    }
}

impl Drop for CallLease {
    fn drop(&mut self) {
        self.0.give_back(CALL);
    }
}

impl fmt::Debug for CallLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallLease({})", self.0.name())
    }
}

/// A transaction and its work, counted at a back end until the lease is dropped, in any thread and
/// for any reason.
#[must_use = "a lease that is dropped at once counts nothing"]
pub struct TransactionLease {
    backend: Arc<Backend>,
    work: u32,
    /// True until the first response, if the request counts against the learned window of the back
    /// end.
    is_unheard: bool,
    /// Data for measuring the response time, or `None` once the transaction was answered.
    waiting: Option<Waiting>,
}

impl TransactionLease {
    pub(crate) fn new(
        backend: &Arc<Backend>,
        now: Timestamp,
        kind: Work,
        work: u32,
        watch: Watch,
    ) -> Self {
        let waiting = Some(backend.response_times().record_request(now, kind, watch));
        backend.take(weighs(work));
        // The first response to any other request may come from the callee.
        let is_unheard = backend.is_limited() && matches!(kind, Work::CallStart | Work::Register);
        if is_unheard {
            backend.allowance().window().on_sent(now);
        }
        Self { backend: Arc::clone(backend), work, is_unheard, waiting }
    }

    /// Records a response of the back end, whatever its status. Only the first response counts.
    pub fn on_heard(&mut self, now: Timestamp) {
        if mem::take(&mut self.is_unheard)
            && let Some(waiting) = &self.waiting
        {
            self.backend.allowance().window().on_heard(now, waiting.since());
        }
    }

    /// Records the response that ends the response time of the transaction: for an INVITE the first
    /// response other than 100, for any other request the final response. Only the first call has
    /// an effect. The caller must leave out 5xx responses, because they do not show the speed of a
    /// server.
    pub fn on_answered(&mut self, now: Timestamp) {
        if let Some(waiting) = self.waiting.take() {
            self.backend.response_times().on_answered(now, waiting);
        }
    }

    /// Returns the time at which the request was sent, or `None` after the transaction was
    /// [answered](Self::on_answered).
    pub fn sent_at(&self) -> Option<Timestamp> {
        self.waiting.as_ref().map(Waiting::since)
    }
}

fn weighs(work: u32) -> LeaseKind {
    LeaseKind { calls: 0, transactions: 1, work }
}

impl Drop for TransactionLease {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.backend.response_times().give_up(waiting);
        }
        self.backend.give_back(weighs(self.work));
    }
}

impl fmt::Debug for TransactionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransactionLease({} work {})", self.backend.name(), self.work)
    }
}
