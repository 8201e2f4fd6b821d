//! An agent that others watch while it works.

use tidegate_world::{Core, Crossing, Failure, Load, Received, Shedding, Timestamp, Transmit};

/// A core, and what is to be done after each input that may have changed it.
pub struct Watched<C, F> {
    core: C,
    look: F,
}

impl<C: Core, F: FnMut(&C)> Watched<C, F> {
    /// Calls `look` after each packet and each timer.
    pub fn new(core: C, look: F) -> Self {
        Self { core, look }
    }

    /// The core.
    pub fn into_inner(self) -> C {
        self.core
    }
}

impl<C: Core, F: FnMut(&C)> Core for Watched<C, F> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.core.offer(now, received);
        (self.look)(&self.core);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        self.core.serve(now)
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.core.handle_timeout(now);
        (self.look)(&self.core);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.core.on_failed(now, failure);
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.core.on_load(now, load);
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.core.on_drain(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.core.poll_transmit()
    }

    fn poll_crossing(&mut self) -> Option<Crossing> {
        self.core.poll_crossing()
    }

    fn poll_shedding(&self) -> &Shedding {
        self.core.poll_shedding()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.core.poll_timeout()
    }

    fn is_drained(&self) -> bool {
        self.core.is_drained()
    }
}
