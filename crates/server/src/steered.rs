//! A proxy that heeds the orders of operators.

use std::sync::Arc;

use tidegate_balance::Fleet;
use tidegate_proxy::{Counters, Proxy};
use tidegate_world::{Core, Timestamp, delegate};

use crate::config::order::{Laws, Order, given};
use crate::key;
use crate::pools::pool_settings;
use crate::prepared::{Prepared, Reading};

/// A proxy, and who translates its orders: it knows no configuration.
pub struct Steered {
    proxy: Proxy,
    fleet: Fleet,
    counters: Arc<Counters>,
    prepared: Prepared,
    /// Orders heard: the number of the last one.
    heard: u64,
}

impl Steered {
    /// Steers `proxy`, whose back ends are of `fleet` and which counts in `counters`. Reloads may be
    /// found in `prepared`.
    pub(crate) fn new(
        proxy: Proxy,
        fleet: Fleet,
        counters: Arc<Counters>,
        prepared: Prepared,
    ) -> Self {
        Self { proxy, fleet, counters, prepared, heard: 0 }
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
            Order::Reload(config) => self.reload(now, &Reading::new(b"", *config)),
            Order::Call(call_id) => {
                self.proxy.look_up(now, call_id.as_bytes());
                true
            }
        }
    }
}

impl Steered {
    fn reload(&mut self, now: Timestamp, Reading { config, musters, .. }: &Reading) -> bool {
        let pools = self.fleet.enlist(now, self.heard, musters);
        self.proxy.reload(now, pool_settings(&pools, config), config.route.clone())
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
        let is_heeded = match self.prepared.get(order) {
            Some(reading) => self.reload(now, &reading),
            None => given(order).is_ok_and(|order| self.heed(now, order)),
        };
        let in_force = &self.counters.in_force;
        if is_heeded { &in_force.orders } else { &in_force.not_heeded }.add(1);
    }

    delegate!(self.proxy, but on_order);
}
