//! Tests which sources' INVITEs the kernel does not drop under overload.

use std::net::IpAddr;
use std::time::Duration;

use crate::fixed::law;
use crate::script::*;
use tidegate_balance::Policy;
use tidegate_control::{Per, Scheme};
use tidegate_proxy::{Disposal, Excess, Settings, SourceLimit, network_of};
use tidegate_world::{Core, Load, Network, Shedding};

const TRUSTED: &str = "203.0.113.7:5060";
const STRANGER: &str = "203.0.113.66:5060";

/// Returns the shedding that a proxy in a flood asks of the kernel, and some INVITEs that the
/// kernel then drops. Checks that operators see the same heavy sources as the kernel.
fn flooded(adjust: impl FnOnce(&mut Settings)) -> (Shedding, Vec<String>) {
    flooded_by(invite, adjust)
}

/// Does the same as [`flooded`], in a flood of these messages.
fn flooded_by(
    message: impl Fn(&str) -> String,
    adjust: impl FnOnce(&mut Settings),
) -> (Shedding, Vec<String>) {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", 0.0)]);
        settings.overload.disposal = Disposal::Auto;
        adjust(settings);
    });
    let mut busy = crate::overload::saturate(&mut script);
    for period in 0..20 {
        (0..20).for_each(|call| drop(script.send(CALLER, &message(&format!("{period}-{call}")))));
        script.pass(Duration::from_millis(100));
        busy += Duration::from_millis(90);
        let load = Load { busy, cpu: busy / 2, socket_fill: 0.25, ..Load::default() };
        script.proxy.on_load(script.now, load);
    }
    let flood = script.proxy.poll_shedding().clone();
    let published = script.counters.heavy.get();
    let addresses = published.iter().map(|heavy| network_of(heavy.source).addr());
    assert!(addresses.eq(flood.heavy.iter().map(|network| network.address)), "{published:?}");
    let is_dropped = |text: &String| flood.drops(address(CALLER).ip(), text.as_bytes());
    let dropped: Vec<_> = (0..50).map(|n| message(&n.to_string())).filter(is_dropped).collect();
    assert!(dropped.len() > 10, "{:?}", flood.shares);
    (flood, dropped)
}

/// A server behind the proxy sends the second leg of calls that the proxy has admitted. A trusted
/// trunk may send most of the load, so its INVITEs are dropped like others.
#[test]
fn the_kernel_drops_no_invite_of_a_back_end() {
    let (flood, dropped) = flooded(|settings| {
        settings.listeners[0].trust = vec!["203.0.113.0/28".parse().unwrap()];
    });
    let drops = |from: &str, text: &String| flood.drops(address(from).ip(), text.as_bytes());
    for text in &dropped {
        assert_eq!(
            [CALLER, BACKEND_A, BACKEND_B].map(|from| drops(from, text)),
            [true, false, false]
        );
    }
    assert!(dropped.iter().any(|text| drops(TRUSTED, text)));
}

/// A peer that takes part in overload feedback holds its excess back itself.
// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification don't receive an
// unfair advantage over those that do."
#[test]
fn the_kernel_drops_no_invite_of_a_peer_of_feedback() {
    let (flood, dropped) = flooded(|settings| {
        settings.overload.feedback.peers = vec!["203.0.113.0/28".parse().unwrap()];
    });
    let drops = |text: &String| flood.drops(address(TRUSTED).ip(), text.as_bytes());
    assert!(!dropped.iter().any(drops));
}

/// After an outage all phones register again at the same time.
#[test]
fn the_kernel_drops_registers_of_a_flood() {
    let register = |call: &str| request("REGISTER", "sip:example.com", call, 1, "");
    let (flood, dropped) = flooded_by(register, |settings| {
        settings.overload.gate.sources.fair = true;
    });
    let drops = |text: &String| flood.drops(address(TRUSTED).ip(), text.as_bytes());
    assert!(!dropped.iter().any(drops));
}

/// Calls must not be lost because phones register, nor registrations because people call.
#[test]
fn the_kernel_drops_only_requests_of_the_method_that_floods() {
    let register = |call: &str| request("REGISTER", "sip:example.com", call, 1, "");
    let shares_in = |flood: &dyn Fn(&str) -> String, other: &dyn Fn(&str) -> String| {
        let mut script = Script::with(Policy::Rr, |settings| {
            settings.overload.gate.law = law(&[("share", 0.0)]);
            settings.overload.disposal = Disposal::Auto;
        });
        let mut busy = crate::overload::saturate(&mut script);
        let mut filtered = 0;
        for period in 0..100 {
            let shedding = script.proxy.poll_shedding().clone();
            let mut arrive = |text: String| {
                if shedding.drops(address(CALLER).ip(), text.as_bytes()) {
                    filtered += 1;
                } else {
                    script.offer(CALLER, text.as_bytes());
                    busy += Duration::from_micros(100);
                }
            };
            (0..300).for_each(|call| arrive(flood(&format!("{period}-{call}"))));
            (0..5).for_each(|call| arrive(other(&format!("{period}-other-{call}"))));
            script.pass(Duration::from_millis(100));
            let load = Load { busy, cpu: busy / 2, filtered, ..Load::default() };
            script.proxy.on_load(script.now, load);
        }
        let overload = &script.counters.overload;
        let shown = [overload.drop_share.get(), overload.drop_share_of_registers.get()];
        let shares = script.proxy.poll_shedding().shares;
        assert_eq!(shown, shares.map(|share| (share * 1e6).round() as u64));
        shares
    };
    let [invites, registers] = shares_in(&register, &invite);
    assert!(invites < 0.2 && registers > 0.5, "{invites} {registers}");
    let [invites, registers] = shares_in(&invite, &register);
    assert!(registers < 0.2 && invites > 0.5, "{invites} {registers}");
}

/// With fair shares, one source that floods does not make the kernel drop the INVITEs of others.
#[test]
fn the_kernel_drops_only_invites_of_the_source_that_floods() {
    let (flood, dropped) = flooded(|settings| settings.overload.gate.sources.fair = true);
    let drops = |text: &String| flood.drops(address(TRUSTED).ip(), text.as_bytes());
    assert!(!dropped.iter().any(drops));
    assert_eq!(flood.heavy.len(), 1);
}

/// The number of established calls in [`shedding_beside`]. They are enough that a flood of requests
/// within them does not exceed the rate of a call.
const CALLS: u32 = 100;

/// Returns a request within one of the established calls.
fn within(number: u32) -> String {
    let call = format!("known-{}", number % CALLS);
    request("INVITE", "sip:bob@192.0.2.1", &call, 2 + number, "Totag\r\n")
}

/// Returns the heavy sources after each period of [`shedding_beside`]. CALLER sends one INVITE in
/// each period.
fn heavy_in_a_flood(
    share: f64,
    adjust: impl FnOnce(&mut Settings),
    flood: impl Fn(u32) -> Vec<String>,
) -> Vec<Vec<IpAddr>> {
    heavy_beside(|period| vec![invite(&format!("call-{period}"))], share, adjust, flood)
}

/// Returns the heavy sources after each period of [`shedding_beside`].
fn heavy_beside(
    known: impl Fn(u32) -> Vec<String>,
    share: f64,
    adjust: impl FnOnce(&mut Settings),
    flood: impl Fn(u32) -> Vec<String>,
) -> Vec<Vec<IpAddr>> {
    let addresses = |shedding: Shedding| shedding.heavy.iter().map(|net| net.address).collect();
    shedding_beside(10, known, share, adjust, flood).into_iter().map(addresses).collect()
}

/// Returns the shedding after each period of 100 ms. In each period, CALLER sends the messages of
/// `known`, and a stranger sends those of `flood`. For each message of the stranger that the kernel
/// does not drop, ten others overflow the buffer.
fn shedding_beside(
    periods: u32,
    known: impl Fn(u32) -> Vec<String>,
    share: f64,
    adjust: impl FnOnce(&mut Settings),
    flood: impl Fn(u32) -> Vec<String>,
) -> Vec<Shedding> {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[]);
        settings.overload.gate.sources.fair = true;
        settings.overload.disposal = Disposal::Auto;
        adjust(settings);
    });
    for number in 0..CALLS {
        crate::overload::establish(&mut script, &format!("known-{number}"));
    }
    script.proxy.switch(script.now, law(&[("share", share)]), None);
    let mut load = Load::default();
    script.proxy.on_load(script.now, load);
    let period = |period: u32| {
        let messages = flood(period);
        let shedding = script.proxy.poll_shedding().clone();
        let drops = |from: &str, text: &str| shedding.drops(address(from).ip(), text.as_bytes());
        for (number, text) in messages.iter().enumerate() {
            // The load is read several times in each period.
            if number == messages.len() / 2 {
                script.proxy.on_load(script.now, load);
                for text in known(period).iter().filter(|text| !drops(CALLER, text)) {
                    script.send(CALLER, text);
                }
            }
            if drops(STRANGER, text) {
                load.filtered += 11;
            } else {
                script.send(STRANGER, text);
                load.overflow += 10;
            }
        }
        script.pass(Duration::from_millis(100));
        load.busy += Duration::from_millis(90);
        load.cpu += Duration::from_millis(45);
        script.proxy.on_load(script.now, load);
        script.proxy.poll_shedding().clone()
    };
    (0..periods).map(period).collect()
}

/// The kernel may drop the INVITEs of all sources until enough messages have been counted.
#[track_caller]
fn assert_only_the_stranger_is_heavy(heavy: &[Vec<IpAddr>]) {
    assert!(heavy[2..].iter().all(|heavy| *heavy == [address(STRANGER).ip()]), "{heavy:?}");
}

// The kernel program and the buffers treat every datagram that begins with `INVI` in the same way.
#[test]
fn any_messages_that_begin_like_an_invite_make_their_source_heavy() {
    let malformed = |call: &str| invite(call).replace("CSeq: 1", "CSeq: x");
    let unknown = |call: &str| request("INVITEX", "sip:bob@192.0.2.1", call, 1, "");
    for kind in ["malformed", "unknown method", "within a call"] {
        let flood = |period: u32| {
            let message = |number: u32| match kind {
                "malformed" => malformed(&format!("{period}-{number}")),
                "unknown method" => unknown(&format!("{period}-{number}")),
                _ => within(400 * period + number),
            };
            (0..400).map(message).collect()
        };
        assert_only_the_stranger_is_heavy(&heavy_in_a_flood(1.0, |_| {}, flood));
    }
}

/// A stranger must not be able to fill the buffer with calls that the kernel never drops.
#[test]
fn a_flood_of_emergency_calls_is_dropped_and_those_of_others_are_not() {
    let sos = |call: &str| request("INVITE", "urn:service:sos", call, 1, "");
    let known =
        |period: u32| vec![invite(&format!("call-{period}")), sos(&format!("sos-{period}"))];
    let flood = |period: u32| (0..400).map(|call| sos(&format!("{period}-{call}"))).collect();
    let shedding = shedding_beside(10, known, 1.0, |_| {}, flood).pop().unwrap();
    let addresses = |networks: &[Network]| -> Vec<IpAddr> {
        networks.iter().map(|network| network.address).collect()
    };
    let stranger = [address(STRANGER).ip()];
    assert_eq!([&shedding.heavy, &shedding.unspared].map(|of| addresses(of)), [&stranger[..]; 2]);
    let dropped = |from: &str| {
        let drops = |n: &u32| shedding.drops(address(from).ip(), sos(&n.to_string()).as_bytes());
        (0..100).filter(drops).count()
    };
    assert!(dropped(STRANGER) > 50, "{:?}", shedding.shares);
    assert_eq!(dropped(CALLER), 0);
    let ends = |period: u32| if period < 10 { flood(period) } else { Vec::new() };
    let after = shedding_beside(60, known, 1.0, |_| {}, ends);
    assert!(!after[9].unspared.is_empty() && after[59].unspared.is_empty(), "the flood has ended");
    let never_ban = |settings: &mut Settings| {
        let spared = format!("{}/32", address(STRANGER).ip()).parse().unwrap();
        settings.overload.sources.never_ban = vec![spared];
    };
    let spared = shedding_beside(10, known, 1.0, never_ban, flood).pop().unwrap();
    assert!(spared.unspared.is_empty(), "a spared network stays spared");
}

/// The kernel does not drop emergency calls because of a flood from the same address.
#[test]
fn emergency_calls_behind_the_address_of_another_flood_are_spared() {
    let flood = |period: u32| {
        let sos = request("INVITE", "urn:service:sos", &format!("sos-{period}"), 1, "");
        (0..400).map(|call| invite(&format!("{period}-{call}"))).chain([sos]).collect()
    };
    let known = |period: u32| vec![invite(&format!("call-{period}"))];
    for shedding in shedding_beside(10, known, 1.0, |_| {}, flood) {
        assert!(shedding.unspared.is_empty(), "{shedding:?}");
    }
}

#[test]
fn invites_above_a_limit_make_their_source_heavy() {
    let limit = |settings: &mut Settings| {
        let from = "203.0.113.66/32".parse().unwrap();
        let (rate_cps, burst, per, then) = (1.0, 1, Per::Source, Excess::Reject);
        settings.overload.sources.limits = vec![SourceLimit { from, rate_cps, burst, per, then }];
    };
    let flood = |period: u32| (0..400).map(|call| invite(&format!("{period}-{call}"))).collect();
    assert_only_the_stranger_is_heavy(&heavy_in_a_flood(1.0, limit, flood));
}

// RFC 3261 §17.1.1.2: a correct caller sends at most seven copies of an INVITE. None of these
// INVITEs has a mark with so many packets that the mark is hot. In the second case the law admits
// all of them.
#[test]
fn many_invites_that_are_sent_again_and_again_make_their_source_heavy() {
    for share in [0.0, 1.0] {
        let flood =
            |_| (0..1_600).map(|number| invite(&format!("copy-{}", number % 200))).collect();
        assert_only_the_stranger_is_heavy(&heavy_in_a_flood(share, |_| {}, flood));
    }
}

/// If the copies of a flood counted as messages of the others, the kernel would drop the INVITEs of
/// all sources.
#[test]
fn a_flood_in_which_each_invite_comes_three_times_is_still_the_only_target() {
    let flood =
        |period: u32| (0..360).map(|number| invite(&format!("{period}-{}", number / 3))).collect();
    assert_only_the_stranger_is_heavy(&heavy_in_a_flood(0.1, |_| {}, flood));
}

/// If REGISTERs that are served did not count as served, each source would be above its share.
#[test]
fn in_a_flood_of_registers_only_the_stranger_is_heavy() {
    let register = |call: String| request("REGISTER", "sip:example.com", &call, 1, "");
    let of = |count: u32, name: &'static str| {
        move |period: u32| (0..count).map(|n| register(format!("{name}-{period}-{n}"))).collect()
    };
    let heavy = heavy_beside(of(15, "known"), 0.1, |_| {}, of(400, "flood"));
    // Later the flood is dropped, and this law rejects nine tenths of the other source's REGISTERs.
    assert_eq!(heavy[..2], [[address(STRANGER).ip()], [address(STRANGER).ip()]]);
}

/// If messages within a call counted as served although the law sheds them, the other source would
/// seem to be below its share of what is served. But nothing is served.
#[test]
fn messages_within_a_call_count_as_served_only_if_they_are_admitted() {
    let known = |period: u32| (0..20).map(|n| invite(&format!("call-{period}-{n}"))).collect();
    let flood = |period: u32| (0..400).map(|n| within(400 * period + n)).collect();
    for (scheme, is_other_heavy) in
        [(Scheme::Simplified { scaled: false }, false), (Scheme::Single, true)]
    {
        let settings = |settings: &mut Settings| settings.overload.gate.scheme = scheme.clone();
        let heavy = heavy_beside(known, 0.0, settings, flood);
        assert!(heavy[2].contains(&address(STRANGER).ip()), "{scheme:?}: {heavy:?}");
        let is_heavy = heavy[2].contains(&address(CALLER).ip());
        assert_eq!(is_heavy, is_other_heavy, "{scheme:?}: {heavy:?}");
    }
}

#[test]
fn an_address_that_others_share_is_not_spared() {
    // The proxy has the address of a back end, so a caller may have it too.
    let (flood, dropped) =
        flooded(|settings| settings.listeners[0].local = address("10.0.0.1:5060"));
    let drops = |from: &str| flood.drops(address(from).ip(), dropped[0].as_bytes());
    assert_eq!([BACKEND_A, BACKEND_B].map(drops), [true, false]);
}

/// Adjacent networks are joined, so they take only one place.
#[test]
fn as_many_networks_are_spared_as_the_kernel_has_room_for() {
    let spared = |step: usize| {
        let (flood, _) = flooded(|settings| {
            let net = |n: usize| format!("203.0.113.{}/32", n * step).parse().unwrap();
            settings.overload.sources.never_ban = (0..100).map(net).collect();
        });
        flood.spared.len()
    };
    assert_eq!(spared(2), Shedding::SPARED_MAX);
    // The network 203.0.113.0/26 and two more, and the two back ends.
    assert_eq!(spared(1), 5);
}
