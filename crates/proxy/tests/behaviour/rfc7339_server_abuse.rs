//! RFC 7339, the server: tests that senders without feedback cannot take the shares of peers.

use std::time::Duration;

use crate::fixed::*;
use crate::rfc7339_server::*;
use crate::script::*;
use tidegate_balance::{Policy, Pool};
use tidegate_control::feedback::Standing;
use tidegate_control::{Per, Reason};
use tidegate_proxy::{DropReason, Excess, PoolSettings, SourceLimit};

/// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification don't
/// receive an unfair advantage over those that do."
#[test]
fn the_addresses_of_strangers_do_not_have_a_share_each() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", 0.4)]);
        trusting(settings);
    });
    // 50 calls a second of the peer, and 200 of strangers.
    for call in 0..200 {
        script.pass(Duration::from_millis(20));
        script.send(PEER, &offering(&invite(&format!("p{call}"))));
        for number in 0..4 {
            let from = format!("203.0.113.{}", (4 * call + number) % 20);
            let text = invite(&format!("s{call}-{number}")).replace("198.51.100.7", &from);
            script.send(&format!("{from}:5060"), &text);
        }
    }
    script.pass(Duration::from_millis(100));
    let peers = script.counters.upstream.get();
    let granted: Vec<_> = peers.iter().map(|view| view.peer.granted_cps).collect();
    assert!(matches!(granted[..], [cps] if (45.0..200.0).contains(&cps)), "{granted:?}");
}

/// Makes a proxy under the law with these parameters, in which each stranger may make one call a
/// second. For 3 s, a peer makes 150 calls a second, and one stranger 500.
fn flooded_by_a_stranger(given: &[(&str, f64)], then: Excess) -> Script {
    let from = "203.0.113.0/24".parse().unwrap();
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(given);
        settings.overload.sources.limits =
            vec![SourceLimit { from, rate_cps: 1.0, burst: 1, per: Per::Source, then }];
        trusting(settings);
    });
    for period in 0..150 {
        script.pass(Duration::from_millis(20));
        for call in 0..3 {
            script.send(PEER, &offering(&invite(&format!("p{period}-{call}"))));
        }
        for call in 0..10 {
            let text = invite(&format!("s{period}-{call}"));
            script.send("203.0.113.66:5060", &text.replace("198.51.100.7", "203.0.113.66"));
        }
    }
    script.pass(Duration::from_millis(100));
    script
}

const BAN: Excess = Excess::Ban(Duration::from_secs(60));

#[test]
fn calls_above_the_limit_of_their_source_take_nothing_from_a_peer() {
    for then in [Excess::Reject, Excess::Drop, BAN] {
        let script = flooded_by_a_stranger(&[("cps", 300.0)], then);
        let peers = script.counters.upstream.get();
        let granted: Vec<_> = peers.iter().map(|view| view.peer.granted_cps).collect();
        assert!(
            matches!(granted[..], [cps] if cps >= 300.0),
            "all that the law admits: {granted:?}"
        );
        assert_eq!(script.counters.rejected(Reason::PeerShare).get(), 0, "{then:?}");
    }
}

/// A limit of a source applies at any load.
#[test]
fn a_source_above_its_limit_is_banned_in_an_overload_too() {
    let script = flooded_by_a_stranger(&[("share", 0.4)], BAN);
    let peers = script.counters.upstream.get();
    let granted: Vec<_> = peers.iter().map(|view| view.peer.granted_cps).collect();
    assert!(matches!(granted[..], [cps] if cps.is_finite()), "an overload: {granted:?}");
    assert!(script.counters.dropped(DropReason::Banned).get() > 1000);
}

/// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
/// stream of SIP requests, even though throttling may only affect a particular subset of the
/// requests". So the rate includes the BYEs of a peer, but a peer can invent any number of them.
/// The messages are so few that the proxy does not verify each of them on arrival.
#[test]
fn only_the_byes_of_calls_raise_the_rate_of_a_peer() {
    for (exists, expected) in [(false, 15..=35), (true, 60..=90)] {
        // The overload begins after the messages that set up the calls.
        let after = if exists { 430.0 } else { 30.0 };
        let mut script = Script::with(Policy::Rr, |settings| {
            settings.overload.gate.law = law(&[("share", 0.5), ("after", after)]);
            trusting(settings);
        });
        for number in 0..if exists { 200 } else { 0 } {
            let forwarded = script.one(PEER, &offering(&invite(&format!("known{number}"))));
            script.one(&forwarded.to.to_string(), &forwarded.answer("200 OK"));
        }
        // 50 calls and 50 BYEs a second.
        for number in 0..200 {
            script.pass(Duration::from_millis(20));
            script.send(PEER, &offering(&invite(&format!("a{number}"))));
            let call = format!("known{number}");
            let bye = request("BYE", "sip:bob@192.0.2.1", &call, 2, "Totag\r\n");
            script.send(PEER, &offering(&bye));
        }
        let rate = told_rate(&mut script);
        assert!(expected.contains(&rate), "{exists}: {rate}");
    }
}

/// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
/// stream of SIP requests, even though throttling may only affect a particular subset of the
/// requests". A stranger can send requests with our address as their source to a peer, and the peer
/// sends us the responses. The responses are so many that the proxy verifies each message on
/// arrival.
#[test]
fn responses_that_are_not_ours_do_not_make_a_peer_disobey() {
    const OTHER: &str = "198.51.100.8:5060";
    let mut script = admitting(0.4);
    for number in 0..500 {
        script.pass(Duration::from_millis(10));
        let response = format!(
            "SIP/2.0 404 Not Found\r\n\
             Via: SIP/2.0/UDP 192.0.2.1:5060;rport=5060;branch=z9hG4bK-s{number}\r\n\
             From: <sip:s@example.com>;tag=s\r\nTo: <sip:bob@example.com>;tag=b\r\n\
             Call-ID: s{number}\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
        );
        script.send(PEER, &response);
        // Another peer causes the overload.
        let call = offering(&invite(&format!("o{number}")));
        script.send(OTHER, &call.replace("198.51.100.7", "198.51.100.8"));
        if number % 10 == 0 {
            let sent = script.send(PEER, &offering(&invite(&format!("p{number}"))));
            // The peer gets a value in each response.
            for call in sent.iter().filter(|sent| sent.start().starts_with("INVITE")) {
                script.send(&call.to.to_string(), &call.answer("180 Ringing"));
            }
        }
    }
    assert_eq!(script.counters.strays.get(), 500);
    let peers = script.counters.upstream.get();
    let view = peers.iter().find(|view| view.address == address(PEER)).expect("the peer");
    assert!(view.peer.value >= 20, "an overload, and more than 10 calls a second: {view:?}");
    assert_eq!(view.peer.standing, Standing::Obeys);
}

/// RFC 7339 §5.2: "To limit the knowledge that the server supports overload control, a server can adopt a
/// policy of inserting overload control parameters in only those requests received over trusted links
/// such that these parameters are only visible to trusted neighbors."
#[test]
fn a_back_end_that_a_reload_removes_gets_no_values() {
    let mut script = Script::new();
    let options = |call: &str| {
        let text = request("OPTIONS", "sip:192.0.2.1", call, 1, "");
        text.replace("198.51.100.7:5060", BACKEND_A)
    };
    let reply = script.one(BACKEND_A, &offering(&options("a")));
    assert!(params(&reply).starts_with("oc=0;"), "{}", reply.text);
    let left = Pool::new("left", &[("b", address(BACKEND_B), 1)]);
    let pools = vec![PoolSettings::new(left, Policy::Rr).stateless()];
    assert!(script.proxy.reload(script.now, pools, Vec::new()));
    for text in [options("c"), offering(&options("d"))] {
        let reply = script.one(BACKEND_A, &text);
        assert!(!reply.text.contains(";oc="), "{}", reply.text);
    }
}
