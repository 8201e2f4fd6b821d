//! The SIP proxy as a sans-IO core.
//!
//! A [`Proxy`] is one shard: the part of the proxy that runs on one thread, with its own tables and
//! timers. The module `core` shows the path of a message from top to bottom. Each folder is a stage
//! of this path, or a part that several stages use:
//!
//! | folder | stage |
//! | --- | --- |
//! | `admission` | classify, admit, queue; reject or drop what is not admitted |
//! | `transaction` | match a message to its transaction; response contexts (RFC 3261 §16) |
//! | `routing` | plan where a request goes, and commit the plan |
//! | `lookup` | queries to external stores, such as for the contacts of a user |
//! | `dialog` | the call table |
//! | `rewrite` | write the forwarded message |
//! | `stateless` | forward without transactions (RFC 3261 §16.11) |
//! | `backends` | probes, names and health of back ends |
//! | `pushback` | overload feedback from next hops (RFC 7339, RFC 7415) |
//! | `transport` | listeners, peers and limits on the bytes sent to peers |
//! | `message` | requests, branches, tokens and replies |
//! | `observe` | counters, gauges, the sample of rejections |
//!
//! The imports between the modules have no cycle. `scripts/structure --check` fails if there is
//! one.
//!
//! Tidegate authenticates some of the values that it writes into messages, because it trusts them
//! when they come back: the branch of a Via, the To-tag of a reply made without state, and the
//! token in a Record-Route.

mod admission;
mod amplification;
mod backends;
mod core;
mod dialog;
mod failure;
mod keys;
mod lookup;
mod message;
mod network;
mod observe;
mod output;
mod parked;
mod peers;
mod pushback;
mod rejection;
mod reload;
mod request;
pub mod resolution;
mod response;
mod rewrite;
mod routing;
mod settings;
mod shares;
mod slack;
mod snapshot;
mod state;
mod stateless;
mod step;
mod target;
#[cfg(test)]
mod testing;
mod transaction;
mod transport;

pub use core::Proxy;
pub use keys::{Base, Secret, TokenKey, TokenKeys};
pub use lookup::{CONTACTS_MAX, LookupCounters};
pub use message::address_of_record::address_of_record;
pub use message::branch::{LISTENERS_MAX, SHARDS_MAX};
pub use message::class::Class;
pub use message::priority::{NAMESPACES, NoValue, Priority, ResourceValues};
pub use message::reply::PAD_MAX;
pub use network::{network_of, networks_of, source_of};
pub use observe::call_entry::{BackendOfCall, CallAnswer, CallEntry, CallState};
pub use observe::counters::{Counters, REPLIES};
pub use observe::gauges::{FlowCounters, Gauges, LimitGauges, SojournGauges};
pub use observe::in_force::{ComparedCounters, InForce};
pub use observe::rejections::{LoadThen, RejectionLog, RejectionRecord};
pub use observe::upstream::UpstreamView;
pub use observe::views::Views;
pub use pushback::next_hops::{NextHopView, NextHops, Obedience};
pub use rejection::DropReason;
pub use rejection::reply_reason::ReplyReason;
pub use settings::feedback::FeedbackSettings;
pub use settings::health::{Accept, Health, Probe};
pub use settings::queries::QueryLimits;
pub use settings::sources::{
    BANS_MAX, Excess, Flood, HARM_CPS, SourceLimit, SourceWeight, Sources,
};
pub use settings::{
    Choice, Disposal, EgressRoute, FORK_MAX, Listener, Mode, Moves, Overload, PathMode,
    PoolSettings, Queueing, Rule, RuleTarget, Senders, Settings, TRIES_MAX, TraceSettings,
};
