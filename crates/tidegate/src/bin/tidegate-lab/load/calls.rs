//! A run of calls on real sockets.

use std::sync::Arc;

use tidegate_agent::{Caller, CallerConfig, CallerReport, Share};
use tidegate_io::Stop;
use tidegate_lab::real::Watched;
use tidegate_world::{Seed, Timestamp};

use super::progress::Gauges;
use crate::stage::Stage;
use tidegate::trouble::Trouble;

/// Calls that are ready to begin, with open sockets.
pub struct Calls {
    stage: Stage,
    config: CallerConfig,
    seed: u64,
    element: u32,
    gauges: Arc<Gauges>,
}

/// Calls that have ended.
pub struct Ended {
    /// The results.
    pub report: CallerReport,
    /// True if every call was offered and has ended, and no signal stopped the run.
    pub is_complete: bool,
}

impl Calls {
    /// Prepares the part `share` of the calls of `config`, on the open sockets of `stage`.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, or cannot be divided into that many parts.
    pub fn new(
        stage: Stage,
        config: &CallerConfig,
        share: Share,
        seed: u64,
    ) -> Result<Self, Trouble> {
        let config = config.part(share).map_err(Trouble::usage)?;
        config.check().map_err(Trouble::usage)?;
        Ok(Self { stage, config, seed, element: share.index(), gauges: Arc::default() })
    }

    /// Returns the current time on the clock of the calls.
    pub fn now(&self) -> Timestamp {
        self.stage.now()
    }

    /// Returns the handle that stops the calls.
    pub fn stop(&self) -> Stop {
        self.stage.stop()
    }

    /// Returns the counts, which change while the calls run.
    pub fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    /// Makes the calls, from `start` on, until all have ended or a signal arrives. Another thread
    /// calls `progress` once a second.
    pub fn run(
        self,
        start: Timestamp,
        progress: impl FnMut() + Send + 'static,
    ) -> Result<Ended, Trouble> {
        let Self { stage, config, seed, element, gauges } = self;
        let caller = Caller::new(config.clone(), Seed(seed), element, start, stage.pool())
            .map_err(Trouble::usage)?;
        let mut stop = Some(stage.stop());
        let watched = Watched::new(caller, move |caller: &Caller| {
            gauges.show(caller.stats().into());
            // When every call has ended, the agent ends its run.
            if caller.is_done()
                && let Some(stop) = stop.take()
            {
                stop.request();
            }
        });
        let (run, watched) = stage.run_agent(watched, progress)?;
        let stats = watched.into_inner().stats().clone();
        Ok(Ended {
            report: CallerReport::new(&config, seed, stats, run.usage),
            is_complete: !run.interrupted && run.drained,
        })
    }
}
