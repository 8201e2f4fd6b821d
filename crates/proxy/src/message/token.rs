//! The route token: the user part of our Record-Route URI.
//!
//! The token holds the address of the dialog's back end, the shard that counts the call, the minute
//! when the token was made, and the flow (RFC 5626 §5.2) of the peer: the party of the dialog that
//! is not the back end. It also names the key of its MAC, because keys are rotated. An in-dialog
//! request carries the token back in its Route (RFC 3261 §12.2.1.1), so the request finds its back
//! end after a restart, or at another instance with the same secret. The MAC also covers the
//! Call-ID, so a token from one call is not valid in another call. [After a day](AGE_MAX) the token
//! alone proves nothing, because its call may be over. A token gives no right to reach its address:
//! the request is forwarded only to a back end that is configured, or was until recently.
//! Everything except version and key is encrypted ([`Keyed::veil`]), so that the addresses behind
//! us stay hidden.
//!
//! [`Keyed::veil`]: crate::keys::Keyed::veil

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_world::{ConnectionId, Timestamp, Transport};

use crate::keys::text64::{decode, encode, text_len};
use crate::keys::{CONNECTION_NAME, Keys};

const VERSION: u8 = 4;
/// Version of route tokens without the flow of the peer.
const VERSION_WITHOUT_PEER: u8 = 3;
/// Version of route tokens that are not encrypted and have no time.
const VERSION_WITHOUT_AGE: u8 = 2;
/// Length in bytes of the version of a token and of the mark that names its key.
const HEAD: usize = 2;
/// Length in bytes of the shard, the minute, the byte `kind` and the listener in a token.
const FIXED: usize = 1 + 4 + 1 + 1;
/// Length of an IPv6 address and port in bytes.
pub(super) const ADDRESS_MAX: usize = 16 + 2;
const MAC: usize = 8;
/// Maximum length in bytes of the last part of a token before the MAC: the name of a connection, or
/// a local address.
pub(super) const END_MAX: usize = 16;
const _: () = assert!(CONNECTION_NAME <= END_MAX, "a connection fits");
const RAW_MAX: usize = HEAD + FIXED + 2 * ADDRESS_MAX + END_MAX + MAC;

/// Bit of the byte `kind` of a token: the address of the back end is an IPv6 address.
const BACKEND_V6: u8 = 1;
/// Bit of `kind`: the address of the peer is an IPv6 address. The peer is the party of the dialog
/// that is not the back end.
const PEER_V6: u8 = 2;
/// Bit of `kind`: the peer is behind address translation.
const IS_TRANSLATED: u8 = 4;
/// Bit of `kind`: the token has the address of a user, or of a trusted source, in the place of that
/// of the back end.
const IS_USER: u8 = 8;
/// Bit of `kind` for a peer without a connection: its datagrams come from another port than the one
/// in its Via. An earlier version of Tidegate set this bit for each peer with a connection.
const HAS_OTHER_PORT: u8 = 128;
/// Bit in the byte of the listener, whose index is below 16: the peer is a phone that has
/// registered on this flow.
const IS_REGISTERED: u8 = 128;
/// Position in the byte `kind` of the lowest bit of the transport to the back end.
const TRANSPORT: u32 = 4;
/// Mask of the transport in `kind`, after the shift.
const TRANSPORT_BITS: u8 = 7;
const ENCODED_MAX: usize = text_len(RAW_MAX);
/// The length in characters of the shortest token. It has the version [`VERSION_WITHOUT_AGE`], and
/// contains a shard and an IPv4 address.
const ENCODED_MIN: usize = text_len(HEAD + 1 + 4 + 2 + MAC);

/// The age up to which a token alone proves that a request belongs to a call. It equals the longest
/// session interval that the call table accepts, and the time for which keys are kept after their
/// use.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The beginning of 2025, in minutes of Unix time. A clock that shows an earlier time was never
/// set.
const SET_SINCE: u32 = 28_928_160;

/// A time in tokens, in minutes of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Minutes(pub(crate) u32);

impl Minutes {
    /// Returns the time at `now`, if Unix time was `start` at [`Timestamp::ZERO`].
    pub(crate) fn at(start: Duration, now: Timestamp) -> Self {
        let minutes = (start + now.since(Timestamp::ZERO)).as_secs() / 60;
        Self(u32::try_from(minutes).unwrap_or(u32::MAX))
    }
}

/// The content of a route token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteToken {
    /// The shard to which the call belongs.
    pub(crate) shard: u8,
    /// The back end of the dialog.
    pub(crate) backend: SocketAddr,
    /// The transport to the back end.
    pub(crate) transport: Transport,
    pub(crate) made: Minutes,
    /// The flow of the peer, or `None` in a token of an earlier version.
    pub(crate) peer: Option<PeerFlow>,
    /// True if `backend` is not the address of a back end. It is the address of a user, found by a
    /// look-up, or of a trusted source that has called the registered phone in `peer`.
    pub(crate) is_user: bool,
}

/// The flow of the peer, which is the party of a dialog that is not the back end. On this flow a
/// request of the peer arrived, or a request was sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerFlow {
    /// The listener at which messages of the peer arrive.
    pub(crate) listener: u8,
    /// The address of the peer, to which responses are sent.
    pub(crate) remote: SocketAddr,
    /// The connection of the peer to this process, if the peer uses a stream.
    pub(crate) connection: Option<ConnectionId>,
    /// True if the token names a connection of another process: the process has restarted, or
    /// another instance has made the token. This process cannot use the flow.
    pub(crate) is_elsewhere: bool,
    /// The local address to which the peer sent its request in a datagram, if the listener has the
    /// wildcard address.
    pub(crate) local: Option<IpAddr>,
    /// True if the peer counts as behind address translation: its Via named another address than
    /// its source address, and it asked for `rport` or the address in the Via was a private one.
    pub(crate) is_translated: bool,
    /// True if the peer asked for responses at its source port, over UDP, and its Via named another
    /// port.
    pub(crate) has_other_port: bool,
    /// True if the peer is a phone that has registered on this flow. Requests to the phone then
    /// leave on no other flow.
    pub(crate) is_registered: bool,
}

/// A route token as text, for a URI.
pub(crate) type TokenText = ArrayVec<u8, ENCODED_MAX>;

impl RouteToken {
    pub(crate) fn encode(&self, keys: &Keys, call_id: &[u8]) -> TokenText {
        let mut raw = ArrayVec::<u8, RAW_MAX>::new();
        let (mark, key) = keys.token();
        raw.extend([VERSION, mark, self.shard]);
        raw.extend(self.made.0.to_be_bytes());
        match self.peer {
            Some(peer) => {
                let PeerFlow { listener, remote, connection, .. } = peer;
                let PeerFlow { local, is_translated, has_other_port, is_registered, .. } = peer;
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                let kind = flag(self.backend.is_ipv6(), BACKEND_V6)
                    | flag(remote.is_ipv6(), PEER_V6)
                    | flag(is_translated, IS_TRANSLATED)
                    | flag(has_other_port, HAS_OTHER_PORT)
                    | flag(self.is_user, IS_USER)
                    | (self.transport as u8) << TRANSPORT;
                raw.extend([kind, listener | flag(is_registered, IS_REGISTERED)]);
                put_address(&mut raw, self.backend);
                put_address(&mut raw, remote);
                put_end(&mut raw, keys, connection, local);
            }
            None => {
                raw[0] = VERSION_WITHOUT_PEER;
                put_address(&mut raw, self.backend);
            }
        }
        let mac = key.mac.hash(&[&raw, call_id]);
        key.veil.veil(mac, &mut raw[HEAD..]);
        raw.extend(mac.to_be_bytes());

        let mut text = TokenText::from([0; ENCODED_MAX]);
        let length = encode(&raw, &mut text);
        text.truncate(length);
        text
    }

    /// Returns the token in `text` if one of our keys made it for this Call-ID.
    pub(crate) fn decode(text: &[u8], keys: &Keys, call_id: &[u8]) -> Option<Self> {
        // In nearly every Request-URI the user part is not a token.
        if text.len() < ENCODED_MIN {
            return None;
        }
        let mut raw = [0; RAW_MAX];
        let len = decode(text, &mut raw)?;
        let (content, mac) = raw[..len].split_last_chunk_mut::<MAC>()?;
        let mac = u64::from_be_bytes(*mac);
        let &mut [version, mark, ..] = content else { return None };
        let key = keys.token_of(mark)?;
        if version != VERSION_WITHOUT_AGE {
            key.veil.veil(mac, &mut content[HEAD..]);
        }
        let content = &*content;
        if key.mac.hash(&[content, call_id]) != mac {
            return None;
        }
        let (&shard, rest) = content[HEAD..].split_first()?;
        let (made, rest) = match version {
            // The age is not known.
            VERSION_WITHOUT_AGE => (0, rest),
            VERSION | VERSION_WITHOUT_PEER => {
                let (made, rest) = rest.split_first_chunk()?;
                (u32::from_be_bytes(*made), rest)
            }
            _ => return None,
        };
        let made = Minutes(made);
        match (version, rest) {
            (VERSION, [kind, listener, rest @ ..]) => {
                let length = |flag: u8| if kind & flag == 0 { 6 } else { ADDRESS_MAX };
                let (backend, rest) = rest.split_at_checked(length(BACKEND_V6))?;
                let (remote, end) = rest.split_at_checked(length(PEER_V6))?;
                let is_connected = end.len() == CONNECTION_NAME;
                let connection = keys.connection_in(end);
                let peer = PeerFlow {
                    listener: listener & !IS_REGISTERED,
                    remote: address(remote)?,
                    connection,
                    is_elsewhere: is_connected && connection.is_none(),
                    local: ip(end),
                    is_translated: kind & IS_TRANSLATED != 0,
                    has_other_port: kind & HAS_OTHER_PORT != 0 && !is_connected,
                    is_registered: listener & IS_REGISTERED != 0,
                };
                let transport = usize::from(kind >> TRANSPORT & TRANSPORT_BITS);
                let transport = *Transport::ALL.get(transport)?;
                let is_user = kind & IS_USER != 0;
                let backend = address(backend)?;
                Some(Self { shard, backend, transport, made, peer: Some(peer), is_user })
            }
            (VERSION, _) => None,
            (_, backend) => {
                let (backend, transport) = (address(backend)?, Transport::Udp);
                Some(Self { shard, backend, transport, made, peer: None, is_user: false })
            }
        }
    }

    /// Returns whether the token is recent enough to prove, without other evidence, that a request
    /// belongs to a call. A token also counts as fresh if it contains no time, or if the clock of
    /// its maker was not set or was ahead of ours.
    pub(crate) fn is_fresh(&self, now: Minutes) -> bool {
        let Minutes(made) = self.made;
        let age = Duration::from_secs(u64::from(now.0.saturating_sub(made)) * 60);
        made < SET_SINCE || age <= AGE_MAX
    }
}

pub(super) fn put_address<const MAX: usize>(raw: &mut ArrayVec<u8, MAX>, address: SocketAddr) {
    put_ip(raw, address.ip());
    raw.extend(address.port().to_be_bytes());
}

fn put_ip<const MAX: usize>(raw: &mut ArrayVec<u8, MAX>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => raw.extend(ip.octets()),
        IpAddr::V6(ip) => raw.extend(ip.octets()),
    }
}

/// Writes the last part of a token before the MAC: the name of the connection or, without a
/// connection, the local address. A name and an address differ in length, so a reader can
/// distinguish them. A process of an earlier version reads an address as the name of a connection
/// of another process.
pub(super) fn put_end<const MAX: usize>(
    raw: &mut ArrayVec<u8, MAX>,
    keys: &Keys,
    connection: Option<ConnectionId>,
    local: Option<IpAddr>,
) {
    match (connection, local) {
        (Some(connection), _) => raw.extend(keys.name_of(connection)),
        (None, Some(ip)) => put_ip(raw, ip),
        (None, None) => {}
    }
}

/// Reads an address and port: IPv4 from 6 bytes, IPv6 from 18 bytes. Returns `None` for any other
/// length.
pub(super) fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let (bytes, port) = bytes.split_last_chunk::<2>()?;
    Some((ip(bytes)?, u16::from_be_bytes(*port)).into())
}

/// Reads an IPv4 address from 4 bytes, and an IPv6 address from 16 bytes. Returns `None` for any
/// other length.
pub(super) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
}
