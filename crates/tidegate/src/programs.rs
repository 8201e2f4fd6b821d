//! Search for the other program: `tidegate` searches for `tidegate-lab`, and the reverse.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::trouble::Trouble;

/// Name of the proxy.
pub const TIDEGATE: &str = "tidegate";
/// Name of the laboratory.
pub const LAB: &str = "tidegate-lab";

/// Finds a program: first in the folder of the running program, and then in `PATH`.
///
/// With this order, the two programs of one build work together, even if others are installed.
///
/// # Errors
/// Returns an error if the program is in neither place, or if the path of the running program is
/// unknown.
pub fn find(name: &str) -> Result<PathBuf, Trouble> {
    let running = env::current_exe().map_err(Trouble::usage)?;
    let beside = running.parent().unwrap_or(Path::new("/"));
    let path = env::var_os("PATH").unwrap_or_default();
    search(name, beside, &path).ok_or_else(|| {
        Trouble::usage(format!(
            "this command needs the program `{name}`, which is neither in {} nor in PATH; install \
             the package `{name}`, or build both programs with `make build`",
            beside.display()
        ))
    })
}

fn search(name: &str, beside: &Path, path: &OsStr) -> Option<PathBuf> {
    let folders = std::iter::once(beside.to_owned()).chain(env::split_paths(path));
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Replaces this process by the program `name` with `args`. Returns only if that fails.
pub fn hand_over(name: &str, args: impl IntoIterator<Item = OsString>) -> Trouble {
    match find(name) {
        Ok(program) => {
            let error = Command::new(&program).args(args).exec();
            Trouble::usage(format!("cannot run {}: {error}", program.display()))
        }
        Err(trouble) => trouble,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates an empty file with the permissions `mode`.
    fn make(folder: &Path, name: &str, mode: u32) {
        fs::write(folder.join(name), "").unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_in_the_same_directory_comes_before_the_path() {
        let (beside, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let found = || search("p", beside.path(), path.path().as_os_str());
        assert_eq!(found(), None);
        make(path.path(), "p", 0o755);
        assert_eq!(found(), Some(path.path().join("p")));
        make(beside.path(), "p", 0o755);
        assert_eq!(found(), Some(beside.path().join("p")));
    }

    #[test]
    fn only_executable_files_are_programs() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "text", 0o644);
        fs::create_dir(folder.path().join("folder")).unwrap();
        for name in ["text", "folder"] {
            assert_eq!(search(name, folder.path(), OsStr::new("")), None, "{name}");
        }
    }
}
