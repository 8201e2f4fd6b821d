//! The ring of slots in a recording's file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::block::{HEADER, Header};
use super::head::Head;
use super::layout::{Layout, SIZE_MIN, SLOTS};
use crate::state_file;

/// The file of a recording while it is written.
#[derive(Debug)]
pub(super) struct Ring {
    file: File,
    layout: Layout,
    /// Index of the slot that is written now.
    slot: u64,
    /// Offset within the current slot at which the next block is written.
    at: u64,
    /// The bytes that are written for one block: header, inputs and end mark.
    frame: Vec<u8>,
}

impl Ring {
    /// Creates the file, which only its owner may read. Keeps an earlier recording at `path`, but
    /// adds `.old` to its name. The slots may grow to `size` bytes in total, or to [`SIZE_MIN`] if
    /// `size` is smaller.
    pub fn create(path: &Path, head: &Head, size: u64) -> io::Result<Self> {
        let slot = size.max(SIZE_MIN) / SLOTS;
        let file = new_file(path)?;
        // The offsets of the slots do not affect the length of the head, so 0 is used for now.
        let draft = Layout { first: 0, slot };
        let bytes = head.encode(&draft);
        let too_big = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the maximum size of the recording is too large",
            )
        };
        let layout = Layout::of(bytes.len(), slot).ok_or_else(too_big)?;
        file.write_all_at(&bytes, 0)?;
        Ok(Self { file, layout, slot: 0, at: 0, frame: Vec::new() })
    }

    /// Writes a block, and after it an end mark (zeros), so that a reader does not mistake older
    /// bytes in the slot for the next block.
    pub fn write(&mut self, header: &Header, payload: &[u8]) -> io::Result<()> {
        let len = (HEADER + payload.len()) as u64;
        if self.at + len > self.layout.slot {
            self.slot = (self.slot + 1) % SLOTS;
            self.at = 0;
        }
        let end_mark = (self.layout.slot - self.at - len).min(HEADER as u64) as usize;
        self.frame.clear();
        self.frame.extend(header.encode());
        self.frame.extend(payload);
        self.frame.resize(self.frame.len() + end_mark, 0);
        self.file.write_all_at(&self.frame, self.layout.offset(self.slot) + self.at)?;
        self.at += len;
        Ok(())
    }
}

/// Creates the file at `path`, which must be free, empty, or an earlier recording. Renames an
/// earlier recording, because it may show the cause of a crash after which the process was started
/// again. Writes into no existing file, so that a process that has such a file open does not see
/// the keys. Follows no links.
fn new_file(path: &Path) -> io::Result<File> {
    match len_of_occupant(path)? {
        None => {}
        Some(0) => fs::remove_file(path)?,
        Some(_) => fs::rename(path, old_path(path))?,
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Checks that a recording can be created at `path`, without changing a file.
///
/// # Errors
/// Returns an error of the kind `AlreadyExists` if the recording would replace another file.
/// Returns an error of another kind if no file can be written in the directory.
pub(super) fn check(path: &Path) -> io::Result<()> {
    len_of_occupant(path)?;
    state_file::check(path)
}

/// Returns the length of the file at `path`, or `None` if there is no file.
///
/// # Errors
/// Returns an error if the file is neither empty nor a recording, or if it is a recording that
/// cannot be renamed because of another file.
fn len_of_occupant(path: &Path) -> io::Result<Option<u64>> {
    let len = len_of_replaceable(path)?;
    if len.is_some_and(|len| len > 0) {
        let old = old_path(path);
        len_of_replaceable(&old)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", old.display())))?;
    }
    Ok(len)
}

/// Returns the path at which an earlier recording at `path` is kept.
fn old_path(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old.into()
}

/// Returns the length of the file at `path`, or `None` if there is no file.
///
/// # Errors
/// Returns an error if the file is neither empty nor a recording.
fn len_of_replaceable(path: &Path) -> io::Result<Option<u64>> {
    let occupied = |what| Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    match path.symlink_metadata() {
        Ok(there) if !there.is_file() => occupied("not a file"),
        Ok(there) if there.len() > 0 && !Head::begins(path)? => {
            occupied("not a recording, so it is not overwritten")
        }
        Ok(there) => Ok(Some(there.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
