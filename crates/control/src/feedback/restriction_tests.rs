//! Tests of a restriction, by section of RFC 7339 and RFC 7415.

use super::*;
use crate::feedback::{Sequence, VALIDITY_DEFAULT};
use crate::testing::at_ms as at;

fn restriction() -> Restriction {
    restriction_of(Algorithms::ALL)
}

fn restriction_of(offered: Algorithms) -> Restriction {
    Restriction::new(&RestrictionSettings { offered, ..Default::default() }, Seed(1), 0)
}

fn feedback(algorithm: Algorithm, value: u32, number: u64) -> Feedback {
    let sequence = Sequence { seconds: number, fraction: 0 };
    Feedback { algorithm, value, validity: VALIDITY_DEFAULT, sequence }
}

/// Offers `count` requests of a category, evenly spread over one second from `from_ms` on. Returns
/// the number that passes.
fn passed(restriction: &mut Restriction, from_ms: u64, count: u64, category: Category) -> u64 {
    (0..count)
        .map(|i| Timestamp::from_nanos(from_ms * 1_000_000 + i * 1_000_000_000 / count))
        .filter(|&now| restriction.on_request(now, category) == SendVerdict::Send)
        .count() as u64
}

// RFC 7339 §5.5: "A SIP client MUST honor overload control values it receives from downstream
// neighbors. The SIP client MUST NOT forward more requests to a SIP server than allowed by the current
// "oc" and "oc-algo" parameter values from that particular downstream server." "this local policy
// SHOULD transmit the same number of SIP requests as the sample algorithm defined by the overload
// control scheme being used."
// §4.1: "it MUST reduce, as indicated by the "oc" and "oc-algo" parameters, the number of requests going
// downstream to the SIP server from which it received the response." §4.2: "A SIP client MUST support the
// loss-based overload control scheme".
#[test]
fn rfc7339_5_5_a_loss_of_ten_percent_is_an_eighth_of_the_first_category() {
    let mut restriction = restriction();
    restriction.on_feedback(at(0), feedback(Algorithm::Loss, 10, 1));
    let mut sent = 0;
    for i in 0..1000u64 {
        let now = Timestamp::from_nanos(i * 400_000);
        let category = if i % 5 == 0 { Category::Ongoing } else { Category::Session };
        sent += u64::from(restriction.on_request(now, category) == SendVerdict::Send);
    }
    assert_eq!(sent, 900);
    assert_eq!(restriction.counts().held, 100);
}

// RFC 7339 §5.4: "Stored overload control parameters MUST be reset to default values once the validity
// period has expired".
#[test]
fn rfc7339_5_4_a_value_expires() {
    let mut restriction = restriction();
    restriction.on_feedback(at(0), feedback(Algorithm::Rate, 0, 1));
    assert_eq!(restriction.status(at(499)), RestrictionStatus::Rate(0));
    assert_eq!(restriction.on_request(at(499), Category::Session), SendVerdict::Reject);
    assert_eq!(restriction.status(at(500)), RestrictionStatus::Open);
    assert_eq!(restriction.on_request(at(500), Category::Session), SendVerdict::Send);
}

// RFC 7339 §5.4: "If these values match, the response does not update the overload control parameters
// related to this server".
#[test]
fn rfc7339_5_4_a_repeated_value_does_not_last_longer_and_a_late_one_changes_nothing() {
    let mut restriction = restriction();
    let value = feedback(Algorithm::Rate, 7, 2);
    assert_eq!(restriction.on_feedback(at(0), value), FeedbackOutcome::Accepted);
    assert_eq!(restriction.on_feedback(at(400), value), FeedbackOutcome::Known);
    let late = feedback(Algorithm::Rate, 900, 1);
    assert_eq!(restriction.on_feedback(at(400), late), FeedbackOutcome::Late);
    assert_eq!(restriction.status(at(499)), RestrictionStatus::Rate(7));
    assert_eq!(restriction.status(at(500)), RestrictionStatus::Open);
    let counts: u64 = restriction.counts().feedbacks.iter().sum();
    assert_eq!((counts, restriction.counts().feedbacks[0]), (3, 1));
}

// RFC 7339 §5.7: "when the value of the "oc-validity" parameter is 0, the client SHOULD disregard the
// value in the "oc" parameter."
#[test]
fn rfc7339_5_7_a_validity_of_zero_stops_the_restriction_at_once() {
    for algorithm in Algorithm::ALL {
        let mut restriction = restriction();
        restriction.on_feedback(at(0), feedback(algorithm, 0, 1));
        let stop = Feedback { value: 100, validity: Duration::ZERO, ..feedback(algorithm, 0, 2) };
        assert_eq!(restriction.on_feedback(at(1), stop), FeedbackOutcome::Accepted);
        assert_eq!(restriction.status(at(1)), RestrictionStatus::Open);
        assert!(!restriction.is_restricting(at(1)));
        let old = Feedback { sequence: Sequence { seconds: 1, fraction: 0 }, ..stop };
        restriction.on_feedback(at(2), feedback(algorithm, 9, 3));
        assert_eq!(restriction.on_feedback(at(3), old), FeedbackOutcome::Late);
        assert_ne!(restriction.status(at(3)), RestrictionStatus::Open);
    }
}

// RFC 7339 §5.10: "It needs to ensure, however, that this destination is not in overload and is
// capable of processing the extra load." RFC 7415 §3.4: a rate is an upper bound.
#[test]
fn a_server_with_a_rate_has_room_while_less_is_sent() {
    let mut restriction = restriction();
    let rate = Feedback { validity: Duration::from_secs(9), ..feedback(Algorithm::Rate, 100, 1) };
    restriction.on_feedback(at(0), rate);
    assert_eq!(passed(&mut restriction, 0, 50, Category::Session), 50);
    assert!(!restriction.is_restricting(at(1000)));
    passed(&mut restriction, 1000, 150, Category::Session);
    assert!(restriction.is_restricting(at(2000)));
    let zero = Feedback { value: 0, ..feedback(Algorithm::Rate, 0, 2) };
    restriction.on_feedback(at(5000), zero);
    assert!(restriction.is_restricting(at(5000)));
}

// RFC 7339 §5.10: "It needs to ensure, however, that this destination is not in overload and is
// capable of processing the extra load."
#[test]
fn a_server_is_not_known_to_have_room_after_its_restriction_has_expired() {
    let calm =
        |number| Feedback { validity: Duration::ZERO, ..feedback(Algorithm::Loss, 0, number) };
    for algorithm in Algorithm::ALL {
        let mut restriction = restriction();
        restriction.on_feedback(at(0), calm(1));
        assert!(restriction.is_known_free(at(0)), "{algorithm:?}");
        restriction.on_feedback(at(1), feedback(algorithm, 20, 2));
        let under_rate = algorithm == Algorithm::Rate;
        assert_eq!(restriction.is_known_free(at(100)), under_rate, "the rate is not used up");
        restriction.on_request(at(60_000), Category::Session);
        assert!(!restriction.is_known_free(at(60_000)), "{algorithm:?}");
        restriction.on_feedback(at(60_001), calm(2));
        assert!(!restriction.is_known_free(at(60_001)), "that is no news");
        restriction.on_feedback(at(60_002), calm(3));
        assert!(restriction.is_known_free(at(60_002)), "{algorithm:?}");
    }
    let mut restriction = restriction();
    restriction.on_feedback(at(0), feedback(Algorithm::Loss, 0, 1));
    assert!(restriction.is_known_free(at(0)) && restriction.is_known_free(at(60_000)));
}

// RFC 7339 §7.1: "This value MUST be in the range of [0, 100], inclusive."
#[test]
fn rfc7339_7_1_a_loss_above_100_and_an_algorithm_not_offered_are_ignored() {
    let mut restriction = restriction_of(Algorithms::LOSS);
    let outcome = restriction.on_feedback(at(0), feedback(Algorithm::Loss, 101, 1));
    assert_eq!(outcome, FeedbackOutcome::Invalid);
    let outcome = restriction.on_feedback(at(0), feedback(Algorithm::Rate, 0, 1));
    assert_eq!(outcome, FeedbackOutcome::NotOffered);
    assert_eq!(passed(&mut restriction, 0, 100, Category::Session), 100);
    let outcome = restriction.on_feedback(at(0), feedback(Algorithm::Loss, 100, 1));
    assert_eq!(outcome, FeedbackOutcome::Accepted, "the sequence of what was ignored is unknown");
}

#[test]
fn a_restriction_never_lasts_longer_than_the_maximum_validity() {
    let mut restriction = restriction();
    let value = Feedback { validity: Duration::MAX, ..feedback(Algorithm::Loss, 100, 1) };
    restriction.on_feedback(at(0), value);
    assert!(restriction.is_restricting(at(59_999)));
    assert!(!restriction.is_restricting(at(60_000)));
}

// RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests such as
// policies based on message type, e.g., INVITEs versus requests associated with existing sessions." "A
// SIP client SHOULD honor the local policy for prioritizing SIP requests based on the content of the
// Resource-Priority header". "A SIP client SHOULD honor the local policy for prioritizing SIP requests
// relating to emergency calls as identified by the SOS URN". "A local policy can be expected to combine
// both the SIP request type and the prioritization markings, and it SHOULD be honored when overload
// conditions prevail."
#[test]
fn rfc7339_5_10_1_the_second_category_is_reduced_when_nothing_is_left_of_the_first() {
    // Of five requests, four are of the first category. All 500 are within the validity.
    let sent = |percent, categories: [Category; 2]| {
        let mut restriction = restriction();
        restriction.on_feedback(at(0), feedback(Algorithm::Loss, percent, 1));
        let mut sent = [0; 2];
        for ms in 0..500 {
            let index = usize::from(ms % 5 == 0);
            let verdict = restriction.on_request(at(ms), categories[index]);
            sent[index] += i32::from(verdict == SendVerdict::Send);
        }
        sent
    };
    for first in [Category::Session, Category::Single] {
        for second in [Category::Priority, Category::Ongoing] {
            for (percent, expected) in
                [(0, [400, 100]), (40, [200, 100]), (80, [0, 100]), (90, [0, 50]), (100, [0, 0])]
            {
                let sent = sent(percent, [first, second]);
                let is_near = |index: usize| (sent[index] - expected[index]).abs() <= 8;
                assert!(is_near(0) && is_near(1), "{percent}: {sent:?}");
            }
        }
        assert_eq!(sent(100, [first, Category::Required])[1], 100, "it could not be rejected");
    }
}

// RFC 7339 §5.5: "this local policy SHOULD transmit the same number of SIP requests as the sample
// algorithm defined by the overload control scheme being used."
#[test]
fn rfc7339_5_5_requests_that_always_pass_count_and_others_are_held_back_instead() {
    // Of ten requests, two are new, three are ACKs, and five belong to sessions.
    let category = |ms: u64| match ms % 10 {
        0 | 5 => Category::Session,
        1 | 4 | 8 => Category::Required,
        _ => Category::Ongoing,
    };
    for (percent, expected) in [(10, 1800), (20, 1600), (50, 1000), (70, 800), (90, 667)] {
        let mut restriction = restriction();
        for ms in 0..5000 {
            restriction.on_request(at(ms), category(ms));
        }
        let validity = Duration::from_secs(9);
        let value = Feedback { validity, ..feedback(Algorithm::Loss, percent, 1) };
        restriction.on_feedback(at(5000), value);
        let sent = (5000..7000)
            .filter(|&ms| restriction.on_request(at(ms), category(ms)) == SendVerdict::Send);
        let sent = sent.count();
        assert!((expected - 40..=expected + 40).contains(&sent), "{percent} %: {sent} of 2000");
    }
}

#[test]
fn the_mix_of_the_categories_follows_within_a_second() {
    let mut restriction = restriction();
    // Low load: an INVITE, an ACK and a BYE for each call.
    for i in 0..600 {
        let cycle = [Category::Session, Category::Required, Category::Ongoing];
        restriction.on_request(at(i * 16), cycle[i as usize % 3]);
    }
    // A flood of INVITEs, one in each millisecond.
    let flood = |restriction: &mut Restriction, from_ms: u64, value| {
        restriction.on_feedback(at(from_ms), value);
        let sent = (0..300).filter(|ms| {
            let verdict = restriction.on_request(at(from_ms + ms), Category::Session);
            verdict == SendVerdict::Send
        });
        sent.collect::<Vec<u64>>()
    };
    let sent = flood(&mut restriction, 9600, feedback(Algorithm::Loss, 36, 1));
    assert!(
        sent[0] > 0 && sent.len() > 100,
        "36 % is the whole first category of a calm: {sent:?}"
    );
    flood(&mut restriction, 9900, feedback(Algorithm::Loss, 85, 2));
    flood(&mut restriction, 10_200, feedback(Algorithm::Loss, 85, 3));
    // By now nearly all requests are of the first category.
    let sent = flood(&mut restriction, 10_500, feedback(Algorithm::Loss, 85, 4)).len();
    assert!((25..=50).contains(&sent), "{sent} of 300");
}

#[test]
fn without_a_first_category_the_second_is_reduced() {
    let mut restriction = restriction();
    for i in 0..=100 {
        restriction.on_request(at(i * 50), Category::Ongoing);
    }
    restriction.on_feedback(at(5000), feedback(Algorithm::Loss, 50, 1));
    let sent = (0..400)
        .filter(|i| restriction.on_request(at(5000 + i), Category::Ongoing) == SendVerdict::Send);
    assert_eq!(sent.count(), 200);
}

// RFC 7415 §3.5.2: "TAU1 = 1/2 * TAU2, and TAU2 = 10 * T." "This can be generalized to n priorities
// using n thresholds for n>2 in the obvious way."
#[test]
fn rfc7415_3_5_2_requests_with_priority_find_more_room_in_the_bucket() {
    let mut restriction = restriction();
    restriction.on_feedback(at(0), feedback(Algorithm::Rate, 100, 1));
    let mut burst = |now, category| {
        (0..200).take_while(|_| restriction.on_request(now, category) == SendVerdict::Send).count()
    };
    // At the start, the content of the bucket is random, from -T/2 to T/2.
    assert!((5..=6).contains(&burst(at(0), Category::Session)));
    assert_eq!(burst(at(0), Category::Priority), 5);
    assert_eq!(burst(at(0), Category::Session), 0);
    assert_eq!(burst(at(60), Category::Session), 1, "six leave in 60 ms");
    assert_eq!(burst(at(60), Category::Priority), 5);
    assert_eq!(burst(at(60), Category::Ongoing), 110, "ten, and those of a second");
    assert_eq!(burst(at(60), Category::Priority), 0);
}

// RFC 7415 §3.5.1: "when the "oc" parameter is 0 with a non-zero "oc-validity", then the client should
// reject 100% of SIP requests destined to the overload server."
#[test]
fn rfc7415_3_5_1_a_rate_is_kept_and_zero_holds_back_everything() {
    let mut restriction = restriction();
    for number in 0..10u64 {
        let now = at(number * 400);
        restriction.on_feedback(now, feedback(Algorithm::Rate, 50, number + 1));
        let sent = (0..400)
            .filter(|ms| {
                restriction.on_request(now + Duration::from_millis(*ms), Category::Session)
                    == SendVerdict::Send
            })
            .count();
        let most = if number == 0 { 27 } else { 20 };
        assert!((19..=most).contains(&sent), "{sent} in the interval {number}");
    }
    restriction.on_feedback(at(4000), feedback(Algorithm::Rate, 0, 20));
    assert_eq!(passed(&mut restriction, 4000, 10, Category::Ongoing), 5, "none while it is valid");
}

// RFC 7415 §3.5.3: "This randomization should also be done when control is activated".
#[test]
fn rfc7415_3_5_3_many_clients_do_not_synchronize() {
    let second = |element| {
        let mut restriction = Restriction::new(&RestrictionSettings::default(), Seed(1), element);
        let validity = Duration::from_secs(60);
        let value = Feedback { validity, ..feedback(Algorithm::Rate, 1, 1) };
        restriction.on_feedback(at(0), value);
        // The requests that the tolerance allows at once, and then the first request after them.
        while restriction.on_request(at(0), Category::Session) == SendVerdict::Send {}
        (1..2000)
            .find(|&ms| restriction.on_request(at(ms), Category::Session) == SendVerdict::Send)
            .unwrap()
    };
    let times: Vec<u64> = (0..40).map(second).collect();
    let [early, late] = [times.iter().min().unwrap(), times.iter().max().unwrap()];
    assert!(*early < 250 && *late > 750, "{times:?}");
}

// 002 §6.1: "The feedforward information contains the sender measured value of the current incoming load."
#[test]
fn two_calls_within_an_instant_are_not_announced_as_a_high_load() {
    let mut restriction = restriction();
    restriction.on_load_wanted(true);
    restriction.on_request(at(0), Category::Session);
    restriction.on_request(at(1), Category::Session);
    // One call after the first in 1 s · (1 - exp(-0.1)). In 1 ms it would be 1000 a second.
    let announced_cps = restriction.announced_cps(at(1)).unwrap();
    assert!((announced_cps - 10.5).abs() < 0.1, "{announced_cps}");
}
