//! Tests of [`Upstreams`] with peers and strangers that misbehave, and with emergency calls, which
//! must not depend on a peer.

use super::*;
use crate::feedback::{Algorithm, Algorithms, Standing};
use crate::testing::at_ms as at;
use crate::{Allowance, Bucket, Settings, registry};

const OFFER: Offer =
    Offer { algorithms: Some(Algorithms::LOSS), original_cps: None, weight: 1, host: None };
const APART: Offer = Offer { algorithms: None, ..OFFER };
const STRANGER: Offer = Offer { host: Some(Offer::STRANGERS), ..APART };

fn upstreams(settings: UpstreamSettings) -> Upstreams {
    Upstreams::new(&settings, Seed(1), 0)
}

/// Returns a gate whose law has measured nothing and admits everything.
fn open_gate() -> Gate {
    gate_of("none")
}

fn gate_of(law: &str) -> Gate {
    let law = registry::find(law).unwrap().values(&[]).unwrap();
    Gate::new(Settings::new(law), Seed(1), 0)
}

/// Returns a gate whose law admits 200 calls a second.
fn gate_of_200_cps() -> Gate {
    let mut gate = gate_of("rate-abs");
    gate.on_arrival(at(0), 0);
    gate.handle_timeout(at(200), 0);
    assert_eq!(gate.control().admit(Bucket::Session), Allowance::Rate(200.0));
    gate
}

/// Returns the peers after each millisecond before `until_ms`, in which `send` sends requests. The
/// law admits 200 calls a second, so there must be an overload.
fn overloaded(
    settings: UpstreamSettings,
    until_ms: u64,
    mut send: impl FnMut(&mut Upstreams, u64),
) -> Upstreams {
    let gate = gate_of_200_cps();
    let mut upstreams = upstreams(settings);
    for ms in 1..until_ms {
        upstreams.handle_timeout(at(ms), &gate);
        send(&mut upstreams, ms);
    }
    assert!(upstreams.is_overloaded());
    upstreams
}

// RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests relating to
// emergency calls as identified by the SOS URN". A server that receives such a call from a client
// without this specification must not be less careful.
#[test]
fn an_emergency_call_does_not_need_a_share_of_its_peer() {
    // One peer takes part. The other one does not, and sends five times the capacity.
    let mut verdicts = Vec::new();
    let mut upstreams = overloaded(UpstreamSettings::default(), 5001, |upstreams, ms| {
        if ms % 10 == 0 {
            upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
        }
        verdicts.push(upstreams.on_request(at(ms), 2, Category::Session, &APART));
    });
    let rejected = verdicts[3000..].iter().filter(|&&verdict| verdict == Arrival::Reject).count();
    assert!(rejected > 1500, "{rejected} of 2000");
    let emergency = |_| upstreams.on_request(at(5000), 2, Category::Priority, &APART);
    assert!((0..100).map(emergency).all(|verdict| verdict == Arrival::Judge));
    // The calls of a peer that obeys are within its share.
    let verdict = upstreams.on_request(at(5000), 1, Category::Priority, &OFFER);
    assert_eq!(verdict, Arrival::Pass);
}

// RFC 7339 §5.10.2: "A SIP server that is in overload and has started to throttle incoming traffic MUST
// reject some requests from non-participating clients with a 503 (Service Unavailable) response without
// the Retry-After header."
#[test]
fn the_law_judges_requests_for_which_no_share_was_granted() {
    let mut upstreams = overloaded(UpstreamSettings::default(), 3000, |upstreams, ms| {
        upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
        // A peer that obeys and begins no sessions holds nothing back.
        upstreams.on_request(at(ms), 2, Category::Single, &OFFER);
        upstreams.on_request(at(ms), 3, Category::Session, &STRANGER);
    });
    let mut arrival = |key, category, offer| upstreams.on_request(at(3000), key, category, &offer);
    for key in [3, 4] {
        assert_eq!(arrival(key, Category::Single, STRANGER), Arrival::Judge);
    }
    for key in 5000..5100 {
        assert_eq!(arrival(key, Category::Session, STRANGER), Arrival::Judge);
    }
    assert_eq!(arrival(1, Category::Single, OFFER), Arrival::Pass);
    assert_eq!(arrival(2, Category::Single, OFFER), Arrival::Judge);
    assert_eq!(arrival(6, Category::Session, OFFER), Arrival::Pass, "it has promised to obey");
}

/// A peer whose calls do not exceed its share need not hold back anything, however many requests
/// outside sessions it sends.
#[test]
fn the_law_judges_the_single_requests_of_a_peer_that_holds_nothing_back() {
    let mut upstreams = overloaded(UpstreamSettings::default(), 3000, |upstreams, ms| {
        upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
        if ms % 100 == 0 {
            upstreams.on_request(at(ms), 2, Category::Session, &OFFER);
        }
        upstreams.on_request(at(ms), 2, Category::Single, &OFFER);
    });
    let mut arrival = |key, category| upstreams.on_request(at(3000), key, category, &OFFER);
    assert_eq!(arrival(2, Category::Single), Arrival::Judge);
    assert_eq!(arrival(2, Category::Session), Arrival::Pass);
    assert_eq!(arrival(1, Category::Single), Arrival::Pass);
}

/// Anybody can send requests from many addresses, and must not fill the table with them.
#[test]
fn strangers_do_not_keep_out_a_peer_that_takes_part() {
    let gate = open_gate();
    let mut upstreams = upstreams(UpstreamSettings { peers_max: 100, ..Default::default() });
    for tick in 0..300 {
        let now = at(tick * 100);
        upstreams.handle_timeout(now, &gate);
        for stranger in 0..20 {
            let key = 1000 + u128::from(tick * 20 + stranger);
            upstreams.on_request(now, key, Category::Session, &APART);
            // Requests of existing calls need no entry in the table.
            upstreams.on_request(now, key << 64, Category::Ongoing, &APART);
        }
        let key = u128::from(tick / 10);
        upstreams.on_request(now, key, Category::Session, &OFFER);
        assert!(upstreams.feedback(now, key).is_some(), "in tick {tick}");
    }
    // An earlier peer is remembered for an hour.
    assert!(upstreams.feedback(at(30_000), 0).is_some());
    assert!(upstreams.overflowed() > 5000, "{}", upstreams.overflowed());
    let own = upstreams.peers().filter(|peer| peer.key.is_some()).count();
    assert!((30..=80).contains(&own), "{own}");
}

/// A trusted peer that does not take part must not count as one of the strangers.
#[test]
fn strangers_do_not_keep_out_a_trusted_peer_that_does_not_take_part() {
    let mut upstreams = upstreams(UpstreamSettings { peers_max: 100, ..Default::default() });
    for stranger in 0..1000 {
        upstreams.on_request(at(1), 1000 + stranger, Category::Session, &STRANGER);
    }
    let own = |upstreams: &Upstreams| upstreams.peers().filter(|peer| peer.key.is_some()).count();
    assert_eq!(own(&upstreams), 50);
    for key in 0..1000 {
        upstreams.on_request(at(2), key << 64 | 1, Category::Session, &APART);
    }
    assert_eq!(own(&upstreams), 75);
    // A quarter is left for peers that take part, also after a measurement.
    upstreams.handle_timeout(at(101), &open_gate());
    upstreams.on_request(at(101), 2 << 64, Category::Session, &STRANGER);
    upstreams.on_request(at(101), 3 << 64, Category::Session, &APART);
    for key in 0..30 {
        upstreams.on_request(at(102), key << 64 | 2, Category::Session, &OFFER);
    }
    assert_eq!(own(&upstreams), 100);
    let has_entry = |key: u128| upstreams.peer(key << 64 | 2).is_some();
    assert_eq!((0..30).filter(|&key| has_entry(key)).count(), 25);
}

/// Phones call so rarely that each call seems to be the first of its sender.
// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification don't receive an
// unfair advantage over those that do."
#[test]
fn the_first_calls_of_strangers_share_the_capacity_with_a_peer() {
    let (mut sent, mut passed) = (0, 0);
    let upstreams = overloaded(UpstreamSettings::default(), 6000, |upstreams, ms| {
        // The peer and the strangers each send 167 calls a second.
        if ms % 6 == 0 {
            upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
            let key = 1000 + u128::from(ms);
            let arrival = upstreams.on_request(at(ms), key, Category::Session, &STRANGER);
            if ms > 3000 {
                sent += 1;
                passed += u32::from(arrival != Arrival::Reject);
            }
        }
    });
    let granted_cps = upstreams.peer(1).unwrap().granted_cps;
    assert!((95.0..115.0).contains(&granted_cps), "{granted_cps}");
    // The cost of the rejections is a part of the share.
    assert!((240..330).contains(&passed), "{passed} of {sent} calls pass");
}

/// Returns the part of the calls of strangers that each call once that pass, while a peer sends 200
/// calls a second. `flood` and `once` return whether a stranger that floods, and one that calls
/// once, calls in a millisecond.
fn passing_of_first_calls(
    peers_max: usize,
    flood: impl Fn(u64) -> Option<u128>,
    once: impl Fn(u64) -> bool,
) -> f64 {
    let (mut sent, mut passed) = (0, 0);
    let settings = UpstreamSettings { peers_max, ..Default::default() };
    overloaded(settings, 7000, |upstreams, ms| {
        if ms % 5 == 0 {
            upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
        }
        if let Some(stranger) = flood(ms) {
            upstreams.on_request(at(ms), 1000 + stranger, Category::Session, &STRANGER);
        }
        if once(ms) {
            let key = 10_000 + u128::from(ms);
            let arrival = upstreams.on_request(at(ms), key, Category::Session, &STRANGER);
            sent += u32::from(ms > 3000);
            passed += u32::from(ms > 3000 && arrival != Arrival::Reject);
        }
    });
    f64::from(passed) / f64::from(sent)
}

/// Each stranger gets the same part, however rarely it calls.
#[test]
fn strangers_that_flood_take_no_share_of_strangers_that_call_once() {
    // 20 strangers flood with 50 calls a second each, and ten others call in a second.
    let peers_max = UpstreamSettings::default().peers_max;
    let passing =
        passing_of_first_calls(peers_max, |ms| Some(u128::from(ms % 20)), |ms| ms % 100 == 0);
    assert!(passing >= 0.8, "{passing}");
    // Ten strangers flood with 50 calls a second each, and use all places of the table. A hundred
    // others call in a second.
    let flood = |ms: u64| ms.is_multiple_of(2).then_some(u128::from(ms / 2 % 10));
    let passing = passing_of_first_calls(20, flood, |ms| ms > 1000 && ms % 10 == 1);
    assert!(passing >= 0.5, "{passing}");
}

/// Returns the calls a second that are granted to a peer that obeys and sends 100 calls a second,
/// while each of 1000 strangers sends two calls a second.
fn granted_beside_strangers(fairness: UpstreamFairness) -> f64 {
    let settings = UpstreamSettings { fairness, ..Default::default() };
    let upstreams = overloaded(settings, 5000, |upstreams, ms| {
        if ms % 10 == 0 {
            upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
        }
        for stranger in [2 * ms % 1000, (2 * ms + 1) % 1000] {
            let key = 1000 + u128::from(stranger);
            upstreams.on_request(at(ms), key, Category::Session, &STRANGER);
        }
    });
    upstreams.peer(1).unwrap().granted_cps
}

// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification don't receive an
// unfair advantage over those that do."
#[test]
fn many_strangers_do_not_take_the_share_of_a_peer_that_obeys() {
    for fairness in [UpstreamFairness::Provider, UpstreamFairness::Weighted] {
        let granted_cps = granted_beside_strangers(fairness);
        assert!(granted_cps >= 99.0, "{fairness:?}: {granted_cps}");
    }
    let granted_cps = granted_beside_strangers(UpstreamFairness::User);
    assert!(granted_cps >= 45.0, "strangers have at most `share_max`: {granted_cps}");
}

/// Two INVITEs within an instant must not count as a high rate, because an overload restricts all
/// peers. A peer that takes part in overload control may have just started.
#[test]
fn two_invites_of_a_new_address_do_not_cause_an_overload() {
    let by_rate = Offer { algorithms: Some(Algorithms::NONE.with(Algorithm::Rate)), ..OFFER };
    for offer in [STRANGER, OFFER, by_rate] {
        let gate = gate_of_200_cps();
        let mut upstreams = upstreams(UpstreamSettings::default());
        for ms in 1..3000 {
            upstreams.handle_timeout(at(ms), &gate);
            if ms % 50 == 0 {
                upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
            }
        }
        // The two INVITEs arrive just before a measurement. One after the first in 200 µs would be
        // 5000 a second.
        let due = upstreams.poll_timeout().unwrap();
        for micros in [200, 100] {
            let now = Timestamp::from_nanos(due.as_nanos() - micros * 1000);
            upstreams.on_request(now, 99, Category::Session, &offer);
        }
        upstreams.handle_timeout(due, &gate);
        assert!(!upstreams.is_overloaded(), "{offer:?}");
        let original_cps = upstreams.peer(99).unwrap().original_cps;
        assert!((1.0..20.0).contains(&original_cps), "{offer:?}: {original_cps}");
    }
}

/// A stranger that sends much must not use up the share of all strangers.
#[test]
fn a_stranger_that_floods_takes_no_share_of_another_stranger() {
    let (mut sent, mut passed) = (0, 0);
    overloaded(UpstreamSettings::default(), 6000, |upstreams, ms| {
        if ms % 10 == 0 {
            upstreams.on_request(at(ms), 1, Category::Session, &OFFER);
        }
        upstreams.on_request(at(ms), 2, Category::Session, &STRANGER);
        if ms % 100 == 0 && ms > 2000 {
            let arrival = upstreams.on_request(at(ms), 3, Category::Session, &STRANGER);
            sent += 1;
            passed += u32::from(arrival != Arrival::Reject);
        }
    });
    assert!(passed >= sent * 9 / 10, "{passed} of {sent} calls pass, ten calls/s of a hundred");
}

/// Just before a burst, the rate of a peer is low. The cost of rejecting its calls is subtracted
/// from its share of 125 calls a second, so of 500 calls a second some 83 pass: (125 - 0.1 · 500) /
/// 0.9.
// RFC 7339 §5.10.2: "It would be fair to devote the same amount of processing at the overloaded server to
// the combination of rejection and processing from a non-participating client as the overloaded server would
// devote to processing requests from a participating client."
#[test]
fn a_peer_gets_no_more_than_its_share_by_bursts() {
    for (period_ms, offer) in [(450, OFFER), (800, APART), (1150, APART)] {
        let gate = gate_of_200_cps();
        let mut upstreams = upstreams(UpstreamSettings::default());
        let mut passed = 0;
        for ms in 1..26_000 {
            upstreams.handle_timeout(at(ms), &gate);
            if ms % 5 == 0 {
                upstreams.on_request(at(ms), 1, Category::Session, &APART);
            }
            let burst = if ms % period_ms == 50 { period_ms / 2 } else { 0 };
            for _ in 0..burst {
                let arrival = upstreams.on_request(at(ms), 2, Category::Session, &offer);
                upstreams.feedback(at(ms), 2);
                passed += u32::from(ms > 6000 && arrival != Arrival::Reject);
            }
        }
        let promises = offer.algorithms.is_some();
        let expected = if promises { Standing::Disobeys } else { Standing::Apart };
        assert_eq!(upstreams.peer(2).unwrap().standing, expected);
        let cps = f64::from(passed) / 20.0;
        assert!((60.0..105.0).contains(&cps), "every {period_ms} ms: {cps}");
    }
}

/// Returns the standing of a peer for which `send` is called in each millisecond of 10 s, while
/// another peer sends 200 calls a second.
fn standing_after(send: impl Fn(&mut Upstreams, u64)) -> Standing {
    let settings = UpstreamSettings { preferred: Algorithm::Rate, ..Default::default() };
    let upstreams = overloaded(settings, 10_000, |upstreams, ms| {
        if ms % 5 == 0 {
            upstreams.on_request(at(ms), 1, Category::Session, &APART);
        }
        send(upstreams, ms);
    });
    upstreams.peer(2).unwrap().standing
}

/// A peer offers other algorithms in its ACKs, to which it gets no responses and so no feedback.
#[test]
fn a_peer_that_changes_its_offer_in_acks_does_not_escape_its_limit() {
    let by_rate = Offer { algorithms: Some(Algorithms::NONE.with(Algorithm::Rate)), ..OFFER };
    let standing = standing_after(|upstreams, ms| {
        upstreams.on_request(at(ms), 2, Category::Session, &OFFER);
        upstreams.feedback(at(ms), 2);
        upstreams.on_request(at(ms), 2, Category::Required, &OFFER);
        upstreams.on_request(at(ms), 2, Category::Required, &by_rate);
    });
    assert_eq!(standing, Standing::Disobeys);
}

// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire stream
// of SIP requests, even though throttling may only affect a particular subset of the requests".
#[test]
fn requests_of_no_session_count_among_the_permitted_ones() {
    let by_rate = Offer { algorithms: Some(Algorithms::NONE.with(Algorithm::Rate)), ..OFFER };
    for (strays, expected) in [(0, Standing::Obeys), (1, Standing::Disobeys)] {
        let standing = standing_after(|upstreams, ms| {
            if ms % 20 == 0 {
                upstreams.on_request(at(ms), 2, Category::Session, &by_rate);
                upstreams.feedback(at(ms), 2);
            }
            for _ in 0..strays {
                upstreams.on_stray(at(ms), 2);
            }
        });
        assert_eq!(standing, expected, "{strays} a millisecond");
    }
}

// RFC 7339 §5.8: "the algorithm SHOULD NOT change the algorithm associated with that client for at least
// 3600 seconds (1 hour)."
#[test]
fn an_ack_without_an_offer_does_not_end_what_was_agreed() {
    let accepted = Algorithms::ALL;
    let settings = UpstreamSettings { preferred: Algorithm::Rate, accepted, ..Default::default() };
    let mut upstreams = upstreams(settings);
    upstreams.on_request(at(0), 7, Category::Session, &OFFER);
    upstreams.on_request(at(1), 7, Category::Required, &APART);
    let feedback = upstreams.feedback(at(1), 7);
    assert_eq!(feedback.map(|feedback| feedback.algorithm), Some(Algorithm::Loss));
    let both = Offer { algorithms: Some(accepted), ..OFFER };
    upstreams.on_request(at(2), 7, Category::Session, &both);
    let feedback = upstreams.feedback(at(2), 7);
    assert_eq!(feedback.map(|feedback| feedback.algorithm), Some(Algorithm::Loss), "the same");
}

// RFC 7339 §4.1: the value is "in the response going upstream to a client that included the "oc"
// parameter in the request". A server that does not know yet whether this one gives feedback
// offers overload control only in a probe. Its calls arrive between the probe and the response.
#[test]
fn rfc7339_4_1_an_offer_stands_until_its_response_cannot_be_repeated_any_more() {
    let mut upstreams = upstreams(UpstreamSettings::default());
    upstreams.on_request(at(0), 7, Category::Single, &OFFER);
    upstreams.on_request(at(1), 7, Category::Session, &APART);
    assert!(upstreams.feedback(at(1), 7).is_some());
    upstreams.on_request(at(31_999), 7, Category::Session, &APART);
    assert!(upstreams.feedback(at(31_999), 7).is_some());
    upstreams.on_request(at(32_000), 7, Category::Ongoing, &APART);
    assert_eq!(upstreams.feedback(at(32_000), 7), None);
}
