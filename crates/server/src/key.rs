//! The secret key, which outlives the process.
//!
//! The token in our Record-Route is authenticated with it, so a request inside a
//! dialog finds its back end after a restart and at every instance that has the
//! same key. `route.key` holds one key a line, 64 hexadecimal digits each: the
//! first one makes tokens, all of them verify, so a key is rotated by writing a
//! new line above the old one and removing the old one a day later.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::StartError;

/// The name of the key file in the state directory.
pub const FILE_NAME: &str = "route.key";

/// A secret key: 256 bits.
pub type Key = [u8; 32];

/// Keys in the file at the most: each one more is tried on every forged token.
const KEYS_MAX: usize = 8;

/// The keys of this instance.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Makes tokens, and verifies them.
    pub current: Key,
    /// Verify tokens that were made before the last rotations; newest first.
    pub previous: Vec<Key>,
}

impl Keys {
    /// Reads the keys in `state_dir`, which is created with a new key from the
    /// operating system's entropy if there is none. Processes that start at the
    /// same time agree on the key.
    ///
    /// # Errors
    /// When the file cannot be read or made, when others than its owner may read
    /// it, or when its content is not keys.
    pub fn load_or_create(state_dir: &Path) -> Result<Self, StartError> {
        let path = state_dir.join(FILE_NAME);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(state_dir, &path)?,
            Err(error) => return Err(unreadable(&path, &error)),
            Ok(_) => {}
        }
        read(&path)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(secret, {} previous)", self.previous.len())
    }
}

/// The state directory: the `configured` one, or the first that the environment
/// suggests: `$STATE_DIRECTORY`, `$XDG_STATE_HOME/tidegate`, `/var/lib/tidegate`
/// for root, `~/.local/state/tidegate`.
///
/// # Errors
/// When the configuration names none and there is no home either.
pub fn state_dir(configured: Option<&Path>) -> Result<PathBuf, StartError> {
    let is_root = rustix::process::geteuid().is_root();
    configured
        .map(Path::to_owned)
        .or_else(|| suggested(|name| std::env::var_os(name), is_root))
        .ok_or_else(|| {
            let remedy = "name one: `[server] state_dir = \"/var/lib/tidegate\"`";
            StartError::new("state directory", "none is configured and $HOME is not set", remedy)
        })
}

fn suggested(env: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Option<PathBuf> {
    // The XDG base directory specification has relative paths ignored.
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

fn read(path: &Path) -> Result<Keys, StartError> {
    // A pipe would block the opening, so the kind is looked at first.
    let kind = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !kind.is_file() {
        return Err(StartError::new(path.display(), "not a file", "move it out of the way"));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    check_private(path, &metadata)?;

    let mut content = Vec::new();
    let most = (KEYS_MAX * 65 + 1) as u64;
    file.take(most).read_to_end(&mut content).map_err(|error| unreadable(path, &error))?;
    parse(path, &content)
}

/// Whoever reads the key can have requests routed to any back end.
fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), StartError> {
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("others than its owner may use it (mode {mode:04o})");
        let remedy = format!(
            "make it private, `chmod 600 {0}`; if others may have read it, remove it instead: \
             calls set up before then lose their way",
            path.display()
        );
        return Err(StartError::new(path.display(), what, remedy));
    }
    let own = rustix::process::geteuid().as_raw();
    if ![own, 0].contains(&metadata.uid()) {
        let what = format!("it belongs to another user (uid {})", metadata.uid());
        let remedy = format!("`chown {own} {}`, or remove it", path.display());
        return Err(StartError::new(path.display(), what, remedy));
    }
    Ok(())
}

fn parse(path: &Path, content: &[u8]) -> Result<Keys, StartError> {
    let lines = content.strip_suffix(b"\n").unwrap_or(content).split(|byte| *byte == b'\n');
    let mut keys = Vec::new();
    for (index, line) in lines.enumerate() {
        let place = format!("{}:{}", path.display(), index + 1);
        if index == KEYS_MAX {
            let what = format!("more than {KEYS_MAX} keys");
            return Err(StartError::new(place, what, "remove the oldest, at the end"));
        }
        let key = from_hex(line).ok_or_else(|| {
            let what = format!("not a key: {}", complaint(line));
            let remedy = "write 64 hexadecimal digits, as `openssl rand -hex 32` prints them, \
                          or remove the file to have a new key made";
            StartError::new(place, what, remedy)
        })?;
        keys.push(key);
    }
    let current = keys.remove(0);
    Ok(Keys { current, previous: keys })
}

/// What is wrong with a line, without showing a secret that is nearly right.
fn complaint(line: &[u8]) -> String {
    match line.iter().position(|byte| !byte.is_ascii_hexdigit()) {
        _ if line.is_empty() => "an empty line".to_owned(),
        Some(at) => format!("character {} is not a hexadecimal digit", at + 1),
        None => format!("{} digits", line.len()),
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

/// Makes the file with one new key, unless somebody else has made it meanwhile.
fn create(state_dir: &Path, path: &Path) -> Result<(), StartError> {
    let unwritable = |error: io::Error| {
        let remedy = format!(
            "let this user write there, or name another directory: `[server] state_dir` \
             (now {})",
            state_dir.display()
        );
        StartError::new(path.display(), format!("cannot be made: {error}"), remedy)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(unwritable)?;

    let key: Key = random().map_err(unwritable)?;
    let mark: [u8; 4] = random().map_err(unwritable)?;
    let draft = state_dir.join(format!("{FILE_NAME}.{:08x}", u32::from_be_bytes(mark)));
    let made = write_durably(&draft, &to_hex(&key)).and_then(|()| publish(&draft, path));
    // It is either the second name of the file or a draft that came too late.
    let removed = fs::remove_file(&draft);
    made.and(removed).and_then(|()| File::open(state_dir)?.sync_all()).map_err(unwritable)
}

fn write_durably(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}

/// Gives the draft its name in one step. A link, unlike a rename, does not replace
/// the key of a process that was faster.
fn publish(draft: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> StartError {
    let remedy = "let this user read it, or name another directory: `[server] state_dir`";
    StartError::new(path.display(), format!("cannot be read: {error}"), remedy)
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
