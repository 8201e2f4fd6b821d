//! Tests that a branch does not count after another one has replaced it in a failover (RFC 3263
//! §4.3).

use std::time::Duration;

use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, address, invite, request, starts,
};
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::PoolSettings;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Makes a call that the first back end does not answer. Returns the INVITEs to the first back end
/// and, after four seconds, to the second.
fn failed_over(s: &mut Script) -> (Sent, Sent) {
    let first = s.send(CALLER, &invite("c1")).remove(1);
    s.pass(Duration::from_secs(4));
    let second = s.sent().pop().unwrap();
    assert_eq!(second.to.to_string(), BACKEND_B);
    (first, second)
}

/// The CANCEL has no Reason. If the caller then cancels the call with a Reason, copies of the
/// earlier CANCEL do not change.
#[test]
fn a_late_provisional_response_is_not_forwarded_and_its_branch_is_cancelled() {
    let mut s = Script::stateful();
    let (first, second) = failed_over(&mut s);
    let late = s.one(BACKEND_A, &first.answer("180 Ringing"));
    assert_eq!((late.to, late.start()), (first.to, "CANCEL sip:bob@192.0.2.1 SIP/2.0"));
    assert!(late.all("Reason").is_empty());
    s.send(BACKEND_B, &second.answer("180 Ringing"));
    let reason = "Reason: SIP;cause=480\r\n";
    let sent = s.send(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, reason));
    assert_eq!(sent[1].all("Reason"), ["SIP;cause=480"]);
    s.pass(MS(500));
    assert_eq!(s.sent(), [late, sent[1].clone()]);
}

/// The late rejection is not sent to the caller, and a 6xx does not cancel the other branch.
#[test]
fn a_late_rejection_is_acknowledged_and_does_not_count() {
    for late in ["404 Not Found", "603 Decline"] {
        let mut s = Script::stateful();
        let (first, second) = failed_over(&mut s);
        let sent = s.send(BACKEND_A, &first.answer(late));
        assert_eq!(starts(&sent), [(BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0")], "{late}");
        let ringing = s.send(BACKEND_B, &second.answer("180 Ringing"));
        assert_eq!(starts(&ringing), [(CALLER, "SIP/2.0 180 Ringing")], "{late}");
        let sent = s.send(BACKEND_B, &second.answer("486 Busy Here"));
        assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 486 Busy Here"), "{late}");
    }
}

/// The transaction of the branch ends by Timer B, or 64·T1 after its CANCEL.
#[test]
fn the_end_of_its_transaction_does_not_count() {
    for rings in [false, true] {
        let mut s = Script::stateful();
        let (first, second) = failed_over(&mut s);
        if rings {
            s.one(BACKEND_A, &first.answer("180 Ringing"));
        }
        s.send(BACKEND_B, &second.answer("180 Ringing"));
        s.rest(Duration::from_secs(33));
        let sent = s.send(BACKEND_B, &second.answer("480 Temporarily Unavailable"));
        assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 480 Temporarily Unavailable"), "{rings}");
        assert_eq!(s.counters.timeouts.get(), 0, "{rings}");
    }
}

/// Every earlier branch is abandoned, not only the first.
#[test]
fn it_does_not_fail_over_again() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let all = [BACKEND_A, BACKEND_B, BACKEND_C].map(|at| (at, address(at), 1));
        settings.pools = vec![PoolSettings::new(Pool::new("app", &all), Policy::Rr)];
    });
    s.send(CALLER, &invite("c1"));
    s.rejected(BACKEND_A);
    let second = s.pass_and_take(MS(500));
    assert_eq!(second.to.to_string(), BACKEND_B);
    s.pass(MS(3999));
    assert!(s.sent().iter().all(|again| *again == second));
    let third = s.pass_and_take(MS(1));
    assert_eq!(third.to.to_string(), BACKEND_C);
    let late = s.one(BACKEND_B, &second.answer("180 Ringing"));
    assert_eq!((late.to, late.start()), (second.to, "CANCEL sip:bob@192.0.2.1 SIP/2.0"));
}
