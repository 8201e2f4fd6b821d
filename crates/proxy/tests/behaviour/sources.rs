//! Tests of sources: priority, fair shares, limits and bans.

use std::time::Duration;

use crate::fixed::*;
use crate::rfc7339_server::{PEER, offering, trusting};
use crate::script::*;
use tidegate_control::{Ban, BanCause, BanList, Bucket, Per, Reason};
use tidegate_proxy::{
    Class, DropReason, Excess, Flood, HARM_CPS, Priority, ResourceValues, Settings, SourceLimit,
    source_of,
};
use tidegate_world::{Core, Load, Shedding};

/// A source whose priority is trusted.
const TRUSTED: &str = "198.51.100.8:5060";
const OTHER: &str = "198.51.100.9:5060";

fn invite_with(call: &str, uri: &str, more: &str) -> String {
    request("INVITE", uri, call, 1, more)
}

const BOB: &str = "sip:bob@192.0.2.1";
const SOS: &str = "urn:service:sos";

fn believes(settings: &mut Settings, rate_cps: f64) {
    let mut values = ResourceValues::default();
    values.add("ets.4").unwrap();
    settings.overload.sources.priority = Some(Priority {
        from: vec!["198.51.100.8/32".parse().unwrap()],
        emergency: true,
        values,
        rate_cps,
    });
}

fn limit(rate_cps: f64, burst: u32, then: Excess) -> impl Fn(&mut Settings) {
    let from = "198.51.100.7/32".parse().unwrap();
    move |settings| {
        let per = Per::Source;
        settings.overload.sources.limits = vec![SourceLimit { from, rate_cps, burst, per, then }];
    }
}

#[test]
fn trusted_priority_is_admitted_while_nothing_else_is() {
    for scheme in SCHEMES {
        let adjust = |settings: &mut Settings| believes(settings, 10.0);
        let mut script = adjusted(scheme, &[("share", 0.0)], adjust);
        for (call, from, uri, more, admitted) in [
            ("a", TRUSTED, BOB, "", false),
            ("b", TRUSTED, SOS, "", true),
            ("c", TRUSTED, BOB, "Resource-Priority: foo.1, ETS.0\r\n", true),
            ("d", CALLER, SOS, "", false),
            ("e", CALLER, BOB, "Resource-Priority: ets.0\r\n", false),
        ] {
            let first = script.one(from, &invite_with(call, uri, more));
            assert_eq!(!first.start().contains(" 503 "), admitted, "{call} {scheme:?}");
        }
        let flows = &script.counters.overload.flows;
        assert_eq!(flows[Bucket::Priority as usize].admitted.get(), 2, "{scheme:?}");
        assert_eq!(flows[Bucket::Session as usize].rejected.get(), 3, "{scheme:?}");
    }
}

#[test]
fn priority_calls_beyond_the_cap_are_ordinary() {
    for scheme in SCHEMES {
        let adjust = |settings: &mut Settings| believes(settings, 2.0);
        let mut script = adjusted(scheme, &[("share", 0.0)], adjust);
        let statuses: Vec<_> = (0..4)
            .map(|i| script.one(TRUSTED, &invite_with(&i.to_string(), SOS, "")))
            .map(|sent| sent.start().contains(" 503 "))
            .collect();
        assert_eq!(statuses, [false, false, true, true], "{scheme:?}");
    }
}

// RFC 7339 §5.10.2 lets a server reject calls of a client that takes no part in overload control.
// It must not reject an emergency call for this reason.
#[test]
fn priority_does_not_need_a_share_of_its_peer() {
    let mut script = adjusted(SCHEMES[0], &[("share", 0.3)], |settings| {
        trusting(settings);
        believes(settings, 10.0);
    });
    let invite_from = |from: &str, call: &str, uri: &str| {
        invite_with(call, uri, "").replace("198.51.100.7:5060", from)
    };
    for call in 0..200 {
        script.pass(Duration::from_millis(20));
        script.send(PEER, &offering(&invite(&format!("p{call}"))));
        // This trusted server does not offer overload control.
        script.send(TRUSTED, &invite_from(TRUSTED, &format!("t{call}"), BOB));
    }
    assert!(script.counters.rejected(Reason::PeerShare).get() > 20);
    for call in 0..20 {
        script.pass(Duration::from_millis(200));
        let sent = script.send(TRUSTED, &invite_from(TRUSTED, &format!("s{call}"), SOS));
        assert!(sent.iter().any(|sent| sent.start().starts_with("INVITE")), "{call}: {sent:#?}");
        for more in 0..10 {
            let call = format!("{call}-{more}");
            script.send(TRUSTED, &invite_from(TRUSTED, &format!("u{call}"), BOB));
            script.send(PEER, &offering(&invite(&format!("q{call}"))));
        }
    }
}

#[test]
fn priority_calls_overtake_waiting_ones_and_are_not_paced() {
    let scheme = SCHEMES[0];
    let adjust = |settings: &mut Settings| believes(settings, 10.0);
    let mut script = adjusted(scheme, &[("rate", 1.0)], adjust);
    for call in ["a", "b"] {
        script.offer(CALLER, invite(call).as_bytes());
    }
    let options = request("OPTIONS", BOB, "o", 1, "");
    script.offer(CALLER, options.as_bytes());
    for call in ["c", "d"] {
        script.offer(TRUSTED, invite_with(call, SOS, "").as_bytes());
    }
    let calls: Vec<_> =
        script.serve().iter().map(|sent| sent.header("Call-ID").to_owned()).collect();
    assert_eq!(calls, ["c", "d", "o"], "INVITEs wait for their release");
}

// RFC 3261 §9.1: a CANCEL that overtakes its INVITE cancels nothing.
#[test]
fn the_cancel_of_a_call_with_priority_comes_behind_it() {
    let adjust = |settings: &mut Settings| believes(settings, 10.0);
    let mut script = adjusted(SCHEMES[0], &[], adjust);
    script.offer(TRUSTED, invite_with("a", SOS, "").as_bytes());
    script.offer(TRUSTED, invite_with("b", SOS, "").as_bytes());
    script.offer(TRUSTED, request("CANCEL", SOS, "a", 1, "").as_bytes());
    let sent = script.serve();
    let order: Vec<_> =
        sent.iter().map(|s| (s.start().split(' ').next().unwrap(), s.header("Call-ID"))).collect();
    assert_eq!(order, [("INVITE", "a"), ("CANCEL", "a"), ("INVITE", "b")]);
}

// RFC 4412 §4.6.2. The header of a source whose priority is not trusted has no effect.
#[test]
fn an_unknown_mandatory_feature_gets_a_417() {
    for scheme in SCHEMES {
        let adjust = |settings: &mut Settings| believes(settings, 10.0);
        let mut script = adjusted(scheme, &[], adjust);
        let more = "Resource-Priority: foo.1\r\nRequire: resource-priority\r\n";
        assert_eq!(script.status(TRUSTED, &invite_with("a", BOB, more)), 417, "{scheme:?}");
        assert_eq!(script.counters.replied(417).get(), 1);
        let reply = script.one(TRUSTED, &invite_with("a", BOB, more));
        let tag = reply.header("To").split_once(";tag=").unwrap().1;
        let ack = request("ACK", BOB, "a", 1, "Totag\r\n").replace("callee", tag);
        assert!(script.send(TRUSTED, &ack).is_empty(), "{scheme:?}");
        assert_eq!(script.one(CALLER, &invite_with("b", BOB, more)).to, address(BACKEND_A));
        let known = "Resource-Priority: wps.4\r\nRequire: resource-priority\r\n";
        assert_eq!(script.one(TRUSTED, &invite_with("c", BOB, known)).to, address(BACKEND_B));
    }
}

#[test]
fn a_flood_leaves_others_their_share() {
    for scheme in SCHEMES {
        let adjust = |settings: &mut Settings| settings.overload.gate.sources.fair = true;
        let mut script = adjusted(scheme, &[("share", 0.1)], adjust);
        let mut admitted = [0; 2];
        // One source sends 1000/s and the other 50/s. The gate admits 105/s in total.
        for i in 0..3000 {
            script.pass(Duration::from_millis(1));
            let mut send = |from, name: &str| {
                let sent = script.one(from, &invite_with(&format!("{name}{i}"), BOB, ""));
                u32::from(i >= 1000 && !sent.start().contains(" 503 "))
            };
            admitted[0] += send(CALLER, "a");
            if i % 20 == 0 {
                admitted[1] += send(OTHER, "b");
            }
        }
        assert!(admitted[1] >= 99, "{admitted:?} of 100 {scheme:?}");
        assert!((100..=120).contains(&admitted[0]), "{admitted:?} {scheme:?}");
        assert!(script.counters.rejected(Reason::SourceShare).get() > 1000);
    }
}

#[test]
fn a_limit_rejects_or_drops_the_excess() {
    for scheme in SCHEMES {
        for (then, replies) in [(Excess::Reject, 1), (Excess::Drop, 0)] {
            let mut script = adjusted(scheme, &[], limit(1.0, 2, then));
            let sent = ["a", "b", "c"].map(|call| script.send(CALLER, &invite(call)).len());
            assert_eq!(sent, [1, 1, replies], "{then:?} {scheme:?}");
            assert_eq!(script.counters.rejected(Reason::SourceLimit).get(), 1);
            assert_eq!(script.one(OTHER, &invite("d")).to, address(BACKEND_A));
            script.pass(Duration::from_secs(1));
            // The proxy remembers that it rejected a request. It forgets a request that it dropped,
            // unless such requests cause a ban.
            let again = script.one(CALLER, &invite("c"));
            assert_eq!(again.start().contains(" 503 "), then == Excess::Reject);
        }
    }
}

#[test]
fn messages_of_a_banned_source_are_not_read_until_the_ban_ends() {
    for scheme in SCHEMES {
        let ban = Duration::from_secs(10);
        let mut script = adjusted(scheme, &[], limit(1.0, 1, Excess::Ban(ban)));
        let call = script.one(CALLER, &invite("a"));
        exceed(&mut script);
        let received = Class::ALL.map(|class| script.counters.received(class).get());
        for text in [invite("c"), request("OPTIONS", BOB, "d", 1, ""), "junk".to_owned()] {
            assert!(script.send(CALLER, &text).is_empty(), "{scheme:?}");
        }
        assert_eq!(script.counters.dropped(DropReason::Banned).get(), 3, "{scheme:?}");
        assert_eq!(received, Class::ALL.map(|class| script.counters.received(class).get()));
        // The other party of its call is not banned.
        let backend = call.to.to_string();
        assert_eq!(script.one(&backend, &call.answer("200 OK")).to, address(CALLER));
        script.pass(ban);
        assert_eq!(script.one(CALLER, &invite("e")).to, address(BACKEND_B), "{scheme:?}");
    }
}

/// Sends requests of the caller above its limit, enough for a ban.
fn exceed(script: &mut Script) {
    for i in 0..HARM_CPS {
        assert!(script.send(CALLER, &invite(&format!("b{i}"))).is_empty());
    }
}

// A dozen packets ban no source, because anyone could send them with a forged source address.
#[test]
fn harmless_messages_cause_no_ban() {
    let limited = limit(1.0, 1, Excess::Ban(Duration::from_secs(10)));
    let mut script = adjusted(SCHEMES[0], &[], limited);
    for second in 0..5 {
        for i in 0..HARM_CPS {
            script.send(CALLER, &invite(&format!("{second}-{i}")));
        }
        script.pass(Duration::from_secs(1));
    }
    assert_eq!(script.counters.dropped(DropReason::Banned).get(), 0);
    assert_eq!(script.counters.rejected(Reason::SourceLimit).get(), u64::from(5 * (HARM_CPS - 1)));
}

// RFC 3261 §17.1.1.2: a caller sends an INVITE without a response again after 500 ms, 1 s, and so on.
#[test]
fn copies_of_dropped_requests_cause_no_ban() {
    let limited = limit(1.0, 1, Excess::Ban(Duration::from_secs(10)));
    let mut script = adjusted(SCHEMES[0], &[], limited);
    script.one(CALLER, &invite("first"));
    for copy in 0..4 {
        for call in 0..29 {
            assert!(script.send(CALLER, &invite(&format!("c{call}"))).is_empty(), "copy {copy}");
        }
        script.pass(Duration::from_millis(200));
    }
    assert_eq!(script.counters.dropped(DropReason::Banned).get(), 0);
    assert_eq!(script.counters.rejected(Reason::SourceLimit).get(), 29);
    assert_eq!(script.counters.dropped(DropReason::Absorbed).get(), 3 * 29);
    // A copy does not take the place of a new call either.
    script.pass(Duration::from_secs(1));
    assert!(script.send(CALLER, &invite("c0")).is_empty());
    assert_eq!(script.one(CALLER, &invite("next")).start(), format!("INVITE {BOB} SIP/2.0"));
}

fn flood(adjust: impl FnOnce(&mut Settings)) -> Script {
    Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.overload.sources.flood =
            Some(Flood { above_cps: 5, after_s: 1, ban: Duration::from_secs(60) });
        adjust(settings);
    })
}

#[test]
fn a_flooding_source_is_banned() {
    for text in ["INVITE", "junk", "OPTIONS"] {
        let mut script = flood(|_| {});
        for i in 0..20 {
            let text = match text {
                "INVITE" => invite(&i.to_string()),
                "OPTIONS" => request("OPTIONS", BOB, &i.to_string(), 1, ""),
                junk => junk.to_owned(),
            };
            script.send(CALLER, &text);
        }
        assert_eq!(script.counters.dropped(DropReason::Banned).get(), 15, "{text}");
        assert_eq!(script.one(OTHER, &invite("other")).start(), format!("INVITE {BOB} SIP/2.0"));
    }
}

#[test]
fn back_ends_and_exempt_sources_are_not_banned() {
    for (from, spared) in [(CALLER, true), (BACKEND_A, false), (OTHER, false)] {
        let mut script = flood(|settings| {
            let nets = ["198.51.100.7/32".parse().unwrap()];
            settings.overload.sources.never_ban = nets.to_vec();
        });
        for i in 0..20 {
            script.send(from, &invite(&i.to_string()));
        }
        let dropped = script.counters.dropped(DropReason::Banned).get();
        assert_eq!(dropped == 0, spared || from == BACKEND_A, "{from}");
    }
}

#[test]
fn in_dialog_messages_are_no_flood() {
    let mut script = flood(|_| {});
    let call = script.one(CALLER, &invite("a"));
    let backend = call.to.to_string();
    script.one(&backend, &call.answer("200 OK"));
    for cseq in 2..30 {
        let info = request("INFO", BOB, "a", cseq, "Totag\r\n");
        assert_eq!(script.one(CALLER, &info).to, call.to);
    }
    assert_eq!(script.counters.dropped(DropReason::Banned).get(), 0);
}

#[test]
fn an_operator_sees_and_lifts_bans_and_shards_share_them() {
    let mut bans = None;
    let mut script = flood(|settings| bans = Some(settings.bans.clone()));
    let bans = bans.unwrap();
    for i in 0..20 {
        script.send(CALLER, &invite(&i.to_string()));
    }
    let seen = bans.each(script.now);
    let caller = source_of(address(CALLER).ip());
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].source, seen[0].cause), (caller, BanCause::Rate));
    let mut other = Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.bans = bans.clone();
    });
    assert!(other.send(CALLER, &invite("other")).is_empty());
    assert!(bans.lift(script.now, 1, [caller]));
    assert_eq!(other.send(CALLER, &invite("again")).len(), 1);
    script.pass(Duration::from_secs(1));
    assert_eq!(script.send(CALLER, &invite("again")).len(), 1);
}

#[test]
fn stopping_ends_priority_too() {
    let mut script = adjusted(SCHEMES[0], &[], |settings| believes(settings, 10.0));
    script.proxy.on_drain(script.now);
    assert_eq!(script.status(TRUSTED, &invite_with("a", SOS, "")), 503);
    assert_eq!(script.counters.rejected(Reason::Stopping).get(), 1);
}

#[test]
fn the_driver_learns_which_sources_are_banned_and_when_bans_end() {
    let limited = limit(1.0, 1, Excess::Ban(Duration::from_secs(10)));
    let list = BanList::new(10);
    let mut script = adjusted(SCHEMES[0], &[], |settings| {
        limited(settings);
        settings.bans = list.clone();
    });
    let told = |script: &mut Script| {
        script.proxy.on_load(script.now, Load::default());
        script.proxy.poll_shedding().clone()
    };
    assert_eq!(told(&mut script), Shedding::NONE);
    script.one(CALLER, &invite("a"));
    exceed(&mut script);
    assert_eq!(told(&mut script).banned, [address(CALLER).ip()]);
    // An IPv6 network is not an address.
    let source = source_of("2001:db8::1".parse().unwrap());
    let until = script.now + Duration::from_secs(60);
    list.ban(
        script.now,
        Ban { source, until, cause: BanCause::Operator, rate: 1, is_proven: false },
    );
    assert_eq!(told(&mut script).banned, [address(CALLER).ip()]);
    script.pass(Duration::from_secs(10));
    assert_eq!(told(&mut script), Shedding::NONE);
}
