//! The decision of a routing plan about the target of a request.

use std::net::SocketAddr;

use tidegate_balance::Demand;

use crate::rejection::Halt;
use crate::settings::BackendRef;
use crate::target::Target;

/// The decision about the target of a request, which the commit of the plan carries out.
pub(crate) enum TargetChoice {
    /// Forward the request to the back end that has the dialog or call of the request.
    Stay {
        backend_ref: BackendRef,
        /// The address used by the dialog, if the back end has a name that may resolve to another
        /// address now.
        target: Option<SocketAddr>,
        /// The key by which the policy selects a back end for failover, or `None` if the request
        /// must stay at this back end.
        key: Option<u64>,
    },
    /// Start a call at the back end that the route token of the request names.
    BeginAt { backend_ref: BackendRef, target: Option<SocketAddr> },
    /// Start new work with the Call-ID of a known call at the back end of that call, or at another
    /// back end if the call is over (`goes_on` is false).
    BeginWithin { backend_ref: BackendRef, key: u64, demand: Demand, goes_on: bool },
    /// Move the call to another back end of the pool.
    Move { pool: u16, demand: Demand },
    /// Forward the request to a back end that has the dialog of the request but is no longer
    /// configured.
    Removed(Target),
    /// Forward the request from one back end to another.
    Between(BackendRef),
    /// Select a back end of a pool. A request with a demand is new and needs headroom.
    Select { pool: u16, demand: Option<Demand> },
    /// Forward the request to a target that is not selected from a pool.
    Outside {
        target: Target,
        /// True if the target is a strict router.
        is_strict: bool,
        /// The back end that sent the request.
        from: Option<BackendRef>,
        /// True if the target was found by a name, which may have further targets.
        is_named: bool,
        /// True if the party to which the request goes has named the target address, and has not
        /// shown that the address is its own. This applies to requests from the called phone of a
        /// user to the caller, and to requests from a back end to an address other than the one
        /// from which the other party sends.
        is_claimed: bool,
    },
    /// Forward the request to a user's contact at this address. The contact replaces the
    /// Request-URI.
    User {
        target: Target,
        /// The back end that sent the request.
        from: Option<BackendRef>,
    },
    /// Do not forward the request, after counting it against the rate limit of its call if there is
    /// one.
    Halt(Halt),
}
