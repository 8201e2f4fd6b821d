//! `[pool.health]`.

use tidegate_balance::COUNT_MAX;

use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, List, Real, Text, Whole};
use crate::config::word;

pub static HEALTH: Table = Table {
    header: "[pool.health]",
    name: "health",
    count: 0..=1,
    doc: "How it is learnt which back ends of the pool above can take calls.",
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
    doc: "`options` asks each back end by OPTIONS (RFC 3261 §11) whether it is there. One that is \
          down gets new calls again when it has answered, and not before. With `off` it gets them \
          after `[server] backend_pause_seconds`, or when it answers anything.",
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
    absent: Absent::Means("2,000, or `interval_s` if that is less"),
    doc: "Milliseconds after which a probe without a final answer has failed, `interval_s` at the \
          most. Until then it is repeated as any request over UDP is (RFC 3261 §17.1.2.2).",
};

pub static JITTER: Knob<Real> = Knob {
    name: "jitter",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0.1"),
    doc: "The share of itself by which an interval may be shorter or longer, so that probes of \
          several proxies do not fall together.",
};

pub static FALL: Knob<Whole> = Knob {
    name: "fall",
    shape: Whole(1..=COUNT_MAX as u64),
    absent: Absent::Default("3"),
    doc: "Probes in a row that fail until a back end is down.",
};

pub static RISE: Knob<Whole> = Knob {
    name: "rise",
    shape: Whole(1..=COUNT_MAX as u64),
    absent: Absent::Default("2"),
    doc: "Probes in a row that are answered until a back end is up again.",
};

pub static ACCEPT: Knob<List<Whole>> = Knob {
    name: "accept",
    shape: List { of: Whole(200..=699), count_max: 32 },
    absent: Absent::Means("any but 503"),
    doc: "The final answers to a probe that say that a back end can take calls. A server that \
          knows no OPTIONS (405, 501) or nobody of that name (404) is there all the same.",
};

pub static PROBE_FROM: Knob<Text<String>> = Knob {
    name: "from",
    shape: Text {
        what: "a SIP URI without parameters, such as `\"sip:probe@example.com\"`",
        parse: word::sip_uri,
    },
    absent: Absent::Means("`sip:tidegate@` and the address of the listener"),
    doc: "Who the probes are from.",
};

pub static ERROR_LIMIT: Knob<Whole> = Knob {
    name: "error_limit",
    shape: Whole(1..=COUNT_MAX as u64),
    absent: Absent::Default("1"),
    doc: "After so many new requests in a row that a back end leaves unanswered for \
          `failover_after_ms`, while it answers nothing else either, Tidegate probes it by an OPTIONS \
          out of turn, also in pools without probes. If that stays unanswered for a second, the back \
          end is down. With transactions only.",
};

pub static EJECT_MAX: Knob<Real> = Knob {
    name: "eject_max",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0.5"),
    doc: "The largest share of the pool's back ends in service that requests alone exclude: by 503s \
          with Retry-After, silence, or ICMP. Beyond it the back ends whose last failure is longest \
          ago get calls all the same (`spared`), at least one, unless `backup` names a pool that is \
          up. Failed probes may exclude all.",
};

pub static RETRY_AFTER_MAX_S: Knob<Whole> = Knob {
    name: "retry_after_max_s",
    shape: Whole(0..=86_400),
    absent: Absent::Means("60, or 0 where `[pool.limit]` learns"),
    doc: "The longest time, in seconds, for which a back end gets no new calls because of the \
          Retry-After in its 503s (RFC 3261 §21.5.4), once it rejects most requests, to several \
          numbers. 0: no pause. With transactions only.",
};

pub static SLOW_START_S: Knob<Real> = Knob {
    name: "slow_start_s",
    shape: Real(0.0..=3600.0),
    absent: Absent::Default("0"),
    doc: "Seconds in which the weight of a back end that has returned grows from a tenth to the \
          whole. One that is up at the start has its whole weight at once.",
};
