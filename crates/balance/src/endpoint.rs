//! The endpoint of a back end: a fixed address, or a host name and its addresses over time.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;

/// Maximum number of addresses that are stored for a back end with a host name: the current
/// address, and earlier addresses at which calls may not have ended yet.
pub const GENERATIONS_MAX: usize = 5;

/// The endpoint of a back end.
#[derive(Debug)]
pub enum Endpoint {
    /// A configured address.
    Address(SocketAddr),
    /// A host name, with the addresses that the DNS returned for it.
    Name(Named),
}

/// The endpoint of a back end as configured, without resolved addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointAddress {
    /// A fixed address.
    Address(SocketAddr),
    /// A host name and a port.
    Name(Arc<str>, u16),
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<&EndpointAddress> for Endpoint {
    /// Creates the endpoint. A host name has no address until it is resolved.
    fn from(endpoint_address: &EndpointAddress) -> Self {
        match endpoint_address {
            EndpointAddress::Address(address) => Self::Address(*address),
            EndpointAddress::Name(host, port) => Self::Name(Named::new(host, *port)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(named) => write!(f, "{}:{}", named.host, named.port),
        }
    }
}

/// A host name and port, with the most recent addresses of the host name, at most
/// [`GENERATIONS_MAX`]. All shards share it.
#[derive(Debug)]
pub struct Named {
    host: Arc<str>,
    port: u16,
    /// True once the host name has been resolved to an address.
    is_known: AtomicBool,
    is_stale: AtomicBool,
    generations: Mutex<Generations>,
    /// Counts of the DNS queries for the host name, by outcome.
    pub lookups: Lookups,
}

/// Counts of the DNS queries for a host name or a [`Service`](crate::Service), by outcome.
#[derive(Debug, Default)]
pub struct Lookups {
    /// Queries that found a usable address.
    pub found: AtomicU64,
    /// Queries that found no address.
    pub not_found: AtomicU64,
    /// Queries that were not answered in time.
    pub unanswered: AtomicU64,
    /// Queries whose answer had no usable address: each address belonged to Tidegate itself, or
    /// could not be reached from any listener.
    pub unusable: AtomicU64,
    /// Queries that found a different address than before.
    pub moved: AtomicU64,
}

/// A number that identifies one of the addresses that a back end has had. For a back end that is
/// configured by address, the number is always the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressGeneration(u8);

/// The stored addresses of a host name with their generations. The current address is last.
type Generations = ArrayVec<(AddressGeneration, IpAddr), GENERATIONS_MAX>;

impl Named {
    /// Creates a host name without an address.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            is_known: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            generations: Mutex::default(),
            lookups: Lookups::default(),
        }
    }

    /// Returns the host name.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the host name has ever had an address.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// Returns whether the current address may be out of date, because a new DNS query failed.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Relaxed)
    }

    /// Records whether the current address may be out of date.
    pub fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Relaxed);
    }

    /// Returns the current address, or `None` if the name has had no address yet.
    pub fn address(&self) -> Option<SocketAddr> {
        self.generations().last().map(|&(_, ip)| SocketAddr::new(ip, self.port))
    }

    /// Returns the stored addresses, beginning with the current one.
    pub fn addresses(&self) -> ArrayVec<SocketAddr, GENERATIONS_MAX> {
        self.generations().iter().rev().map(|&(_, ip)| SocketAddr::new(ip, self.port)).collect()
    }

    /// Returns the address for requests to the server that sends from `source`. The port of
    /// `source` does not matter. The result is the stored address with the same IP address or, if
    /// there is none, the current address. Returns `source` if the name has had no address yet.
    pub fn address_behind(&self, source: SocketAddr) -> SocketAddr {
        let addresses = self.addresses();
        let is_at = |address: &&SocketAddr| address.ip().to_canonical() == source.ip();
        addresses.iter().find(is_at).or(addresses.first()).copied().unwrap_or(source)
    }

    /// Returns a copy with the same name and addresses. Later DNS responses do not change the copy.
    fn copy(&self) -> Self {
        let copy = Self::new(&self.host, self.port);
        copy.is_known.store(self.is_known(), Relaxed);
        copy.generations().clone_from(&self.generations());
        copy
    }

    fn generation(&self) -> AddressGeneration {
        self.generations().last().map(|&(generation, _)| generation).unwrap_or_default()
    }

    /// Returns the address that `generation` identifies. If that address is no longer stored,
    /// returns the current address.
    fn at(&self, generation: AddressGeneration) -> Option<SocketAddr> {
        let generations = self.generations();
        let found =
            generations.iter().find(|(known, _)| *known == generation).or(generations.last());
        found.map(|&(_, ip)| SocketAddr::new(ip, self.port))
    }

    /// Makes `ip` the current address. Returns whether the current address changed. If `ip` is new
    /// and the maximum number of addresses is stored, removes the address that stopped being
    /// current longest ago.
    pub(crate) fn move_to(&self, ip: IpAddr) -> bool {
        let mut generations = self.generations();
        if generations.last().is_some_and(|&(_, present)| present == ip) {
            return false;
        }
        let known = generations.iter().position(|&(_, known)| known == ip);
        let generation = match known {
            // Calls at this address stay there.
            Some(at) => generations.remove(at).0,
            None => {
                if generations.is_full() {
                    generations.remove(0);
                }
                free(&generations)
            }
        };
        generations.push((generation, ip));
        self.is_known.store(true, Relaxed);
        true
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // No code panics while it holds the lock.
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a generation that is not in `generations` and was not used recently.
fn free(generations: &Generations) -> AddressGeneration {
    let latest = generations.iter().map(|(AddressGeneration(number), _)| *number).max();
    let next = latest.map_or(0, |number| number.wrapping_add(1));
    let is_taken =
        |number: &u8| generations.iter().any(|(AddressGeneration(taken), _)| taken == number);
    let numbers = (0..=u8::MAX).map(|further| next.wrapping_add(further));
    AddressGeneration(numbers.into_iter().find(|number| !is_taken(number)).unwrap_or_default())
}

impl Endpoint {
    /// Returns a copy with the same addresses. Later DNS responses do not change the copy.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Address(address) => Self::Address(*address),
            Self::Name(named) => Self::Name(named.copy()),
        }
    }

    /// Returns the endpoint as configured.
    pub fn endpoint_address(&self) -> EndpointAddress {
        match self {
            Self::Address(address) => EndpointAddress::Address(*address),
            Self::Name(named) => EndpointAddress::Name(Arc::clone(&named.host), named.port),
        }
    }

    /// Returns the current address, or `None` for a name that has none yet.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name(named) => named.address(),
        }
    }

    pub(crate) fn generation(&self) -> AddressGeneration {
        match self {
            Self::Address(_) => AddressGeneration::default(),
            Self::Name(named) => named.generation(),
        }
    }

    pub(crate) fn at(&self, generation: AddressGeneration) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name(named) => named.at(generation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn at(last: u8) -> Option<SocketAddr> {
        Some(SocketAddr::new(ip(last), 5070))
    }

    #[test]
    fn a_name_has_no_address_until_one_is_found() {
        let named = Named::new("a.example", 5070);
        assert!(!named.is_known() && named.address().is_none() && named.addresses().is_empty());
        assert!(named.at(named.generation()).is_none());
        assert!(named.move_to(ip(1)));
        assert!(named.is_known() && !named.move_to(ip(1)));
        assert_eq!((named.address(), named.at(named.generation())), (at(1), at(1)));
        assert_eq!(Endpoint::Name(named).to_string(), "a.example:5070");
    }

    #[test]
    fn a_generation_keeps_its_address_when_the_name_moves_away_and_comes_back() {
        let named = Named::new("a.example", 5070);
        named.move_to(ip(1));
        let first = named.generation();
        named.move_to(ip(2));
        let second = named.generation();
        assert_eq!((named.address(), named.at(first), named.at(second)), (at(2), at(1), at(2)));
        named.move_to(ip(1));
        assert_eq!((named.generation(), named.at(first), named.at(second)), (first, at(1), at(2)));
        assert_eq!(named.addresses().first().copied(), at(1));
    }

    #[test]
    fn a_server_is_found_by_the_address_from_which_it_sends() {
        let named = Named::new("a.example", 5070);
        let from = |last| SocketAddr::new(ip(last), 41_000);
        assert_eq!(named.address_behind(from(1)), from(1));
        named.move_to(ip(1));
        named.move_to(ip(2));
        let behind = [1, 2, 3].map(|last| Some(named.address_behind(from(last))));
        assert_eq!(behind, [at(1), at(2), at(2)]);
    }

    #[test]
    fn the_oldest_address_is_forgotten_and_its_generation_leads_to_the_current_one() {
        let named = Named::new("a.example", 5070);
        named.move_to(ip(1));
        let first = named.generation();
        for last in 2..=5 {
            named.move_to(ip(last));
            assert_eq!(named.at(first), at(1), "{last}");
        }
        named.move_to(ip(6));
        assert_eq!(named.addresses().len(), GENERATIONS_MAX);
        assert!(!named.addresses().contains(&at(1).unwrap()));
        assert_eq!(named.at(first), at(6));
    }

    #[test]
    fn generations_stay_distinct_however_often_a_name_moves() {
        let named = Named::new("a.example", 5070);
        for round in 0..600_u16 {
            named.move_to(IpAddr::from([10, 0, (round >> 8) as u8, round as u8]));
            let generations = named.generations();
            for (index, (generation, _)) in generations.iter().enumerate() {
                assert!(generations.iter().skip(index + 1).all(|(other, _)| other != generation));
            }
        }
    }
}
