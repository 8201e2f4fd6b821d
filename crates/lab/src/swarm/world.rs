//! Describes a world as a value.

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

/// Everything that determines a run. Nodes are numbered in this order: callers, proxies, answerers,
/// attackers, each kind in the order of its list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Seed of all draws during the run.
    pub seed: u64,
    /// The link between any two nodes.
    pub link: Link,
    /// Groups of callers, at least one.
    #[serde(rename = "caller")]
    pub callers: Vec<Crowd>,
    /// Proxies. Each layer up to the highest has at least one.
    #[serde(rename = "proxy")]
    pub proxies: Vec<Proxy>,
    /// Answerers, at least one.
    #[serde(rename = "answerer")]
    pub answerers: Vec<Server>,
    /// Attackers.
    #[serde(rename = "stranger", default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<Attacker>,
    /// The transports. If `None`, all messages are datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// The resolution of back-end names. If `None`, proxies know the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    /// Back ends that operators take out of service.
    #[serde(rename = "absence", default, skip_serializing_if = "Vec::is_empty")]
    pub absences: Vec<OutOfService>,
    /// Faults, in the order of time.
    #[serde(rename = "fault", default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Episode>,
}

/// The transports of the messages, and the parameters of the operating systems below the streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// True if streams are used from callers to the outer layer.
    pub outside: bool,
    /// True if streams are used from proxy to proxy.
    pub between: bool,
    /// True if streams are used from the inner layer to the answerers.
    pub inside: bool,
    /// Time to open a connection, in addition to the round trip.
    pub setup_ms: u64,
    /// Size of the send buffer: the number of bytes that the operating system accepts from a sender
    /// before it sends them.
    pub buffer: usize,
    /// Maximum number of bytes in flight, or unread at their receiver.
    pub window: usize,
}

/// The resolution of names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// Time to live of an answer of the resolver.
    pub ttl_s: u64,
    /// The behaviour of the resolver while it has no fault.
    pub resolution: Resolution,
}

/// A group of callers behind one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crowd {
    /// Index of the proxy that they call, among the proxies of the outer layer.
    pub to: usize,
    /// Rate in calls/s. The arrivals are a Poisson process.
    pub rate_cps: f64,
    /// Number of calls.
    pub calls: u32,
    /// Mean holding time of a call, where 0 means 1 ms. The times have an exponential distribution.
    #[serde(default)]
    pub hold_ms: u64,
    /// Mean patience of a caller. The times have an exponential distribution.
    pub patience_ms: u64,
    /// True if ACK and BYE follow the Record-Routes.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub follow_routes: bool,
}

/// A proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The proxy's layer, counted from 0. It sends to all proxies of the next layer. In the last
    /// layer it sends to all answerers.
    pub layer: usize,
    /// Keys of `[server]` with their numbers. Limits may be lower than a configuration allows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, u64>,
    /// Time in which a message gets from one shard to another, if there are several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub handoff_us: usize,
    /// Keys of `[[pool]]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<String, Setting>,
    /// Keys of `[pool.health]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub health: BTreeMap<String, Setting>,
    /// Number of back ends that are backups. They are the last ones in the list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub standby: usize,
    /// Keys of each `[[pool.backend]]` with their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// Keys of `[pool.limit]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub learning: BTreeMap<String, Setting>,
    /// Keys of `[overload]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overload: BTreeMap<String, Setting>,
    /// Keys of `[overload.params]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, f64>,
    /// Keys of `[overload.sources]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, Setting>,
    /// Keys of `[emulate]`. If empty, the proxy is infinitely fast.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub emulate: BTreeMap<String, u64>,
}

/// A value in a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Number(u64),
    /// A word.
    Word(String),
}

/// A server that answers calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Behaviours of the server, in the syntax of `tidegate load uas --mix`.
    pub mix: String,
    /// Mean ringing time of a call. The times have an exponential distribution.
    #[serde(default)]
    pub ring_ms: u64,
    /// Fraction of its answered calls that the server ends, 0 to 1.
    #[serde(default)]
    pub hangs_up: f64,
    /// Mean holding time of the calls that the server ends. The times have an exponential
    /// distribution.
    #[serde(default)]
    pub hold_ms: u64,
    /// Maximum number of calls in its table, or `None` for a table that never becomes full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<usize>,
}

/// The role and index of a node.
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
    /// Parses a world.
    ///
    /// # Errors
    /// Returns an error if the text does not describe a valid world.
    pub fn parse(text: &str) -> Result<Self, String> {
        let world: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        world.check()?;
        Ok(world)
    }

    /// Returns the world as the text of a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a world has no value that TOML lacks")
    }

    /// Returns the role of the node with the number `index`, and its index among the nodes of that
    /// role, or `None` if there is no such node.
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

    /// Returns the number of the node with this role and index.
    pub fn node(&self, place: Place) -> NodeId {
        let (callers, proxies) = (self.callers.len(), self.proxies.len());
        NodeId::new(match place {
            Place::Caller(index) => index,
            Place::Proxy(index) => callers + index,
            Place::Answerer(index) => callers + proxies + index,
            Place::Attacker(index) => self.parties() + index,
        })
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.parties() + self.strangers.len()
    }

    /// Returns the number of nodes without the attackers, which come last.
    pub fn parties(&self) -> usize {
        self.callers.len() + self.proxies.len() + self.answerers.len()
    }

    /// Returns the indices of the proxies of a layer.
    pub fn layer(&self, layer: usize) -> Vec<usize> {
        (0..self.proxies.len()).filter(|&index| self.proxies[index].layer == layer).collect()
    }

    /// Returns the nodes to which a proxy sends admitted requests.
    pub fn behind(&self, proxy: usize) -> Vec<Place> {
        let next = self.layer(self.proxies[proxy].layer + 1);
        match next.is_empty() {
            true => (0..self.answerers.len()).map(Place::Answerer).collect(),
            false => next.into_iter().map(Place::Proxy).collect(),
        }
    }

    /// Returns the transport between callers and the outer layer.
    pub fn outside(&self) -> Transport {
        self.transport(|streams| streams.outside)
    }

    /// Returns the transports of a proxy: towards the callers, then towards its back ends.
    pub fn transports(&self, proxy: usize) -> [Transport; 2] {
        let layer = self.proxies[proxy].layer;
        let ahead = if layer == 0 { self.outside() } else { self.transport(|s| s.between) };
        let behind = match self.layer(layer + 1).is_empty() {
            true => self.inside(),
            false => self.transport(|streams| streams.between),
        };
        [ahead, behind]
    }

    /// Returns the transport to the answerers.
    pub fn inside(&self) -> Transport {
        self.transport(|streams| streams.inside)
    }

    fn transport(&self, is_stream: impl Fn(&Streams) -> bool) -> Transport {
        match self.streams.as_ref().is_some_and(is_stream) {
            true => Transport::Tcp,
            false => Transport::Udp,
        }
    }

    /// Returns approximately how long calls are offered.
    pub fn offered_for(&self) -> Duration {
        let lasts = |crowd: &Crowd| f64::from(crowd.calls) / crowd.rate_cps;
        Duration::from_secs_f64(self.callers.iter().map(lasts).fold(0.0, f64::max))
    }

    /// Returns the pairs of nodes that exchange packets, without the attackers.
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

    /// Returns whether a fault is allowed in this world. Callers stay up, because calls are counted
    /// there.
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

    /// Returns whether the back end of `absence` exists, and the absence starts within a day and
    /// lasts at most a day.
    pub(super) fn can_lack(&self, absence: &OutOfService) -> bool {
        let OutOfService { proxy, behind, begins_ms, lasts_ms, .. } = *absence;
        let is_there = proxy < self.proxies.len() && behind < self.behind(proxy).len();
        is_there && begins_ms.max(lasts_ms) <= 86_400_000
    }

    /// Returns whether the attackers send only messages that cannot be verified, and so few that
    /// each proxy can drop them with a small part of its processor. Returns false if a proxy is not
    /// emulated or has a single queue, in which noise waits among all other messages.
    pub fn is_noisy(&self) -> bool {
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
    /// Returns the emulated time in microseconds that a message of [noise](Attack::Noise) takes on
    /// average while other messages wait. The proxy reads each message. An INFO, which is a quarter
    /// of the noise, counts as new work even if it has a To-tag. So the proxy also rejects it.
    pub(super) fn noise_us(&self) -> f64 {
        let cost_us = |key: &str| self.emulate.get(key).copied().unwrap_or_default() as f64;
        cost_us("offer_us") + cost_us("refuse_us") / 4.0
    }
}

/// The largest part of a processor that reading and rejecting noise may take.
pub(super) const NOISE_LOAD_MAX: f64 = 0.1;

/// Maximum number of nodes of a world.
const NODES_MAX: usize = 100;

impl Crowd {
    fn is_possible(&self) -> bool {
        (0.01..=1e6).contains(&self.rate_cps) && f64::from(self.calls) / self.rate_cps <= 86_400.0
    }
}

/// Returns the host name of a place.
pub fn host(place: Place) -> String {
    match place {
        Place::Caller(index) => format!("crowd-{index}.example"),
        Place::Proxy(index) => format!("proxy-{index}.example"),
        Place::Answerer(index) => format!("answerer-{index}.example"),
        Place::Attacker(index) => format!("stranger-{index}.example"),
    }
}

/// Returns the address of a place.
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
