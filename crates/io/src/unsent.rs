//! Targets to which datagrams could not be sent.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;

/// Maximum number of pairs of a target and a cause that are kept until a reader takes them.
/// Datagrams with further pairs are counted only in [`Counters`](crate::Counters).
pub const UNSENT_MAX: usize = 32;

/// A target, a cause, and the number of datagrams that were not sent to the target for this cause.
pub type UnsentTo = (SocketAddr, &'static str, u64);

/// A bounded sample of the datagrams that could not be sent. The shard writes it, and any thread
/// may take it.
#[derive(Debug, Default)]
pub struct Unsent(Mutex<ArrayVec<UnsentTo, UNSENT_MAX>>);

impl Unsent {
    /// Returns the records made since the last call of this function, and removes them.
    pub fn take(&self) -> ArrayVec<UnsentTo, UNSENT_MAX> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a datagram that was not sent. If a reader has locked the records, leaves the
    /// datagram out, so that the shard does not wait.
    pub fn record(&self, target: SocketAddr, cause: &'static str) {
        let Ok(mut known) = self.0.try_lock() else { return };
        match known.iter_mut().find(|(to, why, _)| *to == target && *why == cause) {
            Some((.., count)) => *count += 1,
            None => {
                let _ = known.try_push((target, cause, 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_counted_by_cause_and_bounded() {
        let unsent = Unsent::default();
        let to = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        unsent.record(to(1), "too large");
        unsent.record(to(1), "too large");
        unsent.record(to(1), "other");
        assert_eq!(unsent.take()[..], [(to(1), "too large", 2), (to(1), "other", 1)]);
        (0..100).for_each(|port| unsent.record(to(port), "other"));
        assert_eq!((unsent.take().len(), unsent.take().len()), (UNSENT_MAX, 0));
        let reading = unsent.0.lock().unwrap();
        unsent.record(to(1), "other");
        drop(reading);
        assert!(unsent.take().is_empty(), "a shard waits for no reader");
    }
}
