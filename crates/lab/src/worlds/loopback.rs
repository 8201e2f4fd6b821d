//! The world of real sockets: a point is run by a Tidegate of its own between callers and
//! answerers of its own, on this machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_agent::{AnswererStats, CallerStats};
use tidegate_world::Seed;

use super::{Kind, World, agents, counted};
use crate::outcome::{Generator, Outcome};
use crate::point::Point;
use crate::real::{Answerers, Callers, Done, Tidegate};

/// How often it looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// Real sockets of this machine.
#[derive(Debug)]
pub struct Loopback {
    program: PathBuf,
}

impl Loopback {
    /// With `program` as Tidegate.
    pub fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl World for Loopback {
    fn kind(&self) -> Kind {
        Kind::Real
    }

    fn run(&self, point: &Point, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
        let generator = |error: io::Error| format!("the generator: {error}");
        let seed = Seed(point.seed);
        let count = point.conditions.answerers as usize;
        let answerers = Answerers::start(count, agents::answerer, seed).map_err(generator)?;
        let addresses: Vec<_> = answerers.addresses().collect();

        let state_dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let configuration = point.configuration(Some(state_dir.path()), any, &addresses);
        let tidegate = Tidegate::start(&self.program, folder, &configuration)
            .map_err(|error| error.to_string())?;

        let configure = |local| agents::caller(point, local, tidegate.address());
        let callers = Callers::start(configure, seed).map_err(generator)?;
        wait(agents::lasts(point), cancelled)?;

        let silent = |error: io::Error| format!("Tidegate: {error}; it said:\n{}", tidegate.said());
        let status = tidegate.status().map_err(silent)?;
        let tidegate_cpu_s = tidegate.cpu().map_err(silent)?.as_secs_f64();
        let calls = callers.finish().map_err(generator)?;
        tidegate.stop().map_err(|error| format!("Tidegate: {error}"))?;
        let answers = answerers.finish().map_err(generator)?;
        Ok(Outcome {
            generator: used(&calls, &answers),
            tidegate_cpu_s,
            status,
            ..counted::outcome(point, &calls.stats)
        })
    }
}

/// How the generator did.
fn used(calls: &Done<CallerStats>, answers: &[Done<AnswererStats>]) -> Generator {
    let load = |cpu: Duration, wall: Duration| cpu.as_secs_f64() / wall.as_secs_f64();
    Generator {
        caller_load: load(calls.cpu, calls.wall),
        answerer_load: answers.iter().map(|a| load(a.cpu, a.wall)).fold(0.0, f64::max),
        drops: calls.drops + answers.iter().map(|answer| answer.drops).sum::<u64>(),
        too_slow: calls.stats.too_slow().map(|too_slow| too_slow.to_string()),
    }
}

fn wait(time: Duration, cancelled: &AtomicBool) -> Result<(), String> {
    let until = Instant::now() + time;
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
