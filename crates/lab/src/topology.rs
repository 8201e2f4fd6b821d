//! Describes the servers, and the routes of calls between them.

use serde::Serialize;
use tidegate_agent::Profile;
use tidegate_proxy::{Class, Mode, Overload};
use tidegate_server::config::Emulate;

use crate::balancing::Balancing;

/// Servers between callers and answerers. No call passes the same server twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique name.
    pub name: String,
    /// Targets of its calls. There is at least one.
    pub to: Vec<Next>,
    /// Balancing among the targets, or `None` for that of the variant.
    pub balancing: Option<Balancing>,
    /// Fraction of the offered calls that callers send directly to it, 0 to 1. The sum of all these
    /// fractions is 1.
    pub share: f64,
    /// Mode of the server: with transactions, without, or adaptive.
    pub mode: Mode,
    /// True if the server is under test. Then it has the variant's overload control and the
    /// scenario's costs.
    pub under_test: bool,
    /// Overload control of a server that is not under test.
    pub overload: Overload,
    /// Costs of a server that is not under test, or `None` for a server that is infinitely fast.
    pub emulate: Option<Emulate>,
    /// Relative speed: at 0.5 all costs are double.
    pub speed: f64,
    /// Rate over time of the calls that callers send to it, or `None` for that of the workload.
    pub profile: Option<Profile>,
    /// True if it obeys the feedback of its targets.
    pub obeys_feedback: bool,
}

/// A target of a server's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The server at this index.
    Node(usize),
    /// The answerers, in turn.
    Answerers,
}

/// The reason why servers are not a valid topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// A call would return to the server at this index.
    Circle(usize),
    /// No call reaches the server at this index.
    Idle(usize),
    /// No server is under test.
    Untested,
}

impl Topology {
    /// Returns one server in front of the answerers.
    pub fn single(mode: Mode) -> Self {
        let server = Node {
            name: "server".to_owned(),
            to: vec![Next::Answerers],
            share: 1.0,
            mode,
            under_test: true,
            overload: Overload::default(),
            emulate: None,
            balancing: None,
            speed: 1.0,
            profile: None,
            obeys_feedback: false,
        };
        Self { nodes: vec![server] }
    }

    /// Returns a balancer that gets all calls, in front of servers of these speeds, which are under
    /// test.
    ///
    /// # Panics
    /// Panics if `speeds` is empty. May panic if a speed is not above 0.
    pub fn farm(mode: Mode, speeds: &[f64]) -> Self {
        let like = |name: &str, to: Vec<Next>| {
            let [node] = Self::single(mode).nodes.try_into().expect("a single one");
            Node { name: name.to_owned(), to, ..node }
        };
        let servers = speeds.iter().enumerate().map(|(index, &speed)| Node {
            share: 0.0,
            speed,
            ..like(&format!("server-{}", index + 1), vec![Next::Answerers])
        });
        let to = (1..=speeds.len()).map(Next::Node).collect();
        let balancer = Node { under_test: false, ..like("balancer", to) };
        Self::new([balancer].into_iter().chain(servers).collect()).expect("a farm is a topology")
    }

    /// Creates a topology of these servers. [`Node::to`] uses their indices. At least one must have
    /// a share of the calls. Shares are scaled so that their sum is 1.
    ///
    /// # Errors
    /// Returns the reason if the topology is not valid.
    pub fn new(mut nodes: Vec<Node>) -> Result<Self, TopologyError> {
        let total: f64 = nodes.iter().map(|node| node.share).sum();
        // If all shares are 0, they stay 0. The check below then finds a server that gets no calls.
        if total > 0.0 {
            nodes.iter_mut().for_each(|node| node.share /= total);
        }
        let topology = Self { nodes };
        if let Some(circle) = topology.circle() {
            return Err(TopologyError::Circle(circle));
        }
        if let Some(idle) = topology.flows().iter().position(|&flow| flow == 0.0) {
            return Err(TopologyError::Idle(idle));
        }
        if !topology.nodes.iter().any(|node| node.under_test) {
            return Err(TopologyError::Untested);
        }
        Ok(topology)
    }

    /// Returns the servers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the indices of the servers to which callers send, each with its part of the calls.
    pub fn entries(&self) -> impl Iterator<Item = (usize, f64)> {
        let entry =
            |(place, node): (usize, &Node)| (node.share > 0.0).then_some((place, node.share));
        self.nodes.iter().enumerate().filter_map(entry)
    }

    /// Returns the indices of the servers. Each server comes after its targets.
    pub fn downstream_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        for place in 0..self.nodes.len() {
            self.visit(place, &mut order);
        }
        order
    }

    /// Returns the fraction of the offered calls that passes through each server, if balanced
    /// servers get calls in proportion to their speeds.
    pub fn flows(&self) -> Vec<f64> {
        let mut flows: Vec<f64> = self.nodes.iter().map(|node| node.share).collect();
        let speed = |next: &Next| match *next {
            Next::Node(place) => self.nodes[place].speed,
            Next::Answerers => 1.0,
        };
        for place in self.downstream_first().into_iter().rev() {
            let node = &self.nodes[place];
            let part = flows[place] / node.to.iter().map(speed).sum::<f64>();
            for next in &node.to {
                if let Next::Node(place) = next {
                    flows[*place] += part * speed(next);
                }
            }
        }
        flows
    }

    /// Returns whether the server at index `place` selects among several other servers.
    pub fn balances(&self, place: usize) -> bool {
        self.nodes[place].to.iter().filter(|next| matches!(next, Next::Node(_))).count() > 1
    }

    /// Returns the classes of the messages of a call at the server at index `place`. `trying` is
    /// true if answerers send a 100 first.
    pub fn messages(&self, place: usize, trying: bool) -> Vec<Class> {
        let mut messages = Vec::with_capacity(7);
        messages.push(Class::Invite);
        if self.hears_trying(place, trying) {
            messages.push(Class::Provisional);
        }
        messages.extend([Class::Provisional, Class::Final, Class::Ack, Class::Bye, Class::Final]);
        messages
    }

    /// Returns the number of responses of a call that the sender to the server at index `place`
    /// gets: a 100 if there is one, 180, 200, and the 200 to the BYE.
    pub fn responses_above(&self, place: usize, trying: bool) -> usize {
        let is_stateful = self.nodes[place].mode != Mode::Stateless;
        3 + usize::from(is_stateful || self.hears_trying(place, trying))
    }

    /// Returns whether the server at index `place` gets the 100 of an answerer or of another
    /// server. A 100 travels only one hop, except through servers without transactions, which
    /// forward it (RFC 3261 §16.11).
    fn hears_trying(&self, place: usize, trying: bool) -> bool {
        self.nodes[place].to.iter().any(|next| match *next {
            Next::Answerers => trying,
            Next::Node(next) => {
                self.nodes[next].mode != Mode::Stateless || self.hears_trying(next, trying)
            }
        })
    }

    fn visit(&self, place: usize, order: &mut Vec<usize>) {
        if order.contains(&place) {
            return;
        }
        for next in &self.nodes[place].to {
            if let Next::Node(next) = next {
                self.visit(*next, order);
            }
        }
        order.push(place);
    }

    /// Returns the index of a server to which a call can return, if there is one.
    fn circle(&self) -> Option<usize> {
        let count = self.nodes.len();
        (0..count).find(|&start| {
            let mut reached = vec![false; count];
            let mut waiting = vec![start];
            while let Some(place) = waiting.pop() {
                for next in &self.nodes[place].to {
                    let Next::Node(next) = *next else { continue };
                    if next == start {
                        return true;
                    }
                    if !std::mem::replace(&mut reached[next], true) {
                        waiting.push(next);
                    }
                }
            }
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, to: &[Next], share: f64) -> Node {
        let single = Topology::single(Mode::Transaction).nodes.remove(0);
        Node { name: name.to_owned(), to: to.to_vec(), share, ..single }
    }

    /// Returns two servers that get calls. One sends to a third server, and the other to the third
    /// and to a fourth.
    fn tree() -> Vec<Node> {
        vec![
            node("a", &[Next::Node(2)], 3.0),
            node("b", &[Next::Node(2), Next::Node(3)], 1.0),
            node("c", &[Next::Answerers], 0.0),
            node("d", &[Next::Answerers], 0.0),
        ]
    }

    #[test]
    fn each_server_gets_its_part_of_the_calls() {
        let tree = Topology::new(tree()).unwrap();
        assert_eq!(tree.flows(), [0.75, 0.25, 0.875, 0.125]);
        assert_eq!(tree.entries().collect::<Vec<_>>(), [(0, 0.75), (1, 0.25)]);
        let order = tree.downstream_first();
        let at = |place| order.iter().position(|&p| p == place).unwrap();
        assert!(at(2) < at(0) && at(2) < at(1) && at(3) < at(1) && order.len() == 4);
    }

    #[test]
    fn servers_of_a_farm_share_calls_by_their_speeds() {
        let farm = Topology::farm(Mode::Stateless, &[1.0, 0.5]);
        let names: Vec<&str> = farm.nodes().iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["balancer", "server-1", "server-2"]);
        let flows = farm.flows();
        assert!((flows[1] - 2.0 / 3.0).abs() < 1e-12 && (flows[2] - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!([0, 1, 2].map(|place| farm.nodes()[place].under_test), [false, true, true]);
        assert_eq!([0, 1, 2].map(|place| farm.balances(place)), [true, false, false]);
    }

    #[test]
    fn invalid_topologies_are_rejected() {
        let mut round = tree();
        round[3].to = vec![Next::Node(1)];
        assert_eq!(Topology::new(round), Err(TopologyError::Circle(1)));
        let mut alone = tree();
        alone[1].to.pop();
        assert_eq!(Topology::new(alone), Err(TopologyError::Idle(3)));
        // 0 ÷ 0 is NaN, and with NaN as a share the topology would seem valid.
        let mut without_calls = tree();
        without_calls.iter_mut().for_each(|node| node.share = 0.0);
        assert_eq!(Topology::new(without_calls), Err(TopologyError::Idle(0)));
        let mut untested = tree();
        untested.iter_mut().for_each(|node| node.under_test = false);
        assert_eq!(Topology::new(untested), Err(TopologyError::Untested));
    }

    #[test]
    fn a_100_comes_from_transactions_and_from_answerers_that_send_one() {
        let mut nodes = tree();
        nodes[2].mode = Mode::Stateless;
        nodes[3].mode = Mode::Stateless;
        let count = |nodes: &[Node], place, trying| {
            Topology::new(nodes.to_vec()).unwrap().messages(place, trying).len()
        };
        assert_eq!([0, 1, 2, 3].map(|place| count(&nodes, place, false)), [6; 4]);
        assert_eq!([0, 1, 2, 3].map(|place| count(&nodes, place, true)), [7; 4]);
        nodes[2].mode = Mode::Transaction;
        assert_eq!([0, 1, 2, 3].map(|place| count(&nodes, place, false)), [7, 7, 6, 6]);
    }
}
