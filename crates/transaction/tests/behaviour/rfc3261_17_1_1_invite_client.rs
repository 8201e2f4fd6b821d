//! RFC 3261 §17.1.1: the client transaction of an INVITE, as amended by RFC 6026 §8.4. Its Accepted
//! state is in `rfc6026_accepted.rs`.

use std::time::Duration;

use crate::script::Effect::{AckSent, Enters, RequestSent, TimedOut, ToUser};
use crate::script::Event::Response;
use crate::script::State::{Calling, Completed, Proceeding, Terminated};
use crate::script::{INVITE_CLIENT, ms, play, reliable, times, unreliable};
use tidegate_transaction::{Client, Firing, InviteClient, Timing};
use tidegate_world::Timestamp;

/// §17.1.1.2: "This process MUST continue so that the request is retransmitted with intervals that
/// double after each transmission." "The value of 64*T1 is equal to the amount of time required to
/// send seven requests in the case of an unreliable transport." The first of the seven started the
/// transaction.
///
/// RFC 3261 §17.1.1.2: "The initial state, "calling", MUST be entered when the TU initiates a new
/// client transaction with an INVITE request." "When timer A fires, the client transaction MUST
/// retransmit the request by passing it to the transport layer, and MUST reset the timer with a
/// value of 2*T1." "When timer A fires 2*T1 seconds later, the request MUST be retransmitted again
/// (assuming the client transaction is still in this state)." "These retransmissions SHOULD only be
/// done while the client transaction is in the "calling" state."
#[test]
fn timer_a_doubles_until_timer_b_ends_it() {
    let seen = play(INVITE_CLIENT, &unreliable(), &[]);
    let expected = [
        (0, Enters(Calling)),
        (500, RequestSent),
        (1_500, RequestSent),
        (3_500, RequestSent),
        (7_500, RequestSent),
        (15_500, RequestSent),
        (31_500, RequestSent),
        (32_000, TimedOut),
        (32_000, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §17.1.1.2: "If a reliable transport is being used, the client transaction SHOULD NOT start
/// timer A (Timer A controls request retransmissions). For any transport, the client transaction
/// MUST start timer B with a value of 64*T1 seconds (Timer B controls transaction timeouts)."
#[test]
fn over_a_reliable_transport_only_timer_b_runs() {
    let seen = play(INVITE_CLIENT, &reliable(), &[]);
    assert_eq!(seen, [(0, Enters(Calling)), (32_000, TimedOut), (32_000, Enters(Terminated))]);
}

/// §17.1.1.1: "Nearly all of the transaction timers described here scale with T1, and changing T1
/// adjusts their values." Timer A is not capped by T2.
///
/// RFC 3261 §17.1.1.2: "Whatever the value of T1, the exponential backoffs on retransmissions
/// described in this section MUST be used."
#[test]
fn a_and_b_scale_with_t1_and_ignore_t2() {
    let timing =
        Timing { t1: Duration::from_millis(20), t2: Duration::from_millis(40), ..unreliable() };
    let seen = play(INVITE_CLIENT, &timing, &[]);
    assert_eq!(times(&seen, RequestSent), [20, 60, 140, 300, 620, 1_260]);
    assert_eq!(times(&seen, TimedOut), [1_280]);
}

/// §17.1.1.2: "If the client transaction is still in the "Calling" state when timer B fires, the
/// client transaction SHOULD inform the TU that a timeout has occurred. The client transaction
/// MUST NOT generate an ACK."
#[test]
fn if_a_and_b_have_both_expired_b_counts() {
    let timing = unreliable();
    let (client, firing) =
        InviteClient::start(Timestamp::ZERO, &timing).on_timer(ms(32_000), &timing);
    assert_eq!((client, firing), (InviteClient::Terminated, Firing::TimedOut));
}

/// §17.1.1.2: "In the "Proceeding" state, the client transaction SHOULD NOT retransmit the
/// request any longer. Furthermore, the provisional response MUST be passed to the TU. Any
/// further provisional responses MUST be passed up to the TU while in the "Proceeding" state."
/// No timer runs in this state, because a call may ring for hours.
#[test]
fn a_provisional_response_ends_retransmission_and_timeout() {
    let script = [(600, Response(100)), (900, Response(180)), (7_200_000, Response(199))];
    let seen = play(INVITE_CLIENT, &unreliable(), &script);
    let expected = [
        (0, Enters(Calling)),
        (500, RequestSent),
        (600, ToUser(100)),
        (600, Enters(Proceeding)),
        (900, ToUser(180)),
        (7_200_000, ToUser(199)),
    ];
    assert_eq!(seen, expected);
}

/// RFC 6026 §8.4: "When in either the "Calling" or "Proceeding" states, reception of a response
/// with status code from 300-699 MUST cause the client transaction to transition to "Completed".
/// The client transaction MUST pass the received response up to the TU, and the client
/// transaction MUST generate an ACK request". "The client transaction MUST start Timer D when it
/// enters the "Completed" state for any reason, with a value of at least 32 seconds for
/// unreliable transports".
///
/// RFC 3261 §17.1.1.2: "When in either the "Calling" or "Proceeding" states, reception of a
/// response with status code from 300-699 MUST cause the client transaction to transition to
/// "Completed"." "The client transaction MUST pass the received response up to the TU, and the
/// client transaction MUST generate an ACK request, even if the transport is reliable (guidelines
/// for constructing the ACK from the response are given in Section 17.1.1.3) and then pass the ACK
/// to the transport layer for transmission." "The client transaction SHOULD start timer D when it
/// enters the "Completed" state, with a value of at least 32 seconds for unreliable transports, and
/// a value of zero seconds for reliable transports." "If timer D fires while the client transaction
/// is in the "Completed" state, the client transaction MUST move to the terminated state."
///
/// RFC 6026 §8.4: "If Timer D fires while the client transaction is in the "Completed" state, the
/// client transaction MUST move to the "Terminated" state."
#[test]
fn a_rejection_is_acknowledged_and_remembered_for_timer_d() {
    for status in [300, 486, 503, 699] {
        let seen = play(INVITE_CLIENT, &unreliable(), &[(100, Response(status))]);
        let expected = [
            (0, Enters(Calling)),
            (100, ToUser(status)),
            (100, AckSent),
            (100, Enters(Completed)),
            (32_100, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
        let script = [(100, Response(180)), (90_000, Response(status))];
        let seen = play(INVITE_CLIENT, &unreliable(), &script);
        let expected = [
            (0, Enters(Calling)),
            (100, ToUser(180)),
            (100, Enters(Proceeding)),
            (90_000, ToUser(status)),
            (90_000, AckSent),
            (90_000, Enters(Completed)),
            (122_000, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
    }
}

/// RFC 6026 §8.4: "However, the client transaction does not know the value of T1 in use by the
/// server transaction or any downstream UAS cores, so an absolute minimum of 32 s is used instead
/// of basing Timer D on T1."
#[test]
fn timer_d_does_not_scale_with_t1() {
    let timing = Timing { t1: Duration::from_millis(10), ..unreliable() };
    let seen = play(INVITE_CLIENT, &timing, &[(1, Response(404))]);
    assert_eq!(seen.last(), Some(&(32_001, Enters(Terminated))));
}

/// RFC 6026 §8.4: "Any retransmissions of a response with status code 300-699 that are received
/// while in the "Completed" state MUST cause the ACK to be re-passed to the transport layer for
/// retransmission, but the newly received response MUST NOT be passed up to the TU." Such responses
/// do not restart Timer D. A 2xx or a 1xx in this state causes no ACK.
#[test]
fn a_repeated_rejection_is_acknowledged_and_goes_no_further() {
    let script = [
        (100, Response(486)),
        (600, Response(486)),
        (700, Response(180)),
        (800, Response(200)),
        (31_000, Response(503)),
    ];
    let seen = play(INVITE_CLIENT, &unreliable(), &script);
    let expected = [
        (0, Enters(Calling)),
        (100, ToUser(486)),
        (100, AckSent),
        (100, Enters(Completed)),
        (600, AckSent),
        (31_000, AckSent),
        (32_100, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// If the driver fires the timers late, only one of the missed retransmissions is sent, and the
/// next one comes a full interval later.
#[test]
fn missed_repetitions_are_not_sent_in_a_burst() {
    let timing = unreliable();
    let client = InviteClient::start(Timestamp::ZERO, &timing);
    let (client, firing) = client.on_timer(ms(1_600), &timing);
    assert_eq!(firing, Firing::Resend);
    assert_eq!(client.deadline(), Some(ms(2_600)), "not 1,500, which has passed");
    let (client, firing) = client.on_timer(ms(2_700), &timing);
    assert_eq!(firing, Firing::Resend);
    assert_eq!(client.deadline(), Some(ms(4_600)), "counted from 2,600, when it was due");
    let (client, _) = InviteClient::start(Timestamp::ZERO, &timing).on_timer(ms(1_500), &timing);
    assert_eq!(
        client.deadline(),
        Some(ms(2_500)),
        "the retransmission due at 1,500 is the one that was sent"
    );
}

/// A hushed client stops retransmissions, and still waits for responses.
#[test]
fn a_hushed_client_waits_without_repeating() {
    let timing = unreliable();
    let hushed = Client::invite(Timestamp::ZERO, &timing).hush();
    assert!(hushed.is_unanswered());
    assert_eq!(hushed.deadline(), Some(ms(32_000)), "Timer B runs");
    assert_eq!(hushed.on_timer(ms(31_999), &timing), (hushed, Firing::Silent));
    for status in [180, 200, 486] {
        let (client, arrival) = hushed.on_response(ms(1), &timing, status);
        assert_eq!(client.hush(), client, "nothing is repeated any more");
        let loud = Client::invite(Timestamp::ZERO, &timing).on_response(ms(1), &timing, status);
        assert_eq!((client, arrival), loud);
    }
}
