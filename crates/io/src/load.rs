//! Readings of the load, for the core that is driven.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_world::{Load, Timestamp};

/// The shortest time between two readings. They are to be more frequent than the fastest
/// law decides (10 ms), and cost a call for the CPU clock and one for each socket.
pub const SAMPLE: Duration = Duration::from_millis(2);

/// When the next reading is due, and since when CPU time counts.
#[derive(Debug)]
pub(crate) struct Readings {
    due: Timestamp,
    cpu_start: Duration,
}

impl Readings {
    /// Readings for the calling thread. The first is due at once: the others are compared
    /// with it.
    pub(crate) fn start() -> Self {
        Self { due: Timestamp::ZERO, cpu_start: thread_cpu() }
    }

    /// The load at `now`, if a reading is due: `busy` as accounted until then, and what
    /// `survey` finds to be the fill of the fullest socket.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        busy: Duration,
        survey: impl FnOnce() -> f32,
    ) -> Option<Load> {
        if now < self.due {
            return None;
        }
        self.due = now + SAMPLE;
        let cpu = thread_cpu().saturating_sub(self.cpu_start);
        Some(Load { busy, cpu, socket_fill: survey() })
    }
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let read = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(read).expect("a CPU clock is never negative")
}
