//! `[workload]`: the offered calls.

use std::fmt;
use std::path::PathBuf;

use tidegate_agent::{Mmpp, Process, Profile};
use tidegate_server::config::schema::{
    Absent, Choice, Flag, Knob, Real, Table, Text, Whole, Wrong,
};

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

pub(in crate::scenario) static LOAD: Knob<Real> = Knob {
    name: "load",
    shape: Real(0.001..=1000.0),
    absent: Absent::Default("1"),
    doc: "Rate of offered calls, as a multiple of the emulated capacity. `profile` changes this \
          rate over time.",
};

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

pub(in crate::scenario) static ARRIVALS: Knob<Text<Arrivals>> = Knob {
    name: "arrivals",
    shape: Text::new(
        "`\"poisson\"`, `\"uniform\"`, `\"mmpp:F=S,F=S\"` or `\"trace:FILE\"`",
        arrivals,
    ),
    absent: Absent::Default("\"poisson\""),
    doc: "`poisson`: independent calls. `uniform`: equal gaps. `mmpp`: bursts. Each of 2 to 8 \
          states has a factor F on the rate and a mean duration of S seconds. The mean rate is \
          that of `load`. `trace`: calls at the times in a file. The file has one time on each \
          line, in seconds and in ascending order. A relative path starts at the directory of the \
          scenario file. A trace determines the load itself: `load` has no effect, and a `profile` \
          or a `load` in `[sweep]` is an error. With a trace, callers must send from one address \
          to exactly one server, and the results have no recovery time.",
};

pub(super) const PROFILES: Text<Profile> = Text::new(
    "`\"constant\"`, `\"gradual:UP,HOLD,DOWN\"`, `\"instant:AT\"`, `\"steps:T=F,T=F\"`, \
     `\"flash:AT,PEAK,RISE,DECAY\"` or `\"avalanche:AT,N,WITHIN\"`, times in seconds",
    profile,
);

pub(in crate::scenario) static PROFILE: Knob<Text<Profile>> = Knob {
    name: "profile",
    shape: PROFILES,
    absent: Absent::Default("\"constant\""),
    doc: "A factor by which the rate of `load` is multiplied, over time. Times count from the \
          start of the warm-up. `gradual`: the factor rises from 0 to 1 within UP, stays there for \
          HOLD, and falls to 0 within DOWN. `instant`: no calls until AT. `steps`: the factor is F \
          from T on, and 1 before the first T. `flash`: from AT on the factor rises from 1 to PEAK \
          within RISE, then falls to 1 with the time constant DECAY. `avalanche`: from AT on, N \
          additional calls arrive within WITHIN. They are divided among the servers that callers \
          send to, and among `sources` and `trunk`, like all other calls.",
};

pub(in crate::scenario) static HOLD_S: Knob<Real> = Knob {
    name: "hold_s",
    shape: Real(0.0..=3600.0),
    absent: Absent::Default("0"),
    doc: "Duration of a call, in seconds.",
};

pub(in crate::scenario) static HOLD: Knob<Text<Hold>> = Knob {
    name: "hold",
    shape: Text::new("`\"fixed\"`, `\"exp\"` or `\"lognormal:SIGMA\"`", Hold::parse),
    absent: Absent::Default("\"fixed\""),
    doc: "The distribution of the durations of calls. Their mean is `hold_s`. `fixed`: every call \
          lasts `hold_s`. `exp`: exponential. `lognormal`: log-normal. SIGMA, from 0 to 5, is the \
          standard deviation of the natural logarithm.",
};

pub(in crate::scenario) static PATIENCE_S: Knob<Real> = Knob {
    name: "patience_s",
    shape: Real(0.01..=3600.0),
    absent: Absent::Default("60"),
    doc: "Seconds after which a caller without an answer hangs up.",
};

pub(in crate::scenario) static RETRANSMISSIONS: Knob<Flag> = Knob {
    name: "retransmissions",
    shape: Flag,
    absent: Absent::Default("true"),
    doc: "Whether callers and answerers retransmit.",
};

pub(in crate::scenario) static OPEN_MAX: Knob<Whole> = Knob {
    name: "open_max",
    shape: Whole(1..=1_000_000),
    absent: Absent::Means(
        "100,000, and the results are not valid if more than 1 % of the calls do not begin",
    ),
    doc: "Maximum number of open calls at one server. While this number of calls is open there, \
          callers begin no further calls. The number is divided among `sources` and `trunk`, and \
          each of them has at least one call.",
};

pub(in crate::scenario) static OPEN_LIMIT: Knob<Whole> = Knob {
    name: "open_limit",
    shape: Whole(1..=1_000_000),
    absent: Absent::Means("an open loop"),
    doc: "A closed loop, as in SIPp: while this number of calls is open at one server, the next \
          call waits until one ends. This needs `sources = 1` and `trunk = 0`.",
};

pub(in crate::scenario) static FAILOVER: Knob<Flag> = Knob {
    name: "failover",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether callers try other servers after a server rejects a call with 503 (RFC 3261 \
          §21.5.4). The other servers are those that get calls directly from callers. A caller \
          tries each of them once, in turn. The set-up delay is the time from the first INVITE of \
          the call, or with `goodput = \"acknowledged\"` from its last INVITE.",
};

pub(in crate::scenario) static SOURCES: Knob<Whole> = Knob {
    name: "sources",
    shape: Whole(1..=1000),
    absent: Absent::Default("1"),
    doc: "Number of addresses from which the calls to one server come. Each address sends an equal \
          part. The `trunk` has an address of its own. This key works only in simulated time. On \
          real sockets there is one address.",
};

pub(in crate::scenario) static TRUNK: Knob<Real> = Knob {
    name: "trunk",
    shape: Real(0.0..=0.99),
    absent: Absent::Default("0"),
    doc: "The share of the calls that come from one more address, the trunk. This key works only \
          in simulated time.",
};

pub(in crate::scenario) static T1_MS: Knob<Real> = Knob {
    name: "t1_ms",
    shape: Real(1.0..=60_000.0),
    absent: Absent::Default("500"),
    doc: "T1 of RFC 3261 at callers and answerers.",
};

pub(in crate::scenario) static ANSWERERS: Knob<Whole> = Knob {
    name: "answerers",
    shape: Whole(1..=64),
    absent: Absent::Default("2"),
    doc: "Number of called parties. They answer every call at once.",
};

pub(in crate::scenario) static TRYING: Knob<Flag> = Knob {
    name: "trying",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether answerers send a 100 first. Each call then has one more message.",
};

pub(in crate::scenario) static DEADLINE_MS: Knob<Real> = Knob {
    name: "deadline_ms",
    shape: Real(1.0..=60_000.0),
    absent: Absent::Default("500"),
    doc: "A call counts as goodput if it is set up within this time after its intended start.",
};

pub(in crate::scenario) static GOODPUT: Knob<Choice<Goodput>> = Knob {
    name: "goodput",
    shape: Choice {
        words: &[("answered", Goodput::Answered), ("acknowledged", Goodput::Acknowledged)],
        reserved: &[],
    },
    absent: Absent::Default("\"answered\""),
    doc: "The event at which a call counts as set up. `answered`: its 200 has reached the caller. \
          `acknowledged`: its ACK has also reached the answerer. `acknowledged` works only in \
          simulated time.",
};

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
