//! RFC 3261 §17.1.2: the client transaction of a request other than INVITE.

use std::time::Duration;

use crate::script::Effect::{Enters, RequestSent, TimedOut, ToUser};
use crate::script::Event::Response;
use crate::script::State::{Completed, Proceeding, Terminated, Trying};
use crate::script::{OTHER_CLIENT, ms, play, reliable, times, unreliable};
use tidegate_transaction::{Client, Firing, OtherClient, Timing};
use tidegate_world::Timestamp;

/// §17.1.2.2: "This process continues so that retransmissions occur with an exponentially
/// increasing interval that caps at T2." "For the default values of T1 and T2, this results in
/// intervals of 500 ms, 1 s, 2 s, 4 s, 4 s, 4 s, etc." "If Timer F fires while the client
/// transaction is still in the "Trying" state, the client transaction SHOULD inform the TU about
/// the timeout, and then it SHOULD enter the "Terminated" state."
///
/// RFC 3261 §17.1.2.2: "When entering this state, the client transaction SHOULD set timer F to fire
/// in 64*T1 seconds." "If an unreliable transport is in use, the client transaction MUST set timer
/// E to fire in T1 seconds."
#[test]
fn timer_e_doubles_up_to_t2_until_timer_f_ends_it() {
    let seen = play(OTHER_CLIENT, &unreliable(), &[]);
    let expected = [
        (0, Enters(Trying)),
        (500, RequestSent),
        (1_500, RequestSent),
        (3_500, RequestSent),
        (7_500, RequestSent),
        (11_500, RequestSent),
        (15_500, RequestSent),
        (19_500, RequestSent),
        (23_500, RequestSent),
        (27_500, RequestSent),
        (31_500, RequestSent),
        (32_000, TimedOut),
        (32_000, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §17.1.2.2: "If an unreliable transport is in use, the client transaction MUST set timer E to
/// fire in T1 seconds."
#[test]
fn over_a_reliable_transport_only_timer_f_runs() {
    for script in [vec![], vec![(700, Response(100))]] {
        let seen = play(OTHER_CLIENT, &reliable(), &script);
        assert_eq!(times(&seen, RequestSent), []);
        assert_eq!(times(&seen, TimedOut), [32_000]);
    }
}

/// §17.1.2.2: "If timer E fires while still in this state, the timer is reset, but this time with a
/// value of MIN(2*T1, T2)." A T2 below T1 applies from the second interval.
#[test]
fn a_t2_below_t1_caps_the_second_interval() {
    let timing = Timing { t2: Duration::from_millis(300), ..unreliable() };
    let seen = play(OTHER_CLIENT, &timing, &[]);
    assert_eq!(times(&seen, RequestSent)[..4], [500, 800, 1_100, 1_400]);
}

/// §17.1.2.2: "If Timer E fires while in the "Proceeding" state, the request MUST be passed to the
/// transport layer for retransmission, and Timer E MUST be reset with a value of T2 seconds." "If
/// timer F fires while in the "Proceeding" state, the TU MUST be informed of a timeout, and the
/// client transaction MUST transition to the terminated state." The provisional response does not
/// change the running Timer E.
///
/// RFC 3261 §17.1.2.2: "If a provisional response is received while in the "Trying" state, the
/// response MUST be passed to the TU, and then the client transaction SHOULD move to the
/// "Proceeding" state."
#[test]
fn a_provisional_response_slows_repetitions_to_t2() {
    let script = [(600, Response(100)), (9_000, Response(100))];
    let seen = play(OTHER_CLIENT, &unreliable(), &script);
    let expected = [
        (0, Enters(Trying)),
        (500, RequestSent),
        (600, ToUser(100)),
        (600, Enters(Proceeding)),
        (1_500, RequestSent),
        (5_500, RequestSent),
        (9_000, ToUser(100)),
        (9_500, RequestSent),
        (13_500, RequestSent),
        (17_500, RequestSent),
        (21_500, RequestSent),
        (25_500, RequestSent),
        (29_500, RequestSent),
        (32_000, TimedOut),
        (32_000, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §17.1.2.2: "If a final response (status codes 200-699) is received while in the "Trying"
/// state, the response MUST be passed to the TU, and the client transaction MUST transition to
/// the "Completed" state." "Once the client transaction enters the "Completed" state, it MUST set
/// Timer K to fire in T4 seconds for unreliable transports". "The "Completed" state exists to
/// buffer any additional response retransmissions that may be received".
///
/// RFC 3261 §17.1.2.2: "If Timer K fires while in this state, the client transaction MUST
/// transition to the "Terminated" state."
///
/// RFC 3261 §17.1.2.2: "If a final response (status codes 200-699) is received while in the
/// "Proceeding" state, the response MUST be passed to the TU, and the client transaction MUST
/// transition to the "Completed" state."
#[test]
fn a_final_response_is_passed_on_once_and_buffered_for_timer_k() {
    for status in [200, 302, 404, 503, 699] {
        let again = [(200, Response(status)), (300, Response(100)), (400, Response(200))];
        let script = [vec![(100, Response(status))], again.to_vec()].concat();
        let seen = play(OTHER_CLIENT, &unreliable(), &script);
        let expected = [
            (0, Enters(Trying)),
            (100, ToUser(status)),
            (100, Enters(Completed)),
            (5_100, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
    }
    let seen = play(OTHER_CLIENT, &unreliable(), &[(100, Response(100)), (300, Response(200))]);
    assert_eq!(seen.last(), Some(&(5_300, Enters(Terminated))));
}

/// If the driver fires the timers late in "Proceeding", only one of the missed retransmissions is
/// sent, and the next one comes T2 later.
#[test]
fn missed_repetitions_are_not_sent_in_a_burst() {
    let timing = unreliable();
    let (client, _) = OtherClient::start(Timestamp::ZERO, &timing).on_response(ms(1), &timing, 100);
    let (client, firing) = client.on_timer(ms(10_000), &timing);
    assert_eq!((firing, client.deadline()), (Firing::Resend, Some(ms(14_000))));
}

/// A hushed client stops retransmissions, and still waits for responses.
#[test]
fn a_hushed_client_waits_without_repeating() {
    let timing = unreliable();
    let trying = Client::other(Timestamp::ZERO, &timing);
    let (proceeding, _) = trying.on_response(ms(1), &timing, 100);
    for (client, is_unanswered) in [(trying, true), (proceeding, false)] {
        let hushed = client.hush();
        assert!(hushed.is_pending());
        assert_eq!(hushed.is_unanswered(), is_unanswered);
        assert_eq!(hushed.deadline(), Some(ms(32_000)), "Timer F runs");
        assert_eq!(hushed.on_timer(ms(31_999), &timing), (hushed, Firing::Silent));
        let answer = hushed.on_response(ms(2), &timing, 200);
        assert_eq!(answer, client.on_response(ms(2), &timing, 200));
    }
}
