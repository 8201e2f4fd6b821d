//! Entries of the call table in the form shown to operators.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::Tier;
use tidegate_world::unit_enum;

/// An entry of a shard's call table.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEntry {
    /// The back end to which the call goes.
    pub backend: BackendOfCall,
    /// The state of the call.
    pub state: CallState,
    /// The time since the entry was made, in whole seconds.
    pub age: Duration,
    /// The time until the entry is removed, unless another message of the call arrives.
    pub left: Duration,
    /// The network of the first request's source: one IPv4 address, or the /64 of an IPv6 address,
    /// or `None` if it is not known.
    pub source: Option<IpNet>,
    /// The [tier](Tier) in which requests of the call are served: with or without state. A single
    /// request may have state nevertheless, for example if it leaves over another transport.
    pub tier: Tier,
    /// True if the call counts towards `calls_max` of its back end.
    pub is_counted: bool,
}

/// The back end of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendOfCall {
    /// The name of the pool.
    pub pool: Box<str>,
    /// The name of the back end.
    pub name: Box<str>,
    /// The address to which the requests of the call go, if one is known.
    pub address: Option<SocketAddr>,
}

unit_enum! {
    /// The state of a call. JSON uses these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CallState {
        /// A request that starts no call, such as REGISTER or OPTIONS.
        Single = "single",
        /// The INVITE was forwarded and has no final response.
        Trying = "trying",
        /// The INVITE has a 2xx, and the ACK has been awaited for less than 64·T1.
        Unacknowledged = "unacknowledged",
        /// The INVITE has a 2xx, and no BYE is pending. The ACK has arrived, or did not arrive
        /// within 64·T1.
        Established = "established",
        /// A BYE was forwarded and has no final response.
        Ending = "ending",
        /// The call is over. The entry is kept for retransmissions.
        Ended = "ended",
    }
}

/// The answer of a shard to the latest query of an operator for a call. It can be taken once.
#[derive(Debug, Default)]
pub struct CallAnswer(Mutex<Option<Answered>>);

#[derive(Debug)]
struct Answered {
    call_id: Box<[u8]>,
    entries: Vec<CallEntry>,
}

impl CallAnswer {
    /// Takes the entries of the call with this Call-ID. Returns `None` if there is no answer, if it
    /// was taken before, or if it is about another call.
    pub fn take(&self, call_id: &[u8]) -> Option<Vec<CallEntry>> {
        let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answer.take_if(|answer| *answer.call_id == *call_id).map(|answer| answer.entries)
    }

    /// Replaces the answer to the previous query. The shard does not wait for readers: if another
    /// thread reads at this moment, the new answer is lost.
    pub(crate) fn put(&self, call_id: &[u8], entries: Vec<CallEntry>) {
        if let Ok(mut answer) = self.0.try_lock() {
            *answer = Some(Answered { call_id: call_id.into(), entries });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_once_and_only_for_its_call_id() {
        let answer = CallAnswer::default();
        assert_eq!(answer.take(b"a"), None);
        answer.put(b"a", Vec::new());
        assert_eq!((answer.take(b"b"), answer.take(b"a")), (None, Some(Vec::new())));
        assert_eq!(answer.take(b"a"), None);
    }
}
