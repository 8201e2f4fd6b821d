//! Wakes a shard that waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};

use rustix::event::{EventfdFlags, eventfd};

/// A handle with which any thread wakes a shard that sleeps.
///
/// The waker makes a system call only if the shard may be asleep. No message is missed: a thread
/// first queues its message and then reads whether the shard sleeps. The shard first records that
/// it sleeps and then looks for messages. All four steps are in one total order, so at least one of
/// the two sees the other.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Waker {
    /// Creates a waker for one shard.
    ///
    /// # Errors
    /// Returns the errors of `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Inner { event, asleep: AtomicBool::new(false) })))
    }

    /// Wakes the shard, if it may be asleep. The caller must have queued the message before.
    pub fn wake(&self) {
        fence(SeqCst);
        if self.0.asleep.swap(false, SeqCst) {
            // The write fails only if the count is at its limit, and then the shard is awake.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Records that the shard is about to sleep. The shard must look for messages after this call.
    pub(crate) fn fall_asleep(&self) {
        self.0.asleep.store(true, SeqCst);
        fence(SeqCst);
    }

    /// Records that the shard is awake. If `rung` is true, the descriptor of the waker was
    /// readable, and the wake is cleared.
    pub(crate) fn get_up(&self, rung: bool) {
        self.0.asleep.store(false, SeqCst);
        if rung {
            // There is nothing to read if the wake came for an earlier sleep.
            let _ = rustix::io::read(&self.0.event, &mut [0u8; 8]);
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_rung(waker: &Waker) -> bool {
        let mut fds = [PollFd::new(waker, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn only_a_sleeping_shard_is_woken_and_only_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!is_rung(&waker), "awake: nothing to do");
        waker.fall_asleep();
        waker.clone().wake();
        assert!(is_rung(&waker));
        waker.get_up(true);
        assert!(!is_rung(&waker));
        waker.wake();
        assert!(!is_rung(&waker));
    }
}
