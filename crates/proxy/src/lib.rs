//! The SIP proxy as a sans-IO core.
//!
//! A [`Proxy`] is one shard of the element: [`Core::offer`](tidegate_world::Core::offer)
//! classifies a message and queues it in its class, `serve` routes the next one.
//! It is *call-aware*: without keeping transactions (RFC 3261 §16.11) it remembers
//! where each call went, so that a retransmission, a CANCEL, an ACK follow, and
//! counts what each call weighs on its back end.
//!
//! What is written into messages and later believed is authenticated: the branch
//! of a Via ([`branch`]), the To-tag of a reply made without state ([`reply`]), the
//! token in a Record-Route ([`token`]).

mod absence;
mod amplification;
mod asserted;
mod branch;
mod callee;
mod calls;
mod class;
mod counters;
mod disposing;
mod endpoint;
mod evidence;
mod fate;
mod following;
mod forward;
mod gauges;
mod headroom;
mod health;
mod holding;
mod in_force;
mod ingress;
mod instead;
mod invites;
mod lane;
mod large;
mod lost;
mod names;
mod network;
mod onward;
mod origin;
mod picking;
mod priority;
mod probe_branch;
mod probes;
mod proxy;
mod reading;
mod recent;
mod recognition;
mod reform;
mod refusals;
mod rejection_reason;
mod reply;
mod request;
mod request_uri;
mod response;
mod routing;
mod secret;
mod settings;
mod shares;
mod sources;
mod stateful;
mod suspicion;
mod text64;
mod thinning;
mod tiering;
mod token;
mod transaction_branch;
#[allow(dead_code, reason = "the core does not use streams yet")]
mod transport;
mod unreachable;
mod verification;

pub use branch::{LISTENERS_MAX, SHARDS_MAX};
pub use calls::{BackendOfCall, CallAnswer, CallEntry, CallState};
pub use class::Class;
pub use counters::{Counters, DropReason, REPLIES};
pub use gauges::{FlowCounters, Gauges, SojournGauges};
pub use health::{Accept, Health, Probe};
pub use in_force::{ComparedCounters, InForce};
pub use ingress::Queueing;
pub use names::Moves;
pub use network::{network_of, networks_of, source_of};
pub use priority::{NAMESPACES, NoValue, Priority, ResourceValues};
pub use proxy::Proxy;
pub use refusals::{LoadThen, Refusal, Refusals, TraceSettings};
pub use rejection_reason::ReplyReason;
pub use reply::PAD_MAX;
pub use secret::{Base, Secret, TokenKey, TokenKeys};
pub use settings::{
    Choice, Disposal, EgressRoute, FORK_MAX, Listener, Mode, Overload, PoolSettings, Rule,
    RuleTarget, Senders, Settings, TRIES_MAX,
};
pub use sources::{BANS_MAX, Excess, Flood, HARM_CPS, SourceLimit, SourceWeight, Sources};
