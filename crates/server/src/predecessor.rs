//! Stores the random seed of a process in the state directory, where the next process reads it.
//!
//! With the seed of the previous process, a process can forward the CANCEL of an INVITE that the
//! previous process has forwarded (module `stateless::lost` of the proxy).
//!
//! If several processes share the state directory, the seed is that of the process that started
//! last. So after a restart of another one of them, the new process has the wrong seed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidegate_world::Seed;

/// The name of the file with the seed in the state directory.
pub const FILE_NAME: &str = "process";

/// Maximum length of the file with the seed, in bytes.
const BYTES_MAX: usize = 32;

/// Returns the seed of the previous process, or `None` if the file does not exist or cannot be
/// read. The process can start without this seed, which only the forwarding of CANCEL needs.
pub fn read(state_dir: &Path) -> Option<Seed> {
    let text = fs::read_to_string(state_dir.join(FILE_NAME)).ok();
    let text = text.filter(|text| text.len() <= BYTES_MAX);
    text.and_then(|text| text.trim().parse().ok()).map(Seed)
}

/// A draft of the file with the seed of this process. It is removed when this value is dropped,
/// except if it was stored.
///
/// Writing the draft needs a file descriptor, but storing it needs none. So a process can write the
/// draft first, then open all its other files, and store the seed when its start has succeeded.
///
/// Errors are ignored, because only the forwarding of CANCEL needs the seed.
pub struct SeedDraft {
    draft: PathBuf,
    path: PathBuf,
}

impl SeedDraft {
    /// Writes the draft into the state directory.
    pub fn write(state_dir: &Path, own: Seed) -> Self {
        let path = state_dir.join(FILE_NAME);
        let draft = state_dir.join(format!("{FILE_NAME}.{:016x}", own.0));
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&draft);
        if file.and_then(|mut file| writeln!(file, "{}", own.0)).is_err() {
            let _ = fs::remove_file(&draft);
        }
        Self { draft, path }
    }

    /// Stores the seed for the next process.
    pub fn store(&self) {
        let _ = fs::rename(&self.draft, &self.path);
    }
}

impl Drop for SeedDraft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_knows_its_predecessor() {
        let succeed = |state_dir: &Path, own: Seed| {
            let before = read(state_dir);
            SeedDraft::write(state_dir, own).store();
            before
        };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(succeed(dir.path(), Seed(u64::MAX)), None);
        assert_eq!(succeed(dir.path(), Seed(2)), Some(Seed(u64::MAX)));
        fs::write(dir.path().join(FILE_NAME), "no number").unwrap();
        assert_eq!(succeed(dir.path(), Seed(3)), None);
        assert_eq!(succeed(dir.path(), Seed(4)), Some(Seed(3)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
        assert_eq!(succeed(&dir.path().join("absent"), Seed(5)), None);
    }

    #[test]
    fn a_process_that_does_not_start_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        SeedDraft::write(dir.path(), Seed(1)).store();
        drop(SeedDraft::write(dir.path(), Seed(2)));
        assert_eq!(read(dir.path()), Some(Seed(1)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
