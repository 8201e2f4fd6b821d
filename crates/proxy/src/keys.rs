//! The secret for the address of a proxy, and the keyed functions derived from it.
//!
//! A proxy writes tags and MACs into messages and trusts them later (in a branch, a To-tag or a
//! route token). Each is a SipHash-2-4 with its own key, derived from one secret. A table with
//! entries that a peer can choose hashes them by SipHash-1-3, also with a key of its own. Otherwise
//! the peer could predict a hash and make two requests collide. SipHash-1-3 takes about half as
//! many instructions. The hash maps of Rust, Python and Ruby use it for the same purpose.
//!
//! Two hashes of tables are in our branch, where back ends read them: the identity of the
//! transaction and the hash of the request (RFC 3261 §16.6 step 8). Neither proves anything alone.
//! A branch counts as ours if its MAC is valid, or if its tag belongs to an open transaction.

pub(crate) mod text64;

use std::fmt;
use std::hash::Hasher;

use arrayvec::ArrayVec;
use siphasher::sip::{SipHasher13, SipHasher24};
use siphasher::sip128::{
    Hasher128, SipHasher13 as SipHasher13Wide, SipHasher24 as SipHasher24Wide,
};
use tidegate_world::ConnectionId;

/// Secret shared by all instances that answer for one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Key for values that are valid no longer than a transaction: branch, To-tag, hashes of
    /// tables. It stays the same as long as the address is used. If the key changed during a
    /// transaction, a retransmission would count as another request (RFC 3261 §16.11).
    pub base: Base,
    /// Keys for values that stay valid during a whole call.
    pub tokens: TokenKeys,
}

/// The part of a secret that does not rotate.
#[derive(Clone, PartialEq, Eq)]
pub struct Base(pub [u8; 32]);

/// The keys of route tokens that are in use at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKeys {
    /// Key that creates and verifies tokens.
    pub current: TokenKey,
    /// Keys that only verify tokens: the previous ones, and the next one, which another instance
    /// may already use. Each of them, and `current`, has a different [mark](TokenKey::mark).
    pub others: Vec<TokenKey>,
}

/// One key of route tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey {
    /// Version of the key, the same at all instances.
    pub version: u32,
    /// The key.
    pub key: [u8; 32],
}

impl TokenKey {
    /// Returns the lowest byte of the version. Tokens contain it to name their key.
    pub fn mark(&self) -> u8 {
        self.version as u8
    }
}

impl Secret {
    /// Creates a secret that was never rotated.
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
    /// Derives the function for `purpose` from `secret`. SipHash is a pseudo-random function, so
    /// functions for different purposes are independent.
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
    /// 64-bit MAC with a probability of n²/2^65. In this case only the difference of these two
    /// contents is revealed.
    pub(crate) fn veil(&self, mac: u64, bytes: &mut [u8]) {
        for (number, block) in (0u64..).zip(bytes.chunks_mut(16)) {
            let counter = u128::from(mac) << 64 | u128::from(number);
            let hasher = SipHasher24Wide::new_with_key(&self.0);
            let stream = hasher.hash(&counter.to_le_bytes()).as_bytes();
            block.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
        }
    }

    /// Returns a hash of `parts`. Each is preceded by its length, so that no two different lists of
    /// parts give the same input.
    #[inline]
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> u64 {
        match in_one_piece(parts, |whole| SipHasher24::new_with_key(&self.0).hash(whole)) {
            Some(hash) => hash,
            None => by_pieces(parts, SipHasher24::new_with_key(&self.0)),
        }
    }
}

/// A keyed pseudo-random function for the tables of one purpose. It is too weak to prove that a
/// message is genuine.
#[derive(Clone)]
pub(crate) struct TableKey([u8; 16]);

impl TableKey {
    /// Derives the function for `purpose` from `secret`, as [`Keyed::derive`].
    pub(crate) fn derive(secret: &[u8; 32], purpose: &str) -> Self {
        Self(Keyed::derive(secret, purpose).0)
    }

    /// Returns a hash of `parts`, as [`Keyed::hash`].
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

    /// Returns a 128-bit hash of `bytes`. A table can store it in place of the bytes, because two
    /// texts practically never have the same hash.
    #[inline]
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> u128 {
        SipHasher13Wide::new_with_key(&self.0).hash(bytes).as_u128()
    }
}

/// Copies `parts` into one buffer and hashes it, which costs half of hashing part by part. Returns
/// `None` if the parts are too long for the buffer.
#[inline(always)]
fn in_one_piece(parts: &[&[u8]], hash: impl FnOnce(&[u8]) -> u64) -> Option<u64> {
    let mut whole = ArrayVec::<u8, 256>::new();
    for part in parts {
        whole.try_extend_from_slice(&(part.len() as u32).to_le_bytes()).ok()?;
        whole.try_extend_from_slice(part).ok()?;
    }
    Some(hash(&whole))
}

/// Returns the same hash as [`in_one_piece`], for parts of any length.
#[cold]
fn by_pieces(parts: &[&[u8]], mut hasher: impl Hasher) -> u64 {
    for part in parts {
        hasher.write(&(part.len() as u32).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish()
}

/// Three bytes that stand for a process in branches: a keyed hash of the number that the process
/// drew at its start.
pub(crate) type ProcessMark = [u8; 3];

/// Length in bytes of the name of a connection in branches and tokens: the process, and the number
/// of the connection in it.
pub(crate) const CONNECTION_NAME: usize = size_of::<ProcessMark>() + size_of::<u32>();

/// Keyed functions of a proxy.
pub(crate) struct Keys {
    /// Function that computes the fingerprint of a Call-ID.
    pub(crate) call: TableKey,
    /// Function that divides callees among back ends. All versions and instances must compute the
    /// same value.
    pub(crate) callee: Keyed,
    /// Function that computes the identity of a received branch, RFC 3261 §16.11.
    pub(crate) identity: TableKey,
    /// Function that computes the MAC of our own branches.
    pub(crate) branch: Keyed,
    /// The three bytes that stand for this process in branches.
    pub(crate) process: ProcessMark,
    /// The three bytes that stand for the previous process in branches, or `None` if it is not
    /// known.
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

/// The functions for route and flow tokens, for each key.
struct TokenMacs {
    /// Mark of the key that creates tokens.
    current: u8,
    /// Functions of all keys, the current one first.
    macs: Vec<TokenFunctions>,
    /// For each possible mark of a key, the index of the key in `macs` plus 1, or 0 if no key has
    /// this mark. The list is read for each request that is, or claims to be, within a call.
    places: [u8; 256],
}

/// Functions of one key of route and flow tokens.
pub(crate) struct TokenFunctions {
    /// Function that computes the MAC of route tokens.
    pub(crate) mac: Keyed,
    /// Function that encrypts the content of route tokens.
    pub(crate) veil: Keyed,
    /// Function that computes the MAC of flow tokens.
    pub(crate) flow_mac: Keyed,
    /// Function that encrypts the content of flow tokens.
    pub(crate) flow_veil: Keyed,
}

impl Keys {
    /// Derives the functions of a process that drew the number `process`.
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

    /// Sets the previous process, which drew the number `before`.
    pub(crate) fn after(self, secret: &Secret, before: Option<u64>) -> Self {
        Self { before: before.map(|before| Self::mark(secret, before)), ..self }
    }

    /// Returns the three bytes that stand in branches for the process that drew this number.
    fn mark(secret: &Secret, process: u64) -> ProcessMark {
        let hash = Keyed::derive(&secret.base.0, "process").hash(&[&process.to_be_bytes()]);
        let [a, b, c, ..] = hash.to_be_bytes();
        [a, b, c]
    }

    /// Returns the name of a connection of this process for use in branches and tokens.
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

    /// Replaces the keys of route tokens.
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
