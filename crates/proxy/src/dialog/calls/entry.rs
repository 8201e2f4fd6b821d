//! Describes entries of the call table for operators.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_balance::AddressGeneration;
use tidegate_control::Tier;
use tidegate_world::Timestamp;

use super::call::{Call, Phase, second};
use super::{Calls, SAME_MAX};
use crate::network::network_of;
use crate::observe::call_entry::{BackendOfCall, CallEntry, CallState};
use crate::settings::BackendRef;

impl Calls {
    /// Returns the entries of the calls whose Call-ID has this fingerprint. `backend_of` returns
    /// the names of a back end. `tier_of` returns the tier of a call to or from a back end, from
    /// the tier that was chosen for the call.
    pub(crate) fn entries(
        &self,
        now: Timestamp,
        fingerprint: u128,
        backend_of: impl Fn(BackendRef, AddressGeneration) -> BackendOfCall,
        tier_of: impl Fn(BackendRef, Tier) -> Tier,
    ) -> Vec<CallEntry> {
        let calls = self.entries.with_hash(fingerprint as u64).map(|entry| &entry.call);
        let entry = |call: &Call| CallEntry {
            backend: backend_of(call.backend_ref, call.address_generation),
            state: state_of(call),
            age: Duration::from_secs(second(now).saturating_sub(call.began_s).into()),
            left: call.deadline.since(now),
            source: source_of_caller(call.caller),
            tier: tier_of(call.backend_ref, call.tier),
            is_counted: call.is_counted(),
        };
        calls.filter(|call| call.has_fingerprint(fingerprint)).take(SAME_MAX).map(entry).collect()
    }
}

/// Decodes the result of [`caller_of`](crate::network::caller_of) to the network of the caller.
fn source_of_caller(caller: u64) -> Option<IpNet> {
    let is_ipv4 = caller >> 32 == 0xffff;
    let number = if is_ipv4 { caller.into() } else { u128::from(caller) << 64 };
    (caller != 0).then(|| network_of(number))
}

fn state_of(call: &Call) -> CallState {
    match call.phase {
        Phase::Single => CallState::Single,
        Phase::Trying => CallState::Trying,
        Phase::Established if !call.is_abandoned() => CallState::Ending,
        Phase::Established if call.is_unacknowledged() => CallState::Unacknowledged,
        Phase::Established => CallState::Established,
        Phase::Finished => CallState::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::caller_of;

    #[test]
    fn the_number_of_a_caller_leads_back_to_its_network() {
        let source = |address: &str| source_of_caller(caller_of(address.parse().unwrap()));
        let network = |text: &str| Some(text.parse().unwrap());
        assert_eq!(source("198.51.100.7"), network("198.51.100.7/32"));
        assert_eq!(source("0.0.0.1"), network("0.0.0.1/32"));
        assert_eq!(source("2001:db8:1:2:3::4"), network("2001:db8:1:2::/64"));
        assert_eq!(source_of_caller(0), None);
    }
}
