//! A relay: what stands between a target and its clients, and loses packets.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tidegate_world::{
    Buffer, Calendar, Core, Failure, Flow, Purpose, Received, Seed, Timestamp, Transmit,
};

use crate::channel::{Carried, Channel, on_the_wire};
use crate::link::{Link, Trip};
use crate::tap::Loss;

/// Where a relay stands, and what becomes of the packets on both its sides.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Where clients send to and hear from.
    pub front: SocketAddr,
    /// Where packets to the target leave from: one for each client, so that what comes back
    /// is known to be for it.
    pub backs: Vec<SocketAddr>,
    /// Whom the clients mean.
    pub target: SocketAddr,
    /// The link from the clients to the target.
    pub towards: Link,
    /// The link from the target to the clients.
    pub back: Link,
    /// Packets under way at the same time, both ways together; one more is lost.
    pub packets_max: usize,
}

/// What a relay did on one of its ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carriage {
    /// Packets that came.
    pub received: u64,
    /// Of these, lost by the link, or by its being cut.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets and copies lost because too many were under way, or waited for the link.
    pub overflowed: u64,
    /// Packets and copies that overtook those before them.
    pub overtook: u64,
    /// Packets and copies sent on.
    pub sent: u64,
}

/// What a relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// To the target.
    pub towards: Carriage,
    /// From the target.
    pub back: Carriage,
    /// Clients heard.
    pub clients: u64,
    /// Packets of further clients, for whom there is no address left.
    pub no_room: u64,
    /// Packets to the back that are not the target's, or for nobody; packets of the target
    /// to the front.
    pub strays: u64,
    /// Packets that came while it stopped.
    pub late: u64,
    /// Packets that the transport could not deliver.
    pub undelivered: u64,
}

/// Two [`Link`]s with addresses: a core that carries packets between one target and several
/// clients, in simulated time or on real sockets.
///
/// The fate of a packet depends on the seed and on how many came the same way before it, and
/// on nothing else.
pub struct Relay {
    settings: RelaySettings,
    /// Whose each of the addresses at the back is.
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
    /// A relay that has heard nobody.
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

    /// What it has done so far.
    pub fn counts(&self) -> &RelayCounts {
        &self.counts
    }

    /// The way that a packet takes, and where it goes on; `None` if nowhere.
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

    /// Sends what has reached its time.
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

    fn serve(&mut self, _: Timestamp) -> bool {
        false
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

    /// What is under way arrives: it takes no longer than the slower link.
    fn is_drained(&self) -> bool {
        self.under_way.is_empty()
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
