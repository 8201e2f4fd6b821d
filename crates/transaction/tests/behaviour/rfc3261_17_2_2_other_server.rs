//! RFC 3261 §17.2.2: the server transaction of a request other than INVITE, with the changes of RFC
//! 4320 §4.

use std::time::Duration;

use crate::script::Effect::{Enters, ResponseResent, ResponseSent};
use crate::script::Event::{Ack, Request, Sending};
use crate::script::State::{Completed, Proceeding, Terminated, Trying};
use crate::script::{OTHER_SERVER, play, reliable, unreliable};
use tidegate_transaction::Timing;

/// §17.2.2: "While in the "Trying" state, if the TU passes a provisional response to the server
/// transaction, the server transaction MUST enter the "Proceeding" state. The response MUST be
/// passed to the transport layer for transmission. Any further provisional responses that are
/// received from the TU while in the "Proceeding" state MUST be passed to the transport layer for
/// transmission. If a retransmission of the request is received while in the "Proceeding" state,
/// the most recently sent provisional response MUST be passed to the transport layer for
/// retransmission."
#[test]
fn provisional_responses_are_sent_and_repeated_on_demand() {
    let script = [(3_500, Sending(100)), (7_500, Request), (8_000, Sending(100))];
    for timing in [unreliable(), reliable()] {
        let seen = play(OTHER_SERVER, &timing, &script);
        let expected = [
            (0, Enters(Trying)),
            (3_500, ResponseSent(100)),
            (3_500, Enters(Proceeding)),
            (7_500, ResponseResent),
            (8_000, ResponseSent(100)),
        ];
        assert_eq!(seen, expected);
    }
}

/// §17.2.2: "When the server transaction enters the "Completed" state, it MUST set Timer J to
/// fire in 64*T1 seconds for unreliable transports". "While in the "Completed" state, the server
/// transaction MUST pass the final response to the transport layer for retransmission whenever a
/// retransmission of the request is received. Any other final responses passed by the TU to the
/// server transaction MUST be discarded while in the "Completed" state. The server transaction
/// remains in this state until Timer J fires, at which point it MUST transition to the
/// "Terminated" state."
///
/// §17.2.2: "If the TU passes a final response (status codes 200-699) to the server while in the
/// "Proceeding" state, the transaction MUST enter the "Completed" state, and the response MUST be
/// passed to the transport layer for transmission."
#[test]
fn a_final_response_is_sent_once_and_repeated_on_demand_for_timer_j() {
    for status in [200, 302, 404, 503, 699] {
        let script = [
            (100, Sending(status)),
            (600, Request),
            (700, Sending(200)),
            (800, Sending(100)),
            (900, Ack),
            (32_000, Request),
            (33_000, Request),
        ];
        let seen = play(OTHER_SERVER, &unreliable(), &script);
        let expected = [
            (0, Enters(Trying)),
            (100, ResponseSent(status)),
            (100, Enters(Completed)),
            (600, ResponseResent),
            (32_000, ResponseResent),
            (32_100, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
    }
    let seen = play(OTHER_SERVER, &unreliable(), &[(0, Sending(100)), (100, Sending(200))]);
    assert_eq!(seen.last(), Some(&(32_100, Enters(Terminated))));
}

/// Table 4: Timer J is "64*T1 for UDP".
#[test]
fn timer_j_scales_with_t1() {
    let timing = Timing { t1: Duration::from_millis(10), ..unreliable() };
    let seen = play(OTHER_SERVER, &timing, &[(0, Sending(200))]);
    assert_eq!(seen.last(), Some(&(640, Enters(Terminated))));
}

/// RFC 4320 §4.2: "A transaction-stateful SIP element MUST NOT send a response with Status-Code of
/// 408 to a non-INVITE request." The transaction stays as long as after any other final response.
#[test]
fn a_408_is_not_sent_and_ends_it() {
    let seen = play(OTHER_SERVER, &unreliable(), &[(100, Sending(408)), (200, Sending(200))]);
    let expected = [(0, Enters(Trying)), (100, Enters(Completed)), (32_100, Enters(Terminated))];
    assert_eq!(seen, expected);
    let seen = play(OTHER_SERVER, &reliable(), &[(100, Sending(408))]);
    assert_eq!(seen, [(0, Enters(Trying)), (100, Enters(Terminated))]);
}
