//! Reads `[[node]]`: servers and their targets.

use std::ops::Range;

use tidegate_agent::Profile;
use tidegate_proxy::{Mode, Overload};
use tidegate_server::config::Emulate;
use tidegate_server::config::schema::{
    EMULATE, EmulateDraft, OVERLOAD, Report, Section, alternatives, nearest, quoted, read_compared,
};
use toml::Spanned;

use super::pool;
use crate::balancing::Balancing;
use crate::scenario::tables::{
    NAME, NODE, NODE_MODE, NODE_PROFILE, OBEYS_FEEDBACK, SHARE, SPEED, TO, UNDER_TEST,
};
use crate::topology::{Next, Node, Topology, TopologyError};

/// The name that stands for all called parties in a list of next hops.
const ANSWERERS: &str = "answerers";

/// Reads the servers of the scenario `root`. Without `[[node]]` tables, returns a single server
/// with the mode `mode`. Returns `None` when an error was reported.
pub(super) fn read(root: &Section<'_, '_>, mode: Mode, report: &mut Report) -> Option<Topology> {
    let drafts = root.read_all(&NODE, Draft::read, report);
    if drafts.is_empty() {
        return Some(Topology::single(mode));
    }
    let drafts = drafts.into_iter().collect::<Option<Vec<_>>>()?;
    let names: Vec<&str> = drafts.iter().map(|draft| &**draft.name.get_ref()).collect();
    if !are_distinct(&drafts, report) {
        return None;
    }
    // Read every target before giving up, so that all errors are reported.
    let targets: Vec<_> = drafts.iter().map(|draft| targets(draft, &names, report)).collect();
    let targets = targets.into_iter().collect::<Option<Vec<_>>>()?;
    let shares = shares(&drafts, &targets);
    let spans: Vec<_> = drafts.iter().map(|draft| draft.span.clone()).collect();
    let nodes = drafts.into_iter().zip(targets).zip(shares);
    let node = |((draft, to), share): ((Draft, Vec<Next>), f64)| Node {
        name: draft.name.into_inner(),
        to,
        share,
        mode: draft.mode.unwrap_or(mode),
        under_test: draft.under_test,
        overload: draft.overload.unwrap_or_default(),
        emulate: draft.emulate,
        balancing: draft.pool,
        speed: draft.speed,
        profile: draft.profile,
        obeys_feedback: draft.obeys_feedback,
    };
    match Topology::new(nodes.map(node).collect()) {
        Ok(topology) => Some(topology),
        Err(why) => {
            reject(why, &spans, report);
            None
        }
    }
}

/// A `[[node]]` table with names of next hops that are not yet resolved.
struct Draft {
    span: Range<usize>,
    name: Spanned<String>,
    to: Spanned<Vec<Spanned<String>>>,
    share: Option<f64>,
    mode: Option<Mode>,
    under_test: bool,
    overload: Option<Overload>,
    emulate: Option<Emulate>,
    pool: Option<Balancing>,
    speed: f64,
    profile: Option<Profile>,
    obeys_feedback: bool,
}

impl Draft {
    fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Self> {
        let (name, to) = (section.value(&NAME, report), section.value(&TO, report));
        let share = section.given_plain(&SHARE, report);
        let mode = section.given_plain(&NODE_MODE, report);
        let under_test = section.plain(&UNDER_TEST, report);
        let speed = section.plain(&SPEED, report);
        let profile = section.given_plain(&NODE_PROFILE, report);
        let obeys_feedback = section.plain(&OBEYS_FEEDBACK, report);
        let pool = pool::read(section, report);
        let overload = section.read_all(&OVERLOAD, read_compared, report).pop();
        let emulate = section.read_all(&EMULATE, EmulateDraft::read, report).pop();
        let to = to?;
        if to.get_ref().is_empty() {
            let help = format!("write the name of a node, or `\"{ANSWERERS}\"`");
            report.error(to.span(), "a node has no next hop", "the list is empty", help);
            return None;
        }
        Some(Self {
            span: section.span(),
            name: name?,
            to,
            share,
            mode,
            under_test: under_test?,
            overload: overload.flatten(),
            emulate: emulate.and_then(EmulateDraft::finish),
            pool: pool?,
            speed: speed?,
            profile,
            obeys_feedback: obeys_feedback?,
        })
    }
}

fn are_distinct(drafts: &[Draft], report: &mut Report) -> bool {
    let twins = drafts.iter().enumerate().filter_map(|(index, draft)| {
        let twin = drafts[..index].iter().find(|d| d.name.get_ref() == draft.name.get_ref())?;
        Some((draft, twin))
    });
    let mut distinct = true;
    for (draft, twin) in twins {
        distinct = false;
        report.clash(
            format!("two nodes are called {}", quoted(draft.name.get_ref())),
            (draft.name.span(), "used already"),
            (twin.name.span(), "here"),
            "give each node another name",
        );
    }
    distinct
}

fn targets(draft: &Draft, names: &[&str], report: &mut Report) -> Option<Vec<Next>> {
    let mut next = |name: &Spanned<String>| {
        if name.get_ref() == ANSWERERS {
            return Some(Next::Answerers);
        }
        let found = names.iter().position(|known| known == name.get_ref());
        if found.is_none() {
            report_unknown(name, names, &[ANSWERERS], report);
        }
        found.map(Next::Node)
    };
    let read: Vec<_> = draft.to.get_ref().iter().map(&mut next).collect();
    read.into_iter().collect()
}

/// Reports an error for a name that is neither in `nodes` nor in `others`.
pub(super) fn report_unknown(
    name: &Spanned<String>,
    nodes: &[&str],
    others: &[&str],
    report: &mut Report,
) {
    let names = || nodes.iter().chain(others).copied();
    let help = match nearest(name.get_ref(), names()) {
        Some(near) => format!("did you mean `\"{near}\"`?"),
        None => format!("write {}", alternatives(names())),
    };
    let title = format!("there is no node {}", quoted(name.get_ref()));
    report.error(name.span(), title, "not the name of a node", help);
}

/// Returns each server's share of the offered calls. If the scenario gives shares, servers without
/// one get 0. If it gives none, all servers to which no other server sends have equal shares, and
/// the remaining servers have 0.
fn shares(drafts: &[Draft], targets: &[Vec<Next>]) -> Vec<f64> {
    if drafts.iter().any(|draft| draft.share.is_some()) {
        return drafts.iter().map(|draft| draft.share.unwrap_or(0.0)).collect();
    }
    let is_sent_to = |place| targets.iter().flatten().any(|next| *next == Next::Node(place));
    (0..drafts.len()).map(|place| if is_sent_to(place) { 0.0 } else { 1.0 }).collect()
}

fn reject(why: TopologyError, spans: &[Range<usize>], report: &mut Report) {
    match why {
        TopologyError::Circle(place) => report.error(
            spans[place].clone(),
            "a call would pass a node twice",
            "the call comes back to this node",
            "remove a node from the list `to` of one node",
        ),
        TopologyError::Idle(place) => report.error(
            spans[place].clone(),
            "no call reaches a node",
            "this node",
            "give this node a `share`, or name it in the list `to` of another node",
        ),
        TopologyError::Untested => {
            report.missing(
                "no node is under test",
                "add `under_test = true` to at least one `[[node]]`",
            );
        }
    }
}
