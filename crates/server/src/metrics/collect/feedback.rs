//! Metrics of feedback between servers (RFC 7339).

use tidegate_control::feedback::{Algorithm, FeedbackOutcome, RestrictionStatus, Standing};
use tidegate_proxy::{Counters, NextHopView, NextHops, UpstreamView};
use tidegate_world::Timestamp;

use crate::metrics::{Family, Samples};

/// Maximum number of next hops, and of upstream peers of a shard, in the metrics. Only the first
/// ones by address are shown.
const SHOWN_MAX: usize = 256;

/// Adds the metrics of the back ends that give feedback.
pub(super) fn add_received(samples: &mut Samples, next_hops: &NextHops, now: Timestamp) {
    samples.push(&OVERFLOWED, &[], next_hops.overflowed());
    for view in next_hops.views(now).into_iter().take(SHOWN_MAX) {
        let NextHopView { address, status, counts } = view;
        let address = address.to_string();
        let labels = [("next_hop", &*address)];
        if let (Some(algorithm), Some(value)) = restriction(status) {
            samples.push(&RECEIVED, &[labels[0], ("algorithm", algorithm)], u64::from(value));
        }
        samples.push(&SENT, &labels, counts.sent);
        samples.push(&HELD, &labels, counts.held);
        for outcome in FeedbackOutcome::ALL {
            let labels = [labels[0], ("outcome", outcome.name())];
            samples.push(&FEEDBACKS, &labels, counts.feedbacks[outcome as usize]);
        }
    }
}

/// Adds the metrics of the upstream peers of a shard that take part in overload feedback.
pub(super) fn add_given(samples: &mut Samples, shard: &str, counters: &Counters) {
    for UpstreamView { address, peer } in counters.upstream.get().into_iter().take(SHOWN_MAX) {
        let address = address.to_string();
        let labels = [("shard", shard), ("peer", &*address)];
        if let Some(algorithm) = peer.algorithm {
            let labels = [labels[0], labels[1], ("algorithm", algorithm.name())];
            samples.push(&GIVEN, &labels, u64::from(peer.value));
        }
        samples.push(&OBEYS, &labels, u64::from(peer.standing == Standing::Obeys));
        samples.push(&OFFERED, &labels, peer.original_cps);
        if peer.granted_cps.is_finite() {
            samples.push(&GRANTED, &labels, peer.granted_cps);
        }
        if let Some(claimed_cps) = peer.claimed_cps {
            samples.push(&CLAIMED, &labels, claimed_cps);
        }
        samples.push(&DOUBTED, &labels, u64::from(peer.is_doubted));
        samples.push(&REJECTED, &labels, peer.rejected);
    }
}

/// Returns the name of the algorithm and the value of a restriction, or `None` for both if no
/// restriction is in force.
pub(crate) fn restriction(status: RestrictionStatus) -> (Option<&'static str>, Option<u32>) {
    match status {
        RestrictionStatus::Loss(percent) => (Some(Algorithm::Loss.name()), Some(percent)),
        RestrictionStatus::Rate(rate) => (Some(Algorithm::Rate.name()), Some(rate)),
        RestrictionStatus::Open => (None, None),
    }
}

static OVERFLOWED: Family = Family::counter(
    "feedback_overflowed",
    "Feedback values that Tidegate ignored because its table of next hops with feedback was full",
);
static RECEIVED: Family = Family::gauge(
    "feedback_received",
    "Restriction in force that the next hop has asked for: the percentage of requests to hold \
     back (loss), or the largest number of requests a second (rate)",
);
static SENT: Family =
    Family::counter("feedback_sent", "Requests sent to a next hop that gives feedback");
static HELD: Family = Family::counter(
    "feedback_held",
    "Requests not sent to the next hop because it asked for fewer requests",
);
static FEEDBACKS: Family =
    Family::counter("feedback_values", "Feedback values in responses of the next hop, by outcome");
static GIVEN: Family = Family::gauge(
    "feedback_given",
    "Feedback value for the upstream peer: the percentage of requests that the peer should hold \
     back (loss), or the largest number of requests a second that it may send (rate). If there is \
     no overload, the value is 0 and sets no limit",
);
static OBEYS: Family = Family::gauge(
    "feedback_obeyed",
    "1 if the upstream peer takes part in feedback and Tidegate does not limit it, else 0. \
     Tidegate limits a peer that for some time sends over a third more requests than allowed. The \
     limit ends when the peer has sent fewer requests for some time",
);
static OFFERED: Family = Family::gauge(
    "feedback_offered_cps",
    "Estimated calls a second that the upstream peer would send without feedback",
);
static GRANTED: Family = Family::gauge(
    "feedback_granted_cps",
    "Calls a second that the upstream peer may send. Missing if there is no overload",
);
static CLAIMED: Family = Family::gauge(
    "feedback_claimed_cps",
    "Calls a second that the upstream peer says it would send without feedback. Missing if the \
     peer claims nothing",
);
static DOUBTED: Family = Family::gauge(
    "feedback_doubted",
    "1 while Tidegate ignores the number of calls a second that the upstream peer claims, because \
     the peer did not use its share, else 0",
);
static REJECTED: Family = Family::counter(
    "feedback_rejected",
    "Requests of the upstream peer rejected because its share was used up",
);
