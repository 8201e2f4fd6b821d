//! Shows the bans of sources to operators, as JSON and as metrics.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};
use tidegate_control::{Ban, BanList};
use tidegate_io::Clock;
use tidegate_proxy::{network_of, networks_of};
use tidegate_world::{Shedding, Timestamp};

use crate::metrics::{Family, Metrics};

static BANS: Family = Family::gauge("bans", "Banned sources");
static UNBANNED: Family = Family::counter(
    "bans_overflowed",
    "Bans not made, or removed to make room for others, because the list was full",
);

static UNKNOWN_TO_KERNEL: Family = Family::gauge(
    "bans_beyond_kernel",
    "Banned IPv4 addresses that have no calls, and for which the kernel's list has no room",
);

/// Adds three metrics to `metrics`: the number of bans in force, the number of bans for which
/// `list` had no room, and the number of bans in force for which the kernel's list has no room.
pub(crate) fn add(metrics: &mut Metrics, list: BanList, clock: Clock) {
    metrics.add(move |samples| {
        let bans = list.each(clock.now());
        samples.push(&BANS, &[], bans.len() as u64);
        samples.push(&UNBANNED, &[], list.overflowed());
        samples.push(&UNKNOWN_TO_KERNEL, &[], beyond_kernel(&bans) as u64);
    });
}

/// Returns the number of bans that are missing in the kernel's list because the list is full.
fn beyond_kernel(bans: &[Ban]) -> usize {
    let is_for_kernel = |ban: &&Ban| !ban.is_proven && network_of(ban.source).addr().is_ipv4();
    bans.iter().filter(is_for_kernel).count().saturating_sub(Shedding::BANNED_MAX)
}

/// Returns the bans in force at `now`, as JSON. Each ban has the source, the reason, the remaining
/// seconds, the sending rate of the source (`null` if unknown), and whether the source has proved
/// that it receives packets from Tidegate (`has_calls`).
pub fn to_json(list: &BanList, now: Timestamp) -> Value {
    let ban = |ban: &Ban| {
        json!({
            "source": written(ban.source),
            "cause": ban.cause.name(),
            "seconds": ban.until.since(now).as_secs_f64(),
            "rate_cps": (ban.rate < u32::MAX).then_some(ban.rate),
            "has_calls": ban.is_proven,
        })
    };
    list.each(now).iter().map(ban).collect()
}

/// Returns whether the source with this address, or an IPv6 network that contains the address, is
/// banned.
pub(crate) fn is_banned(list: &BanList, now: Timestamp, address: IpAddr) -> bool {
    let bans = list.each(now);
    networks_of(address).any(|source| bans.iter().any(|ban| ban.source == source))
}

/// Formats a source: an IPv4 address, or an IPv6 network.
pub(crate) fn written(source: u128) -> String {
    match network_of(source) {
        IpNet::V4(network) => network.addr().to_string(),
        IpNet::V6(network) => network.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::BanCause;
    use tidegate_proxy::source_of;

    use super::*;

    #[test]
    fn bans_that_the_kernel_does_not_know_are_counted() {
        let list = BanList::new(200);
        let now = Timestamp::from_nanos(1_000_000_000);
        let until = now + Duration::from_secs(5);
        let ban = |address: String, is_proven| {
            let source = source_of(address.parse().unwrap());
            list.ban(now, Ban { source, until, cause: BanCause::Rate, rate: 300, is_proven });
            beyond_kernel(&list.each(now))
        };
        let counts: Vec<_> = (0..66).map(|n| ban(format!("192.0.2.{n}"), false)).collect();
        assert_eq!(counts[62..], [0, 0, 1, 2]);
        assert_eq!(ban("2001:db8::7".to_owned(), false), 2);
        assert_eq!(ban("192.0.2.99".to_owned(), true), 2);
    }

    #[test]
    fn an_operator_lists_bans_and_finds_those_of_an_address() {
        let list = BanList::new(4);
        let now = Timestamp::from_nanos(1_000_000_000);
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::7"].map(|text| text.parse().unwrap());
        for (address, cause, s) in [(v4, BanCause::Rate, 5), (v6, BanCause::Limit, 60)] {
            let until = now + Duration::from_secs(s);
            let source = source_of(address);
            list.ban(now, Ban { source, until, cause, rate: 300, is_proven: s == 5 });
        }
        let seen = json!([
            {
                "source": "192.0.2.1", "cause": "rate", "seconds": 5.0, "rate_cps": 300,
                "has_calls": true,
            },
            {
                "source": "2001:db8::/64", "cause": "limit", "seconds": 60.0, "rate_cps": 300,
                "has_calls": false,
            },
        ]);
        assert_eq!(to_json(&list, now), seen);
        for address in [v4, v6, "2001:db8::1:2:3:4".parse().unwrap()] {
            assert!(is_banned(&list, now, address), "{address}");
            assert!(!is_banned(&list, now + Duration::from_secs(60), address), "{address}");
        }
        assert!(!is_banned(&list, now, "192.0.2.2".parse().unwrap()));
    }
}
