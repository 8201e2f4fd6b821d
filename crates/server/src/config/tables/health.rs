//! `[pool.health]`.

use tidegate_balance::COUNT_MAX;

use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, List, Real, Text, Whole};
use crate::config::word;

pub static HEALTH: Table = Table {
    header: "[pool.health]",
    name: "health",
    count: 0..=1,
    doc: "How Tidegate finds out which back ends of the preceding pool can take calls.",
    knobs: &[
        &PROBE,
        &PROBE_INTERVAL_S,
        &PROBE_TIMEOUT_MS,
        &JITTER,
        &FALL,
        &RISE,
        &ACCEPT,
        &PROBE_FROM,
        &ERROR_LIMIT,
        &EJECT_MAX,
        &RETRY_AFTER_MAX_S,
        &SLOW_START_S,
    ],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static PROBE: Knob<Choice<bool>> = Knob {
    name: "probe",
    shape: Choice { words: &[("off", false), ("options", true)], reserved: &[] },
    absent: Absent::Default("\"off\""),
    doc: "`options`: Tidegate sends each back end an OPTIONS (RFC 3261 §11) at intervals. A back \
          end that is down gets new calls again only after it has responded. `off`: it gets new \
          calls again after `[server] backend_pause_seconds`, or as soon as it responds to \
          anything.",
};

pub static PROBE_INTERVAL_S: Knob<Real> = Knob {
    name: "interval_s",
    shape: Real(0.1..=3600.0),
    absent: Absent::Default("5"),
    doc: "Seconds from one probe of a back end to the next.",
};

pub static PROBE_TIMEOUT_MS: Knob<Whole> = Knob {
    name: "timeout_ms",
    shape: Whole(50..=32_000),
    absent: Absent::Means("2,000, or `interval_s` if that is shorter"),
    doc: "Milliseconds after which a probe without a final response has failed, at most \
          `interval_s`. Until then Tidegate retransmits it like any request over UDP (RFC 3261 \
          §17.1.2.2).",
};

pub static JITTER: Knob<Real> = Knob {
    name: "jitter",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0.1"),
    doc: "The fraction by which an interval may be shorter or longer, so that probes of several \
          proxies do not coincide.",
};

pub static FALL: Knob<Whole> = Knob {
    name: "fall",
    shape: Whole(1..=COUNT_MAX as u64),
    absent: Absent::Default("3"),
    doc: "Failed probes in a row after which a back end is down.",
};

pub static RISE: Knob<Whole> = Knob {
    name: "rise",
    shape: Whole(1..=COUNT_MAX as u64),
    absent: Absent::Default("2"),
    doc: "Successful probes in a row after which a back end is up again.",
};

pub static ACCEPT: Knob<List<Whole>> = Knob {
    name: "accept",
    shape: List { of: Whole(200..=699), count_max: 32 },
    absent: Absent::Means("any but 503"),
    doc: "The final responses to a probe that show that a back end can take calls. A server that \
          does not know OPTIONS (405, 501) or the user (404) is alive nevertheless.",
};

pub static PROBE_FROM: Knob<Text<String>> = Knob {
    name: "from",
    shape: Text {
        what: "a SIP URI without parameters, such as `\"sip:probe@example.com\"`",
        parse: word::sip_uri,
    },
    absent: Absent::Means("`sip:tidegate@` and the address of the listener"),
    doc: "The From URI of the probes.",
};

pub static ERROR_LIMIT: Knob<Whole> = Knob {
    name: "error_limit",
    shape: Whole(1..=COUNT_MAX as u64),
    absent: Absent::Default("1"),
    doc: "Number of new requests in a row without a response within `failover_after_ms`, during \
          which the back end responds to nothing else either. Then Tidegate sends it an extra \
          probe by OPTIONS, also in pools without probes. If that gets no response within a \
          second, the back end is down. With transactions only.",
};

pub static EJECT_MAX: Knob<Real> = Knob {
    name: "eject_max",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0.5"),
    doc: "The largest share of the pool's back ends in service that requests alone may exclude: by \
          503s with Retry-After, by silence, or by ICMP errors. Beyond it, the back ends whose \
          last failure is longest ago get calls nevertheless (`spared`), at least one, unless \
          `backup` names a pool that is up. Failed probes may exclude all back ends.",
};

pub static RETRY_AFTER_MAX_S: Knob<Whole> = Knob {
    name: "retry_after_max_s",
    shape: Whole(0..=86_400),
    absent: Absent::Means("60, or 0 if `[pool.limit]` learns"),
    doc: "The longest time, in seconds, for which a back end gets no new calls because of the \
          Retry-After in its 503s (RFC 3261 §21.5.4). Tidegate honours it only if the back end \
          rejects most requests, to several numbers. 0: no pause. With transactions only.",
};

pub static SLOW_START_S: Knob<Real> = Knob {
    name: "slow_start_s",
    shape: Real(0.0..=3600.0),
    absent: Absent::Default("0"),
    doc: "Seconds in which the weight of a back end grows from a tenth to its full value after the \
          back end has come back. At the start of Tidegate, back ends that are up have their full \
          weight at once.",
};
