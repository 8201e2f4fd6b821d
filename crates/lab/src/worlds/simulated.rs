//! The world of simulated time. Servers, callers and answerers have the same code and configuration
//! files as on real sockets, and exchange packets in a simulated network.

mod actor;
mod agenda;
mod occupancy;
mod stage;
mod traffic;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{Kind, World};
use crate::outcome::Outcome;
use crate::run_spec::RunSpec;
use stage::Stage;

/// The world of simulated time.
///
/// The outcome of a run depends only on its inputs. [`speed`](Self::speed) returns the speed of the
/// simulation, which is not part of any outcome.
#[derive(Debug, Default)]
pub struct Simulated {
    deliveries: AtomicU64,
    cpu_ns: AtomicU64,
}

/// The number of packets that were simulated, and the CPU time that the simulation took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Speed {
    /// Number of packets delivered to a node.
    pub deliveries: u64,
    /// CPU time of all threads that simulated runs.
    pub cpu: Duration,
}

impl Simulated {
    /// Creates a world in which no run has taken place.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of packets and the CPU time of all runs so far.
    pub fn speed(&self) -> Speed {
        let cpu = Duration::from_nanos(self.cpu_ns.load(SeqCst));
        Speed { deliveries: self.deliveries.load(SeqCst), cpu }
    }
}

impl Speed {
    /// Returns the number of packets delivered per second of CPU time, or 0 if no CPU time was
    /// used.
    pub fn per_cpu_s(self) -> f64 {
        let cpu_s = self.cpu.as_secs_f64();
        if cpu_s > 0.0 { self.deliveries as f64 / cpu_s } else { 0.0 }
    }
}

impl World for Simulated {
    fn kind(&self) -> Kind {
        Kind::Sim
    }

    fn run(&self, run: &RunSpec, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
        let began = thread_cpu();
        let mut stage = Stage::new(run, folder)?;
        stage.play(cancelled)?;
        self.deliveries.fetch_add(stage.deliveries(), SeqCst);
        let outcome = stage.finish(folder)?;
        let cpu = thread_cpu().saturating_sub(began);
        self.cpu_ns.fetch_add(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), SeqCst);
        Ok(outcome)
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts from zero, so neither field is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
