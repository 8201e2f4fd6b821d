//! The keys for route tokens, their versions, and the choice of the key that makes tokens.
//!
//! A key verifies tokens as soon as an instance has read it. A key makes tokens only some time
//! after its creation, when it has *settled*: by then, every instance that shares the address has
//! read it. The creation times of the keys determine which key makes tokens, so that instances
//! agree without communication.

use std::fmt;
use std::time::Duration;

use tidegate_proxy::{Base, Secret, TokenKey, TokenKeys};
use tidegate_world::unit_enum;

/// A secret key: 256 bits.
pub type Key = [u8; 32];

/// Maximum number of keys for tokens in a [`KeyRing`].
pub const KEYS_MAX: usize = 8;

/// Minimum time for which a key still verifies tokens after the last token was made with it. No
/// call is expected to last longer than this without a request.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Maximum time by which the creation time of a key may be ahead of the clock of this machine. The
/// clock of the instance that made the key may differ by that much. If the creation time is further
/// ahead, the clock of that instance was wrong.
const AHEAD_MAX: Duration = KEPT;

/// The start of 2026. If a clock shows an earlier time, it has not been set.
const CLOCK_MIN: UnixTime = Duration::from_secs(1_767_225_600);

/// Number of different marks. A token contains the mark of the version of its key
/// ([`TokenKey::mark`]). Two versions that differ by this number have the same mark.
const MARKS: u32 = 256;

/// The secret keys that all instances at one address share.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRing {
    /// The key that does not rotate ([`Secret::base`]).
    pub base: Key,
    /// The keys for tokens, newest first: 1 to [`KEYS_MAX`] of them.
    keys: Vec<Made>,
}

/// A key for tokens, with its creation time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Made {
    version: u32,
    at: UnixTime,
    key: Key,
}

/// Time since the Unix epoch, the start of 1970. Instances on different machines share this time.
pub type UnixTime = Duration;

unit_enum! {
    /// The role of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Role {
        /// The key verifies tokens, and will make tokens later.
        Next = "next",
        /// The key makes and verifies tokens.
        Current = "current",
        /// The key no longer makes tokens, but still verifies them.
        Previous = "previous",
    }
}

/// A key as shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The version of the key, a number from 1.
    pub version: u32,
    /// Time at which the key was made, or zero if unknown.
    pub made: UnixTime,
    /// The role of the key.
    pub role: Role,
}

/// The reason why [`KeyRing::rotated`] does not add a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRotated {
    /// The newest key does not make tokens yet. The fields are its version, and the time after
    /// which it makes tokens.
    Settling(u32, Duration),
    /// There are already [`KEYS_MAX`] keys, and tokens may still need the oldest one. The fields
    /// are its version, and the time after which it can be removed.
    Kept(u32, Duration),
    /// The clock is wrong: it shows this time, which is before 2026.
    Clock(UnixTime),
}

/// An error in the text of a key file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The number of the line with the error, from 1.
    pub(super) line: usize,
    pub(super) what: String,
}

impl KeyRing {
    /// Creates a ring with `first` as its only key for tokens, made at `now`.
    pub fn new(base: Key, first: Key, now: UnixTime) -> Self {
        Self { base, keys: vec![Made { version: 1, at: whole(now), key: first }] }
    }

    /// Returns the secret of a proxy at `now`: all keys of the ring. The newest key that is at
    /// least `settle` old makes tokens.
    pub fn secret(&self, now: UnixTime, settle: Duration) -> Secret {
        let current = self.current(now, settle);
        let token = |made: &Made| TokenKey { version: made.version, key: made.key };
        let others = self.keys.iter().enumerate().filter(|(index, _)| *index != current);
        Secret {
            base: Base(self.base),
            tokens: TokenKeys {
                current: token(&self.keys[current]),
                others: others.map(|(_, made)| token(made)).collect(),
            },
        }
    }

    /// Returns the keys at `now`, newest first, without their secrets.
    pub fn shown(&self, now: UnixTime, settle: Duration) -> impl Iterator<Item = Shown> {
        let current = self.current(now, settle);
        self.keys.iter().enumerate().map(move |(index, made)| Shown {
            version: made.version,
            made: made.at,
            role: match index.cmp(&current) {
                std::cmp::Ordering::Less => Role::Next,
                std::cmp::Ordering::Equal => Role::Current,
                std::cmp::Ordering::Greater => Role::Previous,
            },
        })
    }

    /// Returns whether a new key is due: the newest key is at least `every` old, or its creation
    /// time is so far in the future that the clock must have been wrong. Returns false if `now` is
    /// before 2026.
    pub fn is_due(&self, now: UnixTime, every: Duration) -> bool {
        let newest = &self.keys[0];
        now >= CLOCK_MIN && (now.saturating_sub(newest.at) >= every || newest.is_of_the_future(now))
    }

    /// Returns the ring with `key` added as the newest key, which makes tokens when it is `settle`
    /// old. If the ring already has [`KEYS_MAX`] keys, the oldest one is removed.
    ///
    /// If a clock was decades ahead when it made a key, that key would block rotation for decades.
    /// So the creation time of such a key is changed to `now`.
    ///
    /// # Errors
    /// Returns an error when the clock shows a time before 2026, when the newest key has not
    /// settled, or when the oldest key may still be needed.
    pub fn rotated(&self, now: UnixTime, settle: Duration, key: Key) -> Result<Self, NotRotated> {
        if now < CLOCK_MIN {
            return Err(NotRotated::Clock(now));
        }
        let newest = self.keys[0];
        if self.current(now, settle) > 0 && !newest.is_of_the_future(now) {
            let settled = newest.at.saturating_add(settle);
            return Err(NotRotated::Settling(newest.version, settled.saturating_sub(now)));
        }
        let mut keys = self.keys.clone();
        if keys.len() == KEYS_MAX {
            let oldest = keys.pop().expect("it is full");
            let after = keys[keys.len() - 1];
            // The key was in use until the next one had settled.
            let goes = after.at.saturating_add(settle + KEPT);
            if goes > now && !after.is_of_the_future(now) {
                return Err(NotRotated::Kept(oldest.version, goes - now));
            }
        }
        for made in &mut keys {
            if made.is_of_the_future(now) {
                made.at = whole(now);
            }
        }
        // After the highest versions, numbering continues with the lowest versions that have the
        // same marks.
        if newest.version >= u32::MAX - 1 {
            let past = (keys[keys.len() - 1].version - 1) / MARKS * MARKS;
            keys.iter_mut().for_each(|made| made.version -= past);
        }
        keys.insert(0, Made { version: keys[0].version + 1, at: whole(now), key });
        Ok(Self { base: self.base, keys })
    }

    /// Returns the index of the newest key that has settled. If none has settled, returns the index
    /// of the oldest key.
    fn current(&self, now: UnixTime, settle: Duration) -> usize {
        let settled =
            |made: &Made| made.at == Duration::ZERO || made.at.saturating_add(settle) <= now;
        self.keys.iter().position(settled).unwrap_or(self.keys.len() - 1)
    }

    /// Formats the ring as the text of a key file. The first line is `base` and the base key. Each
    /// further line is a key for tokens, the newest first: its version, its creation time (in
    /// seconds since 1970), and the key.
    pub(super) fn text(&self) -> String {
        let mut text = format!("base {}\n", to_hex(&self.base));
        for Made { version, at, key } in &self.keys {
            text += &format!("{version} {} {}\n", at.as_secs(), to_hex(key));
        }
        text
    }

    /// Parses the output of [`text`](Self::text). Also accepts a text in which each line contains
    /// only a key. The first key is then the base key and also makes tokens, and the creation times
    /// are unknown.
    pub(super) fn parse(content: &[u8]) -> Result<Self, Wrong> {
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        let lines: Vec<_> = content.split(|byte| *byte == b'\n').collect();
        let wrong = |line: usize, what: String| Wrong { line, what };
        let Some(base) = lines[0].strip_prefix(b"base ") else {
            return Self::parse_bare(&lines);
        };
        let base = from_hex(base).ok_or_else(|| wrong(1, not_a_key(base)))?;
        let mut keys: Vec<Made> = Vec::new();
        for (number, line) in (2..).zip(&lines[1..]) {
            if keys.len() == KEYS_MAX {
                return Err(wrong(number, too_many()));
            }
            let made = made(line).map_err(|what| wrong(number, what))?;
            // Each key has a different mark.
            let newest = keys.first().map_or(made.version, |newest| newest.version);
            let follows = keys.last().is_none_or(|before| made.version < before.version);
            if !follows || newest - made.version > u8::MAX.into() {
                let what = format!(
                    "version {} is out of order: versions descend from line to line, by at most \
                     255 in total",
                    made.version
                );
                return Err(wrong(number, what));
            }
            keys.push(made);
        }
        if keys.is_empty() {
            return Err(wrong(
                1,
                "the file has no line with a key for route tokens after its `base` line".to_owned(),
            ));
        }
        Ok(Self { base, keys })
    }

    fn parse_bare(lines: &[&[u8]]) -> Result<Self, Wrong> {
        if lines.len() > KEYS_MAX {
            return Err(Wrong { line: KEYS_MAX + 1, what: too_many() });
        }
        let versions = (1..=lines.len() as u32).rev();
        let key = |((index, line), version): ((usize, &&[u8]), u32)| {
            let key =
                from_hex(line).ok_or_else(|| Wrong { line: index + 1, what: not_a_key(line) })?;
            Ok(Made { version, at: Duration::ZERO, key })
        };
        let keys: Vec<Made> =
            lines.iter().enumerate().zip(versions).map(key).collect::<Result<_, _>>()?;
        Ok(Self { base: keys[0].key, keys })
    }
}

impl Made {
    /// Returns whether the creation time of the key is so long after `now` that the clock that gave
    /// it must have been wrong.
    fn is_of_the_future(&self, now: UnixTime) -> bool {
        self.at > now.saturating_add(AHEAD_MAX)
    }
}

/// Rounds a time down to whole seconds, the resolution of times in a key file.
fn whole(time: UnixTime) -> UnixTime {
    Duration::from_secs(time.as_secs())
}

/// Parses a line of a key file with the version, the creation time in seconds, and the key.
fn made(line: &[u8]) -> Result<Made, String> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let &[version, at, key] = &fields[..] else {
        return Err("not a line with a version, a time and a key".to_owned());
    };
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    let version = number(version).and_then(|version| u32::try_from(version).ok());
    let version = version.filter(|&version| version > 0 && version < u32::MAX);
    Ok(Made {
        version: version.ok_or("the version is not a number from 1 to 4294967294")?,
        at: Duration::from_secs(
            number(at).ok_or("the time is not a number of seconds since 1970")?,
        ),
        key: from_hex(key).ok_or_else(|| not_a_key(key))?,
    })
}

fn too_many() -> String {
    format!("more than {KEYS_MAX} keys")
}

fn not_a_key(field: &[u8]) -> String {
    format!("not a key: {}", complaint(field))
}

/// Describes the error in the text of a key. The description does not contain the text, because a
/// key with a typing error reveals most of the right key.
fn complaint(field: &[u8]) -> String {
    match field.iter().position(|byte| !byte.is_ascii_hexdigit()) {
        _ if field.is_empty() => "an empty line".to_owned(),
        Some(at) => format!("character {} is not a hexadecimal digit", at + 1),
        None => format!("{} digits instead of 64", field.len()),
    }
}

pub(crate) fn from_hex(line: &[u8]) -> Option<Key> {
    if line.len() != 64 || !line.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut key = Key::default();
    for (byte, pair) in key.iter_mut().zip(line.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

pub(crate) fn to_hex(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "KeyRing({} keys, the newest of version {})",
            self.keys.len(),
            self.keys[0].version
        )
    }
}

impl fmt::Display for NotRotated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settling(version, left) => write!(
                f,
                "cannot make a new key: key {version} is not in use yet; wait for another {} s \
                 (`key_settle_s`)",
                left.as_secs()
            ),
            Self::Kept(version, left) => write!(
                f,
                "cannot make a new key: there are {KEYS_MAX} keys, which is the limit, and the \
                 oldest, key {version}, may still be needed for {} s; try again after that",
                left.as_secs()
            ),
            Self::Clock(now) => write!(
                f,
                "the clock shows a time before 2026 (Unix time {}); set the clock",
                now.as_secs()
            ),
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
