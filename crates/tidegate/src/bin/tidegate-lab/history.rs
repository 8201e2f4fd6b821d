//! The git history of the sources, for the name of the commit in results.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The files that determine the program and its runs, as paths from the root of the work tree.
const SOURCES: [&str; 4] = [":/crates", ":/scenarios", ":/Cargo.toml", ":/Cargo.lock"];

/// The crates that decide the outcome of a simulated run. The other crates drive sockets or contain
/// the commands.
const SIMULATED: [&str; 12] = [
    "agent",
    "balance",
    "control",
    "emulate",
    "lab",
    "proxy",
    "server",
    "sim",
    "sip",
    "transaction",
    "transport",
    "world",
];

/// The history of the work tree around a folder.
pub struct History {
    folder: PathBuf,
    commit: String,
}

impl History {
    /// Returns the history of `folder`, or `None` if the folder is in no work tree with a commit,
    /// or if there is no git.
    pub fn of(folder: &Path) -> Option<Self> {
        let head = git(folder, &["rev-parse", "--short=8", "--verify", "HEAD"])?;
        let commit = String::from_utf8_lossy(&head.stdout).trim().to_owned();
        Some(Self { folder: folder.to_owned(), commit })
    }

    /// Returns the short name of the last commit.
    pub fn into_commit(self) -> String {
        self.commit
    }

    /// Returns whether the sources or the scenarios have changes that are not committed. Also
    /// returns true if git fails.
    pub fn is_dirty(&self) -> bool {
        let mut command = vec!["status", "--porcelain", "--"];
        command.extend(SOURCES);
        git(&self.folder, &command).is_none_or(|status| !status.stdout.is_empty())
    }

    /// Returns the crates, such as `crates/control`, that decide the outcome of a simulated run and
    /// have changed since `commit`. Returns an empty set if `commit` does not exist.
    pub fn changed_crates(&self, commit: &str) -> BTreeSet<String> {
        let sources = SIMULATED.map(|name| format!(":/crates/{name}/src"));
        let mut command =
            vec!["diff", "--name-only", "--no-relative", "--end-of-options", commit, "HEAD", "--"];
        command.extend(sources.iter().map(String::as_str));
        let files = git(&self.folder, &command).map(|files| files.stdout).unwrap_or_default();
        let files = String::from_utf8_lossy(&files);
        files.lines().filter_map(|file| Some(file.split_once("/src/")?.0.to_owned())).collect()
    }

    /// Returns whether a commit is the last commit of the work tree (HEAD), or an ancestor of that
    /// commit.
    pub fn has(&self, commit: &str) -> bool {
        let command = ["merge-base", "--is-ancestor", "--end-of-options", commit, "HEAD"];
        git(&self.folder, &command).is_some()
    }
}

/// Runs git in `folder`. Returns `None` if git fails.
fn git(folder: &Path, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    output.ok().filter(|output| output.status.success())
}
