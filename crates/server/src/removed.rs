//! A list of the back ends that were removed from the configuration, in a file in the state
//! directory.
//!
//! The route token of a call contains the address of its back end, and a request is only forwarded
//! to a known address. After a restart, a process knows the configured back ends from its
//! configuration, and the recently removed ones from this file. So calls at removed back ends can
//! still be ended. Each line of the file has an address, followed by `configured` or by the Unix
//! time, in seconds, at which the address was first missing in the configuration.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::state_file;

const FILE_NAME: &str = "backends";

/// Maximum number of addresses read from the file. Configured addresses come first in the file.
const ADDRESSES_MAX: usize = 65_536;

/// The file in a state directory that lists configured and recently removed back ends.
#[derive(Clone, Debug)]
pub(crate) struct RemovedBackends {
    path: PathBuf,
    keep: Duration,
}

impl RemovedBackends {
    /// Returns the file in `state_dir`. A removed address is kept for the time `keep`.
    pub(crate) fn new(state_dir: &Path, keep: Duration) -> Self {
        Self { path: state_dir.join(FILE_NAME), keep }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that [`update`](Self::update) can read and write the file, without changing the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.read()?;
        state_file::check(&self.path)
    }

    /// Records that the addresses `configured` are in the configuration at `now`, in Unix seconds.
    /// Returns the addresses that were removed from the configuration and are still kept, most
    /// recently removed first.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written. Lines that cannot be parsed are
    /// skipped.
    pub(crate) fn update(
        &self,
        now: u64,
        configured: impl IntoIterator<Item = SocketAddr>,
    ) -> io::Result<Vec<SocketAddr>> {
        let text = self.read()?;
        let known = text.lines().filter_map(|line| line.split_once(' '));
        let mut gone: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        for (address, since) in known.take(ADDRESSES_MAX) {
            let Ok(address) = address.parse() else { continue };
            // If the clock was set back, a time may be in the future. Then it counts as now.
            let since = since.parse().map_or(now, |since: u64| since.min(now));
            gone.insert(address, since);
        }
        let configured: BTreeSet<_> = configured.into_iter().collect();
        gone.retain(|address, _| !configured.contains(address));
        gone.retain(|_, since| now - *since < self.keep.as_secs());

        let mut lines: Vec<_> = configured.iter().map(|at| format!("{at} configured\n")).collect();
        // A reader skips lines beyond its limit. So the addresses removed first come last.
        let mut gone: Vec<_> = gone.into_iter().collect();
        gone.sort_by_key(|&(_, since)| Reverse(since));
        lines.extend(gone.iter().map(|(address, since)| format!("{address} {since}\n")));
        state_file::replace(&self.path, &lines.concat())?;
        Ok(gone.into_iter().map(|(address, _)| address).collect())
    }

    fn read(&self) -> io::Result<String> {
        match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn an_address_is_kept_for_a_time_after_it_is_gone_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
        let at = |now, ports: &[u16]| {
            let gone = removed.update(now, ports.iter().copied().map(address)).unwrap();
            gone.iter().map(SocketAddr::port).collect::<Vec<_>>()
        };
        assert_eq!(at(1000, &[1, 2, 3]), [0; 0]);
        // An address counts as removed from the time of the first call without it.
        assert_eq!(at(5000, &[1]), [2, 3]);
        assert_eq!(at(5050, &[1, 3]), [2], "it is back");
        assert_eq!(at(5099, &[1]), [3, 2], "the latest is the first");
        assert_eq!(at(5100, &[1]), [3], "the time of the other is over");
        assert_eq!(at(4000, &[1]), [3], "the clock was set back");
        assert_eq!(at(4100, &[1]), [0; 0]);
    }

    #[test]
    fn damaged_lines_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
        fs::write(removed.path(), "nonsense\n192.0.2.1:7 configured\n192.0.2.1:8\n").unwrap();
        assert_eq!(removed.update(1, []).unwrap(), [address(7)]);
    }

    /// Two instances share the directory, and an operator reloads both at once.
    #[test]
    fn processes_that_write_at_the_same_time_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
        let write = || (0..300).try_for_each(|_| removed.update(1, [address(7)]).map(drop));
        let [one, other] = std::thread::scope(|scope| {
            [scope.spawn(write), scope.spawn(write)].map(|thread| thread.join().unwrap())
        });
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
        assert_eq!(fs::read_to_string(removed.path()).unwrap(), "192.0.2.1:7 configured\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn an_unreadable_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
        fs::write(removed.path(), [0xff]).unwrap();
        assert!(removed.check().is_err() && removed.update(1, [address(7)]).is_err());
        assert_eq!(fs::read(removed.path()).unwrap(), [0xff]);
    }

    #[test]
    fn a_check_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
        removed.check().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no draft is left");
        assert!(RemovedBackends::new(&dir.path().join("absent"), removed.keep).check().is_err());
    }
}
