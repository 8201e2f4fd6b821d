//! Rotation of the keys in a running process. A [`Keeper`] reads the key file periodically, makes a
//! new key when one is due, and tells the shards which keys are in use.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use serde_json::{Value, json};
use tidegate_io::CommandSender;
use tidegate_proxy::Secret;

use super::ring::{KEPT, KEYS_MAX, KeyRing, NotRotated, UnixTime};
use super::{FILE_NAME, change, command, random, read, unix_time};
use crate::StartError;
use crate::worker::Worker;

/// Interval at which the key file is read. It must be shorter than [`Rotation::settle`], within
/// which every instance must read a new key.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The times that determine when keys are made and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Age of a key at which the next key is made. If `None`, keys are made only on request.
    pub every: Option<Duration>,
    /// Time from the creation of a key until the key makes tokens. Within this time, every instance
    /// of the proxy must read the key.
    pub settle: Duration,
}

impl Rotation {
    /// Returns the shortest interval at which rotations always succeed. A key has to settle before
    /// the next one is made, each key is kept for the time [`KEPT`] after its last use, and there
    /// are at most [`KEYS_MAX`] keys.
    pub(crate) fn every_min(settle: Duration) -> Duration {
        let others = KEYS_MAX as u32 - 1;
        ((KEPT + settle) / others).max(settle)
    }
}

/// The keeper of a process's keys, which rotates them and sends them to the shards.
#[derive(Debug)]
pub struct Keeper {
    state_dir: PathBuf,
    rotation: Rotation,
    commands: CommandSender,
    /// The keys. The mutex is locked while the key file is read or written, which takes long if the
    /// file system is slow.
    state: Mutex<State>,
    /// The result of the last check of the key file. It has a mutex of its own, so that a thread
    /// that reads the result never waits for the file system.
    trouble: Mutex<Trouble>,
}

#[derive(Debug)]
struct State {
    ring: KeyRing,
    /// The keys that were last sent to the shards.
    told: Secret,
}

#[derive(Debug, Default)]
struct Trouble {
    /// The error of the last [`Keeper::look`], if the key file could not be read or changed.
    last: Option<String>,
    /// The error that [`Keeper::changed_trouble`] last reported.
    told: Option<String>,
}

/// The reason why keys are not rotated.
#[derive(Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The ring of keys does not allow a new key now.
    NotRotated(NotRotated),
    /// Another process is changing the key file.
    Busy,
    /// The key file cannot be read or written.
    File(StartError),
    /// The operating system provides no random numbers.
    Entropy(String),
}

impl Keeper {
    /// Creates the keeper of the keys in `state_dir`, which sends new keys to the shards through
    /// `commands`. When the shards started, at `started`, they got their keys from `ring`.
    pub fn new(
        state_dir: PathBuf,
        ring: KeyRing,
        rotation: Rotation,
        started: UnixTime,
        commands: CommandSender,
    ) -> Self {
        let told = ring.secret(started, rotation.settle);
        let state = Mutex::new(State { ring, told });
        Self { state_dir, rotation, commands, state, trouble: Mutex::default() }
    }

    /// Starts a thread that calls [`look`](Self::look) every 2 s until the returned [`Watch`] is
    /// dropped.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn watch(self: &Arc<Self>) -> std::io::Result<Watch> {
        let keeper = Arc::clone(self);
        let worker = Worker::start("keys", move |asked| {
            while let Err(RecvTimeoutError::Timeout) = asked.recv_timeout(LOOK_EVERY) {
                keeper.look(unix_time());
            }
        })?;
        Ok(Watch { _worker: worker })
    }

    /// Reads the key file, makes a new key if one is due at `now`, and sends the keys to the shards
    /// if they have changed.
    pub fn look(&self, now: UnixTime) {
        let mut state = self.state();
        let mut trouble = match read(&self.state_dir.join(FILE_NAME)) {
            Ok(ring) => {
                state.ring = ring;
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if trouble.is_none()
            && let Some(every) = self.rotation.every
            && state.ring.is_due(now, every)
        {
            match self.rotate_in(&mut state, now) {
                // Another process at this address rotated first, or it is too early.
                Ok(()) | Err(NotKept::NotRotated(_) | NotKept::Busy) => {}
                Err(error) => trouble = Some(error.to_string()),
            }
        }
        self.trouble().last = trouble;
        self.tell(&mut state, now);
    }

    /// Returns a line for the log, if the result of the last check of the key file differs from the
    /// result at the previous call of this function. Does not wait for a running check.
    pub fn changed_trouble(&self) -> Option<String> {
        let mut trouble = self.trouble();
        let Trouble { last, told } = &mut *trouble;
        if last == told {
            return None;
        }
        told.clone_from(last);
        let line = |last: &String| format!("keys: old keys stay in use: {last}");
        Some(
            last.as_ref()
                .map_or_else(|| format!("keys: the file {FILE_NAME} can be used again"), line),
        )
    }

    /// Returns whether the last check of the key file failed. Does not wait for a running check.
    pub(crate) fn has_trouble(&self) -> bool {
        self.trouble().last.is_some()
    }

    /// Adds a new key to the key file, and sends the changed keys to the shards.
    ///
    /// # Errors
    /// Returns an error in these cases: the clock shows a time before 2026, the last key is not in
    /// use yet, an old key may still be needed, the file cannot be changed, another process is
    /// changing it, or the system gives no random bytes.
    pub fn rotate(&self, now: UnixTime) -> Result<(), NotKept> {
        let mut state = self.state();
        self.rotate_in(&mut state, now)?;
        self.tell(&mut state, now);
        Ok(())
    }

    fn rotate_in(&self, state: &mut State, now: UnixTime) -> Result<(), NotKept> {
        let key = random().map_err(|error| NotKept::Entropy(error.to_string()))?;
        state.ring = change(&self.state_dir, |ring| {
            // The new key follows the keys that the file has now.
            ring.rotated(now, self.rotation.settle, key)
        })?;
        Ok(())
    }

    /// Sends the keys to use at `now` to the shards, if they differ from the keys sent before.
    fn tell(&self, state: &mut State, now: UnixTime) {
        let tokens = state.ring.secret(now, self.rotation.settle).tokens;
        if tokens == state.told.tokens {
            return;
        }
        // If a shard is not running or has no room for the command, the keys are sent again at the
        // next check.
        if self.commands.give(command::text(&tokens).as_bytes()).is_ok() {
            state.told.tokens = tokens;
        }
    }

    /// Returns the versions, roles and ages of the keys at `now`, as JSON without the secret keys.
    pub fn shown(&self, now: UnixTime) -> Value {
        let state = self.state();
        let Rotation { every, settle } = self.rotation;
        let key = |key: super::Shown| {
            let made = key.made.as_secs();
            json!({
                "version": key.version,
                "role": key.role.name(),
                "made": (made > 0).then_some(made),
                "age_s": (made > 0).then(|| now.as_secs().saturating_sub(made)),
            })
        };
        json!({
            "keys": state.ring.shown(now, settle).map(key).collect::<Value>(),
            "in_use": state.told.tokens.current.version,
            "rotated_every_s": every.map(|every| every.as_secs()),
            "settle_s": settle.as_secs(),
            "needs_restart": state.ring.base != state.told.base.0,
            "trouble": self.trouble().last,
        })
    }

    /// Blocks the keeper like a file system that hangs, until the returned guard is dropped.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> impl Sized {
        self.state()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that [`Keeper::watch`] starts. The thread ends when this value is dropped. The drop
/// waits about a second at most, even if a read of the key file blocks the thread.
#[derive(Debug)]
pub struct Watch {
    _worker: Worker,
}

impl From<StartError> for NotKept {
    fn from(error: StartError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRotated(why) => why.fmt(f),
            Self::Busy => f.write_str("another process is changing the keys; try again"),
            Self::File(error) => error.fmt(f),
            Self::Entropy(error) => write!(f, "cannot get random numbers: {error}"),
        }
    }
}

impl std::error::Error for NotKept {}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use crossbeam_channel::bounded;

    use super::super::load_or_create;
    use super::*;

    /// A regression: the thread that handles signals also reads the result of the last check. It
    /// waited for the key file, so signals had no effect while the file system hung.
    #[test]
    fn readers_of_the_trouble_do_not_wait_for_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let ring = load_or_create(dir.path()).unwrap();
        let rotation = Rotation { every: None, settle: Duration::from_secs(60) };
        let (path, commands) = (dir.path().to_owned(), CommandSender::to(0));
        let keeper = Arc::new(Keeper::new(path, ring, rotation, unix_time(), commands));
        fs::write(dir.path().join(FILE_NAME), "nonsense\n").unwrap();
        keeper.look(unix_time());
        let (reader, (result, results)) = (Arc::clone(&keeper), bounded(1));
        let hanging = keeper.state();
        thread::spawn(move || result.send((reader.has_trouble(), reader.changed_trouble())));
        let read = results.recv_timeout(Duration::from_secs(10));
        drop(hanging);
        let (has_trouble, changed) = read.expect("they return at once");
        assert!(has_trouble && changed.is_some(), "{changed:?}");
    }
}
