//! Describes a world: the nodes, the network and the faults of a random test.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_sim::fault::{Episode, Trouble};
use tidegate_sim::{Link, NodeId, Resolution};
use tidegate_world::Transport;

use super::attacker::{Attack, Attacker, Source};
use super::out_of_service::OutOfService;

/// Everything that determines the run of a random test. Nodes are numbered in this order: callers,
/// proxies, answerers, attackers. Within each kind, they have the order of their list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Seed of all random draws during the run.
    pub seed: u64,
    /// Properties of the link between any two nodes.
    pub link: Link,
    /// Groups of callers, at least one.
    #[serde(rename = "caller")]
    pub callers: Vec<Crowd>,
    /// The proxies. Each layer from 0 to the highest layer in use has at least one.
    #[serde(rename = "proxy")]
    pub proxies: Vec<Proxy>,
    /// Answerers, at least one.
    #[serde(rename = "answerer")]
    pub answerers: Vec<Server>,
    #[serde(rename = "stranger", default, skip_serializing_if = "Vec::is_empty")]
    /// The nodes that attack the proxies.
    pub strangers: Vec<Attacker>,
    /// The links on which messages travel over TCP. `None` means that all messages travel over UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// The resolution of the host names of back ends. `None` means that proxies know the IP
    /// addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    /// Times in which operators take back ends out of service.
    #[serde(rename = "absence", default, skip_serializing_if = "Vec::is_empty")]
    pub absences: Vec<OutOfService>,
    /// Faults, in the order of time.
    #[serde(rename = "fault", default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Episode>,
}

/// The links on which messages travel over streams (TCP), and the properties of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// True if messages between callers and the outer layer of proxies travel over TCP.
    pub outside: bool,
    /// True if messages from proxy to proxy travel over TCP.
    pub between: bool,
    /// True if messages between the inner layer of proxies and the answerers travel over TCP.
    pub inside: bool,
    /// Time to open a connection in ms, in addition to the round-trip time.
    pub setup_ms: u64,
    /// Size of the send buffer in bytes: the operating system accepts this number of bytes before
    /// it has sent them.
    pub buffer: usize,
    /// Maximum number of bytes of a connection that are in flight, or that the receiver has not
    /// read.
    pub window: usize,
}

/// The resolution of host names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// Time to live of a DNS answer, in seconds.
    pub ttl_s: u64,
    /// The behaviour of the resolver outside the time of a fault.
    pub resolution: Resolution,
}

/// A group of callers that share one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crowd {
    /// Index of the called proxy, among the proxies of the outer layer.
    pub to: usize,
    /// Rate of the calls in calls/s. Calls arrive as a Poisson process.
    pub rate_cps: f64,
    /// Number of calls that the group makes.
    pub calls: u32,
    /// Mean holding time of a call in ms, exponentially distributed. 0 means 1 ms.
    #[serde(default)]
    pub hold_ms: u64,
    /// Mean time in ms after which a caller gives up if the call is not answered, exponentially
    /// distributed.
    pub patience_ms: u64,
    /// True if ACKs and BYEs follow the Record-Route set.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub follow_routes: bool,
}

/// A proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The proxy's layer, counted from 0. A proxy sends to all proxies of the next layer. A proxy
    /// in the last layer sends to all answerers.
    pub layer: usize,
    /// Keys of `[server]` with their values. Limits may be lower than a configuration file allows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, u64>,
    /// Time in µs that a message takes from one shard of the proxy to another.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub handoff_us: usize,
    /// Keys of `[[pool]]` with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<String, Setting>,
    /// Keys of `[pool.health]` with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub health: BTreeMap<String, Setting>,
    /// Number of backup back ends. They are at the end of the list of back ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub standby: usize,
    /// Keys of `[[pool.backend]]` with their values, the same for each back end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// Keys of `[pool.limit]` with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub learning: BTreeMap<String, Setting>,
    /// Keys of `[overload]` with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overload: BTreeMap<String, Setting>,
    /// Keys of `[overload.params]` with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, f64>,
    /// Keys of `[overload.sources]` with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, Setting>,
    /// Keys of `[emulate]` with their values. If empty, processing takes no time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub emulate: BTreeMap<String, u64>,
}

/// The value of a key in a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Number(u64),
    /// A text in quotation marks.
    Word(String),
}

/// An answerer: a server that answers calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The behaviours of the server and their frequencies, in the syntax of `tidegate load uas
    /// --mix`.
    pub mix: String,
    /// Mean ringing time of a call in ms, exponentially distributed.
    #[serde(default)]
    pub ring_ms: u64,
    /// Fraction of the answered calls that the server ends, 0 to 1. The caller ends the others.
    #[serde(default)]
    pub hangs_up: f64,
    /// Mean holding time in ms of the calls that the server ends, exponentially distributed.
    #[serde(default)]
    pub hold_ms: u64,
    /// Maximum number of calls in the server's table. `None` means a table that never becomes full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<usize>,
}

/// The kind of a node, with its index among the nodes of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A group of callers.
    Caller(usize),
    /// A proxy.
    Proxy(usize),
    /// An answerer.
    Answerer(usize),
    /// An attacker.
    Attacker(usize),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => write!(f, "\"{word}\""),
        }
    }
}

impl World {
    /// Parses the text of a world file.
    ///
    /// # Errors
    /// Returns an error if the text does not describe a valid world.
    pub fn parse(text: &str) -> Result<Self, String> {
        let world: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        world.check()?;
        Ok(world)
    }

    /// Returns the world as the text of a world file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a world has no value that TOML lacks")
    }

    /// Returns the kind of the node with the number `index`, and its index among the nodes of this
    /// kind. Returns `None` if there is no such node.
    pub fn place(&self, index: usize) -> Option<Place> {
        let (callers, proxies) = (self.callers.len(), self.proxies.len());
        let parties = self.parties();
        match index {
            _ if index < callers => Some(Place::Caller(index)),
            _ if index < callers + proxies => Some(Place::Proxy(index - callers)),
            _ if index < parties => Some(Place::Answerer(index - callers - proxies)),
            _ if index < self.nodes() => Some(Place::Attacker(index - parties)),
            _ => None,
        }
    }

    /// Returns the number of the node `place` among all nodes of the world.
    pub fn node(&self, place: Place) -> NodeId {
        let (callers, proxies) = (self.callers.len(), self.proxies.len());
        NodeId::new(match place {
            Place::Caller(index) => index,
            Place::Proxy(index) => callers + index,
            Place::Answerer(index) => callers + proxies + index,
            Place::Attacker(index) => self.parties() + index,
        })
    }

    /// Returns the number of nodes of the world.
    pub fn nodes(&self) -> usize {
        self.parties() + self.strangers.len()
    }

    /// Returns the number of nodes that are not attackers. These nodes have the lowest numbers.
    pub fn parties(&self) -> usize {
        self.callers.len() + self.proxies.len() + self.answerers.len()
    }

    /// Returns the indices of the proxies in the layer `layer`.
    pub fn layer(&self, layer: usize) -> Vec<usize> {
        (0..self.proxies.len()).filter(|&index| self.proxies[index].layer == layer).collect()
    }

    /// Returns the nodes to which the proxy with the index `proxy` forwards requests.
    pub fn behind(&self, proxy: usize) -> Vec<Place> {
        let next = self.layer(self.proxies[proxy].layer + 1);
        match next.is_empty() {
            true => (0..self.answerers.len()).map(Place::Answerer).collect(),
            false => next.into_iter().map(Place::Proxy).collect(),
        }
    }

    /// Returns the transport between callers and the outer layer of proxies.
    pub fn outside(&self) -> Transport {
        self.transport(|streams| streams.outside)
    }

    /// Returns the two transports of a proxy: towards the callers, and towards its back ends.
    pub fn transports(&self, proxy: usize) -> [Transport; 2] {
        let layer = self.proxies[proxy].layer;
        let ahead = if layer == 0 { self.outside() } else { self.transport(|s| s.between) };
        let behind = match self.layer(layer + 1).is_empty() {
            true => self.inside(),
            false => self.transport(|streams| streams.between),
        };
        [ahead, behind]
    }

    /// Returns the transport between the inner layer of proxies and the answerers.
    pub fn inside(&self) -> Transport {
        self.transport(|streams| streams.inside)
    }

    fn transport(&self, is_stream: impl Fn(&Streams) -> bool) -> Transport {
        match self.streams.as_ref().is_some_and(is_stream) {
            true => Transport::Tcp,
            false => Transport::Udp,
        }
    }

    /// Returns the expected time from the first to the last offered call.
    pub(crate) fn offered_for(&self) -> Duration {
        let lasts = |crowd: &Crowd| f64::from(crowd.calls) / crowd.rate_cps;
        Duration::from_secs_f64(self.callers.iter().map(lasts).fold(0.0, f64::max))
    }

    /// Returns the pairs of nodes that exchange packets, apart from attackers.
    pub fn neighbours(&self) -> Vec<(NodeId, NodeId)> {
        let doors = self.layer(0);
        let callers = self.callers.iter().enumerate();
        let called = callers.map(|(at, crowd)| (Place::Caller(at), Place::Proxy(doors[crowd.to])));
        let proxies = 0..self.proxies.len();
        let asked = proxies.flat_map(|proxy| {
            self.behind(proxy).into_iter().map(move |place| (Place::Proxy(proxy), place))
        });
        called.chain(asked).map(|(a, b)| (self.node(a), self.node(b))).collect()
    }

    /// Returns whether the world may have the fault `trouble`. Callers must not crash, because they
    /// count the calls.
    fn can_have(&self, trouble: &Trouble) -> bool {
        let is_there = |node: NodeId| self.place(node.index()).is_some();
        let is_server = |node: NodeId| {
            matches!(self.place(node.index()), Some(Place::Proxy(_) | Place::Answerer(_)))
        };
        match *trouble {
            Trouble::Crash { node, .. } | Trouble::Stall { node } => is_server(node),
            Trouble::ReadSlowly { node, .. } => is_there(node),
            Trouble::Partition { a, b } | Trouble::Reset { a, b } => is_there(a) && is_there(b),
            Trouble::Impair { from, to, .. } | Trouble::Sever { from, to } => {
                is_there(from) && is_there(to)
            }
            Trouble::Resolver { .. } => self.names.is_some(),
        }
    }

    /// Returns whether `absence` is possible in this world: its back end exists, it begins within
    /// the first day, and it lasts at most a day.
    pub(super) fn can_lack(&self, absence: &OutOfService) -> bool {
        let OutOfService { proxy, behind, begins_ms, lasts_ms, .. } = *absence;
        let is_there = proxy < self.proxies.len() && behind < self.behind(proxy).len();
        is_there && begins_ms.max(lasts_ms) <= 86_400_000
    }

    /// Returns whether the attackers only send noise (messages that belong to no call), at a rate
    /// that each proxy can drop with a small part of its processor time. Returns `false` if a proxy
    /// has no emulated costs, or has a single queue, in which noise is not separated from other
    /// messages.
    pub(crate) fn is_noisy(&self) -> bool {
        let only_noise = self.strangers.iter().all(|s| s.attack == Attack::Noise);
        let is_bearable = |proxy: &Proxy| {
            let rate_pps: f64 = self.strangers.iter().map(|stranger| stranger.rate_pps).sum();
            let has_classes = proxy.overload.get("queue") != Some(&Setting::Word("fifo".into()));
            !proxy.emulate.is_empty()
                && has_classes
                && rate_pps * proxy.noise_us() / 1e6 <= NOISE_LOAD_MAX
        };
        only_noise && !self.strangers.is_empty() && self.proxies.iter().all(is_bearable)
    }

    fn can_have_stranger(&self, stranger: &Attacker) -> bool {
        let has_crowd = |source| match source {
            Source::Crowd(index) => index < self.callers.len(),
            Source::Own | Source::Nobody => true,
        };
        stranger.is_possible() && stranger.to < self.layer(0).len() && has_crowd(stranger.source)
    }

    fn check(&self) -> Result<(), String> {
        let layers = self.proxies.iter().map(|proxy| proxy.layer).max().map_or(0, |top| top + 1);
        let wrong = match self {
            _ if self.callers.is_empty() || self.answerers.is_empty() => {
                "there are no callers, or no answerers"
            }
            _ if layers == 0 => "there is no proxy",
            _ if (0..layers).any(|layer| self.layer(layer).is_empty()) => "a layer is empty",
            _ if self.nodes() > NODES_MAX => "there are more than 100 nodes",
            _ if self.callers.iter().any(|crowd| crowd.to >= self.layer(0).len()) => {
                "a group of callers calls a proxy that is not in the outer layer"
            }
            _ if !self.callers.iter().all(Crowd::is_possible) => {
                "a group of callers has a rate outside 0.01 to 1,000,000 calls/s, or calls for \
                 more than a day"
            }
            _ if self.faults.iter().any(|episode| !self.can_have(&episode.trouble)) => {
                "a fault names a node that does not exist, or crashes a group of callers"
            }
            _ if !self.strangers.iter().all(|stranger| self.can_have_stranger(stranger)) => {
                "an attacker has a value outside its limits, or names a node that does not exist"
            }
            _ if !self.absences.iter().all(|absence| self.can_lack(absence)) => {
                "an absence names a back end that does not exist, starts after more than a day, or \
                 lasts more than a day"
            }
            _ => return Ok(()),
        };
        Err(wrong.to_owned())
    }
}

impl Proxy {
    /// Returns the average emulated time in µs that a message of [noise](Attack::Noise) takes while
    /// other messages wait. The proxy reads each message. It also rejects a quarter of the
    /// messages, the INFOs, because an INFO counts as new work even if it has a To-tag.
    pub(super) fn noise_us(&self) -> f64 {
        let cost_us = |key: &str| self.emulate.get(key).copied().unwrap_or_default() as f64;
        cost_us("offer_us") + cost_us("reject_us") / 4.0
    }
}

/// The largest fraction of a processor that reading and rejecting noise may take.
pub(super) const NOISE_LOAD_MAX: f64 = 0.1;

/// Maximum number of nodes of a world.
const NODES_MAX: usize = 100;

impl Crowd {
    fn is_possible(&self) -> bool {
        (0.01..=1e6).contains(&self.rate_cps) && f64::from(self.calls) / self.rate_cps <= 86_400.0
    }
}

/// Returns the host name of the node `place`.
pub fn host(place: Place) -> String {
    match place {
        Place::Caller(index) => format!("crowd-{index}.example"),
        Place::Proxy(index) => format!("proxy-{index}.example"),
        Place::Answerer(index) => format!("answerer-{index}.example"),
        Place::Attacker(index) => format!("stranger-{index}.example"),
    }
}

/// Returns the address of the node `place`.
pub fn address(place: Place) -> SocketAddr {
    let (net, host) = match place {
        Place::Caller(index) => (0, index),
        Place::Proxy(index) => (1, index),
        Place::Answerer(index) => (2, index),
        Place::Attacker(index) => (3, index),
    };
    SocketAddr::from((Ipv4Addr::new(10, 0, net, host as u8 + 1), 5060))
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_yes(flag: &bool) -> bool {
    *flag
}
