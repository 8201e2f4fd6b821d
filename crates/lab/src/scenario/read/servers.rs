//! Reads `[[node]]`: servers and their targets.

use std::ops::Range;

use tidegate_proxy::Mode;
use tidegate_server::config::schema::{
    EMULATE, EmulateDraft, OVERLOAD, Report, Section, alternatives, nearest, quoted, read_compared,
};
use toml::Spanned;

use super::pool;
use crate::scenario::tables::{NODE, NodeDraft, NodeTable};
use crate::topology::{Next, Node, Topology, TopologyError};

/// The name that stands for all called parties in a list of next hops.
const ANSWERERS: &str = "answerers";

/// Reads the servers of the scenario `root`. Without `[[node]]` tables, returns a single server
/// with the mode `mode`. Returns `None` when an error was reported.
pub(super) fn read(root: &Section<'_, '_>, mode: Mode, report: &mut Report) -> Option<Topology> {
    let nodes = root.read_all(&NODE, read_node, report);
    if nodes.is_empty() {
        return Some(Topology::single(mode));
    }
    let nodes = nodes.into_iter().collect::<Option<Vec<_>>>()?;
    let spans: Vec<_> = nodes.iter().map(Spanned::span).collect();
    let nodes: Vec<_> = nodes.into_iter().map(Spanned::into_inner).collect();
    let names: Vec<&str> = nodes.iter().map(|node| &**node.name.get_ref()).collect();
    if !are_distinct(&nodes, report) {
        return None;
    }
    // Read every target before giving up, so that all errors are reported.
    let targets: Vec<_> = nodes.iter().map(|node| targets(node, &names, report)).collect();
    let targets = targets.into_iter().collect::<Option<Vec<_>>>()?;
    let shares = shares(&nodes, &targets);
    let nodes = nodes.into_iter().zip(targets).zip(shares);
    let node = |((node, to), share): ((NodeTable, Vec<Next>), f64)| Node {
        name: node.name.into_inner(),
        to,
        share,
        mode: node.mode.unwrap_or(mode),
        under_test: node.under_test,
        overload: node.overload.unwrap_or_default(),
        emulate: node.emulate,
        balancing: node.pool,
        speed: node.speed,
        profile: node.profile,
        obeys_feedback: node.obeys_feedback,
    };
    match Topology::new(nodes.map(node).collect()) {
        Ok(topology) => Some(topology),
        Err(why) => {
            reject(why, &spans, report);
            None
        }
    }
}

fn read_node(section: &Section<'_, '_>, report: &mut Report) -> Option<Spanned<NodeTable>> {
    let mut draft = NodeDraft::read(section, report);
    draft.pool = pool::read(section, report);
    draft.overload = Some(section.read_all(&OVERLOAD, read_compared, report).pop().flatten());
    let emulate = section.read_all(&EMULATE, EmulateDraft::read, report).pop();
    draft.emulate = Some(emulate.and_then(EmulateDraft::finish));
    if let Some(to) = draft.to.as_ref().filter(|to| to.get_ref().is_empty()) {
        let help = format!("write the name of a node, or `\"{ANSWERERS}\"`");
        report.error(to.span(), "a node has no next hop", "the list is empty", help);
        return None;
    }
    Some(Spanned::new(section.span(), draft.finish()?))
}

fn are_distinct(nodes: &[NodeTable], report: &mut Report) -> bool {
    let twins = nodes.iter().enumerate().filter_map(|(index, node)| {
        let twin = nodes[..index].iter().find(|n| n.name.get_ref() == node.name.get_ref())?;
        Some((node, twin))
    });
    let mut distinct = true;
    for (node, twin) in twins {
        distinct = false;
        report.clash(
            format!("two nodes are called {}", quoted(node.name.get_ref())),
            (node.name.span(), "used already"),
            (twin.name.span(), "here"),
            "give each node another name",
        );
    }
    distinct
}

fn targets(node: &NodeTable, names: &[&str], report: &mut Report) -> Option<Vec<Next>> {
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
    let read: Vec<_> = node.to.iter().map(&mut next).collect();
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
fn shares(nodes: &[NodeTable], targets: &[Vec<Next>]) -> Vec<f64> {
    if nodes.iter().any(|node| node.share.is_some()) {
        return nodes.iter().map(|node| node.share.unwrap_or(0.0)).collect();
    }
    let is_sent_to = |place| targets.iter().flatten().any(|next| *next == Next::Node(place));
    (0..nodes.len()).map(|place| if is_sent_to(place) { 0.0 } else { 1.0 }).collect()
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
