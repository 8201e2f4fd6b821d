//! The servers that send requests to this one (peers), and the load that each may send.
//!
//! Every 100 ms the law's allowance becomes a number of calls a second ([`Capacity`]), which is
//! [shared](Shares) among the peers that sent a request for a session within the last second (paper
//! 002 §3.2). The weight of a peer depends on the fairness (paper 002 §6.1). A peer that takes part
//! in overload control is told its share. A peer that does not take part gets the same share of the
//! processor, and the cost of rejecting its calls is subtracted from this share. For a burst it may
//! save its share of one second. All [strangers](Offer::STRANGERS) together have at most half of
//! the capacity, or under user-centric fairness at most [`share_max`](UpstreamSettings::share_max).
//!
//! **Original load.** This is the load that a peer would send without feedback. Under `loss` each
//! new call also counts for the calls that the peer has to hold back. Under `rate` the sent calls
//! count. If the peer uses its whole grant, its load before that counts instead. A peer may also
//! claim an original load. Assume that a peer claims more than its grant, but sends less than half
//! of the grant. Once the missing requests are as many as its grant for one second, its claim was
//! too large. Then only its sent requests count, for one minute. A peer that claims too much and
//! uses its whole grant cannot be distinguished from a peer that really has that load. So
//! `share_max` limits the gain of such a peer.
//!
//! **Claims decide only the division.** If the law admits a share of the original load, the
//! capacity is this share of the loads that this server measures. So a peer that claims too much
//! does not make the capacity larger. Under `loss` the measured load of a peer grows by at most a
//! twentieth in 100 ms, unless the requests that arrive show more.
//!
//! **Overload** begins when the measured load exceeds the capacity. It ends when the load has not
//! exceeded the capacity for one second. Before and after an overload, every peer is told that
//! there is no restriction.
//!
//! **Policing.** If a peer takes part in overload control, its feedback allows it a rate. If the
//! peer exceeds this rate for 2 s by more than a third plus 3 requests a second, it is treated as
//! if it did not take part. This lasts until it has obeyed for ten times as long. In the meantime
//! it still gets its share if it obeys: the requests that it sends are compared with its share in
//! each tick, and its original load is measured again. So a peer that was policed by mistake does
//! not starve, and a peer that never obeys never gets more than its share.
//!
//! **Cold start.** A peer is told its share from its first tick on. **Known bias.** Under `rate`, a
//! peer that uses its whole share does not show how much more it would send, unless it claims a
//! load. Its share is nevertheless correct, because it is limited by the level that is the same for
//! all peers. But under user-centric fairness its weight is the load that it sent before the
//! overload. All peers for which the table has no room count as one stranger. Strangers may use half
//! of the table, and other peers that do not take part may use a quarter.
//!
//! **First calls.** The first call of a stranger shows no rate, and many strangers, such as phones,
//! call so rarely that the table has forgotten them before their next call. So first calls count in
//! the joint entry of the peers for which the table has no room. Its weight is the number of
//! strangers that begin to call in a second, so that each of them gets as much as any other
//! stranger.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream, Timestamp};

use super::capacity::Capacity;
use super::peer_view::PeerView;
use super::sequence::Sequence;
use super::shares::Shares;
use super::upstream::{AGREED, Upstream};
use super::upstream_settings::{Offer, TICK, UpstreamFairness, UpstreamSettings};
use super::{Category, Feedback};
use crate::Gate;
use crate::source_table::{Slot, SourceTable};

/// Time for which a peer counts as active after its last request that began a session. The capacity
/// is divided among the active peers.
// 002 §3.2: "Each entry has an expiration timer set to one second."
const ACTIVE: Duration = Duration::from_secs(1);

/// Time for which the load must stay below the capacity before an overload ends.
const CALM: Duration = Duration::from_secs(1);

/// Time after its last request at which a peer without an agreed algorithm is forgotten. If the
/// table is full, every peer is forgotten after this time.
const REMEMBERED_STRANGER: Duration = Duration::from_secs(10);

/// The part of the table that strangers may use. Anybody can send requests from many addresses. Such
/// requests must keep out neither peers that take part in overload control nor other peers.
const STRANGERS_MAX: f64 = 0.5;

/// The part of the table that peers without an agreed algorithm may use, if they are not strangers.
const APART_MAX: f64 = 0.25;

/// The decision on a request that has arrived, before the gate judges the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The gate judges the request like any other.
    Judge,
    /// The sender has not used up its share: the gate judges the request as that of a
    /// [restricted](crate::Sender::restricted) sender.
    Pass,
    /// The request is rejected: its sender takes no part in overload control or does not obey, and
    /// has used up its share.
    // RFC 7339 §5.10.2: "A SIP server that is in overload and has started to throttle incoming traffic
    // MUST reject some requests from non-participating clients with a 503 (Service Unavailable)
    // response without the Retry-After header."
    Reject,
}

/// The table of the servers that send requests to this one, and the feedback for each of them.
#[derive(Debug)]
pub struct Upstreams {
    settings: UpstreamSettings,
    peers: SourceTable<Upstream>,
    /// Number of [strangers](Offer::STRANGERS) in the table.
    strangers: usize,
    /// Number of other peers in the table that take no part in overload control. A peer that begins
    /// to take part is subtracted at the next tick.
    apart: usize,
    capacity: Capacity,
    shares: Shares,
    /// Calls a second that could be served in the time spent on rejecting requests of peers that do
    /// not hold them back. Each of these peers counts for at most its share.
    rejecting_cps: f64,
    /// Time at which the load last exceeded the capacity, or `None` without an overload.
    overloaded: Option<Timestamp>,
    sequence: Sequence,
    due: Timestamp,
    /// Time of the last request of any peer.
    heard: Timestamp,
    /// Random numbers for the starting points of the peers' throttles.
    starts: Stream,
}

impl Upstreams {
    /// Creates an empty table of peers for the server numbered `element`.
    pub fn new(settings: &UpstreamSettings, seed: Seed, element: u32) -> Self {
        let mut key = seed.stream(Purpose::Upstreams, element);
        let mut peers = SourceTable::new(settings.peers_max, &mut key);
        *peers.get_mut(SourceTable::<Upstream>::SHARED) = Upstream::stranger();
        Self {
            settings: *settings,
            peers,
            strangers: 0,
            apart: 0,
            capacity: Capacity::default(),
            shares: Shares::new(settings),
            rejecting_cps: 0.0,
            overloaded: None,
            sequence: Sequence::default(),
            due: Timestamp::NEVER,
            heard: Timestamp::ZERO,
            starts: key,
        }
    }

    /// Judges a request of the peer `key` before the gate does. The request must not be a
    /// retransmission.
    pub fn on_request(
        &mut self,
        now: Timestamp,
        key: u128,
        category: Category,
        offer: &Offer,
    ) -> Arrival {
        self.heard = now;
        if self.due == Timestamp::NEVER {
            self.due = now + TICK;
        }
        let slot = self.slot(key, category, offer);
        let has_entry = slot != SourceTable::<Upstream>::SHARED;
        let is_overloaded = self.overloaded.is_some();
        let peer = self.peers.get_mut(slot);
        // A client may omit its overload-control parameters in an ACK or a CANCEL. No response to
        // an ACK could announce another algorithm, so an ACK cannot change it either.
        let says_nothing = category == Category::Required
            && (offer.algorithms.is_none() || peer.algorithm().is_some());
        if has_entry && !says_nothing {
            // An ACK and a CANCEL have the Via of their INVITE, so the load that they state is old.
            let original_cps = offer.original_cps.filter(|_| category.begins_session());
            peer.on_offer(now, &Offer { original_cps, ..*offer }, &self.settings);
        }
        let is_newcomer = has_entry && category.begins_session() && peer.is_newcomer();
        let peer = if is_newcomer {
            peer.on_first_call(now);
            let joint = self.peers.get_mut(SourceTable::<Upstream>::SHARED);
            joint.on_newcomer(now);
            joint
        } else {
            // If the table has no room for a stranger, each of its calls counts as that of another.
            let is_stranger = offer.host == Some(Offer::STRANGERS);
            if !has_entry && is_stranger && category.begins_session() {
                peer.on_newcomer(now);
            }
            peer
        };
        peer.on_request(now, category);
        let obeys = peer.obeys();
        match category {
            _ if !is_overloaded || !category.is_new() => Arrival::Judge,
            // An emergency call must not depend on the server that sends it. The gate limits the
            // rate of these calls.
            Category::Priority if !obeys => Arrival::Judge,
            // The law judges a request that is not covered by a granted share.
            _ if !peer.has_share(category) && !peer.is_limited(category) => Arrival::Judge,
            _ if !peer.passes() => Arrival::Reject,
            _ if peer.has_share(category) => Arrival::Pass,
            _ => Arrival::Judge,
        }
    }

    /// Counts a request of the peer `key` that belongs to a session which does not exist. Does
    /// nothing if the peer is not in the table.
    // RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
    // stream of SIP requests".
    pub fn on_stray(&mut self, now: Timestamp, key: u128) {
        if let Some(slot) = self.peers.find(key) {
            self.peers.get_mut(slot).on_stray(now);
        }
    }

    /// Returns the slot of a peer in the table. Only a peer that takes part in overload control, or
    /// that sends a request for new work, gets a slot of its own.
    fn slot(&mut self, key: u128, category: Category, offer: &Offer) -> Slot {
        if let Some(slot) = self.peers.find(key) {
            return slot;
        }
        if offer.algorithms.is_some() {
            return self.peers.slot(key);
        }
        if !category.is_new() {
            return SourceTable::<Upstream>::SHARED;
        }
        let (count, part_max) = match offer.host {
            Some(Offer::STRANGERS) => (&mut self.strangers, STRANGERS_MAX),
            _ => (&mut self.apart, APART_MAX),
        };
        if *count >= (self.settings.peers_max as f64 * part_max) as usize {
            return self.peers.overflow();
        }
        *count += 1;
        self.peers.slot(key)
    }

    /// Returns the feedback to write into a response to the peer `key`, or `None` if the peer does
    /// not take part in overload control.
    // RFC 7339 §5.2: "Implementations that are capable of updating the "oc" and "oc-validity"
    // parameter values during retransmissions MUST insert the "oc-seq" parameter. The value of this
    // parameter MUST be a set of numbers drawn from an increasing sequence." §4.2: "the server MUST
    // respond with the agreed-to algorithm until the algorithm is changed by the server." §5.2: "A
    // SIP server that has updated the "oc" parameter SHOULD also add a "oc-validity" parameter."
    // §5.7: "To do so, the SIP server MUST set the value of the "oc-validity" parameter to 0. The
    // SIP server MUST increment the value of "oc-seq" and SHOULD set the value of the "oc"
    // parameter to 0."
    pub fn feedback(&mut self, now: Timestamp, key: u128) -> Option<Feedback> {
        let peer = self.peers.get_mut(self.peers.find(key)?);
        let algorithm = peer.algorithm()?;
        // RFC 7339 §5.1: "if the server is currently not in an overload condition, it MUST set the
        // value of the "oc" parameter to be 0 and MAY insert an "oc-validity=0" parameter".
        let (value, validity) = match self.overloaded {
            None => (0, Duration::ZERO),
            Some(_) => (peer.value(&self.capacity), self.settings.validity),
        };
        if peer.tell(now, algorithm, value) {
            self.advance_sequence(now);
        }
        Some(Feedback { algorithm, value, validity, sequence: self.sequence })
    }

    // RFC 7339 §4.4: ""oc" parameter values generated by an overload control algorithm at time t and
    // t+1 MUST have an increasing value in the "oc-seq" parameter."
    fn advance_sequence(&mut self, now: Timestamp) {
        let since_1970 = self.settings.started + now.since(Timestamp::ZERO);
        self.sequence = self.sequence.next().max(Sequence::of_time(since_1970));
    }

    /// Measures the loads of the peers and divides the capacity among them, if that is due.
    // RFC 7415 §3.4: "the server MUST periodically evaluate its overload state and estimate a target SIP
    // request rate beyond which it would become overloaded." "The server MUST use the "oc" parameter
    // defined in [RFC7339] to send a target SIP request rate to each of its clients."
    pub fn handle_timeout(&mut self, now: Timestamp, gate: &Gate) {
        if now < self.due {
            return;
        }
        self.due =
            if now.since(self.heard) > ACTIVE + CALM { Timestamp::NEVER } else { now + TICK };
        self.advance_sequence(now);
        let counted_cps = self.take_demands(now);
        // The capacity must not depend on claims: otherwise a share of the original load would
        // become more calls a second if a peer claims a larger load.
        self.capacity.update(gate, counted_cps);
        let exceeds = self.capacity.cps() < counted_cps && self.capacity.is_used(gate);
        let since = self.overloaded.filter(|&since| now.since(since) < CALM);
        self.overloaded = if exceeds { Some(now) } else { since };
        self.share(now);
    }

    /// Returns when the next measurement is due, or `None` if none is needed.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        (self.due != Timestamp::NEVER).then_some(self.due)
    }

    /// Collects the demands of the active peers, and forgets peers that have sent nothing for a
    /// long time. Returns the sum of the original loads, without the claims of peers.
    fn take_demands(&mut self, now: Timestamp) -> f64 {
        let is_full = self.peers.len() >= self.settings.peers_max;
        self.shares.clear();
        let (shares, fairness) = (&mut self.shares, self.settings.fairness);
        let mut counted_cps = 0.0;
        self.peers.sweep(|peer| {
            let rest = now.since(peer.heard());
            if peer.look(now, peer.asked().is_some_and(|at| now.since(at) <= ACTIVE)) {
                counted_cps += peer.counted_cps();
                shares.add(peer.demand(fairness));
            }
            let agreed = peer.algorithm().is_some() && !is_full;
            rest <= if agreed { AGREED } else { REMEMBERED_STRANGER }
        });
        (self.strangers, self.apart) = (0, 0);
        for (_, peer) in self.peers.iter().filter(|(key, _)| key.is_some()) {
            self.strangers += usize::from(peer.is_stranger());
            self.apart += usize::from(!peer.is_stranger() && peer.algorithm().is_none());
        }
        counted_cps
    }

    /// Shares the capacity among the active peers.
    fn share(&mut self, now: Timestamp) {
        self.shares.divide(match self.overloaded {
            Some(_) => self.capacity.cps() + self.rejecting_cps,
            None => f64::INFINITY,
        });
        let (rejection, fairness) = (self.capacity.rejection(), self.settings.fairness);
        let most = self.capacity.cps();
        let mut rejecting_cps = 0.0;
        let (shares, starts) = (&self.shares, &mut self.starts);
        self.peers.sweep(|peer| {
            let granted_cps = shares.of(&peer.demand(fairness)).min(most);
            rejecting_cps += peer.grant(now, granted_cps, rejection, starts);
            true
        });
        self.rejecting_cps = rejecting_cps;
    }

    /// Returns whether peers are asked how many calls a second they would send without feedback
    /// (their original load). Only user-centric fairness needs this.
    // 002 §6.1: "To achieve user-centric fairness in absolute rate and window-based mechanisms, we
    // introduce a new feedforward loop in the existing feedback architecture."
    pub fn wants_loads(&self) -> bool {
        self.settings.fairness == UpstreamFairness::User
    }

    /// Returns whether peers are asked to hold requests back.
    pub fn is_overloaded(&self) -> bool {
        self.overloaded.is_some()
    }

    /// Returns how often a peer was counted together with others because the table was full.
    pub fn overflowed(&self) -> u64 {
        self.peers.overflowed()
    }

    /// Returns the state of the peer `key`, or `None` if it is not in the table.
    pub fn peer(&self, key: u128) -> Option<PeerView> {
        let slot = self.peers.find(key)?;
        Some(self.peers.get(slot).view(Some(key), self.is_overloaded()))
    }

    /// Returns the states of all peers in the table.
    pub fn peers(&self) -> impl Iterator<Item = PeerView> + '_ {
        let is_overloaded = self.is_overloaded();
        self.peers.iter().map(move |(key, peer)| peer.view(key, is_overloaded))
    }
}

#[cfg(test)]
#[path = "upstreams_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "upstreams_abuse_tests.rs"]
mod abuse_tests;
