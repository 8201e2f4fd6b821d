//! Files in the state directory that are replaced as a whole.
//!
//! Several processes may share the directory. So each process writes a draft with a unique name,
//! and then renames the draft in one step. A reader sees either the old or the new content, even
//! after a loss of power.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the file at `path` with one that contains `text`.
///
/// # Errors
/// Returns an error if the file cannot be written. Then either the old file is unchanged, or the
/// new file is in its place, but a loss of power may bring back the old one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = draft(path)?;
    let written = write_durably(&draft, text);
    let named = written.and_then(|()| fs::rename(&draft, path));
    named.inspect_err(|_| drop(fs::remove_file(&draft)))?;
    sync_folder(path)
}

/// Checks that the file at `path` can be replaced, without changing the file.
///
/// # Errors
/// Returns an error if no draft can be written beside the file.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let draft = draft(path)?;
    let written = write_durably(&draft, "");
    written.and_then(|()| fs::remove_file(&draft))
}

/// Returns a path for a draft of the file at `path`. A random suffix distinguishes it from the
/// drafts of other processes.
pub(crate) fn draft(path: &Path) -> io::Result<PathBuf> {
    let mark: [u8; 4] = random()?;
    let mut draft: OsString = path.into();
    draft.push(format!(".{:08x}", u32::from_be_bytes(mark)));
    Ok(draft.into())
}

/// Creates a file that only its owner can read, writes `text` into it, and waits until the text is
/// on disk.
pub(crate) fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Waits until changes of file names in the folder of `path` are on disk, so that they survive a
/// loss of power.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Returns random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
