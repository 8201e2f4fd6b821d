//! The secret that all instances at one address share, and the keyed functions derived from it.
//!
//! The proxy writes tags and MACs into messages and trusts them when they come back (in a branch, a
//! To-tag or a route token). Each of them is a SipHash-2-4 with its own key, derived from one
//! secret. Table keys that peers choose, such as Call-IDs, are hashed by SipHash-1-3 with a secret
//! key. Otherwise a peer could predict the hashes and make requests collide. SipHash-1-3 takes
//! about half as many instructions as SipHash-2-4, and the hash maps of Rust, Python and Ruby use
//! it for the same purpose.
//!
//! Back ends can read two SipHash-1-3 hashes in our branch: the identity of the transaction and the
//! hash for loop detection (RFC 3261 §16.6 step 8). Neither proves that the branch is ours. A
//! branch counts as ours if its MAC is valid, or if its tag belongs to an open transaction.

pub(crate) mod text64;

use std::fmt;
use std::hash::Hasher;

use arrayvec::ArrayVec;
use siphasher::sip::{SipHasher13, SipHasher24};
use siphasher::sip128::{
    Hasher128, SipHasher13 as SipHasher13Wide, SipHasher24 as SipHasher24Wide,
};
use tidegate_world::ConnectionId;

/// The secret shared by all instances of the proxy that serve the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Key for branches, To-tags and hashes in tables. It never changes while the address is in
    /// use: if it changed during a transaction, a retransmission would count as another request
    /// (RFC 3261 §16.11).
    pub base: Base,
    /// Keys for values that stay valid during a whole call.
    pub tokens: TokenKeys,
}

/// The part of a secret that is never rotated.
#[derive(Clone, PartialEq, Eq)]
pub struct Base(pub [u8; 32]);

/// The keys that create and verify route tokens and flow tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKeys {
    /// Key that creates and verifies tokens.
    pub current: TokenKey,
    /// Keys that only verify tokens: the previous keys, and the next key, with which another
    /// instance may already create tokens. No two keys, including `current`, may have the same
    /// [mark](TokenKey::mark).
    pub others: Vec<TokenKey>,
}

/// A key that creates or verifies route tokens and flow tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey {
    /// Version of the key. All instances give the key the same version.
    pub version: u32,
    /// The secret bytes of the key.
    pub key: [u8; 32],
}

impl TokenKey {
    /// Returns the lowest byte of the version. A token contains the mark of the key that created
    /// the token.
    pub fn mark(&self) -> u8 {
        self.version as u8
    }
}

impl Secret {
    /// Creates a secret whose base and only token key are `key`.
    pub fn of(key: [u8; 32]) -> Self {
        let current = TokenKey { version: 1, key };
        Self { base: Base(key), tokens: TokenKeys { current, others: Vec::new() } }
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Base(secret)")
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({}, secret)", self.version)
    }
}

/// A keyed pseudo-random function for one purpose.
#[derive(Clone)]
pub(crate) struct Keyed([u8; 16]);

impl Keyed {
    /// Derives the function for `purpose` from `secret`. Functions for different purposes are
    /// independent, because SipHash is a pseudo-random function.
    pub(crate) fn derive(secret: &[u8; 32], purpose: &str) -> Self {
        let (key, salt) = secret.split_first_chunk::<16>().expect("32 is more than 16");
        let mut hasher = SipHasher24Wide::new_with_key(key);
        hasher.write(salt);
        hasher.write(purpose.as_bytes());
        Self(hasher.finish128().as_bytes())
    }

    /// Encrypts or decrypts `bytes`. `mac` is the keyed hash of the plaintext and of the other
    /// authenticated values.
    ///
    /// The construction is that of RFC 5297 (SIV): the bytes are combined with a key stream whose
    /// initial value is the MAC, so no random value is needed. The same content gives the same
    /// text, and different contents have unrelated streams. Among n contents, two have the same
    /// 64-bit MAC with a probability of n²/2^65. If this happens, only the difference of these two
    /// contents is revealed.
    pub(crate) fn veil(&self, mac: u64, bytes: &mut [u8]) {
        for (number, block) in (0u64..).zip(bytes.chunks_mut(16)) {
            let counter = u128::from(mac) << 64 | u128::from(number);
            let hasher = SipHasher24Wide::new_with_key(&self.0);
            let stream = hasher.hash(&counter.to_le_bytes()).as_bytes();
            block.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
        }
    }

    /// Returns a hash of the list `parts`. The length of each part is hashed before the part, so
    /// that `["ab", "c"]` and `["a", "bc"]` have different hashes.
    #[inline]
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> u64 {
        match in_one_piece(parts, |whole| SipHasher24::new_with_key(&self.0).hash(whole)) {
            Some(hash) => hash,
            None => by_pieces(parts, SipHasher24::new_with_key(&self.0)),
        }
    }
}

/// A keyed pseudo-random function for the hash tables of one purpose. It is faster than [`Keyed`],
/// but too weak to authenticate messages.
#[derive(Clone)]
pub(crate) struct TableKey([u8; 16]);

impl TableKey {
    /// Derives the function for `purpose` from `secret`, as [`Keyed::derive`] does.
    pub(crate) fn derive(secret: &[u8; 32], purpose: &str) -> Self {
        Self(Keyed::derive(secret, purpose).0)
    }

    /// Returns a hash of the list `parts`. As in [`Keyed::hash`], the length of each part is hashed
    /// too.
    #[inline]
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> u64 {
        match in_one_piece(parts, |whole| SipHasher13::new_with_key(&self.0).hash(whole)) {
            Some(hash) => hash,
            None => by_pieces(parts, SipHasher13::new_with_key(&self.0)),
        }
    }

    #[inline]
    pub(crate) fn hash_number(&self, number: u128) -> u64 {
        SipHasher13::new_with_key(&self.0).hash(&number.to_le_bytes())
    }

    /// Returns a 128-bit hash of `bytes`. A table can store the hash instead of the bytes, because
    /// two different texts practically never have the same hash.
    #[inline]
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> u128 {
        SipHasher13Wide::new_with_key(&self.0).hash(bytes).as_u128()
    }
}

/// Copies `parts`, each after its length, into one buffer, and returns `hash` of the buffer. This
/// costs half as much as [`by_pieces`]. Returns `None` if the parts are too long for the buffer.
#[inline(always)]
fn in_one_piece(parts: &[&[u8]], hash: impl FnOnce(&[u8]) -> u64) -> Option<u64> {
    let mut whole = ArrayVec::<u8, 256>::new();
    for part in parts {
        whole.try_extend_from_slice(&(part.len() as u32).to_le_bytes()).ok()?;
        whole.try_extend_from_slice(part).ok()?;
    }
    Some(hash(&whole))
}

/// Hashes `parts`, each after its length, without a buffer. The hash is the same as that of
/// [`in_one_piece`], but the parts may have any length.
#[cold]
fn by_pieces(parts: &[&[u8]], mut hasher: impl Hasher) -> u64 {
    for part in parts {
        hasher.write(&(part.len() as u32).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish()
}

/// The identifier of a process in branches and tokens: a keyed hash of the random number that the
/// process drew at its start.
pub(crate) type ProcessMark = [u8; 3];

/// Length in bytes of a connection's name in branches and tokens. The name is the mark of the
/// process and the connection's number in this process.
pub(crate) const CONNECTION_NAME: usize = size_of::<ProcessMark>() + size_of::<u32>();

/// The keyed functions of a proxy, one for each purpose.
pub(crate) struct Keys {
    /// Function that computes the fingerprint of a Call-ID.
    pub(crate) call: TableKey,
    /// Function that hashes callees to select their back ends. All versions and instances of the
    /// proxy must compute the same hash for a callee.
    pub(crate) callee: Keyed,
    /// Function that computes the identity of a received branch, RFC 3261 §16.11.
    pub(crate) identity: TableKey,
    /// Function that computes the MAC of our own branches.
    pub(crate) branch: Keyed,
    /// The mark of this process.
    pub(crate) process: ProcessMark,
    /// The mark of the previous process, or `None` if it is not known.
    pub(crate) before: Option<ProcessMark>,
    /// Function that computes the hash by which the proxy detects loops.
    pub(crate) loops: TableKey,
    /// Function that hashes the sources of messages.
    pub(crate) source: TableKey,
    /// Function that hashes the tags of a dialog, and the parts that copies of an INVITE have in
    /// common.
    pub(crate) dialog: TableKey,
    /// Function that computes the To-tags of stateless responses.
    pub(crate) tag: Keyed,
    /// Function that encrypts addresses in branches.
    pub(crate) veil: Keyed,
    tokens: TokenMacs,
}

/// The functions of all keys of route and flow tokens.
struct TokenMacs {
    /// [Mark](TokenKey::mark) of the key that creates tokens.
    current: u8,
    /// Functions of all keys, the current one first.
    macs: Vec<TokenFunctions>,
    /// For each possible mark of a key, the index of the key in `macs` plus 1, or 0 if no key has
    /// this mark. The list is read for each request that is, or claims to be, within a call.
    places: [u8; 256],
}

/// The functions derived from one key of tokens. `mac` authenticates route tokens, and `veil`
/// encrypts them. `flow_mac` and `flow_veil` do so for flow tokens.
pub(crate) struct TokenFunctions {
    pub(crate) mac: Keyed,
    pub(crate) veil: Keyed,
    pub(crate) flow_mac: Keyed,
    pub(crate) flow_veil: Keyed,
}

impl Keys {
    /// Derives the functions from `secret`. `process` is the random number that this process drew
    /// at its start.
    pub(crate) fn new(secret: &Secret, process: u64) -> Self {
        let of = |purpose| Keyed::derive(&secret.base.0, purpose);
        let table = |purpose| TableKey::derive(&secret.base.0, purpose);
        Self {
            call: table("call"),
            callee: of("call"),
            identity: table("identity"),
            branch: of("branch"),
            process: Self::mark(secret, process),
            before: None,
            loops: table("loops"),
            source: table("source"),
            dialog: table("dialog"),
            veil: of("veil"),
            tag: of("tag"),
            tokens: TokenMacs::new(&secret.tokens),
        }
    }

    /// Sets the previous process. `before` is the random number that the previous process drew at
    /// its start.
    pub(crate) fn after(self, secret: &Secret, before: Option<u64>) -> Self {
        Self { before: before.map(|before| Self::mark(secret, before)), ..self }
    }

    /// Returns the three bytes that identify, in branches, the process that drew this number.
    fn mark(secret: &Secret, process: u64) -> ProcessMark {
        let hash = Keyed::derive(&secret.base.0, "process").hash(&[&process.to_be_bytes()]);
        let [a, b, c, ..] = hash.to_be_bytes();
        [a, b, c]
    }

    /// Returns the name of a connection of this process in branches and tokens.
    pub(crate) fn name_of(&self, connection: ConnectionId) -> [u8; CONNECTION_NAME] {
        let ([p0, p1, p2], [a, b, c, d]) = (self.process, connection.get().to_be_bytes());
        [p0, p1, p2, a, b, c, d]
    }

    /// Returns the connection with this name, or `None` if the name is empty or belongs to another
    /// process.
    pub(crate) fn connection_in(&self, name: &[u8]) -> Option<ConnectionId> {
        let (process, number) = name.split_first_chunk()?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        ConnectionId::new(number).filter(|_| *process == self.process)
    }

    /// Replaces the keys of route and flow tokens.
    pub(crate) fn rekey(&mut self, tokens: &TokenKeys) {
        self.tokens = TokenMacs::new(tokens);
    }

    /// Returns the functions that create tokens, and the mark of their key.
    pub(crate) fn token(&self) -> (u8, &TokenFunctions) {
        (self.tokens.current, self.tokens.macs.first().expect("there is a current key"))
    }

    /// Returns the functions of the key with this mark, if there is such a key. Because a token
    /// names its key by the mark, at most one key is tried for a forged token.
    pub(crate) fn token_of(&self, mark: u8) -> Option<&TokenFunctions> {
        let place = self.tokens.places[usize::from(mark)];
        self.tokens.macs.get(usize::from(place).checked_sub(1)?)
    }
}

impl TokenMacs {
    fn new(keys: &TokenKeys) -> Self {
        let mut places = [0; 256];
        let all = || std::iter::once(&keys.current).chain(&keys.others).take(u8::MAX.into());
        for (place, key) in (1..).zip(all()) {
            places[usize::from(key.mark())] = place;
        }
        let functions = |key: &TokenKey| {
            let of = |purpose| Keyed::derive(&key.key, purpose);
            TokenFunctions {
                mac: of("token"),
                veil: of("token veil"),
                flow_mac: of("flow token"),
                flow_veil: of("flow token veil"),
            }
        };
        let macs = all().map(functions).collect();
        Self { current: keys.current.mark(), macs, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_secrets_give_unrelated_functions() {
        let a = Keyed::derive(&[1; 32], "tag");
        assert_eq!(a.hash(&[b"x"]), Keyed::derive(&[1; 32], "tag").hash(&[b"x"]));
        assert_ne!(a.hash(&[b"x"]), Keyed::derive(&[1; 32], "call").hash(&[b"x"]));
        let mut other = [1; 32];
        other[31] = 2;
        assert_ne!(a.hash(&[b"x"]), Keyed::derive(&other, "tag").hash(&[b"x"]));
        let table = TableKey::derive(&[1; 32], "tag");
        assert_ne!(table.hash(&[b"x"]), a.hash(&[b"x"]));
        assert_ne!(table.fingerprint(b"x"), table.fingerprint(b"y"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let shown = format!("{:?}", Secret::of([7; 32]));
        let tokens = "TokenKeys { current: TokenKey(1, secret), others: [] }";
        assert_eq!(shown, format!("Secret {{ base: Base(secret), tokens: {tokens} }}"));
    }

    #[test]
    fn one_piece_or_several_is_one_hash() {
        let a = Keyed::derive(&[1; 32], "tag");
        for len in [0, 1, 247, 248, 249, 300] {
            let long = vec![7; len];
            let mut expected = SipHasher24::new_with_key(&a.0);
            expected.write(&(len as u32).to_le_bytes());
            expected.write(&long);
            expected.write(&1u32.to_le_bytes());
            expected.write(b"x");
            assert_eq!(a.hash(&[&long, b"x"]), expected.finish(), "{len}");
            let table = TableKey(a.0);
            let by_pieces = by_pieces(&[&long, b"x"], SipHasher13::new_with_key(&a.0));
            assert_eq!(table.hash(&[&long, b"x"]), by_pieces, "{len}");
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let a = Keyed::derive(&[1; 32], "tag");
        assert_ne!(a.hash(&[b"ab", b"c"]), a.hash(&[b"a", b"bc"]));
        assert_ne!(a.hash(&[b"ab"]), a.hash(&[b"ab", b""]));
    }
}
