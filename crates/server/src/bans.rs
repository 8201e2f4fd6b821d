//! Who is banned, as operators see and change it.

use std::net::IpAddr;

use serde_json::{Value, json};
use tidegate_control::{Ban, BanList};
use tidegate_io::Clock;
use tidegate_proxy::{address_of, source_of};
use tidegate_world::Timestamp;

use crate::metrics::{Family, Metrics};

static BANS: Family = Family::gauge("bans", "Sources that are banned now");
static UNBANNED: Family =
    Family::counter("bans_overflowed", "Sources that were not banned, for want of room");

/// Adds how many are banned.
pub(crate) fn add(metrics: &mut Metrics, list: BanList, clock: Clock) {
    metrics.add(move |samples| {
        samples.push(&BANS, &[], list.each(clock.now()).len() as u64);
        samples.push(&UNBANNED, &[], list.overflowed());
    });
}

/// The bans in force: for each its source, why, and for how many seconds more.
pub fn to_json(list: &BanList, now: Timestamp) -> Value {
    let ban = |ban: &Ban| {
        json!({
            "source": written(ban.source),
            "cause": ban.cause.name(),
            "seconds": ban.until.since(now).as_secs_f64(),
        })
    };
    list.each(now).iter().map(ban).collect()
}

/// Ends the ban of the source with this address, or with any in its /64 network. False if there
/// is none.
pub fn lift(list: &BanList, now: Timestamp, address: IpAddr) -> bool {
    list.lift(now, source_of(address))
}

/// An IPv4 address, or an IPv6 network.
fn written(source: u128) -> String {
    match address_of(source) {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(network) => format!("{network}/64"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::BanCause;

    use super::*;

    #[test]
    fn an_operator_sees_who_is_banned_and_lifts_it() {
        let list = BanList::new(4);
        let now = Timestamp::from_nanos(1_000_000_000);
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::7"].map(|text| text.parse().unwrap());
        for (address, cause, s) in [(v4, BanCause::Rate, 5), (v6, BanCause::Limit, 60)] {
            let until = now + Duration::from_secs(s);
            list.ban(now, Ban { source: source_of(address), until, cause });
        }
        let seen = json!([
            { "source": "192.0.2.1", "cause": "rate", "seconds": 5.0 },
            { "source": "2001:db8::/64", "cause": "limit", "seconds": 60.0 },
        ]);
        assert_eq!(to_json(&list, now), seen);
        assert!(lift(&list, now, "2001:db8::1:2:3:4".parse().unwrap()));
        assert!(!lift(&list, now, v6));
        assert_eq!(to_json(&list, now).as_array().unwrap().len(), 1);
    }
}
