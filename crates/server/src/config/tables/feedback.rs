//! `[overload.feedback]`.

use tidegate_control::feedback::{Algorithm, Algorithms, UpstreamFairness, UpstreamSettings};
use tidegate_proxy::FeedbackSettings;

use super::sources::{NET, NETS_MAX};
use crate::config::keys::{Only, keys};
use crate::config::shape::{Choice, List, Real};

static BY_LOAD: Only<FeedbackSettings> = Only {
    by: "fairness",
    when: |feedback| feedback.upstream.fairness == UpstreamFairness::User,
    why: "shares do not follow the peers' loads",
    instead: "write `fairness = \"user\"`",
};

keys! {
    /// Feedback between servers (RFC 7339, RFC 7415). Tidegate tells the servers that send requests
    /// to it how much they may send. These servers then reject the rest, so that Tidegate need not
    /// do it. The law in force computes how much each server may send. Back ends, trusted sources
    /// (`trust` of a `[[listen]]`) and `peers` take part in feedback if their requests offer
    /// overload control. If one of these servers does not offer overload control, it gets no
    /// feedback, but the same share of the processor as the others. The cost of rejecting its
    /// requests counts in that share. All other senders get no feedback. Together they get at most
    /// half of the capacity (with `fairness = "user"` at most the part `share_max`), or more if the
    /// servers that take part need less. For the other direction see `obey_feedback` of a pool.
    pub(in crate::config) static FEEDBACK: "[overload.feedback]" 0..=1, Restart, []
        => FeedbackSettings;

    /// The algorithms that Tidegate supports, in both directions. When a server offers several
    /// algorithms, Tidegate chooses the first one of this list that the server has offered. `loss`
    /// (RFC 7339): the share of requests that the server holds back. Every participant must support
    /// `loss`, so Tidegate adds it to the list. `rate` (RFC 7415): the number of requests a second.
    /// `[]`: no feedback. Use several algorithms only with servers that can read a comma in quotes
    /// in a Via. Kamailio 5.6 rejects every request with a comma in quotes in a Via.
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
    /// Networks of further servers that may take part in feedback. Under overload the kernel drops
    /// no requests of these servers. In fair shares (`fair`) each of them counts as 1,000 sources,
    /// unless an `[[overload.weight]]` is configured.
    key "peers" (peers) = List { of: NET, count_max: NETS_MAX }, Default("[]");
    /// The rule by which peers share the capacity. `provider`: each peer gets the same share.
    /// `user`: each peer gets a share in proportion to the calls that it would send, so that every
    /// caller has the same chance. Tidegate asks its peers for this number (the private Via
    /// parameter `oc-tgload`), and another Tidegate answers. For a peer that does not answer,
    /// Tidegate estimates the number. `weighted`: each peer gets a share in proportion to its
    /// `[[overload.weight]]`.
    key "fairness" (upstream.fairness) = Choice {
        words: &[
            ("provider", UpstreamFairness::Provider),
            ("user", UpstreamFairness::User),
            ("weighted", UpstreamFairness::Weighted),
        ],
        reserved: &[],
    }, Default("\"provider\"");
    /// The senders that share the capacity. `port`: each address and port is a peer with its own
    /// share. This is the scope that RFC 7339 §5.4 defines. `host`: all ports of an IPv4 address,
    /// or of an IPv6 /64, share one part of the capacity. Each port gets a part of this in
    /// proportion to its load. A server chooses its ports itself, so with `port` a server that
    /// sends from several ports gets several shares. Do not use `host` if several servers send from
    /// one address.
    key "share_by" (shares_by_host) = Choice {
        words: &[("port", false), ("host", true)],
        reserved: &[],
    }, Default("\"port\"");
    /// The largest part of the capacity that one peer may take from others with `fairness =
    /// "user"`. It limits what a peer gains by claiming more calls than it has. If a peer claims
    /// more than its share but does not use its share, Tidegate ignores its claims for a minute.
    key "share_max" (upstream.share_max) = Real(0.01..=1.0), Default("0.75"), only(&BY_LOAD);
}
