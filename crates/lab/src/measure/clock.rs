//! The CPU clock of a thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of this thread, in ns. Other work on the processor does not count.
pub(crate) fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts from zero, so neither field is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}
