//! The world of real sockets, in which Tidegate processes, callers and answerers run on this
//! machine.

mod server;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_agent::{AnswererStats, CallerStats};
use tidegate_sim::{Link, Silence};
use tidegate_world::Seed;

use super::{Kind, World, agents, counted};
use crate::disturbance::Disturbance;
use crate::network::Trouble;
use crate::outcome::{Generator, Outcome};
use crate::real::{Answerers, Busiest, Callers, Done};
use crate::run_spec::RunSpec;
use crate::scenario::Goodput;
use crate::timeline::Timeline;
use server::{Servers, Step};

/// The fraction of a core above which an answerer may be the cause of late responses. Callers that
/// are too slow are found by the lateness of their calls. An answerer starts no calls, so its CPU
/// time is checked instead.
const ANSWERER_LOAD_MAX: f64 = 0.95;

/// Interval at which a run checks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// The world of real sockets.
#[derive(Debug)]
pub struct Loopback {
    program: PathBuf,
}

impl Loopback {
    /// Creates the world. `program` is the path of the server program.
    pub fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl World for Loopback {
    fn kind(&self) -> Kind {
        Kind::Real
    }

    fn run(&self, run: &RunSpec, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
        check(run)?;
        let generator = |error: io::Error| format!("the generator: {error}");
        let seed = Seed(run.seed);
        let count = run.conditions.answerers as usize;
        let answerer = |index, at| agents::answerer(run, index, at);
        let answerers = Answerers::start(count, answerer, seed).map_err(generator)?;
        let addresses: Vec<_> = answerers.addresses().collect();

        let topology = &run.conditions.topology;
        let mut servers = Servers::start(&self.program, folder, run, &addresses)?;
        let entries: Vec<(usize, f64)> = topology.entries().collect();
        let entered: Vec<_> = entries.iter().map(|&(place, _)| servers.address(place)).collect();
        let callers = entries.iter().enumerate().map(|(index, &(_, share))| {
            let whole = agents::Source::WHOLE;
            let configure = |local| agents::caller(run, share, whole, local, &entered, index);
            Callers::start(configure, seed, agents::caller_element(index, 0)).map_err(generator)
        });
        let callers = callers.collect::<Result<Vec<_>, _>>()?;

        let names: Vec<&str> = topology.nodes().iter().map(|node| &*node.name).collect();
        let entered = entries.iter().map(|&(place, _)| names[place]);
        let mut timeline = Timeline::new(names.iter().copied(), entered);
        let mut busiest = Busiest::default();
        busiest.record(Duration::ZERO, answerers.cpu().map_err(generator)?);
        let began = Instant::now();
        for (at, step) in agenda(run) {
            wait(began + at, cancelled)?;
            // A late reading is recorded with its true time.
            let at = began.elapsed();
            match step {
                Some(step) => servers.apply(step)?,
                None => {
                    // If an answerer has ended, `finish` returns its error.
                    if let Ok(cpu) = answerers.cpu() {
                        busiest.record(at, cpu);
                    }
                    servers.sample(at, &mut timeline)?;
                    for (index, callers) in callers.iter().enumerate() {
                        timeline.callers(index, at, callers.reading());
                    }
                }
            }
        }

        let calls = callers.into_iter().map(Callers::finish).collect::<io::Result<Vec<_>>>();
        let calls = calls.map_err(generator)?;
        let (nodes, cpu) = servers.finish()?;
        let answers = answerers.finish().map_err(generator)?;
        let csv = timeline.csv().map_err(|error| error.to_string())?;
        fs::write(folder.join(counted::TIMELINE), csv).map_err(|error| error.to_string())?;
        let mut answered = AnswererStats::default();
        answers.iter().for_each(|answer| answered.merge(&answer.stats));
        // On real sockets all callers of a server use one address, so they are one source.
        let stats: Vec<CallerStats> = calls.iter().map(|done| done.stats.clone()).collect();
        Ok(Outcome {
            fairness: counted::fairness(&stats),
            generator: used(run, &calls, &answers, &busiest),
            tidegate_cpu_s: cpu.as_secs_f64(),
            nodes,
            ..counted::outcome(run, &stats, &answered, &timeline)
        })
    }
}

/// Returns an error if `run` has a condition that real sockets do not support. The results would
/// otherwise name a condition that had no effect.
fn check(run: &RunSpec) -> Result<(), String> {
    let conditions = &run.conditions;
    let only = |what: &str| Err(format!("{what} works only in simulated time: use `--world sim`"));
    if conditions.tcp.is_some() {
        return only("`[tcp]`");
    }
    if conditions.links.iter().any(|way| way.link != Link::default()) {
        return only("a `[[link]]`");
    }
    if conditions.goodput == Goodput::Acknowledged {
        return only("`goodput = \"acknowledged\"`");
    }
    if conditions.disturbance != Disturbance::NONE {
        return only("`[disturbance]`");
    }
    if conditions.sources > 1 {
        return only("`sources` above 1");
    }
    if conditions.trunk > 0.0 {
        return only("a `trunk`");
    }
    let is_silent = |what| matches!(what, Trouble::Crash { silence: Silence::Silent, .. });
    if run.faults().iter().any(|fault| is_silent(fault.what)) {
        return only("a crash with `silent = true`");
    }
    let can = |what| matches!(what, Trouble::Crash { .. } | Trouble::Stall { .. });
    if run.faults().iter().any(|fault| !can(fault.what)) {
        return only("a `[[fault]]` of the network or of the resolver");
    }
    Ok(())
}

/// Returns the steps of faults and the samples of `run` with their times, in order. `None` stands
/// for a sample. If several have the same time, ends of faults come first, then starts of faults,
/// then the sample, as in simulated time.
fn agenda(run: &RunSpec) -> Vec<(Duration, Option<Step>)> {
    let (every, end) = (run.sample(), agents::lasts(run));
    let looks = (1..).map(|count| every * count).take_while(|&at| at < end).chain([end]);
    let mut actions: Vec<_> = looks.map(|at| (at, 2, None)).collect();
    for fault in run.faults() {
        let (wrong, right) = match fault.what {
            Trouble::Crash { node, .. } => (Step::Kill(node), Step::Start(node)),
            Trouble::Stall { node } => {
                (Step::Stop(node, fault.end()), Step::Continue(node, fault.end()))
            }
            Trouble::Partition { .. } | Trouble::Link(_) | Trouble::Resolver(_) => continue,
        };
        actions.extend([(fault.at, 1, Some(wrong)), (fault.end(), 0, Some(right))]);
    }
    actions.retain(|(at, ..)| *at <= end);
    actions.sort_by_key(|&(at, order, _)| (at, order));
    actions.into_iter().map(|(at, _, step)| (at, step)).collect()
}

/// Returns the measurements of the load generator (callers and answerers): its CPU use, the
/// datagrams that it lost, and the reason if it was too slow. `busiest` has the CPU times of the
/// answerers during the run.
fn used(
    run: &RunSpec,
    calls: &[Done<CallerStats>],
    answers: &[Done<AnswererStats>],
    busiest: &Busiest,
) -> Generator {
    fn load<S>(done: &Done<S>) -> f64 {
        done.cpu.as_secs_f64() / done.wall.as_secs_f64()
    }
    let too_late = calls.iter().find_map(|done| done.stats.too_late());
    // A run of less than a second has no parts, so the mean over the run is used as well.
    let answerer_load = answers.iter().map(load).fold(busiest.load(), f64::max);
    let drops = calls.iter().map(|done| done.drops).chain(answers.iter().map(|done| done.drops));
    Generator {
        caller_load: calls.iter().map(load).fold(0.0, f64::max),
        answerer_load,
        drops: drops.sum(),
        too_slow: too_late
            .map(|too_late| too_late.to_string())
            .or_else(|| counted::too_slow(run, calls.iter().map(|done| &done.stats)))
            .or_else(|| overloaded(answerer_load)),
    }
}

/// Returns an error text if answerers with this CPU use may have been too slow, or else `None`.
fn overloaded(answerer_load: f64) -> Option<String> {
    let percent = answerer_load * 100.0;
    (answerer_load > ANSWERER_LOAD_MAX).then(|| {
        format!("an answerer used {percent:.0} % of a core; increase `answerers` in `[workload]`")
    })
}

fn wait(until: Instant, cancelled: &AtomicBool) -> Result<(), String> {
    loop {
        if cancelled.load(Ordering::SeqCst) {
            return Err("cancelled".to_owned());
        }
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return Ok(()),
            left => thread::sleep(left.min(LOOK)),
        }
    }
}

#[cfg(test)]
#[path = "loopback/tests.rs"]
mod tests;
