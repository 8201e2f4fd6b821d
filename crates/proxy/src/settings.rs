//! The settings of a proxy.

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
use tidegate_transaction::Timing;
use tidegate_world::{Seed, Transport};

use crate::keys::Secret;
use crate::message::class::Class;
use health::Health;
use sources::{BANS_MAX, SourceLimit, Sources};

/// Which back end of which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BackendRef {
    pub(crate) pool: u16,
    pub(crate) backend: u16,
}

/// How often names of back ends have come to lead elsewhere. All shards of a process share one,
/// so that each learns that it must look again.
#[derive(Clone, Debug, Default)]
pub struct Moves(pub(crate) Arc<AtomicU64>);

/// How messages wait for service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// By class: what finishes work before what begins it.
    Class,
    /// All in one queue.
    Fifo,
}

/// How much of what is refused is kept, by each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// RejectionLog a second of each reason; 0: none.
    pub per_second: u32,
    /// RejectionLog kept, the latest.
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
    /// The transport of what arrives and leaves there.
    pub transport: Transport,
    /// The address its socket is bound to.
    pub local: SocketAddr,
    /// `host:port` that others reach it by: it stands in our Via and Record-Route.
    pub advertised: String,
    /// Sources that may use us to reach addresses outside the pools.
    pub trust: Vec<IpNet>,
    /// Further sources that are believed who the caller is, RFC 3325.
    pub trust_identity: Vec<IpNet>,
    /// Whether other instances have the address too. Then requests go on to back ends from a
    /// listener that they do not have, so that the answers come back to this instance; requests
    /// within the dialog come to the shared one, and so to any.
    pub shared: bool,
}

impl Listener {
    /// A listener over UDP, known to others by the address it is bound to.
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

/// Who a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Anybody but members of a pool: what a back end sends leads outward, unless a
    /// rule for pools says otherwise.
    Any,
    /// Trusted sources and pool members.
    Trusted,
    /// Members of a pool.
    Pool,
    /// Sources in a network.
    Net(IpNet),
}

/// Where a rule sends a request.
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
    /// Who it is for.
    pub from: Senders,
    /// The methods it is for, by name; all when empty.
    pub methods: Vec<String>,
    /// Hosts of the Request-URI it is for; our own addresses and any name when empty.
    pub domains: Vec<String>,
    /// Where it leads.
    pub to: RuleTarget,
}

/// How new work that is not admitted is disposed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// By a 503. Its Retry-After, if it has one, stops a client that serves many callers as a
    /// whole (RFC 3261 §21.5.4).
    Reject,
    /// By silence: its sender repeats it.
    Drop,
    /// By a 503, and of the new INVITEs by as much silence of the kernel as it takes for that to
    /// stay within [`Overload::refusing_max`].
    Kernel,
}

/// How new work is admitted and waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// The gate: law, throttle, and when it is asked.
    pub gate: control::Settings,
    /// How messages wait.
    pub queueing: Queueing,
    /// How what is not admitted is disposed of.
    pub disposal: Disposal,
    /// Whether INVITEs within a call are judged as those that begin one.
    pub reinvites: bool,
    /// Least and most seconds of the Retry-After in a 503 to what is not admitted; `None`
    /// for none. The first is no more than the second.
    pub retry_after: Option<(u32, u32)>,
    /// Bytes to which the 503 to what is not admitted is lengthened, at most
    /// [`PAD_MAX`](crate::PAD_MAX); `None` for its own length.
    pub pad: Option<usize>,
    /// With [`Disposal::Kernel`], the share of the processor that refusing may take, 0 to 1
    /// without either.
    pub refusing_max: f64,
    /// With [`Mode::Adaptive`], the occupancy up to which all calls have transactions, 0 to 1
    /// without 0.
    pub stateful_max: f64,
    /// How those are told apart who send. Limits and priority are told to the gate from here.
    pub sources: Sources,
}

impl Overload {
    /// The gate's settings, with what it is to know of sources.
    pub(crate) fn gate(&self) -> control::Settings {
        let mut gate = self.gate.clone();
        gate.sources.limits = self.sources.limits.iter().map(SourceLimit::limit).collect();
        gate.sources.priority_cps =
            self.sources.priority.as_ref().map_or(0.0, |priority| priority.rate_cps);
        gate
    }
}

impl Default for Overload {
    /// Everything is admitted, and waits by class.
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
            refusing_max: control::LadderSettings::default().budget,
            stateful_max: control::TierSettings::default().occupancy_max,
        }
    }
}

/// What is kept of what is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No transactions, RFC 3261 §16.11; the choice for each call is held.
    Stateless,
    /// A response context for each request, RFC 3261 §16.
    Transaction,
    /// The one or the other for each call, by what the processor has left.
    Adaptive,
}

impl Mode {
    /// As configurations write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Transaction => "transaction",
            Self::Adaptive => "adaptive",
        }
    }
}

/// Who of a pool gets a new request.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// One back end, by a policy and its parameters.
    One(Values),
    /// All that are up: those of the highest `q` at once, then those of the next (RFC 3261
    /// §16.6). The `q` of each back end, in thousandths.
    All(Vec<u16>),
}

/// A pool, and how it is used.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Its back ends, shared with the other shards.
    pub pool: Pool,
    /// Who gets a new request.
    pub choice: Choice,
    /// What is kept of its requests. Only with transactions can there be several targets, or
    /// another one after the first.
    pub mode: Mode,
    /// A back end that has answered nothing to a new request for this long is given up, and
    /// the request goes to another.
    pub failover_after: Duration,
    /// Back ends tried for one request at the most, at most [`TRIES_MAX`].
    pub tries_max: u8,
    /// How the health of its back ends is learnt.
    pub health: Health,
    /// The pool at this index stands in when none of its back ends may be given calls.
    pub backup: Option<u16>,
    /// The index of the listener from which requests go to its back ends, by its transport; `None`:
    /// by the routes of this machine, and the transport of the first listener.
    pub listener: Option<usize>,
    /// Networks from which each back end sends, beside its own address and port, in their order.
    pub sources: Vec<Vec<IpNet>>,
}

/// A network, and the listener that has the source address which the kernel uses to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressRoute {
    /// The network.
    pub to: IpNet,
    /// The index of the listener.
    pub listener: usize,
}

impl PoolSettings {
    /// One back end for each call, by `policy`, with transactions.
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
            sources: Vec::new(),
        }
    }

    /// The same without transactions.
    pub fn stateless(self) -> Self {
        Self { mode: Mode::Stateless, ..self }
    }
}

/// Back ends tried for one request at the most.
pub const TRIES_MAX: u8 = 8;

/// Back ends of a pool whose requests go to all of them, at the most.
pub const FORK_MAX: usize = 32;

/// A proxy's settings, for one shard.
#[derive(Clone)]
pub struct Settings {
    /// This shard.
    pub shard: u16,
    /// How many there are, at most [`SHARDS_MAX`](crate::SHARDS_MAX).
    pub shards: u16,
    /// Where requests arrive, at most [`LISTENERS_MAX`](crate::LISTENERS_MAX).
    pub listeners: Vec<Listener>,
    /// Where each listener leads, the longest prefix first. Empty: a request leaves by the listener
    /// that it came in by, if that reaches its target.
    pub egress_routes: Vec<EgressRoute>,
    /// The pools, shared with the other shards, and how each is chosen from.
    pub pools: Vec<PoolSettings>,
    /// Addresses of back ends that were taken out of the configuration before the start and may
    /// still have dialogs.
    pub removed: Vec<SocketAddr>,
    /// Rules for new requests; the first that matches decides.
    pub rules: Vec<Rule>,
    /// The secret of our address.
    pub secret: Secret,
    /// How new work is admitted and waits.
    pub overload: Overload,
    /// Who is banned, shared with the other shards.
    pub bans: BanList,
    /// Tells of names of back ends that lead elsewhere, shared with the other shards.
    pub moves: Moves,
    /// What its replies have in Server (RFC 3261 §20.35) and its probes in User-Agent; nothing if it
    /// is empty.
    pub name: String,
    /// Seed of what is drawn.
    pub seed: Seed,
    /// The seed of the process before this one at the same address, if it is known: what that has
    /// sent can be cancelled.
    pub before: Option<Seed>,
    /// Calls held at the same time by this shard.
    pub calls_max: usize,
    /// Requests whose transactions are held at the same time by this shard.
    pub transactions_max: usize,
    /// Bytes that those and their messages may take.
    pub transaction_bytes_max: usize,
    /// T1, T2 and T4 over UDP.
    pub timing: Timing,
    /// How much of what is refused is kept for those who ask.
    pub trace: TraceSettings,
    /// Times the bytes received that are sent to an address that has never shown that it receives
    /// anything; 0: any number.
    pub amplification_max: u32,
    /// Messages that wait in one lane, or in the one queue of all.
    pub queue_max: usize,
    /// Bytes of the buffers of those among them that are longer than an ordinary buffer
    /// ([`tidegate_world::SMALL`]); new work may take half of it.
    pub queue_bytes_max: usize,
    /// An established call is forgotten after this long without a message.
    pub idle_max: Duration,
    /// How late a timer may fire, so that several fire together.
    pub timer_slack: Duration,
    /// A back end whose delivery failed gets no new calls for this long.
    pub failure_pause: Duration,
    /// Unix time when the driver's clock began: the age of route tokens is told by it, to other
    /// instances and to those that come after this one.
    pub start: Duration,
}

impl Settings {
    /// Defaults for everything but where to listen and the pools: all that is new goes
    /// to the first pool.
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
            timer_slack: Duration::from_millis(1),
            failure_pause: Duration::from_secs(5),
            start: Duration::ZERO,
        }
    }
}
