//! Readings of the load, for the core that is driven.

use std::time::Duration;

use tidegate_world::{Counter, Load, Timestamp};

use crate::Counters;
use crate::machine::Machine;

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
    /// Readings of a thread that has had `cpu` time before. The first is due at once: the
    /// others are compared with it.
    pub(crate) fn start(cpu: Duration) -> Self {
        Self { due: Timestamp::ZERO, cpu_start: cpu }
    }

    /// The load of `machine` at `now`, if a reading is due: `busy` as accounted until then,
    /// what was dropped as it has counted it.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        busy: Duration,
        machine: &mut impl Machine,
        counters: &Counters,
    ) -> Option<Load> {
        if now < self.due {
            return None;
        }
        self.due = now + SAMPLE;
        let cpu = machine.cpu().saturating_sub(self.cpu_start);
        let socket_fill = machine.survey();
        let [filtered, overflow] = [&counters.filtered, &counters.overflow].map(Counter::get);
        Some(Load { busy, cpu, socket_fill, filtered, overflow })
    }
}
