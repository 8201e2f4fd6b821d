//! The world of real sockets: a point is run by a Tidegate of its own between callers and
//! answerers of its own, on this machine.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_agent::{AnswererStats, CallerConfig, CallerStats, Load, Timing};
use tidegate_world::Seed;

use crate::outcome::{Generator, Outcome, Quantiles};
use crate::point::Point;
use crate::real::{Answerers, Callers, Done, Tidegate};
use crate::runs::World;

/// How often it looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// Beyond the deadline of the last call, for what is still on its way to be counted.
const MARGIN: Duration = Duration::from_millis(100);

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
    fn run(&self, point: &Point, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
        let generator = |error: io::Error| format!("the generator: {error}");
        let (seed, conditions) = (Seed(point.seed), &point.conditions);
        let count = conditions.answerers as usize;
        let answerers = Answerers::start(count, Duration::ZERO, seed).map_err(generator)?;
        let addresses: Vec<_> = answerers.addresses().collect();

        let state_dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let configuration = point.configuration(state_dir.path(), &addresses);
        let tidegate = Tidegate::start(&self.program, folder, &configuration)
            .map_err(|error| error.to_string())?;

        let configure = |local| callers(point, local, tidegate.address());
        let callers = Callers::start(configure, seed).map_err(generator)?;
        let deadline = millis(conditions.deadline_ms);
        wait(point.warm_up + point.measured + deadline + MARGIN, cancelled)?;

        let silent = |error: io::Error| format!("Tidegate: {error}; it said:\n{}", tidegate.said());
        let status = tidegate.status().map_err(silent)?;
        let tidegate_cpu_s = tidegate.cpu().map_err(silent)?.as_secs_f64();
        let calls = callers.finish().map_err(generator)?;
        tidegate.stop().map_err(|error| format!("Tidegate: {error}"))?;
        let answers = answerers.finish().map_err(generator)?;
        Ok(Outcome { tidegate_cpu_s, status, ..outcome(point, &calls, &answers) })
    }
}

fn callers(point: &Point, local: SocketAddr, target: SocketAddr) -> CallerConfig {
    let conditions = &point.conditions;
    CallerConfig {
        load: Load {
            process: conditions.arrivals.clone(),
            rate_cps: point.rate_cps(),
            calls: u32::MAX,
            duration: point.warm_up + point.measured,
            ..Load::default()
        },
        hold: Duration::from_secs_f64(conditions.hold_s).into(),
        patience: Duration::from_secs_f64(conditions.patience_s).into(),
        deadline: millis(conditions.deadline_ms),
        warm_up: point.warm_up,
        timing: Timing { t1: millis(conditions.t1_ms), ..Timing::default() },
        ..CallerConfig::new(local, target)
    }
}

fn outcome(point: &Point, calls: &Done<CallerStats>, answers: &[Done<AnswererStats>]) -> Outcome {
    let measured = &calls.stats.measured;
    let quantile = |q: f64| measured.set_up_delay.quantile(q).as_secs_f64() * 1e3;
    let load = |cpu: Duration, wall: Duration| cpu.as_secs_f64() / wall.as_secs_f64();
    Outcome {
        offered: measured.offered,
        set_up: measured.set_up,
        set_up_in_time: measured.set_up_in_time,
        refused: measured.refused,
        repeated_invites: measured.repeated_invites,
        measured_s: point.measured.as_secs_f64(),
        set_up_delay: (measured.set_up > 0).then(|| Quantiles {
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            max_ms: measured.set_up_delay.max().as_secs_f64() * 1e3,
        }),
        generator: Generator {
            caller_load: load(calls.cpu, calls.wall),
            answerer_load: answers.iter().map(|a| load(a.cpu, a.wall)).fold(0.0, f64::max),
            drops: calls.drops + answers.iter().map(|answer| answer.drops).sum::<u64>(),
            too_slow: calls.stats.too_slow().map(|too_slow| too_slow.to_string()),
        },
        ..Outcome::default()
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

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
