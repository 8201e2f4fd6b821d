//! `[pool.health]`.

use tidegate_balance::COUNT_MAX;
use tidegate_proxy::{Accept, Health, Probe};

use crate::config::keys::{Only, keys};
use crate::config::shape::{Choice, List, Real, Text, Whole, millis, real_seconds, seconds};
use crate::config::word;

/// The values of `[pool.health]`.
#[derive(Default)]
pub(crate) struct HealthTable {
    /// True if back ends are probed.
    pub is_probed: bool,
    /// The parameters of probes.
    pub probe: Probe,
    /// All other values of the table.
    pub health: Health,
}

static PROBED: Only<HealthTable> = Only {
    by: "probe",
    when: |table| table.is_probed,
    why: "probes are off",
    instead: "write `probe = \"options\"`",
};

keys! {
    /// The checks by which Tidegate finds out which back ends of the preceding pool can serve
    /// calls.
    pub static HEALTH: "[pool.health]" 0..=1, NewCalls, [] => HealthTable;

    /// `options`: Tidegate sends each back end an OPTIONS (RFC 3261 §11) at intervals. If a back
    /// end is down, it gets new calls again only after it has responded. `off`: a back end that is
    /// down gets new calls again after `[server] backend_pause_seconds`, or as soon as it responds
    /// to any request.
    key "probe" (is_probed) = Choice { words: &[("off", false), ("options", true)], reserved: &[] },
        Default("\"off\"");
    /// Seconds from one probe of a back end to the next.
    key "interval_s" (probe.interval) = real_seconds(0.1..=3600.0), Default("5"), only(&PROBED);
    /// Milliseconds after which a probe without a final response has failed. The value may not
    /// exceed `interval_s`. Before that time Tidegate retransmits the probe like any request over
    /// UDP (RFC 3261 §17.1.2.2).
    key "timeout_ms" (probe.timeout) = millis(50..=32_000),
        Means("2,000, or `interval_s` if that is shorter"), only(&PROBED);
    /// The fraction by which an interval may be shorter or longer, so that probes of several
    /// proxies do not coincide.
    key "jitter" (probe.jitter) = Real(0.0..=1.0), Default("0.1"), only(&PROBED);
    /// Failed probes in a row after which a back end is down.
    key "fall" (probe.fall) = Whole(1..=COUNT_MAX), Default("3"), only(&PROBED);
    /// Successful probes in a row after which a back end is up again.
    key "rise" (probe.rise) = Whole(1..=COUNT_MAX), Default("2"), only(&PROBED);
    /// The final responses to a probe that count as success. By default these include 405 and 501
    /// (the server does not know OPTIONS) and 404 (the server does not know the user), because such
    /// a server is alive.
    key "accept" {
        |table| match &table.probe.accept {
            Accept::Any => None,
            Accept::Only(statuses) => Some(statuses.clone()),
        },
        |table, statuses| table.probe.accept = Accept::Only(statuses.into_inner())
    } = List { of: Whole(200..=699), count_max: 32 }, Means("any status but 503"),
        only(&PROBED);
    /// The From URI of the probes.
    key "from" (? probe.from) = Text::new(
        "a SIP URI without parameters, such as `\"sip:probe@example.com\"`",
        word::sip_uri,
    ), Means("`sip:tidegate@` and the address of the listener"), only(&PROBED);
    /// The number of consecutive new requests without a response after which Tidegate sends the
    /// back end an extra OPTIONS probe, even if `probe` is `off`. A request counts if the back end
    /// sends no response within `failover_after_ms`. Any response of the back end resets the count.
    /// If the extra probe gets no response within a second, the back end is down. This key applies
    /// only with transactions.
    key "error_limit" (health.error_limit) = Whole(1..=COUNT_MAX), Default("1");
    /// The largest share of the pool's back ends in service that failed requests can make
    /// unavailable. A request has failed if it got a 503 with Retry-After or an ICMP error, if its
    /// connection was refused, or if neither it nor the extra probe of `error_limit` got a
    /// response. If more back ends have failed, those whose last failure is longest ago still get
    /// calls (`spared`). Even with 1, one back end still gets calls. There are two exceptions.
    /// While the pool in `backup` is up, no back end is spared. In a pool with `probe`, failed
    /// probes may make all back ends unavailable.
    key "eject_max" (health.eject_max) = Real(0.0..=1.0), Default("0.5");
    /// The longest time, in seconds, for which a back end gets no new calls because of the
    /// Retry-After in its 503s (RFC 3261 §21.5.4). Tidegate obeys Retry-After only if the back end
    /// rejects most requests, and rejects requests to several callees. If several sources send
    /// requests to the back end, it must also reject requests of several sources. 0: no pause. This
    /// key applies only with transactions.
    key "retry_after_max_s" (? health.retry_after_max) = seconds(0..=86_400),
        Means("60, or 0 for a back end whose rate is learned (`[pool.limit]`)");
    /// Seconds in which the weight of a back end grows from a tenth to its full value after the
    /// back end has come up again. When Tidegate starts, back ends that are up have their full
    /// weight at once.
    key "slow_start_s" (health.slow_start) = real_seconds(0.0..=3600.0), Default("0");
}
