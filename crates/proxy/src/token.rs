//! The route token: the user part of our Record-Route URI.
//!
//! It names the back end of a dialog by address, and the shard that counts the
//! call, under a MAC that covers the Call-ID; and which of our keys made that, for they are
//! rotated. A mid-dialog request carries it back
//! in its Route (RFC 3261 §12.2.1.1), so it finds its back end after a restart, or
//! at another instance with the same secret. Bound to the Call-ID, a token taken
//! from one call opens no other. It is a hint where to go, not a permission to go
//! anywhere: only configured back ends are honoured.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::secret::Keys;

const VERSION: u8 = 2;
const HEAD: usize = 3;
const MAC: usize = 8;
const RAW_MAX: usize = HEAD + 16 + 2 + MAC;
const ENCODED_MAX: usize = RAW_MAX.div_ceil(3) * 4;

/// A token's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteToken {
    /// The shard that holds the call.
    pub(crate) shard: u8,
    /// The back end of the dialog.
    pub(crate) backend: SocketAddr,
}

/// A token as it stands in a URI.
pub(crate) type TokenText = ArrayVec<u8, ENCODED_MAX>;

impl RouteToken {
    pub(crate) fn encode(&self, keys: &Keys, call_id: &[u8]) -> TokenText {
        let mut raw = ArrayVec::<u8, RAW_MAX>::new();
        let (mark, key) = keys.token();
        raw.extend([VERSION, mark, self.shard]);
        match self.backend.ip() {
            IpAddr::V4(ip) => raw.extend(ip.octets()),
            IpAddr::V6(ip) => raw.extend(ip.octets()),
        }
        raw.extend(self.backend.port().to_be_bytes());
        let mac = key.hash(&[&raw, call_id]);
        raw.extend(mac.to_be_bytes());

        let mut encoded = [0; ENCODED_MAX];
        let len = URL_SAFE_NO_PAD
            .encode_slice(&raw, &mut encoded)
            .expect("the array is as long as the longest token");
        encoded[..len].iter().copied().collect()
    }

    /// The token in `text`, if one of our keys made it for this Call-ID.
    pub(crate) fn decode(text: &[u8], keys: &Keys, call_id: &[u8]) -> Option<Self> {
        let mut raw = [0; RAW_MAX];
        let len = URL_SAFE_NO_PAD.decode_slice(text, &mut raw).ok()?;
        let (content, mac) = raw[..len].split_last_chunk::<MAC>()?;
        let [VERSION, mark, shard, address @ ..] = content else { return None };
        if keys.token_of(*mark)?.hash(&[content, call_id]) != u64::from_be_bytes(*mac) {
            return None;
        }
        let (ip, port) = address.split_last_chunk::<2>()?;
        let ip = match ip.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
            16 => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
            _ => return None,
        };
        Some(Self { shard: *shard, backend: (ip, u16::from_be_bytes(*port)).into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{Secret, TokenKey, TokenKeys};

    /// Keys whose versions are their bytes.
    fn keys(current: u8, others: &[u8]) -> Keys {
        let key = |byte: u8| TokenKey { version: byte.into(), key: [byte; 32] };
        let others = others.iter().map(|&byte| key(byte)).collect();
        let tokens = TokenKeys { current: key(current), others };
        Keys::new(&Secret { tokens, ..Secret::of([9; 32]) }, 0)
    }

    fn tokens() -> [RouteToken; 2] {
        ["10.1.2.3:5070", "[2001:db8::1]:5070"]
            .map(|a| RouteToken { shard: 7, backend: a.parse().unwrap() })
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
        let [_, longest] = tokens();
        let text = longest.encode(&keys(1, &[]), b"c");
        // Base64 in groups of four characters, of which the last is not padded.
        assert_eq!(text.len().next_multiple_of(4), text.capacity());
    }
}
