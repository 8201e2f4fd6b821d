//! RFC 3325: tests which sources may assert an identity, and which elements receive it.

use crate::script::{BACKEND_A, CALLER, PROXY, Script, address, invite, request};
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Mode};

const ASSERTED: &str = "P-Asserted-Identity: <sip:boss@example.com>\r\n\
     p-asserted-identity: <tel:+15550100>\r\n";
const PREFERRED: &str = "P-Preferred-Identity: <sip:alice@example.com>\r\n";
const PRIVACY: &str = "Privacy: user; ID ;critical\r\n";

const ASSERTIONS: [&str; 2] = ["<sip:boss@example.com>", "<tel:+15550100>"];

/// Returns proxies with and without transactions.
fn proxies() -> [Script; 2] {
    [Script::new(), Script::stateful()]
}

fn believing() -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.listeners = vec![Listener {
            trust_identity: vec!["198.51.100.0/24".parse().unwrap()],
            ..Listener::new(address(PROXY))
        }];
    })
}

fn call(s: &mut Script, more: &str) -> crate::script::Sent {
    s.send(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "c1", 1, more)).pop().unwrap()
}

/// Returns a response with further header lines.
fn with(answer: &str, more: &str) -> String {
    answer.replacen("From:", &format!("{more}From:"), 1)
}

/// §5: "If the proxy received the message from an element that it does not trust and there is a
/// P-Asserted-Identity header present which contains a SIP or SIPS URI, the proxy MUST replace that
/// SIP or SIPS URI with a single SIP or SIPS URI or remove this header field."
#[test]
fn identities_asserted_by_a_stranger_are_removed() {
    for mut s in proxies() {
        let more = format!("{ASSERTED}{PREFERRED}{PRIVACY}");
        let sent = call(&mut s, &more);
        assert_eq!(sent.to, address(BACKEND_A));
        assert!(sent.all("P-Asserted-Identity").is_empty(), "{}", sent.text);
        // The back end gets the hint for the element that authenticates the caller, and the
        // caller's own wish for privacy.
        assert_eq!(sent.all("P-Preferred-Identity"), ["<sip:alice@example.com>"]);
        assert_eq!(sent.all("Privacy"), ["user; ID ;critical"]);
    }
}

/// A request may have any number of assertions.
#[test]
fn many_assertions_are_removed_as_one_is() {
    for mut s in proxies() {
        let sent = call(&mut s, &"P-Asserted-Identity: <sip:boss@example.com>\r\n".repeat(60));
        assert!(sent.all("P-Asserted-Identity").is_empty());
    }
}

/// A regression: a bare CR was part of the value of a header here. PJSIP and Sofia-SIP end a line
/// there, so the back end read an assertion that nobody had checked.
#[test]
fn no_line_end_but_crlf_hides_an_assertion() {
    for mut s in proxies() {
        for (id, end) in [("c2", "\r"), ("c3", "\n"), ("c4", "\r\r\n")] {
            let more = format!("Subject: x{end}P-Asserted-Identity: <sip:boss@example.com>\r\n");
            let text = request("INVITE", "sip:bob@192.0.2.1", id, 1, &more);
            assert_eq!(s.status(CALLER, &text), 400, "{end:?}");
        }
        let forwarded = call(&mut s, "");
        assert_eq!(forwarded.to, address(BACKEND_A));
        for lines in ["Subject: x\rP-Asserted-Identity: <sip:b@a>\r\n", "Subject: x\n"] {
            let response = with(&forwarded.answer("200 OK"), lines);
            assert!(s.send(BACKEND_A, &response).is_empty(), "{lines:?}");
        }
        assert_eq!(s.send(BACKEND_A, &forwarded.answer("200 OK")).len(), 1);
    }
}

/// Copies of a request, to the same back end or to another, equal the first request that was
/// forwarded.
#[test]
fn retransmissions_and_failovers_contain_no_removed_identity() {
    let mut s = Script::stateful();
    let first = call(&mut s, ASSERTED);
    s.pass(std::time::Duration::from_millis(500));
    assert_eq!(s.sent(), [first]);
    s.pass(std::time::Duration::from_secs(4));
    let sent = s.sent();
    assert!(sent.len() > 3, "another one is tried");
    assert!(sent.iter().all(|sent| sent.all("P-Asserted-Identity").is_empty()));
}

/// §5: "If the proxy receives a message (request or response) from a node that it trusts, it can
/// use the information in the P-Asserted-Identity header field, if any, as if it had authenticated
/// the user itself."
#[test]
fn identities_asserted_by_a_trusted_source_are_kept() {
    let mut s = believing();
    let sent = call(&mut s, &format!("{ASSERTED}{PRIVACY}"));
    assert_eq!(sent.all("P-Asserted-Identity"), ASSERTIONS);
    // The source receives identities too. But it may not send requests to any address.
    let answer = with(&sent.answer("200 OK"), &format!("{ASSERTED}{PRIVACY}"));
    assert_eq!(s.one(BACKEND_A, &answer).all("P-Asserted-Identity"), ASSERTIONS);
    let relayed = request("INVITE", "sip:bob@203.0.113.9", "c2", 1, "");
    assert_eq!(s.status(CALLER, &relayed), 403);
}

/// §7 about the value `id`: "If this token is present, proxies MUST remove all the
/// P-Asserted-Identity header fields before forwarding messages to elements that are not trusted.
/// If the Privacy header field value is set to "none" then the proxy MUST NOT remove the
/// P-Asserted-Identity header fields." Without Privacy: "It is RECOMMENDED that the
/// P-Asserted-Identity header fields SHOULD NOT be removed unless local privacy policies prevent
/// it".
#[test]
fn identities_of_callers_who_want_privacy_are_not_sent_to_strangers() {
    for mut s in proxies() {
        let invite = invite("c1").replace("sip:bob@192.0.2.1", "sip:carol@203.0.113.9");
        let invite = invite.replace("198.51.100.7:5060", BACKEND_A);
        let of = |call: &str, more: &str| with(&invite.replace("c1", call), more);
        let mut out = |text: &str| s.send(BACKEND_A, text).pop().unwrap();
        let open = out(&of("c1", ASSERTED));
        assert_eq!(open.to, address("203.0.113.9:5060"));
        assert_eq!(open.all("P-Asserted-Identity"), ASSERTIONS);
        let none = out(&of("c2", &format!("{ASSERTED}Privacy: none\r\n")));
        assert_eq!(none.all("P-Asserted-Identity"), ASSERTIONS);
        let hidden = out(&of("c3", &format!("{ASSERTED}{PRIVACY}{PREFERRED}")));
        assert!(hidden.all("P-Asserted-Identity").is_empty());
        assert_eq!(hidden.all("Privacy"), ["user; ID ;critical"]);
        // §6: "The proxy MUST remove the user-provided P-Preferred-Identity header from any message
        // it forwards."
        assert!(hidden.all("P-Preferred-Identity").is_empty());
    }
}

/// Responses are treated in the same way, in both directions.
#[test]
fn responses_are_treated_alike() {
    for mut s in proxies() {
        let sent = call(&mut s, "");
        let ringing = with(&sent.answer("180 Ringing"), ASSERTED);
        assert_eq!(s.one(BACKEND_A, &ringing).all("P-Asserted-Identity"), ASSERTIONS);
        let hidden = with(&sent.answer("183 Progress"), &format!("{ASSERTED}{PRIVACY}"));
        assert!(s.one(BACKEND_A, &hidden).all("P-Asserted-Identity").is_empty());

        let outward = invite("c2").replace("sip:bob@192.0.2.1", "sip:carol@203.0.113.9");
        let outward = outward.replace("198.51.100.7:5060", BACKEND_A);
        let sent = s.send(BACKEND_A, &outward).pop().unwrap();
        let claimed = with(&sent.answer("180 Ringing"), &format!("{ASSERTED}P-Odd: kept\r\n"));
        let passed = s.one("203.0.113.9:5060", &claimed);
        assert_eq!(passed.to, address(BACKEND_A));
        assert!(passed.all("P-Asserted-Identity").is_empty(), "{}", passed.text);
        assert_eq!(passed.all("P-Odd"), ["kept"]);
    }
}

/// The best response of a fork is kept until it is sent.
#[test]
fn a_response_that_waits_is_filtered_as_well() {
    let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = Mode::Transaction);
    let sent = call(&mut s, "");
    let busy = with(&sent.answer("486 Busy Here"), &format!("{ASSERTED}{PRIVACY}"));
    let up = s.send(BACKEND_A, &busy);
    let up = up.iter().find(|sent| sent.to == address(CALLER)).unwrap();
    assert_eq!(up.start(), "SIP/2.0 486 Busy Here");
    assert!(up.all("P-Asserted-Identity").is_empty());
}
