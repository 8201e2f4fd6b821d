//! Overload control: the signals that one server measures about itself, the laws that decide from
//! them, and the gate that applies their decisions to new work.
//!
//! ```text
//!   arrivals, services, load ──► Signals ──► Law ──► Control ──► Throttle and queue
//! ```
//!
//! If a server gets more work than it can do, it must reject a part of the work early and cheaply,
//! so that the admitted work still completes. A [`Law`] reads [`Signals`] at four moments: arrival,
//! start of service, completion, tick. It sets a [`Control`]: the share of new work to admit, and
//! the rate at which the queue of new work is released. The [`Gate`] keeps the signals, runs the
//! law, and returns a [`Verdict`] for each piece of new work. A retransmitted request gets the same
//! decision as the original.
//!
//! This crate does not depend on SIP, sockets or clocks. Time is an argument, each piece of work
//! has a [`Bucket`], and a 64-bit fingerprint identifies a retransmission. So the same laws run in
//! production and in the simulator, and can run in servers of other kinds.
//!
//! [`registry`] lists every law with its parameters. Configuration and documentation are generated
//! from this list. [`bound`] computes the maximum goodput that any such law can reach.

mod arrival_rate;
mod ban_list;
mod bans;
pub mod bound;
mod control;
mod cost;
mod ewma;
mod fading;
mod fairness;
pub mod feedback;
mod filter;
mod gate;
mod heavy;
mod ladder;
mod law;
mod limits;
mod max_min;
mod memory;
mod mix;
mod pacer;
mod priority_cap;
mod proofs;
mod rank;
mod recent_weight;
pub mod registry;
mod room;
mod scheme;
mod sessions;
mod settings;
mod shadow;
mod signals;
mod sojourn;
mod source_table;
mod sources;
#[cfg(test)]
mod testing;
mod throttle;
mod tiers;
mod trail;
mod unanswered;
mod verdict;
mod watch;

pub use ban_list::{BanList, BanView};
pub use bans::{Ban, BanCause, Bans};
pub use control::{Allowance, Control, QueueControl, QueueOrder, Release};
pub use cost::Costs;
pub use fairness::{Fairness, FairnessDecision, Source};
pub use gate::Gate;
pub use heavy::{Arrived, HeavySource};
pub use ladder::{INVITES_PER_REGISTER, Ladder, LadderSettings, Rung, Tally};
pub use law::{Entry, Law, Laws, Values};
pub use limits::{Limit, Limits, Per};
pub use max_min::MaxMin;
pub use memory::{Decision, Memory, Recalled};
pub use mix::Mix;
pub use pacer::Pacer;
pub use priority_cap::PriorityCap;
pub use proofs::Proofs;
pub use room::Headroom;
pub use scheme::{Scheme, ShedOrder, Weight};
pub use sessions::{Backlog, Estimation, SessionCheck, Sessions};
pub use settings::{Decide, Occupancy, Settings};
pub use shadow::{Compared, Shadow};
pub use signals::{Bucket, Flow, Queue, Reading, Service, Signals};
pub use sojourn::{Sojourn, SojournWindow};
pub use sources::{Sender, SourceSettings};
pub use throttle::{Throttle, ThrottleKind};
pub use tidegate_world::{Param, Range, Wrong};
pub use tiers::{Tier, TierSettings, Tiers};
pub use unanswered::{Answers, Unanswered};
pub use verdict::{Reason, Ticket, Verdict};
pub use watch::Watch;
