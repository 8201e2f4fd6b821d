//! The counts of a caller.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_world::{Cause, Timestamp, add_fields};

use crate::caller::device::DeviceStats;
use crate::caller::persons::{Emergency, Persons};
use crate::delays::Delays;

/// The reason why a started call did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No response to the INVITE in 64·T1 (timer B).
    Timeout,
    /// The transport could not send the INVITE or the BYE. A call also counts here if its INVITE
    /// got no response within 64·T1, and in this time the transport reported a failed delivery: on
    /// the connection of the call or, over UDP, to the address of the server.
    Transport(Cause),
    /// The INVITE was rejected with this status.
    Status(u16),
    /// The caller hung up before there was an answer.
    Abandoned,
    /// The 2xx lacked a part that a dialog needs (To, Contact, a readable Record-Route).
    Malformed,
    /// No final response in 64·T1 (timer F) to the BYE of a call that was set up.
    ByeTimeout,
    /// The BYE was rejected with this status.
    ByeStatus(u16),
}

/// Failed calls by cause. Each call counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failures {
    /// Number of calls that failed by [`Failure::Timeout`].
    pub timeout: u64,
    /// Number of calls that failed by [`Failure::Transport`].
    pub transport: u64,
    /// Number of calls that failed by [`Failure::Status`], for each status.
    pub status: BTreeMap<u16, u64>,
    /// Number of calls that failed by [`Failure::Abandoned`].
    pub abandoned: u64,
    /// Number of calls that failed by [`Failure::Malformed`].
    pub malformed: u64,
    /// Number of calls that failed by [`Failure::ByeTimeout`].
    pub bye_timeout: u64,
    /// Number of calls that failed by [`Failure::ByeStatus`], for each status.
    pub bye_status: BTreeMap<u16, u64>,
}

impl Failures {
    /// Returns the number of failed calls.
    pub fn total(&self) -> u64 {
        let Self { timeout, transport, status, abandoned, malformed, bye_timeout, bye_status } =
            self;
        let by_status: u64 = status.values().chain(bye_status.values()).sum();
        timeout + transport + abandoned + malformed + bye_timeout + by_status
    }

    pub(crate) fn note(&mut self, failure: Failure) {
        *match failure {
            Failure::Timeout => &mut self.timeout,
            Failure::Transport(_) => &mut self.transport,
            Failure::Status(status) => self.status.entry(status).or_default(),
            Failure::Abandoned => &mut self.abandoned,
            Failure::Malformed => &mut self.malformed,
            Failure::ByeTimeout => &mut self.bye_timeout,
            Failure::ByeStatus(status) => self.bye_status.entry(status).or_default(),
        } += 1;
    }

    fn merge(&mut self, other: &Self) {
        add_fields! { self += other {
            timeout, transport, abandoned, malformed, bye_timeout; but status, bye_status
        } }
        for (&status, count) in &other.status {
            *self.status.entry(status).or_default() += count;
        }
        for (&status, count) in &other.bye_status {
            *self.bye_status.entry(status).or_default() += count;
        }
    }
}

/// Formats as `503: 12, timeout: 3`, or `none`.
impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("timeout", self.timeout),
            ("transport", self.transport),
            ("abandoned", self.abandoned),
            ("malformed answer", self.malformed),
            ("BYE timeout", self.bye_timeout),
        ];
        let by_status = self.status.iter().map(|(status, &n)| (status.to_string(), n));
        let by_name = named.into_iter().map(|(name, n)| (name.to_owned(), n));
        let by_bye = self.bye_status.iter().map(|(status, &n)| (format!("BYE {status}"), n));
        let mut separator = "";
        for (name, count) in by_status.chain(by_name).chain(by_bye).filter(|(_, n)| *n > 0) {
            write!(f, "{separator}{name}: {count}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// Retransmitted requests, by method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Repeated {
    /// INVITEs retransmitted by timer A.
    pub invite: u64,
    /// Repeated ACKs, one for each retransmitted final response.
    pub ack: u64,
    /// CANCELs retransmitted by timer E.
    pub cancel: u64,
    /// BYEs retransmitted by timer E.
    pub bye: u64,
}

impl Repeated {
    /// Returns the number of retransmitted requests of all methods.
    pub fn total(&self) -> u64 {
        self.invite + self.ack + self.cancel + self.bye
    }

    fn merge(&mut self, other: &Self) {
        add_fields! { self += other { invite, ack, cancel, bye } }
    }
}

/// The calls of a run that were due in its measured time: after the
/// [warm-up](crate::CallerConfig::warm_up), and not after
/// [`measured_until`](crate::CallerConfig::measured_until).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Measured {
    /// Calls that were due.
    pub offered: u64,
    /// Calls not started, because [`open_max`](crate::CallerConfig::open_max) calls were open, or
    /// because too many calls already waited for another call to end
    /// ([`open_limit`](crate::CallerConfig::open_limit)).
    pub not_begun: u64,
    /// Calls answered with 2xx before the caller gave up.
    pub set_up: u64,
    /// Calls set up within [`deadline`](crate::CallerConfig::deadline) of their intended time.
    pub set_up_in_time: u64,
    /// Calls that failed because of a 503.
    pub rejected: u64,
    /// INVITEs retransmitted, by timer A.
    pub repeated_invites: u64,
    /// Delays from the intended time of a call to the arrival of the 2xx. If the load goes on after
    /// the measured time, the delays of calls that are set up too late, and after the load has
    /// ended, are left out.
    pub set_up_delay: Delays,
    /// BYEs first sent in the measured time and before the end of the load. Their calls may have
    /// started before the measured time.
    pub byes: u64,
    /// BYEs in `byes` that were answered with 2xx within
    /// [`deadline`](crate::CallerConfig::deadline).
    pub byes_in_time: u64,
    /// Delays from the first BYE of a call to the arrival of its 2xx.
    pub bye_delay: Delays,
}

impl Measured {
    /// Returns the number of INVITEs and BYEs that were due, without retransmissions.
    pub fn requests(&self) -> u64 {
        self.offered + self.byes
    }

    /// Returns the number of INVITEs and BYEs that were answered with 2xx within the deadline.
    pub fn requests_handled(&self) -> u64 {
        self.set_up_in_time + self.byes_in_time
    }

    /// Returns the number of retransmitted INVITEs per call that was due.
    pub fn retransmission_ratio(&self) -> f64 {
        self.repeated_invites as f64 / self.offered.max(1) as f64
    }

    fn merge(&mut self, other: &Self) {
        add_fields! { self += other {
            offered, not_begun, set_up, set_up_in_time, rejected, repeated_invites, byes,
            byes_in_time; merge set_up_delay, bye_delay
        } }
    }
}

/// Counts of a caller. At all times, `offered = begun + not_begun + expired + waiting` and `begun =
/// completed + failed + open`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct CallerStats {
    /// Calls that have become due.
    pub offered: u64,
    /// Calls whose INVITE was sent.
    pub begun: u64,
    /// Calls not started, because [`open_max`](crate::CallerConfig::open_max) calls were open, or
    /// because too many calls already waited for another call to end
    /// ([`open_limit`](crate::CallerConfig::open_limit)).
    pub not_begun: u64,
    /// Calls that were held back ([`open_limit`](crate::CallerConfig::open_limit)) until the end of
    /// the load and never started.
    pub expired: u64,
    /// Calls that wait for another call to end.
    pub waiting: u64,
    /// Calls that had to wait for another call to end, whatever their outcome was.
    pub held_back: u64,
    /// Number of times that a call was offered to another server after a 503. The call counts only
    /// once in `begun`.
    pub offered_elsewhere: u64,
    /// Calls that have been started and have not ended.
    pub open: u64,
    /// Open calls that are set up.
    pub talking: u64,
    /// Open calls whose person hung up before there was an answer. Their transactions have not
    /// ended.
    pub abandoned_open: u64,
    /// Calls answered with 2xx before the caller gave up.
    pub set_up: u64,
    /// Calls set up within [`deadline`](crate::CallerConfig::deadline) of their intended time.
    pub set_up_in_time: u64,
    /// Calls that were set up, and were then ended by a BYE of the other side, or by our BYE that
    /// got a 2xx.
    pub completed: u64,
    /// Calls that the other side ended.
    pub hung_up: u64,
    /// Calls that failed.
    pub failed: Failures,
    /// Retransmitted requests.
    pub repeated: Repeated,
    /// Delays from the intended time of a call to the arrival of the 2xx.
    pub set_up_delay: Delays,
    /// Delays from the intended time of a call to its actual start, for calls that were not held
    /// back.
    pub lateness: Delays,
    /// Counts of the measured time.
    pub measured: Measured,
    /// Counts of the people who call.
    pub persons: Persons,
    /// Counts of the emergency calls of the measured time.
    pub emergency: Emergency,
    /// Counts of the devices that register.
    pub devices: DeviceStats,
    /// Messages that belong to none of our calls, and requests within our calls other than BYE and
    /// ACK.
    pub unexpected: u64,
    /// Received retransmissions of messages that had already been answered, and messages of ended
    /// calls.
    pub late: u64,
    /// Packets that are not SIP, and messages without a readable part that the caller needs.
    pub malformed: u64,
    /// Messages whose delivery the transport reported as failed.
    pub undelivered: u64,
    /// Messages not sent because their connection had ended, was full or could not be opened.
    pub unsent: u64,
    /// Earliest time at which the first call may start.
    #[serde(skip)]
    pub start: Timestamp,
    /// Intended time of the last call that was due.
    #[serde(skip)]
    pub last_intended: Timestamp,
    /// Time at which the last call was started.
    #[serde(skip)]
    pub last_begun: Timestamp,
}

impl CallerStats {
    /// Adds the counts of another caller that ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.start = if self.offered == 0 { other.start } else { self.start.min(other.start) };
        self.last_intended = self.last_intended.max(other.last_intended);
        self.last_begun = self.last_begun.max(other.last_begun);
        add_fields! { self += other {
            offered, begun, not_begun, expired, waiting, held_back, offered_elsewhere, open,
            talking, abandoned_open, set_up, set_up_in_time, completed, hung_up, unexpected, late,
            malformed, undelivered, unsent;
            merge failed, repeated, set_up_delay, lateness, measured, persons, emergency, devices;
            but start, last_intended, last_begun
        } }
    }
}
