//! A proxy that heeds the orders of operators.

use std::sync::Arc;

use tidegate_proxy::{Counters, Proxy};
use tidegate_world::{Core, Timestamp, delegate};

use crate::config::order::{Laws, given};
use crate::key;

/// A proxy, and who translates its orders: it knows no configuration.
pub struct Steered {
    proxy: Proxy,
    counters: Arc<Counters>,
}

impl Steered {
    /// Steers `proxy`, which counts in `counters`.
    pub fn new(proxy: Proxy, counters: Arc<Counters>) -> Self {
        Self { proxy, counters }
    }

    /// The proxy.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }
}

impl Core for Steered {
    /// The text of a table `[overload]`, as [`order::text`](crate::config::order::text) writes it,
    /// or of [keys](key::order).
    fn on_order(&mut self, now: Timestamp, order: &[u8]) {
        if key::order::is_about_keys(order) {
            match key::order::given(order) {
                Some(keys) => self.proxy.rekey(&keys),
                None => self.counters.in_force.not_understood.add(1),
            }
            return;
        }
        match given(order) {
            Ok(Laws { law, shadow }) => {
                self.proxy.switch(now, law, shadow);
                self.counters.in_force.orders.add(1);
            }
            // It was recorded by another version: whoever gives orders has them checked.
            Err(_) => self.counters.in_force.not_understood.add(1),
        }
    }

    delegate!(self.proxy, but on_order);
}
