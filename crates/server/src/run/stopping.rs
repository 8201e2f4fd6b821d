//! Stops all shards after a signal, or after a shard has failed.

use tidegate_io::Stop;

/// A sender of stop requests to all shards. A second request makes the shards stop without
/// draining, so it is only sent after a second signal.
pub(super) struct Stopping {
    stop: Stop,
    is_signalled: bool,
}

impl Stopping {
    pub(super) fn new(stop: Stop) -> Self {
        Self { stop, is_signalled: false }
    }

    /// Requests a stop because of a signal.
    pub(super) fn on_signal(&mut self) {
        if self.is_signalled || self.stop.requests() == 0 {
            self.stop.request();
        }
        self.is_signalled = true;
    }

    /// Requests a stop because a shard has failed, unless a stop was requested before.
    pub(super) fn on_failure(&self) {
        if self.stop.requests() == 0 {
            self.stop.request();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: each failed shard made a request, and the second request cut off the calls of
    /// the third shard.
    #[test]
    fn two_failed_shards_are_one_request() {
        let stop = Stop::new();
        let mut stopping = Stopping::new(stop.clone());
        stopping.on_failure();
        stopping.on_failure();
        assert_eq!(stop.requests(), 1);
        stopping.on_signal();
        assert_eq!(stop.requests(), 1, "the first signal");
        stopping.on_signal();
        assert_eq!(stop.requests(), 2);
    }

    #[test]
    fn a_shard_that_fails_after_a_signal_requests_nothing() {
        let stop = Stop::new();
        let mut stopping = Stopping::new(stop.clone());
        stopping.on_signal();
        stopping.on_failure();
        assert_eq!(stop.requests(), 1);
        stopping.on_signal();
        assert_eq!(stop.requests(), 2);
    }
}
