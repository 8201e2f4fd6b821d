//! A set of back ends that can stand in for each other.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::{Backend, Demand, Location};

/// A pool of back ends; a clone is another handle on the same counts.
#[derive(Clone, Debug)]
pub struct Pool {
    name: Arc<str>,
    backends: Arc<[Arc<Backend>]>,
}

impl Pool {
    /// A pool of back ends given by name, address and weight, in this order.
    pub fn new(name: &str, backends: &[(&str, SocketAddr, u32)]) -> Self {
        let located =
            backends.iter().map(|&(name, address, weight)| (name, address.into(), weight));
        Self::located(name, located)
    }

    /// A pool of back ends given by name, location and weight, in this order.
    pub fn located<'a>(
        name: &str,
        backends: impl IntoIterator<Item = (&'a str, Location, u32)>,
    ) -> Self {
        let backends = backends
            .into_iter()
            .map(|(name, location, weight)| Arc::new(Backend::new(name, location, weight)))
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

    /// Whether any of them has limits.
    pub fn is_limited(&self) -> bool {
        self.backends.iter().any(|backend| backend.is_limited())
    }

    /// When the first of them may be given new calls, or could be before, if nothing else happens;
    /// `None` if nobody knows.
    pub fn returns_at(&self) -> Option<Timestamp> {
        self.backends.iter().filter_map(|backend| backend.returns_at()).min()
    }

    /// Whether any of them may be given what is demanded.
    pub fn has_headroom(&self, now: Timestamp, demand: Demand) -> bool {
        self.backends.iter().any(|backend| backend.is_up(now) && backend.has_headroom(now, demand))
    }

    /// Calls that those that are up may hold beyond what they hold; `None` if not all of the pool
    /// are limited.
    pub fn free_calls(&self, now: Timestamp) -> Option<u64> {
        let free = |backend: &Arc<Backend>| {
            let free = backend.free_calls(Demand::Call)?;
            Some(if backend.is_up(now) { free } else { 0 })
        };
        self.backends.iter().map(free).sum()
    }
}
