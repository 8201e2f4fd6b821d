//! The identifiers that a user agent gives to its calls.
//!
//! A [`Mark`] contains the slot and the serial number of a call in its table, and a keyed hash of
//! both. The agent writes the mark into Call-IDs, branches or tags. So a message with a mark leads
//! to its call without a search. Peers cannot forge a mark, because they do not know the key. The
//! agent recognizes its marks even if it has no other state of the call.

use std::hash::Hasher;
use std::net::SocketAddr;

use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_world::{Purpose, Seed, Transport};

use crate::table::Id;

/// Length of a mark's text, in bytes.
pub(crate) const MARK: usize = 32;

/// Length of a tag's text, in bytes.
pub(crate) const TAG: usize = 16;

/// The identifier of a call, as text for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub id: Id,
    /// Slot, serial number and keyed hash, in hexadecimal.
    pub text: [u8; MARK],
    /// A second, independent identifier of the same call.
    pub tag: [u8; TAG],
}

/// A generator of the [`Mark`]s of one agent, which also recognizes them in messages.
#[derive(Clone, Copy)]
pub(crate) struct Namer {
    hash: SipHasher13,
}

impl Namer {
    /// Creates the generator of the agent numbered `element`.
    pub fn new(seed: Seed, element: u32) -> Self {
        let mut stream = seed.stream(Purpose::Identity, element);
        Self { hash: SipHasher13::new_with_keys(stream.next_u64(), stream.next_u64()) }
    }

    pub fn mark(&self, id: Id) -> Mark {
        let mut hasher = self.hash;
        hasher.write_u32(id.slot);
        hasher.write_u32(id.serial);
        let hash = hasher.finish128();
        let mut text = [0; MARK];
        hex(u64::from(id.slot) << 32 | u64::from(id.serial), &mut text[..16]);
        hex(hash.h1, &mut text[16..]);
        let mut tag = [0; TAG];
        hex(hash.h2, &mut tag);
        Mark { id, text, tag }
    }

    /// Returns the mark with this `text`, or `None` if this agent did not generate it.
    pub fn recognise(&self, text: &[u8]) -> Option<Mark> {
        if text.len() != MARK {
            return None;
        }
        let number = unhex(&text[..16])?;
        let mark = self.mark(Id { slot: (number >> 32) as u32, serial: number as u32 });
        (mark.text == text).then_some(mark)
    }

    /// Returns the host and the port of the agent at `local`, for its Via and its Contact.
    ///
    /// RFC 7118 §B.1: "A SIP WebSocket Client running in such an environment can construct a domain
    /// name consisting of a random token followed by the ".invalid" top-level domain name, as
    /// stated in \[RFC2606\], and uses it within its Via and Contact headers."
    pub fn host(&self, transport: Transport, local: SocketAddr) -> String {
        match transport.is_websocket() {
            false => local.to_string(),
            true => format!("{:016x}.invalid", self.fingerprint(&[b"host"]) as u64),
        }
    }

    /// Returns a keyed hash of `parts`. The parts may come from peers, which cannot find two inputs
    /// with the same hash, because they do not know the key.
    pub fn fingerprint(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = self.hash;
        for part in parts {
            // The hash includes the length of each part, so `ab`+`c` and `a`+`bc` have different
            // hashes.
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }
}

/// Writes `value` as 16 lower-case hexadecimal digits, which fill `out`.
pub(crate) fn hex(value: u64, out: &mut [u8]) {
    debug_assert_eq!(out.len(), 16);
    for (digit, shift) in out.iter_mut().zip((0..16).rev().map(|i| i * 4)) {
        *digit = b"0123456789abcdef"[(value >> shift & 15) as usize];
    }
}

/// Reads 16 digits of lower-case hexadecimal.
fn unhex(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mark_depends_on_seed_and_element() {
        let id = Id { slot: 3, serial: 9 };
        let mark = Namer::new(Seed(1), 0).mark(id);
        assert_eq!(mark, Namer::new(Seed(1), 0).mark(id));
        for other in [Namer::new(Seed(2), 0), Namer::new(Seed(1), 1)] {
            assert_ne!(mark.text, other.mark(id).text);
            assert_ne!(mark.tag, other.mark(id).tag);
            assert_eq!(other.recognise(&mark.text), None);
        }
    }

    #[test]
    fn only_a_websocket_client_has_a_random_host() {
        let local = "192.0.2.1:5060".parse().unwrap();
        let host = |seed, transport| Namer::new(Seed(seed), 0).host(transport, local);
        for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
            assert_eq!(host(1, transport), "192.0.2.1:5060");
        }
        let random = host(1, Transport::Wss);
        let token = random.strip_suffix(".invalid").expect("it has that domain");
        assert!(token.len() == 16 && token.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_eq!(random, host(1, Transport::Ws));
        assert_ne!(random, host(2, Transport::Ws));
    }

    #[test]
    fn a_fingerprint_keeps_its_parts_apart() {
        let namer = Namer::new(Seed(1), 0);
        assert_ne!(namer.fingerprint(&[b"ab", b"c"]), namer.fingerprint(&[b"a", b"bc"]));
    }

    proptest! {
        #[test]
        fn only_the_whole_mark_is_recognised(slot: u32, serial: u32, at in 0..MARK, byte: u8) {
            let namer = Namer::new(Seed(1), 0);
            let mark = namer.mark(Id { slot, serial });
            prop_assert_eq!(namer.recognise(&mark.text), Some(mark));
            let mut other = mark.text;
            other[at] = byte;
            prop_assert_eq!(namer.recognise(&other).is_some(), other == mark.text);
        }
    }
}
