//! An agent whose state other threads read while it works.

use tidegate_world::{Core, Failure, Received, Timestamp, delegate};

/// A core, and a function to call after each input that may have changed it.
pub struct Watched<C, F> {
    core: C,
    look: F,
}

impl<C: Core, F: FnMut(&C)> Watched<C, F> {
    /// Calls `look` after each packet, each failed delivery and each timer.
    pub fn new(core: C, look: F) -> Self {
        Self { core, look }
    }

    /// Returns the core.
    pub fn into_inner(self) -> C {
        self.core
    }
}

impl<C: Core, F: FnMut(&C)> Core for Watched<C, F> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.core.offer(now, received);
        (self.look)(&self.core);
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.core.handle_timeout(now);
        (self.look)(&self.core);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.core.on_failed(now, failure);
        (self.look)(&self.core);
    }

    delegate!(self.core, but offer, handle_timeout, on_failed);
}
