//! Finds out whether a peer sends more than its feedback allows, for so long that this server
//! itself must limit it.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::feedback::VALIDITY_DEFAULT;
use crate::feedback::told::Told;

/// The factor by which a peer may exceed its grant, and the requests a second that it may send in
/// addition, before it counts as disobedient.
const TOLERANCE: f64 = 1.33;
const TOLERANCE_RPS: f64 = 3.0;

/// This server limits (polices) a peer that sends too much for too long. The counter of violations
/// of a peer grows by [`VIOLATION`] in a tick with too many requests, and falls by one in any other
/// tick. Policing begins when the counter is [`VIOLATIONS_MAX`] · [`VIOLATION`], and ends when it
/// is zero.
const VIOLATIONS_MAX: u32 = 20;
const VIOLATION: u32 = 10;

/// Time after the start of a restriction in which a peer may send too many requests without a
/// violation. The restriction may begin before an overload, as soon as the law sets any limit. A
/// peer that is told under `rate` that there is no overload has this time when an overload begins.
const GRACE: Duration = Duration::from_secs(1);

/// The record of whether one peer obeys its feedback, and of whether this server limits the peer.
#[derive(Debug, Default)]
pub(super) struct Policing {
    /// The time since which the peer has to obey a finite grant. This is the time at which the
    /// grant became finite, or a later time at which no feedback value was valid. `None` while the
    /// grant is infinite.
    restricted: Option<Timestamp>,
    /// True if the peer exceeded its grant by more than the tolerance in the last tick.
    is_too_much: bool,
    /// Counts ticks with too many requests: each adds [`VIOLATION`], and each other tick subtracts
    /// one.
    violations: u32,
    is_policed: bool,
}

impl Policing {
    /// Records whether the grant of the peer is finite from now on. Returns whether a restriction
    /// begins.
    pub(super) fn on_grant(&mut self, now: Timestamp, is_finite: bool) -> bool {
        let begins = is_finite && self.restricted.is_none();
        self.restricted = is_finite.then(|| self.restricted.unwrap_or(now));
        begins
    }

    /// Checks whether the peer sends too much for so long that this server itself must limit it.
    /// `sends` and `may_at_most` are the requests a second that the peer sends, and that it can
    /// consider allowed by the values that it was `told`. `takes_part` is true if an algorithm is
    /// agreed with the peer.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        sends: f64,
        may_at_most: f64,
        told: &Told,
        takes_part: bool,
    ) {
        self.is_too_much = sends > TOLERANCE * may_at_most + TOLERANCE_RPS;
        // RFC 7339 §4.3: a value that is not renewed ends. After that the peer may send any number
        // of requests. The same holds if the last rate was 0, which ends a restriction
        // (RFC 7339 §5.7).
        if now.since(told.at()) > VALIDITY_DEFAULT || told.sets_no_limit() {
            self.restricted = self.restricted.map(|_| now);
        }
        let Some(since) = self.restricted.filter(|_| takes_part) else { return };
        if self.is_too_much && now.since(since) > GRACE {
            self.violations = (self.violations + VIOLATION).min(VIOLATIONS_MAX * VIOLATION);
        } else {
            self.violations = self.violations.saturating_sub(1);
        }
        self.is_policed = match self.violations {
            0 => false,
            most if most >= VIOLATIONS_MAX * VIOLATION => true,
            _ => self.is_policed,
        };
    }

    /// Returns whether the peer has to respect a finite grant.
    pub(super) fn is_restricted(&self) -> bool {
        self.restricted.is_some()
    }

    /// Returns whether the peer exceeded its grant by more than the tolerance in the last tick.
    pub(super) fn is_too_much(&self) -> bool {
        self.is_too_much
    }

    /// Returns whether this server itself limits the peer.
    pub(super) fn is_policed(&self) -> bool {
        self.is_policed
    }
}
