//! The way of a request: how the commit finds its target.

use std::net::SocketAddr;

use tidegate_balance::Demand;

use crate::rejection::Rejection;
use crate::settings::BackendRef;
use crate::target::Target;

/// The steps that find the target of a request.
pub(crate) enum TargetChoice {
    /// Forward it to the back end that has its dialog or call.
    Stay {
        backend_ref: BackendRef,
        /// The address of the dialog, if the back end has a name that may resolve to another one
        /// now.
        target: Option<SocketAddr>,
        /// The policy's key for another back end, if the request starts something.
        key: Option<u64>,
    },
    /// Start a call at the back end that its route token names.
    BeginAt { backend_ref: BackendRef, target: Option<SocketAddr> },
    /// Start more work at the back end that has its call; at another one if no call is ongoing
    /// there.
    BeginWithin { backend_ref: BackendRef, key: u64, demand: Demand, goes_on: bool },
    /// Move its call to another back end of the pool.
    Move { pool: u16, demand: Demand },
    /// Forward it to a back end that has its dialog and is no longer configured.
    Removed(Target),
    /// Forward it from one back end to another.
    Between(BackendRef),
    /// Select a back end of a pool; a request with a demand is new and needs headroom.
    Select { pool: u16, demand: Option<Demand> },
    /// Forward it to a target outside the pools.
    Outside {
        target: Target,
        /// The target is a strict router.
        is_strict: bool,
        /// The back end that sent the request.
        from: Option<BackendRef>,
        /// True if a name led there; the name may have further targets.
        is_named: bool,
        /// True if a user sends it to the caller.
        to_caller: bool,
    },
    /// Forward it to a user's contact at this address. The contact replaces the Request-URI.
    User {
        target: Target,
        /// The back end that sent the request.
        from: Option<BackendRef>,
    },
    /// Reject it after counting it in the rate of its call.
    Reject(Rejection),
}
