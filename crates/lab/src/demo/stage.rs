//! Runs the two servers with their back ends and callers.

use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_agent::{AnswererConfig, CallerConfig, CallerStats, Load};
use tidegate_world::Seed;

use super::plan::{BACKENDS, CAPACITY_CPS, DEADLINE, MULTIPLES, Plan, Side};
use super::story::{Counted, Phase, Seen};
use crate::real::{Answerers, Callers, Done, Tidegate};

/// One server with its back ends and its callers.
pub(super) struct Stage {
    tidegate: Tidegate,
    answerers: Answerers,
    callers: Option<Callers>,
    /// Folder of the configuration and the key. Dropping this field deletes the folder.
    _folder: TempDir,
}

impl Stage {
    /// Starts the server of one side, which runs `program`.
    pub(super) fn start(side: Side, program: &Path, seed: u64) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-demo-").tempdir()?;
        let answerers = Answerers::start(BACKENDS, |_, at| AnswererConfig::new(at), Seed(seed))?;
        let configuration = side.configuration(&folder.path().join("state"), answerers.addresses());
        let tidegate =
            Tidegate::start(program, &folder.path().join("tidegate.toml"), &configuration)?;
        Ok(Self { tidegate, answerers, callers: None, _folder: folder })
    }

    /// Starts to offer the load with index `phase`. Both servers get the same calls.
    pub(super) fn call(&mut self, plan: &Plan, phase: usize, seed: u64) -> io::Result<()> {
        let load = Load {
            rate_cps: MULTIPLES[phase] * CAPACITY_CPS,
            calls: u32::MAX,
            duration: plan.load,
            ..Load::default()
        };
        let target = self.tidegate.address();
        let configure = |local| CallerConfig {
            load,
            deadline: DEADLINE,
            warm_up: plan.warm_up,
            measured_until: plan.measured_until(),
            ..CallerConfig::new(local, target)
        };
        let seed = Seed(seed.wrapping_add(phase as u64));
        self.callers = Some(Callers::start(configure, seed, 0)?);
        Ok(())
    }

    /// Ends the calls of the load with index `phase`, and returns the outcome of this load.
    pub(super) fn hang_up(&mut self, plan: &Plan, phase: usize) -> io::Result<Phase> {
        let callers = self.callers.take().expect("a load begins before it ends");
        Ok(summarise(MULTIPLES[phase], plan, &callers.finish()?))
    }

    /// Reads the counts of the server and of its callers, and adds them to `seen` with the time
    /// `at`, which is relative to the start of the first load.
    pub(super) fn look(&self, at: Duration, seen: &mut Seen) -> io::Result<()> {
        let status = self.tidegate.status()?;
        let callers = self.callers.as_ref().map(Callers::reading);
        seen.add(Counted::read(at, callers, &status), &status);
        Ok(())
    }

    /// Stops the server, its back ends and its callers.
    pub(super) fn finish(self) -> io::Result<()> {
        self.tidegate.stop()?;
        self.answerers.finish().map(|_| ())
    }
}

fn summarise(multiple: f64, plan: &Plan, done: &Done<CallerStats>) -> Phase {
    let measured = &done.stats.measured;
    let span_s = (plan.measured_until() - plan.warm_up).as_secs_f64();
    let delay = |quantile| measured.set_up_delay.quantile(quantile).as_secs_f64() * 1e3;
    let ms = |quantile| (measured.set_up > 0).then(|| delay(quantile));
    Phase {
        multiple,
        offered_cps: measured.offered as f64 / span_s,
        goodput_cps: measured.set_up_in_time as f64 / span_s,
        rejected: measured.rejected as f64 / measured.offered.max(1) as f64,
        retransmission_ratio: measured.retransmission_ratio(),
        set_up_p50_ms: ms(0.5),
        set_up_p99_ms: ms(0.99),
        generator_load: done.cpu.as_secs_f64() / done.wall.as_secs_f64(),
        generator_drops: done.drops,
        too_slow: done.stats.too_slow().map(|why| why.to_string()),
    }
}
