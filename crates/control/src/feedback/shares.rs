//! Divides the capacity of this server among the servers that send requests to it.
//!
//! Each sender gets the calls a second that it offers, but at most its weight times a
//! [level](MaxMin) that is the same for all senders.
//!
//! **Hosts.** A peer is an address and a port (RFC 7339 §5.4: "The scope of overload control
//! applies to unique combinations of IP and port values."). A host chooses its ports itself. So all
//! peers with the same [host](Offer::host) count as one sender. The share of a host is divided
//! among its peers in proportion to their original loads.
//!
//! **Strangers.** Peers that may not take part in overload control are
//! [strangers](Offer::STRANGERS). Anybody can send requests from many addresses, so all strangers
//! together count as one sender. Its weight is the sum of their weights, but at most the weight of
//! all other senders together. Under user-centric fairness,
//! [`share_max`](UpstreamSettings::share_max) limits its weight instead. The share of the strangers
//! is divided among them by a level of its own: each stranger gets what it offers, up to its weight
//! times this level.

use super::upstream_settings::{Offer, UpstreamFairness, UpstreamSettings};
use crate::MaxMin;

/// The least weight of a sender: above zero, because demands are divided by weights.
const WEIGHT_MIN: f64 = 1e-6;

/// The largest part of the sum of all weights that strangers may have together, unless
/// [`share_max`](UpstreamSettings::share_max) applies.
const STRANGERS_SHARE_MAX: f64 = 0.5;

/// The demand of a peer, or of all peers of one host, when the capacity is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The host, or `None` for a peer that gets a share of its own.
    pub(super) host: Option<u128>,
    pub(super) original_cps: f64,
    pub(super) weight: f64,
}

impl Demand {
    fn is_of_stranger(&self) -> bool {
        self.host == Some(Offer::STRANGERS)
    }
}

/// The division of the capacity among the active senders.
#[derive(Debug)]
pub(super) struct Shares {
    fairness: UpstreamFairness,
    share_max: f64,
    /// The demands of the active senders: peers without a host, and hosts. They are sorted by host.
    demands: Vec<Demand>,
    /// The sum of the weights of the demands, before each weight was limited to its maximum part.
    weights: f64,
    max_min: MaxMin,
    /// The demands of the strangers, among which their joint share is divided.
    strangers: MaxMin,
    level: f64,
    strangers_level: f64,
}

impl Shares {
    pub(super) fn new(settings: &UpstreamSettings) -> Self {
        Self {
            fairness: settings.fairness,
            share_max: settings.share_max,
            demands: Vec::new(),
            weights: 0.0,
            max_min: MaxMin::default(),
            strangers: MaxMin::default(),
            level: f64::INFINITY,
            strangers_level: f64::INFINITY,
        }
    }

    /// Removes all demands.
    pub(super) fn clear(&mut self) {
        self.demands.clear();
    }

    pub(super) fn add(&mut self, demand: Demand) {
        self.demands.push(demand);
    }

    /// Divides `total_cps` among the demands that were added.
    pub(super) fn divide(&mut self, total_cps: f64) {
        self.join_hosts();
        self.weights = self.demands.iter().map(|demand| demand.weight).sum();
        for at in 0..self.demands.len() {
            self.demands[at].weight = self.bounded(&self.demands[at]);
        }
        let demands = self.demands.iter();
        self.max_min.set(demands.map(|demand| (demand.original_cps, demand.weight)));
        self.level = self.max_min.level(total_cps);
        let strangers = self.demands.last().filter(|demand| demand.is_of_stranger());
        let strangers_cps = strangers.map_or(f64::INFINITY, |demand| self.level * demand.weight);
        self.strangers_level = self.strangers.level(strangers_cps);
    }

    /// Replaces the demands of all peers with the same host by one demand.
    fn join_hosts(&mut self) {
        let strangers = self.demands.iter().filter(|demand| demand.is_of_stranger());
        self.strangers.set(strangers.map(|demand| (demand.original_cps, floor(demand.weight))));
        if self.demands.iter().all(|demand| demand.host.is_none()) {
            return;
        }
        let fairness = self.fairness;
        self.demands.sort_unstable_by_key(|demand| demand.host);
        self.demands.dedup_by(|next, demand| {
            let is_same = demand.host.is_some() && demand.host == next.host;
            if is_same {
                demand.original_cps += next.original_cps;
                demand.weight = match fairness {
                    _ if demand.is_of_stranger() => demand.weight + next.weight,
                    UpstreamFairness::User => demand.weight + next.weight,
                    UpstreamFairness::Provider | UpstreamFairness::Weighted => {
                        demand.weight.max(next.weight)
                    }
                };
            }
            is_same
        });
    }

    /// Returns the weight of a sender. Limits it to the largest part of the sum of all weights that
    /// this sender may have.
    fn bounded(&self, demand: &Demand) -> f64 {
        let share_max = match self.fairness {
            _ if self.demands.len() <= 1 => 1.0,
            UpstreamFairness::User => self.share_max,
            _ if demand.is_of_stranger() => STRANGERS_SHARE_MAX,
            UpstreamFairness::Provider | UpstreamFairness::Weighted => 1.0,
        };
        if share_max >= 1.0 {
            return demand.weight;
        }
        floor(demand.weight.min(share_max / (1.0 - share_max) * (self.weights - demand.weight)))
    }

    /// Returns the calls a second that a peer with this demand may send.
    pub(super) fn of(&self, peer: &Demand) -> f64 {
        let joined = peer.host.and_then(|host| {
            self.demands.binary_search_by_key(&Some(host), |demand| demand.host).ok()
        });
        match joined.map(|at| &self.demands[at]) {
            Some(joined) if joined.is_of_stranger() => self.strangers_level * floor(peer.weight),
            // The peers of a host get parts of its share, in proportion to their original loads.
            Some(joined) if peer.original_cps > 0.0 => {
                self.level * joined.weight * peer.original_cps / joined.original_cps
            }
            Some(joined) => self.level * joined.weight,
            None => self.level * self.bounded(peer),
        }
    }
}

fn floor(weight: f64) -> f64 {
    weight.max(WEIGHT_MIN)
}
