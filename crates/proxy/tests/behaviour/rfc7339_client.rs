//! RFC 7339, the client: tests that the proxy offers overload control to back ends and obeys them.

use std::time::Duration;

use crate::limited::{rate, set};
use crate::script::*;
use tidegate_balance::{Policy, State};
use tidegate_control::Reason;
use tidegate_proxy::{DropReason, Mode, Obedience, Probe};

pub const OFFER: &str = ";oc;oc-algo=\"loss,rate\"";

pub fn obeying(mode: Mode) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = mode;
        settings.pools[0].obedience = Obedience::Always;
    })
}

/// Returns a response to a request, with the parameters `params` instead of the offer in our Via.
pub fn telling(request: &Sent, status: &str, params: &str) -> String {
    let answer = request.answer(status);
    assert!(answer.contains(OFFER), "{answer}");
    answer.replacen(OFFER, params, 1)
}

/// Returns the parameters with a value of `algorithm` that holds for a minute.
pub fn value(algorithm: &str, value: u32, seconds: u32) -> String {
    format!(";oc={value};oc-algo=\"{algorithm}\";oc-validity=60000;oc-seq={seconds}.5")
}

/// Makes `count` calls. Returns the INVITE that a back end gets for each call, or `None` if it gets
/// none.
pub fn calls(script: &mut Script, name: &str, count: usize) -> Vec<Option<Sent>> {
    let sent = (0..count).map(|i| {
        let sent = script.send(CALLER, &invite(&format!("{name}{i}")));
        let to_backend = |sent: &Sent| sent.start().starts_with("INVITE");
        assert!(!sent.is_empty());
        sent.into_iter().find(to_backend)
    });
    sent.collect()
}

/// Returns the last probe to each back end. The probes before may be copies of each other.
fn last_two(mut probes: Vec<Sent>) -> Vec<Sent> {
    probes.reverse();
    let to = |to| probes.iter().find(|probe| probe.to == address(to)).cloned();
    [BACKEND_A, BACKEND_B].into_iter().map(|at| to(at).expect("it is probed")).collect()
}

pub fn sent(calls: &[Option<Sent>]) -> usize {
    calls.iter().flatten().count()
}

/// RFC 7339 §4.1: "A SIP client MUST add an "oc" parameter to the topmost Via header it inserts into every
/// SIP request." "There MUST NOT be a value associated with the parameter (the value will be added by the
/// server)."
///
/// RFC 7339 §4.2: "A SIP client MUST add an "oc-algo" parameter to the topmost Via header it inserts into
/// every SIP request, with a default value of "loss"." "A SIP client MUST support the loss-based overload
/// control scheme and MUST insert at least the token "loss" as one of the "oc-algo" parameter values."
/// "Furthermore, the client MUST continue to include all the supported algorithms in subsequent requests;
/// the server MUST respond with the agreed-to algorithm until the algorithm is changed by the server."
///
/// RFC 7339 §4.3: "This parameter MAY be inserted by the SIP server in a response; it MUST NOT be inserted
/// by the SIP client in a request."
///
/// RFC 7339 §4.4: "This parameter MUST be inserted by the SIP server in a response; it MUST NOT be inserted
/// by the SIP client in a request."
///
/// RFC 7339 §5.1: "If a client determines that this is the first contact with a server, the client MUST insert
/// the "oc" parameter without any value and MUST insert the "oc-algo" parameter with a list of algorithms it
/// supports." "This list MUST include "loss" and MAY include other algorithm names approved by IANA and
/// described in corresponding documents."
///
/// RFC 7339 §5.2: "The "oc-validity" and "oc-seq" Via header parameters are only defined in SIP responses
/// and MUST NOT be used in SIP requests."
///
/// RFC 7415 §3.3: "Support of rate-based control MUST be indicated by clients including the token "rate" in
/// the "oc-algo" list."
#[test]
fn every_request_to_a_back_end_offers_all_algorithms_in_our_via_alone() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = obeying(mode);
        let invite = calls(&mut script, "a", 1).remove(0).unwrap();
        let told = telling(&invite, "200 OK", &value("loss", 0, 1));
        script.send(&invite.to.to_string(), &told);
        let within = |method, cseq| request(method, "sip:bob@192.0.2.1", "a0", cseq, "Totag\r\n");
        let ack = script.one(CALLER, &within("ACK", 1));
        let bye = script.send(CALLER, &within("BYE", 2)).remove(0);
        for sent in [&invite, &ack, &bye] {
            let [top, below] = sent.all("Via")[..] else { panic!("{}", sent.text) };
            assert!(top.ends_with(OFFER), "{mode:?} {top}");
            assert!(!below.contains(";oc"), "{below}");
            assert!(!sent.text.contains("oc-validity") && !sent.text.contains("oc-seq"));
        }
    }
}

/// RFC 3261 §17.1.1.3: "The ACK MUST contain a single Via header field, and this MUST be equal to the top
/// Via header field of the original request."
#[test]
fn a_cancel_and_an_ack_of_ours_have_the_via_of_their_invite() {
    let mut script = obeying(Mode::Transaction);
    let sent = script.send(CALLER, &invite("a"));
    let invite = sent.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap().clone();
    let at = invite.to.to_string();
    script.send(&at, &telling(&invite, "180 Ringing", &value("loss", 0, 1)));
    let cancelled = script.send(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "a", 1, ""));
    let cancel = cancelled.iter().find(|sent| sent.start().starts_with("CANCEL")).unwrap();
    assert_eq!(cancel.all("Via"), [invite.all("Via")[0]]);
    let answered = script.send(&at, &telling(&invite, "487 Request Terminated", OFFER));
    let ack = answered.iter().find(|sent| sent.start().starts_with("ACK")).unwrap();
    assert_eq!(ack.all("Via"), [invite.all("Via")[0]]);
}

/// RFC 7339 §5.6: "Therefore, forwarding the contents of the overload control parameters is generally NOT
/// RECOMMENDED and should only be performed if permitted by the configuration of SIP servers." "This means that
/// a SIP proxy SHOULD strip the overload control parameters inserted by the client before proxying the request
/// further downstream."
#[test]
fn the_offer_of_a_client_is_stripped_from_every_via() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = obeying(mode);
        let below = "Via: SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKfar;oc;oc-algo=\"loss\";x\r\n";
        let invite = request("INVITE", "sip:bob@192.0.2.1", "a", 1, below);
        let invite = invite.replacen("-INVITE\r\n", "-INVITE;oc;oc-algo=\"loss,rate,A\"\r\n", 1);
        let sent = script.send(CALLER, &invite);
        let sent = sent.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
        let [ours, client, far] = sent.all("Via")[..] else { panic!("{}", sent.text) };
        assert!(ours.ends_with(OFFER));
        assert_eq!(client, "SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bK-a-1-INVITE");
        assert_eq!(far, "SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKfar;x");
    }
}

/// RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq" parameters from
/// all Via headers of a response received, except for the topmost Via header."
#[test]
fn parameters_in_other_vias_are_not_forwarded() {
    for obedience in [Obedience::Always, Obedience::Never] {
        let mut script = Script::with(Policy::Rr, |settings| {
            settings.pools[0].obedience = obedience;
        });
        let invite = script.one(CALLER, &invite("a"));
        let forged = format!("-INVITE{}", value("loss", 100, 9));
        let response = invite.answer("180 Ringing").replacen("-INVITE", &forged, 1);
        let back = script.one(&invite.to.to_string(), &response);
        assert_eq!(back.all("Via"), ["SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bK-a-1-INVITE"]);
        assert_eq!(sent(&calls(&mut script, "b", 20)), 20);
    }
}

/// A called phone can change the Vias of its response. Tidegate cannot remove the parameters of a
/// Via that violates the grammar. If it forwarded this Via, an upstream Tidegate would obey the
/// phone.
///
/// RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq" parameters from all Via
/// headers of a response received, except for the topmost Via header."
///
/// RFC 7339 §11: "If this feedback is added to the second Via header (or all Via headers), it will
/// reach the next upstream proxy."
#[test]
fn a_response_with_parameters_that_cannot_be_removed_is_dropped() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let invite = calls(&mut script, "a", 1).remove(0).unwrap();
        let at = invite.to.to_string();
        let forged = value("loss", 100, 9);
        let vias = [
            format!("-INVITE;x=<y>{forged}"),
            format!("-INVITE{forged};x=\"y\"<z>"),
            format!("-INVITE\r\nVia: SIP/2.0/UDP 203.0.113.9;x=<y>{forged}"),
            format!("-INVITE\r\nVia: SIP/2.0/UDP 203.0.113.9, ,x{forged}"),
        ];
        for (dropped, via) in (1..).zip(&vias) {
            let response = invite.answer("180 Ringing").replacen("-INVITE", via, 1);
            assert!(script.send(&at, &response).is_empty(), "{mode:?} {via}");
            assert_eq!(script.counters.dropped(DropReason::Malformed).get(), dropped);
        }
        let ringing = script.one(&at, &invite.answer("180 Ringing"));
        assert_eq!(ringing.start(), "SIP/2.0 180 Ringing");
    }
}

/// Feedback in our own Via is not obeyed if the Via violates the grammar: an element behind the
/// back end may have written it, because the back end could not remove it.
#[test]
fn feedback_in_a_via_that_violates_the_grammar_is_ignored() {
    let mut script = obeying(Mode::Stateless);
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        let params = format!(";x=<y>{}", value("loss", 100, 9));
        let back = script.one(&call.to.to_string(), &telling(&call, "180 Ringing", &params));
        assert_eq!(back.start(), "SIP/2.0 180 Ringing");
    }
    assert_eq!(sent(&calls(&mut script, "b", 20)), 20);
}

/// RFC 7339 §5.5: "A SIP client MUST honor overload control values it receives from downstream neighbors."
/// "The SIP client MUST NOT forward more requests to a SIP server than allowed by the current "oc" and
/// "oc-algo" parameter values from that particular downstream server."
///
/// RFC 7339 §4.1: "When a SIP client receives a response with the value in the "oc" parameter filled in, it
/// MUST reduce, as indicated by the "oc" and "oc-algo" parameters, the number of requests going
/// downstream to the SIP server from which it received the response (see Section 5.10 for pertinent
/// discussion on traffic reduction)."
#[test]
fn a_loss_holds_back_its_share_of_the_calls_of_that_server() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = obeying(mode);
        for call in calls(&mut script, "a", 2).into_iter().flatten() {
            let told = telling(&call, "180 Ringing", &value("loss", 50, 1));
            script.send(&call.to.to_string(), &told);
        }
        let sent = sent(&calls(&mut script, "b", 1000));
        // Soon nearly all requests are of the first category.
        assert!((450..=510).contains(&sent), "{mode:?} {sent}");
        let rejected = script.counters.rejected(Reason::Feedback).get();
        assert_eq!(rejected + sent as u64, 1000);
    }
}

/// A request that is held back takes nothing from the rate of the back end, and does not count as
/// assigned.
#[test]
fn a_request_that_is_held_back_does_not_use_up_the_rate_of_the_back_end() {
    let mut script = obeying(Mode::Stateless);
    set(&script.backends, &[rate(60.0), rate(60.0)]);
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        let told = telling(&call, "486 Busy Here", &value("loss", 50, 1));
        script.send(&call.to.to_string(), &told);
    }
    // Each back end gets half of 100 calls a second, and its rate allows 60.
    let mut sent = 0;
    for call in 0..400 {
        script.pass(Duration::from_millis(5));
        for call in calls(&mut script, &format!("b{call}-"), 1).into_iter().flatten() {
            sent += 1;
            script.send(&call.to.to_string(), &telling(&call, "486 Busy Here", OFFER));
        }
    }
    assert!((170..=205).contains(&sent), "{sent} of 400");
    let assigned: u64 = script.backends.backends().iter().map(|backend| backend.assigned()).sum();
    assert_eq!(assigned, sent + 2);
}

/// RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the
/// current "oc" and "oc-algo" parameter values from that particular downstream server." A request
/// with the Call-ID of an earlier call, such as an INVITE with credentials, is held back like any
/// other.
#[test]
fn a_request_with_the_call_id_of_a_call_that_is_over_is_not_asked_about_twice() {
    for percent in [50, 80] {
        let mut script = obeying(Mode::Stateless);
        let calls = calls(&mut script, "a", 1000);
        for (number, call) in (0..).zip(calls.into_iter().flatten()) {
            let params = if number < 998 { OFFER.to_owned() } else { value("loss", percent, 1) };
            script.send(&call.to.to_string(), &telling(&call, "486 Busy Here", &params));
        }
        let sent = (0..1000).filter(|call| {
            let again = request("INVITE", "sip:bob@192.0.2.1", &format!("a{call}"), 2, "");
            let sent = script.send(CALLER, &again);
            sent.iter().any(|sent| sent.start().starts_with("INVITE"))
        });
        let (sent, allowed) = (sent.count(), 1000 - 10 * percent as usize);
        assert!((allowed - 50..=allowed + 10).contains(&sent), "{percent}: {sent}");
    }
}

/// RFC 7339 §5.10: "In many cases, however, it will need to reject these requests with a "503 (Service
/// Unavailable)" response without the Retry-After header."
#[test]
fn a_restricted_request_gets_a_503_without_retry_after_and_leaves_no_state() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.pools[0].obedience = Obedience::Always;
        settings.overload.retry_after = Some((5, 5));
    });
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        script.send(&call.to.to_string(), &telling(&call, "486 Busy Here", &value("loss", 100, 1)));
        script.send(CALLER, &request("ACK", "sip:bob@192.0.2.1", "a0", 1, "Totag\r\n"));
    }
    let before = script.counters.calls.get();
    let reply = script.one(CALLER, &invite("b"));
    assert_eq!(reply.start(), "SIP/2.0 503 Service Unavailable");
    assert!(reply.all("Retry-After").is_empty());
    assert_eq!(
        reply.header("Warning"),
        "399 tidegate \"every back end has asked for fewer requests\""
    );
    assert_eq!(script.counters.calls.get(), before);
    assert_eq!(script.held(), [0, 0]);
}

/// RFC 7339 §5.10: "It needs to ensure, however, that this destination is not in overload and is capable of
/// processing the extra load."
#[test]
fn the_excess_goes_elsewhere_only_if_that_server_is_known_to_have_room() {
    // The second back end has not said that it has room.
    let mut script = obeying(Mode::Stateless);
    let first = calls(&mut script, "a", 1).remove(0).unwrap();
    script.send(&first.to.to_string(), &telling(&first, "180 Ringing", &value("loss", 100, 1)));
    let went = calls(&mut script, "b", 20);
    assert_eq!(sent(&went), 10, "only the calls whose turn is the second back end");
    assert!(went.iter().flatten().all(|call| call.to != first.to));
    // Now the second back end says that it has room.
    let other = went.into_iter().flatten().next().unwrap();
    let room = ";oc=0;oc-algo=\"loss\";oc-validity=0;oc-seq=1.1";
    script.send(&other.to.to_string(), &telling(&other, "180 Ringing", room));
    assert_eq!(sent(&calls(&mut script, "c", 20)), 20);
    // The second back end was overloaded when it gave its last value, which has expired.
    let half = ";oc=50;oc-algo=\"loss\";oc-validity=500;oc-seq=2.0";
    script.send(&other.to.to_string(), &telling(&other, "180 Ringing", half));
    script.pass(Duration::from_millis(600));
    let went = calls(&mut script, "d", 20);
    assert_eq!(sent(&went), 10, "only its own turns");
    assert!(went.iter().flatten().all(|call| call.to == other.to));
}

/// RFC 7339 §5.7: "A SIP client removes overload control if one of the following events occur:" an expired
/// validity, and "oc-validity=0".
///
/// RFC 7339 §5.4: "Stored overload control parameters MUST be reset to default values once the validity
/// period has expired (see Section 5.7 for the detailed steps on terminating overload control)."
#[test]
fn control_ends_when_it_expires_or_the_server_says_so() {
    let mut script = obeying(Mode::Stateless);
    let both = calls(&mut script, "a", 2);
    let tell = |script: &mut Script, params: &str| {
        for call in both.iter().flatten() {
            script.send(&call.to.to_string(), &telling(call, "180 Ringing", params));
        }
    };
    // RFC 7339 §4.3: no validity means 500 ms.
    tell(&mut script, ";oc=100;oc-algo=\"loss\";oc-seq=2.0");
    assert_eq!(sent(&calls(&mut script, "b", 4)), 0);
    script.pass(Duration::from_millis(499));
    assert_eq!(sent(&calls(&mut script, "c", 4)), 0);
    script.pass(Duration::from_millis(2));
    assert_eq!(sent(&calls(&mut script, "d", 4)), 4);
    tell(&mut script, &value("loss", 100, 3));
    assert_eq!(sent(&calls(&mut script, "e", 4)), 0);
    tell(&mut script, ";oc=77;oc-algo=\"loss\";oc-validity=0;oc-seq=2.9");
    assert_eq!(sent(&calls(&mut script, "f", 4)), 0, "this value is older");
    tell(&mut script, ";oc=77;oc-algo=\"loss\";oc-validity=0;oc-seq=4.0");
    assert_eq!(sent(&calls(&mut script, "g", 4)), 4);
}

/// RFC 7339 §5.9: "In the event of repeated timeouts or fatal transport errors, the SIP client MUST
/// stop sending requests to this server." A silent server sends no feedback, so its restriction
/// expires. The health of the back end stops the calls.
#[test]
fn a_restricted_back_end_that_falls_silent_gets_no_calls() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let pool = &mut settings.pools[0];
        (pool.mode, pool.obedience) = (Mode::Transaction, Obedience::Always);
        pool.failover_after = Duration::from_secs(1);
    });
    let first = calls(&mut script, "a", 1).remove(0).unwrap();
    let half = ";oc=50;oc-algo=\"loss\";oc-validity=500;oc-seq=2.0";
    script.send(&first.to.to_string(), &telling(&first, "486 Busy Here", half));
    script.pass(Duration::from_millis(600));
    let is_answered = |sent: &Sent| sent.to != first.to && sent.start().starts_with("INVITE");
    let both = calls(&mut script, "b", 2);
    assert_eq!(sent(&both), 2, "the restriction has expired");
    for call in both.iter().flatten().filter(|call| is_answered(call)) {
        script.send(&call.to.to_string(), &call.answer("200 OK"));
    }
    script.pass(Duration::from_secs(1));
    let moved = script.sent().into_iter().rfind(is_answered).expect("the silent call fails over");
    script.send(&moved.to.to_string(), &moved.answer("200 OK"));
    script.pass(Duration::from_secs(1));
    let index = usize::from(first.to != address(BACKEND_A));
    assert_eq!(script.backends.backends()[index].state(script.now).0, State::Down);
    let went = calls(&mut script, "c", 20);
    assert_eq!(sent(&went), 20);
    assert!(went.iter().flatten().all(is_answered));
}

/// RFC 7339 §4.3: "A SIP client MUST discard a non-zero value of the "oc-validity" parameter if the client
/// receives it in a response without the corresponding "oc" parameter being present as well."
#[test]
fn values_that_break_a_rule_are_ignored_and_their_response_is_not() {
    let mut script = obeying(Mode::Stateless);
    for (i, params) in [
        ";oc-algo=\"loss\";oc-validity=1000;oc-seq=9.0",
        ";oc=x;oc-algo=\"loss\";oc-validity=1000;oc-seq=9.0",
        ";oc=100;oc-algo=\"loss\";oc-validity=1000",
        ";oc=100;oc-algo=\"loss,rate\";oc-validity=1000;oc-seq=9.0",
        ";oc=100;oc-algo=\"A\";oc-validity=1000;oc-seq=9.0",
        ";oc=101;oc-algo=\"loss\";oc-validity=1000;oc-seq=9.0",
        OFFER,
    ]
    .into_iter()
    .enumerate()
    {
        for call in calls(&mut script, &format!("a{i}-"), 2).iter().flatten() {
            let back = script.one(&call.to.to_string(), &telling(call, "180 Ringing", params));
            assert_eq!(back.start(), "SIP/2.0 180 Ringing");
        }
        assert_eq!(sent(&calls(&mut script, &format!("b{i}-"), 4)), 4, "{params}");
    }
}

/// RFC 7339 §11: "If the attacker can make the recipient believe that the overload status was created by
/// its direct downstream neighbor (and not by the attacker further downstream), the recipient stops
/// sending traffic to the victim."
#[test]
fn a_back_end_is_obeyed_once_its_answer_to_a_probe_has_shown_that_it_gives_feedback() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let probe = Probe { interval: Duration::from_secs(1), jitter: 0.0, ..Probe::default() };
        settings.pools[0].health.probe = Some(probe);
    });
    // A party behind the back end has seen our Via, and adds parameters to it.
    let invite = script.one(CALLER, &invite("a"));
    assert!(!invite.text.contains(";oc"), "nothing is offered yet");
    let branch = invite.branch();
    let forged = invite.answer("180 Ringing");
    let forged = forged.replacen(branch, &format!("{branch}{}", value("loss", 100, 9)), 1);
    script.send(&invite.to.to_string(), &forged);
    assert_eq!(sent(&calls(&mut script, "b", 20)), 20);
    // Each back end is probed within the interval, and its response applies only to itself.
    script.pass(Duration::from_secs(1));
    for probe in &last_two(script.sent()) {
        assert!(probe.header("Via").ends_with(OFFER), "{}", probe.text);
        let told = telling(probe, "200 OK", ";oc=0;oc-algo=\"rate\";oc-validity=0;oc-seq=10.0");
        script.send(&probe.to.to_string(), &told);
    }
    let both = calls(&mut script, "c", 2);
    for call in both.iter().flatten() {
        assert!(call.header("Via").ends_with(OFFER));
        script.send(&call.to.to_string(), &telling(call, "180 Ringing", &value("rate", 0, 11)));
    }
    assert_eq!(sent(&calls(&mut script, "d", 20)), 0);
    // The answer to the probe has no value, so the back end gives no feedback any more.
    script.pass(Duration::from_secs(1));
    for probe in &last_two(script.sent()) {
        script.send(&probe.to.to_string(), &telling(probe, "200 OK", OFFER));
    }
    assert_eq!(sent(&calls(&mut script, "e", 20)), 20);
}

/// Paper 002 §6.1: "The feedforward information contains the sender measured value of the current
/// incoming load." A request that is held back belongs to this load too.
#[test]
fn only_a_server_that_asks_for_the_load_is_told_it() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = obeying(mode);
        let both = calls(&mut script, "a", 2);
        let [asks, not] = &both[..] else { panic!("{both:?}") };
        let (asks, not) = (asks.as_ref().unwrap(), not.as_ref().unwrap());
        assert!(asks.header("Via").ends_with(OFFER) && not.header("Via").ends_with(OFFER));
        for (call, more) in [(asks, ";oc-tgload"), (not, "")] {
            let params = value("loss", 100, 1) + more;
            let back = script.send(&call.to.to_string(), &telling(call, "180 Ringing", &params));
            assert!(back.iter().all(|sent| !sent.text.contains("oc-tgload")), "{back:?}");
        }
        // 20 calls a second arrive, half of them for each back end, and all are held back.
        for tenth in 0..60 {
            script.pass(Duration::from_millis(100));
            assert_eq!(sent(&calls(&mut script, &format!("b{tenth}-"), 2)), 0);
        }
        for (call, seq) in [(asks, 2), (not, 2)] {
            let params = value("loss", 0, seq) + if call.to == asks.to { ";oc-tgload" } else { "" };
            script.send(&call.to.to_string(), &telling(call, "180 Ringing", &params));
        }
        for call in calls(&mut script, "c", 2).into_iter().flatten() {
            let via = call.header("Via").to_owned();
            if call.to != asks.to {
                assert!(via.ends_with(OFFER), "{mode:?} {via}");
                continue;
            }
            let (_, load) = via.split_once(&format!("{OFFER};oc-tgload=")).expect(&via);
            let load: f64 = load.parse().unwrap();
            assert!((8.0..=22.0).contains(&load), "{mode:?} {load}");
            // The server no longer asks for the load.
            let told = call.answer("180 Ringing");
            let told =
                told.replacen(&format!("{OFFER};oc-tgload={load:.1}"), &value("loss", 0, 3), 1);
            script.send(&call.to.to_string(), &told);
        }
        let vias = calls(&mut script, "d", 2);
        assert!(vias.iter().flatten().all(|call| call.header("Via").ends_with(OFFER)));
    }
}

/// Only the server itself can restrict the requests that it gets.
#[test]
fn feedback_from_elsewhere_is_ignored() {
    let mut script = obeying(Mode::Transaction);
    let invites = script.send(CALLER, &invite("a"));
    let invite = invites.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap().clone();
    let told = telling(&invite, "180 Ringing", &value("loss", 100, 1));
    // The feedback comes from a stranger who knows the branch, or from the other back end.
    let other = if invite.to == address(BACKEND_A) { BACKEND_B } else { BACKEND_A };
    for from in ["203.0.113.66:5060", other] {
        script.send(from, &told);
        assert_eq!(sent(&calls(&mut script, from, 10)), 10, "{from}");
    }
    // The branch of the response is not ours.
    let forged = told.replacen(invite.branch(), "z9hG4bKforged", 1);
    script.send(&invite.to.to_string(), &forged);
    assert_eq!(sent(&calls(&mut script, "b", 10)), 10);
}

/// The requests to a pool that never obeys feedback offer no overload control and are not
/// restricted.
#[test]
fn a_pool_may_never_obey() {
    let mut script =
        Script::with(Policy::Rr, |settings| settings.pools[0].obedience = Obedience::Never);
    let call = script.one(CALLER, &invite("a"));
    assert!(!call.text.contains(";oc"));
    let branch = call.branch();
    let told = call.answer("180 Ringing");
    let told = told.replacen(branch, &format!("{branch}{}", value("rate", 0, 1)), 1);
    script.send(&call.to.to_string(), &told);
    assert_eq!(sent(&calls(&mut script, "b", 10)), 10);
}
