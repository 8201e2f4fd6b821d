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
use crate::message::token_parts::{ADDRESS_MAX, END_MAX, address, ip, put_address, put_end};

const VERSION: u8 = 4;
/// Version of route tokens without the flow of the peer.
const VERSION_WITHOUT_PEER: u8 = 3;
/// Version of route tokens that are not encrypted and have no time.
const VERSION_WITHOUT_AGE: u8 = 2;
/// Length in bytes of the version of a token and of the mark that names its key.
const HEAD: usize = 2;
/// Length in bytes of the shard, the minute, the byte `kind` and the listener in a token.
const FIXED: usize = 1 + 4 + 1 + 1;
const MAC: usize = 8;
const RAW_MAX: usize = HEAD + FIXED + 2 * ADDRESS_MAX + END_MAX + MAC;

/// Bit of the byte `kind` of a token: the address of the back end is an IPv6 address.
const BACKEND_V6: u8 = 1;
/// Bit of `kind`: the address of the peer is an IPv6 address. The peer is the party of the dialog
/// that is not the back end.
const PEER_V6: u8 = 2;
/// Bit of `kind`: the peer is behind address translation.
const IS_TRANSLATED: u8 = 4;
/// Bit of `kind`: instead of the address of a back end, the token has the address of a user or of a
/// trusted source.
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

/// The flow of the peer: the party of a dialog other than the back end. On this flow a request of
/// the peer arrived, or a request was sent to the peer.
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
    /// its source address, and in addition either asked for `rport` or named a private address.
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
    /// Returns a keyed hash that identifies the call of the token, even if a stranger has made a
    /// call with the same Call-ID. `fingerprint` is that of the Call-ID.
    pub(crate) fn number(&self, keys: &Keys, fingerprint: u128) -> u64 {
        let mut raw = ArrayVec::<u8, { 2 * ADDRESS_MAX }>::new();
        put_address(&mut raw, self.backend);
        if let Some(peer) = self.peer {
            put_address(&mut raw, peer.remote);
        }
        keys.call.hash(&[&fingerprint.to_be_bytes(), &self.made.0.to_be_bytes(), &raw])
    }

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

#[cfg(test)]
mod tests;
