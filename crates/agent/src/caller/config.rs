//! What a caller is told.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_transaction::Timing;
use tidegate_world::Transport;

use crate::arrival::{Load, Process, Profile, ProfileError};
use crate::span::Span;

/// Length of the Request-URI at the most, in bytes.
const URI_MAX: usize = 1024;

/// How late a call may begin on purpose at the most: a fifth of what makes a caller
/// too slow.
const SLACK_MAX: Duration = Duration::from_millis(1);

/// Whether requests within a dialog obey its route set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Routing {
    /// As RFC 3261 §12.2.1.1 demands: Record-Route and Contact decide.
    #[default]
    Follow,
    /// ACK and BYE go where the INVITE went, with its Request-URI, as SIPp's built-in
    /// scenario does.
    Ignore,
}

/// How a [`Caller`](crate::Caller) calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerConfig {
    /// The transport of all requests. Over a stream somebody has to keep the connections, such as
    /// `tidegate-transport`. Default UDP.
    pub transport: Transport,
    /// Our address, in Via and Contact; never a wildcard.
    pub local: SocketAddr,
    /// Where INVITEs are sent.
    pub target: SocketAddr,
    /// Where a call is offered anew, one after the other, that was refused with 503. Default: none,
    /// the call has failed.
    pub alternates: Vec<SocketAddr>,
    /// Request-URI and To of the INVITE.
    pub uri: String,
    /// Users that are called in turn: if there are several, `-0`, `-1`, … follows the user of `uri`.
    /// Default 1.
    pub callees: u32,
    /// When calls begin. Default: 10 calls at 10 calls/s.
    pub load: Load,
    /// From users, `caller-0`, `caller-1`, … in turn. Default 1.
    pub callers: u32,
    /// Whether their names have 16 different lengths, so that messages have, as those of real
    /// callers: zeros stand before the number. Default `false`.
    pub uneven: bool,
    /// How long a call is held before the caller hangs up. Default 0.
    pub hold: Span,
    /// When a caller whose call is not answered hangs up. Default 60 s.
    pub patience: Span,
    /// Set-up delay up to which a call counts as set up in time. Default 500 ms.
    pub deadline: Duration,
    /// Calls whose intended moment lies in this time after the start are not
    /// [measured](crate::Measured). Default 0.
    pub warm_up: Duration,
    /// How late a call may begin, or be hung up, on purpose: so that what is due close
    /// together costs one wake instead of several; up to 1 ms. Default 0.
    pub slack: Duration,
    /// Base values of the timers.
    pub timing: Timing,
    /// Whether INVITE, CANCEL and BYE are sent again while nothing answers them (timers A and E).
    /// If not, a call waits as long as ever (timers B and F), and for one copy. A 2xx that is sent
    /// again is acknowledged again in any case. Default true.
    pub retransmissions: bool,
    /// Route sets. Default [`Routing::Follow`].
    pub routing: Routing,
    /// Calls that may be open at once: one more is not begun, and counted. SIPp's `-l` does the
    /// same without counting (3.6.1; if not given it is what the rate opens in three times the
    /// duration of the scenario, which counts as 1 s at least): a server that answers slowly is
    /// offered less than was asked for, and nothing says so. Default 100,000.
    pub open_max: usize,
    /// A closed loop: while so many calls are open, one whose moment comes is held back until
    /// another ends, and begins late. Its set-up delay still counts from its moment, so that the
    /// wait is not hidden. What is held back at the end of the [`Load`]'s duration is never begun.
    /// Default: none, an open loop.
    pub open_limit: Option<usize>,
}

impl CallerConfig {
    /// The defaults, for calls from `local` to whoever is at `target`.
    pub fn new(local: SocketAddr, target: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            local,
            target,
            alternates: Vec::new(),
            uri: format!("sip:service@{target}"),
            callees: 1,
            load: Load::default(),
            callers: 1,
            uneven: false,
            hold: Span::ZERO,
            patience: Span::Fixed(Duration::from_secs(60)),
            deadline: Duration::from_millis(500),
            warm_up: Duration::ZERO,
            slack: Duration::ZERO,
            timing: Timing::default(),
            retransmissions: true,
            routing: Routing::Follow,
            open_max: 100_000,
            open_limit: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), CallerConfigError> {
        if !(self.load.rate_cps.is_finite() && self.load.rate_cps > 0.0) {
            return Err(CallerConfigError::Rate(self.load.rate_cps));
        }
        self.load.profile.check().map_err(CallerConfigError::Profile)?;
        if matches!(self.load.process, Process::Trace(_)) && self.load.profile != Profile::Constant
        {
            return Err(CallerConfigError::TraceProfile);
        }
        let readable = self.uri.bytes().all(|b| b.is_ascii_graphic() && !b"<>\"".contains(&b));
        if self.uri.is_empty() || self.uri.len() > URI_MAX || !readable {
            return Err(CallerConfigError::Uri);
        }
        if self.callers == 0 {
            return Err(CallerConfigError::Callers);
        }
        if self.callees == 0 {
            return Err(CallerConfigError::Callees);
        }
        if self.open_limit == Some(0) {
            return Err(CallerConfigError::OpenLimit);
        }
        if self.timing.t1.is_zero() {
            return Err(CallerConfigError::T1);
        }
        if self.slack > SLACK_MAX {
            return Err(CallerConfigError::Slack);
        }
        Ok(())
    }
}

/// A configuration that no caller can follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallerConfigError {
    /// The rate is not a positive number.
    Rate(f64),
    /// The profile has a value that none can have.
    Profile(ProfileError),
    /// A trace says all moments itself: it can have no profile.
    TraceProfile,
    /// The Request-URI is empty, too long, or holds characters that no URI holds.
    Uri,
    /// Nobody is called.
    Callees,
    /// There is no caller.
    Callers,
    /// No call may be open: none would ever begin.
    OpenLimit,
    /// T1 is zero: repetitions would never end.
    T1,
    /// Calls would begin too late.
    Slack,
}

impl fmt::Display for CallerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "a rate of {rate} calls/s: it must be above zero"),
            Self::Profile(why) => write!(f, "the profile: {why}"),
            Self::TraceProfile => f.write_str("a trace with a profile: its moments are given"),
            Self::Uri => write!(f, "the Request-URI must be 1 to {URI_MAX} bytes of a SIP URI"),
            Self::Callees => f.write_str("no callees: there must be one at least"),
            Self::Callers => f.write_str("no callers: there must be one at least"),
            Self::OpenLimit => f.write_str("a limit of 0 open calls: none would ever begin"),
            Self::Slack => write!(f, "a slack of more than {} ms", SLACK_MAX.as_millis()),
            Self::T1 => f.write_str("T1 is zero: it must be 1 ms or more"),
        }
    }
}

impl std::error::Error for CallerConfigError {}
