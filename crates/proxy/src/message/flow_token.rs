//! The flow token: the user part of our Path URI (RFC 3327, RFC 5626 §5.2).
//!
//! The token holds the flow on which a REGISTER arrived. The registrar stores the Path and writes
//! it into the Route of each request for that phone. The request then leaves on the same flow.
//! Unlike a [route token](super::token), a flow token does not belong to a call. Its MAC has its
//! own key, so that neither kind of token can be used as the other. A flow token contains no time,
//! because the registrar decides how long a registration lasts. The token is valid as long as its
//! key.
//!
//! RFC 5626 §5.2: "A proxy can use any algorithm it wants as long as the flow token is unique to a
//! flow, the flow can be recovered from the token, and the token cannot be modified by attackers."

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use tidegate_world::{ConnectionId, Flow, Transport};

use crate::keys::Keys;
use crate::keys::text64::{decode, encode, text_len};
use crate::message::token_parts::{ADDRESS_MAX, END_MAX, address, ip, put_address, put_end};
use crate::network::canonical;
use crate::rejection::Rejection;

/// Version of flow tokens. No version of route tokens has this number.
const VERSION: u8 = 0x51;
/// Length in bytes of the version of a token and of the mark that names its key.
const HEAD: usize = 2;
/// Length in bytes of the shard, the byte `kind` and the listener in a token.
const FIXED: usize = 3;
const MAC: usize = 8;
const RAW_MAX: usize = HEAD + FIXED + ADDRESS_MAX + END_MAX + MAC;
/// The length in characters of the shortest flow token, which contains an IPv4 address and neither
/// a connection nor a local address.
const ENCODED_MIN: usize = text_len(HEAD + FIXED + 4 + 2 + MAC);
const ENCODED_MAX: usize = text_len(RAW_MAX);

/// The bit of the byte `kind` of a flow token that is set if the phone has an IPv6 address. The upper
/// half of `kind` is the transport.
const IS_V6: u8 = 1;
const TRANSPORT: u32 = 4;

/// A flow token as text, for a URI.
pub(crate) type FlowTokenText = ArrayVec<u8, ENCODED_MAX>;

/// A flow on which a phone has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredFlow {
    /// The shard at which the REGISTER arrived. This shard has the connection of the phone, if
    /// there is one.
    pub(crate) shard: u8,
    /// The listener at which the REGISTER arrived.
    pub(crate) listener: u8,
    pub(crate) transport: Transport,
    /// The source address of the REGISTER. The address in its Via is not used, because anybody
    /// could write another phone's address there.
    pub(crate) remote: SocketAddr,
    /// The connection of the phone, if it uses a stream and this process has the connection.
    pub(crate) connection: Option<ConnectionId>,
    /// The local address to which the REGISTER was sent, if it came in a datagram and the listener
    /// has the wildcard address.
    pub(crate) local: Option<IpAddr>,
}

impl RegisteredFlow {
    /// Returns the flow on which a message arrived at a listener of a shard. `asked` is the local
    /// address to which the message was sent, if the listener has the wildcard address.
    pub(crate) fn of(flow: &Flow, shard: u16, listener: usize, asked: Option<IpAddr>) -> Self {
        let Flow { transport, remote, connection, .. } = *flow;
        let (shard, listener, remote) = (shard as u8, listener as u8, canonical(remote));
        let local = asked.filter(|_| connection.is_none());
        Self { shard, listener, transport, remote, connection, local }
    }

    /// Returns whether a message arrived on this flow.
    pub(crate) fn is(&self, flow: &Flow) -> bool {
        let Flow { transport, remote, connection, .. } = *flow;
        (self.transport, self.remote, self.connection) == (transport, canonical(remote), connection)
    }

    /// Returns the token of this flow.
    ///
    /// RFC 5626 §5.1: "The flow token MUST be an identifier that is unique to this network flow."
    pub(crate) fn encode(&self, keys: &Keys) -> FlowTokenText {
        let mut raw = ArrayVec::<u8, RAW_MAX>::new();
        let (mark, key) = keys.token();
        let family = if self.remote.is_ipv6() { IS_V6 } else { 0 };
        let kind = (self.transport as u8) << TRANSPORT | family;
        raw.extend([VERSION, mark, self.shard, kind, self.listener]);
        put_address(&mut raw, self.remote);
        put_end(&mut raw, keys, self.connection, self.local);
        let mac = key.flow_mac.hash(&[&raw]);
        key.flow_veil.veil(mac, &mut raw[HEAD..]);
        raw.extend(mac.to_be_bytes());
        let mut text = FlowTokenText::from([0; ENCODED_MAX]);
        let length = encode(&raw, &mut text);
        text.truncate(length);
        text
    }

    /// Reads the flow token in the user part of one of our URIs. Returns `None` if the user part is
    /// not a flow token.
    ///
    /// # Errors
    /// RFC 5626 §5.3.1: "If the flow token has been tampered with, the proxy SHOULD send a 403
    /// (Forbidden) response." A token of an unknown key may be genuine, so it gets the 430 of a
    /// flow that no longer exists.
    pub(crate) fn decode(text: &[u8], keys: &Keys) -> Result<Option<Self>, Rejection> {
        if text.len() < ENCODED_MIN {
            return Ok(None);
        }
        let mut raw = [0; RAW_MAX];
        let Some(len) = decode(text, &mut raw) else { return Ok(None) };
        let Some((content, mac)) = raw[..len].split_last_chunk_mut::<MAC>() else {
            return Ok(None);
        };
        let &mut [VERSION, mark, ..] = content else { return Ok(None) };
        let key = keys.token_of(mark).ok_or(Rejection::FLOW_GONE)?;
        let mac = u64::from_be_bytes(*mac);
        key.flow_veil.veil(mac, &mut content[HEAD..]);
        if key.flow_mac.hash(&[content]) != mac {
            return Err(Rejection::FLOW_FORGED);
        }
        Self::read(&content[HEAD..], keys).map(Some).ok_or(Rejection::FLOW_GONE)
    }

    /// Reads the decrypted content of a flow token of ours, without version, key mark and MAC.
    fn read(content: &[u8], keys: &Keys) -> Option<Self> {
        let &[shard, kind, listener, ref rest @ ..] = content else { return None };
        let length = if kind & IS_V6 == 0 { 6 } else { ADDRESS_MAX };
        let (remote, end) = rest.split_at_checked(length)?;
        Some(Self {
            shard,
            listener,
            transport: *Transport::ALL.get(usize::from(kind >> TRANSPORT))?,
            remote: address(remote)?,
            connection: keys.connection_in(end),
            local: ip(end),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Secret, TokenKey, TokenKeys};
    use crate::message::token::{Minutes, RouteToken};

    fn keys(version: u8) -> Keys {
        let current = TokenKey { version: version.into(), key: [version; 32] };
        let tokens = TokenKeys { current, others: Vec::new() };
        Keys::new(&Secret { tokens, ..Secret::of([9; 32]) }, 0)
    }

    fn flows() -> [RegisteredFlow; 3] {
        let of = |transport, remote: &str, connection| RegisteredFlow {
            shard: 7,
            listener: 3,
            transport,
            remote: remote.parse().unwrap(),
            connection,
            local: None,
        };
        let v6 = of(Transport::Udp, "[2001:db8::2]:1027", None);
        [
            of(Transport::Udp, "192.0.2.4:1027", None),
            of(Transport::Wss, "[2001:db8::2]:1028", ConnectionId::new(u32::MAX)),
            RegisteredFlow { local: "2001:db8::3".parse().ok(), ..v6 },
        ]
    }

    fn is_rejected_with(status: u16, text: &[u8], keys: &Keys) -> bool {
        matches!(RegisteredFlow::decode(text, keys), Err(Rejection::Reply(is, ..)) if is == status)
    }

    /// RFC 5626 §5.1: "The flow token MUST be an identifier that is unique to this network flow."
    #[test]
    fn a_token_has_the_flow_and_each_flow_its_own() {
        let keys = keys(1);
        for flow in flows() {
            let text = flow.encode(&keys);
            assert_eq!(RegisteredFlow::decode(&text, &keys).ok(), Some(Some(flow)));
            let others = [
                RegisteredFlow { shard: 8, ..flow },
                RegisteredFlow { listener: 4, ..flow },
                RegisteredFlow { transport: Transport::Tcp, ..flow },
                RegisteredFlow { remote: "192.0.2.4:1029".parse().unwrap(), ..flow },
                RegisteredFlow { connection: ConnectionId::new(5), ..flow },
                RegisteredFlow { connection: None, local: "192.0.2.9".parse().ok(), ..flow },
            ];
            for other in others {
                assert_ne!(other.encode(&keys), text);
            }
        }
        let [shortest, _, longest] = flows();
        assert_eq!(longest.encode(&keys).len(), ENCODED_MAX);
        assert_eq!(shortest.encode(&keys).len(), ENCODED_MIN);
        let local = RegisteredFlow { local: "192.0.2.9".parse().ok(), ..shortest };
        let text = local.encode(&keys);
        assert_eq!(RegisteredFlow::decode(&text, &keys).ok(), Some(Some(local)));
    }

    #[test]
    fn a_connection_is_known_to_its_process() {
        let [_, connected, _] = flows();
        let text = connected.encode(&keys(1));
        let gone = RegisteredFlow { connection: None, ..connected };
        let mut next = keys(1);
        next.process = [0xff; 3];
        assert_eq!(RegisteredFlow::decode(&text, &next).ok(), Some(Some(gone)));
    }

    /// RFC 5626 §5.3.1: "If the flow token has been tampered with, the proxy SHOULD send a 403
    /// (Forbidden) response."
    #[test]
    fn a_forged_token_is_recognised() {
        for flow in flows() {
            let text = flow.encode(&keys(1));
            // The first two letters and a part of the third are version and mark.
            for i in 3..text.len() {
                let mut forged = text.clone();
                forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
                let read = RegisteredFlow::decode(&forged, &keys(1));
                assert!(!matches!(read, Ok(Some(_))), "{i}");
                let is_whole = decode(&forged, &mut [0; RAW_MAX]).is_some();
                assert_eq!(is_rejected_with(403, &forged, &keys(1)), is_whole, "{i}");
            }
            assert!(is_rejected_with(430, &text, &keys(2)), "its key is not known");
            assert!(is_rejected_with(403, &text, &keys_of_other_bytes()));
        }
        for text in
            ["alice", "", "bob-is-a-long-name-but-no-token", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]
        {
            assert!(
                matches!(RegisteredFlow::decode(text.as_bytes(), &keys(1)), Ok(None)),
                "{text}"
            );
        }
    }

    fn keys_of_other_bytes() -> Keys {
        let current = TokenKey { version: 1, key: [2; 32] };
        let tokens = TokenKeys { current, others: Vec::new() };
        Keys::new(&Secret { tokens, ..Secret::of([9; 32]) }, 0)
    }

    #[test]
    fn neither_kind_of_token_is_the_other() {
        let keys = keys(1);
        let route = RouteToken {
            shard: 7,
            backend: "10.1.2.3:5070".parse().unwrap(),
            transport: Transport::Udp,
            made: Minutes(30_000_000),
            peer: None,
            is_user: false,
        };
        let text = route.encode(&keys, b"");
        assert!(matches!(RegisteredFlow::decode(&text, &keys), Ok(None)));
        for flow in flows() {
            assert_eq!(RouteToken::decode(&flow.encode(&keys), &keys, b""), None);
        }
    }

    #[test]
    fn the_wire_shows_no_address() {
        let [flow, ..] = flows();
        let text = flow.encode(&keys(1));
        let mut raw = [0; RAW_MAX];
        let len = decode(&text, &mut raw).unwrap();
        assert!(!raw[..len].windows(4).any(|part| part == [192, 0, 2, 4]));
    }
}
