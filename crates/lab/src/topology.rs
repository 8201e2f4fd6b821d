//! Describes the servers between callers and answerers, and the routes of calls through them.

use serde::Serialize;
use tidegate_agent::Profile;
use tidegate_proxy::{Class, Mode, Overload};
use tidegate_server::config::Emulate;

use crate::balancing::Balancing;

/// The servers between callers and answerers. No call passes the same server twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
}

/// A server between callers and answerers.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique name of the server.
    pub name: String,
    /// The next hops to which the server forwards calls, at least one.
    pub to: Vec<Next>,
    /// The settings for balancing among the next hops. `None` means the settings of the variant.
    pub balancing: Option<Balancing>,
    /// Fraction of the offered calls that callers send directly to this server, 0 to 1. The
    /// fractions of all servers add up to 1.
    pub share: f64,
    /// The mode of the server: stateless, transaction or adaptive.
    pub mode: Mode,
    /// True if the server is under test. Its overload control is then that of the variant, and its
    /// processing costs are those of the scenario.
    pub under_test: bool,
    /// Overload control of the server if it is not under test.
    pub overload: Overload,
    /// Processing costs of the server if it is not under test. `None` means no processing time.
    pub emulate: Option<Emulate>,
    /// Speed of the server, relative to the costs. At 0.5, all costs are double.
    pub speed: f64,
    /// The course over time of the rate at which callers send calls to this server. `None` means
    /// the profile of the workload.
    pub profile: Option<Profile>,
    /// True if the server obeys the overload feedback of its next hops.
    pub obeys_feedback: bool,
}

/// A next hop of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The server with this index in the topology.
    Node(usize),
    /// The answerers (called parties), used in turn.
    Answerers,
}

/// The reason why a list of servers is not a valid topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// A call could return to the server with this index.
    Circle(usize),
    /// No call reaches the server with this index.
    Idle(usize),
    /// No server is under test.
    Untested,
}

impl Topology {
    /// Returns a topology with one server, between callers and answerers.
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

    /// Returns a topology with a balancer and one server behind it for each of `speeds`. The
    /// servers are under test.
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

    /// Creates a topology of `nodes`. The indices in [`Node::to`] refer to this list. At least one
    /// server must have a share of the calls. The shares are scaled to a sum of 1.
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

    /// Returns all servers, in the order of their indices.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the indices of the servers to which callers send, each with its fraction of the
    /// calls.
    pub fn entries(&self) -> impl Iterator<Item = (usize, f64)> {
        let entry =
            |(place, node): (usize, &Node)| (node.share > 0.0).then_some((place, node.share));
        self.nodes.iter().enumerate().filter_map(entry)
    }

    /// Returns the indices of all servers in an order in which each server comes after its next
    /// hops.
    pub(crate) fn downstream_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        for place in 0..self.nodes.len() {
            self.visit(place, &mut order);
        }
        order
    }

    /// Returns the fraction of the offered calls that passes through each server. Servers with the
    /// same previous hop get calls in proportion to their speeds.
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

    /// Returns whether the server at index `place` balances calls among several other servers.
    pub fn balances(&self, place: usize) -> bool {
        self.nodes[place].to.iter().filter(|next| matches!(next, Next::Node(_))).count() > 1
    }

    /// Returns the classes of the messages that the server at index `place` gets for a call.
    /// `trying` is true if answerers send a 100 first.
    pub fn messages(&self, place: usize, trying: bool) -> Vec<Class> {
        let mut messages = Vec::with_capacity(7);
        messages.push(Class::Invite);
        if self.hears_trying(place, trying) {
            messages.push(Class::Provisional);
        }
        messages.extend([Class::Provisional, Class::Final, Class::Ack, Class::Bye, Class::Final]);
        messages
    }

    /// Returns the number of responses that the previous hop of the server at index `place` gets
    /// for a call: a 100 if there is one, a 180, a 200, and the 200 to the BYE.
    pub(crate) fn responses_above(&self, place: usize, trying: bool) -> usize {
        let is_stateful = self.nodes[place].mode != Mode::Stateless;
        3 + usize::from(is_stateful || self.hears_trying(place, trying))
    }

    /// Returns whether the server at index `place` gets a 100 from its next hop. A 100 travels only
    /// one hop, except through servers without transactions, which forward it (RFC 3261 §16.11).
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

    /// Returns the index of a server to which a call could return, or `None` if there is none.
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
