use super::*;

const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn share(share: f64) -> Shedding {
    Shedding { shares: [share; 2], ..Shedding::NONE }
}

/// Returns INVITEs that differ in their branch alone.
fn invites() -> impl Iterator<Item = String> {
    let via = "Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK";
    (0..10_000).map(move |n| format!("INVITE sip:a@b SIP/2.0\r\n{via}{n}\r\n{:300}", ""))
}

// RFC 5031 §4.2 registers `urn:service:sos`. RFC 8141 §3.1 and RFC 5031 §3 compare it without
// regard to case.
#[test]
fn emergency_calls_are_never_dropped_by_the_share() {
    let invite = |uri: &str| format!("INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1\r\n");
    for uri in ["urn:service:sos", "URN:Service:SOS.fire"] {
        assert!(!share(1.0).drops(SOURCE, invite(uri).as_bytes()), "{uri}");
    }
    for uri in ["urn:service:so", "urn:service:counseling", "sip:sos@urn:service", ""] {
        assert!(share(1.0).drops(SOURCE, invite(uri).as_bytes()), "{uri}");
    }
    assert!(share(1.0).drops(SOURCE, b"INVITE urn:service:so"), "cut off");
    let banned = Shedding { banned: vec![SOURCE], ..share(1.0) };
    assert!(banned.drops(SOURCE, invite("urn:service:sos").as_bytes()));
}

#[test]
fn emergency_calls_of_a_source_that_floods_with_them_are_dropped_like_others() {
    let sos = b"INVITE urn:service:sos SIP/2.0\r\n";
    let [flooding, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    let network = |address| Network { address, prefix: 32 };
    let unspared = vec![network(flooding)];
    let drops = |shedding: &Shedding| [flooding, other].map(|from| shedding.drops(from, sos));
    let all = Shedding { unspared: unspared.clone(), ..share(1.0) };
    assert_eq!(drops(&all), [true, false]);
    assert_eq!(drops(&Shedding { unspared: unspared.clone(), ..share(0.0) }), [false, false]);
    let marks = [flooding, other].map(|from| Shedding::NONE.hash(from, sos)).to_vec();
    let marked = Shedding { marks, unspared: unspared.clone(), ..Shedding::NONE };
    assert_eq!(drops(&marked), [true, false]);
    let of_other = Shedding { heavy: vec![network(other)], ..all.clone() };
    assert_eq!(drops(&of_other), [false, false], "the share does not apply to the source");
    let spared = Shedding { spared: unspared, ..all.clone() };
    assert_eq!(drops(&spared), [false, false], "a spared network stays spared");
    let nth = |n: u8| network([192, 0, 2, n].into());
    let many = Shedding { unspared: (3..7).chain([1]).map(nth).collect(), ..all };
    assert_eq!(drops(&many), [false, false], "there is room for four");
}

/// Anybody can send a datagram from a forged address, but nobody can open a connection from one.
#[test]
fn emergency_calls_on_streams_are_not_dropped_because_of_datagrams() {
    let [sos, other] = [&b"INVITE urn:service:sos SIP/2.0\r\n"[..], b"INVITE sip:a SIP/2.0\r\n"];
    let unspared = vec![Network { address: SOURCE, prefix: 32 }];
    let marks = [sos, other].map(|bytes| Shedding::NONE.hash(SOURCE, bytes)).to_vec();
    let marked = Shedding { marks, unspared: unspared.clone(), ..Shedding::NONE };
    for shedding in [Shedding { unspared, ..share(1.0) }, marked] {
        let drops_by_share = |transport, bytes| shedding.drops_by_share(transport, SOURCE, bytes);
        assert!(drops_by_share(Transport::Udp, sos));
        for transport in [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss] {
            assert!(
                !drops_by_share(transport, sos) && drops_by_share(transport, other),
                "{transport:?}"
            );
        }
    }
}

#[test]
fn the_share_applies_to_invites_and_registers_only() {
    let all = share(1.0);
    for (bytes, dropped) in [
        (&b"INVITE sip:a"[..], true),
        (b"INVI", true),
        (b"INV", false),
        (b"REGISTER sip:a", true),
        (b"OPTIONS sip:a", false),
        (b"ACK sip:a", false),
        (b"BYE sip:a", false),
        (b"NOTIFY sip:a", false),
        (b"SIP/2.0 200 OK", false),
        (b"", false),
    ] {
        assert_eq!(all.drops(SOURCE, bytes), dropped, "{bytes:?}");
        for none in [0.0, -1.0, f64::NAN, 1e-11] {
            assert!(!share(none).drops(SOURCE, bytes));
        }
    }
}

#[test]
fn each_method_has_its_own_share() {
    for (shares, dropped) in [([1.0, 0.0], [true, false]), ([0.0, 1.0], [false, true])] {
        let shedding = Shedding { shares, ..Shedding::NONE };
        let drops = |bytes: &[u8]| shedding.drops(SOURCE, bytes);
        assert_eq!([&b"INVITE sip:a"[..], b"REGISTER sip:a"].map(drops), dropped);
        assert!(shedding.has_share());
    }
}

#[test]
fn the_share_is_met_and_a_larger_share_includes_a_smaller_one() {
    let dropped = |of: f64, key: u32| -> Vec<String> {
        let shedding = Shedding { key, ..share(of) };
        invites().filter(|text| shedding.drops(SOURCE, text.as_bytes())).collect()
    };
    for (of, key) in [(0.1f64, 0), (0.5, 7), (0.97, u32::MAX)] {
        let deviation = (10_000.0 * of * (1.0 - of)).sqrt();
        let off = dropped(of, key).len() as f64 - 10_000.0 * of;
        assert!(off.abs() < 5.0 * deviation, "{off} at {of}");
    }
    let (few, many) = (dropped(0.3, 1), dropped(0.6, 1));
    assert!(few.iter().all(|text| many.contains(text)));
    // With another key, three tenths of these datagrams are dropped too.
    let other = dropped(0.3, 2);
    let both = few.iter().filter(|text| other.contains(text)).count();
    assert!((700..1_100).contains(&both), "{both}");
}

// RFC 3261 §8.1.1.7: the branch is unique to the request, and short INVITEs have one too.
#[test]
fn the_share_is_met_by_invites_of_any_length() {
    for length in (130..=300).step_by(10) {
        let invite = |call: u32| {
            let via = format!("Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK{call:08}");
            let start = format!("INVITE sip:someone@example.com SIP/2.0\r\n{via}\r\n");
            format!("{start:-<length$}")
        };
        let drops = |call: &u32| share(0.5).drops(SOURCE, invite(*call).as_bytes());
        let dropped = (0..1000).filter(drops).count();
        assert!((400..600).contains(&dropped), "{dropped} of {length} bytes");
    }
}

#[test]
fn datagrams_with_one_of_the_marks_are_dropped_and_no_others() {
    let [alike, other] = [300, 700].map(|branch| {
        move |call: u32| format!("INVITE sip:a SIP/2.0\r\nVia: {branch}{:300}{call}", "")
    });
    let mark = Shedding::NONE.hash(SOURCE, alike(0).as_bytes());
    let shedding = Shedding { marks: vec![1, mark], ..Shedding::NONE };
    for call in 0..100 {
        assert!(shedding.drops(SOURCE, alike(call).as_bytes()));
        assert!(!shedding.drops(SOURCE, other(call).as_bytes()));
        assert!(!shedding.drops([192, 0, 2, 2].into(), alike(call).as_bytes()));
    }
    let beyond = (0..Shedding::MARKS_MAX as u32).chain([mark]).collect();
    let shedding = Shedding { marks: beyond, ..Shedding::NONE };
    assert!(!shedding.drops(SOURCE, alike(0).as_bytes()));
}

#[test]
fn a_datagram_that_passes_need_not_pass_from_another_address() {
    let text = invites().find(|text| !share(0.5).drops(SOURCE, text.as_bytes())).unwrap();
    for addresses in [
        (0..250).map(|n| IpAddr::from([198, 51, 100, n])).collect::<Vec<_>>(),
        (0..250).map(|n| IpAddr::from([0x2001, 0xdb8, 0, n, 0, 0, 0, 1])).collect(),
    ] {
        let drops = |&&source: &&IpAddr| share(0.5).drops(source, text.as_bytes());
        let dropped = addresses.iter().filter(drops).count() as f64 / addresses.len() as f64;
        assert!((0.3..0.7).contains(&dropped), "{dropped}");
    }
}

#[test]
fn a_ban_holds_for_every_form_of_an_address() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let banned = vec![ip("::ffff:192.0.2.1"), ip("2001:db8::1")];
    let shedding = Shedding { banned, ..Shedding::NONE };
    for (source, dropped) in [
        ("192.0.2.1", true),
        ("::ffff:192.0.2.1", true),
        ("2001:db8::1", true),
        ("192.0.2.2", false),
        ("2001:db8::2", false),
    ] {
        assert_eq!(shedding.drops(ip(source), b"INVITE sip:a"), dropped, "{source}");
        for finishing in ["BYE sip:a", "ACK sip:a", "SIP/2.0 200 OK", "INV", ""] {
            assert!(!shedding.drops(ip(source), finishing.as_bytes()), "{source}");
        }
    }
}

#[test]
fn the_share_does_not_apply_to_spared_networks_and_a_ban_does() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let network = |text: &str, prefix| Network { address: ip(text), prefix };
    let spared =
        vec![network("192.0.2.16", 28), network("2001:db8::", 33), network("10.0.0.1", 32)];
    let shedding = Shedding { spared, banned: vec![ip("192.0.2.18")], ..share(1.0) };
    for (source, dropped) in [
        ("192.0.2.16", false),
        ("192.0.2.31", false),
        ("::ffff:192.0.2.31", false),
        ("192.0.2.32", true),
        ("192.0.2.15", true),
        ("192.0.2.18", true),
        ("10.0.0.1", false),
        ("10.0.0.0", true),
        ("2001:db8:7fff::1", false),
        ("2001:db8:8000::1", true),
        ("2001:db9::", true),
    ] {
        assert_eq!(shedding.drops(ip(source), b"INVITE sip:a"), dropped, "{source}");
    }
    let all = Shedding { spared: vec![network("0.0.0.0", 0)], ..share(1.0) };
    assert!(!all.drops(ip("192.0.2.1"), b"INVITE") && all.drops(ip("2001:db8::1"), b"INVITE"));
}

#[test]
fn the_share_applies_only_to_heavy_networks_if_there_are_any() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let network = |text: &str, prefix| Network { address: ip(text), prefix };
    let heavy = vec![network("192.0.2.7", 32), network("2001:db8:0:1::", 64)];
    let spared = vec![network("2001:db8:0:1::7", 128)];
    let shedding = Shedding { heavy, spared, banned: vec![ip("192.0.2.8")], ..share(1.0) };
    for (source, dropped) in [
        ("192.0.2.7", true),
        ("::ffff:192.0.2.7", true),
        ("192.0.2.6", false),
        ("192.0.2.8", true),
        ("2001:db8:0:1::8", true),
        ("2001:db8:0:1::7", false),
        ("2001:db8::8", false),
    ] {
        assert_eq!(shedding.drops(ip(source), b"INVITE sip:a"), dropped, "{source}");
    }
    // A mark applies to datagrams of all sources, even if they are not heavy.
    let mark = shedding.hash(ip("192.0.2.6"), b"INVITE sip:a");
    let marked = Shedding { marks: vec![mark], ..shedding };
    assert!(marked.drops(ip("192.0.2.6"), b"INVITE sip:a"));
    let nth = |n: u8| Network { address: IpAddr::from([198, 51, 100, n]), prefix: 32 };
    let many = Shedding { heavy: (0..13).map(nth).collect(), ..share(1.0) };
    assert!(many.drops(ip("192.0.2.6"), b"INVITE sip:a"), "too many networks to list");
}

#[test]
fn there_are_no_more_bans_than_the_limit() {
    let nth = |n: u8| IpAddr::from([192, 0, 2, n]);
    let shedding = Shedding { banned: (0..100).map(nth).collect(), ..Shedding::NONE };
    assert!(shedding.drops(nth(63), b"INVITE") && !shedding.drops(nth(64), b"INVITE"));
}
