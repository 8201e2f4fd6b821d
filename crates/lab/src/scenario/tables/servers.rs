//! `[server]` and `[[node]]`: the servers between callers and answerers.

use tidegate_agent::Profile;
use tidegate_proxy::{Mode, Overload};
use tidegate_server::config::Emulate;
use tidegate_server::config::schema::{
    Choice, EMULATE, Flag, List, OVERLOAD, Placed, Real, Table, Text, Whole, Wrong,
};
use tidegate_server::config_table;
use toml::Spanned;

use super::workload::PROFILES;
use super::{POOL, any};
use crate::balancing::Balancing;

pub(in crate::scenario) static SERVER: Table = Table {
    header: "[server]",
    name: "server",
    doc: "Settings of the servers. Without any `[[node]]` there is one server, between callers and \
          answerers.",
    knobs: || vec![&MODE, &QUEUE_MAX, &INVITE_TO_BYE],
    ..Table::EMPTY
};

knobs! {
    /// The mode of the server, which says if it keeps transactions: `mode` of `[[pool]]` in [the
    /// configuration](configuration.md).
    MODE "mode": Choice<Mode> = MODES, Default("\"stateless\"");
    /// Maximum number of waiting messages. It applies to each class, or to all messages if there is
    /// one queue.
    QUEUE_MAX "queue_max": Whole = Whole(256..=1_000_000), Default("1000");
    /// The cost of an INVITE transaction at a server under test, as a multiple of the cost of a BYE
    /// transaction. The cost of a transaction is that of all its messages. The cost of a whole call
    /// stays the same.
    INVITE_TO_BYE "invite_to_bye": Real = Real(0.01..=100.0), Means("the costs in `[emulate]`");
}

const MODES: Choice<Mode> = Choice {
    words: &[
        ("stateless", Mode::Stateless),
        ("transaction", Mode::Transaction),
        ("adaptive", Mode::Adaptive),
    ],
    reserved: &[],
};

config_table! {
    /// One of the servers between callers and answerers. Nodes under test have the overload control
    /// of the variants and the costs in `[emulate]`. `load` is a multiple of the capacity of these
    /// nodes. Other nodes have their own tables `overload` and `emulate`, as in [the
    /// configuration](configuration.md). Without these tables they admit everything and are as fast
    /// as possible. `pool` says how a node selects among the nodes in `to`. It replaces the `pool`
    /// of the variant.
    pub(in crate::scenario) static NODE: "[[node]]" 0..=64, None, [POOL, OVERLOAD, EMULATE]
        => NodeTable, NodeDraft;

    /// The name of the node in this file and in results.
    name: Spanned<String> =
        Placed(Text::new("a name of at most 24 letters, digits and `-`", name)), Required;
    /// The next hops of the calls that arrive at this node.
    to: Vec<Spanned<String>> = List {
        of: Placed(Text::new("the name of a node, or `\"answerers\"`", any)),
        count_max: 64,
    }, Required;
    /// Callers send this node a part of the offered calls: its share divided by the sum of all
    /// shares.
    share: f64 | None = Real(0.001..=1000.0), Means(
        "0. If no node has a share, callers send equal parts to the nodes that no other node \
         sends to"
    );
    /// The mode of the server, which says if it keeps transactions: `mode` of `[[pool]]` in [the
    /// configuration](configuration.md).
    mode: Mode | None = MODES, Means("`mode` of `[server]`");
    /// True if the node is under test. At least one must be.
    under_test: bool = Flag, Default("false");
    /// Speed of the node: at 0.5 all costs double. Nodes that send to this node do not know its
    /// speed.
    speed: f64 = Real(0.01..=100.0), Default("1");
    /// The rate over time of the calls that callers send to this node. Some results, such as the
    /// recovery time, depend on when the overload begins or ends. They use `profile` of
    /// `[workload]` for this.
    profile: Profile | None = PROFILES, Means("`profile` of `[workload]`");
    /// True if the node obeys the feedback of the nodes that it sends to (`obey_feedback =
    /// "always"` in its pool). These nodes give feedback to the senders in `peers` of their table
    /// `overload.feedback`. The addresses of all nodes are in `["10.0.0.0/8"]` in simulated time,
    /// and in `["127.0.0.0/8"]` on real sockets.
    obeys_feedback: bool = Flag, Default("false");
    +
    /// The settings for the selection of a next hop. `None` means the settings of the variant.
    pool: Option<Balancing>;
    /// The overload control of a node that is not under test. `None` means that it admits
    /// everything.
    overload: Option<Overload>;
    /// The costs of a node that is not under test. `None` means that it is as fast as possible.
    emulate: Option<Emulate>;
}

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
