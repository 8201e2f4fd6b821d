//! Time for cores: nanoseconds since the driver's start.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the driver's start.
///
/// The driver in `io` reads the time from the monotonic clock, and the driver in `sim` from its
/// calendar of events. A core cannot distinguish the two. Arithmetic saturates at 2^64 ns, which
/// are 584 years, so no real run reaches this limit.
///
/// The stored number is the number of nanoseconds plus one, so that it is never zero and an
/// `Option<Timestamp>` needs no more space than a `Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The driver's start.
    pub const ZERO: Self = Self(NonZeroU64::MIN);
    /// A time that is never reached. It is later than all others.
    pub const NEVER: Self = Self(NonZeroU64::MAX);

    /// Returns the time `ns` nanoseconds after the driver's start.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(ns))
    }

    /// Returns the number of nanoseconds since the driver's start.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the number of seconds since the driver's start.
    pub fn as_secs_f64(self) -> f64 {
        self.as_nanos() as f64 / 1e9
    }

    /// Returns the time that has passed since `earlier`, or 0 if `earlier` is in fact the later
    /// time. This can happen with the arrival time of a packet, because the kernel takes it from
    /// another clock.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// Returns the number of nanoseconds of `d`, at most `u64::MAX`.
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(nanos(d)))
    }
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_go_below_zero() {
        let a = Timestamp::from_nanos(5);
        let b = Timestamp::from_nanos(9);
        assert_eq!(b.since(a), Duration::from_nanos(4));
        assert_eq!(a.since(b), Duration::ZERO);
        assert_eq!(b - Duration::from_nanos(4), a);
        assert_eq!(a - Duration::from_secs(1), Timestamp::ZERO);
    }

    #[test]
    fn a_point_in_time_is_read_in_nanoseconds_and_in_seconds() {
        let at = Timestamp::from_nanos(2_500_000_000);
        assert_eq!(at.as_nanos(), 2_500_000_000);
        assert_eq!(at.as_secs_f64(), 2.5);
        assert_eq!(format!("{at:?}"), "2.500000s");
    }

    #[test]
    fn an_optional_point_takes_no_more_room() {
        assert_eq!(size_of::<Option<Timestamp>>(), size_of::<u64>());
        assert_eq!(Timestamp::default().as_nanos(), 0);
        assert_eq!(Timestamp::from_nanos(u64::MAX), Timestamp::NEVER);
        assert_eq!(Timestamp::from_nanos(Timestamp::NEVER.as_nanos()), Timestamp::NEVER);
    }

    #[test]
    fn the_time_never_stays_never_after_addition() {
        assert_eq!(Timestamp::NEVER + Duration::from_secs(1), Timestamp::NEVER);
        assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::NEVER);
    }
}
