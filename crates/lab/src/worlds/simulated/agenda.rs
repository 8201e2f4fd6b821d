//! Plans a run in a simulated network: the times of the samples, and the starts and ends of faults.

use std::time::Duration;

use tidegate_sim::{Fault, NodeId};

use crate::network;
use crate::network::{Endpoint, Trouble, Way};

/// An action at a planned time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// Samples the counts of all nodes.
    Sample,
    /// Starts or ends a fault.
    Fault(Fault),
}

/// Returns the actions until `end` with their times, in order. If several have the same time, ends
/// of faults come first, then starts of faults, then the sample. `every` is the interval between
/// samples. `nodes_of` returns the nodes to which an endpoint of a link or fault refers.
pub(super) fn agenda(
    faults: &[network::Fault],
    every: Duration,
    end: Duration,
    nodes_of: impl Fn(Endpoint) -> Vec<NodeId>,
) -> Vec<(Duration, Action)> {
    let mut actions = Vec::new();
    for fault in faults {
        let (wrong, right) = pair(fault, &nodes_of);
        actions.extend(right.into_iter().map(|right| (fault.end(), 0, Action::Fault(right))));
        actions.extend(wrong.into_iter().map(|wrong| (fault.at, 1, Action::Fault(wrong))));
    }
    let looks = (1..).map(|count| every * count).take_while(|&at| at < end).chain([end]);
    actions.extend(looks.map(|at| (at, 2, Action::Sample)));
    actions.retain(|(at, ..)| *at <= end);
    actions.sort_by_key(|&(at, order, _)| (at, order));
    actions.into_iter().map(|(at, _, action)| (at, action)).collect()
}

/// Returns the actions that start `fault`, and the actions that end it.
fn pair(
    fault: &network::Fault,
    nodes_of: &impl Fn(Endpoint) -> Vec<NodeId>,
) -> (Vec<Fault>, Vec<Fault>) {
    let node = |place| nodes_of(Endpoint::Node(place))[0];
    match fault.what {
        Trouble::Crash { node: place, silence } => {
            let node = node(place);
            (vec![Fault::Crash { node, silence }], vec![Fault::Restart { node }])
        }
        Trouble::Stall { node: place } => {
            (vec![Fault::Stall { node: node(place), lasts: fault.lasts }], Vec::new())
        }
        Trouble::Partition { a, b } => {
            let pairs = product(&nodes_of(a), &nodes_of(b));
            let wrong = pairs.iter().map(|&(a, b)| Fault::Partition { a, b }).collect();
            (wrong, pairs.iter().map(|&(a, b)| Fault::Heal { a, b }).collect())
        }
        Trouble::Resolver(resolution) => {
            (vec![Fault::Resolver { resolution }], vec![Fault::Resolves])
        }
        Trouble::Link(way) => {
            let pairs = pairs(way, nodes_of);
            let impair = |&(from, to)| Fault::Impair { from, to, link: way.link };
            let wrong = pairs.iter().map(impair).collect();
            (wrong, pairs.iter().map(|&(from, to)| Fault::Restore { from, to }).collect())
        }
    }
}

/// Returns each pair of a sender and a receiver between which `way` applies to the packets.
pub(super) fn pairs(
    way: Way,
    nodes_of: &impl Fn(Endpoint) -> Vec<NodeId>,
) -> Vec<(NodeId, NodeId)> {
    let nodes = |endpoint: Option<Endpoint>| match endpoint {
        Some(endpoint) => nodes_of(endpoint),
        None => everybody(nodes_of),
    };
    product(&nodes(way.from), &nodes(way.to))
}

fn everybody(nodes_of: &impl Fn(Endpoint) -> Vec<NodeId>) -> Vec<NodeId> {
    let servers =
        (0..).map(|place| nodes_of(Endpoint::Node(place))).take_while(|nodes| !nodes.is_empty());
    [nodes_of(Endpoint::Callers), nodes_of(Endpoint::Answerers)]
        .into_iter()
        .chain(servers)
        .flatten()
        .collect()
}

fn product(from: &[NodeId], to: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let with = |&from: &NodeId| to.iter().map(move |&to| (from, to));
    from.iter().flat_map(with).filter(|(from, to)| from != to).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_sim::{Link, Silence};

    use super::*;

    /// Returns the nodes of two caller groups, two servers, one answerer.
    fn nodes_of(endpoint: Endpoint) -> Vec<NodeId> {
        let nodes: &[usize] = match endpoint {
            Endpoint::Callers => &[0, 1],
            Endpoint::Node(0) => &[2],
            Endpoint::Node(1) => &[3],
            Endpoint::Node(_) => &[],
            Endpoint::Answerers => &[4],
        };
        nodes.iter().map(|&index| NodeId::new(index)).collect()
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn faults_start_and_end_with_samples_in_between_and_at_the_end() {
        let what = Trouble::Crash { node: 1, silence: Silence::Refused };
        let fault = network::Fault { at: s(2), lasts: s(2), what };
        let node = NodeId::new(3);
        let crash = Action::Fault(Fault::Crash { node, silence: Silence::Refused });
        let restart = Action::Fault(Fault::Restart { node });
        let expected = [
            (s(2), crash),
            (s(2), Action::Sample),
            (s(4), restart),
            (s(4), Action::Sample),
            (s(5), Action::Sample),
        ];
        assert_eq!(agenda(&[fault], s(2), s(5), nodes_of), expected);
        let never_over = network::Fault { lasts: s(9), ..fault };
        assert_eq!(agenda(&[never_over], s(2), s(5), nodes_of)[..2], expected[..2]);
    }

    #[test]
    fn a_link_applies_to_every_pair_that_it_names() {
        let way = |from, to| Way { from, to, link: Link::default() };
        let count = |from, to| pairs(way(from, to), &nodes_of).len();
        assert_eq!(count(Some(Endpoint::Callers), Some(Endpoint::Node(0))), 2);
        assert_eq!(count(None, Some(Endpoint::Answerers)), 4);
        assert_eq!(count(None, None), 5 * 4);
        assert!(!pairs(way(None, None), &nodes_of).iter().any(|(from, to)| from == to));
    }
}
