//! The configuration of a registrant.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_transaction::Timing;
use tidegate_world::Transport;

use crate::arrival::{Load, LoadError};
use crate::connections::ConnectionUse;

/// Maximum length of an address-of-record, in bytes.
const AOR_MAX: usize = 1024;

/// Maximum number of users.
const USERS_MAX: u32 = 10_000_000;

/// The configuration of a [`Registrant`](crate::Registrant).
#[derive(Clone, Debug, PartialEq)]
pub struct RegistrantConfig {
    /// Transport of all requests. A stream transport needs a connection layer, such as
    /// `tidegate-transport`. Default UDP.
    pub transport: Transport,
    /// Use of connections to the registrar, if the transport has connections. Default: all users
    /// share one connection.
    pub connections: ConnectionUse,
    /// Interval of the keep-alives on each connection (RFC 5626 §4.4.1). With keep-alives, the run
    /// lasts until it is stopped. Default: `None`, so that the run ends with the last registration.
    pub keep_alive: Option<Duration>,
    /// Address of the registrant, for Via and Contact. It must not be a wildcard such as `0.0.0.0`.
    pub local: SocketAddr,
    /// Address of the registrar.
    pub target: SocketAddr,
    /// Address-of-record `sip:USER@HOST`.
    pub aor: String,
    /// Number of users, which register in turn. If there are several, `-0`, `-1`, … is appended to
    /// the user part of `aor`. Default 1.
    pub users: u32,
    /// Times of the registrations. Default: 10 registrations at 10 a second.
    pub load: Load,
    /// CSeq number of each user's first REGISTER. Default 1. A registrar rejects a REGISTER with a
    /// known Call-ID unless its CSeq number is higher than the last one (RFC 3261 §10.3). Runs with
    /// the same seed have the same Call-IDs. So a second run with a seed must begin above the last
    /// CSeq number of the first run.
    pub first_cseq: u32,
    /// The expiry that each REGISTER requests, in seconds. Default 3600.
    pub expires_s: u32,
    /// Maximum response time of a registration that counts as in time. Default 500 ms.
    pub deadline: Duration,
    /// Time after the start in which registrations are not measured. Default 0.
    pub warm_up: Duration,
    /// Maximum time by which a registration may be delayed, so that one wake-up of the process
    /// serves several registrations. Default 0.
    pub slack: Duration,
    /// T1, T2 and T4, on which the timers of RFC 3261 are based.
    pub timing: Timing,
    /// Maximum number of REGISTERs that wait for a final response. Further registrations are not
    /// started, but counted. Default 100,000.
    pub open_max: usize,
}

impl RegistrantConfig {
    /// Returns the default configuration of a registrant at `local`, for the registrar at `target`.
    pub fn new(local: SocketAddr, target: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            connections: ConnectionUse::default(),
            keep_alive: None,
            local,
            target,
            aor: format!("sip:user@{target}"),
            users: 1,
            load: Load::default(),
            first_cseq: 1,
            expires_s: 3600,
            deadline: Duration::from_millis(500),
            warm_up: Duration::ZERO,
            slack: Duration::ZERO,
            timing: Timing::default(),
            open_max: 100_000,
        }
    }

    /// Returns the user and the host of the address-of-record.
    pub(crate) fn parts(&self) -> (&str, &str) {
        let rest = self.aor.strip_prefix("sip:").unwrap_or(&self.aor);
        let (user, host) = rest.split_once('@').unwrap_or(("user", rest));
        (user, host.split([';', '?']).next().unwrap_or(host))
    }

    pub(crate) fn check(&self) -> Result<(), RegistrantConfigError> {
        use RegistrantConfigError::{Aor, Connections, KeepAlive, T1, T2, Users};
        self.load.check().map_err(RegistrantConfigError::Load)?;
        let readable = self.aor.bytes().all(|b| b.is_ascii_graphic() && !b"<>\"{}".contains(&b));
        let (user, host) = self.parts();
        if !readable || self.aor.len() > AOR_MAX || user.is_empty() || host.is_empty() {
            return Err(Aor);
        }
        if !(1..=USERS_MAX).contains(&self.users) {
            return Err(Users);
        }
        if !self.connections.fits(self.transport, self.users) {
            return Err(Connections);
        }
        let lasts = self.connections.names_lasting(self.transport);
        if self.keep_alive.is_some_and(|interval| interval.is_zero() || !lasts) {
            return Err(KeepAlive);
        }
        if self.timing.t1.is_zero() {
            return Err(T1);
        }
        if self.timing.t2.is_zero() {
            return Err(T2);
        }
        Ok(())
    }
}

/// The reason why the configuration of a registrant is invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RegistrantConfigError {
    /// The load is invalid.
    Load(LoadError),
    /// The address-of-record is empty, is too long, or is not a SIP URI with a user.
    Aor,
    /// The number of users is 0 or too large.
    Users,
    /// There are fewer users than connections, or the transport has no connections.
    Connections,
    /// The interval of keep-alives is zero, or the connections do not stay open. Over TCP and TLS,
    /// keep-alives need two or more connections.
    KeepAlive,
    /// T1 is zero, so retransmissions would never end.
    T1,
    /// T2 is zero, so REGISTERs would be retransmitted without a pause.
    T2,
}

impl fmt::Display for RegistrantConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(why) => why.fmt(f),
            Self::Aor => {
                write!(f, "the address-of-record must be sip:USER@HOST of at most {AOR_MAX} bytes")
            }
            Self::Users => write!(f, "the number of users must be 1 to {USERS_MAX}"),
            Self::Connections => f.write_str(
                "separate connections need TCP, TLS or WebSockets, and at least one user for each \
                 connection",
            ),
            Self::KeepAlive => f.write_str(
                "keep-alives need an interval, and connections that stay open (over TCP and TLS two \
                 or more)",
            ),
            Self::T1 => f.write_str("T1 must be above 0 ms"),
            Self::T2 => f.write_str("T2 must be above 0 ms"),
        }
    }
}

impl std::error::Error for RegistrantConfigError {}
