//! `[overload.feedback]`.

use tidegate_control::feedback::{Algorithm, Algorithms, UpstreamFairness, UpstreamSettings};
use tidegate_proxy::FeedbackSettings;

use super::sources::{NET, NETS_MAX};
use crate::config::keys::keys;
use crate::config::shape::{Choice, List};

keys! {
    /// Feedback between servers (RFC 7339, RFC 7415): Tidegate tells the servers that send requests to
    /// it how much they may send, so that they reject the rest and Tidegate need not. Back ends and
    /// trusted sources (`trust` of a `[[listen]]`) take part if they offer it; nobody else is told
    /// anything. The law in force computes what they may send. Peers that take no part get as much of
    /// the processor as the others, their rejections included. See `obey_feedback` of a pool for the
    /// other direction.
    pub(in crate::config) static FEEDBACK: "[overload.feedback]" 0..=1, Restart, []
        => FeedbackSettings;

    /// The algorithms that Tidegate agrees on, in both directions; as a server it chooses the first of
    /// them that the other side has. `loss` (RFC 7339): a share of the requests to hold back; every
    /// participant has it, so it is added to any other. `rate` (RFC 7415): requests a second. None: no
    /// feedback. Offer several algorithms only to servers that can read a comma in quotes in a Via:
    /// Kamailio 5.6 rejects every such request.
    key "algorithms" {
        |feedback| {
            let UpstreamSettings { accepted, preferred, .. } = feedback.upstream;
            let mut algorithms: Vec<_> = accepted.iter().collect();
            algorithms.sort_by_key(|&algorithm| algorithm != preferred);
            Some(algorithms)
        },
        |feedback, algorithms| {
            let algorithms = algorithms.into_inner();
            feedback.upstream.preferred = algorithms.first().copied().unwrap_or(Algorithm::Loss);
            let algorithms: Algorithms = algorithms.into_iter().collect();
            feedback.upstream.accepted = match algorithms.is_empty() {
                true => Algorithms::NONE,
                false => algorithms.with(Algorithm::Loss),
            };
        }
    } = List {
        of: Choice {
            words: &[("loss", Algorithm::Loss), ("rate", Algorithm::Rate)],
            reserved: &[],
        },
        count_max: 2,
    }, Default("[\"loss\"]");
    /// Networks of further servers that may take part.
    key "peers" (peers) = List { of: NET, count_max: NETS_MAX }, Default("[]");
    /// The way in which peers share the capacity. `provider`: each gets the same. `user`: in proportion
    /// to the calls that each would send, so that every caller has the same chance. `weighted`: by
    /// `[[overload.weight]]`.
    key "fairness" (upstream.fairness) = Choice {
        words: &[
            ("provider", UpstreamFairness::Provider),
            ("user", UpstreamFairness::User),
            ("weighted", UpstreamFairness::Weighted),
        ],
        reserved: &[],
    }, Default("\"provider\"");
}
