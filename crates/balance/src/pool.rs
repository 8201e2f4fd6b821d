//! A set of back ends, each of which can serve a new call.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::{AdminState, Backend, Demand, Endpoint, Service, Sources};

/// A pool of back ends. A clone is another handle to the same counts.
#[derive(Clone, Debug)]
pub struct Pool {
    name: Arc<str>,
    backends: Arc<[Arc<Backend>]>,
    services: Arc<[Arc<Service>]>,
}

impl Pool {
    /// Creates a pool from the name, address and weight of each back end.
    pub fn new(name: &str, backends: &[(&str, SocketAddr, u32)]) -> Self {
        let located =
            backends.iter().map(|&(name, address, weight)| (name, address.into(), weight));
        Self::located(name, located)
    }

    /// Creates a pool from the name, endpoint and weight of each back end.
    pub fn located<'a>(
        name: &str,
        backends: impl IntoIterator<Item = (&'a str, Endpoint, u32)>,
    ) -> Self {
        let backends = backends
            .into_iter()
            .map(|(name, endpoint, weight)| Arc::new(Backend::new(name, endpoint, weight)))
            .collect();
        Self::of(name, backends)
    }

    /// Creates a pool of these back ends, in this order.
    pub fn of(name: &str, backends: Vec<Arc<Backend>>) -> Self {
        Self { name: name.into(), backends: backends.into(), services: Arc::default() }
    }

    /// Sets the services of the pool. At reloads, the servers of the services become back ends.
    #[must_use]
    pub fn with_services(self, services: Arc<[Arc<Service>]>) -> Self {
        Self { services, ..self }
    }

    /// Returns the services whose servers are back ends of the pool.
    pub fn services(&self) -> &Arc<[Arc<Service>]> {
        &self.services
    }

    /// Returns the name of the pool, for routes and metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the back ends of the pool, in the order of the configuration.
    pub fn backends(&self) -> &[Arc<Backend>] {
        &self.backends
    }

    /// Returns whether the pool is no longer configured. Then it has only former back ends, whose
    /// calls have not ended. A configured pool has at least one domain or configured back end.
    pub fn is_removed(&self) -> bool {
        let is_former = |backend: &Arc<Backend>| backend.admin_state() == AdminState::Removed;
        self.services.is_empty() && self.backends.iter().all(is_former)
    }

    /// Returns whether any back end of the pool may get new calls.
    pub fn is_up(&self, now: Timestamp) -> bool {
        self.backends.iter().any(|backend| backend.is_up(now))
    }

    /// Records that a back end rejected a request. From now on, all back ends of the pool are
    /// watched for some time ([`Backend::is_watched`]). Returns the sources of the recent requests
    /// to all back ends, because the rejecting back end may have had requests from few sources.
    pub fn watch(&self, now: Timestamp) -> Sources {
        self.backends.iter().fold(Sources::default(), |all, backend| all.and(backend.watch(now)))
    }

    /// Returns whether any back end of the pool is up, or would be up if it were
    /// [spared](Self::spare).
    pub fn can_be_up(&self, now: Timestamp) -> bool {
        self.backends.iter().any(|backend| {
            backend.is_in_service()
                && (backend.is_clear(now) || backend.is_excluded_by_requests(now))
        })
    }

    /// Selects the back ends to spare ([`Backend::set_spared`]), so that failed requests alone
    /// (503s, missing responses, ICMP errors, refused connections) exclude at most the share
    /// `share_max` of the back ends in service. If more are excluded, selects those whose exclusion
    /// is longest ago. At least one back end stays usable, unless probes have failed at all of
    /// them. If `may_spare` is false, selects none, because a backup pool gets the calls. Returns
    /// the indexes of the back ends.
    pub fn spare(&self, now: Timestamp, share_max: f64, may_spare: bool) -> Vec<usize> {
        let in_service =
            || self.backends.iter().enumerate().filter(|(_, backend)| backend.is_in_service());
        let (mut count, mut usable) = (0_usize, 0_usize);
        for (_, backend) in in_service() {
            count += 1;
            usable += usize::from(backend.is_clear(now));
        }
        // A share such as .29 is not exact in binary, so without an addend 29 % of 100 could become
        // 28.
        let excluded_max = (count as f64 * share_max + 1e-6) as usize;
        let usable_min = count.saturating_sub(excluded_max).max(1);
        let missing = if may_spare { usable_min.saturating_sub(usable) } else { 0 };
        if missing == 0 {
            return Vec::new();
        }
        let excluded = in_service().filter_map(|(index, backend)| {
            Some((backend.health().excluded_by_requests_at(now)?, index))
        });
        let mut excluded: Vec<_> = excluded.collect();
        excluded.sort_unstable();
        excluded.into_iter().take(missing).map(|(_, index)| index).collect()
    }

    /// Returns whether any back end of the pool has limits.
    pub fn is_limited(&self) -> bool {
        self.backends.iter().any(|backend| backend.is_limited())
    }

    /// Returns the earliest time at which a back end may get new calls if nothing else happens, or
    /// `None` if this time is unknown for all back ends ([`Backend::returns_at`]).
    pub fn returns_at(&self) -> Option<Timestamp> {
        self.backends.iter().filter_map(|backend| backend.returns_at()).min()
    }

    /// Returns whether any back end is up and may take a request with this demand.
    pub fn has_headroom(&self, now: Timestamp, demand: Demand) -> bool {
        self.backends.iter().any(|backend| backend.is_up(now) && backend.has_headroom(now, demand))
    }

    /// Returns the number of further calls that the pool can take, or `None` if any back end has no
    /// limit on calls. Back ends that are not up take none.
    pub fn free_calls(&self, now: Timestamp) -> Option<u64> {
        let free = |backend: &Arc<Backend>| {
            let free = backend.free_calls(Demand::Call)?;
            Some(if backend.is_up(now) { free } else { 0 })
        };
        self.backends.iter().map(free).sum()
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
