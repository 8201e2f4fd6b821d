//! RFC 3261 §17.2.1: the server transaction of an INVITE. Its Accepted state is in
//! `rfc6026_accepted.rs`.

use std::time::Duration;

use crate::script::Effect::{Enters, ResponseResent, ResponseSent, TimedOut};
use crate::script::Event::{Ack, Request, Sending};
use crate::script::State::{Completed, Confirmed, Proceeding, Terminated};
use crate::script::{INVITE_SERVER, ms, play, reliable, times, unreliable};
use tidegate_transaction::{Firing, Server, Timing};

/// §17.2.1: "So long as the server transaction is in the "Proceeding" state, each of these MUST
/// be passed to the transport layer for transmission. They are not sent reliably by the
/// transaction layer (they are not retransmitted by it) and do not cause a change in the state of
/// the server transaction." "If a request retransmission is received while in the "Proceeding"
/// state, the most recent provisional response that was received from the TU MUST be passed to
/// the transport layer for retransmission."
#[test]
fn provisional_responses_are_sent_and_repeated_on_demand() {
    let script =
        [(0, Sending(100)), (500, Request), (900, Sending(180)), (90_000, Request), (90_001, Ack)];
    for timing in [unreliable(), reliable()] {
        let seen = play(INVITE_SERVER, &timing, &script);
        let expected = [
            (0, Enters(Proceeding)),
            (0, ResponseSent(100)),
            (500, ResponseResent),
            (900, ResponseSent(180)),
            (90_000, ResponseResent),
        ];
        assert_eq!(seen, expected);
    }
}

/// §17.2.1: "If timer G fires, the response is passed to the transport layer once more for
/// retransmission, and timer G is set to fire in MIN(2*T1, T2) seconds. From then on, when timer
/// G fires, the response is passed to the transport again for transmission, and timer G is reset
/// with a value that doubles, unless that value exceeds T2, in which case it is reset with the
/// value of T2." "If timer H fires while in the "Completed" state, it implies that the ACK was
/// never received. In this case, the server transaction MUST transition to the "Terminated"
/// state, and MUST indicate to the TU that a transaction failure has occurred."
///
/// RFC 3261 §17.2.1: "While in the "Proceeding" state, if the TU passes a response with status code
/// from 300 to 699 to the server transaction, the response MUST be passed to the transport layer
/// for transmission, and the state machine MUST enter the "Completed" state."
#[test]
fn timer_g_doubles_up_to_t2_until_timer_h_ends_it() {
    let seen = play(INVITE_SERVER, &unreliable(), &[(1_000, Sending(486))]);
    let expected = [
        (0, Enters(Proceeding)),
        (1_000, ResponseSent(486)),
        (1_000, Enters(Completed)),
        (1_500, ResponseResent),
        (2_500, ResponseResent),
        (4_500, ResponseResent),
        (8_500, ResponseResent),
        (12_500, ResponseResent),
        (16_500, ResponseResent),
        (20_500, ResponseResent),
        (24_500, ResponseResent),
        (28_500, ResponseResent),
        (32_500, ResponseResent),
        (33_000, TimedOut),
        (33_000, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §17.2.1: "For unreliable transports, timer G is set to fire in T1 seconds, and is not set to
/// fire for reliable transports." "When the "Completed" state is entered, timer H MUST be set to
/// fire in 64*T1 seconds for all transports."
#[test]
fn over_a_reliable_transport_only_timer_h_runs() {
    let seen = play(INVITE_SERVER, &reliable(), &[(1_000, Sending(300))]);
    let expected = [
        (0, Enters(Proceeding)),
        (1_000, ResponseSent(300)),
        (1_000, Enters(Completed)),
        (33_000, TimedOut),
        (33_000, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §17.2.1: "Furthermore, while in the "Completed" state, if a request retransmission is received,
/// the server SHOULD pass the response to the transport for retransmission." Timer G continues
/// unchanged. A second final response is not sent.
#[test]
fn in_completed_the_response_is_repeated_on_demand_too() {
    let script = [(0, Sending(486)), (700, Request), (800, Sending(200)), (900, Sending(180))];
    let seen = play(INVITE_SERVER, &unreliable(), &script);
    assert_eq!(times(&seen, ResponseSent(486)), [0]);
    assert_eq!(times(&seen, ResponseResent)[..4], [500, 700, 1_500, 3_500]);
    assert_eq!(times(&seen, ResponseSent(200)), []);
    assert_eq!(times(&seen, ResponseSent(180)), []);
    assert_eq!(times(&seen, TimedOut), [32_000]);
}

/// §17.2.1: "If an ACK is received while the server transaction is in the "Completed" state, the
/// server transaction MUST transition to the "Confirmed" state. As Timer G is ignored in this
/// state, any retransmissions of the response will cease." "The purpose of the "Confirmed" state
/// is to absorb any additional ACK messages that arrive, triggered from retransmissions of the
/// final response. When this state is entered, timer I is set to fire in T4 seconds for
/// unreliable transports". "Once timer I fires, the server MUST transition to the "Terminated"
/// state."
#[test]
fn an_ack_ends_repetition_and_others_are_absorbed_for_timer_i() {
    let script = [
        (0, Sending(503)),
        (600, Ack),
        (700, Ack),
        (800, Request),
        (900, Sending(200)),
        (5_000, Ack),
    ];
    let seen = play(INVITE_SERVER, &unreliable(), &script);
    let expected = [
        (0, Enters(Proceeding)),
        (0, ResponseSent(503)),
        (0, Enters(Completed)),
        (500, ResponseResent),
        (600, Enters(Confirmed)),
        (5_600, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// RFC 3261, table 4: Timer I is T4, and does not scale with T1.
#[test]
fn timer_i_is_t4() {
    let timing = Timing { t4: Duration::from_millis(70), ..unreliable() };
    let seen = play(INVITE_SERVER, &timing, &[(0, Sending(486)), (100, Ack)]);
    assert_eq!(seen.last(), Some(&(170, Enters(Terminated))));
}

/// The transaction user can abandon a transaction of any kind.
#[test]
fn its_user_can_end_it() {
    for ended in [Server::invite().end(), Server::other().end()] {
        assert!(ended.is_terminated() && !ended.is_pending() && !ended.awaits_ack());
    }
}

/// If the driver fires the timers late, Timer H precedes Timer G, and only one of the missed
/// retransmissions is sent.
#[test]
fn missed_repetitions_are_not_sent_in_a_burst() {
    let timing = unreliable();
    let (server, _) = Server::invite().on_sending(ms(0), &timing, 486);
    let (later, firing) = server.on_timer(ms(10_000), &timing);
    assert_eq!((firing, later.deadline()), (Firing::Resend, Some(ms(11_000))));
    let (ended, firing) = server.on_timer(ms(32_000), &timing);
    assert_eq!((firing, ended.is_terminated()), (Firing::TimedOut, true));
}
