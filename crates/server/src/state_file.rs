//! Files in the state directory that are replaced as a whole.
//!
//! Several processes may share the directory. So each writes a draft with a name of its own, and
//! gives it the final name in one step. Readers see the old or the new content, also after a loss
//! of power.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the file at `path`.
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

/// Checks that the file at `path` can be replaced. Leaves it as it is.
///
/// # Errors
/// Returns an error if no draft can be written beside the file.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let draft = draft(path)?;
    let written = write_durably(&draft, "");
    written.and_then(|()| fs::remove_file(&draft))
}

/// Returns the path of a draft for the file at `path`, which no other process writes.
pub(crate) fn draft(path: &Path) -> io::Result<PathBuf> {
    let mark: [u8; 4] = random()?;
    let mut draft: OsString = path.into();
    draft.push(format!(".{:08x}", u32::from_be_bytes(mark)));
    Ok(draft.into())
}

/// Writes a new file that only its owner can read.
pub(crate) fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the names in the folder of `path` survive a loss of power.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Returns random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
