//! Wraps an agent, so that other threads can read its state while it works.

use tidegate_world::{Core, Failure, Received, Timestamp, delegate};

/// A core with a callback. The callback gets the core at the start, and after each packet, failed
/// delivery and timer.
pub struct Watched<C, F> {
    core: C,
    look: F,
}

impl<C: Core, F: FnMut(&C)> Watched<C, F> {
    /// Wraps `core`, and calls `look` at once. The wrapped core calls `look` again after each
    /// packet, each failed delivery and each timer. The first call of `look` matters for an agent
    /// that gets no packet and sets no timer.
    pub fn new(core: C, mut look: F) -> Self {
        look(&core);
        Self { core, look }
    }

    /// Returns the wrapped core.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_agent::{Caller, CallerConfig, Load};
    use tidegate_world::{Pool, Seed};

    use super::*;

    /// Only the first call of `look` shows that such a caller is done. Without this call, a run
    /// would never end.
    #[test]
    fn a_caller_without_calls_is_seen_to_be_done() {
        let address = ([127, 0, 0, 1], 5060).into();
        for (calls, duration) in [(0, Duration::MAX), (u32::MAX, Duration::ZERO)] {
            let load = Load { calls, duration, ..Load::default() };
            let config = CallerConfig { load, ..CallerConfig::new(address, address) };
            let caller =
                Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).expect("it is valid");
            let mut is_done = false;
            let watched = Watched::new(caller, |caller: &Caller| is_done = caller.is_done());
            assert_eq!(watched.into_inner().poll_timeout(), None, "no timer will fire");
            assert!(is_done);
        }
    }
}
