//! Tests of unverified messages from strangers. They wait behind all others, count against their
//! source, and do not affect established calls.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use tidegate_balance::Policy;
use tidegate_control::{Ban, BanCause, BanList, Reason};
use tidegate_proxy::{
    DropReason, Flood, Mode, Rule, RuleTarget, Senders, Settings, SourceWeight, networks_of,
    source_of,
};
use tidegate_world::{Core, Load, QueryAnswer, Shedding};

const STRANGER: &str = "203.0.113.9:5060";
const PHONE: &str = "198.51.100.20:5060";
const BOB: &str = "sip:bob@192.0.2.1";

/// Kinds of a stranger's messages that claim to belong to a call. Each message names a different
/// call.
const CLAIMS: [&str; 4] = ["BYE", "ACK", "CANCEL", "SIP/2.0"];

fn claim(kind: &str, number: u32) -> String {
    let call = format!("nowhere-{number}");
    match kind {
        "SIP/2.0" => format!(
            "SIP/2.0 200 OK\r\n\
             Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n\
             Via: SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bK-{call}\r\n\
             From: <sip:alice@example.com>;tag=a\r\nTo: <sip:bob@example.com>;tag=b\r\n\
             Call-ID: {call}\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
        ),
        "CANCEL" => request(kind, BOB, &call, 1, ""),
        method => request(method, BOB, &call, 2, "Totag\r\n"),
    }
}

/// Makes a proxy with a call between caller and back end. Returns the forwarded INVITE too.
fn in_call(adjust: impl FnOnce(&mut Settings)) -> (Script, Sent) {
    let mut script = Script::with(Policy::Rr, adjust);
    let invited = script.one(CALLER, &invite("a"));
    script.one(&invited.to.to_string(), &invited.answer("200 OK"));
    assert_eq!(script.one(CALLER, &request("ACK", BOB, "a", 1, "Totag\r\n")).to, invited.to);
    (script, invited)
}

fn flooded(script: &mut Script, kind: &str, count: u32) {
    for number in 0..count {
        script.offer(STRANGER, claim(kind, number).as_bytes());
    }
}

#[test]
fn unverified_messages_wait_behind_verified_ones_and_new_work() {
    for kind in CLAIMS {
        let (mut script, _) = in_call(|_| {});
        let ringing = script.one(CALLER, &invite("b"));
        flooded(&mut script, kind, 3_000);
        let backend = ringing.to.to_string();
        script.offer(&backend, ringing.answer("180 Ringing").as_bytes());
        for text in [
            request("INFO", BOB, "a", 2, "Totag\r\n"),
            request("BYE", BOB, "a", 3, "Totag\r\n"),
            request("CANCEL", BOB, "b", 1, ""),
            invite("c"),
            request("OPTIONS", BOB, "d", 1, ""),
        ] {
            script.offer(CALLER, text.as_bytes());
        }
        // Serves as many messages as arrived before the proxy verified each message on arrival.
        for _ in 0..64 + 6 {
            assert!(script.proxy.serve(script.now), "{kind}");
        }
        let sent = script.sent();
        let order: Vec<_> =
            starts(&sent).into_iter().filter(|(to, _)| *to != "elsewhere").collect();
        let has = |wanted: &str| order.iter().any(|(_, start)| start.starts_with(wanted));
        let ours = ["SIP/2.0 180", "INFO", "BYE", "CANCEL", "INVITE", "OPTIONS"];
        assert!(ours.into_iter().all(has), "{kind}: {order:?}");
        script.serve();
        assert_eq!(script.counters.dropped(DropReason::QueueFull).get(), 0);
        assert_eq!(script.counters.strays.get(), 3_000, "{kind}");
    }
}

/// An ACK and a BYE are parsed only when they are served.
#[test]
fn a_request_within_a_call_that_is_malformed_counts_against_its_source() {
    for method in ["ACK", "BYE", "INFO"] {
        let (mut script, _) = in_call(|_| {});
        for _ in 0..10 {
            for text in ["Max-Forwards: 70", "a b c"] {
                let text = format!("{method} {BOB} SIP/2.0\r\n{text}\r\n\r\n");
                script.offer(STRANGER, text.as_bytes());
                script.serve();
            }
        }
        // The admission reads an INFO itself.
        let strays = if method == "INFO" { 0 } else { 20 };
        assert_eq!(script.counters.strays.get(), strays, "{method}");
        assert_eq!(script.counters.dropped(DropReason::Malformed).get(), 20, "{method}");
    }
}

#[test]
fn the_queue_of_unverified_messages_is_bounded_and_takes_no_room_from_others() {
    let (mut script, invited) = in_call(|settings| settings.queue_max = 100);
    flooded(&mut script, "BYE", 1_000);
    assert_eq!(script.counters.dropped(DropReason::Unverified).get(), 1_000 - 64 - 100);
    script.offer(CALLER, request("BYE", BOB, "a", 2, "Totag\r\n").as_bytes());
    assert_eq!(script.counters.dropped(DropReason::QueueFull).get(), 0);
    let byes: Vec<_> = script.serve().into_iter().filter(|sent| sent.to == invited.to).collect();
    assert_eq!(byes.len(), 1);
}

#[test]
fn many_unverified_messages_are_verified_on_arrival_even_if_few_wait() {
    let (mut script, _) = in_call(|_| {});
    for number in 0..64 {
        assert_eq!(script.status(STRANGER, &claim("BYE", number)), 481);
    }
    script.offer(STRANGER, claim("BYE", 64).as_bytes());
    script.offer(CALLER, invite("b").as_bytes());
    script.offer(CALLER, request("BYE", BOB, "a", 2, "Totag\r\n").as_bytes());
    let sent = script.serve();
    let order: Vec<_> = sent.iter().map(|sent| sent.start()[..3].to_owned()).collect();
    assert_eq!(order[2], "SIP", "{order:?}");
    // Early verification ends after one second without such messages.
    script.pass(Duration::from_secs(2));
    script.offer(STRANGER, claim("BYE", 65).as_bytes());
    script.offer(CALLER, invite("c").as_bytes());
    let sent = script.serve();
    let order: Vec<_> = sent.iter().map(|sent| sent.start()[..3].to_owned()).collect();
    assert_eq!(order, ["SIP", "INV"]);
}

#[test]
fn a_cancel_whose_invite_still_waits_is_no_stray() {
    let (mut script, _) = in_call(|_| {});
    flooded(&mut script, "CANCEL", 200);
    script.offer(CALLER, invite("b").as_bytes());
    script.offer(CALLER, request("CANCEL", BOB, "b", 1, "").as_bytes());
    let sent = script.serve();
    let ours: Vec<_> = starts(&sent).into_iter().filter(|(to, _)| *to != "elsewhere").collect();
    let kinds: Vec<_> = ours.iter().map(|(_, start)| &start[..6]).collect();
    assert!(kinds.ends_with(&["INVITE", "CANCEL"]) || kinds.starts_with(&["INVITE", "CANCEL"]));
    assert_eq!(script.counters.strays.get(), 200);
}

#[test]
fn time_spent_on_stray_messages_makes_no_law_reject_callers() {
    // The proxy gets ten thousand BYEs of a millisecond each, so the processor is never idle.
    let adjust = |settings: &mut Settings| settings.overload.gate.sources.fair = true;
    let mut script = Script::with(Policy::Rr, |settings| {
        let law = tidegate_control::registry::find("occ").expect("a law");
        settings.overload.gate.law = law.values(&[]).expect("its defaults");
        adjust(settings);
    });
    let (mut busy, mut rejected) = (Duration::ZERO, 0);
    for ms in 0..10_000u32 {
        script.offer(STRANGER, claim("BYE", ms).as_bytes());
        if ms % 100 == 0 {
            script.offer(CALLER, invite(&format!("good-{ms}")).as_bytes());
        }
        while script.proxy.serve(script.now) {
            script.now = script.now + Duration::from_millis(1);
            busy += Duration::from_millis(1);
        }
        let load = Load { busy, cpu: busy, ..Load::default() };
        script.proxy.on_load(script.now, load);
        script.pass(Duration::ZERO);
        let sent = script.sent();
        rejected += sent.iter().filter(|sent| sent.start().contains(" 503 ")).count();
    }
    let by_share = script.counters.rejected(Reason::SourceShare).get();
    assert_eq!((rejected, by_share), (0, 0));
}

/// A driver may read one message after each service, so that no service directly follows another
/// one.
#[test]
fn time_spent_on_stray_messages_is_known_if_a_message_is_read_after_each() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let law = tidegate_control::registry::find("occ").expect("a law");
        settings.overload.gate.law = law.values(&[]).expect("its defaults");
    });
    let (mut busy, mut rejected) = (Duration::ZERO, 0);
    let waited = Duration::from_micros(900);
    for ms in 0..10_000u32 {
        script.offer_after(waited, STRANGER, claim("BYE", ms).as_bytes());
        if ms % 100 == 0 {
            script.offer_after(waited, CALLER, invite(&format!("good-{ms}")).as_bytes());
        }
        script.pass(Duration::ZERO);
        script.proxy.serve(script.now);
        script.now = script.now + Duration::from_millis(1);
        busy += Duration::from_millis(1);
        script.proxy.on_load(script.now, Load { busy, cpu: busy, ..Load::default() });
        let sent = script.sent();
        rejected += sent.iter().filter(|sent| sent.start().contains(" 503 ")).count();
    }
    assert_eq!(rejected, 0);
}

/// A regression: after the answer of the store, a stray was served like a message of a known call, so its
/// service time counted as load. A BYE without a To-tag belongs to no dialog, and goes to a user like a new
/// request.
#[test]
fn time_spent_on_stray_messages_that_wait_for_a_look_up_makes_no_law_reject_callers() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let law = tidegate_control::registry::find("occ").expect("a law");
        settings.overload.gate.law = law.values(&[]).expect("its defaults");
        let domains = vec!["example.com".to_owned()];
        settings.rules.insert(0, Rule { domains, ..Rule::new(Senders::Any, RuleTarget::Users) });
    });
    // From now on the proxy verifies such messages on arrival.
    for number in 0..64 {
        assert_eq!(script.status(STRANGER, &claim("BYE", number)), 481);
    }
    let (mut busy, mut rejected) = (Duration::ZERO, 0);
    for ms in 0..10_000u32 {
        let uri = format!("sip:user-{ms}@example.com");
        let stray = request("BYE", &uri, &format!("stray-{ms}"), 1, "");
        assert!(script.send(STRANGER, &stray).is_empty(), "it is parked");
        let query = script.proxy.poll_query().expect("a look-up");
        script.proxy.on_answer(script.now, query.id, QueryAnswer::NotFound(None));
        if ms % 100 == 0 {
            script.offer(CALLER, invite(&format!("good-{ms}")).as_bytes());
        }
        while script.proxy.serve(script.now) {
            script.now = script.now + Duration::from_millis(1);
            busy += Duration::from_millis(1);
        }
        script.proxy.on_load(script.now, Load { busy, cpu: busy, ..Load::default() });
        script.pass(Duration::ZERO);
        let sent = script.sent();
        rejected += sent.iter().filter(|sent| sent.start().contains(" 503 ")).count();
    }
    assert_eq!((script.counters.parked_all.get(), rejected), (10_000, 0));
    assert_eq!(script.counters.strays.get(), 64 + 10_000, "each counts once");
}

fn flood_limit(settings: &mut Settings) {
    settings.overload.sources.flood =
        Some(Flood { above_cps: 200, after_s: 1, ban: Duration::from_secs(60) });
}

#[test]
fn the_source_of_a_flood_of_any_kind_is_banned() {
    for kind in CLAIMS {
        let (mut script, _) = in_call(flood_limit);
        for number in 0..300 {
            script.send(STRANGER, &claim(kind, number));
        }
        assert!(script.counters.dropped(DropReason::Banned).get() >= 99, "{kind}");
        assert!(script.send(STRANGER, &invite("x")).is_empty(), "{kind}");
        assert_eq!(script.send(PHONE, &invite("y")).len(), 1, "{kind}");
    }
}

/// A source may flood with messages that can be verified: copies of one request, or requests within
/// one call.
#[test]
fn the_source_of_a_flood_within_a_transaction_or_a_call_is_banned() {
    let copy = |_| request("MESSAGE", BOB, "m", 1, "");
    let cancel = |_| request("CANCEL", BOB, "b", 1, "");
    let acknowledge = |_| request("ACK", BOB, "c", 1, "Totag\r\n");
    let within = |method: &'static str| move |cseq| request(method, BOB, "a", cseq, "Totag\r\n");
    for (kind, flood) in [
        ("copies", &copy as &dyn Fn(u32) -> String),
        ("CANCEL", &cancel),
        ("ACK to a rejection", &acknowledge),
        ("INFO", &within("INFO")),
        ("re-INVITE", &within("INVITE")),
        ("BYE", &within("BYE")),
    ] {
        let mut script = Script::with(Policy::Rr, |settings| {
            flood_limit(settings);
            settings.pools[0].mode = Mode::Transaction;
        });
        crate::limited::call(&mut script, "a").unwrap();
        script.send(CALLER, &invite("b"));
        let rejected = script.send(CALLER, &invite("c")).pop().unwrap();
        script.send(&rejected.to.to_string(), &rejected.answer("486 Busy Here"));
        for number in 0..1000 {
            script.send(CALLER, &flood(10 + number));
        }
        let banned = script.counters.dropped(DropReason::Banned).get();
        assert!(banned >= 600, "{kind}: {banned}");
        assert_eq!(script.counters.strays.get(), 0, "{kind}");
    }
}

fn ban(list: &BanList, script: &Script, who: &str) {
    ban_at(list, script, who, 500);
}

fn ban_at(list: &BanList, script: &Script, who: &str, rate: u32) {
    let (source, until) = (source_of(address(who).ip()), script.now + Duration::from_secs(60));
    let cause = BanCause::Rate;
    assert!(list.ban(script.now, Ban { source, until, cause, rate, is_proven: false }));
}

#[test]
fn a_banned_source_loses_new_work_and_none_of_its_calls() {
    let list = BanList::new(4);
    let (mut script, invited) = in_call(|settings| {
        flood_limit(settings);
        settings.bans = list.clone();
    });
    let backend = invited.to.to_string();
    ban(&list, &script, CALLER);
    for text in [invite("b"), request("REGISTER", BOB, "r", 1, ""), "junk".to_owned()] {
        assert!(script.send(CALLER, &text).is_empty());
    }
    for kind in CLAIMS {
        assert!(script.send(CALLER, &claim(kind, 0)).is_empty(), "{kind}");
    }
    assert_eq!(script.counters.dropped(DropReason::Banned).get(), 7);
    for (method, cseq) in [("INVITE", 2), ("INFO", 3), ("BYE", 4)] {
        let text = request(method, BOB, "a", cseq, "Totag\r\n");
        let sent = script.one(CALLER, &text);
        assert_eq!((sent.to, &sent.start()[..3]), (invited.to, &method[..3]));
        assert_eq!(script.one(&backend, &sent.answer("200 OK")).to, address(CALLER));
    }
}

#[test]
fn a_banned_source_can_still_answer_requests() {
    let list = BanList::new(4);
    let mut script = Script::with(Policy::Rr, |settings| {
        flood_limit(settings);
        settings.pools[0].mode = Mode::Transaction;
        settings.bans = list.clone();
    });
    let to_phone = request("INVITE", "sip:bob@198.51.100.20:5060", "out", 1, "")
        .replace("198.51.100.7:5060", BACKEND_A);
    let asked = script.send(BACKEND_A, &to_phone).pop().unwrap();
    assert_eq!(asked.to, address(PHONE));
    ban(&list, &script, PHONE);
    assert_eq!(script.one(PHONE, &asked.answer("180 Ringing")).to, address(BACKEND_A));
    assert_eq!(script.one(PHONE, &asked.answer("200 OK")).to, address(BACKEND_A));
    // An element that has our branch may send a response with a forged source.
    ban(&list, &script, CALLER);
    assert_eq!(script.send(CALLER, &asked.answer("200 OK")).len(), 1);
    // A source that has responded has proved that it receives messages at its address.
    let proven: Vec<_> = list.each(script.now).iter().map(|ban| ban.is_proven).collect();
    assert_eq!(proven.iter().filter(|is| **is).count(), 1, "{proven:?}");
}

/// RFC 5626 §8: "If a server compliant to this section receives SIP requests on a given interface and
/// UDP port, it MUST also provide a limited version of a STUN server on the same interface and UDP port."
/// Phones behind one NAT share an address, so a ban of one of them must not end the bindings of all.
#[test]
fn a_ban_does_not_apply_to_stun_keep_alives() {
    let list = BanList::new(4);
    let mut script = Script::with(Policy::Rr, |settings| {
        flood_limit(settings);
        settings.bans = list.clone();
    });
    ban(&list, &script, PHONE);
    assert!(script.send(PHONE, &invite("a")).is_empty());
    let before = list.each(script.now)[0];
    // Keep-alives at more than twice the rate of the ban do not prolong it either.
    script.pass(Duration::from_secs(1));
    let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], b"transaction0"].concat();
    for _ in 0..2_000 {
        script.offer(PHONE, &binding);
        let answer = script.proxy.poll_transmit().expect("a ban drops no keep-alive");
        assert_eq!(answer.flow.remote, address(PHONE));
        assert_eq!(answer.bytes[..2], [1, 1]);
    }
    let counters = &script.counters;
    let counts = (counters.bindings_answered.get(), counters.dropped(DropReason::Banned).get());
    assert_eq!(counts, (2_000, 1));
    assert_eq!(list.each(script.now)[0].until, before.until);
}

#[test]
fn the_kernel_drops_nothing_of_a_source_that_is_known_to_receive() {
    let list = BanList::new(4);
    let (mut script, _) = in_call(|settings| {
        flood_limit(settings);
        settings.bans = list.clone();
    });
    ban(&list, &script, STRANGER);
    ban(&list, &script, CALLER);
    script.proxy.on_load(script.now, Load::default());
    // The proof that the caller receives messages reaches all shards when any shard next reads its
    // load.
    script.proxy.on_load(script.now, Load::default());
    assert_eq!(script.proxy.poll_shedding().banned, [address(STRANGER).ip()]);
    let proven: Vec<bool> = list.each(script.now).iter().map(|ban| ban.is_proven).collect();
    assert_eq!(proven, [true, false], "the caller's address is the lower one");
}

/// A Call-ID is not secret. The tags and the token of a call are, but a party of the call could
/// write any source address into its ACKs.
#[test]
fn an_ack_proves_only_the_address_that_got_the_responses() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let list = BanList::new(4);
        let mut script = Script::with(Policy::Rr, |settings| {
            flood_limit(settings);
            settings.pools[0].mode = mode;
            settings.bans = list.clone();
        });
        let call = script.send(CALLER, &invite("a")).pop().unwrap();
        let ok = script.one(&call.to.to_string(), &call.answer("200 OK"));
        let route = format!("Route: {}\r\nTotag\r\n", ok.header("Record-Route"));
        // The first ACK has only the Call-ID, the second has the tags, and the third the token.
        for (cseq, more) in [(9, ""), (1, "Totag\r\n"), (1, &*route)] {
            let strays = script.counters.strays.get();
            let ack = request("ACK", BOB, "a", cseq, more);
            let ack = ack.replacen("-INVITE", &format!("-ACK-{}", more.len()), 1);
            script.send(STRANGER, &ack);
            assert_eq!(script.counters.strays.get() - strays, u64::from(more.is_empty()));
        }
        ban(&list, &script, STRANGER);
        ban(&list, &script, CALLER);
        let proven = |script: &mut Script| {
            for _ in 0..2 {
                script.proxy.on_load(script.now, Load::default());
            }
            let banned = script.proxy.poll_shedding().banned.clone();
            [CALLER, STRANGER].map(|at| !banned.contains(&address(at).ip()))
        };
        assert_eq!(proven(&mut script), [false, false], "{mode:?}");
        script.send(CALLER, &request("ACK", BOB, "a", 1, "Totag\r\n"));
        assert_eq!(proven(&mut script), [true, false], "{mode:?}");
    }
}

/// Forged addresses that send little must not keep a flood out of the kernel's list.
#[test]
fn the_kernel_drops_the_sources_with_the_highest_rates() {
    let list = BanList::new(1024);
    let mut script = Script::with(Policy::Rr, |settings| {
        flood_limit(settings);
        settings.bans = list.clone();
    });
    for number in 0..200u32 {
        let rate = if number == 10 { 102 } else { 101 };
        ban_at(&list, &script, &format!("0.0.1.{number}:5060"), rate);
    }
    ban_at(&list, &script, STRANGER, 300_000);
    script.proxy.on_load(script.now, Load::default());
    let banned = script.proxy.poll_shedding().banned.clone();
    assert_eq!(banned.len(), Shedding::BANNED_MAX);
    assert_eq!(banned.last(), Some(&address(STRANGER).ip()));
    assert!(banned.contains(&address("0.0.1.10:5060").ip()));
    assert!(banned.is_sorted());
    // While nothing changes, the kernel gets the same list.
    script.proxy.on_load(script.now, Load::default());
    assert_eq!(script.proxy.poll_shedding().banned, banned);
}

#[test]
fn a_flood_that_spreads_over_the_networks_of_a_48_is_caught_there() {
    let list = BanList::new(16);
    let v6 = |settings: &mut Settings| {
        flood_limit(settings);
        settings.bans = list.clone();
    };
    let mut script = Script::with(Policy::Rr, v6);
    // 4 times the limit of one source: 10 messages from each of 100 /64 networks, which are in 100
    // /56 networks.
    for number in 0..1_000u32 {
        let from = format!("[2001:db8:7:{:x}00::{number:x}]:5060", number % 100);
        script.send(&from, &invite(&number.to_string()));
    }
    let wide = networks_of("2001:db8:7::1".parse().unwrap()).nth(2);
    let banned: Vec<_> = list.each(script.now).iter().map(|ban| ban.source).collect();
    assert_eq!(banned, [wide.unwrap()]);
    let statuses = |script: &mut Script, from: &str| script.send(from, &invite("later")).len();
    assert_eq!(statuses(&mut script, "[2001:db8:7:ff00::1]:5060"), 0);
    assert_eq!(statuses(&mut script, "[2001:db8:8::1]:5060"), 1);
}

#[test]
fn a_flood_from_one_network_bans_no_network_around_it() {
    let list = BanList::new(16);
    let mut script = Script::with(Policy::Rr, |settings| {
        flood_limit(settings);
        settings.bans = list.clone();
    });
    for number in 0..5_000u32 {
        script.send("[2001:db8:7::1]:5060", &invite(&number.to_string()));
    }
    let banned: Vec<_> = list.each(script.now).iter().map(|ban| ban.source).collect();
    assert_eq!(banned, [source_of("2001:db8:7::1".parse().unwrap())]);
}

#[test]
fn a_source_with_weight_10_may_send_ten_times_as_much() {
    let mut script = Script::with(Policy::Rr, |settings| {
        flood_limit(settings);
        let from = "198.51.100.0/24".parse().unwrap();
        settings.overload.sources.weights = vec![SourceWeight { from, weight: 10 }];
    });
    for number in 0..2_000 {
        script.send(CALLER, &invite(&number.to_string()));
        script.send(STRANGER, &invite(&format!("s{number}")));
    }
    assert_eq!(script.counters.dropped(DropReason::Banned).get(), 1_800);
    assert!(script.send(CALLER, &invite("one too many")).is_empty());
}

/// Returns the number of calls of a trunk that are admitted in a second. The trunk sends 200/s, and
/// another source sends 800/s. The law admits 250/s of all these calls.
fn admitted_from_a_trunk(adjust: impl FnOnce(&mut Settings)) -> u32 {
    let mut script = adjusted(SCHEMES[0], &[("share", 0.25)], |settings: &mut Settings| {
        settings.overload.gate.sources.fair = true;
        adjust(settings);
    });
    let mut admitted = 0;
    for i in 0..4000 {
        script.pass(Duration::from_millis(1));
        let from = if i % 5 == 0 { CALLER } else { STRANGER };
        let sent = script.one(from, &invite(&i.to_string()));
        admitted += u32::from(i >= 3000 && from == CALLER && !sent.start().contains(" 503 "));
    }
    admitted
}

#[test]
fn a_trunk_of_many_users_has_the_share_of_all_of_them() {
    let admitted = |weight| {
        admitted_from_a_trunk(|settings| {
            let from = "198.51.100.7/32".parse().unwrap();
            settings.overload.sources.weights = vec![SourceWeight { from, weight }];
        })
    };
    let (one, ten) = (admitted(1), admitted(10));
    assert!(one <= 130 && ten >= 195, "{one} and {ten} of 200");
}

#[test]
fn a_trusted_trunk_has_the_share_of_many_users_unless_weights_are_configured() {
    let admitted = |weights: &[SourceWeight]| {
        admitted_from_a_trunk(|settings| {
            settings.listeners[0].trust = vec!["198.51.100.7/32".parse().unwrap()];
            settings.overload.sources.weights = weights.to_vec();
        })
    };
    let unrelated = SourceWeight { from: "192.0.2.128/25".parse().unwrap(), weight: 10 };
    let (known, unknown) = (admitted(&[]), admitted(&[unrelated]));
    assert!(unknown <= 130 && known >= 195, "{unknown} and {known} of 200");
}

#[test]
fn a_peer_of_feedback_has_the_share_of_many_users() {
    let admitted = admitted_from_a_trunk(|settings| {
        settings.overload.feedback.peers = vec!["198.51.100.7/32".parse().unwrap()];
    });
    assert!(admitted >= 195, "{admitted} of 200");
}
