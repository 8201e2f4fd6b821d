//! Addresses where nobody listened a moment ago.
//!
//! That is the transport's word (RFC 3261 §16.9). A target that is merely silent is another matter:
//! it may have more to do than it can, and its time-outs decide.

use std::net::SocketAddr;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_world::Timestamp;

/// How many are remembered: the last.
const ADDRESSES_MAX: usize = 64;

/// How long. An INVITE is sent again after 500 ms, 1 s, 2 s, …: each time it is asked anew.
const REMEMBERED: Duration = Duration::from_secs(2);

/// Targets of which the transport has said that nobody is there.
#[derive(Debug, Default)]
pub(crate) struct Unreachable {
    addresses: ArrayVec<(SocketAddr, Timestamp), ADDRESSES_MAX>,
}

impl Unreachable {
    pub(crate) fn note(&mut self, now: Timestamp, address: SocketAddr) {
        self.addresses.retain(|(known, _)| *known != address);
        if self.addresses.is_full() {
            self.addresses.remove(0);
        }
        self.addresses.push((address, now));
    }

    pub(crate) fn holds(&self, now: Timestamp, address: SocketAddr) -> bool {
        let fresh = |at: Timestamp| now.since(at) < REMEMBERED;
        self.addresses.iter().any(|&(known, at)| known == address && fresh(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(i: usize) -> SocketAddr {
        ([192, 0, 2, 1], 5000 + i as u16).into()
    }

    #[test]
    fn the_last_are_remembered_for_a_while() {
        let mut unreachable = Unreachable::default();
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        for i in 0..=ADDRESSES_MAX {
            unreachable.note(at(0), address(i));
        }
        assert!(!unreachable.holds(at(0), address(0)), "the first had to go");
        assert!(unreachable.holds(at(1999), address(1)));
        assert!(!unreachable.holds(at(2000), address(1)));
        unreachable.note(at(1000), address(1));
        assert!(unreachable.holds(at(2999), address(1)), "it was noted again");
        assert_eq!(unreachable.addresses.len(), ADDRESSES_MAX);
    }
}
