//! The count that a call or a transaction holds on its back end while it lasts.

use std::fmt;
use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::response_time::{Waiting, Watch};
use crate::work::Weighs;
use crate::{Backend, Work};

const CALL: Weighs = Weighs { calls: 1, transactions: 0, work: 0 };

/// A count taken on a back end, given back when dropped, on whatever path and
/// from whatever thread.
#[must_use = "a lease that is dropped at once counts nothing"]
pub struct Lease {
    backend: Arc<Backend>,
    weighs: Weighs,
    /// Until it is answered.
    waiting: Option<Waiting>,
}

impl Lease {
    pub(crate) fn call(backend: &Arc<Backend>) -> Self {
        Self::take(backend, CALL, None)
    }

    /// A call, unless the back end holds `calls_max`.
    pub(crate) fn call_within(backend: &Arc<Backend>, calls_max: u64) -> Option<Self> {
        backend.take_call(calls_max).then(|| Self {
            backend: Arc::clone(backend),
            weighs: CALL,
            waiting: None,
        })
    }

    pub(crate) fn transaction(
        backend: &Arc<Backend>,
        now: Timestamp,
        kind: Work,
        work: u32,
        watch: Watch,
    ) -> Self {
        let waiting = backend.response_times().begin(now, kind, watch);
        Self::take(backend, Weighs { calls: 0, transactions: 1, work }, Some(waiting))
    }

    /// The response has come by which the response time of the transaction is measured: of an
    /// INVITE the first other than 100, of any other request the final one. Only the first time
    /// counts. Not for responses of the class 5xx, which say nothing of how fast a server works.
    pub fn on_answered(&mut self, now: Timestamp) {
        if let Some(waiting) = self.waiting.take() {
            self.backend.response_times().on_answered(now, waiting);
        }
    }

    /// When its transaction began, until it is [answered](Self::on_answered).
    pub fn sent_at(&self) -> Option<Timestamp> {
        self.waiting.as_ref().map(Waiting::since)
    }

    fn take(backend: &Arc<Backend>, weighs: Weighs, waiting: Option<Waiting>) -> Self {
        backend.take(weighs);
        Self { backend: Arc::clone(backend), weighs, waiting }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.backend.response_times().give_up(waiting);
        }
        self.backend.give_back(self.weighs);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Weighs { calls, work, .. } = self.weighs;
        write!(f, "Lease({} calls {calls} work {work})", self.backend.name())
    }
}
