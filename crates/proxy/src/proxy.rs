//! One shard of the proxy, as its driver sees it.

use std::sync::Arc;

use tidegate_world::{Core, Crossing, Failure, Pool, Received, Timestamp, Transmit};

use crate::counters::Counters;
use crate::endpoint::Endpoint;
use crate::ingress::{Ingress, Lane, Offered};
use crate::settings::Settings;

/// The proxy: an ingress that decides what waits where, and an endpoint that does
/// the work of RFC 3261 §16.
pub struct Proxy {
    ingress: Ingress,
    endpoint: Endpoint,
    counters: Arc<Counters>,
}

impl Proxy {
    /// A proxy with these settings, which counts in `counters` and takes its buffers
    /// from `pool`.
    ///
    /// # Panics
    /// If there is no listener or no pool, or more of something than a branch can
    /// name: configuration is checked before it comes here.
    pub fn new(settings: Settings, counters: Arc<Counters>, pool: Pool) -> Self {
        Self {
            ingress: Ingress::new(settings.queue_max),
            endpoint: Endpoint::new(settings, pool, Arc::clone(&counters)),
            counters,
        }
    }

    fn publish(&self) {
        let calls = self.endpoint.calls();
        self.counters.calls.set(calls.len() as u64);
        self.counters.transactions_open.set(calls.open() as u64);
        self.counters.calls_evicted.set(calls.evicted());
        self.counters.queued.set(self.ingress.waiting() as u64);
    }
}

impl Core for Proxy {
    fn offer(&mut self, _now: Timestamp, received: Received) {
        match self.ingress.offer(received, &self.endpoint) {
            Offered::Queued(class) => self.counters.received(class).add(1),
            Offered::Dropped(why) => self.counters.dropped(why).add(1),
            Offered::Refused(class, received) => {
                self.counters.received(class).add(1);
                self.endpoint.refuse(&received, 503);
            }
            Offered::Malformed(received, malformed) => {
                self.endpoint.refuse_malformed(&received, malformed);
            }
        }
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let Some((lane, received)) = self.ingress.next() else { return false };
        match lane {
            Lane::Responses => self.endpoint.serve_response(now, received),
            _ => self.endpoint.serve_request(now, received),
        }
        self.publish();
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.endpoint.handle_timeout(now);
        self.publish();
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.endpoint.on_failed(now, failure);
    }

    fn on_drain(&mut self, _now: Timestamp) {
        self.ingress.close();
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.endpoint.poll_transmit()
    }

    fn poll_crossing(&mut self) -> Option<Crossing> {
        self.endpoint.poll_crossing()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.endpoint.calls().poll_timeout()
    }

    fn is_drained(&self) -> bool {
        let calls = self.endpoint.calls();
        self.ingress.waiting() == 0 && calls.open() == 0 && calls.unacknowledged() == 0
    }
}
