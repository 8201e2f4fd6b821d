//! Settings of a proxy.

pub(crate) mod feedback;
pub(crate) mod health;
pub(crate) mod queries;
pub(crate) mod sources;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ::tidegate_control as control;
use ipnet::IpNet;
use tidegate_balance::{Pool, Values};
use tidegate_control::feedback::Algorithms;
use tidegate_control::{BanList, PriorityCap};
use tidegate_transaction::Timing;
use tidegate_world::{Seed, Transport, unit_enum};

use crate::keys::Secret;
use crate::message::class::Class;
use crate::pushback::next_hops::{NextHops, Obedience};
use feedback::FeedbackSettings;
use health::Health;
use queries::QueryLimits;
use sources::{BANS_MAX, SourceLimit, Sources};

/// Reference to a back end: the index of its pool, and its index in this pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BackendRef {
    pub(crate) pool: u16,
    pub(crate) backend: u16,
}

/// Number of times that names of back ends have resolved to new addresses. All shards of a process
/// share this count, so that each shard notices that it must reread the addresses.
#[derive(Clone, Debug, Default)]
pub struct Moves(pub(crate) Arc<AtomicU64>);

/// The order in which waiting messages are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// By class: messages that finish work come before messages that begin work.
    Class,
    /// All messages in one queue.
    Fifo,
}

/// Settings for the sample of rejections that each shard records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Maximum number of rejections recorded per second for each reason. 0 records none.
    pub per_second: u32,
    /// Number of rejections that are kept. The oldest is discarded when another one is recorded.
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
    /// Local address to which the socket of the listener is bound.
    pub local: SocketAddr,
    /// `host:port` by which others reach this listener, as in our Via and Record-Route.
    pub advertised: String,
    /// Further host names and IP addresses by which others reach this listener. A Route may name
    /// one of them.
    pub names: Vec<String>,
    /// Networks of trusted sources, which may send requests to addresses outside the pools.
    pub trust: Vec<IpNet>,
    /// Networks of further sources that are trusted to assert the identity of the caller (RFC
    /// 3325).
    pub trust_identity: Vec<IpNet>,
    /// True if other instances of the proxy listen at the same address. Requests to back ends then
    /// leave from a listener that is not shared, so that the responses return to this instance. But
    /// Record-Route names the shared listener, so later requests of a dialog may reach any
    /// instance.
    pub shared: bool,
}

impl Listener {
    /// Creates a listener over UDP that advertises the address it is bound to, without the scope of
    /// a link-local address.
    ///
    /// RFC 3261 §25.1: "IPv6reference = "[" IPv6address "]"". A scope means nothing outside this
    /// machine, and the grammar has no place for it.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            local,
            advertised: SocketAddr::new(local.ip(), local.port()).to_string(),
            names: Vec::new(),
            trust: Vec::new(),
            trust_identity: Vec::new(),
            shared: false,
        }
    }
}

/// Senders that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Any source except a back end. A request from a back end matches only rules with other
    /// [`Senders`].
    Any,
    /// Trusted sources and back ends.
    Trusted,
    /// Back ends of any pool.
    Pool,
    /// Sources in this network.
    Net(IpNet),
}

/// Destination of the requests that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// The pool at this index in the list of pools that comes with the rule, such as
    /// [`Settings::pools`].
    Pool(usize),
    /// The address in the Request-URI, for trusted sources and back ends only.
    RequestUri,
    /// The contacts of the user that the Request-URI names.
    Users,
}

/// A routing rule: one `[[route]]` of the configuration. The first rule that matches a new request
/// determines the destination of the request.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Senders that the rule applies to.
    pub from: Senders,
    /// Methods that the rule applies to, by name. An empty list means all methods.
    pub methods: Vec<String>,
    /// Hosts in the Request-URI that the rule applies to. An empty list means our own addresses and
    /// any name.
    pub domains: Vec<String>,
    /// Destination of the requests that match.
    pub to: RuleTarget,
}

impl Rule {
    /// Creates a rule for all methods, and for our own addresses and any name.
    pub fn new(from: Senders, to: RuleTarget) -> Self {
        Self { from, methods: Vec::new(), domains: Vec::new(), to }
    }
}

/// The treatment of new work that admission control does not admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// Rejects with a 503. If the 503 has a Retry-After, a client that serves many callers stops
    /// all its calls (RFC 3261 §21.5.4).
    Reject,
    /// Sends no response, so that the sender retransmits the request.
    Drop,
    /// Rejects with a 503, and changes to cheaper methods as needed to keep rejecting within
    /// [`Overload::rejecting_max`]. The second method is to pad the 503s to a few lengths, so that
    /// the kernel sends them in batches. The third method is that the kernel also drops as many
    /// INVITEs and REGISTERs as needed. Under a law that rejects nothing, only the first method is
    /// used.
    Auto,
    /// Rejects with a 503, while the kernel drops as many INVITEs and REGISTERs as needed to keep
    /// rejecting within [`Overload::rejecting_max`].
    Kernel,
}

/// Settings for the admission and queueing of new work.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// Settings of the gate: the law, its parameters, and the throttle.
    pub gate: control::Settings,
    /// The order in which waiting messages are served.
    pub queueing: Queueing,
    /// The treatment of messages that are not admitted.
    pub disposal: Disposal,
    /// True if overload control also decides on INVITEs within a call.
    pub reinvites: bool,
    /// Minimum and maximum of Retry-After in seconds, in the 503 to a message that is not admitted,
    /// or `None` for no Retry-After. The first is at most the second.
    pub retry_after: Option<(u32, u32)>,
    /// Size in bytes to which the 503 to a message that is not admitted is padded, at most
    /// [`PAD_MAX`](crate::PAD_MAX), or `None` for no padding.
    pub pad: Option<usize>,
    /// Maximum fraction of the processor time that rejecting may take, between 0 and 1, for
    /// [`Disposal::Auto`] and [`Disposal::Kernel`].
    pub rejecting_max: f64,
    /// The processor occupancy up to which all calls have transactions, above 0 and at most 1, for
    /// [`Mode::Adaptive`].
    pub stateful_max: f64,
    /// Settings that distinguish, limit and ban sources. The gate takes its limits and priorities
    /// from these settings.
    pub sources: Sources,
    /// Feedback to upstream peers.
    pub feedback: FeedbackSettings,
}

impl Overload {
    /// Returns the settings of the gate, including those for sources.
    pub(crate) fn gate(&self) -> control::Settings {
        let mut gate = self.gate.clone();
        gate.sources.limits = self.sources.limits.iter().map(SourceLimit::limit).collect();
        gate.sources.priority_cps =
            self.sources.priority.as_ref().map_or(0.0, |priority| priority.rate_cps);
        gate
    }
}

impl Default for Overload {
    /// Returns settings that admit everything and queue messages by class.
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
            rejecting_max: control::LadderSettings::default().budget,
            stateful_max: control::TierSettings::default().occupancy_max,
        }
    }
}

unit_enum! {
    /// The amount of state that the proxy keeps for forwarded requests. The configuration uses
    /// these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        /// No transactions (RFC 3261 §16.11). The proxy only remembers the back end selected for
        /// each call.
        Stateless = "stateless",
        /// A response context for each request (RFC 3261 §16).
        Transaction = "transaction",
        /// Transactions for some calls and none for the others, depending on the spare processor
        /// time.
        Adaptive = "adaptive",
    }
}

/// Selection of the back ends of a pool for a new request.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// One back end, by a policy and its parameters.
    One(Values),
    /// All back ends that are up, in parallel if they have the same q value, and in order of
    /// falling q values otherwise (RFC 3261 §16.6). Contains the q value of each back end, in
    /// thousandths.
    All(Vec<u16>),
}

/// The settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The back ends of the pool, shared with the other shards.
    pub pool: Pool,
    /// Selection of back ends for a new request.
    pub choice: Choice,
    /// The state that the proxy keeps for requests to the pool. Forking and failover require
    /// transactions.
    pub mode: Mode,
    /// Time without any response after which a new request counts as failed. An INVITE, a REGISTER
    /// and an OPTIONS then fail over to another back end.
    pub failover_after: Duration,
    /// Maximum number of back ends tried for one request, at most [`TRIES_MAX`].
    pub tries_max: u8,
    /// Detection of failed back ends.
    pub health: Health,
    /// Index of the backup pool, which takes over when no back end of this pool may get calls.
    pub backup: Option<u16>,
    /// Index of the listener from which requests to the pool leave. `None`: the routes of the
    /// machine determine the listener.
    pub listener: Option<usize>,
    /// Transport of requests to the pool. `None` means the transport of `listener`, or of the first
    /// listener if `listener` is `None`.
    pub transport: Option<Transport>,
    /// For each back end of the pool, in order, the networks from which it sends, besides its own
    /// address and port.
    pub sources: Vec<Vec<IpNet>>,
    /// The condition under which the proxy obeys the feedback of its back ends (RFC 7339).
    pub obedience: Obedience,
    /// True if requests to the pool that are too long for a datagram leave over TCP (RFC 3261
    /// §18.1.1).
    pub large_over_tcp: bool,
    /// The REGISTERs to the pool to which the proxy adds its Path.
    pub path: PathMode,
}

/// The REGISTERs to which the proxy adds its Path (RFC 3327).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMode {
    /// REGISTERs of user agents that support Path, and REGISTERs that come directly from a user
    /// agent and whose Contact has a `reg-id` and an instance ID (RFC 5626).
    #[default]
    Supported,
    /// All REGISTERs.
    Always,
    /// No REGISTER.
    Never,
}

/// A network, and the listener from which the kernel reaches it: the packets to this network have
/// the address of the listener as their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressRoute {
    /// The network to reach.
    pub to: IpNet,
    /// Index of the listener from which the network is reached.
    pub listener: usize,
}

impl PoolSettings {
    /// Creates a pool that selects one back end for each call by `policy`, with transactions.
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
            large_over_tcp: false,
            path: PathMode::default(),
        }
    }

    /// Returns the pool with the mode [`Mode::Stateless`].
    pub fn stateless(self) -> Self {
        Self { mode: Mode::Stateless, ..self }
    }
}

/// Maximum number of back ends tried for one request.
pub const TRIES_MAX: u8 = 8;

/// Maximum number of back ends of a pool that forks its requests to all of them.
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
    /// the listener that received it, if that listener can reach the target.
    pub egress_routes: Vec<EgressRoute>,
    /// Pools, shared with the other shards, and how back ends are selected from each.
    pub pools: Vec<PoolSettings>,
    /// Addresses of back ends that were removed from the configuration before the start. Dialogs
    /// with them may not have ended yet.
    pub removed: Vec<SocketAddr>,
    /// Time after the removal of a back end for which requests within its dialogs still reach it.
    /// For the back ends in `removed`, the time begins at the start of the process.
    pub removed_backend: Duration,
    /// Rules for new requests. The first rule that matches a request determines its destination.
    pub rules: Vec<Rule>,
    /// The secret from which keys are derived. All instances at our address have the same secret.
    pub secret: Secret,
    /// Admission and queueing of new work.
    pub overload: Overload,
    /// Banned sources, shared with the other shards.
    pub bans: BanList,
    /// The cap on calls with priority, shared with the other shards.
    pub priority_cap: PriorityCap,
    /// The count of address changes, shared with the other shards. A shard rereads the addresses of
    /// the back ends when the count has changed.
    pub moves: Moves,
    /// The overload restrictions that back ends have requested, shared with the other shards.
    pub next_hops: NextHops,
    /// Product name in the Server header of responses (RFC 3261 §20.35) and in the User-Agent
    /// header of probes. If empty, there is no such header field.
    pub name: String,
    /// Seed of all random values.
    pub seed: Seed,
    /// Seed of the previous process at the same address, if known. It is needed for cancelling
    /// requests that the previous process sent.
    pub before: Option<Seed>,
    /// Limits on the DNS queries of the process.
    pub queries: QueryLimits,
    /// Maximum number of entries in the call table of this shard.
    pub calls_max: usize,
    /// Maximum number of requests whose transactions this shard holds simultaneously.
    pub transactions_max: usize,
    /// Maximum number of bytes that the transactions of this shard use, with their messages.
    pub transaction_bytes_max: usize,
    /// The SIP timers T1, T2 and T4 over UDP.
    pub timing: Timing,
    /// Settings for the sample of rejections that operators can read.
    pub trace: TraceSettings,
    /// Maximum ratio of bytes sent to bytes received, for an address that has never shown that it
    /// receives anything, or 0 for no limit.
    pub amplification_max: u32,
    /// Maximum number of messages that wait in one queue.
    pub queue_max: usize,
    /// Maximum total size in bytes of waiting messages that are longer than an ordinary buffer
    /// ([`tidegate_world::SMALL`]). A long message that begins new work is queued only if the
    /// total, including this message, is at most half of this size.
    pub queue_bytes_max: usize,
    /// Time without a message after which an established call is forgotten.
    pub idle_max: Duration,
    /// Maximum delay of a timer. Timers are delayed so that several of them fire together.
    pub timer_slack: Duration,
    /// Time for which a back end that is not probed gets no new calls after a failed delivery.
    pub failure_pause: Duration,
    /// Unix time at which the clock of the driver started. Route tokens contain times based on it,
    /// so that other instances and later processes can determine their age.
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
            removed_backend: Duration::from_secs(10_800),
            pools,
            rules: vec![Rule::new(Senders::Any, RuleTarget::Pool(0))],
            secret,
            overload: Overload::default(),
            bans: BanList::new(BANS_MAX),
            priority_cap: PriorityCap::default(),
            moves: Moves::default(),
            next_hops: NextHops::new(Algorithms::ALL, Seed(0)),
            name: crate::message::reply::SERVER.to_owned(),
            seed: Seed(0),
            before: None,
            queries: QueryLimits::MAX,
            calls_max: 1_000_000,
            transactions_max: 10_000_000,
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
