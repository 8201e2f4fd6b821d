//! Readings of a shard's load for its core.

use std::time::Duration;

use tidegate_world::{Load, Timestamp};

use crate::Counters;
use crate::machine::{Buffers, Machine};

/// The minimum time between two readings of the load. It must be shorter than the time between two
/// decisions of the fastest overload law (10 ms). Each reading costs a system call for the CPU
/// clock and one for each socket.
pub const SAMPLE: Duration = Duration::from_millis(2);

/// The schedule of the readings of the load. It also keeps the CPU time that the thread had used
/// before the first reading, because the load does not include this time.
#[derive(Debug)]
pub(crate) struct Readings {
    due: Timestamp,
    cpu_start: Duration,
}

impl Readings {
    /// Starts the readings. `cpu` is the CPU time that the thread has used until now. The first
    /// reading is due at once, because later readings are compared with it.
    pub(crate) fn start(cpu: Duration) -> Self {
        Self { due: Timestamp::ZERO, cpu_start: cpu }
    }

    /// Returns whether the next reading is due.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// Returns the load of `machine` at `now`. `busy` is the time from the start to `now` that was
    /// not spent waiting. The number of filtered datagrams and the time of handshakes come from
    /// `counters`. `ends_service` is true if the core has just served a message.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        busy: Duration,
        ends_service: bool,
        machine: &mut impl Machine,
        counters: &Counters,
    ) -> Load {
        self.due = now + SAMPLE;
        let cpu = machine.cpu().saturating_sub(self.cpu_start);
        let Buffers { fill: socket_fill, overflow, is_shed_refused } = machine.read_drop_counters();
        let filtered = counters.filtered.get();
        let handshakes = Duration::from_nanos(counters.handshake_cpu_ns.get());
        Load {
            busy,
            cpu,
            handshakes,
            socket_fill,
            filtered,
            overflow,
            is_shed_refused,
            ends_service,
        }
    }
}
