//! A set of back ends that can stand in for each other.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::Backend;

/// A pool of back ends; a clone is another handle on the same counts.
#[derive(Clone, Debug)]
pub struct Pool {
    name: Arc<str>,
    backends: Arc<[Arc<Backend>]>,
}

impl Pool {
    /// A pool of back ends given by name, address and weight, in this order.
    pub fn new(name: &str, backends: &[(&str, SocketAddr, u32)]) -> Self {
        let backends = backends
            .iter()
            .map(|&(name, address, weight)| Arc::new(Backend::new(name, address, weight)))
            .collect();
        Self { name: name.into(), backends }
    }

    /// A pool of these back ends, in this order.
    pub fn of(name: &str, backends: Vec<Arc<Backend>>) -> Self {
        Self { name: name.into(), backends: backends.into() }
    }

    /// Its name, for routes and metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its back ends, in the order of the configuration.
    pub fn backends(&self) -> &[Arc<Backend>] {
        &self.backends
    }

    /// Whether there is one of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.backends.iter().any(|backend| backend.name() == name)
    }

    /// Whether any of them may be given new calls.
    pub fn is_up(&self, now: Timestamp) -> bool {
        self.backends.iter().any(|backend| backend.is_up(now))
    }
}
