//! RFC 7415: the rate that a server allows applies to all requests of a client.

use std::time::Duration;

use crate::rfc7339_client::{OFFER, calls, obeying, sent, telling, value};
use crate::rfc7339_server::{PEER, admitting, last_reply, offering, params};
use crate::script::*;
use tidegate_proxy::{DropReason, Mode};

/// RFC 7415 §3.5.1: "Note that when the "oc" parameter is 0 with a non-zero "oc-validity", then the client
/// should reject 100% of SIP requests destined to the overload server." The long-term rate stays below
/// the value.
#[test]
fn a_rate_is_not_exceeded() {
    let mut script = obeying(Mode::Stateless);
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        script.send(&call.to.to_string(), &telling(&call, "180 Ringing", &value("rate", 10, 1)));
    }
    let mut all = 0;
    for tenth in 0..100 {
        script.pass(Duration::from_millis(100));
        all += sent(&calls(&mut script, &format!("b{tenth}-"), 10));
    }
    // Each of the two back ends gets 10 requests a second for 10 s, and a burst.
    assert!((190..=212).contains(&all), "{all}");
}

/// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire stream of
/// SIP requests, even though throttling may only affect a particular subset of the requests". With
/// transactions, the proxy itself acknowledges the response to a call that fails. Without them it forwards
/// the ACK of the caller.
#[test]
fn the_acks_of_failed_calls_count_in_the_rate() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut script = obeying(mode);
        for call in calls(&mut script, "a", 2).into_iter().flatten() {
            script
                .send(&call.to.to_string(), &telling(&call, "180 Ringing", &value("rate", 10, 1)));
        }
        let mut all = 0;
        for tenth in 0..100 {
            script.pass(Duration::from_millis(100));
            let name = format!("b{tenth}-");
            for (index, call) in calls(&mut script, &name, 10).into_iter().enumerate() {
                let Some(call) = call else { continue };
                let busy = telling(&call, "486 Busy Here", OFFER);
                let mut sent = script.send(&call.to.to_string(), &busy);
                let ack = format!("{name}{index}");
                let ack = request("ACK", "sip:bob@192.0.2.1", &ack, 1, "Totag\r\n");
                sent.extend(script.send(CALLER, &ack));
                all += 1 + sent.iter().filter(|sent| sent.start().starts_with("ACK")).count();
            }
        }
        // Each of the two back ends gets 10 requests a second for 10 s, and a burst.
        assert!((180..=225).contains(&all), "{mode:?}: {all}");
    }
}

/// The server must count the same requests as the client. If it did not, an obedient client would
/// seem to send too much, or would hold back too many calls.
#[test]
fn the_acks_of_our_503s_count_in_the_rate_that_a_peer_is_told() {
    let told = |acknowledges: bool| {
        let mut script = admitting(0.5);
        // The peer does not obey. After some seconds its calls are rejected.
        for call in 0..750 {
            script.pass(Duration::from_millis(20));
            let call = format!("a{call}");
            let sent = script.send(PEER, &offering(&invite(&call)));
            // The peer gets a value in each response.
            for call in sent.iter().filter(|sent| sent.start().starts_with("INVITE")) {
                script.send(&call.to.to_string(), &call.answer("180 Ringing"));
            }
            let rejection = sent.iter().find(|sent| sent.start().starts_with("SIP/2.0 503"));
            if let Some(rejection) = rejection.filter(|_| acknowledges) {
                let (_, tag) = rejection.header("To").split_once(";tag=").unwrap();
                let ack = request("ACK", "sip:bob@192.0.2.1", &call, 1, "Totag\r\n");
                script.send(PEER, &offering(&ack.replace("tag=callee", &format!("tag={tag}"))));
            }
        }
        let own_acks = script.counters.dropped(DropReason::OwnAck).get();
        assert_eq!(own_acks > 100, acknowledges, "{own_acks}");
        let options = request("OPTIONS", "sip:192.0.2.1", "o", 1, "");
        let params = params(&last_reply(script.send(PEER, &offering(&options))));
        let value = params.strip_prefix("oc=").and_then(|rest| rest.split(';').next());
        value.and_then(|value| value.parse::<f64>().ok()).expect("a rate")
    };
    let (without, with) = (told(false), told(true));
    // About every second call is rejected.
    assert!((1.3..1.8).contains(&(with / without)), "{without} {with}");
}
