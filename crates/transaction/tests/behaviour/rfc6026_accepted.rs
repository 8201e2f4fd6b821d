//! RFC 6026: both transactions of an INVITE outlive its 2xx, in the state "Accepted".

use std::time::Duration;

use crate::script::Effect::{AckToUser, Enters, RequestSent, ResponseSent, ToUser};
use crate::script::Event::{Ack, Request, Response, Sending};
use crate::script::State::{Accepted, Calling, Proceeding, Terminated};
use crate::script::{INVITE_CLIENT, INVITE_SERVER, play, reliable, unreliable};
use tidegate_transaction::Timing;

/// §8.4: "When a 2xx response is received while in either the "Calling" or "Proceeding" states,
/// the client transaction MUST transition to the "Accepted" state, and Timer M MUST be started
/// with a value of 64*T1. The 2xx response MUST be passed up to the TU. The client transaction
/// MUST NOT generate an ACK to the 2xx response". "If Timer M fires while the client transaction
/// is in the "Accepted" state, the client transaction MUST move to the "Terminated" state."
///
/// RFC 6026 §7.2: "If a 2xx response is received while the client INVITE state machine is in the
/// "Calling" or "Proceeding" states, it MUST transition to the "Accepted" state, pass the 2xx
/// response to the TU, and set Timer M to 64*T1." "The client transaction MUST NOT generate an ACK
/// to any 2xx response on its own." "When Timer M fires and the state machine is in the "Accepted"
/// state, the machine MUST transition to the "Terminated" state."
#[test]
fn a_client_stays_for_timer_m_over_any_transport() {
    for timing in [unreliable(), reliable()] {
        let seen = play(INVITE_CLIENT, &timing, &[(200, Response(200))]);
        let expected = [
            (0, Enters(Calling)),
            (200, ToUser(200)),
            (200, Enters(Accepted)),
            (32_200, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
        let seen = play(INVITE_CLIENT, &timing, &[(200, Response(180)), (60_000, Response(299))]);
        let expected = [
            (0, Enters(Calling)),
            (200, ToUser(180)),
            (200, Enters(Proceeding)),
            (60_000, ToUser(299)),
            (60_000, Enters(Accepted)),
            (92_000, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
    }
}

/// §8.4: "Any 2xx responses that match this client transaction and that are received while in the
/// "Accepted" state MUST be passed up to the TU. The client transaction MUST NOT generate an ACK to
/// the 2xx response. The client transaction takes no further action." Other responses are not
/// passed up: figure 5 has no edge for them. The INVITE is not retransmitted.
///
/// RFC 6026 §7.2: "A 2xx response received while in the "Accepted" state MUST be passed to the TU
/// and the machine remains in the "Accepted" state."
#[test]
fn a_client_passes_up_every_2xx_and_nothing_else() {
    let script = [
        (600, Response(200)),
        (700, Response(200)),
        (800, Response(180)),
        (900, Response(486)),
        (1_000, Response(202)),
        (40_000, Response(200)),
    ];
    let seen = play(INVITE_CLIENT, &unreliable(), &script);
    let expected = [
        (0, Enters(Calling)),
        (500, RequestSent),
        (600, ToUser(200)),
        (600, Enters(Accepted)),
        (700, ToUser(200)),
        (1_000, ToUser(202)),
        (32_600, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §8.5: "If, while in the "Proceeding" state, the TU passes a 2xx response to the server
/// transaction, the server transaction MUST pass this response to the transport layer for
/// transmission. It is not retransmitted by the server transaction; retransmissions of 2xx
/// responses are handled by the TU. The server transaction MUST then transition to the "Accepted"
/// state." §8.7: "When the INVITE server transaction enters the "Accepted" state, Timer L MUST be
/// set to fire in 64*T1 for all transports." "If Timer L fires while the INVITE server transaction
/// is in the "Accepted" state, the transaction MUST transition to the "Terminated" state."
///
/// RFC 6026 §7.1: "If the SIP element's TU (Transaction User) issues a 2xx response for this
/// transaction while the state machine is in the "Proceeding" state, the state machine MUST
/// transition to the "Accepted" state and set Timer L to 64*T1, where T1 is the round-trip time
/// estimate defined in Section 17.1.1.1 of [RFC3261]." "The server transaction MUST NOT generate
/// 2xx retransmissions on its own." "When Timer L fires and the state machine is in the "Accepted"
/// state, the machine MUST transition to the "Terminated" state."
///
/// RFC 3261 §17.2.1: "If, while in the "Proceeding" state, the TU passes a 2xx response to the
/// server transaction, the server transaction MUST pass this response to the transport layer for
/// transmission."
#[test]
fn a_server_stays_for_timer_l_over_any_transport() {
    for timing in [unreliable(), reliable()] {
        let seen = play(INVITE_SERVER, &timing, &[(700, Sending(200))]);
        let expected = [
            (0, Enters(Proceeding)),
            (700, ResponseSent(200)),
            (700, Enters(Accepted)),
            (32_700, Enters(Terminated)),
        ];
        assert_eq!(seen, expected);
    }
}

/// §7.1: "While in the "Accepted" state, any retransmissions of the INVITE received will match
/// this transaction state machine and will be absorbed by the machine without changing its state.
/// These retransmissions are not passed onto the TU." "Any retransmission of the 2xx response
/// passed from the TU to the transaction while in the "Accepted" state MUST be passed to the
/// transport layer for transmission. Any ACKs received from the network while in the "Accepted"
/// state MUST be passed directly to the TU and not absorbed."
///
/// RFC 6026 §8.7: "While in the "Accepted" state, if the TU passes a 2xx response, the server
/// transaction MUST pass the response to the transport layer for transmission."
#[test]
fn a_server_absorbs_the_invite_and_passes_2xx_and_ack() {
    let script = [
        (0, Sending(200)),
        (500, Request),
        (600, Sending(200)),
        (700, Sending(299)),
        (800, Sending(486)),
        (900, Sending(180)),
        (1_000, Ack),
        (1_100, Ack),
        (32_000, Request),
    ];
    let seen = play(INVITE_SERVER, &unreliable(), &script);
    let expected = [
        (0, Enters(Proceeding)),
        (0, ResponseSent(200)),
        (0, Enters(Accepted)),
        (600, ResponseSent(200)),
        (700, ResponseSent(299)),
        (1_000, AckToUser),
        (1_100, AckToUser),
        (32_000, Enters(Terminated)),
    ];
    assert_eq!(seen, expected);
}

/// §8.11: timers L and M are "64*T1".
#[test]
fn l_and_m_scale_with_t1() {
    let timing = Timing { t1: Duration::from_millis(10), ..unreliable() };
    let seen = play(INVITE_SERVER, &timing, &[(0, Sending(200))]);
    assert_eq!(seen.last(), Some(&(640, Enters(Terminated))));
    let seen = play(INVITE_CLIENT, &timing, &[(0, Response(200))]);
    assert_eq!(seen.last(), Some(&(640, Enters(Terminated))));
}
