//! `[server]` and `[[node]]`: the servers between callers and answerers.

use tidegate_agent::Profile;
use tidegate_proxy::Mode;
use tidegate_server::config::schema::{
    Absent, Choice, EMULATE, Flag, Knob, List, OVERLOAD, Placed, Real, Table, Text, Whole, Wrong,
};

use super::POOL;
use super::workload::PROFILES;

pub(in crate::scenario) static SERVER: Table = Table {
    header: "[server]",
    name: "server",
    doc: "Settings of the servers. Without any `[[node]]` there is one server, between callers and \
          answerers.",
    knobs: || vec![&MODE, &QUEUE_MAX, &INVITE_TO_BYE],
    ..Table::EMPTY
};

pub(in crate::scenario) static MODE: Knob<Choice<Mode>> = Knob {
    name: "mode",
    shape: MODES,
    absent: Absent::Default("\"stateless\""),
    doc: "Whether the server keeps transactions: `mode` of `[[pool]]` in [the \
          configuration](configuration.md).",
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
    doc: "Maximum number of waiting messages. It applies to each class, or to all messages if \
          there is one queue.",
};

pub(in crate::scenario) static INVITE_TO_BYE: Knob<Real> = Knob {
    name: "invite_to_bye",
    shape: Real(0.01..=100.0),
    absent: Absent::Means("the costs in `[emulate]`"),
    doc: "The cost of an INVITE transaction at a server under test, as a multiple of the cost of a \
          BYE transaction. The cost of a transaction is that of all its messages. The cost of a \
          whole call stays the same.",
};

pub(in crate::scenario) static NODE: Table = Table {
    header: "[[node]]",
    name: "node",
    count: 0..=64,
    doc: "One of the servers between callers and answerers. Nodes under test have the overload \
          control of the variants and the costs in `[emulate]`. `load` is a multiple of the \
          capacity of these nodes. Other nodes have their own tables `overload` and `emulate`, as \
          in [the configuration](configuration.md). Without these tables they admit everything \
          and are as fast as possible. `pool` says how a node selects among the nodes in `to`. It \
          replaces the `pool` of the variant.",
    knobs: || {
        vec![&NAME, &TO, &SHARE, &NODE_MODE, &UNDER_TEST, &SPEED, &NODE_PROFILE, &OBEYS_FEEDBACK]
    },
    tables: &[&POOL, &OVERLOAD, &EMULATE],
    ..Table::EMPTY
};

pub(in crate::scenario) static NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text::new("a name of at most 24 letters, digits and `-`", name),
    absent: Absent::Required,
    doc: "The name of the node in this file and in results.",
};

pub(in crate::scenario) static TO: Knob<List<Placed<Text<String>>>> = Knob {
    name: "to",
    shape: List {
        of: Placed(Text::new("the name of a node, or `\"answerers\"`", any)),
        count_max: 64,
    },
    absent: Absent::Required,
    doc: "The next hops of the calls that arrive at this node.",
};

pub(in crate::scenario) static SPEED: Knob<Real> = Knob {
    name: "speed",
    shape: Real(0.01..=100.0),
    absent: Absent::Default("1"),
    doc: "Speed of the node: at 0.5 all costs double. Nodes that send to this node do not know \
          its speed.",
};

pub(in crate::scenario) static SHARE: Knob<Real> = Knob {
    name: "share",
    shape: Real(0.001..=1000.0),
    absent: Absent::Means(
        "0. If no node has a share, callers send equal parts to the nodes that no other node \
         sends to",
    ),
    doc: "Callers send this node a part of the offered calls: its share divided by the sum of all \
          shares.",
};

pub(in crate::scenario) static NODE_MODE: Knob<Choice<Mode>> = Knob {
    name: "mode",
    shape: MODES,
    absent: Absent::Means("that of `[server]`"),
    doc: "Whether the server keeps transactions: `mode` of `[[pool]]` in [the \
          configuration](configuration.md).",
};

pub(in crate::scenario) static UNDER_TEST: Knob<Flag> = Knob {
    name: "under_test",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether the node is under test. At least one must be.",
};

pub(in crate::scenario) static NODE_PROFILE: Knob<Text<Profile>> = Knob {
    name: "profile",
    shape: PROFILES,
    absent: Absent::Means("`profile` of `[workload]`"),
    doc: "The rate over time of the calls that callers send to this node. Some results, such as \
          the recovery time, depend on when the overload begins or ends. They use `profile` of \
          `[workload]` for this.",
};

pub(in crate::scenario) static OBEYS_FEEDBACK: Knob<Flag> = Knob {
    name: "obeys_feedback",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether the node obeys the feedback of the nodes that it sends to (`obey_feedback = \
          \"always\"` in its pool). These nodes give feedback to the senders in `peers` of their \
          table `overload.feedback`. The addresses of all nodes are in `[\"10.0.0.0/8\"]` in \
          simulated time, and in `[\"127.0.0.0/8\"]` on real sockets.",
};

fn name(text: &str) -> Result<String, Wrong> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match text {
        "" => Err("the name is empty".into()),
        "callers" | "answerers" => {
            let label = "this name has another meaning in `from` and `to`";
            Err(Wrong::with_help(label, "choose another name for the node"))
        }
        _ if text.len() > 24 => Err(format!("{} characters", text.chars().count()).into()),
        _ if !text.chars().all(known) => Err("a character is not a letter, a digit or `-`".into()),
        _ => Ok(text.to_owned()),
    }
}

fn any(text: &str) -> Result<String, Wrong> {
    Ok(text.to_owned())
}
