//! A proxy that heeds the orders of operators.

use std::sync::Arc;

use tidegate_balance::Fleet;
use tidegate_proxy::{Counters, Proxy};
use tidegate_world::{Core, Timestamp, delegate};

use crate::config::order::{Laws, Order, given};
use crate::config::{Config, Found};
use crate::key;
use crate::pools::pool_settings;
use crate::prepared::{Prepared, Reading};

/// A proxy that is given orders in the words of a configuration.
pub struct Steered {
    proxy: Proxy,
    /// The configuration in force.
    config: Arc<Config>,
    /// The servers of its domains.
    found: Arc<Found>,
    fleet: Fleet,
    counters: Arc<Counters>,
    prepared: Prepared,
    /// Orders heard: the number of the last one.
    heard: u64,
}

impl Steered {
    /// Steers `proxy`, which has `config`, whose back ends are of `fleet` and which counts in
    /// `counters`. Reloads may be found in `prepared`.
    pub(crate) fn new(
        proxy: Proxy,
        config: Arc<Config>,
        fleet: Fleet,
        counters: Arc<Counters>,
        prepared: Prepared,
    ) -> Self {
        let found = Arc::default();
        Self { proxy, config, found, fleet, counters, prepared, heard: 0 }
    }

    /// The proxy.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Does what an order says; `false` if it cannot.
    fn heed(&mut self, now: Timestamp, order: Order) -> bool {
        match order {
            Order::Laws(laws) => {
                let Laws { law, shadow } = *laws;
                self.proxy.switch(now, law, shadow);
                true
            }
            Order::Duty(backend, duty) => {
                self.fleet.assign(now, self.heard, &backend, duty);
                true
            }
            Order::Reload(config) => {
                let (config, found) = (Arc::new(*config), Arc::clone(&self.found));
                self.reload(now, &Reading::new(b"", config, found))
            }
            Order::Found(found) => {
                let (config, found) = (Arc::clone(&self.config), Arc::new(found));
                self.reload(now, &Reading::new(b"", config, found))
            }
            Order::Call(call_id) => {
                self.proxy.look_up(now, call_id.as_bytes());
                true
            }
        }
    }
}

impl Steered {
    fn reload(&mut self, now: Timestamp, reading: &Reading) -> bool {
        let Reading { config, found, expanded, musters, .. } = reading;
        let pools = self.fleet.enlist(now, self.heard, musters);
        let routes = expanded.route.clone();
        let is_done = self.proxy.reload(now, pool_settings(&pools, expanded), routes);
        if is_done {
            (self.config, self.found) = (Arc::clone(config), Arc::clone(found));
        }
        is_done
    }
}

impl Core for Steered {
    /// An order as [`crate::config::order`] has it, or of [keys](key::order).
    fn on_order(&mut self, now: Timestamp, order: &[u8]) {
        self.heard += 1;
        let in_force = &self.counters.in_force;
        if key::order::is_about_keys(order) {
            match key::order::given(order) {
                Some(keys) => self.proxy.rekey(&keys),
                None => in_force.not_heeded.add(1),
            }
            return;
        }
        // One that is not understood was recorded by another version: whoever gives orders has them
        // checked.
        let number = in_force.orders.get() + in_force.not_heeded.get() + 1;
        let is_heeded = match self.prepared.get(number, order) {
            Some(reading) => self.reload(now, &reading),
            None => given(order).is_ok_and(|order| self.heed(now, order)),
        };
        let in_force = &self.counters.in_force;
        if is_heeded { &in_force.orders } else { &in_force.not_heeded }.add(1);
    }

    delegate!(self.proxy, but on_order);
}
