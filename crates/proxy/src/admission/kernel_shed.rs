//! What the kernel is to drop, where refusing itself would take too much.

use std::time::Duration;

use tidegate_control::{Gate, Ladder, LadderSettings, Tally};
use tidegate_world::{Load, Timestamp};

use crate::message::class::Class;
use crate::observe::counters::Counters;
use crate::rejection::DropReason;

/// The ladder of disposals over a proxy's new INVITEs.
pub(crate) struct KernelShed {
    ladder: Ladder,
    tally: Tally,
}

impl KernelShed {
    /// Refusing may take `refusing_max` of the processor, 0 to 1 without either.
    pub(crate) fn new(refusing_max: f64) -> Self {
        let settings = LadderSettings { budget: refusing_max, ..LadderSettings::default() };
        Self { ladder: Ladder::new(settings), tally: Tally::default() }
    }

    /// A message of this class was refused.
    pub(crate) fn on_refused(&mut self, class: Option<Class>) {
        self.tally.refused += u64::from(class == Some(Class::Invite));
    }

    /// A message was served, which took so long.
    pub(crate) fn on_completion(&mut self, cost: Duration) {
        self.tally.served += cost;
    }

    /// The processor and the sockets were read.
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
            // An ACK that ends here is that of a refusal.
            brought: counters.dropped(DropReason::OwnAck).get(),
            filtered: load.filtered,
            overflow: load.overflow,
            occupied: signals.processor.occupied,
            ..self.tally
        };
        self.ladder.on_reading(now, self.tally);
    }

    /// Decides if it is time, though nothing was read since.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if self.ladder.poll_timeout().is_some_and(|due| due <= now) {
            self.ladder.on_reading(now, self.tally);
        }
    }

    pub(crate) fn ladder(&self) -> &Ladder {
        &self.ladder
    }
}
