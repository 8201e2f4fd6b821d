//! Orders the servers and addresses for a request by RFC 2782, in the same way for all its copies.
//!
//! RFC 2782 draws servers of one priority at random by their weights. RFC 3263 §4.4: "The stateless
//! proxy MUST define a deterministic order to the records in that case, using any algorithm at its
//! disposal." Here each server gets its own random time, computed from the hash of the request and
//! the name of the server. The times have exponential distributions whose rates are the weights,
//! and the server with the earliest time is tried first. So the probability that a server is first
//! is its share of the weights. The probability that it is second is its share of the remaining
//! weights, and so on, as RFC 2782 requires. The order of two servers does not depend on other
//! servers with a weight above 0. So adding or removing such a server does not move requests
//! between the others. If the servers were drawn one after another, requests would move. Servers
//! with weight 0 share one weight of 1, so the time of each depends on how many of them there are.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use tidegate_world::SrvRecord;

use super::records::Service;
use super::transport::Transports;

/// Returns the servers in the order in which the request with this hash tries them. `servers` must
/// be sorted by priority.
pub(super) fn order_servers(servers: &[SrvRecord], hash: u64) -> SmallVec<[&SrvRecord; 8]> {
    let mut timed: SmallVec<[(f64, &SrvRecord); 8]> = SmallVec::new();
    for group in servers.chunk_by(|a, b| a.priority == b.priority) {
        let rates = Rates::of(group);
        timed.extend(group.iter().map(|server| (rates.time_of(server, hash), server)));
    }
    timed.sort_by(|(a_at, a), (b_at, b)| {
        a.priority.cmp(&b.priority).then(a_at.total_cmp(b_at)).then_with(|| {
            let name = |server: &SrvRecord| (server.port, server.target.clone());
            name(a).cmp(&name(b))
        })
    });
    timed.into_iter().map(|(_, server)| server).collect()
}

/// The rates of the exponential distributions for the servers of one priority.
struct Rates {
    /// The rate for a server with weight 0. The rate for any other server is its weight.
    of_zero: f64,
}

impl Rates {
    fn of(group: &[SrvRecord]) -> Self {
        // RFC 2782: "In the presence of records containing weights greater than 0, records with
        // weight 0 should have a very small chance of being selected." Its algorithm draws a number
        // from 0 to the sum of the weights, and the number 0 selects a record with weight 0. So the
        // records with weight 0 together have the share of one record with weight 1.
        let zeros = group.iter().filter(|server| server.weight == 0).count();
        Self { of_zero: 1.0 / zeros.max(1) as f64 }
    }

    /// Draws a time for `server` from its exponential distribution. For the same server and the
    /// same `hash` of a request, the time is always the same.
    fn time_of(&self, server: &SrvRecord, hash: u64) -> f64 {
        let rate = if server.weight == 0 { self.of_zero } else { f64::from(server.weight) };
        // Uniform in (0, 1), both ends excluded, so that the logarithm is finite and not zero.
        let draw = draw(hash, &[server.target.as_bytes(), &server.port.to_le_bytes()]);
        let unit = ((draw >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
        -unit.ln() / rate
    }
}

/// Returns the addresses of one server in the order in which the request with this hash tries them.
///
/// RFC 3263 §4.2: "The client SHOULD try the first record." DNS servers rotate the records to share
/// the load. The hash of the request shares the load too, and the order stays the same when the DNS
/// answer is refreshed.
pub(super) fn order_addresses(addresses: &[IpAddr], hash: u64) -> SmallVec<[IpAddr; 8]> {
    let mut drawn: SmallVec<[(u64, IpAddr); 8]> = addresses
        .iter()
        .map(|ip| match ip {
            IpAddr::V4(v4) => (draw(hash, &[&v4.octets()]), *ip),
            IpAddr::V6(v6) => (draw(hash, &[&v6.octets()]), *ip),
        })
        .collect();
    drawn.sort_unstable();
    drawn.dedup();
    drawn.into_iter().map(|(_, ip)| ip).collect()
}

/// Returns the services that the client can use, in the order of attempts.
pub(super) fn order_services<'s>(
    services: &'s [Service],
    transports: &Transports,
    secure: bool,
) -> SmallVec<[&'s Service; 4]> {
    // RFC 3263 §4.1: "First, a client resolving a SIPS URI MUST discard any services that do not
    // contain "SIPS" as the protocol in the service field. The converse is not true, however. A
    // client resolving a SIP URI SHOULD retain records with "SIPS" as the protocol, if the client
    // supports TLS. Second, a client MUST discard any service fields that identify a resolution
    // service whose value is not "D2X", for values of X that indicate transport protocols supported
    // by the client."
    let is_supported = |service: &&Service| transports.supports(service.transport);
    let is_open = |service: &Service| !service.transport.is_secure();
    // The proxy opens connections over TLS to back ends only. So for a SIP URI it uses a service
    // over TLS only if the domain has no other service: then the servers may be back ends.
    let secure = secure || !services.iter().filter(is_supported).any(is_open);
    let usable =
        |service: &&Service| is_supported(service) && service.transport.is_secure() == secure;
    // RFC 3403 §4.1: "once a match is found the client MUST NOT consider records with a different
    // Order but they MAY process records with the same Order but different Preferences."
    let order = services.iter().find(usable).map(|service| service.order);
    let same = |service: &&Service| Some(service.order) == order;
    let mut all: SmallVec<[_; 4]> = services.iter().filter(usable).filter(same).collect();
    all.sort_by_key(|service| (service.preference, transports.rank(service.transport)));
    all
}

fn draw(hash: u64, parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(hash, 0);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use tidegate_world::Transport;

    use crate::resolution::transport::service_prefix;

    fn server(priority: u16, weight: u16, number: u16) -> SrvRecord {
        SrvRecord {
            priority,
            weight,
            port: 5060,
            target: format!("server-{number}.example.").into(),
        }
    }

    fn firsts(servers: &[SrvRecord], draws: u64) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for hash in 0..draws {
            *counts.entry(order_servers(servers, hash)[0].target.to_string()).or_default() += 1;
        }
        counts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        // RFC 2782: "Larger weights SHOULD be given a proportionately higher probability of being
        // selected."
        #[test]
        fn servers_are_first_and_second_by_their_weights(
            weights in prop::collection::vec(0..100u16, 2..6),
            seed in any::<u32>(),
        ) {
            const DRAWS: u64 = 6000;
            let group: Vec<_> =
                (0..).zip(&weights).map(|(number, weight)| server(7, *weight, number)).collect();
            let zeros = weights.iter().filter(|weight| **weight == 0).count() as f64;
            let rate = |server: &SrvRecord| match server.weight {
                0 => 1.0 / zeros,
                weight => f64::from(weight),
            };
            let sum: f64 = group.iter().map(rate).sum();
            let mut first = vec![0.0; group.len()];
            let mut behind = vec![0.0; group.len()];
            let place = |server: &SrvRecord| group.iter().position(|s| s == server).unwrap();
            for hash in 0..DRAWS {
                let order = order_servers(&group, hash + (u64::from(seed) << 20));
                prop_assert_eq!(order.len(), group.len());
                first[place(order[0])] += 1.0;
                if place(order[0]) == 0 {
                    behind[place(order[1])] += 1.0;
                }
            }
            // Six standard deviations of a binomial distribution.
            let near = |count: f64, draws: f64, share: f64| {
                (count - draws * share).abs() <= 6.0 * (draws * share * (1.0 - share)).sqrt() + 1.0
            };
            for (server, count) in group.iter().zip(&first) {
                prop_assert!(near(*count, DRAWS as f64, rate(server) / sum), "{server:?} {count}");
            }
            for (server, count) in group.iter().zip(&behind).skip(1) {
                let share = rate(server) / (sum - rate(&group[0]));
                prop_assert!(near(*count, first[0], share), "{server:?} {count} {}", first[0]);
            }
        }

        // RFC 3263 §4.4: "The stateless proxy MUST define a deterministic order".
        #[test]
        fn the_order_is_a_permutation_by_priority_that_others_do_not_change(
            numbers in prop::collection::btree_map(0..200u16, (0..3u16, 0..5u16), 1..20),
            hash: u64,
            removed: prop::sample::Index,
        ) {
            let mut servers: Vec<_> =
                numbers.iter().map(|(number, (p, w))| server(*p, *w, *number)).collect();
            servers.sort_by_key(|server| server.priority);
            let all: Vec<_> = order_servers(&servers, hash).into_iter().cloned().collect();
            prop_assert!(all.is_sorted_by_key(|server| server.priority));
            let mut names: Vec<_> = all.iter().map(|server| &server.target).collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), servers.len());
            // The removal of a server with weight 0 is not checked, because it changes the rates of
            // the other servers with weight 0.
            let gone = servers.remove(removed.index(servers.len()));
            if gone.weight > 0 {
                let rest: Vec<_> = order_servers(&servers, hash).into_iter().cloned().collect();
                let before: Vec<_> = all.into_iter().filter(|server| *server != gone).collect();
                prop_assert_eq!(rest, before);
            }
        }

        #[test]
        fn addresses_are_in_an_order_of_the_request(
            addresses in prop::collection::vec(any::<[u8; 4]>().prop_map(IpAddr::from), 0..9),
            hash: u64,
        ) {
            let order = order_addresses(&addresses, hash);
            let mut turned = addresses.clone();
            turned.reverse();
            prop_assert_eq!(&order, &order_addresses(&turned, hash));
            let mut sorted: Vec<_> = order.to_vec();
            sorted.sort();
            turned.sort();
            turned.dedup();
            prop_assert_eq!(sorted, turned);
        }
    }

    #[test]
    fn a_weight_of_zero_has_a_small_chance_and_equal_ones_have_equal_chances() {
        let counts = firsts(&[server(0, 0, 1), server(0, 0, 2), server(0, 999, 3)], 100_000);
        let zeros = ["server-1.example.", "server-2.example."].map(|name| counts[name]);
        assert!(zeros.iter().all(|count| (20..90).contains(count)), "{zeros:?}");
        let counts = firsts(&[server(0, 0, 1), server(0, 0, 2)], 10_000);
        assert!(counts.values().all(|count| count.abs_diff(5000) < 300), "{counts:?}");
    }

    #[test]
    fn addresses_share_the_requests() {
        let addresses: Vec<IpAddr> = (1..=4).map(|last| [192, 0, 2, last].into()).collect();
        let mut counts = BTreeMap::<_, u64>::new();
        for hash in 0..8000 {
            *counts.entry(order_addresses(&addresses, hash)[0]).or_default() += 1;
        }
        assert!(counts.values().all(|count| count.abs_diff(2000) < 240), "{counts:?}");
    }

    /// RFC 3263 §4.1: "First, a client resolving a SIPS URI MUST discard any services that do not
    /// contain "SIPS" as the protocol in the service field." "A client resolving a SIP URI SHOULD
    /// retain records with "SIPS" as the protocol, if the client supports TLS." "Second, a client
    /// MUST discard any service fields that identify a resolution service whose value is not "D2X",
    /// for values of X that indicate transport protocols supported by the client."
    #[test]
    fn services_are_of_one_order_and_the_clients_transports() {
        use Transport::{Tcp, Tls, Udp};
        let service = |order, preference, transport: Transport| Service {
            order,
            preference,
            transport,
            name: service_prefix(transport).into(),
        };
        // The example of RFC 3263 §4.1.
        let services = [service(50, 50, Tls), service(90, 50, Tcp), service(100, 50, Udp)];
        let select = |services: &[Service], supported: &[Transport], secure| {
            let transports = Transports::new(supported.iter().copied());
            let all = order_services(services, &transports, secure);
            all.iter().map(|service| service.transport).collect::<Vec<_>>()
        };
        // "Since the client supports TCP and UDP, TCP will be used".
        assert_eq!(select(&services, &[Udp, Tcp], false), [Tcp]);
        assert_eq!(select(&services, &[Udp], false), [Udp]);
        // Only back ends can be reached over TLS.
        assert_eq!(select(&services, &[Udp, Tls], false), [Udp]);
        assert_eq!(select(&services, &[Tls, Tcp, Udp], false), [Tcp]);
        assert_eq!(select(&services[..1], &[Udp, Tls], false), [Tls]);
        assert_eq!(select(&services, &[Udp, Tls], true), [Tls]);
        assert_eq!(select(&services[1..], &[Udp, Tcp, Tls], true), []);
        let equal = [service(1, 2, Udp), service(1, 2, Tcp), service(1, 1, Tls)];
        assert_eq!(select(&equal, &[Tcp, Udp, Tls], false), [Tcp, Udp]);
        assert_eq!(select(&equal, &[Tcp, Udp, Tls], true), [Tls]);
        assert_eq!(select(&equal, &[Udp, Tcp], false), [Udp, Tcp]);
    }
}
