//! A driver in simulated time: a network with a processor that takes no time.

use std::collections::VecDeque;

use tidegate_emulate::{Host, HostSettings};
use tidegate_proxy::Proxy;
use tidegate_sim::{Link, Network, NodeId, Tap};
use tidegate_world::{Core, Flow, Pool, Received, Seed, Timestamp, Transmit};

use super::{Arrival, Timed, Topology};

/// Gives the arrivals to `proxy`, and stops it at `end`. Returns its packets.
pub fn run(proxy: Proxy, topology: Topology, arrivals: &[Arrival], end: Timestamp) -> Timed {
    let mut peers: Vec<_> = arrivals.iter().map(|arrival| arrival.flow.remote).collect();
    peers.extend(topology.backends);
    peers.sort_unstable();
    peers.dedup();
    let player = Player {
        arrivals: arrivals.iter().cloned().collect(),
        due: VecDeque::new(),
        pool: Pool::new(),
    };
    let mut network: Network<Box<dyn Core>, Sent> =
        Network::new(Seed(0), Link::default(), Sent::default());
    let host = Host::new(proxy, &HostSettings::default());
    let node = network.add(&[topology.proxy], Box::new(host));
    network.tap_mut().of = Some(node);
    network.add(&peers, Box::new(player));
    network.run_until(end);
    network.drain(node);
    let (_, sent) = network.into_parts();
    sent.packets
}

/// The packets of one node.
#[derive(Default)]
struct Sent {
    of: Option<NodeId>,
    packets: Timed,
}

impl Tap for Sent {
    fn sent(&mut self, now: Timestamp, from: NodeId, flow: Flow, bytes: &[u8]) {
        if self.of == Some(from) {
            self.packets.push((now, flow, bytes.to_vec()));
        }
    }
}

/// A node that plays all peers. It sends their packets at the recorded times, and ignores all
/// packets that it receives.
struct Player {
    arrivals: VecDeque<Arrival>,
    due: VecDeque<Transmit>,
    pool: Pool,
}

impl Core for Player {
    fn offer(&mut self, _: Timestamp, _: Received) {}

    fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(Arrival { flow, bytes, .. }) =
            self.arrivals.pop_front_if(|arrival| arrival.at <= now)
        {
            let flow = Flow { local: flow.remote, remote: flow.local, ..flow };
            self.due.push_back(Transmit::new(flow, self.pool.copy(&bytes)));
        }
    }

    fn on_drain(&mut self, _: Timestamp) {}

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.due.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.arrivals.front().map(|arrival| arrival.at)
    }

    fn is_drained(&self) -> bool {
        self.arrivals.is_empty()
    }
}
