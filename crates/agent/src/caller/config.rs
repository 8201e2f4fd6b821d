//! The configuration of a caller.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_transaction::Timing;
use tidegate_world::{Timestamp, Transport};

use crate::arrival::{Load, LoadError};
use crate::caller::device::DevicesConfig;
use crate::caller::redial::Redial;
use crate::connections::ConnectionUse;
use crate::span::Span;

/// Maximum length of a Request-URI, in bytes.
const URI_MAX: usize = 1024;

/// Maximum [`slack`](CallerConfig::slack): a fifth of the lateness at which a caller counts as too
/// slow.
const SLACK_MAX: Duration = Duration::from_millis(1);

/// The rule for routing in-dialog requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Routing {
    /// The requests follow Record-Route and Contact (RFC 3261 §12.2.1.1).
    #[default]
    Follow,
    /// The requests ignore the route set. ACK and BYE go to the same address as the INVITE, with
    /// the same Request-URI, as in SIPp's built-in scenario.
    Ignore,
}

/// The configuration of a [`Caller`](crate::Caller).
#[derive(Clone, Debug, PartialEq)]
pub struct CallerConfig {
    /// Transport of all requests. A stream transport needs a connection layer, such as
    /// `tidegate-transport`. Default UDP.
    pub transport: Transport,
    /// Use of connections to the target, if the transport has connections. Default: all calls share
    /// one connection.
    pub connections: ConnectionUse,
    /// Address of the caller, for Via and Contact. It must not be a wildcard such as `0.0.0.0`.
    pub local: SocketAddr,
    /// Address of the server to which INVITEs are sent.
    pub target: SocketAddr,
    /// Further targets, which are tried one after the other when a call is rejected with 503.
    /// Default: none, so the call fails.
    pub alternates: Vec<SocketAddr>,
    /// Request-URI and To of the INVITE.
    pub uri: String,
    /// Number of called users, which are called in turn. If there are several, `-0`, `-1`, … is
    /// appended to the user part of `uri`. Default 1.
    pub callees: u32,
    /// Offered load. Default: 10 calls at 10 calls/s.
    pub load: Load,
    /// Number of calling users, `caller-0`, `caller-1`, …, which call in turn. Default 1.
    pub callers: u32,
    /// Number of the first calling user. Default 0.
    pub first_caller: u32,
    /// True if the names of calling users have 16 different lengths, because the names of real
    /// callers differ in length too. Zeros before the number make the difference. Default `false`.
    pub uneven: bool,
    /// Time from the answer until the caller hangs up. Default 0.
    pub hold: Span,
    /// Time after the start of a call at which its caller hangs up if there is no answer. Default
    /// 60 s.
    pub patience: Span,
    /// Longest set-up delay of a call that counts as set up in time. Default 500 ms.
    pub deadline: Duration,
    /// Time after the start in which calls are not [measured](crate::Measured). Default 0.
    pub warm_up: Duration,
    /// Time after the start until which calls are [measured](crate::Measured). Later calls only
    /// keep up the load until the last measured calls have ended. Default: no limit.
    pub measured_until: Duration,
    /// Maximum time by which the start or the end of a call may be delayed, so that one wake-up of
    /// the process serves several calls. At most 1 ms. Default 0.
    pub slack: Duration,
    /// T1, T2 and T4, on which the timers of RFC 3261 are based.
    pub timing: Timing,
    /// True if INVITE, CANCEL, BYE and REGISTER are retransmitted until they are answered (timers A
    /// and E). If false, each request is sent only once. The time limits for a response (timers B
    /// and F) are the same in both cases. Each copy of a 2xx is acknowledged in both cases. Default
    /// true.
    pub retransmissions: bool,
    /// Handling of route sets. Default [`Routing::Follow`].
    pub routing: Routing,
    /// Maximum number of open calls. Further calls are not started, but are counted as
    /// [`not_begun`](crate::CallerStats::not_begun). Default 100,000.
    ///
    /// SIPp's option `-l` is similar. But if a server answers slowly, SIPp (3.6.1) offers fewer
    /// calls than requested and does not report this. The default of `-l` is the number of calls
    /// that start in three times the duration of the scenario. A duration below 1 s counts as 1 s.
    pub open_max: usize,
    /// Maximum number of open calls in a closed loop. Further calls are held back until another
    /// call ends. The set-up delay of a call counts from its intended time, so it includes this
    /// wait. Calls still held back at the end of the [`Load`]'s duration are never started.
    /// Default: `None`, an open loop.
    pub open_limit: Option<usize>,
    /// Behaviour of people whose call has failed, or `None` if they do not call again. Default:
    /// `None`.
    pub redial: Option<Redial>,
    /// The share of people who call `urn:service:sos` (RFC 5031) instead of the callee, 0..1.
    /// Default 0.
    pub emergency: f64,
    /// Devices that register through the target, or `None`. Default: `None`.
    pub devices: Option<DevicesConfig>,
}

impl CallerConfig {
    /// Returns the default configuration for calls from `local` to `target`.
    pub fn new(local: SocketAddr, target: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            connections: ConnectionUse::default(),
            local,
            target,
            alternates: Vec::new(),
            uri: format!("sip:service@{target}"),
            callees: 1,
            load: Load::default(),
            callers: 1,
            first_caller: 0,
            uneven: false,
            hold: Span::ZERO,
            patience: Span::Fixed(Duration::from_secs(60)),
            deadline: Duration::from_millis(500),
            warm_up: Duration::ZERO,
            measured_until: Duration::MAX,
            slack: Duration::ZERO,
            timing: Timing::default(),
            retransmissions: true,
            routing: Routing::Follow,
            open_max: 100_000,
            open_limit: None,
            redial: None,
            emergency: 0.0,
            devices: None,
        }
    }

    /// Returns whether a call with this intended time is measured, if the run starts at `start`.
    pub(super) fn is_measured(&self, start: Timestamp, intended: Timestamp) -> bool {
        (start + self.warm_up..=start + self.measured_until).contains(&intended)
    }

    /// Returns an error if the configuration is invalid.
    pub fn check(&self) -> Result<(), CallerConfigError> {
        self.load.check().map_err(CallerConfigError::Load)?;
        let readable = self.uri.bytes().all(|b| b.is_ascii_graphic() && !b"<>\"".contains(&b));
        if self.uri.is_empty() || self.uri.len() > URI_MAX || !readable {
            return Err(CallerConfigError::Uri);
        }
        if self.callers == 0 {
            return Err(CallerConfigError::Callers);
        }
        if !self.connections.fits(self.transport, self.callers) {
            return Err(CallerConfigError::Connections);
        }
        if self.callees == 0 {
            return Err(CallerConfigError::Callees);
        }
        if self.open_limit == Some(0) {
            return Err(CallerConfigError::OpenLimit);
        }
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        if self.redial.is_some_and(|redial| !is_share(redial.probability)) {
            return Err(CallerConfigError::Redial);
        }
        if !is_share(self.emergency) {
            return Err(CallerConfigError::Emergency);
        }
        if self.devices.is_some_and(|devices| !devices.is_valid()) {
            return Err(CallerConfigError::Devices);
        }
        if self.devices.is_some() && self.transport.is_reliable() {
            return Err(CallerConfigError::DevicesOverStreams);
        }
        if self.timing.t1.is_zero() {
            return Err(CallerConfigError::T1);
        }
        if self.timing.t2.is_zero() {
            return Err(CallerConfigError::T2);
        }
        if self.slack > SLACK_MAX {
            return Err(CallerConfigError::Slack);
        }
        Ok(())
    }
}

/// The reason why the configuration of a caller is invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallerConfigError {
    /// The load is invalid.
    Load(LoadError),
    /// The Request-URI is empty, too long, or has characters that are invalid in a URI.
    Uri,
    /// The number of called users is 0.
    Callees,
    /// The number of calling users is 0.
    Callers,
    /// There are fewer callers than connections, or the transport has no connections.
    Connections,
    /// The maximum number of open calls is zero, so no call would ever start.
    OpenLimit,
    /// The probability that a person calls again is not between 0 and 1.
    Redial,
    /// The share of emergency calls is not between 0 and 1.
    Emergency,
    /// A share of the devices is not between 0 and 1, there are too many devices, or a time between
    /// their registrations is zero.
    Devices,
    /// Devices are configured over a stream transport, but they register over UDP only.
    DevicesOverStreams,
    /// T1 is zero, so retransmissions would never end.
    T1,
    /// T2 is zero, so BYE, CANCEL and REGISTER would be retransmitted without a pause.
    T2,
    /// The slack is too large, so that calls would start too late.
    Slack,
}

impl fmt::Display for CallerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(why) => why.fmt(f),
            Self::Uri => write!(f, "the target must be a SIP URI of 1 to {URI_MAX} bytes"),
            Self::Callees => f.write_str("the number of called users is 0: it must be 1 or more"),
            Self::Callers => f.write_str("the number of calling users is 0: it must be 1 or more"),
            Self::Connections => f.write_str(
                "separate connections need TCP, TLS or WebSockets, and at least one calling user for \
                 each connection",
            ),
            Self::OpenLimit => {
                f.write_str("the limit of open calls is 0: it must be 1 or more")
            }
            Self::Redial => f.write_str("the probability of a redial must be 0 to 1"),
            Self::Emergency => f.write_str("the share of emergency calls must be 0 to 1"),
            Self::Devices => write!(
                f,
                "there may be at most {} devices, with shares from 0 to 1 and times above 0",
                DevicesConfig::COUNT_MAX
            ),
            Self::DevicesOverStreams => f.write_str("devices register over UDP only"),
            Self::Slack => write!(f, "the slack must be at most {} ms", SLACK_MAX.as_millis()),
            Self::T1 => f.write_str("T1 must be above 0 ms"),
            Self::T2 => f.write_str("T2 must be above 0 ms"),
        }
    }
}

impl std::error::Error for CallerConfigError {}
