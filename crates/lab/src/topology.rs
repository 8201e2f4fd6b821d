//! Servers, and who sends calls to whom.

use serde::Serialize;
use tidegate_proxy::{Class, Mode, Overload};
use tidegate_server::config::Emulate;

use crate::balancing::Balancing;

/// Servers between callers and answerers. No call passes one twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
}

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name; no other has it.
    pub name: String,
    /// To whom its calls go; not empty.
    pub to: Vec<Next>,
    /// Who of them gets the next call, where the variant does not say it.
    pub balancing: Option<Balancing>,
    /// The part of the offered calls that comes to it from callers, 0..1; all parts make 1.
    pub share: f64,
    /// What it keeps of what it forwards.
    pub mode: Mode,
    /// Whether it is what the scenario is about: it meets overload as the variant says, at the
    /// costs of the scenario.
    pub under_test: bool,
    /// How it meets overload if it is not under test.
    pub overload: Overload,
    /// Its costs if it is not under test; without any it is as fast as can be.
    pub emulate: Option<Emulate>,
    /// How fast it does what it costs: at 0.5 all costs are double.
    pub speed: f64,
}

/// Where a server's calls go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// To the server at this place.
    Node(usize),
    /// To the answerers, in turn.
    Answerers,
}

/// What keeps `nodes` from being a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// A call would come back to the server at this place.
    Circle(usize),
    /// No call comes to the server at this place.
    Idle(usize),
    /// No server is under test.
    Untested,
}

impl Topology {
    /// One server before the answerers.
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
        };
        Self { nodes: vec![server] }
    }

    /// A balancer that callers send to, before servers of these speeds, which are under test.
    ///
    /// # Panics
    /// If there are none, or one has no speed.
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

    /// These servers, whose places are named in [`Node::to`]. At least one must have a share of
    /// the calls; shares are brought to a sum of 1.
    ///
    /// # Errors
    /// When they cannot be one.
    pub fn new(mut nodes: Vec<Node>) -> Result<Self, TopologyError> {
        let total: f64 = nodes.iter().map(|node| node.share).sum();
        nodes.iter_mut().for_each(|node| node.share /= total);
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

    /// The servers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Places of the servers to which callers send, with their parts of the calls.
    pub fn entries(&self) -> impl Iterator<Item = (usize, f64)> {
        let entry =
            |(place, node): (usize, &Node)| (node.share > 0.0).then_some((place, node.share));
        self.nodes.iter().enumerate().filter_map(entry)
    }

    /// The places in an order in which each comes behind those it sends to.
    pub fn downstream_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        for place in 0..self.nodes.len() {
            self.visit(place, &mut order);
        }
        order
    }

    /// The part of the offered calls that passes each server, if those who share calls get them in
    /// proportion to their speeds.
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

    /// Whether the server at `place` chooses among several others.
    pub fn balances(&self, place: usize) -> bool {
        self.nodes[place].to.iter().filter(|next| matches!(next, Next::Node(_))).count() > 1
    }

    /// The messages of a call that the server at `place` handles, if answerers send a 100 first
    /// where `trying` says so.
    pub fn messages(&self, place: usize, trying: bool) -> Vec<Class> {
        let mut messages = Vec::with_capacity(7);
        messages.push(Class::Invite);
        if self.hears_trying(place, trying) {
            messages.push(Class::Provisional);
        }
        messages.extend([Class::Provisional, Class::Final, Class::Ack, Class::Bye, Class::Final]);
        messages
    }

    /// The responses of a call that whoever sends to the server at `place` gets: a 100 if there is
    /// one, 180, 200, and the 200 to the BYE.
    pub fn responses_above(&self, place: usize, trying: bool) -> usize {
        let is_stateful = self.nodes[place].mode != Mode::Stateless;
        3 + usize::from(is_stateful || self.hears_trying(place, trying))
    }

    /// Whether a 100 comes to the server at `place`. It goes no further than one hop, but for
    /// servers without transactions, which forward it (RFC 3261 §16.11).
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

    /// A place from which a call can come back to it.
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

    /// Two servers before one, which shares with a third.
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
    fn what_is_no_topology_is_refused() {
        let mut round = tree();
        round[3].to = vec![Next::Node(1)];
        assert_eq!(Topology::new(round), Err(TopologyError::Circle(1)));
        let mut alone = tree();
        alone[1].to.pop();
        assert_eq!(Topology::new(alone), Err(TopologyError::Idle(3)));
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
