//! The monotonic clock of a process, and the conversion of the kernel's timestamps of datagrams to
//! its time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_world::Timestamp;

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let read = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(read).expect("a CPU clock is never negative")
}

/// A monotonic clock. All shards of a process share its origin, so that a timestamp means the same
/// time in every shard.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Creates a clock whose [`Timestamp::ZERO`] is now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Returns the time passed since the origin.
    #[inline]
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Reads the monotonic clock and the wall clock once, to convert the kernel's timestamps of a
    /// whole batch of datagrams.
    #[inline]
    pub fn stamps(&self) -> Stamps {
        Stamps::at(self.now())
    }
}

/// A conversion of the kernel's timestamps of datagrams (CLOCK_REALTIME, from `SO_TIMESTAMPNS`) to
/// times of a [`Clock`]. If an operator sets the wall clock while datagrams wait, the converted
/// times of these datagrams are wrong, but never later than [`now`](Self::now) or before the origin
/// of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    now: Timestamp,
    wall: Duration,
}

impl Stamps {
    /// Reads the wall clock. `now` is the present time of the monotonic clock.
    #[inline]
    pub(crate) fn at(now: Timestamp) -> Self {
        // If the wall clock shows a time before 1970, every stamp counts as now, because a sojourn
        // of zero is better than an invented one.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { now, wall }
    }

    /// Returns the time at which both clocks were read.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the time at which a datagram arrived. `stamp` is the kernel's timestamp of the
    /// datagram, as the time since 1970. The result is at most [`now`](Self::now), and not before
    /// the origin of the clock. Without a timestamp, the result is [`now`](Self::now).
    #[inline]
    pub fn arrived(&self, stamp: Option<Duration>) -> Timestamp {
        match stamp {
            Some(stamp) => self.now - self.wall.saturating_sub(stamp),
            None => self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ms: u64, wall_ms: u64) -> Stamps {
        Stamps {
            now: Timestamp::ZERO + Duration::from_millis(now_ms),
            wall: Duration::from_millis(wall_ms),
        }
    }

    #[test]
    fn a_stamp_is_as_far_in_the_past_as_its_age() {
        let arrived = at(100, 1_000_000).arrived(Some(Duration::from_millis(999_970)));
        assert_eq!(arrived, Timestamp::ZERO + Duration::from_millis(70));
    }

    #[test]
    fn a_stamp_from_the_future_becomes_the_current_time() {
        let stamps = at(100, 1_000_000);
        assert_eq!(stamps.arrived(Some(Duration::from_millis(1_000_001))), stamps.now());
        assert_eq!(stamps.arrived(None), stamps.now());
    }

    #[test]
    fn a_stamp_older_than_the_clock_becomes_the_origin_of_the_clock() {
        assert_eq!(at(100, 1_000_000).arrived(Some(Duration::ZERO)), Timestamp::ZERO);
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let clock = Clock::start();
        let first = clock.now();
        let stamps = clock.stamps();
        assert!(first <= stamps.now() && stamps.now() <= clock.now());
    }
}
