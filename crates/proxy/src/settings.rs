//! Settings of a proxy.

pub(crate) mod feedback;
pub(crate) mod health;
pub(crate) mod sources;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ::tidegate_control as control;
use ipnet::IpNet;
use tidegate_balance::{Pool, Values};
use tidegate_control::BanList;
use tidegate_control::feedback::Algorithms;
use tidegate_transaction::Timing;
use tidegate_world::{Seed, Transport};

use crate::keys::Secret;
use crate::message::class::Class;
use crate::pushback::next_hops::{NextHops, Obedience};
use feedback::FeedbackSettings;
use health::Health;
use sources::{BANS_MAX, SourceLimit, Sources};

/// Reference to a back end of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BackendRef {
    pub(crate) pool: u16,
    pub(crate) backend: u16,
}

/// Number of times that names of back ends have resolved to new addresses. All shards of a process
/// share one, so that each learns that it must reread the addresses.
#[derive(Clone, Debug, Default)]
pub struct Moves(pub(crate) Arc<AtomicU64>);

/// Queueing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// By class: messages that finish work before those that begin it.
    Class,
    /// All messages in one queue.
    Fifo,
}

/// Sampling of rejections by each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Rejections per second and reason; 0 for none.
    pub per_second: u32,
    /// Number of rejections kept, the latest ones.
    pub kept: usize,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { per_second: 5, kept: 256 }
    }
}

/// An address where requests arrive.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Transport of the messages.
    pub transport: Transport,
    /// Address its socket is bound to.
    pub local: SocketAddr,
    /// `host:port` by which others reach it, as in our Via and Record-Route.
    pub advertised: String,
    /// Sources that may use us to reach addresses outside the pools.
    pub trust: Vec<IpNet>,
    /// Further sources that are trusted to name the caller, RFC 3325.
    pub trust_identity: Vec<IpNet>,
    /// Whether other instances share the address. Then requests go to back ends from a listener
    /// that they do not share, so that the responses come back to this instance; requests within
    /// the dialog come to the shared one, and may reach any instance.
    pub shared: bool,
}

impl Listener {
    /// Creates a listener over UDP that advertises the address it is bound to.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            local,
            advertised: local.to_string(),
            trust: Vec::new(),
            trust_identity: Vec::new(),
            shared: false,
        }
    }
}

/// Senders that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Anybody except members of a pool: requests of a back end lead outward, unless a rule for
    /// pools says otherwise.
    Any,
    /// Trusted sources and pool members.
    Trusted,
    /// Members of a pool.
    Pool,
    /// Sources in a network.
    Net(IpNet),
}

/// Destination of the requests that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// The pool at this index.
    Pool(usize),
    /// The address in the Request-URI; for trusted sources and pool members only.
    RequestUri,
    /// The contacts of the user that the Request-URI names.
    Users,
}

/// One `[[route]]`: the first that matches a new request decides.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Senders it applies to.
    pub from: Senders,
    /// Methods it applies to, by name; all if empty.
    pub methods: Vec<String>,
    /// Hosts of the Request-URI it applies to; if empty, our own addresses and any name.
    pub domains: Vec<String>,
    /// Destination.
    pub to: RuleTarget,
}

/// Disposal of new work that is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// By a 503. If it has a Retry-After, that stops all calls of a client that serves many callers
    /// (RFC 3261 §21.5.4).
    Reject,
    /// By no response: the sender retransmits the request.
    Drop,
    /// By the cheapest of these that keeps rejecting within [`Overload::refusing_max`]: a 503, 503s of one
    /// length, and these while the kernel drops as many of the new INVITEs as needed. Under a law that
    /// rejects nothing, by a 503.
    Auto,
    /// By a 503, while the kernel drops as many of the new INVITEs as needed to keep that within
    /// [`Overload::refusing_max`].
    Kernel,
}

/// Admission and queueing of new work.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// Settings of the gate: law, throttle, and evaluation interval.
    pub gate: control::Settings,
    /// Queueing of messages.
    pub queueing: Queueing,
    /// Disposal of messages that are not admitted.
    pub disposal: Disposal,
    /// Whether INVITEs within a call are decided on like those that begin one.
    pub reinvites: bool,
    /// Minimum and maximum of Retry-After in seconds, in a 503 to a message that is not admitted;
    /// `None` for none. The first is at most the second.
    pub retry_after: Option<(u32, u32)>,
    /// Size in bytes to which the 503 to a message that is not admitted is padded, at most
    /// [`PAD_MAX`](crate::PAD_MAX); `None` for no padding.
    pub pad: Option<usize>,
    /// With [`Disposal::Auto`] and [`Disposal::Kernel`], the fraction of the processor that rejecting may take, 0 to 1
    /// exclusive.
    pub refusing_max: f64,
    /// With [`Mode::Adaptive`], the occupancy up to which all calls have transactions, above 0 and
    /// at most 1.
    pub stateful_max: f64,
    /// Distinction of sources. The gate gets limits and priorities from here.
    pub sources: Sources,
    /// Feedback to upstream peers.
    pub feedback: FeedbackSettings,
}

impl Overload {
    /// Returns the settings of the gate, with what it needs to know of sources.
    pub(crate) fn gate(&self) -> control::Settings {
        let mut gate = self.gate.clone();
        gate.sources.limits = self.sources.limits.iter().map(SourceLimit::limit).collect();
        gate.sources.priority_cps =
            self.sources.priority.as_ref().map_or(0.0, |priority| priority.rate_cps);
        gate
    }
}

impl Default for Overload {
    /// Admits everything, queued by class.
    fn default() -> Self {
        let none = control::registry::find("none").expect("it is registered");
        Self {
            gate: control::Settings {
                sessions: control::Estimation {
                    end: Some(Class::Bye as u8),
                    ..control::Estimation::default()
                },
                ..control::Settings::new(none.defaults())
            },
            queueing: Queueing::Class,
            disposal: Disposal::Reject,
            reinvites: false,
            retry_after: None,
            pad: None,
            sources: Sources::default(),
            feedback: FeedbackSettings::default(),
            refusing_max: control::LadderSettings::default().budget,
            stateful_max: control::TierSettings::default().occupancy_max,
        }
    }
}

/// State that is kept of forwarded requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No transactions, RFC 3261 §16.11; the selection for each call is remembered.
    Stateless,
    /// A response context for each request, RFC 3261 §16.
    Transaction,
    /// Either of these for each call, depending on the spare processor time.
    Adaptive,
}

impl Mode {
    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Transaction => "transaction",
            Self::Adaptive => "adaptive",
        }
    }
}

/// Selection of the back ends of a pool for a new request.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// One back end, by a policy and its parameters.
    One(Values),
    /// All back ends that are up: those of the highest `q` at once, then those of the next (RFC
    /// 3261 §16.6). Contains the `q` of each back end, in thousandths.
    All(Vec<u16>),
}

/// A pool, and how it is used.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Its back ends, shared with the other shards.
    pub pool: Pool,
    /// Selection of back ends for a new request.
    pub choice: Choice,
    /// State that is kept of its requests. Several targets, or another one after the first, require
    /// transactions.
    pub mode: Mode,
    /// Time without any response to a new request after which its back end is given up, and the
    /// request goes to another.
    pub failover_after: Duration,
    /// Maximum number of back ends tried for one request, at most [`TRIES_MAX`].
    pub tries_max: u8,
    /// Detection of failed back ends.
    pub health: Health,
    /// Index of the pool that takes over when none of its back ends may be given calls.
    pub backup: Option<u16>,
    /// Index of the listener from which requests go to its back ends; `None` for the routes of this
    /// machine. Without a `transport`, theirs is that of the listener, or of the first one.
    pub listener: Option<usize>,
    /// Transport of requests to its back ends; `None` for that of `listener`.
    pub transport: Option<Transport>,
    /// Networks from which each back end sends, in addition to its own address and port, in the
    /// order of the back ends.
    pub sources: Vec<Vec<IpNet>>,
    /// When the feedback of its back ends (RFC 7339) is obeyed.
    pub obedience: Obedience,
    /// The REGISTERs to its back ends that get our Path.
    pub path: PathMode,
}

/// The REGISTERs that get our Path (RFC 3327).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMode {
    /// REGISTERs of user agents that support it.
    #[default]
    Supported,
    /// All REGISTERs.
    Always,
    /// No REGISTER.
    Never,
}

/// A network, and the listener that has the source address which the kernel uses to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressRoute {
    /// The network.
    pub to: IpNet,
    /// Index of the listener.
    pub listener: usize,
}

impl PoolSettings {
    /// Creates a pool with one back end for each call, selected by `policy`, and with transactions.
    pub fn new(pool: Pool, policy: impl Into<Values>) -> Self {
        Self {
            pool,
            choice: Choice::One(policy.into()),
            mode: Mode::Transaction,
            failover_after: Duration::from_secs(4),
            tries_max: 3,
            health: Health::default(),
            backup: None,
            listener: None,
            transport: None,
            sources: Vec::new(),
            obedience: Obedience::default(),
            path: PathMode::default(),
        }
    }

    /// Removes the transactions.
    pub fn stateless(self) -> Self {
        Self { mode: Mode::Stateless, ..self }
    }
}

/// Maximum number of back ends tried for one request.
pub const TRIES_MAX: u8 = 8;

/// Maximum number of back ends of a pool whose requests go to all of them.
pub const FORK_MAX: usize = 32;

/// Settings of one shard of a proxy.
#[derive(Clone)]
pub struct Settings {
    /// Index of this shard.
    pub shard: u16,
    /// Number of shards, at most [`SHARDS_MAX`](crate::SHARDS_MAX).
    pub shards: u16,
    /// Listeners, at most [`LISTENERS_MAX`](crate::LISTENERS_MAX).
    pub listeners: Vec<Listener>,
    /// Networks that each listener reaches, the longest prefix first. If empty, a request leaves by
    /// the listener that received it, if that reaches its target.
    pub egress_routes: Vec<EgressRoute>,
    /// Pools, shared with the other shards, and how back ends are selected from each.
    pub pools: Vec<PoolSettings>,
    /// Addresses of back ends that were removed from the configuration before the start and may
    /// still have dialogs.
    pub removed: Vec<SocketAddr>,
    /// Rules for new requests; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Secret of our address.
    pub secret: Secret,
    /// Admission and queueing of new work.
    pub overload: Overload,
    /// Banned sources, shared with the other shards.
    pub bans: BanList,
    /// Notification of back ends whose names resolve to new addresses, shared with the other
    /// shards.
    pub moves: Moves,
    /// Restrictions that back ends have asked for, shared with the other shards.
    pub next_hops: NextHops,
    /// Product name in Server of its responses (RFC 3261 §20.35) and in User-Agent of its probes;
    /// no such header field if empty.
    pub name: String,
    /// Seed of all random values.
    pub seed: Seed,
    /// Seed of the previous process at the same address, if known: the requests that it sent can be
    /// cancelled.
    pub before: Option<Seed>,
    /// Maximum number of simultaneous calls of this shard.
    pub calls_max: usize,
    /// Maximum number of requests whose transactions this shard holds simultaneously.
    pub transactions_max: usize,
    /// Maximum number of bytes of those and their messages.
    pub transaction_bytes_max: usize,
    /// T1, T2 and T4 over UDP.
    pub timing: Timing,
    /// Sampling of rejections for operators.
    pub trace: TraceSettings,
    /// Maximum ratio of bytes sent to bytes received, for an address that has never shown that it
    /// receives anything; 0 for no limit.
    pub amplification_max: u32,
    /// Maximum number of messages that wait in one queue.
    pub queue_max: usize,
    /// Maximum bytes of the buffers of waiting messages that are longer than an ordinary buffer
    /// ([`tidegate_world::SMALL`]); new work may take half of it.
    pub queue_bytes_max: usize,
    /// Time without a message after which an established call is forgotten.
    pub idle_max: Duration,
    /// Maximum delay of a timer, so that several fire together.
    pub timer_slack: Duration,
    /// Time for which a back end with a failed delivery gets no new calls.
    pub failure_pause: Duration,
    /// Unix time when the driver's clock began: it determines the age of route tokens, also for
    /// other instances and later processes.
    pub start: Duration,
}

impl Settings {
    /// Returns defaults for everything except the listeners and the pools: all new requests go to
    /// the first pool.
    pub fn new(listeners: Vec<Listener>, pools: Vec<PoolSettings>, secret: Secret) -> Self {
        Self {
            shard: 0,
            shards: 1,
            listeners,
            egress_routes: Vec::new(),
            removed: Vec::new(),
            pools,
            rules: vec![Rule {
                from: Senders::Any,
                methods: Vec::new(),
                domains: Vec::new(),
                to: RuleTarget::Pool(0),
            }],
            secret,
            overload: Overload::default(),
            bans: BanList::new(BANS_MAX),
            moves: Moves::default(),
            next_hops: NextHops::new(Algorithms::STANDARD, Seed(0)),
            name: crate::message::reply::SERVER.to_owned(),
            seed: Seed(0),
            before: None,
            calls_max: 1_000_000,
            transactions_max: 1_000_000,
            transaction_bytes_max: 1 << 30,
            timing: Timing::default(),
            trace: TraceSettings::default(),
            amplification_max: 3,
            queue_max: 4096,
            queue_bytes_max: 256 << 20,
            idle_max: Duration::from_secs(3 * 3600),
            timer_slack: Duration::from_millis(10),
            failure_pause: Duration::from_secs(5),
            start: Duration::ZERO,
        }
    }
}
