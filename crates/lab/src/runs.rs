//! Performs the runs of a list, several at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::outcome::Outcome;
use crate::run_spec::RunSpec;
use crate::store::Store;
use crate::worlds::{Kind, World};

/// Maximum number of attempts to make a run. A run is repeated if the load generator was too slow
/// or lost datagrams because the machine was busy, since such a run does not measure the server. In
/// simulated time there is only one attempt, because further attempts would be equal.
const ATTEMPTS_MAX: u32 = 3;

/// An observer of the progress of runs. Several threads call its methods.
pub trait Observer: Sync {
    /// Reports the start. `missing` are the runs that will be made. `found` is the number of
    /// further runs whose results are already stored.
    fn on_start(&self, missing: &[&RunSpec], found: usize);

    /// Reports the result of a run that has ended.
    fn ended(&self, run: &RunSpec, result: &Result<Outcome, String>);

    /// Reports that all runs have ended.
    fn end(&self);
}

/// A run with its outcome, or with the error that prevented it.
pub type Run = (RunSpec, Result<Outcome, String>);

/// Returns the results of `runs`, in the same order. Results that `store` already has are not
/// computed again. The other runs are made in `world`, at most `jobs` at the same time. After
/// `cancelled` became true, runs that were not started or that failed are omitted.
pub fn run(
    runs: Vec<RunSpec>,
    store: &Store,
    world: &dyn World,
    jobs: usize,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Vec<Run> {
    let mut results: Vec<Option<Result<Outcome, String>>> =
        runs.iter().map(|run| store.find(run).map(Ok)).collect();
    let missing: Vec<usize> = (0..runs.len()).filter(|&i| results[i].is_none()).collect();
    let begun: Vec<&RunSpec> = missing.iter().map(|&index| &runs[index]).collect();
    observer.on_start(&begun, runs.len() - missing.len());

    let done = each(&missing, jobs, cancelled, |&index| {
        let result = run_one(&runs[index], store, world, cancelled);
        let counts = !cancelled.load(SeqCst) || result.is_ok();
        counts.then(|| {
            observer.ended(&runs[index], &result);
            (index, result)
        })
    });
    observer.end();

    for (index, result) in done {
        results[index] = Some(result);
    }
    runs.into_iter().zip(results).filter_map(|(run, result)| Some((run, result?))).collect()
}

/// Calls `work` for each of `items` on `jobs` threads, until `cancelled` becomes true. Returns the
/// results in any order, without those that are `None`.
pub(crate) fn each<I: Sync, T: Send>(
    items: &[I],
    jobs: usize,
    cancelled: &AtomicBool,
    work: impl Fn(&I) -> Option<T> + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, SeqCst)) {
            if cancelled.load(SeqCst) {
                break;
            }
            if let Some(result) = work(item) {
                done.lock().expect("no thread panics while it holds it").push(result);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(work);
        }
    });
    done.into_inner().expect("no thread panicked")
}

fn run_one(
    run: &RunSpec,
    store: &Store,
    world: &dyn World,
    cancelled: &AtomicBool,
) -> Result<Outcome, String> {
    let unwritten = |error: std::io::Error| format!("cannot write the result of the run: {error}");
    let mut attempts = 0;
    loop {
        attempts += 1;
        let workshop = store.workshop().map_err(unwritten)?;
        let outcome = Outcome { attempts, ..world.run(run, workshop.path(), cancelled)? };
        let is_last = attempts == ATTEMPTS_MAX || world.kind() == Kind::Sim;
        if outcome.generator.kept_up() || is_last {
            store.keep(run, &outcome, workshop).map_err(unwritten)?;
            return Ok(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::outcome::Generator;
    use crate::store::Programs;
    use crate::testing::planned;
    use crate::worlds::Computed;

    /// A world that offers as many calls as the seed of the run, and fails for the seed 3.
    #[derive(Default)]
    struct Fake {
        runs: AtomicUsize,
        /// Number of runs at the beginning in which the generator is too slow.
        slow: usize,
        cancel_at: Option<usize>,
    }

    impl World for Fake {
        fn kind(&self) -> Kind {
            Kind::Real
        }

        fn run(&self, run: &RunSpec, _: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
            let runs = self.runs.fetch_add(1, SeqCst) + 1;
            if self.cancel_at == Some(runs) {
                cancelled.store(true, SeqCst);
            }
            if run.seed == 3 {
                return Err("three".to_owned());
            }
            let too_slow = (runs <= self.slow).then(|| "busy".to_owned());
            let generator = Generator { too_slow, ..Generator::default() };
            Ok(Outcome { offered: run.seed, generator, ..Outcome::default() })
        }
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Observer for Heard {
        fn on_start(&self, missing: &[&RunSpec], found: usize) {
            self.0.lock().unwrap().push(format!("{found} of {}", found + missing.len()));
        }
        fn ended(&self, run: &RunSpec, result: &Result<Outcome, String>) {
            self.0.lock().unwrap().push(format!("{} {}", run.seed, result.is_ok()));
        }
        fn end(&self) {
            self.0.lock().unwrap().push("end".to_owned());
        }
    }

    fn six() -> Vec<RunSpec> {
        let text = "[emulate]\nserve_us = 1\n[[variant]]\noverload = {}\n\
                    [schedule]\nrepetitions = 6\n";
        planned(text, Kind::Real)
    }

    fn store(folder: &Path) -> Store {
        Store::open(folder, &Programs::running().unwrap()).unwrap()
    }

    #[test]
    fn results_are_ordered_and_only_missing_runs_are_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let (world, go_on) = (Fake::default(), AtomicBool::new(false));
        let run = |jobs| run(six(), &store, &world, jobs, &Heard::default(), &go_on);
        let results = run(4);
        let offered: Vec<_> =
            results.iter().map(|(_, r)| r.as_ref().map_or(0, |o| o.offered)).collect();
        assert_eq!(offered, [1, 2, 0, 4, 5, 6]);
        assert_eq!(world.runs.load(SeqCst), 6);
        assert_eq!(run(1).len(), 6);
        assert_eq!(world.runs.load(SeqCst), 7, "only the one that failed");
    }

    #[test]
    fn a_run_with_a_slow_generator_is_retried_a_few_times() {
        for (slow, attempts, kept_up) in [(0, 1, true), (2, 3, true), (3, 3, false)] {
            let folder = tempfile::tempdir().unwrap();
            let world = Fake { slow, ..Fake::default() };
            let go_on = AtomicBool::new(false);
            let one = vec![six().remove(0)];
            let results = run(one, &store(folder.path()), &world, 1, &Heard::default(), &go_on);
            let outcome = results[0].1.as_ref().unwrap();
            assert_eq!((outcome.attempts, outcome.generator.kept_up()), (attempts, kept_up));
            assert_eq!(world.runs.load(SeqCst), attempts as usize);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            let fast = Fake::default();
            let one = vec![six().remove(0)];
            let results = run(one, &store(folder.path()), &fast, 1, &Heard::default(), &go_on);
            assert!(results[0].1.as_ref().unwrap().generator.kept_up());
            assert_eq!(fast.runs.load(SeqCst), usize::from(!kept_up), "only an invalid run");
        }
    }

    #[test]
    fn a_simulated_run_is_not_retried() {
        let count = AtomicUsize::new(0);
        // Callers begin too few calls.
        let world = Computed::new(Kind::Sim, |_, _, _| {
            count.fetch_add(1, SeqCst);
            let too_slow = Some("too many open calls".to_owned());
            let generator = Generator { too_slow, ..Generator::default() };
            Ok(Outcome { generator, ..Outcome::default() })
        });
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        for _ in 0..2 {
            let one = vec![RunSpec { world: Kind::Sim, ..six().remove(0) }];
            let go_on = AtomicBool::new(false);
            let results = run(one, &store, &world, 1, &Heard::default(), &go_on);
            let outcome = results[0].1.as_ref().unwrap();
            assert_eq!((outcome.attempts, outcome.generator.kept_up()), (1, false));
        }
        assert_eq!(count.load(SeqCst), 1);
    }

    #[test]
    fn the_observer_hears_of_every_point() {
        let folder = tempfile::tempdir().unwrap();
        let heard = Heard::default();
        let go_on = AtomicBool::new(false);
        run(six(), &store(folder.path()), &Fake::default(), 1, &heard, &go_on);
        let expected =
            ["0 of 6", "1 true", "2 true", "3 false", "4 true", "5 true", "6 true", "end"];
        assert_eq!(heard.0.into_inner().unwrap(), expected);
    }

    #[test]
    fn runs_cancelled_before_they_began_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let world = Fake { cancel_at: Some(3), ..Fake::default() };
        let cancelled = AtomicBool::new(false);
        let store = store(folder.path());
        let results = run(six(), &store, &world, 1, &Heard::default(), &cancelled);
        let seeds: Vec<_> = results.iter().map(|(run, _)| run.seed).collect();
        assert_eq!(seeds, [1, 2], "the third failed because it was cancelled");
        assert_eq!(world.runs.load(SeqCst), 3);
    }
}
