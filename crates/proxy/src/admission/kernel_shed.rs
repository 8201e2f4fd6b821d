//! Drops by the kernel, where rejecting itself would take too much of the processor.

use std::time::Duration;

use tidegate_control::{Gate, Ladder, LadderSettings, Tally};
use tidegate_world::{Load, Timestamp};

use crate::message::class::Class;
use crate::observe::counters::Counters;
use crate::rejection::DropReason;

/// Ladder of disposals of the new INVITEs of a proxy.
pub(crate) struct KernelShed {
    ladder: Ladder,
    tally: Tally,
}

impl KernelShed {
    /// Creates one that lets rejecting take `refusing_max` of the processor, 0 to 1 exclusive.
    pub(crate) fn new(refusing_max: f64) -> Self {
        let settings = LadderSettings { budget: refusing_max, ..LadderSettings::default() };
        Self { ladder: Ladder::new(settings), tally: Tally::default() }
    }

    /// Records that a message of this class was rejected.
    pub(crate) fn on_refused(&mut self, class: Option<Class>) {
        self.tally.refused += u64::from(class == Some(Class::Invite));
    }

    /// Records the service time of a message.
    pub(crate) fn on_completion(&mut self, cost: Duration) {
        self.tally.served += cost;
    }

    /// Takes in a reading of the processor and the sockets.
    pub(crate) fn on_load(
        &mut self,
        now: Timestamp,
        load: &Load,
        gate: &Gate,
        counters: &Counters,
    ) {
        let signals = gate.signals();
        self.tally = Tally {
            messages: signals.messages,
            asked: counters.received(Class::Invite).get(),
            // An ACK that ends here is that of a rejection.
            brought: counters.dropped(DropReason::OwnAck).get(),
            filtered: load.filtered,
            overflow: load.overflow,
            occupied: signals.processor.occupied,
            ..self.tally
        };
        self.ladder.on_reading(now, self.tally);
    }

    /// Decides if it is time, without a new reading.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if self.ladder.poll_timeout().is_some_and(|due| due <= now) {
            self.ladder.on_reading(now, self.tally);
        }
    }

    pub(crate) fn ladder(&self) -> &Ladder {
        &self.ladder
    }
}
