//! The way of a request, as its plan says it.

use std::net::SocketAddr;

use tidegate_balance::Demand;

use crate::rejection::Rejection;
use crate::settings::Member;
use crate::target::Target;

/// What is to be done to find the target of a request.
pub(crate) enum Way {
    /// Forward it to the back end that has its dialog or call.
    Stay {
        member: Member,
        /// The address where the dialog is, if the back end has a name that may lead elsewhere.
        target: Option<SocketAddr>,
        /// What the policy would choose another back end by, if the request begins something.
        key: Option<u64>,
    },
    /// Begin a call at the back end that its route token names.
    BeginAt { member: Member, target: Option<SocketAddr> },
    /// Begin more work at the back end that has its call; at another one if no call goes on there.
    BeginWithin { member: Member, key: u64, demand: Demand, goes_on: bool },
    /// Move its call to another back end of the pool.
    Move { pool: u16, demand: Demand },
    /// Forward it to a back end that is configured no more and has its dialog.
    Removed(Target),
    /// Forward it from one back end to another one.
    Between(Member),
    /// Select a back end of a pool; with a demand it is something new, which needs headroom.
    Select { pool: u16, demand: Option<Demand> },
    /// Forward it to a target outside the pools.
    Outside {
        target: Target,
        /// The target is a strict router.
        is_strict: bool,
        /// The back end that sent it.
        from: Option<Member>,
        /// Whether a name led there, which may have further targets.
        is_named: bool,
        /// Whether a user sends it to who has called.
        to_caller: bool,
    },
    /// Forward it to a user, whose contact is at this address. The contact replaces the Request-URI.
    User {
        target: Target,
        /// The back end that sent it.
        from: Option<Member>,
    },
    /// Reject it, after it has counted in the rate of its call.
    Reject(Rejection),
}
