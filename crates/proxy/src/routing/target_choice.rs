//! The way in which the commit finds the target of a request.

use std::net::SocketAddr;

use tidegate_balance::Demand;

use crate::rejection::Rejection;
use crate::settings::BackendRef;
use crate::target::Target;

/// The steps that find the target of a request.
pub(crate) enum TargetChoice {
    /// Forward the request to the back end that has its dialog or call.
    Stay {
        backend_ref: BackendRef,
        /// The address used by the dialog, if the back end has a name that may resolve to another
        /// address now.
        target: Option<SocketAddr>,
        /// The key by which the policy selects another back end, or `None` if the request begins no
        /// new work and so stays at this one.
        key: Option<u64>,
    },
    /// Start a call at the back end that its route token names.
    BeginAt { backend_ref: BackendRef, target: Option<SocketAddr> },
    /// Start more work at the back end of the call, or at another one if no call is ongoing there.
    BeginWithin { backend_ref: BackendRef, key: u64, demand: Demand, goes_on: bool },
    /// Move the call to another back end of the pool.
    Move { pool: u16, demand: Demand },
    /// Forward the request to a back end that has its dialog but is no longer configured.
    Removed(Target),
    /// Forward the request from one back end to another.
    Between(BackendRef),
    /// Select a back end of a pool. A request with a demand is new and needs headroom.
    Select { pool: u16, demand: Option<Demand> },
    /// Forward the request to a target outside the pools.
    Outside {
        target: Target,
        /// True if the target is a strict router.
        is_strict: bool,
        /// The back end that sent the request.
        from: Option<BackendRef>,
        /// True if the target was found by a name, which may have further targets.
        is_named: bool,
        /// True if the other party of the dialog has named the target address, and may not own it.
        /// This applies to a request from a called phone of a user to the caller, and to a request
        /// from a back end to another address than that of the other party.
        is_claimed: bool,
    },
    /// Forward the request to a user's contact at this address. The contact replaces the
    /// Request-URI.
    User {
        target: Target,
        /// The back end that sent the request.
        from: Option<BackendRef>,
    },
    /// Reject the request. If it counts in the rate of its call, it is counted first.
    Reject(Rejection),
}
