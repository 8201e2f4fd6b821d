//! RFC 3261 §12.1: the responses that create a dialog, and the requests that belong to it.

use crate::limited::*;
use crate::script::*;
use tidegate_proxy::Mode;

const MODES: [Mode; 2] = [Mode::Transaction, Mode::Stateless];
const BOB: &str = "sip:bob@192.0.2.1";

/// §12.1: "Within this specification, only 2xx and 101-199 responses with a To tag, where the
/// request was INVITE, will establish a dialog."
#[test]
fn a_response_to_another_method_creates_no_dialog() {
    for mode in MODES {
        let mut s = limited(mode, [calls(5); 2]);
        let there = forwarded(s.send(CALLER, &request("OPTIONS", BOB, "a", 1, ""))).unwrap();
        s.send(BACKEND_A, &there.answer("200 OK"));
        assert_eq!(s.status(CALLER, &request("BYE", BOB, "a", 2, "Totag\r\n")), 481, "{mode:?}");
    }
}

/// §12.1 requires a To-tag. If a response without one created a dialog, any INVITE of the caller
/// would be in-dialog and not counted as a call.
#[test]
fn ringing_without_a_to_tag_creates_no_dialog() {
    for mode in MODES {
        let mut s = limited(mode, [calls(5); 2]);
        let there = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        s.send(BACKEND_A, &there.answer("180 Ringing").replace(";tag=callee", ""));
        assert!(forwarded(s.send(CALLER, &request("INVITE", BOB, "a", 2, ""))).is_some());
        assert_eq!(s.held().iter().sum::<u64>(), 2, "{mode:?}");
    }
}

/// §12.1.2: "an UAC MUST be prepared to receive a response without a tag in the To field, in which
/// case the tag is considered to have a value of null" (RFC 2543 did not mandate To tags).
#[test]
fn a_2xx_without_a_to_tag_creates_one() {
    for mode in MODES {
        let mut s = limited(mode, [calls(5); 2]);
        let there = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        s.send(BACKEND_A, &there.answer("200 OK").replace(";tag=callee", ""));
        s.send(CALLER, &request("ACK", BOB, "a", 1, ""));
        let bye = forwarded(s.send(CALLER, &request("BYE", BOB, "a", 2, ""))).unwrap();
        s.send(BACKEND_A, &bye.answer("200 OK"));
        assert_eq!(s.held(), [0, 0], "{mode:?}");
    }
}

/// RFC 3261 §8.2.2.2 applies to requests without To-tag. So an INVITE is not a copy of an earlier
/// request with a To-tag.
#[test]
fn an_invite_with_an_invented_to_tag_has_no_copies() {
    for mode in MODES {
        let mut s = limited(mode, [calls(5); 2]);
        let there = call(&mut s, "a").unwrap();
        let more = format!("Totag\r\nRoute: {}\r\n", there.header("Record-Route"));
        let invented = request("INVITE", BOB, "a", 10, &more).replace("=callee", "=invented");
        assert!(forwarded(s.send(CALLER, &invented)).is_some());
        let plain = request("INVITE", BOB, "a", 10, "").replacen("-10-", "-other-", 1);
        assert!(forwarded(s.send(CALLER, &plain)).is_some());
        assert_eq!(s.held().iter().sum::<u64>(), 3, "{mode:?}");
    }
}

/// A request other than INVITE with an invented To-tag starts no call, even if its token leads to
/// the back end.
#[test]
fn a_request_with_an_invented_to_tag_that_is_no_invite_begins_no_call() {
    for mode in MODES {
        let mut s = limited(mode, [calls(5); 2]);
        let there = call(&mut s, "a").unwrap();
        let more = format!("Totag\r\nRoute: {}\r\n", there.header("Record-Route"));
        for (cseq, method) in (10..).zip(["BYE", "INFO", "UPDATE"]) {
            let invented = request(method, BOB, "a", cseq, &more).replace("=callee", "=invented");
            assert!(forwarded(s.send(CALLER, &invented)).is_some(), "{mode:?} {method}");
            let held = s.held().iter().sum::<u64>();
            assert_eq!((held, s.counters.calls.get()), (1, 1), "{mode:?} {method}");
        }
    }
}

/// RFC 3261 §17.2.3: the same branch and method mean the same request, whatever the state of its
/// call.
#[test]
fn an_invite_that_comes_again_after_its_2xx_is_no_other_call() {
    let mut s = limited(Mode::Stateless, [calls(5); 2]);
    let there = forwarded(s.send(CALLER, &invite("a"))).unwrap();
    s.send(BACKEND_A, &there.answer("200 OK"));
    let again = forwarded(s.send(CALLER, &invite("a"))).unwrap();
    assert_eq!((again.to, again.branch()), (there.to, there.branch()));
    assert_eq!(s.held().iter().sum::<u64>(), 1);
}
