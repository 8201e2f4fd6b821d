//! Sans-IO SIP user agents: callers, answerers and registrants.
//!
//! [`Caller`] starts calls at times drawn in advance (an open loop: missing or late answers never
//! slow it down), holds them and hangs up. A [`Load`] sets the times: a [`Process`] that is
//! Poisson, uniform, bursty or a trace, whose rate changes over time by a [`Profile`]. [`Answerer`]
//! rings, answers, rejects or ignores, by a [`Mix`], and may hang up first. [`Registrant`] registers
//! users at a registrar. All are pure state machines behind [`tidegate_world::Core`], so the same
//! agents load a real server over real sockets and a simulated one in simulated time; same seed, same
//! bytes.
//!
//! A call costs either agent a bounded record and one entry in a heap of alarms. Messages that are
//! not understood are counted and dropped.

mod answerer;
mod arrival;
mod caller;
mod connections;
mod delays;
mod dialog;
mod identity;
mod registrant;
mod response;
mod span;
mod table;
mod template;
mod usage;

pub use answerer::{
    Answerer, AnswererConfig, AnswererSample, AnswererStats, Behaviour, Mix, MixError,
};
pub use arrival::{
    Load, LoadError, Mmpp, MmppError, Process, Profile, ProfileError, Trace, TraceError,
};
pub use caller::{
    BackOff, Caller, CallerConfig, CallerConfigError, CallerReport, CallerSample, CallerStats,
    DeviceStats, DevicesConfig, Emergency, Failure, Failures, Measured, Persons, Redial,
    RegistrationLoss, Repeated, Routing, TooSlow,
};
pub use connections::ConnectionUse;
pub use delays::Delays;
pub use registrant::{
    MeasuredRegistrations, Registrant, RegistrantConfig, RegistrantConfigError, RegistrantReport,
    RegistrantStats,
};
pub use span::Span;
pub use tidegate_transaction::Timing;
pub use usage::{StreamUsage, Usage};

/// The session that each side describes: one audio stream without media.
const SESSION: &str = "v=0
o=- 1 1 IN IP4 192.0.2.1
s=-
c=IN IP4 192.0.2.1
t=0 0
m=audio 6000 RTP/AVP 0
a=rtpmap:0 PCMU/8000
";
