//! `[server]` and `[[node]]`: the servers between callers and answerers.

use tidegate_proxy::Mode;
use tidegate_server::config::schema::{
    Absent, Choice, EMULATE, Flag, Knob, List, OVERLOAD, Real, Table, Text, Whole, Wrong,
};

use super::POOL;

pub(in crate::scenario) static SERVER: Table = Table {
    header: "[server]",
    name: "server",
    count: 0..=1,
    doc: "Tidegate, as its configuration says it. Without any `[[node]]` there is one, between \
          callers and answerers.",
    knobs: &[&MODE, &QUEUE_MAX, &INVITE_TO_BYE],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::scenario) static MODE: Knob<Choice<Mode>> = Knob {
    name: "mode",
    shape: MODES,
    absent: Absent::Default("\"stateless\""),
    doc: "Whether it keeps transactions.",
};

const MODES: Choice<Mode> = Choice {
    words: &[
        ("stateless", Mode::Stateless),
        ("transaction", Mode::Transaction),
        ("adaptive", Mode::Adaptive),
    ],
    reserved: &[],
};

pub(in crate::scenario) static QUEUE_MAX: Knob<Whole> = Knob {
    name: "queue_max",
    shape: Whole(256..=1_000_000),
    absent: Absent::Default("1000"),
    doc: "Messages that wait at the most: of each class, or of all in one queue.",
};

pub(in crate::scenario) static INVITE_TO_BYE: Knob<Real> = Knob {
    name: "invite_to_bye",
    shape: Real(0.01..=100.0),
    absent: Absent::Means("as the costs in `[emulate]` are"),
    doc: "What all messages of an INVITE's transaction cost a server under test, as a multiple of \
          those of a BYE's. A whole call costs the same: what is served for the two requests is \
          divided so.",
};

pub(in crate::scenario) static NODE: Table = Table {
    header: "[[node]]",
    name: "node",
    count: 0..=64,
    doc: "A server of several. Those under test meet overload as the variants say, at the costs \
          in `[emulate]`, and the capacity is theirs. Of the others, `overload` and `emulate` are \
          tables of that name in [the configuration](configuration.md); left out, they admit \
          everything and are as fast as can be. `pool` is how one chooses among those in `to`, \
          whatever the variant says.",
    knobs: &[&NAME, &TO, &SHARE, &NODE_MODE, &UNDER_TEST, &SPEED],
    tables: &[&POOL, &OVERLOAD, &EMULATE],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::scenario) static NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text { what: "a name of at most 24 letters, digits and `-`", parse: name },
    absent: Absent::Required,
    doc: "What it is called in this file and in results.",
};

pub(in crate::scenario) static TO: Knob<List<Text<String>>> = Knob {
    name: "to",
    shape: List {
        of: Text { what: "the name of a node, or `\"answerers\"`", parse: any },
        count_max: 64,
    },
    absent: Absent::Required,
    doc: "To whom its calls go: names of nodes, or `answerers`.",
};

pub(in crate::scenario) static SPEED: Knob<Real> = Knob {
    name: "speed",
    shape: Real(0.01..=100.0),
    absent: Absent::Default("1"),
    doc: "How fast it does what it costs: at 0.5 all costs are double. Whoever sends to it is not \
          told.",
};

pub(in crate::scenario) static SHARE: Knob<Real> = Knob {
    name: "share",
    shape: Real(0.001..=1000.0),
    absent: Absent::Means(
        "0; where no node has a share, callers send equal parts to those that nobody sends to",
    ),
    doc: "Its part of the calls that callers offer, in proportion to the shares of the others.",
};

pub(in crate::scenario) static NODE_MODE: Knob<Choice<Mode>> = Knob {
    name: "mode",
    shape: MODES,
    absent: Absent::Means("that of `[server]`"),
    doc: "Whether it keeps transactions.",
};

pub(in crate::scenario) static UNDER_TEST: Knob<Flag> = Knob {
    name: "under_test",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether it is what the scenario is about. At least one must be.",
};

fn name(text: &str) -> Result<String, Wrong> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match text {
        "" => Err("empty".into()),
        "callers" | "answerers" => Err("means others".into()),
        _ if text.len() > 24 => Err(format!("{} characters", text.chars().count()).into()),
        _ if !text.chars().all(known) => Err("holds another character".into()),
        _ => Ok(text.to_owned()),
    }
}

fn any(text: &str) -> Result<String, Wrong> {
    Ok(text.to_owned())
}
