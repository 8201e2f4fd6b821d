//! A relay that carries packets between a target and its clients over simulated links.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde::Serialize;
use tidegate_world::{
    Buffer, Calendar, Core, Failure, Flow, Purpose, Received, Seed, Timestamp, Transmit,
};

use crate::channel::{Carried, Channel, on_the_wire};
use crate::link::{Link, Trip};
use crate::tap::Loss;

/// The addresses of a relay, and the links of its two directions.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Address for the clients.
    pub front: SocketAddr,
    /// Source addresses of packets to the target, one for each client, so that answers can be
    /// assigned to clients.
    pub backs: Vec<SocketAddr>,
    /// Address of the target.
    pub target: SocketAddr,
    /// The link from the clients to the target.
    pub towards: Link,
    /// The link from the target to the clients.
    pub back: Link,
    /// Maximum number of packets in flight, for both directions together. The relay drops further
    /// packets.
    pub packets_max: usize,
}

/// The packet counts of one direction of a [`Relay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Carriage {
    /// Packets received.
    pub received: u64,
    /// Packets that the link lost, or that it did not carry because it was cut.
    pub lost: u64,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Packets and copies that the relay dropped because too many were in flight or in the queue of
    /// the link.
    pub overflowed: u64,
    /// Packets and copies that overtook earlier ones.
    pub overtook: u64,
    /// Packets and copies that the relay sent to the other side.
    pub sent: u64,
}

/// The numbers of packets and clients of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounts {
    /// Counts of packets to the target.
    pub towards: Carriage,
    /// Counts of packets from the target.
    pub back: Carriage,
    /// Number of clients.
    pub clients: u64,
    /// Packets of clients that the relay dropped because it had no source address left for a new
    /// client.
    pub no_room: u64,
    /// Packets that the relay dropped because they belong to no client. These are packets from the
    /// target to `front`, packets to an address in `backs` from another sender than the target, and
    /// packets to such an address before it is in use.
    pub strays: u64,
    /// Packets that arrived while the relay was stopping.
    pub late: u64,
    /// Packets that the transport could not deliver.
    pub undelivered: u64,
}

/// A core that carries packets between one target and several clients over two [`Link`]s, in
/// simulated time or on real sockets.
///
/// The random outcome of a packet depends only on the seed and on the number of earlier packets in
/// its direction.
pub struct Relay {
    settings: RelaySettings,
    /// The clients, in the order of their first packets. The relay sends the packets of client `i`
    /// from the address `settings.backs[i]`.
    clients: Vec<SocketAddr>,
    channels: [Channel; 2],
    under_way: Calendar<(Direction, Transmit)>,
    out: VecDeque<Transmit>,
    counts: RelayCounts,
    draining: bool,
}

#[derive(Clone, Copy)]
enum Direction {
    Towards,
    Back,
}

impl Relay {
    /// Creates a relay without clients.
    pub fn new(settings: RelaySettings, seed: Seed) -> Self {
        let channels = [0, 1].map(|way| Channel::new(seed.stream(Purpose::Link, way)));
        Self {
            clients: Vec::with_capacity(settings.backs.len()),
            settings,
            channels,
            under_way: Calendar::new(),
            out: VecDeque::new(),
            counts: RelayCounts::default(),
            draining: false,
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &RelayCounts {
        &self.counts
    }

    /// Returns the direction of a packet, and the flow on which the relay sends it, or `None` if it
    /// is dropped.
    fn route(&mut self, flow: Flow) -> Option<(Direction, Flow)> {
        let RelaySettings { front, backs, target, .. } = &self.settings;
        if flow.local == *front && flow.remote != *target {
            let known = self.clients.iter().position(|client| *client == flow.remote);
            let client = known.unwrap_or(self.clients.len());
            let Some(&local) = backs.get(client) else {
                self.counts.no_room += 1;
                return None;
            };
            if known.is_none() {
                self.clients.push(flow.remote);
                self.counts.clients += 1;
            }
            return Some((Direction::Towards, Flow { local, remote: *target, ..flow }));
        }
        let client = backs.iter().position(|&back| back == flow.local && flow.remote == *target);
        let Some(&remote) = client.and_then(|client| self.clients.get(client)) else {
            self.counts.strays += 1;
            return None;
        };
        Some((Direction::Back, Flow { local: *front, remote, ..flow }))
    }

    fn carry(&mut self, direction: Direction, at: Timestamp, flow: Flow, bytes: Buffer) {
        let carriage = self.counts.carriage(direction);
        carriage.received += 1;
        let channel = &mut self.channels[direction as usize];
        let link = match direction {
            Direction::Towards => &self.settings.towards,
            Direction::Back => &self.settings.back,
        };
        let carried = channel.carry(link, at, on_the_wire(flow, bytes.len()));
        let Carried { first, copy } = match carried {
            Ok(carried) => carried,
            Err(Loss::Queue) => {
                carriage.overflowed += 1;
                return;
            }
            Err(_) => {
                carriage.lost += 1;
                return;
            }
        };
        if let Some(copy) = copy {
            carriage.duplicated += 1;
            self.send_off(direction, at, copy, flow, bytes.clone());
        }
        self.send_off(direction, at, first, flow, bytes);
    }

    fn send_off(
        &mut self,
        direction: Direction,
        at: Timestamp,
        trip: Trip,
        flow: Flow,
        bytes: Buffer,
    ) {
        let full = self.under_way.len() >= self.settings.packets_max;
        let carriage = self.counts.carriage(direction);
        if full {
            carriage.overflowed += 1;
            return;
        }
        carriage.overtook += u64::from(trip.overtakes);
        self.under_way.push(at + trip.after, (direction, Transmit::new(flow, bytes)));
    }

    /// Sends the packets that are due.
    fn deliver(&mut self, now: Timestamp) {
        while let Some((_, (direction, transmit))) = self.under_way.pop_by(now) {
            self.counts.carriage(direction).sent += 1;
            self.out.push_back(transmit);
        }
    }
}

impl RelayCounts {
    fn carriage(&mut self, direction: Direction) -> &mut Carriage {
        match direction {
            Direction::Towards => &mut self.towards,
            Direction::Back => &mut self.back,
        }
    }
}

impl Core for Relay {
    fn offer(&mut self, now: Timestamp, received: Received) {
        if self.draining {
            self.counts.late += 1;
        } else if let Some((direction, flow)) = self.route(received.flow) {
            self.carry(direction, received.arrived, flow, received.bytes);
        }
        self.deliver(now);
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.deliver(now);
    }

    fn on_failed(&mut self, _: Timestamp, _: Failure) {
        self.counts.undelivered += 1;
    }

    fn on_drain(&mut self, _: Timestamp) {
        self.draining = true;
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.under_way.next()
    }

    /// Returns whether no packet is in flight. A draining relay still delivers the packets in
    /// flight.
    fn is_drained(&self) -> bool {
        self.under_way.is_empty()
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
