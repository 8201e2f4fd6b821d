//! Stores the outcomes of runs, each in a folder named by a hash of the run's inputs. A run with a
//! stored outcome is not made again, unless its load generator was too slow or lost datagrams.
//! Several processes may write to one store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::outcome::Outcome;
use crate::run_spec::{RunSpec, fingerprint};
use crate::worlds::Kind;

/// Name of the file with the outcome, in the folder of a run.
const RESULT: &str = "result.json";

/// A folder with the outcomes of runs.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    program: String,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    inputs: Value,
    outcome: Outcome,
}

/// A hash of the bytes of all programs that affect outcomes, as 32 hexadecimal digits.
#[derive(Clone, Debug)]
pub struct Programs(String);

impl Programs {
    /// Returns the hash of the programs in `files`.
    ///
    /// # Errors
    /// Returns an error when one of the files cannot be read.
    pub fn read(files: &[impl AsRef<Path>]) -> io::Result<Self> {
        let mut bytes = Vec::new();
        for file in files {
            bytes.extend(fs::read(file)?);
        }
        Ok(Self(fingerprint(&bytes)))
    }

    /// Returns the hash of the running program.
    ///
    /// # Errors
    /// Returns an error when the file of the program cannot be read.
    pub fn running() -> io::Result<Self> {
        Self::read(&[std::env::current_exe()?])
    }
}

impl Store {
    /// Opens the store in `folder`, and creates the folder if it does not exist. The store finds
    /// only outcomes of `programs`. Outcomes of programs with other bytes are stored separately.
    ///
    /// # Errors
    /// Returns an error when the folder cannot be created.
    pub fn open(folder: &Path, programs: &Programs) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), program: programs.0.clone() })
    }

    /// Returns the hash of the bytes of the programs, as 32 hexadecimal digits.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns the outcome of `run` if it is stored and final. The outcome is not final if the load
    /// generator was too slow or lost datagrams. In simulated time every outcome is final, because
    /// another attempt would have the same outcome.
    pub fn find(&self, run: &RunSpec) -> Option<Outcome> {
        let text = fs::read(self.place(run).join(RESULT)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        let is_final = run.world == Kind::Sim || kept.outcome.generator.kept_up();
        is_final.then_some(kept.outcome)
    }

    /// Returns a temporary folder for the files of a run in progress. Dropping the [`TempDir`]
    /// removes the folder.
    ///
    /// # Errors
    /// Returns an error when the folder cannot be created.
    pub(crate) fn workshop(&self) -> io::Result<TempDir> {
        tempfile::Builder::new().prefix(".under-way-").tempdir_in(&self.folder)
    }

    /// Stores the outcome of `run` with the files in `workshop`. If another process has stored a
    /// final outcome already, that outcome is kept. If this function fails, nothing is stored.
    ///
    /// # Errors
    /// Returns an error when the outcome cannot be written.
    pub fn keep(&self, run: &RunSpec, outcome: &Outcome, workshop: TempDir) -> io::Result<()> {
        let kept = Kept { inputs: run.inputs(&self.program), outcome: outcome.clone() };
        fs::write(workshop.path().join(RESULT), serde_json::to_vec_pretty(&kept)?)?;
        let place = self.place(run);
        match fs::rename(workshop.path(), &place) {
            Ok(()) => {
                // The folder has its final name now, so it must not be removed.
                let _ = workshop.keep();
                Ok(())
            }
            // Another process has finished the same run in the meantime.
            Err(_) if self.find(run).is_some() => Ok(()),
            // The folder exists, but has no usable outcome.
            Err(_) if place.is_dir() => {
                fs::remove_dir_all(&place)?;
                fs::rename(workshop.keep(), place)
            }
            Err(error) => Err(error),
        }
    }

    fn place(&self, run: &RunSpec) -> PathBuf {
        self.folder.join(run.id(&self.program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Generator, Quantiles};
    use crate::testing::planned;

    fn run() -> RunSpec {
        let text = "[emulate]\nserve_us = 1\n[[variant]]\noverload = {}\n";
        planned(text, Kind::Real).remove(0)
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn kept_findings_are_found_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let programs = || Programs::read(&[&program]).unwrap();
        fs::write(&program, "one").unwrap();
        let runs = folder.path().join("points");
        let store = Store::open(&runs, &programs()).unwrap();
        assert_eq!(store.find(&run()), None);

        let outcome = Outcome { offered: 5, ..Outcome::default() };
        let workshop = store.workshop().unwrap();
        fs::write(workshop.path().join("tidegate.toml"), "x").unwrap();
        store.keep(&run(), &outcome, workshop).unwrap();
        assert_eq!(store.find(&run()), Some(outcome));
        assert!(runs.join(run().id(store.program())).join("tidegate.toml").exists());
        assert_eq!(entries(&runs), 1);

        fs::write(&program, "two").unwrap();
        assert_eq!(Store::open(&runs, &programs()).unwrap().find(&run()), None);
    }

    #[test]
    fn numbers_are_read_to_the_last_bit() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &Programs::running().unwrap()).unwrap();
        // An inexact parser would read the shortest text of these numbers as a neighbouring number.
        let values = [27.134999999999998, 14.623000000000001, 1766.3990000000001];
        let [p50_ms, p90_ms, p99_ms] = values;
        let delay = Quantiles { p50_ms, p90_ms, p99_ms, max_ms: 0.0 };
        let outcome = Outcome { set_up_delay: Some(delay), ..Outcome::default() };
        store.keep(&run(), &outcome, store.workshop().unwrap()).unwrap();
        assert_eq!(store.find(&run()), Some(outcome));
    }

    #[test]
    fn a_second_outcome_does_not_replace_the_first_but_a_damaged_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("p"), &Programs::running().unwrap());
        let store = store.unwrap();
        let keep = |offered| {
            let outcome = Outcome { offered, ..Outcome::default() };
            store.keep(&run(), &outcome, store.workshop().unwrap()).unwrap();
            store.find(&run()).unwrap().offered
        };
        assert_eq!((keep(1), keep(2)), (1, 1));
        fs::write(store.place(&run()).join(RESULT), "{").unwrap();
        assert_eq!(store.find(&run()), None);
        assert_eq!(keep(3), 3);
        assert_eq!(entries(&store.folder), 1);
    }

    #[test]
    fn an_outcome_with_a_slow_generator_is_not_found_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &Programs::running().unwrap()).unwrap();
        let keep = |offered, too_slow: Option<&str>| {
            let generator =
                Generator { too_slow: too_slow.map(str::to_owned), ..Generator::default() };
            let outcome = Outcome { offered, generator, ..Outcome::default() };
            store.keep(&run(), &outcome, store.workshop().unwrap()).unwrap();
            store.find(&run()).map(|outcome| outcome.offered)
        };
        assert_eq!(keep(1, Some("late")), None);
        assert_eq!(keep(2, None), Some(2));
        assert_eq!(entries(folder.path()), 1);
    }

    #[test]
    fn an_abandoned_run_leaves_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &Programs::running().unwrap()).unwrap();
        let workshop = store.workshop().unwrap();
        fs::write(workshop.path().join("half"), "x").unwrap();
        drop(workshop);
        assert_eq!(entries(folder.path()), 0);
    }
}
