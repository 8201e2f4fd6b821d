//! `[workload]`: the offered calls.

use std::fmt;
use std::path::PathBuf;

use tidegate_agent::{Mmpp, Process, Profile};
use tidegate_server::config::schema::{Choice, Flag, Real, Table, Text, Whole, Wrong};

use super::{DEVICES, EMERGENCY, REDIAL};
use crate::scenario::{Goodput, Hold};

pub(in crate::scenario) static WORKLOAD: Table = Table {
    header: "[workload]",
    name: "workload",
    doc: "The offered calls.",
    knobs: || {
        vec![
            &LOAD,
            &ARRIVALS,
            &PROFILE,
            &HOLD_S,
            &HOLD,
            &PATIENCE_S,
            &RETRANSMISSIONS,
            &OPEN_MAX,
            &OPEN_LIMIT,
            &FAILOVER,
            &SOURCES,
            &TRUNK,
            &EMERGENCY,
            &T1_MS,
            &ANSWERERS,
            &TRYING,
            &DEADLINE_MS,
            &GOODPUT,
        ]
    },
    tables: &[&REDIAL, &DEVICES],
    ..Table::EMPTY
};

knobs! {
    /// Rate of offered calls, as a multiple of the emulated capacity. `profile` changes this rate
    /// over time.
    LOAD "load": Real = Real(0.001..=1000.0), Default("1");
    /// `poisson`: calls at random times, independent of each other. `uniform`: equal gaps. `mmpp`:
    /// bursts. Each of 2 to 8 states has a factor F on the rate and a mean duration of S seconds.
    /// The mean rate is that of `load`. `trace`: calls at the times in a file. The file has one
    /// time on each line, in seconds and in ascending order. A relative path starts at the
    /// directory of the scenario file. A trace determines the load itself: `load` has no effect,
    /// and a `profile` or a `load` in `[sweep]` is an error. With a trace, callers must send from
    /// one address to exactly one server, and the results have no recovery time.
    ARRIVALS "arrivals": Text<Arrivals> = Text::new(
        "`\"poisson\"`, `\"uniform\"`, `\"mmpp:F=S,F=S\"` or `\"trace:FILE\"`",
        arrivals,
    ), Default("\"poisson\"");
    /// The course of the load over time: a factor by which the rate of `load` is multiplied. Times
    /// are seconds from the start of the warm-up. `constant`: the factor is 1. `gradual`: the
    /// factor rises from 0 to 1 within UP, stays there for HOLD, and falls to 0 within DOWN.
    /// `instant`: no calls until AT. `steps`: the factor is F from T on, and 1 before the first T.
    /// `flash`: from AT on the factor rises from 1 to PEAK within RISE, then falls to 1 with the
    /// time constant DECAY. `avalanche`: from AT on, N additional calls arrive within WITHIN. They
    /// are divided among the servers that callers send to, and among `sources` and `trunk`, like
    /// all other calls.
    PROFILE "profile": Text<Profile> = PROFILES, Default("\"constant\"");
    /// Duration of a call, in seconds.
    HOLD_S "hold_s": Real = Real(0.0..=3600.0), Default("0");
    /// The distribution of the durations of calls. Their mean is `hold_s`. `fixed`: every call
    /// lasts `hold_s`. `exp`: exponential. `lognormal`: log-normal. SIGMA, from 0 to 5, is the
    /// standard deviation of the natural logarithm.
    HOLD "hold": Text<Hold> =
        Text::new("`\"fixed\"`, `\"exp\"` or `\"lognormal:SIGMA\"`", Hold::parse),
        Default("\"fixed\"");
    /// Seconds after which a caller without an answer hangs up.
    PATIENCE_S "patience_s": Real = Real(0.01..=3600.0), Default("60");
    /// True if callers and answerers retransmit messages.
    RETRANSMISSIONS "retransmissions": Flag = Flag, Default("true");
    /// Maximum number of open calls at one server. While this number of calls is open there,
    /// callers begin no further calls. The number is divided among `sources` and `trunk`, and each
    /// of them has at least one call.
    OPEN_MAX "open_max": Whole = Whole(1..=1_000_000), Means(
        "100,000, and the results are not valid if more than 1 % of the calls do not begin"
    );
    /// A closed loop, as in SIPp: while this number of calls is open at one server, the next call
    /// waits until one ends. This needs `sources = 1` and `trunk = 0`.
    OPEN_LIMIT "open_limit": Whole = Whole(1..=1_000_000), Means("an open loop");
    /// True if callers try other servers after a server rejects a call with 503 (RFC 3261 §21.5.4).
    /// The other servers are those that get calls directly from callers. A caller tries each of
    /// them once, in turn. The set-up delay is the time from the first INVITE of the call, or with
    /// `goodput = "acknowledged"` from its last INVITE.
    FAILOVER "failover": Flag = Flag, Default("false");
    /// Number of addresses from which the calls to one server come. Each address sends an equal
    /// part. The `trunk` has an address of its own. This key works only in simulated time. On real
    /// sockets there is one address.
    SOURCES "sources": Whole = Whole(1..=1000), Default("1");
    /// The share of the calls that come from one more address, the trunk. This key works only in
    /// simulated time.
    TRUNK "trunk": Real = Real(0.0..=0.99), Default("0");
    /// T1 of RFC 3261 at callers and answerers.
    T1_MS "t1_ms": Real = Real(1.0..=60_000.0), Default("500");
    /// Number of called parties. They answer every call at once.
    ANSWERERS "answerers": Whole = Whole(1..=64), Default("2");
    /// True if answerers send a 100 first. Each call then has one more message.
    TRYING "trying": Flag = Flag, Default("false");
    /// A call counts as goodput if it is set up within this time after its intended start.
    DEADLINE_MS "deadline_ms": Real = Real(1.0..=60_000.0), Default("500");
    /// The event at which a call counts as set up. `answered`: its 200 has reached the caller.
    /// `acknowledged`: its ACK has also reached the answerer. `acknowledged` works only in
    /// simulated time.
    GOODPUT "goodput": Choice<Goodput> = Choice {
        words: &[("answered", Goodput::Answered), ("acknowledged", Goodput::Acknowledged)],
        reserved: &[],
    }, Default("\"answered\"");
}

/// The arrivals of calls as the scenario file gives them.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scenario) enum Arrivals {
    /// Calls arrive by a process that needs no file, such as a Poisson process.
    Process(Process),
    /// Calls arrive at the times in a trace file.
    TraceFile(PathBuf),
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => process.fmt(f),
            Self::TraceFile(file) => write!(f, "trace:{}", file.display()),
        }
    }
}

pub(super) const PROFILES: Text<Profile> = Text::new(
    "`\"constant\"`, `\"gradual:UP,HOLD,DOWN\"`, `\"instant:AT\"`, `\"steps:T=F,T=F\"`, \
     `\"flash:AT,PEAK,RISE,DECAY\"` or `\"avalanche:AT,N,WITHIN\"`, times in seconds",
    profile,
);

fn arrivals(text: &str) -> Result<Arrivals, Wrong> {
    let wrong = |why: String| Wrong::from(why);
    Ok(match text.split_once(':') {
        None if text == "poisson" => Arrivals::Process(Process::Poisson),
        None if text == "uniform" => Arrivals::Process(Process::Uniform),
        Some(("mmpp", states)) => {
            let mmpp = states.parse::<Mmpp>().map_err(|why| wrong(why.to_string()))?;
            Arrivals::Process(Process::Mmpp(mmpp))
        }
        Some(("trace", file)) if !file.is_empty() => Arrivals::TraceFile(file.into()),
        _ => return Err("there is no such process".into()),
    })
}

fn profile(text: &str) -> Result<Profile, Wrong> {
    text.parse::<Profile>().map_err(|why| why.to_string().into())
}
