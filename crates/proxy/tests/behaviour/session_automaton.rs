//! Tests of five cases that the session automaton of paper 003, fig. 4, miscounts as printed.
//!
//! ```text
//! 03: if not found                          14: if 200 response for INVITE
//! 04:   /* don't know this session */       15:   s = STATUS_INV_200
//! 05:   if INVITE                           17:   node_counter[d] -= w_inv
//! 07:     select one node d                 18: else if ACK request
//! 09:     add entry to active table         20: else if BYE request
//! 10:     s = STATUS_INV                    21:   s = STATUS_BYE
//! 11:     node_counter[d] += w_inv          22:   node_counter[d] += w_bye
//! 12:   /* non-invites omitted */           23: else if 200 response for BYE
//! 13: else                                  26:   node_counter[d] -= w_bye
//! 29: if request (INVITE, BYE etc.)         27:   move entry to expired table
//! 30:   forward to d
//! ```
//!
//! In this proxy, every count is a lease of one transaction. So each test checks that the counts
//! are right, with and without transactions.

use std::time::Duration;

use crate::script::*;
use tidegate_balance::Policy;
use tidegate_proxy::Mode;

const MODES: [Mode; 2] = [Mode::Stateless, Mode::Transaction];

/// The weights w_inv and w_bye of TLWL-1.75 in paper 003 §IV, in hundredths.
const W_INV: u64 = 175;
const W_BYE: u64 = 100;

struct Balancer(Script);

impl Balancer {
    fn new(mode: Mode) -> Self {
        Self(Script::with(Policy::Tlwl, |settings| settings.pools[0].mode = mode))
    }

    /// Returns the calls and the weighted transactions of all back ends.
    fn counted(&self) -> (u64, u64) {
        let backends = self.0.backends.backends().iter();
        backends.fold((0, 0), |(calls, work), b| (calls + b.calls(), work + b.work()))
    }

    /// Sends a request of the caller. Returns it as forwarded to a back end.
    fn request(&mut self, text: &str) -> Sent {
        let sent = self.0.send(CALLER, text);
        sent.into_iter().find(|sent| sent.to != address(CALLER)).expect("it is forwarded")
    }

    /// Sends a back end's response to a request.
    fn answer(&mut self, request: &Sent, status: &str) {
        self.0.send(&request.to.to_string(), &request.answer(status));
    }

    /// Makes a balancer with an established call.
    fn with_call(mode: Mode) -> Self {
        let mut balancer = Self::new(mode);
        let sent = balancer.request(&invite("a"));
        assert_eq!(balancer.counted(), (1, W_INV));
        balancer.answer(&sent, "200 OK");
        balancer.request(&within("ACK", 1));
        assert_eq!(balancer.counted(), (1, 0));
        balancer
    }
}

/// Returns an in-dialog request of the established call.
fn within(method: &str, cseq: u32) -> String {
    request(method, "sip:service@192.0.2.1:5060", "a", cseq, "Totag\r\n")
}

// Lines 23 to 26 of the automaton do not recognise a repeated 200.
#[test]
fn miscount_1_a_retransmitted_200_to_a_bye_decrements_again() {
    for mut balancer in MODES.map(Balancer::with_call) {
        // The automaton of the paper would decrement the counts of this other call too.
        let other = balancer.request(&invite("b"));
        let bye = balancer.request(&within("BYE", 2));
        assert_eq!(balancer.counted(), (2, W_INV + W_BYE));
        for _ in 0..3 {
            balancer.answer(&bye, "200 OK");
            assert_eq!(balancer.counted(), (1, W_INV));
        }
        balancer.answer(&other, "486 Busy Here");
        assert_eq!(balancer.counted(), (0, 0));
    }
}

// Lines 14 to 17 decrement at the 200 to any INVITE. Line 11 increments only at the first INVITE.
#[test]
fn miscount_2_the_200_to_a_re_invite_decrements_what_was_not_incremented() {
    for mut balancer in MODES.map(Balancer::with_call) {
        let other = balancer.request(&invite("b"));
        for cseq in 2..5 {
            let again = balancer.request(&within("INVITE", cseq));
            assert_eq!(
                balancer.counted(),
                (2, 2 * W_INV),
                "a re-INVITE is as much work as an INVITE"
            );
            balancer.answer(&again, "200 OK");
            assert_eq!(balancer.counted(), (2, W_INV));
            balancer.request(&within("ACK", cseq));
        }
        balancer.answer(&other, "486 Busy Here");
        let bye = balancer.request(&within("BYE", 5));
        balancer.answer(&bye, "200 OK");
        assert_eq!(balancer.counted(), (0, 0));
    }
}

// Lines 20 to 22 of the automaton do not recognise a repeated BYE.
#[test]
fn miscount_3_a_retransmitted_bye_increments_again() {
    for mut balancer in MODES.map(Balancer::with_call) {
        let bye = balancer.request(&within("BYE", 2));
        for _ in 0..3 {
            balancer.0.send(CALLER, &within("BYE", 2));
            assert_eq!(balancer.counted(), (1, W_BYE));
        }
        balancer.answer(&bye, "200 OK");
        assert_eq!(balancer.counted(), (0, 0));
        balancer.0.send(CALLER, &within("BYE", 2));
        assert_eq!(balancer.counted(), (0, 0), "a late BYE does not count either");
    }
}

// Line 23 of the automaton waits only for a 200.
#[test]
fn miscount_4_a_final_response_other_than_200_to_a_bye_never_decrements() {
    for status in ["481 Call/Transaction Does Not Exist", "202 X"] {
        for mut balancer in MODES.map(Balancer::with_call) {
            let bye = balancer.request(&within("BYE", 2));
            balancer.answer(&bye, status);
            assert_eq!(balancer.counted(), (0, 0), "{status}");
        }
    }
    // RFC 3261 §22.2: a challenged BYE is repeated with credentials.
    for mut balancer in MODES.map(Balancer::with_call) {
        let bye = balancer.request(&within("BYE", 2));
        balancer.answer(&bye, "407 Proxy Authentication Required");
        assert_eq!(balancer.counted(), (1, 0), "the call goes on");
        let bye = balancer.request(&within("BYE", 3));
        balancer.answer(&bye, "200 OK");
        assert_eq!(balancer.counted(), (0, 0));
    }
    // The BYE gets no response, so Timer F fires after 64·T1 (RFC 3261 §17.1.2.2).
    for mut balancer in MODES.map(Balancer::with_call) {
        balancer.request(&within("BYE", 2));
        balancer.0.pass(Duration::from_secs(32));
        assert_eq!(balancer.counted(), (0, 0));
    }
}

// Line 12 omits requests other than INVITE "for clarity". So line 30 has no d for such a request.
#[test]
fn miscount_5_a_request_of_no_known_session_that_is_no_invite_goes_nowhere() {
    for mode in MODES {
        for method in ["OPTIONS", "MESSAGE", "REGISTER", "SUBSCRIBE", "X-UNHEARD-OF"] {
            let mut balancer = Balancer::new(mode);
            let sent = balancer.request(&request(method, "sip:bob@192.0.2.1", "o", 1, ""));
            assert_eq!(balancer.counted(), (0, W_BYE), "{method} is work, and no call");
            balancer.answer(&sent, "200 OK");
            balancer.answer(&sent, "200 OK");
            assert_eq!(balancer.counted(), (0, 0), "{method}");
        }
        // RFC 3261 §12.2.2: a request that claims to belong to a call that does not exist gets a
        // 481.
        let mut balancer = Balancer::new(mode);
        for method in ["BYE", "INFO"] {
            assert_eq!(balancer.0.status(CALLER, &within(method, 2)), 481);
            assert_eq!(balancer.counted(), (0, 0));
        }
    }
}
