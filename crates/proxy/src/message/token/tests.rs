use super::*;
use crate::keys::{Secret, TokenKey, TokenKeys};

/// Makes keys whose version equals their bytes.
fn keys(current: u8, others: &[u8]) -> Keys {
    let key = |byte: u8| TokenKey { version: byte.into(), key: [byte; 32] };
    let others = others.iter().map(|&byte| key(byte)).collect();
    let tokens = TokenKeys { current: key(current), others };
    Keys::new(&Secret { tokens, ..Secret::of([9; 32]) }, 0)
}

const MADE: Minutes = Minutes(30_000_000);

fn tokens() -> [RouteToken; 3] {
    let token = |backend: &str, peer: Option<&str>| RouteToken {
        shard: 7,
        backend: backend.parse().unwrap(),
        transport: Transport::Udp,
        made: MADE,
        peer: peer.map(|peer| PeerFlow {
            listener: 3,
            remote: peer.parse().unwrap(),
            connection: None,
            is_elsewhere: false,
            local: None,
            is_translated: true,
            has_other_port: false,
            is_registered: false,
        }),
        is_user: false,
    };
    let v6 = token("[2001:db8::1]:5070", Some("[2001:db8::2]:1028"));
    let connected = PeerFlow { connection: ConnectionId::new(u32::MAX), ..v6.peer.unwrap() };
    [
        token("10.1.2.3:5070", Some("192.0.2.4:1027")),
        token("10.1.2.3:5070", None),
        RouteToken { transport: Transport::Wss, peer: Some(connected), ..v6 },
    ]
}

#[test]
fn back_end_and_peer_may_be_of_either_family() {
    let [v4, _, v6] = tokens();
    let user = RouteToken { is_user: true, ..v4 };
    let registered = PeerFlow { is_registered: true, ..v4.peer.unwrap() };
    let registered = RouteToken { peer: Some(registered), ..v4 };
    let asked = |token: RouteToken, local: &str| {
        let local = local.parse().ok();
        let peer = PeerFlow { connection: None, local, ..token.peer.unwrap() };
        RouteToken { peer: Some(peer), ..token }
    };
    let other_port = PeerFlow { has_other_port: true, ..v4.peer.unwrap() };
    let mixed = [
        RouteToken { peer: Some(other_port), ..v4 },
        asked(v4, "192.0.2.9"),
        asked(v6, "2001:db8::9"),
        RouteToken { peer: v6.peer, ..v4 },
        RouteToken { peer: v4.peer, ..v6 },
        user,
        registered,
    ];
    for token in mixed {
        let text = token.encode(&keys(1, &[]), b"c");
        assert_eq!(RouteToken::decode(&text, &keys(1, &[]), b"c"), Some(token));
    }
}

#[test]
fn the_connection_of_another_process_is_none_of_ours() {
    let [.., connected] = tokens();
    let text = connected.encode(&keys(1, &[]), b"c");
    let mut next = keys(1, &[]);
    next.process = [0xff; 3];
    let read = RouteToken::decode(&text, &next, b"c").unwrap();
    let peer = connected.peer.unwrap();
    let elsewhere = PeerFlow { connection: None, is_elsewhere: true, ..peer };
    assert_eq!(read.peer, Some(elsewhere));
}

#[test]
fn decodes_for_its_own_call_only() {
    for token in tokens() {
        let text = token.encode(&keys(1, &[]), b"call-1");
        assert_eq!(RouteToken::decode(&text, &keys(1, &[]), b"call-1"), Some(token));
        assert_eq!(RouteToken::decode(&text, &keys(1, &[]), b"call-2"), None);
        assert_eq!(RouteToken::decode(&text, &keys(2, &[]), b"call-1"), None);
    }
}

#[test]
fn a_rotated_key_is_still_read_and_no_longer_written() {
    for token in tokens() {
        let old = token.encode(&keys(1, &[]), b"c");
        let rotated = keys(2, &[1]);
        assert_eq!(RouteToken::decode(&old, &rotated, b"c"), Some(token));
        assert_eq!(token.encode(&rotated, b"c"), token.encode(&keys(2, &[]), b"c"));
    }
}

#[test]
fn a_key_is_read_before_it_is_written_and_after() {
    let mut instance = keys(1, &[2]);
    for token in tokens() {
        let early = token.encode(&keys(2, &[1]), b"c");
        assert_eq!(RouteToken::decode(&early, &instance, b"c"), Some(token), "the next one");
    }
    let before = tokens().map(|token| token.encode(&instance, b"c"));
    instance.rekey(&TokenKeys {
        current: TokenKey { version: 2, key: [2; 32] },
        others: vec![TokenKey { version: 1, key: [1; 32] }],
    });
    for (token, before) in tokens().into_iter().zip(before) {
        assert_eq!(token.encode(&instance, b"c"), token.encode(&keys(2, &[]), b"c"));
        assert_eq!(RouteToken::decode(&before, &instance, b"c"), Some(token));
        assert_eq!(RouteToken::decode(&before, &keys(2, &[3]), b"c"), None, "it is gone");
    }
}

#[test]
fn a_key_of_the_same_mark_is_another_key() {
    for token in tokens() {
        let text = token.encode(&keys(1, &[]), b"c");
        let mut other = keys(1, &[]);
        let key = TokenKey { version: 1 + 256, key: [3; 32] };
        other.rekey(&TokenKeys { current: key, others: Vec::new() });
        assert_eq!(RouteToken::decode(&text, &other, b"c"), None);
    }
}

#[test]
fn each_of_several_keys_is_found_by_its_mark() {
    const ALL: [u8; 8] = [0, 1, 7, 8, 9, 200, 254, 255];
    let instance = keys(200, &[255, 254, 9, 8, 7, 1, 0]);
    for token in tokens() {
        for made_by in 0..=255 {
            let text = token.encode(&keys(made_by, &[]), b"c");
            let known = ALL.contains(&made_by).then_some(token);
            assert_eq!(RouteToken::decode(&text, &instance, b"c"), known, "{made_by}");
        }
        assert_eq!(token.encode(&instance, b"c"), token.encode(&keys(200, &[]), b"c"));
    }
}

#[test]
fn a_forged_token_is_none() {
    for token in tokens() {
        let text = token.encode(&keys(1, &[]), b"c");
        for i in 0..text.len() {
            let mut forged = text.clone();
            forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(RouteToken::decode(&forged, &keys(1, &[]), b"c"), None);
            assert_eq!(RouteToken::decode(&text[..i], &keys(1, &[]), b"c"), None);
        }
        let long = [&text[..], b"AAAAAAAAAAAAAAAAAAAAAAAA"].concat();
        assert_eq!(RouteToken::decode(&long, &keys(1, &[]), b"c"), None);
    }
}

#[test]
fn the_longest_token_fills_its_text() {
    let [.., longest] = tokens();
    let local = "2001:db8::3".parse().ok();
    let peer = PeerFlow { connection: None, local, ..longest.peer.unwrap() };
    let longest = RouteToken { peer: Some(peer), ..longest };
    let text = longest.encode(&keys(1, &[]), b"c");
    assert_eq!(text.len(), text.capacity());
}

/// 10.1.2.3:5070 and 192.0.2.4:1027.
const ADDRESSES: [u8; 12] = [10, 1, 2, 3, 0x13, 0xce, 192, 0, 2, 4, 4, 3];

#[test]
fn the_wire_shows_neither_address_nor_shard_nor_time() {
    let [token, ..] = tokens();
    let raw = |token: &RouteToken, call: &[u8]| {
        let text = token.encode(&keys(1, &[]), call);
        let mut raw = [0; RAW_MAX];
        let len = decode(&text, &mut raw).unwrap();
        raw[..len].to_vec()
    };
    let shown = raw(&token, b"c");
    assert_eq!(shown, raw(&token, b"c"), "the same for a repetition");
    assert_eq!(shown[..HEAD], [VERSION, 1]);
    let content = [&[7][..], &MADE.0.to_be_bytes(), &[IS_TRANSLATED, 3], &ADDRESSES].concat();
    for other in [
        raw(&token, b"d"),
        raw(&RouteToken { shard: 8, ..token }, b"c"),
        [&[VERSION, 1], &content[..], &[0; MAC]].concat(),
    ] {
        assert_eq!(other.len(), shown.len());
        let same = (HEAD..HEAD + content.len()).filter(|&i| other[i] == shown[i]).count();
        assert!(same <= 3, "{same} bytes of {} in common", content.len());
    }
}

#[test]
fn a_token_of_a_day_ago_is_too_old_and_one_of_tomorrow_is_not() {
    let [token, ..] = tokens();
    let is_fresh = |now: u32| token.is_fresh(Minutes(now));
    assert!(is_fresh(MADE.0) && is_fresh(MADE.0 + 24 * 60) && !is_fresh(MADE.0 + 24 * 60 + 1));
    assert!(is_fresh(MADE.0 - 1_000_000) && is_fresh(0), "our clock was set back, or never");
    let unset = RouteToken { made: Minutes(5), ..token };
    assert!(unset.is_fresh(MADE), "its maker's clock was not set");
    let start = Duration::from_secs(u64::from(MADE.0) * 60 + 59);
    assert_eq!(Minutes::at(start, Timestamp::ZERO), MADE);
    assert_eq!(Minutes::at(start, Timestamp::from_nanos(1_000_000_000)).0, MADE.0 + 1);
}

#[test]
fn a_token_of_the_previous_version_is_still_read() {
    let [token, ..] = tokens();
    let keys = keys(1, &[]);
    let mut raw = vec![VERSION_WITHOUT_AGE, 1, 7, 10, 1, 2, 3, 0x13, 0xce];
    raw.extend(keys.token().1.mac.hash(&[&raw, b"c"]).to_be_bytes());
    let mut text = [0; ENCODED_MAX];
    let len = encode(&raw, &mut text);
    let text = &text[..len];
    let read = RouteToken::decode(text, &keys, b"c");
    assert_eq!(read, Some(RouteToken { made: Minutes(0), peer: None, ..token }));
    assert_eq!(RouteToken::decode(text, &keys, b"d"), None);
}
