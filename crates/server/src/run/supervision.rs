//! The work of the main thread from the start of the shards to the end of the process.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{select_biased, tick};
use tidegate_world::Timestamp;

use super::ending::{Ending, Finish, RunError};
use super::hangups::reload_at;
use super::process::Process;
use super::shards::Shards;
use super::stopping::Stopping;
use super::{Event, StartInput, Started, failed};
use crate::admin::Admin;
use crate::config::Config;
use crate::phase::Phase;
use crate::recording::Recorder;
use crate::runtime_control::{ControlError, RuntimeControl};
use crate::signal::Signals;
use crate::watch::{LOOK_EVERY, Observation, Watch};
use crate::{descriptors, wiring};

impl Process<'_> {
    /// Reports the start, and handles signals and events until all shards have ended.
    pub(super) fn supervise(
        self,
        input: StartInput<'_>,
        shards: Shards,
        signals: &Signals,
        mut tell: impl FnMut(Event) -> bool,
    ) -> Result<Ending, RunError> {
        let hangups = signals.reloads().clone();
        let reloads = reload_at(hangups, Arc::clone(&self.runtime_control), self.audit_log.clone());
        let reloads = match reloads {
            Ok(reloads) => reloads,
            Err(error) => {
                shards.abort();
                return Err(failed("reloads", error).into());
            }
        };
        // From here on, nothing prevents the start any more. A process that does not start is not
        // the predecessor of the next one, because it has forwarded hardly any INVITE for which a
        // CANCEL may come.
        self.seed_draft.store();
        self.life.advance(Phase::Admitting);
        self.tell_started(input.config, &mut tell);

        let Shards { stop, ended } = shards;
        let mut finish = Finish::Drained(Duration::ZERO);
        let mut failure = None;
        let mut stopping = Stopping::new(stop);
        let looks = tick(LOOK_EVERY);
        let mut watch = self.watch();
        loop {
            // The order of these branches matters: a stop comes first, even if there are many
            // commands.
            select_biased! {
                recv(signals.stops()) -> asked => {
                    if asked.is_ok() {
                        self.life.advance(Phase::Draining);
                        stopping.on_signal();
                    }
                }
                recv(signals.ignored()) -> name => {
                    if let Ok(name) = name {
                        tell(Event::Ignored(name));
                    }
                }
                recv(self.told) -> act => {
                    if let Ok(act) = act
                        && !tell(Event::Acted(act))
                    {
                        self.audit_log.record_untold();
                    }
                }
                recv(looks) -> _ => self.look(input.clock.now(), &mut watch, &mut tell),
                recv(ended) -> summary => match summary {
                    Ok(Ok(summary)) => finish = finish.and(summary),
                    Ok(Err(what)) => {
                        // The other shards cannot take over the calls of the failed shard. They
                        // stop too, but they drain their own calls first.
                        failure.get_or_insert_with(|| what.to_string());
                        self.life.advance(Phase::Draining);
                        stopping.on_failure();
                    }
                    // All shards have ended.
                    Err(_) => break,
                },
            }
        }
        // The shards have ended, so a running reload stops waiting for them. Its outcome gets into
        // the log, because the thread ends before the log is emptied.
        self.runtime_control.stop_waiting();
        drop(reloads);
        for act in self.told.try_iter() {
            tell(Event::Acted(act));
        }
        let recorded = self.recorder.map(Recorder::finish);
        failure.map_or(Ok(Ending { finish, recorded }), |what| Err(RunError::Shard(what)))
    }

    /// Reports that the process accepts calls, and the warnings about its start.
    fn tell_started(&self, config: &Config, tell: &mut impl FnMut(Event) -> bool) {
        let listeners =
            self.groups.iter().map(|group| (group.transport(), group.local())).collect();
        let admin = self.admin.as_ref().map(Admin::address);
        tell(Event::Started(Started { listeners, admin }));
        let warnings = wiring::buffer_warnings(config, &self.groups).into_iter();
        for warning in warnings.chain(descriptors::query_warning(config, self.query_places)) {
            tell(Event::Observed(Observation::now(format!("warning: {warning}"))));
        }
    }

    /// Returns the watch over the counters of the shards.
    fn watch(&self) -> Watch {
        let mut watched = self.assembly.counters().to_vec();
        if let Some(recorder) = &self.recorder {
            watched[0].recording = Arc::clone(recorder.tally());
        }
        let registry = self.assembly.registry().clone();
        let tls = self.tls.clone();
        let is_over_tls = Box::new(move |pool: &str| tls.has_pool(pool));
        Watch::new(registry, is_over_tls, watched, self.assembly.bans().clone())
    }

    /// Reports changes since the last look.
    fn look(&self, now: Timestamp, watch: &mut Watch, tell: &mut impl FnMut(Event) -> bool) {
        let mut observed = |observation| {
            tell(Event::Observed(observation));
        };
        watch.look(now, &mut observed);
        follow_domains(now, &self.runtime_control, &mut observed);
        for warning in self.runtime_control.take_warnings() {
            observed(Observation::now(format!("warning: {warning}")));
        }
        if let Some(line) = self.keeper.changed_trouble() {
            observed(Observation::now(line));
        }
    }
}

/// Sends the servers that the DNS lists for domains to the shards, if the servers have changed.
/// Reports the changes to `tell`.
fn follow_domains(
    now: Timestamp,
    runtime_control: &RuntimeControl,
    mut tell: impl FnMut(Observation),
) {
    match runtime_control.follow_domains(now) {
        Ok(lines) => lines.into_iter().for_each(|what| tell(Observation::now(what))),
        // The command is sent at the next check.
        Err(ControlError::CommandError(_)) => {}
        Err(why) => tell(Observation::now(format!("servers of domains: {why}"))),
    }
}
