//! Sans-IO SIP user agents: callers, answerers and registrants.
//!
//! [`Caller`] starts calls at times that are drawn in advance, holds them and hangs up. Missing or
//! late answers do not slow the caller down (open loop). A [`Load`] sets the times: a [`Process`]
//! that is Poisson, uniform, bursty or a trace, and a [`Profile`] by which the rate changes over
//! time. [`Answerer`] rings, answers, rejects or ignores calls, each for a fraction of calls that a
//! [`Mix`] sets, and may hang up first. [`Registrant`] registers users at a registrar. All agents
//! are pure state machines behind [`tidegate_world::Core`]. So the same agents can load a real
//! server over real sockets, and a simulated server in simulated time. The same seed gives the same
//! bytes.
//!
//! For each call, an agent keeps a record of bounded size and one timer. It counts and drops
//! messages that it does not understand.

mod answerer;
mod arrival;
mod caller;
mod connections;
mod delays;
mod dialog;
mod identity;
mod registrant;
mod response;
mod share;
mod span;
mod table;
mod template;
mod usage;

pub use answerer::{Answerer, AnswererConfig, AnswererStats, Behaviour, Mix, MixError};
pub use arrival::{
    Load, LoadError, Mmpp, MmppError, Process, Profile, ProfileError, Trace, TraceError,
};
pub use caller::{
    BackOff, Caller, CallerConfig, CallerConfigError, CallerReport, CallerResult, CallerStats,
    DeviceStats, DevicesConfig, Emergency, Failure, Failures, Indivisible, Measured, Persons,
    Redial, RegistrationLoss, Repeated, Routing, TooSlow,
};
pub use connections::ConnectionUse;
pub use delays::Delays;
pub use registrant::{
    MeasuredRegistrations, Registrant, RegistrantConfig, RegistrantConfigError, RegistrantReport,
    RegistrantStats,
};
pub use share::Share;
pub use span::Span;
pub use tidegate_transaction::Timing;
pub use usage::{StreamUsage, Usage, WebSocketFailures};

/// The session description (SDP) of callers and answerers: one audio stream. No media are sent.
const SESSION: &str = "v=0
o=- 1 1 IN IP4 192.0.2.1
s=-
c=IN IP4 192.0.2.1
t=0 0
m=audio 6000 RTP/AVP 0
a=rtpmap:0 PCMU/8000
";
