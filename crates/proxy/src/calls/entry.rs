//! What the call table holds of a call, as operators see it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tidegate_balance::Place;
use tidegate_control::Tier;
use tidegate_world::Timestamp;

use super::call::{Call, Member, Phase, second};
use super::{Calls, SAME_MAX};
use crate::network::network_of;

/// An entry of a shard's call table.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEntry {
    /// The back end.
    pub backend: BackendOfCall,
    /// The state.
    pub state: CallState,
    /// The time since the entry was made, in whole seconds.
    pub age: Duration,
    /// The time after which the entry is removed if no further message of the call comes.
    pub left: Duration,
    /// The network that the first request came from: one IPv4 address, or the /64 of an IPv6
    /// address; `None` if it is not known.
    pub source: Option<IpNet>,
    /// The tier of service.
    pub tier: Tier,
    /// Whether the call counts in `calls_max` of its back end.
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

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// A request that begins no call, such as REGISTER or OPTIONS.
    Single,
    /// The INVITE was forwarded and has no final response.
    Trying,
    /// The INVITE has a 2xx, and no ACK came.
    Unacknowledged,
    /// The call is established.
    Established,
    /// A BYE was forwarded and has no final response.
    Ending,
    /// The call is over; the entry is kept for repetitions.
    Ended,
}

impl CallState {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Trying => "trying",
            Self::Unacknowledged => "unacknowledged",
            Self::Established => "established",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }

    fn of(call: &Call) -> Self {
        match call.phase {
            Phase::Single => Self::Single,
            Phase::Trying => Self::Trying,
            Phase::Established if !call.is_abandoned() => Self::Ending,
            Phase::Established if call.is_unacknowledged() => Self::Unacknowledged,
            Phase::Established => Self::Established,
            Phase::Finished => Self::Ended,
        }
    }
}

impl Calls {
    /// Returns the entries with a fingerprint, whose back ends `backend_of` names.
    pub(crate) fn entries(
        &self,
        now: Timestamp,
        fingerprint: u128,
        backend_of: impl Fn(Member, Place) -> BackendOfCall,
    ) -> Vec<CallEntry> {
        let slots = self.by_fingerprint.iter_hash(fingerprint as u64);
        let calls = slots.filter_map(|&slot| self.slots[slot as usize].call.as_ref());
        let entry = |call: &Call| CallEntry {
            backend: backend_of(call.member, call.place),
            state: CallState::of(call),
            age: Duration::from_secs(second(now).saturating_sub(call.began_s).into()),
            left: call.deadline.since(now),
            source: source_of_caller(call.caller),
            tier: call.tier,
            is_counted: call.is_counted(),
        };
        calls.filter(|call| call.fingerprint == fingerprint).take(SAME_MAX).map(entry).collect()
    }
}

/// Returns the network that [`caller_of`](crate::amplification::caller_of) has made a number.
fn source_of_caller(caller: u64) -> Option<IpNet> {
    let is_ipv4 = caller >> 32 == 0xffff;
    let number = if is_ipv4 { caller.into() } else { u128::from(caller) << 64 };
    (caller != 0).then(|| network_of(number))
}

/// The answer of a shard to the last question for a call, until it is taken.
#[derive(Debug, Default)]
pub struct CallAnswer(Mutex<Option<Answered>>);

#[derive(Debug)]
struct Answered {
    call_id: Box<[u8]>,
    entries: Vec<CallEntry>,
}

impl CallAnswer {
    /// Takes the entries of the call with this Call-ID; `None` if the shard has not answered.
    pub fn take(&self, call_id: &[u8]) -> Option<Vec<CallEntry>> {
        let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answer.take_if(|answer| *answer.call_id == *call_id).map(|answer| answer.entries)
    }

    /// Puts an answer in the place of the last one. The shard waits for no reader: an answer that
    /// comes while one reads is lost.
    pub(crate) fn put(&self, call_id: &[u8], entries: Vec<CallEntry>) {
        if let Ok(mut answer) = self.0.try_lock() {
            *answer = Some(Answered { call_id: call_id.into(), entries });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplification::caller_of;

    #[test]
    fn the_number_of_a_caller_leads_back_to_its_network() {
        let source = |address: &str| source_of_caller(caller_of(address.parse().unwrap()));
        let network = |text: &str| Some(text.parse().unwrap());
        assert_eq!(source("198.51.100.7"), network("198.51.100.7/32"));
        assert_eq!(source("0.0.0.1"), network("0.0.0.1/32"));
        assert_eq!(source("2001:db8:1:2:3::4"), network("2001:db8:1:2::/64"));
        assert_eq!(source_of_caller(0), None);
    }

    #[test]
    fn an_answer_is_taken_once_and_by_who_asked() {
        let answer = CallAnswer::default();
        assert_eq!(answer.take(b"a"), None);
        answer.put(b"a", Vec::new());
        assert_eq!((answer.take(b"b"), answer.take(b"a")), (None, Some(Vec::new())));
        assert_eq!(answer.take(b"a"), None);
    }
}
