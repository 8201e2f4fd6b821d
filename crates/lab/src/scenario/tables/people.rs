//! `[workload.redial]` and `[workload.devices]`: people who call again, and devices that register.

use std::time::Duration;

use tidegate_server::config::schema::{Flag, Only, Real, Text, Whole, real_seconds};
use tidegate_server::config_table;

use crate::scenario::Hold;

knobs! {
    /// The share of people who call `urn:service:sos` (RFC 5031). A server gives these calls
    /// priority only if its `overload.priority` trusts the callers: `from = ["10.0.0.0/8"]` in
    /// simulated time, `["127.0.0.0/8"]` on real sockets.
    EMERGENCY "emergency": Real = Real(0.0..=1.0), Default("0");
}

config_table! {
    /// People call again after their call was rejected, timed out or was not answered in time.
    /// `load` is then the rate of people, that is, of first attempts. Redials are additional calls,
    /// and results count them as offered calls. Nobody calls again after the end of the load.
    /// Without this table nobody calls again.
    pub(in crate::scenario) static REDIAL: "[workload.redial]" 0..=1, None, []
        => RedialTable, RedialDraft;

    /// Maximum number of calls of one person, including the first. In T-Mobile's outage of June
    /// 2020 congestion "likely required many of its subscribers to make 2-3 call attempts before
    /// successfully connecting" (FCC, PS Docket 20-183, report of October 2020).
    attempts_max: u32 = Whole(1..=100), Default("3");
    /// Probability that a person calls again after a failed call, if `attempts_max` allows another
    /// call. The default is an assumption.
    probability: f64 = Real(0.0..=1.0), Default("0.8");
    /// Mean number of seconds from the failure of a call, or from the end of `patience_s`, to the
    /// next call. The default is an assumption.
    wait_mean("wait_s"): Duration = real_seconds(0.001..=3600.0), Default("10");
    /// The distribution of the time before a redial. Its mean is `wait_s`, and it takes the same
    /// values as `hold`. The default is an assumption.
    wait: Hold = Text::new("`\"fixed\"`, `\"exp\"` or `\"lognormal:SIGMA\"`", Hold::parse),
        Default("\"exp\"");
    /// Maximum number of people who wait to call the same server again. Further people do not call
    /// again, and are counted as `overflowed` in `result.json`. The number is divided among
    /// `sources` and `trunk`, like `open_max`.
    waiting_max: usize = Whole(1..=1_000_000), Default("100_000");
}

static FOR_LOSS: Only<DevicesDraft> = Only {
    by: "lost_at_s",
    when: |devices| devices.lost_at.is_some(),
    why: "no device loses its registration",
    instead: "add `lost_at_s`",
};

config_table! {
    /// Devices keep a registration through the servers: they refresh it, and register again after a
    /// failure or a loss. Their REGISTERs are additional to `load`, and the answerers answer them
    /// with 200. At the start all devices are registered.
    pub(in crate::scenario) static DEVICES: "[workload.devices]" 0..=1, None, []
        => DevicesTable, DevicesDraft;

    /// Number of devices of all servers together. They are divided among the servers like the
    /// calls.
    count: u32 = Whole(1..=1_000_000), Required;
    /// Seconds from a registration to its refresh. While nothing fails, `count / refresh_s` devices
    /// register a second.
    refresh("refresh_s"): Duration = real_seconds(0.1..=86_400.0), Default("1800");
    /// The base time of the wait after a failed registration, in seconds. After N failures in a row
    /// the longest wait is `retry_s` times 2 to the power of N, but at most `retry_max_s` (RFC 5626
    /// §4.5).
    retry("retry_s"): Duration = real_seconds(0.001..=3600.0), Default("30");
    /// The limit, in seconds, to which repeated failures increase the longest wait (RFC 5626 §4.5).
    /// If this key is at most twice `retry_s`, the wait does not grow.
    retry_max("retry_max_s"): Duration = real_seconds(0.001..=86_400.0), Default("1800");
    /// The share of the longest wait that is random. A wait is the longest wait times a random
    /// number between 1 − `jitter` and 1. The default is that of RFC 5626 §4.5: "between 50 and
    /// 100% of the upper-bound wait time".
    jitter: f64 = Real(0.0..=1.0), Default("0.5");
    /// True if a device waits at least as long as the Retry-After of a rejection says.
    obeys_retry_after: bool = Flag, Default("true");
    /// Seconds after the start of the warm-up at which devices lose their registrations.
    lost_at("lost_at_s"): Duration | None = real_seconds(0.0..=90_000.0), Means("no loss");
    /// The share of the devices that lose their registrations at `lost_at_s`.
    lost: f64 = Real(0.0..=1.0), Default("1"), only(&FOR_LOSS);
    /// Seconds within which the devices that lost their registrations send their first REGISTER,
    /// spread uniformly. 0: all at once.
    lost_within("lost_within_s"): Duration = real_seconds(0.0..=86_400.0), Default("0"),
        only(&FOR_LOSS);
}
