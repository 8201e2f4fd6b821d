//! RFC 5393: loops are distinguished from spirals, and forks are limited. RFC 3261 §16.6: the order
//! of a fork.

mod script;

use script::{BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, invite, starts};
use tidegate_proxy::{Rule, RuleTarget, Senders};

const BY_Q: [(&str, u16); 3] = [(BACKEND_A, 200), (BACKEND_B, 1000), (BACKEND_C, 1000)];

/// Returns a caller's request with another header line.
fn with(text: &str, line: &str) -> String {
    text.replacen("From:", &format!("{line}\r\nFrom:"), 1)
}

/// RFC 3261 §16.6: "A common ordering mechanism is to use the qvalue parameter of targets obtained
/// from Contact header fields (see Section 20.10). Targets are processed from highest qvalue to
/// lowest. Targets with equal qvalues may be processed in parallel."
#[test]
fn a_fork_goes_by_q() {
    let mut s = Script::forking(&BY_Q);
    let sent = s.send(CALLER, &invite("c1"));
    let invited = "INVITE sip:bob@192.0.2.1 SIP/2.0";
    assert_eq!(starts(&sent)[1..], [(BACKEND_B, invited), (BACKEND_C, invited)]);
    assert_ne!(sent[1].branch(), sent[2].branch());
    assert_eq!(starts(&s.send(BACKEND_B, &sent[1].answer("486 Busy Here"))).len(), 1);
    let next = s.send(BACKEND_C, &sent[2].answer("480 Temporarily Unavailable"));
    assert_eq!(starts(&next)[1], (BACKEND_A, invited));
    assert_eq!(s.one(BACKEND_A, &next[1].answer("200 OK")).to.to_string(), CALLER);
    // The dialog and the call belong to the back end that has answered.
    assert!(next[1].header("Record-Route").contains("192.0.2.1:5060;lr"));
    assert_eq!(s.held(), [1, 0, 0]);
}

/// §5.3.3: "If a SIP proxy receives a request with no Max-Breadth header field value, it MUST add
/// one, with a value that is RECOMMENDED to be 60." "SIP proxies MUST NOT allow the Outgoing
/// Max-Breadth to exceed the Incoming Max-Breadth in a given response context."
#[test]
fn breadth_is_shared_out() {
    let breadths = |sent: &[Sent]| -> Vec<String> {
        sent[1..].iter().map(|sent| sent.header("Max-Breadth").to_owned()).collect()
    };
    let mut s = Script::forking(&BY_Q);
    assert_eq!(breadths(&s.send(CALLER, &invite("c1"))), ["30", "30"]);
    let three = with(&invite("c2"), "Max-Breadth: 3");
    assert_eq!(breadths(&s.send(CALLER, &three)), ["2", "1"]);
    // "If this maximum is exceeded in a received request, the proxy MUST overwrite it".
    let mut single = Script::stateful();
    let many = with(&invite("c3"), "Max-Breadth: 4000000000");
    assert_eq!(breadths(&single.send(CALLER, &many)), ["60"]);
    let one = with(&invite("c4"), "Max-Breadth: 1");
    assert_eq!(breadths(&single.send(CALLER, &one)), ["1"]);
}

/// §5.3.3: "that proxy MUST return a 440 (Max-Breadth Exceeded) response."
#[test]
fn too_little_breadth_is_a_440() {
    let mut s = Script::forking(&BY_Q);
    assert_eq!(s.status(CALLER, &with(&invite("c1"), "Max-Breadth: 1")), 440);
    assert_eq!(s.status(CALLER, &with(&invite("c2"), "Max-Breadth: 0")), 440);
    assert_eq!(s.status(CALLER, &with(&invite("c3"), "Max-Breadth: many")), 400);
    assert_eq!(s.live(), (0, 0));
}

/// Makes a proxy whose back ends may send calls back into the pool.
fn looping() -> Script {
    Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.pools[0].mode = tidegate_proxy::Mode::Transaction;
        settings.rules = [Senders::Any, Senders::Pool]
            .map(|from| Rule {
                from,
                methods: Vec::new(),
                domains: Vec::new(),
                to: RuleTarget::Pool(0),
            })
            .into();
    })
}

/// Returns `sent` as an element forwards it that has received it: one more Via, one hop less.
fn onward(sent: &Sent, by: &str) -> String {
    let branch = format!("z9hG4bK-{}", &sent.branch()[20..]);
    let via = format!("Via: SIP/2.0/UDP {by};branch={branch}\r\nVia: ");
    sent.text.replacen("Via: ", &via, 1)
}

/// §4.2.2: "If these values are equal, the request has looped and the proxy MUST reject the
/// request with a 482 (Loop Detected) response. If the values differ, the request is spiraling and
/// processing continues to the next step."
#[test]
fn a_loop_is_refused_and_a_spiral_is_not() {
    let mut s = looping();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    // A back end sends it back: its routing differs from that of the stranger's request.
    let second = s.send(BACKEND_A, &onward(&first, BACKEND_A)).remove(1);
    assert_eq!((second.to.to_string().as_str(), second.all("Via").len()), (BACKEND_B, 4));
    // The other back end sends it back too, then the first again: nothing has changed since.
    let third = s.send(BACKEND_B, &onward(&second, BACKEND_B)).remove(1);
    assert_eq!(third.to.to_string(), BACKEND_A);
    assert_eq!(s.status(BACKEND_A, &onward(&third, BACKEND_A)), 482);
    // With another Request-URI it is no loop.
    let moved = onward(&third, BACKEND_A).replacen("sip:bob@", "sip:carol@", 1);
    assert_eq!(starts(&s.send(BACKEND_A, &moved))[0], ("10.0.0.1:5070", "SIP/2.0 100 Trying"));
}

/// §4.1: "A SIP proxy forwarding a request to only one location MAY perform loop detection but is
/// not required to." Without transactions a loop ends after eight passes, not only by Max-Forwards.
/// By RFC 3261 §16.11 the CANCEL and the ACK have the branch of their INVITE, so the branch has no
/// room for information from the lower Vias.
#[test]
fn a_loop_without_transactions_ends_too() {
    let mut s = Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.rules = [Senders::Any, Senders::Pool]
            .map(|from| Rule {
                from,
                methods: Vec::new(),
                domains: Vec::new(),
                to: RuleTarget::Pool(0),
            })
            .into();
    });
    let mut sent = s.one(CALLER, &invite("c1"));
    for turn in 1.. {
        assert!(turn <= 8, "it goes on and on");
        let at = sent.to.to_string();
        // Each hop has another branch.
        let text = onward(&sent, &at).replacen("z9hG4bK-", &format!("z9hG4bK-{turn}-"), 1);
        sent = s.one(&at, &text);
        if sent.start().starts_with("SIP/2.0 482") {
            assert_eq!(turn, 8);
            break;
        }
    }
    // Vias of other elements, or with our forged address, do not count as passes.
    let more = "Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKforged\r\n".repeat(20);
    let text = invite("c2").replacen("From:", &format!("{more}From:"), 1);
    assert!(s.one(CALLER, &text).start().starts_with("INVITE"));
}
