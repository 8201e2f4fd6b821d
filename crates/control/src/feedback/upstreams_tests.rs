//! Tests of [`Upstreams`], by section of RFC 7339 and of paper 002.

use std::collections::VecDeque;

use super::*;
use crate::Settings;
use crate::feedback::{
    Algorithm, Algorithms, Restriction, RestrictionSettings, SendVerdict, Standing,
    VALIDITY_DEFAULT,
};
use crate::gate::tests::fixed;

/// Returns settings that prefer the algorithm `rate`, whose values follow from the law alone.
fn by_rate() -> UpstreamSettings {
    UpstreamSettings { preferred: Algorithm::Rate, ..UpstreamSettings::default() }
}

const OBEDIENT: Offer =
    Offer { algorithms: Some(Algorithms::ALL), original_cps: None, weight: 1, host: None };
const APART: Offer = Offer { algorithms: None, original_cps: None, weight: 1, host: None };

/// A simulation of peers that each send calls at a constant rate to one server.
struct Plant {
    now: Timestamp,
    gate: Gate,
    upstreams: Upstreams,
    peers: Vec<Peer>,
    /// The BYEs to send: their times, and the indexes of their peers.
    ends: VecDeque<(Timestamp, usize)>,
}

/// A simulated peer. Its key is its index.
struct Peer {
    cps: f64,
    offer: Offer,
    restriction: Restriction,
    obeys: bool,
    /// Milliseconds between two requests outside sessions that the peer never holds back, such as
    /// health checks.
    probes_every: Option<u64>,
    /// Requests outside sessions in each millisecond. The peer holds them back as the feedback
    /// demands.
    registers: u64,
    /// The fraction of the next call to send that is due.
    due: f64,
    /// Calls that were sent and not rejected.
    passed: u64,
    /// Requests in existing calls that the peer held back.
    held: u64,
    told: Option<Feedback>,
}

/// Returns a gate whose law always sets this allowance. A `kind` of 0 is a fraction, of 1 a rate.
fn gate_of(kind: f64, value: f64) -> Gate {
    let mut gate = Gate::new(Settings::new(fixed(kind, value)), Seed(1), 0);
    gate.on_arrival(Timestamp::ZERO, 0);
    gate
}

fn plant(settings: UpstreamSettings, kind: f64, value: f64, peers: &[(f64, Offer)]) -> Plant {
    let gate = gate_of(kind, value);
    let peer = |(index, &(cps, offer)): (usize, &(f64, Offer))| Peer {
        cps,
        offer,
        restriction: Restriction::new(&RestrictionSettings::default(), Seed(1), index as u32),
        obeys: true,
        probes_every: None,
        registers: 0,
        due: 0.0,
        passed: 0,
        held: 0,
        told: None,
    };
    Plant {
        now: Timestamp::ZERO,
        gate,
        upstreams: Upstreams::new(&settings, Seed(1), 0),
        peers: peers.iter().enumerate().map(peer).collect(),
        ends: VecDeque::new(),
    }
}

impl Plant {
    /// Simulates `seconds` seconds. A call is an INVITE and an ACK, and a BYE 2 s later.
    fn run(&mut self, seconds: u64) {
        self.run_ms(seconds * 1000);
    }

    /// Simulates `length_ms` milliseconds, in steps of one millisecond.
    fn run_ms(&mut self, length_ms: u64) {
        for ms in 0..length_ms {
            self.now = self.now + Duration::from_millis(1);
            self.upstreams.handle_timeout(self.now, &self.gate);
            while let Some(&(_, index)) = self.ends.front().filter(|(at, _)| *at <= self.now) {
                self.ends.pop_front();
                self.send(index, Category::Ongoing);
            }
            for index in 0..self.peers.len() {
                if self.peers[index].probes_every.is_some_and(|every| ms % every == 0) {
                    self.receive(index, Category::Single);
                }
                for _ in 0..self.peers[index].registers {
                    self.send(index, Category::Single);
                }
                self.peers[index].due += self.peers[index].cps / 1000.0;
                while self.peers[index].due >= 1.0 {
                    self.peers[index].due -= 1.0;
                    if self.send(index, Category::Session) {
                        self.peers[index].passed += 1;
                        self.send(index, Category::Required);
                        self.ends.push_back((self.now + Duration::from_secs(2), index));
                    }
                }
            }
        }
    }

    /// Sends a request, unless the peer obeys and has to hold it back. Returns whether the request
    /// was sent and not rejected.
    fn send(&mut self, index: usize, category: Category) -> bool {
        let peer = &mut self.peers[index];
        let may = peer.restriction.on_request(self.now, category) == SendVerdict::Send;
        peer.held += u64::from(!may && category == Category::Ongoing);
        (may || !peer.obeys) && self.receive(index, category)
    }

    /// Receives a request of a peer. Returns whether it is not rejected.
    fn receive(&mut self, index: usize, category: Category) -> bool {
        let Self { now, upstreams, peers, .. } = self;
        let peer = &mut peers[index];
        let arrival = upstreams.on_request(*now, index as u128, category, &peer.offer);
        let feedback = upstreams.feedback(*now, index as u128);
        assert_eq!(feedback.is_some(), peer.offer.algorithms.is_some());
        if let Some(feedback) = feedback {
            peer.restriction.on_feedback(*now, feedback);
        }
        peer.told = feedback;
        assert!(category.is_new() || arrival == Arrival::Judge);
        arrival != Arrival::Reject
    }

    /// Returns the calls a second of each peer that pass in the next `seconds` seconds.
    fn rates(&mut self, seconds: u64) -> Vec<f64> {
        self.peers.iter_mut().for_each(|peer| peer.passed = 0);
        self.run(seconds);
        self.peers.iter().map(|peer| peer.passed as f64 / seconds as f64).collect()
    }
}

#[track_caller]
fn assert_near(rates: &[f64], expected: &[f64]) {
    let near = |(rate, expected): (&f64, &f64)| (rate - expected).abs() <= 0.06 * expected + 0.5;
    assert!(rates.iter().zip(expected).all(near), "{rates:?}, not {expected:?}");
}

// RFC 7339 §5.1: "if the server is currently not in an overload condition, it MUST set the value of the
// "oc" parameter to be 0 and MAY insert an "oc-validity=0" parameter in the response to further qualify
// the value in the "oc" parameter."
#[test]
fn rfc7339_5_1_without_overload_a_peer_is_told_that_there_is_none() {
    let mut plant = plant(by_rate(), 1.0, 100.0, &[(60.0, OBEDIENT), (30.0, APART)]);
    assert_near(&plant.rates(5), &[60.0, 30.0]);
    let told = plant.peers[0].told.unwrap();
    assert_eq!((told.value, told.validity), (0, Duration::ZERO));
    assert!(!plant.upstreams.is_overloaded());
    let peer = plant.upstreams.peer(0).unwrap();
    assert_eq!((peer.value, peer.granted_cps), (0, f64::INFINITY));
}

/// A regression: operators saw the last value of an overload until the next request of the peer.
#[test]
fn a_peer_that_stops_calling_in_an_overload_is_shown_without_a_limit_afterwards() {
    for settings in [UpstreamSettings::default(), by_rate()] {
        let mut plant = plant(settings, 1.0, 50.0, &[(100.0, OBEDIENT)]);
        plant.run(5);
        let peer = plant.upstreams.peer(0).unwrap();
        assert!(peer.value > 0 && peer.granted_cps.is_finite(), "{peer:?}");
        // No further request arrives, so no response tells the peer that the overload is over.
        plant.peers[0].cps = 0.0;
        plant.ends.clear();
        plant.run(4);
        let peer = plant.upstreams.peer(0).unwrap();
        assert_eq!((peer.value, peer.granted_cps), (0, f64::INFINITY));
        assert!(plant.peers[0].told.unwrap().value > 0);
    }
}

// RFC 7339 §5.1: "the server MUST choose one algorithm from the list of algorithms in the "oc-algo"
// parameter." §5.1: "If a server receives a SIP request containing the "oc" and "oc-algo" parameters,
// the server MUST determine if it has already selected the overload control algorithm class with this
// client. If it has, the server SHOULD use the previously selected algorithm class in its response to
// the message." §5.8: "Once the server selects a specific overload control algorithm for a given client,
// the algorithm SHOULD NOT change the algorithm associated with that client for at least 3600 seconds
// (1 hour)."
// §4.1: "The downstream server MUST add a value to the "oc" parameter in the response going upstream to a
// client that included the "oc" parameter in the request." §4.2: "it chooses one algorithm from the list and
// MUST return the single selected algorithm to the client." "the server MUST respond with the agreed-to
// algorithm until the algorithm is changed by the server." "The selection SHOULD stay the same for a
// non-trivial duration of time to allow the overload control algorithm to stabilize its behavior".
#[test]
fn rfc7339_5_8_the_chosen_algorithm_stays_for_an_hour() {
    let mut upstreams = Upstreams::new(&by_rate(), Seed(1), 0);
    let mut chosen = |s: u64, algorithms| {
        let now = Timestamp::ZERO + Duration::from_secs(s);
        let offer = Offer { algorithms, ..OBEDIENT };
        upstreams.on_request(now, 7, Category::Session, &offer);
        upstreams.feedback(now, 7).map(|feedback| feedback.algorithm)
    };
    assert_eq!(chosen(0, Some(Algorithms::LOSS)), Some(Algorithm::Loss));
    assert_eq!(chosen(10, Some(Algorithms::ALL)), Some(Algorithm::Loss), "not the preferred");
    assert_eq!(chosen(3601, Some(Algorithms::ALL)), Some(Algorithm::Rate));
    assert_eq!(chosen(3602, Some(Algorithms::LOSS)), Some(Algorithm::Loss), "it can no more");
    assert_eq!(chosen(3603, None), Some(Algorithm::Loss), "the response may be sent again");
    assert_eq!(chosen(3634, None), None);
}

#[test]
fn an_algorithm_that_is_not_accepted_is_not_chosen() {
    let settings = UpstreamSettings { accepted: Algorithms::LOSS, ..by_rate() };
    let mut upstreams = Upstreams::new(&settings, Seed(1), 0);
    let mut chosen = |algorithms| {
        let offer = Offer { algorithms: Some(algorithms), ..OBEDIENT };
        upstreams.on_request(Timestamp::ZERO, 7, Category::Session, &offer);
        upstreams.feedback(Timestamp::ZERO, 7).map(|feedback| feedback.algorithm)
    };
    assert_eq!(chosen(Algorithms::NONE.with(Algorithm::Rate)), None);
    assert_eq!(chosen(Algorithms::ALL), Some(Algorithm::Loss), "not the preferred");
}

// RFC 7339 §4.4: ""oc" parameter values generated by an overload control algorithm at time t and t+1
// MUST have an increasing value in the "oc-seq" parameter." §5.8: "An algorithm change, when desired, is
// simply accomplished by the SIP server choosing a new algorithm from the list in the client's "oc-algo"
// parameter and sending it back to the client in a response."
#[test]
fn rfc7339_5_8_after_a_change_of_the_algorithm_the_first_value_has_its_meaning() {
    let mut plant = plant(by_rate(), 1.0, 72.0, &[(100.0, OBEDIENT); 3]);
    plant.run(5);
    let by_rate = plant.peers[0].told.unwrap();
    assert_eq!(by_rate.algorithm, Algorithm::Rate);
    plant.peers[0].offer.algorithms = Some(Algorithms::LOSS);
    plant.receive(0, Category::Session);
    let by_loss = plant.peers[0].told.unwrap();
    assert_eq!(by_loss.algorithm, Algorithm::Loss);
    // 24 of 100 calls may be sent, with 24 ACKs and 24 BYEs.
    assert!((45..60).contains(&by_loss.value), "{by_loss:?}");
    assert!(by_loss.sequence > by_rate.sequence);
    plant.run(2);
    assert_near(&plant.rates(10), &[24.0, 24.0, 24.0]);
}

// RFC 7339 §5.4: "If these values match, the response does not update the overload control parameters
// related to this server".
#[test]
fn the_same_number_under_another_algorithm_is_a_new_value() {
    let mut upstreams = Upstreams::new(&by_rate(), Seed(1), 0);
    let mut told = |algorithms| {
        let offer = Offer { algorithms: Some(algorithms), ..OBEDIENT };
        upstreams.on_request(Timestamp::ZERO, 7, Category::Session, &offer);
        upstreams.feedback(Timestamp::ZERO, 7).unwrap()
    };
    let [by_rate, by_loss, again] =
        [Algorithms::ALL, Algorithms::LOSS, Algorithms::LOSS].map(&mut told);
    assert_eq!((by_rate.algorithm, by_rate.value), (Algorithm::Rate, 0));
    assert_eq!((by_loss.algorithm, by_loss.value), (Algorithm::Loss, 0));
    assert!(by_loss.sequence > by_rate.sequence);
    assert_eq!(again.sequence, by_loss.sequence);
}

#[test]
fn loss_is_chosen_unless_another_algorithm_is_preferred() {
    for (settings, expected) in
        [(UpstreamSettings::default(), Algorithm::Loss), (by_rate(), Algorithm::Rate)]
    {
        let mut upstreams = Upstreams::new(&settings, Seed(1), 0);
        let offer = Offer { algorithms: Some(Algorithms::ALL), ..OBEDIENT };
        upstreams.on_request(Timestamp::ZERO, 7, Category::Session, &offer);
        let feedback = upstreams.feedback(Timestamp::ZERO, 7);
        assert_eq!(feedback.map(|feedback| feedback.algorithm), Some(expected));
    }
}

// RFC 7339 §4.4: ""oc" parameter values generated by an overload control algorithm at time t and t+1
// MUST have an increasing value in the "oc-seq" parameter." §5.2: "The value of this parameter MUST be a
// set of numbers drawn from an increasing sequence."
#[test]
fn rfc7339_4_4_sequence_numbers_are_times_and_increase() {
    let started = Duration::from_secs(1_700_000_000);
    let settings = UpstreamSettings { started, ..by_rate() };
    let mut plant = plant(settings, 1.0, 10.0, &[(60.0, OBEDIENT)]);
    let mut last: Option<Feedback> = None;
    for _ in 0..5 {
        plant.run(1);
        let told = plant.peers[0].told.unwrap();
        assert!(last.is_none_or(|last| last.sequence < told.sequence));
        let seconds = 1_700_000_000 + plant.now.since(Timestamp::ZERO).as_secs();
        assert!(seconds - told.sequence.seconds <= 1, "{told:?}");
        last = Some(told);
    }
}

// 002 §6.1: "a service-provider centric fairness means giving all the upstream servers the same aggregate
// success rate."
#[test]
fn provider_centric_fairness_gives_each_peer_the_same_and_a_small_one_all_it_wants() {
    let by_loss = UpstreamSettings::default();
    for (settings, kind, value) in
        [(by_rate(), 1.0, 72.0), (by_rate(), 0.0, 72.0 / 400.0), (by_loss, 1.0, 72.0)]
    {
        let peers = [(40.0, OBEDIENT), (120.0, OBEDIENT), (240.0, OBEDIENT)];
        let mut plant = plant(settings, kind, value, &peers);
        plant.run(5);
        let rates = plant.rates(10);
        assert!(rates.iter().all(|rate| (rate - 24.0).abs() < 2.0), "{kind}: {rates:?}");
    }
    let peers = [(10.0, OBEDIENT), (120.0, OBEDIENT), (240.0, OBEDIENT)];
    let mut plant = plant(by_rate(), 1.0, 72.0, &peers);
    plant.run(5);
    assert_near(&plant.rates(10), &[10.0, 31.0, 31.0]);
}

// 002 §6.2: "The three sources settle at a stable situation with roughly 0.1, 0.3, and 0.6 goodput,
// matching the original individual load."
#[test]
fn user_centric_fairness_shares_in_proportion_to_what_peers_say_they_would_send() {
    let fairness = UpstreamFairness::User;
    let settings = UpstreamSettings { fairness, ..by_rate() };
    let claiming = |cps| (cps, Offer { original_cps: Some(cps), ..OBEDIENT });
    let peers = [claiming(40.0), claiming(120.0), claiming(240.0)];
    let mut plant = plant(settings, 1.0, 72.0, &peers);
    plant.run(5);
    assert_near(&plant.rates(10), &[7.2, 21.6, 43.2]);
}

#[test]
fn weighted_fairness_shares_by_configured_weights() {
    let fairness = UpstreamFairness::Weighted;
    let settings = UpstreamSettings { fairness, ..by_rate() };
    let weighing = |cps, weight| (cps, Offer { weight, ..OBEDIENT });
    let peers = [weighing(100.0, 1), weighing(100.0, 2), weighing(100.0, 5)];
    let mut plant = plant(settings, 1.0, 80.0, &peers);
    plant.run(5);
    assert_near(&plant.rates(10), &[10.0, 20.0, 50.0]);
}

#[test]
fn an_unused_claim_does_not_count_and_no_claim_exceeds_the_largest_share() {
    let settings =
        |share_max| UpstreamSettings { fairness: UpstreamFairness::User, share_max, ..by_rate() };
    let claiming = |cps, claimed| (cps, Offer { original_cps: Some(claimed), ..OBEDIENT });
    // The peer would send 10 and claims 1000. The others do not lose anything for long.
    let peers = [claiming(10.0, 1000.0), claiming(100.0, 100.0), claiming(100.0, 100.0)];
    let mut plant = plant(settings(0.75), 1.0, 72.0, &peers);
    // The peer uses a fifth of its grant, so its claim is believed for some five seconds.
    plant.run(10);
    let rates = plant.rates(20);
    assert!(rates.iter().sum::<f64>() > 65.0, "{rates:?}");
    assert!(rates[1] > 26.0 && rates[2] > 26.0, "{rates:?}");
    // The peer would send as much as the others and claims ten times that amount.
    let peers = [claiming(100.0, 1000.0), claiming(100.0, 100.0), claiming(100.0, 100.0)];
    let mut plant = self::plant(settings(1.0 / 3.0), 1.0, 72.0, &peers);
    plant.run(5);
    let rates = plant.rates(10);
    assert_near(&rates, &[24.0, 24.0, 24.0]);
}

/// If the law admits a share of the original load, a peer must not get more calls admitted by
/// claiming a larger load.
#[test]
fn a_claim_does_not_change_what_a_share_of_the_load_is() {
    for algorithms in [Algorithms::LOSS, Algorithms::ALL] {
        let settings = UpstreamSettings { fairness: UpstreamFairness::User, ..by_rate() };
        let honest = Offer { algorithms: Some(algorithms), original_cps: Some(100.0), ..OBEDIENT };
        // .24 of 300 calls a second.
        let mut plant = plant(settings, 0.0, 0.24, &[(100.0, honest); 3]);
        plant.run(5);
        let total = |plant: &mut Plant, seconds| plant.rates(seconds).iter().sum::<f64>();
        let before = total(&mut plant, 10);
        assert!((60.0..75.0).contains(&before), "{algorithms:?}: {before}");
        plant.peers[0].offer.original_cps = Some(1e6);
        for second in 0..10 {
            let now = total(&mut plant, 1);
            assert!(now <= before + 12.0, "{algorithms:?}, second {second}: {now}, not {before}");
        }
    }
}

/// Under `loss`, each request of a peer also counts for the requests that the peer seems to hold
/// back. So a peer that sends more than its feedback allows seems to have a larger load.
#[test]
fn a_peer_that_claims_and_sends_its_whole_grant_does_not_lift_the_restriction_at_once() {
    let settings = UpstreamSettings { fairness: UpstreamFairness::User, ..by_rate() };
    let algorithms = Some(Algorithms::LOSS);
    let honest = Offer { algorithms, original_cps: Some(100.0), ..OBEDIENT };
    let small = Offer { original_cps: Some(25.0), ..honest };
    let mut plant = plant(settings, 0.0, 0.24, &[(100.0, honest), (100.0, honest), (25.0, small)]);
    plant.run(5);
    plant.peers[2].offer.original_cps = Some(1e6);
    plant.peers[2].obeys = false;
    for second in 0..10 {
        let rates = plant.rates(1);
        let total: f64 = rates.iter().sum();
        assert!(total <= 100.0, "second {second}: {rates:?}");
    }
}

/// RFC 7339 §5.4: "The scope of overload control applies to unique combinations of IP and port
/// values." So each port gets a feedback value of its own, but the ports of a host need not have a
/// share each.
#[test]
fn the_peers_of_one_host_get_one_share_in_proportion_to_their_loads() {
    let fairnesses =
        [UpstreamFairness::Provider, UpstreamFairness::Weighted, UpstreamFairness::User];
    for fairness in fairnesses {
        let settings = UpstreamSettings { fairness, share_max: 0.5, ..by_rate() };
        let of = |cps, host| (cps, Offer { original_cps: Some(cps), host, ..OBEDIENT });
        let peers = [of(50.0, Some(1)), of(100.0, Some(1)), of(150.0, Some(1)), of(100.0, Some(2))];
        let mut plant = plant(settings, 1.0, 72.0, &peers);
        plant.run(5);
        // One host alone causes more than half of all loads.
        assert_near(&plant.rates(10), &[6.0, 12.0, 18.0, 36.0]);
        // A port that stops sending leaves its part to the other ports of its host.
        plant.peers[2].cps = 0.0;
        plant.run(3);
        assert_near(&plant.rates(10), &[12.0, 24.0, 0.0, 36.0]);
    }
    // Without hosts, each port has its own share.
    let mut plant = plant(by_rate(), 1.0, 72.0, &[(100.0, OBEDIENT); 4]);
    plant.run(5);
    assert_near(&plant.rates(10), &[18.0; 4]);
}

#[test]
fn a_claim_below_what_arrives_does_not_count() {
    let settings = UpstreamSettings { fairness: UpstreamFairness::User, ..by_rate() };
    let claiming = |cps, claimed| (cps, Offer { original_cps: Some(claimed), ..OBEDIENT });
    let peers = [claiming(720.0, 0.0), claiming(30.0, 30.0), claiming(30.0, 30.0)];
    let mut plant = plant(settings, 1.0, 72.0, &peers);
    plant.run(5);
    let rates = plant.rates(20);
    let total: f64 = rates.iter().sum();
    assert!((65.0..80.0).contains(&total), "{rates:?}");
}

// RFC 7339 §5.10.2: "A SIP server that is in overload and has started to throttle incoming traffic MUST
// reject some requests from non-participating clients with a 503 (Service Unavailable) response without
// the Retry-After header."
#[test]
fn rfc7339_5_10_2_a_peer_without_feedback_has_no_advantage() {
    for cps in [30.0, 60.0, 120.0, 480.0] {
        let peers = [(cps, OBEDIENT), (cps, APART)];
        let mut plant = plant(by_rate(), 1.0, 40.0, &peers);
        plant.run(5);
        let rates = plant.rates(30);
        // A peer with feedback is told a number of requests, and a call has three of them.
        assert!(rates[1] <= rates[0] + 1.0 / 3.0, "{cps}: {rates:?}");
    }
    // Even a peer without feedback that offers less than its share loses some calls.
    let mut plant = plant(by_rate(), 1.0, 40.0, &[(100.0, OBEDIENT), (10.0, APART)]);
    plant.run(5);
    let rates = plant.rates(20);
    assert!((9.0..9.8).contains(&rates[1]), "{rates:?}");
}

// RFC 7339 §5.10.2: "It would be fair to devote the same amount of processing at the overloaded server to
// the combination of rejection and processing from a non-participating client as the overloaded server would
// devote to processing requests from a participating client."
#[test]
fn a_flood_whose_rejections_exceed_its_share_raises_no_other_share() {
    let peers = [(100.0, OBEDIENT), (100.0, OBEDIENT), (100.0, OBEDIENT), (2000.0, APART)];
    // The law measures the capacity while the flood is rejected. So 60 calls/s are left for others.
    let mut plant = plant(by_rate(), 1.0, 60.0, &peers);
    plant.run(5);
    // A rejection is assumed to cost a tenth of a call.
    assert_near(&plant.rates(10), &[20.0, 20.0, 20.0, 0.0]);
}

/// The gate limits the rate of calls with priority, so the share of their sender does not.
#[test]
fn a_call_with_priority_is_not_rejected_for_its_sender() {
    let mut plant = plant(by_rate(), 0.0, 0.1, &[(50.0, APART)]);
    plant.run(3);
    assert!(plant.upstreams.is_overloaded());
    for _ in 0..20 {
        let arrival = plant.upstreams.on_request(plant.now, 0, Category::Priority, &APART);
        assert_ne!(arrival, Arrival::Reject);
    }
}

#[test]
fn a_restriction_does_not_begin_with_a_rejection_for_every_sender() {
    let mut plant = plant(by_rate(), 0.0, 0.5, &[(10.0, APART); 100]);
    plant.run(3);
    assert!(plant.upstreams.is_overloaded());
    // All peers have sent the same number of calls at the same times.
    let mut arrival = |key| plant.upstreams.on_request(plant.now, key, Category::Session, &APART);
    let passed = (0..100).filter(|&key| arrival(key) == Arrival::Pass).count();
    assert!((20..=70).contains(&passed), "{passed}");
}

// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification don't receive an
// unfair advantage over those that do."
#[test]
fn health_checks_take_no_place_of_calls() {
    let mut plant = plant(UpstreamSettings::default(), 1.0, 40.0, &[(100.0, OBEDIENT); 2]);
    plant.peers[0].probes_every = Some(100);
    plant.run(5);
    assert_near(&plant.rates(20), &[20.0, 20.0]);
}

// RFC 7339 §5.3: "the server control algorithm MUST produce a value for the "oc" parameter that it
// expects the receiving SIP clients to apply to all downstream SIP requests". A client holds back
// calls and registrations alike.
#[test]
fn a_peer_that_also_registers_is_told_what_halves_its_calls_at_once() {
    let mut plant = plant(UpstreamSettings::default(), 1.0, 50.0, &[(100.0, OBEDIENT)]);
    plant.peers[0].registers = 1;
    plant.run(1);
    assert_near(&plant.rates(2), &[50.0]);
    assert_near(&plant.rates(5), &[50.0]);
    let original_cps = plant.upstreams.peer(0).unwrap().original_cps;
    assert!((90.0..=120.0).contains(&original_cps), "{original_cps}");
}

#[test]
fn a_peer_that_promises_and_disobeys_gets_no_more_than_one_that_obeys() {
    for algorithms in [Algorithms::LOSS, Algorithms::ALL] {
        let offer = Offer { algorithms: Some(algorithms), ..OBEDIENT };
        let mut plant = plant(by_rate(), 1.0, 60.0, &[(100.0, offer); 3]);
        plant.peers[2].obeys = false;
        plant.run(5);
        let standings = |plant: &Plant| {
            let peers: Vec<_> = plant.upstreams.peers().collect();
            assert_eq!((peers.len(), peers[0].key), (4, None));
            [1, 2, 3].map(|index| peers[index].standing)
        };
        assert_eq!(standings(&plant), [Standing::Obeys, Standing::Obeys, Standing::Disobeys]);
        let rates = plant.rates(10);
        assert!(rates[2] < rates[0] && rates[2] < rates[1], "{rates:?}");
        plant.peers[2].obeys = true;
        plant.run(30);
        assert_eq!(standings(&plant), [Standing::Obeys; 3], "{algorithms:?}: it obeys again");
    }
}

/// A peer may be policed because of a wrong measurement, or because it disobeyed before.
#[test]
fn a_peer_that_was_judged_gets_its_share_as_soon_as_it_obeys() {
    for algorithms in [Algorithms::LOSS, Algorithms::ALL] {
        let offer = Offer { algorithms: Some(algorithms), ..OBEDIENT };
        let mut plant = plant(by_rate(), 1.0, 60.0, &[(100.0, offer); 3]);
        plant.peers[2].obeys = false;
        plant.run(5);
        // The peer switches between obeying and disobeying.
        for ms in [300, 200, 500, 100, 700, 300, 400, 900] {
            plant.peers[2].obeys ^= true;
            plant.run_ms(ms);
        }
        plant.peers[2].obeys = true;
        plant.run(6);
        let rates = plant.rates(5);
        let standing = plant.upstreams.peer(2).unwrap().standing;
        assert_eq!(standing, Standing::Disobeys, "{algorithms:?}: it is still on probation");
        assert!(rates[2] >= 0.85 * rates[0], "{algorithms:?}: {rates:?}");
        assert!(rates[2] <= rates[0], "{algorithms:?}: {rates:?}");
    }
}

// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification don't receive an
// unfair advantage over those that do."
#[test]
fn a_peer_that_obeys_now_and_then_gets_no_more_than_its_share() {
    for algorithms in [Algorithms::LOSS, Algorithms::ALL] {
        for (obeys_ms, cheats_ms) in [(100, 100), (300, 300), (500, 100), (1000, 1000), (1500, 500)]
        {
            let offer = Offer { algorithms: Some(algorithms), ..OBEDIENT };
            let mut plant = plant(by_rate(), 1.0, 60.0, &[(100.0, offer); 3]);
            plant.peers[2].obeys = false;
            plant.run(5);
            plant.peers.iter_mut().for_each(|peer| peer.passed = 0);
            for _ in 0..40_000 / (obeys_ms + cheats_ms) {
                for (obeys, ms) in [(true, obeys_ms), (false, cheats_ms)] {
                    plant.peers[2].obeys = obeys;
                    plant.run_ms(ms);
                }
            }
            let rates: Vec<f64> =
                plant.peers.iter().map(|peer| peer.passed as f64 / 40.0).collect();
            // A peer that hardly exceeds its share is not policed.
            let most = 1.1 * rates[0];
            assert!(rates[2] <= most, "{algorithms:?}, {obeys_ms}, {cheats_ms}: {rates:?}");
        }
    }
}

/// A law may admit nothing for a moment. Requests in calls that were admitted before still arrive.
// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire stream of SIP
// requests, even though throttling may only affect a particular subset of the requests".
#[test]
fn a_law_that_changes_its_mind_makes_no_peer_hold_back_the_ends_of_calls() {
    for (open_ms, closed_ms) in [(200, 200), (500, 500), (300, 900)] {
        let mut plant = plant(by_rate(), 1.0, 150.0, &[(300.0, OBEDIENT); 3]);
        // The first calls, before any restriction, all end at once.
        plant.run(5);
        plant.peers.iter_mut().for_each(|peer| peer.held = 0);
        for _ in 0..30_000 / (open_ms + closed_ms) {
            for (value, ms) in [(0.0, closed_ms), (150.0, open_ms)] {
                plant.gate = gate_of(1.0, value);
                plant.run_ms(ms);
            }
        }
        let held: Vec<u64> = plant.peers.iter().map(|peer| peer.held).collect();
        assert_eq!(held, [0; 3], "{open_ms}, {closed_ms}");
        let mut peers = plant.upstreams.peers().skip(1);
        assert!(peers.all(|peer| peer.standing == Standing::Obeys), "{open_ms}, {closed_ms}");
    }
}

/// A peer holds back no re-INVITE and no ACK. If its rate had no room for the ACKs of re-INVITEs,
/// the peer would send no new call.
// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire stream of SIP
// requests, even though throttling may only affect a particular subset of the requests".
#[test]
fn the_acks_of_re_invites_take_no_place_of_new_calls() {
    let mut plant = plant(by_rate(), 1.0, 10.0, &[(100.0, OBEDIENT)]);
    plant.run(5);
    // 50 re-INVITEs a second.
    let run = |plant: &mut Plant, seconds: u64| {
        plant.peers[0].passed = 0;
        for _ in 0..seconds * 50 {
            plant.run_ms(20);
            if plant.send(0, Category::Ongoing) {
                plant.send(0, Category::Required);
            }
        }
        plant.peers[0].passed as f64 / seconds as f64
    };
    let standing = |plant: &Plant| plant.upstreams.peer(0).unwrap().standing;
    // At first the re-INVITEs leave no room for calls, so the peer seems to have few of them, and the
    // restriction ends for a moment. What the peer sends in this moment is no disobedience.
    run(&mut plant, 10);
    assert_eq!(standing(&plant), Standing::Obeys);
    let rate = run(&mut plant, 20);
    assert!((8.0..=11.0).contains(&rate), "{rate}");
    assert_eq!(standing(&plant), Standing::Obeys);
}

#[test]
fn a_peer_that_begins_to_take_part_is_told_its_share_at_once() {
    let mut plant = plant(by_rate(), 1.0, 50.0, &[(100.0, APART)]);
    plant.run(5);
    for (algorithms, expected) in [(Algorithms::ALL, 100..=160), (Algorithms::LOSS, 20..=50)] {
        plant.peers[0].offer.algorithms = Some(algorithms);
        plant.receive(0, Category::Session);
        let told = plant.peers[0].told.unwrap();
        assert!(expected.contains(&told.value), "{told:?}");
    }
}

// RFC 7415 §3.4: the rate is an upper bound. It must not be low while no law limits the calls.
#[test]
fn the_last_rates_of_an_overload_do_not_limit_a_peer() {
    let mut plant = plant(by_rate(), 1.0, 50.0, &[(100.0, OBEDIENT)]);
    plant.run(3);
    plant.gate = gate_of(0.0, 1.0);
    plant.run_ms(500);
    assert!(plant.upstreams.is_overloaded());
    let told = plant.peers[0].told.unwrap();
    assert_eq!((told.algorithm, told.value), (Algorithm::Rate, u32::MAX));
}

/// Rates are whole numbers of requests a second.
#[test]
fn a_small_rate_loses_no_part_of_a_request() {
    for (granted_cps, least_cps) in [(2.6, 2.4), (24.2, 24.0)] {
        let mut plant = plant(by_rate(), 1.0, 3.0 * granted_cps, &[(100.0, OBEDIENT); 3]);
        plant.run(5);
        let rates = plant.rates(60);
        let is_near = |&rate: &f64| (least_cps..=granted_cps + 0.1).contains(&rate);
        assert!(rates.iter().all(is_near), "{granted_cps}: {rates:?}");
    }
}

// 002 §3.2: "Each entry has an expiration timer set to one second."
#[test]
fn a_peer_that_is_gone_leaves_its_share_to_the_others_within_a_second() {
    let mut plant = plant(by_rate(), 1.0, 60.0, &[(100.0, OBEDIENT); 3]);
    plant.run(5);
    assert_near(&plant.rates(5), &[20.0, 20.0, 20.0]);
    plant.peers[0].cps = 0.0;
    plant.run(2);
    assert_near(&plant.rates(5), &[0.0, 30.0, 30.0]);
}

// RFC 7415 §3.4: "the server MUST periodically evaluate its overload state and estimate a target SIP request
// rate beyond which it would become overloaded." "The server MUST use the "oc" parameter defined in
// [RFC7339] to send a target SIP request rate to each of its clients." RFC 7339 §5.1: "If the server is
// currently overloaded, it MUST follow the procedures in Section 5.2." §5.2: "A SIP server that has updated
// the "oc" parameter SHOULD also add a "oc-validity" parameter." §5.3: "the server control algorithm MUST
// produce a value for the "oc" parameter that it expects the receiving SIP clients to apply to all downstream
// SIP requests (dialogue forming as well as in-dialogue) to this SIP server." §5.7: "To do so, the SIP server
// MUST set the value of the "oc-validity" parameter to 0. The SIP server MUST increment the value of "oc-seq"
// and SHOULD set the value of the "oc" parameter to 0."
#[test]
fn the_overload_is_over_soon_after_the_load_has_fallen() {
    let mut plant = plant(by_rate(), 1.0, 50.0, &[(100.0, OBEDIENT)]);
    plant.run(8);
    assert!(plant.upstreams.is_overloaded());
    let restricted = plant.peers[0].told.unwrap();
    // 50 calls/s with an ACK and a BYE each.
    assert!((145..=155).contains(&restricted.value), "{restricted:?}");
    assert_eq!(restricted.validity, VALIDITY_DEFAULT);
    plant.peers[0].cps = 20.0;
    plant.run(4);
    assert!(!plant.upstreams.is_overloaded());
    assert_near(&plant.rates(5), &[20.0]);
    let stopped = plant.peers[0].told.unwrap();
    assert_eq!((stopped.value, stopped.validity), (0, Duration::ZERO));
    assert!(stopped.sequence > restricted.sequence);
    plant.peers[0].cps = 0.0;
    plant.run(5);
    assert_eq!(plant.upstreams.poll_timeout(), None);
}

#[test]
fn peers_without_room_in_the_table_count_as_one_without_feedback() {
    let settings = UpstreamSettings { peers_max: 2, ..by_rate() };
    let mut upstreams = Upstreams::new(&settings, Seed(1), 0);
    for key in 0..5 {
        upstreams.on_request(Timestamp::ZERO, key, Category::Session, &OBEDIENT);
    }
    let told = [0, 1, 2, 3].map(|key| upstreams.feedback(Timestamp::ZERO, key).is_some());
    assert_eq!(told, [true, true, false, false]);
    assert_eq!(upstreams.overflowed(), 3);
}
