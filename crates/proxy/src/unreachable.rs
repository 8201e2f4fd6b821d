//! Addresses of back ends where nobody listened a moment ago.
//!
//! That is the transport's word (RFC 3261 §16.9). A target that is merely silent is another matter:
//! it may have more to do than it can, and its time-outs decide.

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use tidegate_world::Timestamp;

/// How many are remembered: the last.
const ADDRESSES_MAX: usize = 64;

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

    /// Whether it was said of `address` at `since` or later.
    pub(crate) fn holds(&self, address: SocketAddr, since: Timestamp) -> bool {
        self.addresses.iter().any(|&(known, at)| known == address && at >= since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(i: usize) -> SocketAddr {
        ([192, 0, 2, 1], 5000 + i as u16).into()
    }

    #[test]
    fn the_last_are_remembered() {
        let mut unreachable = Unreachable::default();
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        for i in 0..=ADDRESSES_MAX {
            unreachable.note(at(10), address(i));
        }
        assert!(!unreachable.holds(address(0), at(0)), "the first had to go");
        assert!(unreachable.holds(address(1), at(10)));
        assert!(!unreachable.holds(address(1), at(11)), "that was of another request");
        unreachable.note(at(20), address(1));
        assert!(unreachable.holds(address(1), at(20)), "it was noted again");
        assert_eq!(unreachable.addresses.len(), ADDRESSES_MAX);
    }
}
