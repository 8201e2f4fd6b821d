//! What a call or a transaction weighs on its back end while it lasts.

use std::fmt;
use std::sync::Arc;

use crate::Backend;

/// The kinds of transaction a policy may weigh differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The request that begins a call (INVITE).
    CallStart,
    /// The request that ends one (BYE).
    CallEnd,
    /// Any other request.
    Other,
}

impl Work {
    /// What it weighs under TLWL, in hundredths of a BYE.
    // 003 §IV: INVITE : BYE = 1.75, from their measured costs.
    pub(crate) const fn weight(self) -> u32 {
        match self {
            Self::CallStart => 175,
            Self::CallEnd | Self::Other => 100,
        }
    }
}

/// A count taken on a back end, given back when dropped, on whatever path and
/// from whatever thread.
#[must_use = "a lease that is dropped at once counts nothing"]
pub struct Lease {
    backend: Arc<Backend>,
    calls: u32,
    work: u32,
}

impl Lease {
    pub(crate) fn call(backend: &Arc<Backend>) -> Self {
        Self::take(backend, 1, 0)
    }

    pub(crate) fn transaction(backend: &Arc<Backend>, work: Work) -> Self {
        Self::take(backend, 0, work.weight())
    }

    fn take(backend: &Arc<Backend>, calls: u32, work: u32) -> Self {
        backend.take(calls, work);
        Self { backend: Arc::clone(backend), calls, work }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.backend.give_back(self.calls, self.work);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} calls {} work {})", self.backend.name(), self.calls, self.work)
    }
}
