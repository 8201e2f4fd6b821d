//! The restriction of requests to one server, as the feedback of that server demands.
//!
//! A server that does not answer gives no feedback, so its restriction expires. The health checks
//! of the proxy stop the requests to such a server (RFC 7339 §5.9).
//!
//! Source: RFC 7339 §5.4 to §5.10 and §7.2, RFC 7415 §3.5.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Timestamp, unit_enum};

use super::loss::Loss;
use super::rate::Rate;
use super::sequence::{Novelty, SequenceHistory};
use super::{Algorithm, Algorithms, Category, Feedback};
use crate::arrival_rate::ArrivalRate;

/// Time constant, in seconds, of the measured original load: the calls a second that would be sent
/// to the server without a restriction. The receiving server uses the same time constant for its
/// estimate.
const ORIGINAL_S: f64 = 1.0;

/// The settings of a [`Restriction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestrictionSettings {
    /// The algorithms that are offered to the server.
    pub offered: Algorithms,
    /// Maximum validity of a feedback value. A longer validity is shortened to this time.
    pub validity_max: Duration,
}

impl Default for RestrictionSettings {
    fn default() -> Self {
        Self { offered: Algorithms::ALL, validity_max: Duration::from_secs(60) }
    }
}

/// The decision whether a request is sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendVerdict {
    /// The request is sent.
    Send,
    /// The request is sent to another server, or rejected.
    // RFC 7339 §5.10: "it will need to reject these requests with a "503 (Service Unavailable)"
    // response without the Retry-After header."
    Reject,
}

unit_enum! {
    /// The result of applying a feedback value. Metrics use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FeedbackOutcome {
        /// The value applies from now on.
        Accepted = "accepted",
        /// The value has the same sequence number as the last accepted value.
        Known = "known",
        /// The value has a lower sequence number than the last accepted value.
        Late = "late",
        /// The value belongs to an algorithm that was not offered to the server.
        NotOffered = "not_offered",
        /// The value is not valid for its algorithm.
        Invalid = "invalid",
    }
}

/// The limit on the requests to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestrictionStatus {
    /// There is no restriction.
    Open,
    /// This percentage of the requests is held back.
    Loss(u32),
    /// At most this number of requests a second is sent.
    Rate(u32),
}

/// Counts of requests and of feedback values since a [`Restriction`] was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestrictionCounts {
    /// Requests sent.
    pub sent: u64,
    /// Requests held back because the server asked for fewer requests.
    pub held: u64,
    /// Feedback values received, by [outcome](FeedbackOutcome::ALL).
    pub feedbacks: [u64; 5],
}

/// The restriction of requests to one server.
#[derive(Debug)]
pub struct Restriction {
    settings: RestrictionSettings,
    /// The algorithm, the feedback value in force, and the time at which the value expires, or
    /// `None` without a value.
    in_force: Option<(Algorithm, u32, Timestamp)>,
    /// True if the last feedback value of the server restricts requests, even if the value has
    /// expired.
    was_restricting: bool,
    history: SequenceHistory,
    loss: Loss,
    rate: Rate,
    /// Rate of the requests that begin a session, whether they are sent or held back.
    original: ArrivalRate,
    is_load_wanted: bool,
    counts: RestrictionCounts,
}

impl Restriction {
    /// Creates a restriction of the requests to the server numbered `element`. At first, no request
    /// is held back.
    pub fn new(settings: &RestrictionSettings, seed: Seed, element: u32) -> Self {
        let stream = |part| seed.stream(Purpose::Restriction, element.wrapping_mul(2) + part);
        Self {
            settings: *settings,
            in_force: None,
            was_restricting: false,
            history: SequenceHistory::default(),
            loss: Loss::new(&mut stream(0)),
            rate: Rate::new(stream(1)),
            original: ArrivalRate::over_s(ORIGINAL_S),
            is_load_wanted: false,
            counts: RestrictionCounts::default(),
        }
    }

    /// Records whether the server asks for the original load: the calls a second that would be sent
    /// to it without any restriction (paper 002 §6.1: "a new feedforward loop").
    pub fn on_load_wanted(&mut self, is_wanted: bool) {
        self.is_load_wanted = is_wanted;
    }

    /// Returns the original load if the server asks for it: the calls a second that would be sent
    /// to it without any restriction.
    // 002 §6.1: "The feedforward information contains the sender measured value of the current
    // incoming load."
    pub fn announced_cps(&self, now: Timestamp) -> Option<f64> {
        self.is_load_wanted.then(|| self.original.rate_at(now))
    }

    /// Applies a feedback value of the server.
    pub fn on_feedback(&mut self, now: Timestamp, feedback: Feedback) -> FeedbackOutcome {
        let outcome = self.judge(now, feedback);
        self.counts.feedbacks[outcome as usize] += 1;
        outcome
    }

    fn judge(&mut self, now: Timestamp, feedback: Feedback) -> FeedbackOutcome {
        let Feedback { algorithm, value, validity, sequence } = feedback;
        if !self.settings.offered.contains(algorithm) {
            return FeedbackOutcome::NotOffered;
        }
        // RFC 7339 §7.1: "This value MUST be in the range of [0, 100], inclusive."
        if algorithm == Algorithm::Loss && value > 100 && !validity.is_zero() {
            return FeedbackOutcome::Invalid;
        }
        // RFC 7339 §5.4: "If these values match, the response does not update the overload control
        // parameters related to this server".
        match self.history.judge(now, sequence) {
            Novelty::Same => return FeedbackOutcome::Known,
            Novelty::Late => return FeedbackOutcome::Late,
            Novelty::New => {}
        }
        self.expire(now);
        // RFC 7339 §5.7: "when the value of the "oc-validity" parameter is 0, the client SHOULD
        // disregard the value in the "oc" parameter."
        if validity.is_zero() {
            self.in_force = None;
            self.was_restricting = false;
            return FeedbackOutcome::Accepted;
        }
        let goes_on = matches!(self.in_force, Some((Algorithm::Rate, ..)));
        if algorithm == Algorithm::Rate && !goes_on {
            self.rate.activate(now, value);
        }
        // Without a maximum, one wrong validity could restrict requests for days. A server that is
        // still overloaded writes a new value into each response.
        let until = now + validity.min(self.settings.validity_max);
        self.in_force = Some((algorithm, value, until));
        self.was_restricting = (algorithm, value) != (Algorithm::Loss, 0);
        FeedbackOutcome::Accepted
    }

    // RFC 7339 §5.4: "Stored overload control parameters MUST be reset to default values once the
    // validity period has expired".
    fn expire(&mut self, now: Timestamp) {
        self.in_force = self.in_force.filter(|&(.., until)| now < until);
    }

    /// Returns the restriction that is in force at `now`.
    pub fn status(&self, now: Timestamp) -> RestrictionStatus {
        match self.in_force {
            Some((Algorithm::Loss, value, until)) if now < until => RestrictionStatus::Loss(value),
            Some((Algorithm::Rate, value, until)) if now < until => RestrictionStatus::Rate(value),
            _ => RestrictionStatus::Open,
        }
    }

    /// Returns whether the last feedback of the server showed that it has room. Only then may it
    /// get requests that were held back from another server. A feedback value that restricted
    /// requests and has expired does not show this.
    // RFC 7339 §5.10: "It needs to ensure, however, that this destination is not in overload and is
    // capable of processing the extra load."
    pub fn is_known_free(&self, now: Timestamp) -> bool {
        let is_in_force = self.in_force.is_some_and(|(.., until)| now < until);
        (is_in_force || !self.was_restricting) && !self.is_restricting(now)
    }

    /// Returns whether the server restricts requests now. If the server has set a rate, the result
    /// is false while fewer requests are sent than the rate allows.
    pub fn is_restricting(&self, now: Timestamp) -> bool {
        match self.status(now) {
            RestrictionStatus::Open | RestrictionStatus::Loss(0) => false,
            RestrictionStatus::Loss(_) => true,
            RestrictionStatus::Rate(rate) => !self.rate.has_room(now, rate),
        }
    }

    /// Returns the counts since the restriction was created.
    pub fn counts(&self) -> &RestrictionCounts {
        &self.counts
    }

    /// Decides whether a request is sent. Must not be called for a retransmission.
    // RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by
    // the current "oc" and "oc-algo" parameter values from that particular downstream server."
    // §4.1: "it MUST reduce, as indicated by the "oc" and "oc-algo" parameters, the number of
    // requests going downstream to the SIP server from which it received the response."
    pub fn on_request(&mut self, now: Timestamp, category: Category) -> SendVerdict {
        self.expire(now);
        self.loss.count(now, category);
        if category.begins_session() {
            self.original.on_arrival(now);
        }
        let passes = match self.in_force {
            Some((Algorithm::Loss, percent, _)) => self.loss.passes(percent, category),
            Some((Algorithm::Rate, rate, _)) => self.rate.passes(now, rate, category),
            None => true,
        };
        if passes {
            self.counts.sent += 1;
            SendVerdict::Send
        } else {
            self.counts.held += 1;
            SendVerdict::Reject
        }
    }
}

#[cfg(test)]
#[path = "restriction_tests.rs"]
mod tests;
