//! Tests of datagrams that the kernel drops before they are read, and of their counts.

#![allow(clippy::disallowed_methods)] // Tests wait for real sockets.

mod cores;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cores::{Echo, Seen, peer, start, waiting};
use tidegate_io::*;
use tidegate_world::*;

/// Opens a group with a gate on a free port, with receive buffers of 100 kB.
fn gated(ip: &str, shards: u16, split: bool) -> Group {
    let address = SocketAddr::new(ip.parse().unwrap(), 0);
    let listen = Listen { shards, split, gate: true, ..Listen::new(address) };
    open(&Listen { receive_buffer: 100_000, ..listen }).unwrap()
}

fn share(share: f64) -> Shedding {
    Shedding { shares: [share; 2], ..Shedding::NONE }
}

/// Returns an INVITE of this length. INVITEs with different numbers differ.
fn invite(number: u32, len: usize) -> String {
    let text = format!("INVITE sip:a@b SIP/2.0\r\nVia: {number:08x}\r\n");
    format!("{text}{:pad$}", "", pad = len.saturating_sub(text.len()))
}

fn banned(ips: &[&str]) -> Shedding {
    Shedding { banned: ips.iter().map(|ip| ip.parse().unwrap()).collect(), ..Shedding::NONE }
}

/// Returns the datagrams that wait for a shard.
fn waiting_for(group: &Group, shard: u16) -> Vec<String> {
    let listener = group.listener(shard);
    let mut texts = waiting(listener.ordinary());
    for own in [listener.invite(), listener.response()] {
        texts.extend(own.map(waiting).unwrap_or_default());
    }
    texts
}

/// Floods a shard with datagrams while its gate changes a hundred times, and asserts that every
/// datagram is counted once.
fn every_datagram_is_counted_once(ip: &str, split: bool) {
    // More datagrams than fit into a buffer are sent before anything is read, so that the speed of
    // the reader does not matter.
    const EARLY: u64 = 2_000;
    const SENT: u64 = EARLY + 60_000;
    let group = gated(ip, 1, split);
    let gate = group.gate().unwrap().clone();
    let to = group.local();
    let (mut echo, sight) = Echo::new();
    echo.work = 2_000;
    let handoffs = Handoffs::alone().unwrap();
    let listeners = vec![group.listener(0)];
    let peer = peer(ip);
    for number in 0..EARLY {
        peer.send_to(invite(number as u32, 80).as_bytes(), to).unwrap();
    }
    let running = start(echo, Clock::start(), Limits::default(), listeners, handoffs);
    let flood = thread::spawn(move || {
        for number in EARLY..SENT {
            let text = if number % 3 == 0 { "BYE sip:a".into() } else { invite(number as u32, 80) };
            peer.send_to(text.as_bytes(), to).unwrap();
        }
    });
    let counters = &running.counters;
    let mut changes = 0;
    while changes < 100 || !flood.is_finished() {
        let bans = if changes % 10 == 9 { banned(&["192.0.2.1", ip]) } else { banned(&[]) };
        let wanted = Shedding { shares: [f64::from(changes % 5) / 4.0; 2], ..bans };
        gate.set(&wanted).unwrap();
        changes += 1;
        let seen = sight.try_iter().count();
        assert!(seen <= 2 * SENT as usize);
        thread::yield_now();
    }
    flood.join().unwrap();
    gate.clear().unwrap();
    // A core that changes its shedding by itself is asked only after the shard receives something.
    cores::peer(ip).send_to(b"BYE", to).unwrap();
    let counted = || counters.received() + counters.filtered.get() + counters.overflow.get();
    let patience = Instant::now() + Duration::from_secs(10);
    while counted() < SENT + 1 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counted(), SENT + 1);
    assert_eq!(gate.filtered(), counters.filtered.get());
    let each = [counters.received(), counters.filtered.get(), counters.overflow.get()];
    assert!(
        each.iter().all(|&n| n > 0),
        "received, filtered and overflow must all be above 0: {each:?}"
    );
    let (_, counters) = running.end();
    let counted = counters.received() + counters.filtered.get() + counters.overflow.get();
    assert_eq!(counted, SENT + 1);
}

#[test]
fn datagrams_are_received_filtered_or_overflow_during_any_change() {
    every_datagram_is_counted_once("127.0.0.1", true);
    every_datagram_is_counted_once("127.0.0.1", false);
    every_datagram_is_counted_once("::1", true);
}

#[test]
fn only_invites_that_found_a_full_buffer_are_reported_to_the_core() {
    for (text, is_reported) in [("BYE sip:a", false), ("SIP/2.0 200 OK", false), ("INVITE", true)] {
        let address = SocketAddr::new("127.0.0.1".parse().unwrap(), 0);
        let listen = Listen { gate: true, receive_buffer: 4_096, ..Listen::new(address) };
        let group = open(&listen).unwrap();
        let peer = peer("127.0.0.1");
        for _ in 0..1_000 {
            peer.send_to(text.as_bytes(), group.local()).unwrap();
        }
        let (echo, sight) = Echo::new();
        let load = Arc::clone(&echo.load);
        let handoffs = Handoffs::alone().unwrap();
        let listeners = vec![group.listener(0)];
        let running = start(echo, Clock::start(), Limits::default(), listeners, handoffs);
        cores::received(&peer);
        drop(sight);
        let (_, counters) = running.end();
        let (counted, reported) = (counters.overflow.get(), load.lock().unwrap().overflow);
        assert!(counted > 900, "{counted} {text}");
        assert_eq!(reported > 0, is_reported, "{reported} of {counted} {text}");
    }
}

/// Returns networks of these addresses and prefix lengths.
fn networks(written: &[(&str, u8)]) -> Vec<Network> {
    let network =
        |&(address, prefix): &(&str, u8)| Network { address: address.parse().unwrap(), prefix };
    written.iter().map(network).collect()
}

/// Sends 20 INVITEs and 20 BYEs of one peer to a gate with this shedding. Returns the number of
/// datagrams that pass, and the number that the gate drops.
fn passed_and_filtered(ip: &str, shedding: &Shedding) -> (usize, u64) {
    let group = gated(ip, 2, true);
    let gate = group.gate().unwrap();
    gate.set(shedding).unwrap();
    let peer = peer(ip);
    for number in 0..20 {
        peer.send_to(invite(number, 300).as_bytes(), group.local()).unwrap();
        peer.send_to(b"BYE sip:a", group.local()).unwrap();
    }
    let passed = waiting_for(&group, 0).len() + waiting_for(&group, 1).len();
    (passed, gate.filtered())
}

#[test]
fn the_share_does_not_apply_to_spared_networks() {
    for (ip, written, spares) in [
        ("127.0.0.1", &[("127.0.0.0", 8)][..], true),
        ("127.0.0.1", &[("192.0.2.0", 24), ("127.0.0.1", 32)], true),
        ("127.0.0.1", &[("0.0.0.0", 0)], true),
        ("127.0.0.1", &[("127.0.0.2", 32), ("126.0.0.0", 8), ("::1", 128), ("::", 0)], false),
        ("::1", &[("::1", 128)], true),
        ("::1", &[("2001:db8::", 32), ("::", 96)], true),
        ("::1", &[("::", 0)], true),
        ("::1", &[("::2", 128), ("1::", 16), ("0:0:1::", 48), ("127.0.0.1", 8)], false),
    ] {
        let shedding = Shedding { spared: networks(written), ..share(1.0) };
        let expected = if spares { (40, 0) } else { (20, 20) };
        assert_eq!(passed_and_filtered(ip, &shedding), expected, "{ip} {written:?}");
    }
}

/// Some networks of a long list share a jump in the program of the gate.
#[test]
fn a_network_is_spared_at_each_place_of_the_list() {
    for (own, others) in
        [("127.0.0.1", [10, 0, 0, 0].into()), ("::1", "2001:db8::".parse().unwrap())]
    {
        // A comparison with this prefix takes the largest number of instructions.
        let prefix = |ip: IpAddr| if ip.is_ipv4() { 31 } else { 127 };
        let network = |address: IpAddr| Network { address, prefix: prefix(address) };
        let group = gated(own, 1, true);
        let peer = peer(own);
        for place in 0..=Shedding::SPARED_MAX {
            let mut spared = vec![network(others); Shedding::SPARED_MAX];
            if let Some(at_place) = spared.get_mut(place) {
                *at_place = network(own.parse().unwrap());
            }
            group.gate().unwrap().set(&Shedding { spared, ..share(1.0) }).unwrap();
            peer.send_to(b"INVITE sip:a", group.local()).unwrap();
            let expected = usize::from(place < Shedding::SPARED_MAX);
            assert_eq!(waiting_for(&group, 0).len(), expected, "{own} at {place}");
        }
    }
}

#[test]
fn the_share_applies_only_to_heavy_networks() {
    for (ip, written, is_heavy) in [
        ("127.0.0.1", &[("127.0.0.1", 32)][..], true),
        ("127.0.0.1", &[("192.0.2.1", 32), ("127.0.0.1", 32), ("192.0.2.2", 32)], true),
        ("127.0.0.1", &[("127.0.0.2", 32), ("::1", 128)], false),
        ("127.0.0.1", &[("::", 64)], false),
        ("::1", &[("2001:db8::", 64), ("::", 64)], true),
        ("::1", &[("2001:db8::", 64), ("127.0.0.1", 32)], false),
    ] {
        let shedding = Shedding { heavy: networks(written), ..share(1.0) };
        let expected = if is_heavy { (20, 20) } else { (40, 0) };
        assert_eq!(passed_and_filtered(ip, &shedding), expected, "{ip} {written:?}");
    }
}

/// Emergency calls from an `unspared` network are dropped like other INVITEs: by the share, or by a
/// mark (the hash of the messages to drop), even if the share is 0.
#[test]
fn emergency_calls_are_dropped_only_from_networks_that_flood_with_them() {
    const SOS: &[u8] = b"INVITE urn:service:sos SIP/2.0\r\n";
    for (ip, written, is_dropped) in [
        ("127.0.0.1", &[("127.0.0.1", 32)][..], true),
        ("127.0.0.1", &[("192.0.2.1", 32), ("127.0.0.0", 8), ("192.0.2.2", 32)], true),
        ("127.0.0.1", &[("127.0.0.2", 32), ("::1", 128)], false),
        ("127.0.0.1", &[("::", 64)], false),
        ("::1", &[("2001:db8::", 64), ("::", 64)], true),
        ("::1", &[("2001:db8::", 64)], false),
        ("::1", &[("127.0.0.1", 32)], false),
    ] {
        let unspared = networks(written);
        let mark = Shedding::NONE.hash(ip.parse().unwrap(), SOS);
        for own in [share(1.0), Shedding { marks: vec![mark], ..Shedding::NONE }] {
            let group = gated(ip, 2, true);
            let gate = group.gate().unwrap();
            // One shard reports the flood, but the ports of the source are spread over both shards.
            gate.set(&own).unwrap();
            gate.set_of(1, &Shedding { unspared: unspared.clone(), ..own.clone() }).unwrap();
            for _ in 0..20 {
                peer(ip).send_to(SOS, group.local()).unwrap();
            }
            let waiting = waiting_for(&group, 0).len() + waiting_for(&group, 1).len();
            assert_eq!(waiting, if is_dropped { 0 } else { 20 }, "{ip} {written:?} {own:?}");
            assert_eq!(gate.filtered(), 20 - waiting as u64);
            // A spared network stays spared, and other INVITEs are dropped as before.
            let spared = vec![Network { address: ip.parse().unwrap(), prefix: 8 }];
            gate.set(&Shedding { unspared: unspared.clone(), spared, ..own }).unwrap();
            peer(ip).send_to(SOS, group.local()).unwrap();
            assert_eq!(waiting_for(&group, 0).len() + waiting_for(&group, 1).len(), 1);
            gate.set(&Shedding { unspared: unspared.clone(), ..share(1.0) }).unwrap();
            peer(ip).send_to(b"INVITE sip:a", group.local()).unwrap();
            assert_eq!(waiting_for(&group, 0).len() + waiting_for(&group, 1).len(), 0);
        }
    }
}

/// A shard that names no heavy source must not make another shard drop messages of all sources. The
/// other shard would not know of these drops, so its ladder could not correct them.
#[test]
fn the_share_of_a_shard_without_heavy_networks_applies_only_there() {
    const HEAVY: &str = "127.0.0.9";
    let heavy = Network { address: HEAVY.parse().unwrap(), prefix: 32 };
    for (of_first, of_second) in [(1.0, 1.0), (1.0, 0.01), (0.5, 1.0)] {
        let group = gated("127.0.0.1", 2, true);
        let gate = group.gate().unwrap();
        let wishes = [Shedding { heavy: vec![heavy], ..share(of_first) }, share(of_second)];
        for (shard, wish) in (0..).zip(&wishes) {
            gate.set_of(shard, wish).unwrap();
        }
        let mut reached = [0; 2];
        for ip in [HEAVY, "127.0.0.1"] {
            for number in 0..40 {
                let peer = peer(ip);
                peer.send_to(b"BYE sip:a", group.local()).unwrap();
                let shard = usize::from(waiting_for(&group, 0).is_empty());
                waiting_for(&group, 1);
                reached[shard] += 1;
                let invite = invite(number, 300);
                peer.send_to(invite.as_bytes(), group.local()).unwrap();
                let passes = waiting_for(&group, shard as u16).len() == 1;
                let from = peer.local_addr().unwrap().ip();
                assert_eq!(passes, !wishes[shard].drops(from, invite.as_bytes()), "{ip} {shard}");
                assert!(passes || shard == 1 || ip == HEAVY, "{ip} at the first shard");
            }
        }
        assert!(reached.iter().all(|&count| count > 0), "{reached:?}");
    }
}

#[test]
fn the_longest_program_fits_into_the_kernels_option_memory() {
    let nth = |n: u32| IpAddr::from(Ipv6Addr::from_bits(1 << 127 | u128::from(n) << 64 | 1));
    let banned = (0..Shedding::BANNED_MAX as u32).map(nth).collect();
    let spared = (0..Shedding::SPARED_MAX as u32)
        .map(|n| Network { address: nth(1_000 + n), prefix: 128 })
        .collect();
    let group = gated("::1", 2, true);
    let gate = group.gate().unwrap();
    let heavy: Vec<Network> = (0..Shedding::HEAVY_MAX as u32)
        .map(|n| Network { address: nth(2_000 + n), prefix: 64 })
        .collect();
    let unspared = heavy[..Shedding::UNSPARED_MAX].to_vec();
    let shares = |shares| Shedding { shares, ..Shedding::NONE };
    gate.set_of(0, &Shedding { heavy: heavy.clone(), ..shares([0.5, 0.7]) }).unwrap();
    gate.set_of(1, &Shedding { banned, spared, heavy, unspared, ..shares([0.6, 0.8]) }).unwrap();
}

#[test]
fn requested_shedding_drops_and_counts_even_if_nothing_else_arrives() {
    const SENT: u64 = 1_000;
    let groups = [gated("127.0.0.1", 1, true), gated("127.0.0.1", 1, true)];
    let (mut echo, sight) = Echo::new();
    echo.shedding = share(1.0);
    let listeners = groups.iter().map(|group| group.listener(0)).collect();
    let handoffs = Handoffs::alone().unwrap();
    let running = start(echo, Clock::start(), Limits::default(), listeners, handoffs);
    let peer = peer("127.0.0.1");
    // The shard asks the core for its shedding in the first turn, which is over when the core has
    // answered.
    peer.send_to(b"BYE", groups[0].local()).unwrap();
    cores::received(&peer);
    // After its last datagram, a shard looks for drops only for a shorter time than this.
    thread::sleep(Duration::from_millis(300));
    for number in 0..SENT {
        let to = groups[number as usize % 2].local();
        peer.send_to(invite(number as u32, 300).as_bytes(), to).unwrap();
    }
    let patience = Instant::now() + Duration::from_secs(10);
    while running.counters.filtered.get() < SENT && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.counters.filtered.get(), SENT, "before the shard ends");
    let (_, counters) = running.end();
    assert_eq!((counters.filtered.get(), counters.received()), (SENT, 1));
    assert_eq!((counters.overflow.get(), counters.shed_errors.get()), (0, 0));
    drop(sight);
}

#[test]
fn the_dropped_share_is_met_and_contains_only_invites() {
    const SENT: u32 = 20_000;
    for (split, wanted) in [(true, 0.3), (false, 0.9), (true, 0.01)] {
        let group = gated("127.0.0.1", 1, split);
        let gate = group.gate().unwrap();
        gate.set(&share(wanted)).unwrap();
        let peer = peer("127.0.0.1");
        for number in 0..SENT {
            peer.send_to(invite(number, 300).as_bytes(), group.local()).unwrap();
        }
        let filtered = gate.filtered();
        let deviation = (f64::from(SENT) * wanted * (1.0 - wanted)).sqrt();
        let off = filtered as f64 - f64::from(SENT) * wanted;
        assert!(off.abs() < 5.0 * deviation, "{filtered} of {SENT} at {wanted}");
        waiting_for(&group, 0);

        gate.set(&share(1.0)).unwrap();
        let texts =
            ["ACK sip:a", "INV", "\r\n\r\n", "", "invite sip:a", " INVITE", "SIP/2.0 200 OK"];
        let emergencies = ["INVITE urn:service:sos", "INVITE URN:Service:SOS.fire SIP/2.0"];
        let others = [
            "INVITE sip:a",
            "INVI",
            "INVITED",
            "INVITE urn:service:so",
            "INVITE urn:servixe:sos",
            "REGISTER sip:a",
        ];
        for text in texts.iter().chain(&emergencies).chain(&others) {
            peer.send_to(text.as_bytes(), group.local()).unwrap();
        }
        let mut passed = waiting_for(&group, 0);
        passed.sort_unstable();
        let mut expected = [&texts[..], &emergencies].concat();
        expected.sort_unstable();
        assert_eq!(passed, expected);
        assert_eq!(gate.filtered(), filtered + others.len() as u64);
    }
}

#[test]
fn the_kernel_drops_exactly_what_the_reference_selects_each_time() {
    for (split, key) in [(true, 0), (false, 0x1234_5678)] {
        let group = gated("127.0.0.1", 1, split);
        let shedding = Shedding { key, ..share(0.4) };
        group.gate().unwrap().set(&shedding).unwrap();
        let peer = peer("127.0.0.1");
        let from = peer.local_addr().unwrap().ip();
        for round in 0..2 {
            for number in 0..400 {
                let lens = [4, 8, 63, 64, 65, 127, 128, 191, 192, 255, 256, 257, 1_400];
                let mut text = invite(number, lens[number as usize % lens.len()]);
                text.truncate(lens[number as usize % lens.len()]);
                peer.send_to(text.as_bytes(), group.local()).unwrap();
                let passes = usize::from(!shedding.drops(from, text.as_bytes()));
                assert_eq!(waiting_for(&group, 0).len(), passes, "{text} in round {round}");
            }
        }
    }
}

/// A flood of INVITEs must not make the kernel drop REGISTERs, and a flood of REGISTERs must not
/// make it drop INVITEs.
#[test]
fn each_method_has_its_own_share_at_each_shard() {
    for ip in ["127.0.0.1", "::1"] {
        for shares in [
            [[0.0, 0.6], [0.0, 0.6]],
            [[0.6, 0.0], [0.6, 0.0]],
            [[1.0, 0.3], [1.0, 0.3]],
            [[0.2, 0.7], [0.8, 0.0]],
            [[0.0, 1.0], [0.5, 0.5]],
        ] {
            let group = gated(ip, 2, true);
            let wishes = shares.map(|shares| Shedding { shares, key: 7, ..Shedding::NONE });
            for (shard, wish) in (0..).zip(&wishes) {
                group.gate().unwrap().set_of(shard, wish).unwrap();
            }
            let mut passed = [[0; 2]; 2];
            for _ in 0..8 {
                let peer = peer(ip);
                let from = peer.local_addr().unwrap().ip();
                peer.send_to(b"BYE sip:a", group.local()).unwrap();
                let shard = usize::from(waiting_for(&group, 0).is_empty());
                waiting_for(&group, 1);
                for number in 0..50 {
                    let invite = invite(number, 300);
                    let register = invite.replace("INVITE", "REGISTER");
                    for (method, text) in [invite, register].iter().enumerate() {
                        peer.send_to(text.as_bytes(), group.local()).unwrap();
                        let passes = waiting_for(&group, shard as u16).len();
                        let expected = usize::from(!wishes[shard].drops(from, text.as_bytes()));
                        assert_eq!(passes, expected, "{text} at {shard} with {shares:?}");
                        passed[shard][method] += passes;
                    }
                }
            }
            for (shares, passed) in shares.iter().zip(passed) {
                assert!(passed[0] > 0 || shares[0] == 1.0 || passed == [0; 2], "{passed:?}");
                assert!(passed[1] > 0 || shares[1] == 1.0 || passed == [0; 2], "{passed:?}");
            }
        }
    }
}

#[test]
fn invites_with_one_of_the_marks_are_dropped_and_no_others() {
    for ip in ["127.0.0.1", "::1"] {
        for share in [0.0, 0.3] {
            let group = gated(ip, 2, true);
            let gate = group.gate().unwrap();
            let peer = peer(ip);
            let from = peer.local_addr().unwrap().ip();
            let key = 0x8765_4321;
            let shedding = Shedding { shares: [share; 2], key, ..Shedding::NONE };
            let passes = |number: &u32| !shedding.drops(from, invite(*number, 300).as_bytes());
            let passing: Vec<u32> = (0..200).filter(passes).collect();
            let mark = |number: &u32| shedding.hash(from, invite(*number, 300).as_bytes());
            let marked = &passing[passing.len() - Shedding::MARKS_MAX..];
            let marks: Vec<u32> = marked.iter().map(mark).collect();
            // A hash that one shard finds hot is dropped at all shards.
            gate.set(&shedding).unwrap();
            gate.set_of(1, &Shedding { marks, ..shedding.clone() }).unwrap();
            for number in 0..200 {
                peer.send_to(invite(number, 300).as_bytes(), group.local()).unwrap();
                let got = waiting_for(&group, 0).len() + waiting_for(&group, 1).len();
                let expected = passing.contains(&number) && !marked.contains(&number);
                assert_eq!(got, usize::from(expected), "{ip} {number}");
            }
        }
    }
}

#[test]
fn a_banned_source_gets_no_invite_through_and_others_everything() {
    for (ip, others, bans) in [
        ("127.0.0.1", "127.0.0.2", &["127.0.0.2", "2001:db8::1"][..]),
        ("127.0.0.1", "127.0.0.2", &["192.0.2.1", "::ffff:127.0.0.2"]),
        ("::1", "::1", &["127.0.0.1", "::1"]),
    ] {
        let group = gated(ip, 1, true);
        let gate = group.gate().unwrap();
        let [free, caught] = [ip, others].map(peer);
        for text in ["INVITE", "BYE", ""] {
            caught.send_to(text.as_bytes(), group.local()).unwrap();
        }
        assert_eq!(waiting_for(&group, 0).len(), 3);
        gate.set(&banned(bans)).unwrap();
        for text in ["INVITE", "BYE", "", "INVITE sip:b", "ACK", "SIP/2.0 200"] {
            caught.send_to(text.as_bytes(), group.local()).unwrap();
        }
        assert_eq!(waiting_for(&group, 0), ["BYE", "", "ACK", "SIP/2.0 200"]);
        assert_eq!(gate.filtered(), 2);
        gate.set(&banned(&["192.0.2.1", "::2", "0:0:0:1::1"])).unwrap();
        for text in ["INVITE", "BYE", ""] {
            free.send_to(text.as_bytes(), group.local()).unwrap();
        }
        assert_eq!((waiting_for(&group, 0).len(), gate.filtered()), (3, 2));
    }
}

#[test]
fn the_maximum_number_of_sources_is_banned_and_no_more() {
    for (ip, nth) in [
        ("127.0.0.1", (|n| IpAddr::from([127, 0, 4, n])) as fn(u8) -> IpAddr),
        ("::1", |n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()])),
    ] {
        let group = gated(ip, 2, true);
        let gate = group.gate().unwrap();
        let mut banned: Vec<IpAddr> = (1..=100).map(nth).collect();
        let here: IpAddr = ip.parse().unwrap();
        let last = Shedding::BANNED_MAX - 1;
        for (place, through) in [(last, 0), (last + 1, 1)] {
            let passed = std::mem::replace(&mut banned[place], here);
            gate.set(&Shedding { banned: banned.clone(), ..Shedding::NONE }).unwrap();
            banned[place] = passed;
            peer(ip).send_to(b"INVITE", group.local()).unwrap();
            let got = (0..2).map(|shard| waiting_for(&group, shard).len()).sum::<usize>();
            assert_eq!(got, through, "{ip} at {place}");
        }
    }
}

#[test]
fn each_shard_sheds_its_own_share_and_a_ban_applies_to_all() {
    const SHARDS: u16 = 3;
    let group = gated("127.0.0.1", SHARDS, true);
    let gate = group.gate().unwrap();
    let mut peers: Vec<Vec<UdpSocket>> = (0..SHARDS).map(|_| Vec::new()).collect();
    while peers.iter().any(Vec::is_empty) {
        let peer = peer("127.0.0.1");
        peer.send_to(b"ACK", group.local()).unwrap();
        let shard = (0..SHARDS).find(|&shard| !waiting_for(&group, shard).is_empty()).unwrap();
        peers[usize::from(shard)].push(peer);
    }
    let got_by_each = || -> Vec<usize> {
        for of_shard in &peers {
            for number in 0..50 {
                of_shard[0].send_to(invite(number, 300).as_bytes(), group.local()).unwrap();
            }
            of_shard[0].send_to(b"BYE", group.local()).unwrap();
        }
        (0..SHARDS).map(|shard| waiting_for(&group, shard).len()).collect()
    };
    assert_eq!(got_by_each(), [51, 51, 51]);
    gate.set_of(2, &share(1.0)).unwrap();
    assert_eq!(got_by_each(), [51, 51, 1]);
    gate.set_of(1, &share(0.5)).unwrap();
    let got = got_by_each();
    // The chance that all or none of the fifty are shed is 2^-49.
    assert!(got[0] == 51 && (2..51).contains(&got[1]) && got[2] == 1, "{got:?}");
    gate.set_of(2, &Shedding::NONE).unwrap();
    gate.set_of(0, &share(1.0)).unwrap();
    let [first, second, third] = got_by_each()[..] else { unreachable!("three shards") };
    assert_eq!((first, second, third), (1, got[1], 51));
    gate.set_of(1, &banned(&["127.0.0.1"])).unwrap();
    assert_eq!(got_by_each(), [1, 1, 1], "the BYE alone");
    gate.clear().unwrap();
    assert_eq!(got_by_each(), [51, 51, 51]);
}

#[test]
fn the_largest_program_is_accepted() {
    let group = gated("::1", 128, true);
    let gate = group.gate().unwrap();
    let bans = (0..64).map(|n| IpAddr::from([n, n, 3, 4, 5, 6, 7, n])).collect();
    gate.set(&Shedding { banned: bans, ..share(0.5) }).unwrap();
    for shard in 0..128 {
        gate.set_of(shard, &share(0.4 + f64::from(shard) / 1000.0)).unwrap();
    }
}

#[test]
fn reports_that_come_to_a_sink_reach_the_core() {
    // The kernel limits the ICMP reports a second of all programs together, so other tests may have
    // used them up. And a port that was closed may be reused at once.
    const ATTEMPTS: usize = 10;
    for split in [true, false] {
        assert!((0..ATTEMPTS).any(|_| every_report_came(split)), "split: {split}");
    }
}

/// Lets a core echo datagrams to peers that are closed. Returns whether the core gets a failure for
/// each of them.
fn every_report_came(split: bool) -> bool {
    const PEERS: usize = 30;
    let group = gated("127.0.0.1", 1, split);
    // The peers are closed before they are answered. The kernel selects a socket by their ports.
    for _ in 0..PEERS {
        peer("127.0.0.1").send_to(b"BYE", group.local()).unwrap();
    }
    let (echo, sight) = Echo::new();
    let listeners = vec![group.listener(0)];
    let handoffs = Handoffs::alone().unwrap();
    let running = start(echo, Clock::start(), Limits::default(), listeners, handoffs);
    let mut failures = 0;
    while failures < PEERS
        && let Ok(seen) = sight.recv_timeout(Duration::from_secs(2))
    {
        failures += usize::from(matches!(seen, Seen::Failed(_)));
    }
    running.end();
    failures == PEERS
}
