//! A proxy that heeds the orders of operators.

use std::sync::Arc;

use tidegate_balance::Fleet;
use tidegate_proxy::{Counters, Proxy};
use tidegate_world::{Core, Timestamp, delegate};

use crate::assembly::{musters, pool_settings};
use crate::config::order::{Laws, Order, given};

/// A proxy, and who translates its orders: it knows no configuration.
pub struct Steered {
    proxy: Proxy,
    fleet: Fleet,
    counters: Arc<Counters>,
}

impl Steered {
    /// Steers `proxy`, whose back ends are of `fleet` and which counts in `counters`.
    pub fn new(proxy: Proxy, fleet: Fleet, counters: Arc<Counters>) -> Self {
        Self { proxy, fleet, counters }
    }

    /// The proxy.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn heed(&mut self, now: Timestamp, order: Order) {
        match order {
            Order::Laws(laws) => {
                let Laws { law, shadow } = *laws;
                self.proxy.switch(now, law, shadow);
            }
            Order::Duty(backend, duty) => {
                // It may have gone by a reload that was ordered at the same time.
                if let Some(backend) = self.fleet.find(&backend) {
                    backend.set_duty(now, duty);
                }
            }
            Order::Reload(config) => {
                let pools = self.fleet.enlist(now, &musters(&config));
                self.proxy.reform(now, pool_settings(&pools, &config), config.route);
            }
        }
    }
}

impl Core for Steered {
    /// An order as [`crate::config::order`] has it.
    fn on_order(&mut self, now: Timestamp, order: &[u8]) {
        match given(order) {
            Ok(order) => {
                self.heed(now, order);
                self.counters.in_force.orders.add(1);
            }
            // It was recorded by another version: whoever gives orders has them checked.
            Err(_) => self.counters.in_force.not_understood.add(1),
        }
    }

    delegate!(self.proxy, but on_order);
}
