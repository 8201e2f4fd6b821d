//! What happens to a request that is not forwarded.

use tidegate_sip::Malformed;

use crate::counters::DropReason;
use crate::reply::Hints;

/// What happens to a request that is not forwarded.
pub(crate) enum Instead {
    /// A response with this status, and why.
    Reply(u16, &'static str),
    /// 420 to a Proxy-Require.
    BadExtension,
    /// 200 to an OPTIONS for ourselves.
    Capabilities,
    /// Nothing.
    Drop(DropReason),
    /// A refusal: all back ends that it could go to are at their limits.
    PoolFull,
    /// 503: no back end that it could go to may be given anything new.
    PoolDown(Hints),
    /// Another shard knows more.
    Cross(u16),
}

impl From<Malformed> for Instead {
    fn from(malformed: Malformed) -> Self {
        Self::Reply(status_of(malformed), "malformed")
    }
}

/// The status that answers a malformed request.
pub(crate) fn status_of(malformed: Malformed) -> u16 {
    match malformed {
        // RFC 3261 §21.5.6.
        Malformed::Version => 505,
        // RFC 3261 §21.5.7: "The server was unable to process the request since the message length
        // exceeded its capabilities."
        Malformed::TooManyHeaders => 513,
        _ => 400,
    }
}
