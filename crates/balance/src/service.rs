//! The SIP service of a domain. The SRV records of the service list its servers (RFC 2782).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_world::{SrvRecord, Transport};

use crate::Lookups;

/// A domain and a transport, with the servers found for them, shared by all shards.
///
/// The shard that queries the DNS records the servers here. The next reload turns them into back
/// ends.
#[derive(Debug)]
pub struct Service {
    domain: Arc<str>,
    transport: Transport,
    servers: Mutex<Option<Arc<[SrvRecord]>>>,
    is_stale: AtomicBool,
    /// True once servers that the DNS listed have become back ends.
    is_in_force: AtomicBool,
    /// Counts of the DNS queries for the service, by outcome. `moved` counts changes of the
    /// servers.
    pub lookups: Lookups,
}

impl Service {
    /// Creates a service whose servers are unknown.
    pub fn new(domain: &str, transport: Transport) -> Self {
        Self {
            domain: domain.into(),
            transport,
            servers: Mutex::default(),
            is_stale: AtomicBool::new(false),
            is_in_force: AtomicBool::new(false),
            lookups: Lookups::default(),
        }
    }

    /// Returns the domain name.
    pub fn domain(&self) -> &Arc<str> {
        &self.domain
    }

    /// Returns the transport by which the servers of the service are reached.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the servers of the service in ascending order of priority, or `None` while they are
    /// unknown.
    pub fn servers(&self) -> Option<Arc<[SrvRecord]>> {
        self.lock().clone()
    }

    /// Records the servers. Returns whether they differ from the previous ones.
    pub fn set_servers(&self, servers: Arc<[SrvRecord]>) -> bool {
        let mut known = self.lock();
        let differ = known.as_ref() != Some(&servers);
        *known = Some(servers);
        if differ {
            self.lookups.moved.fetch_add(1, Relaxed);
        }
        differ
    }

    /// Returns whether the servers may be out of date, because a new query failed.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Relaxed)
    }

    /// Records whether the servers may be out of date.
    pub fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Relaxed);
    }

    /// Returns whether servers that the DNS listed have become back ends. Later changes of the
    /// servers do not change this.
    pub fn is_in_force(&self) -> bool {
        self.is_in_force.load(Relaxed)
    }

    /// Records that the back ends have been rebuilt, with the servers of this service if they are
    /// known.
    pub(crate) fn on_enlisted(&self) {
        if self.lock().is_some() {
            self.is_in_force.store(true, Relaxed);
        }
    }

    /// Returns whether this is the service of that domain and transport.
    pub(crate) fn is_of(&self, domain: &str, transport: Transport) -> bool {
        *self.domain == *domain && self.transport == transport
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<[SrvRecord]>>> {
        // No code panics while it holds the lock.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.domain.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_differ_are_a_change() {
        let service = Service::new("example.com", Transport::Udp);
        assert!(service.servers().is_none());
        let server = |port| SrvRecord { priority: 1, weight: 2, port, target: "a.example.".into() };
        let one: Arc<[_]> = [server(5060)].into();
        assert!(service.set_servers(Arc::clone(&one)) && !service.set_servers(Arc::clone(&one)));
        assert_eq!(service.servers(), Some(one));
        assert!(service.set_servers([server(5070)].into()));
        assert!(service.set_servers([].into()) && !service.set_servers([].into()), "none is known");
        assert_eq!(service.lookups.moved.load(Relaxed), 3);
        assert!(service.is_of("example.com", Transport::Udp));
        assert!(!service.is_of("example.com", Transport::Tcp));
    }
}
