//! The secret keys that authenticate route tokens. A file keeps them, so they outlive the process.
//!
//! The Record-Route header that Tidegate adds to a request contains a token, which names the back
//! end of the call. The token is authenticated with a key, so an in-dialog request finds its back
//! end after a restart, and at every instance that has the same keys. The keys are in the file
//! `route.key` and are rotated. [`KeyRing`] determines which key is in use. Instances on one
//! machine may share the file. For instances on other machines, the operator copies the file.

pub mod command;
mod keeper;
mod ring;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::StartError;
use crate::state_file::{draft, random, replace, sync_folder, write_durably};

pub use keeper::{Keeper, NotKept, Rotation, Watch};
pub use ring::{KEPT, KEYS_MAX, Key, KeyRing, NotRotated, Role, Shown, UnixTime};
pub(crate) use ring::{from_hex, to_hex};

/// The name of the key file in the state directory.
pub const FILE_NAME: &str = "route.key";

/// Name of the file that a process locks while it changes the key file.
const LOCK_NAME: &str = "route.key.lock";

/// Maximum length of the key file in bytes. Any valid key file is shorter.
const BYTES_MAX: u64 = 1024;

/// Reads the keys from the key file in `state_dir`. If there is no such file, creates one with
/// random keys. Processes that start at the same time get the same keys.
///
/// # Errors
/// Returns an error when the key file cannot be read or created, when users other than its owner
/// can access it, or when its content is invalid.
pub fn load_or_create(state_dir: &Path) -> Result<KeyRing, StartError> {
    let path = state_dir.join(FILE_NAME);
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(state_dir, &path)?,
        Err(error) => return Err(unreadable(&path, &error)),
        Ok(_) => {}
    }
    read(&path)
}

/// Returns the time since the Unix epoch.
#[allow(clippy::disallowed_methods)] // The instances of an address have no other time in common.
pub fn unix_time() -> UnixTime {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the state directory: `configured` if it is set, otherwise the first available one of:
/// the first directory in `$STATE_DIRECTORY`, `$XDG_STATE_HOME/tidegate`, `/var/lib/tidegate` if
/// the user is root, `$HOME/.local/state/tidegate`. A variable that is not set or has a relative
/// path is skipped. The directory need not exist.
///
/// # Errors
/// Returns an error if no directory is available.
pub fn state_dir(configured: Option<&Path>) -> Result<PathBuf, StartError> {
    let is_root = rustix::process::geteuid().is_root();
    configured
        .map(Path::to_owned)
        .or_else(|| suggested(|name| std::env::var_os(name), is_root))
        .ok_or_else(|| {
            let remedy = "set a directory: `[server] state_dir = \"/var/lib/tidegate\"`";
            let what = "no directory is configured, and $HOME is not set";
            StartError::new("state directory", what, remedy).lasting()
        })
}

fn suggested(env: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Option<PathBuf> {
    // By the XDG base directory specification, relative paths are ignored.
    let dir = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd.exec(5): several directories are separated by colons.
    let first = |list: OsString| std::env::split_paths(&list).next();
    env("STATE_DIRECTORY")
        .and_then(first)
        .filter(|path| path.is_absolute())
        .or_else(|| dir("XDG_STATE_HOME").map(|home| home.join("tidegate")))
        .or_else(|| is_root.then(|| PathBuf::from("/var/lib/tidegate")))
        .or_else(|| dir("HOME").map(|home| home.join(".local/state/tidegate")))
}

/// Reads the keys in the file at `path`.
fn read(path: &Path) -> Result<KeyRing, StartError> {
    // Opening a pipe would block, so the kind is checked first.
    let kind = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !kind.is_file() {
        let remedy = "remove it, or move it to another directory";
        return Err(StartError::new(path.display(), "not a file", remedy).lasting());
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    check_private(path, &metadata)?;

    let mut content = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut content).map_err(|error| unreadable(path, &error))?;
    KeyRing::parse(&content).map_err(|ring::Wrong { line, what }| {
        let remedy = "restore the file, or write keys of 64 hexadecimal digits (`openssl rand -hex \
                      32` prints one), or remove the file: Tidegate then makes new keys and can no \
                      longer route existing calls";
        StartError::new(format!("{}:{line}", path.display()), what, remedy).lasting()
    })
}

/// Checks that the key file belongs to the user of this process or to root, and that no other user
/// can access it. Anyone who knows a key can forge a token that routes requests to any back end.
fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), StartError> {
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("other users can access the file (mode {mode:04o})");
        let remedy = format!(
            "run `chmod 600 {0}`. If other users may have read the file, remove it instead: \
             Tidegate can then no longer route existing calls",
            path.display()
        );
        return Err(StartError::new(path.display(), what, remedy).lasting());
    }
    check_owner(path, metadata.uid(), rustix::process::geteuid().as_raw())
}

/// Checks that the key file belongs to the user `own` of this process or to root.
fn check_owner(path: &Path, owner: u32, own: u32) -> Result<(), StartError> {
    if [own, 0].contains(&owner) {
        return Ok(());
    }
    let what = format!("the file belongs to another user (uid {owner})");
    // A service that runs as the owner can no longer open the file after a `chown`.
    let remedy = format!(
        "run Tidegate as that user (`sudo -u '#{owner}' tidegate run`), or set another `[server] \
         state_dir`. If you have copied the file from another machine, run `chown {own} {}`",
        path.display()
    );
    Err(StartError::new(path.display(), what, remedy).lasting())
}

/// Atomically replaces the keys in the key file of `state_dir` with those that `change` returns.
/// Returns [`NotKept::Busy`] if another process is changing the key file.
fn change(
    state_dir: &Path,
    change: impl FnOnce(&KeyRing) -> Result<KeyRing, NotRotated>,
) -> Result<KeyRing, NotKept> {
    let path = state_dir.join(FILE_NAME);
    let unwritable = |error: io::Error| {
        let remedy =
            format!("allow the user that runs Tidegate to write to {}", state_dir.display());
        StartError::new(path.display(), format!("the file cannot be changed: {error}"), remedy)
    };
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(state_dir.join(LOCK_NAME))
        .map_err(unwritable)?;
    // Waiting here could block for as long as another process is halted.
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => NotKept::Busy,
        TryLockError::Error(error) => unwritable(error).into(),
    })?;
    let changed = change(&read(&path)?).map_err(NotKept::NotRotated)?;
    let done = replace(&path, &changed.text()).map_err(unwritable);
    drop(lock);
    done?;
    Ok(changed)
}

/// Creates the key file at `path` with new keys, unless another process creates it first.
fn create(state_dir: &Path, path: &Path) -> Result<(), StartError> {
    let unwritable = |error: io::Error| {
        let remedy = format!(
            "allow the user that runs Tidegate to write to {}, or set another directory: `[server] \
             state_dir`",
            state_dir.display()
        );
        StartError::new(path.display(), format!("the file cannot be created: {error}"), remedy)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(unwritable)?;

    let keys = random().and_then(|base| Ok(KeyRing::new(base, random()?, unix_time())));
    let keys = keys.map_err(unwritable)?;
    let draft = draft(path).map_err(unwritable)?;
    let made = write_durably(&draft, &keys.text()).and_then(|()| publish(&draft, path));
    // The draft is no longer needed: it is now a second name of the key file, or another process
    // was faster.
    let removed = fs::remove_file(&draft);
    made.and(removed).and_then(|()| sync_folder(path)).map_err(unwritable)
}

/// Gives the complete file `draft` the name `path` as a second name. A hard link is used because,
/// unlike a rename, it does not replace a file that another process has created first.
fn publish(draft: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn unreadable(path: &Path, error: &io::Error) -> StartError {
    let remedy = "allow the user that runs Tidegate to read the file, or set another directory: \
                  `[server] state_dir`";
    StartError::new(path.display(), format!("the file cannot be read: {error}"), remedy)
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
