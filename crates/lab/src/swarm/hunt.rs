//! Runs the worlds of consecutive seeds. Each world in which a checker finds a violation is reduced
//! to a smaller one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use serde::Serialize;

use super::draw::{draw, draw_with_streams};
use super::run::{Finding, Ran, SAME, run_compared, run_twice};
use super::shrink::{Shrunk, shrink};
use super::world::World;

/// Every world whose seed is a multiple of `TWICE` is run twice, and the two runs are compared.
const TWICE: u64 = 10;

/// The parameters of a hunt: a search for violations in the worlds of many seeds.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// The first seed.
    pub from: u64,
    /// Number of seeds, or `None` for no limit.
    pub seeds: Option<u64>,
    /// Maximum number of worlds that are run at the same time, at least 1.
    pub jobs: usize,
    /// Maximum number of runs for reducing one world with a violation.
    pub tries_max: u32,
    /// True if worlds have messages on streams (TCP) besides datagrams.
    pub has_streams: bool,
}

/// The counts of a hunt so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Number of worlds run.
    pub worlds: u64,
    /// Number of worlds with a violation, plus the number of worlds that cannot be run.
    pub failed: u64,
    /// Number of calls offered.
    pub offered: u64,
    /// Number of offered calls that were set up.
    pub set_up: u64,
    /// Number of offered calls that were set up and then ended by a BYE.
    pub completed: u64,
    /// Number of packets that arrived at their receiver.
    pub delivered: u64,
    /// Number of packets that were sent and did not arrive.
    pub missing: u64,
    /// Number of faults in the runs, such as crashes, stalls, partitions and bad links.
    pub faults: u64,
    /// Number of requests, responses and calls that the checkers did not watch because their memory
    /// was full.
    pub unwatched: u64,
}

/// A world with a violation.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Seed of the world.
    pub seed: u64,
    /// The violations in the world before it was reduced.
    pub findings: Vec<Finding>,
    /// The reduced world.
    pub shrunk: Shrunk,
}

/// A report of a hunt's progress.
#[derive(Debug)]
pub enum Progress {
    /// A world was run.
    Ran(Tally),
    /// A violation was found, and the world was reduced.
    Failed(Box<Failed>),
    /// The world of this seed cannot be run. The reason is an error in the code that draws worlds.
    Impossible(u64, String),
}

/// Runs the worlds of `hunt` until all seeds are done or `stop` is set. Reports the progress to
/// `tell`.
pub fn hunt(hunt: Hunt, stop: &AtomicBool, mut tell: impl FnMut(Progress)) -> Tally {
    let next = AtomicU64::new(hunt.from);
    let end = hunt.seeds.map(|seeds| hunt.from.saturating_add(seeds));
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let (sender, receiver): (SyncSender<Done>, Receiver<Done>) = sync_channel(hunt.jobs * 4);
        for _ in 0..hunt.jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if end.is_some_and(|end| seed >= end) {
                        return;
                    }
                    if sender.send(try_seed(seed, &hunt)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for done in receiver {
            match done {
                Ok((faults, ran, failed)) => {
                    tally.add(faults, &ran);
                    tell(Progress::Ran(tally));
                    if let Some(failed) = failed {
                        tell(Progress::Failed(Box::new(failed)));
                    }
                }
                Err((seed, wrong)) => {
                    tally.failed += 1;
                    tell(Progress::Impossible(seed, wrong));
                }
            }
        }
    });
    tally
}

type Done = Result<(u64, Ran, Option<Failed>), (u64, String)>;

fn try_seed(seed: u64, hunt: &Hunt) -> Done {
    let world = if hunt.has_streams { draw_with_streams(seed) } else { draw(seed) };
    let ran = if seed.is_multiple_of(TWICE) { run_twice(&world) } else { run_compared(&world) };
    let ran = ran.map_err(|wrong| (seed, wrong))?;
    let faults = world.faults.len() as u64;
    let failed = ran.findings.first().map(|first| Failed {
        seed,
        findings: ran.findings.clone(),
        shrunk: reduce(world, &first.checker, hunt.tries_max, run_compared, run_twice),
    });
    Ok((faults, ran, failed))
}

/// Reduces a world in which `checker` finds a violation. Worlds are run by `once`. If `checker` is
/// [`SAME`], which compares two runs of a world, they are run by `twice`.
fn reduce(
    world: World,
    checker: &str,
    tries_max: u32,
    once: impl Fn(&World) -> Result<Ran, String>,
    twice: impl Fn(&World) -> Result<Ran, String>,
) -> Shrunk {
    shrink(world, checker, tries_max, |world| {
        let ran = if checker == SAME { twice(world) } else { once(world) };
        ran.map(|ran| ran.findings).unwrap_or_default()
    })
}

impl Tally {
    fn add(&mut self, faults: u64, ran: &Ran) {
        let [offered, set_up, completed] = ran.calls;
        self.worlds += 1;
        self.failed += u64::from(!ran.findings.is_empty());
        self.offered += offered;
        self.set_up += set_up;
        self.completed += completed;
        self.delivered += ran.summary.delivered;
        self.missing += ran.summary.missing();
        self.faults += faults;
        self.unwatched += ran.unwatched;
    }
}

/// Reads a world from `text`, the content of a file, and runs the world as [`run_twice`] does.
///
/// # Errors
/// Returns an error if the text is not a valid world, or the world cannot be run.
pub fn replay(text: &str) -> Result<(World, Ran), String> {
    let world = World::parse(text)?;
    let ran = run_twice(&world)?;
    Ok((world, ran))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::run::run;

    #[test]
    fn a_world_whose_runs_differ_is_reduced_by_two_runs() {
        let ran = run(&draw(1)).unwrap();
        let with = |checker: &str| {
            let finding = Finding { checker: checker.to_owned(), what: "found".to_owned() };
            let ran = Ran { findings: vec![finding], ..ran.clone() };
            move |_: &World| Ok(ran.clone())
        };
        for checker in [SAME, "calls"] {
            let shrunk = reduce(draw(1), checker, 50, with("calls"), with(SAME));
            assert_eq!((&*shrunk.finding.checker, &*shrunk.finding.what), (checker, "found"));
            assert!(shrunk.world.to_toml().len() < draw(1).to_toml().len(), "{checker}");
        }
    }
}
