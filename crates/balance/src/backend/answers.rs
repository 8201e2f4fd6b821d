//! Changes of the state of a back end by its answers, its unanswered requests and its probes.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::{Backend, UNTIL_PROBED};
use crate::Named;
use crate::health::{AdminState, State};

/// The shortest time in nanoseconds between two updates of `answered_at`. A store for each answer
/// would move the cache line back and forth between shards.
const ANSWERED_STEP_NS: u64 = 10_000_000;

impl Backend {
    /// Returns whether the back end may get new calls: it answers, has not asked for a pause, and
    /// is in service.
    pub fn is_up(&self, now: Timestamp) -> bool {
        self.load.health.takes_calls(now) && self.is_somewhere()
    }

    /// Returns the time from which the back end is available if no further event changes its state.
    /// Returns `None` if the back end waits for answers to probes, is not in service or has no
    /// address.
    pub fn returns_at(&self) -> Option<Timestamp> {
        self.load.health.returns_at().filter(|_| self.is_somewhere())
    }

    /// Returns whether the back end has an address.
    pub(super) fn is_somewhere(&self) -> bool {
        self.named().is_none_or(Named::is_known)
    }

    /// Returns whether the back end answers, as far as is known, or is
    /// [spared](crate::Pool::spare). The administrative state and a pause do not matter, because
    /// they do not prevent a back end from finishing its calls.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.load.health.is_alive(now)
    }

    /// Returns the state of the back end, and the time at which this state began. A back end is
    /// down while its name has no address.
    pub fn state(&self, now: Timestamp) -> (State, Timestamp) {
        if self.admin_state() == AdminState::InService && !self.is_somewhere() {
            return (State::Down, self.load.health.known_since());
        }
        match self.load.health.state(now) {
            (State::Up, since) if self.silences() > 0 => {
                let silent_since = self.load.silent_since.load(Relaxed);
                (State::Suspect, since.max(Timestamp::from_nanos(silent_since)))
            }
            state => state,
        }
    }

    /// Returns the administrative state.
    pub fn admin_state(&self) -> AdminState {
        self.load.health.admin_state().0
    }

    /// Sets the administrative state. If the back end leaves maintenance, it counts as up, and its
    /// learned limits are forgotten.
    pub fn set_admin_state(&self, now: Timestamp, admin_state: AdminState) {
        if self.load.health.set_admin_state(now, admin_state) == AdminState::Maintenance
            && admin_state != AdminState::Maintenance
        {
            self.load.silences.store(0, Relaxed);
            self.forget_learned();
        }
    }

    /// Sets whether the back end gets calls although failed or rejected requests exclude it
    /// ([`Pool::spare`](crate::Pool::spare)). A back end that is not in service does not change.
    /// Returns whether the back end is now spared and was not before.
    pub fn set_spared(&self, now: Timestamp, is_spared: bool) -> bool {
        self.is_in_service() && self.load.health.set_spared(now, is_spared)
    }

    /// Returns how often the back end went down, and how often an answer or the end of probing
    /// brought it back.
    pub fn transitions(&self) -> (u64, u64) {
        self.load.health.transitions()
    }

    /// Records a delivery that failed because nothing listens at the back end's port. The back end
    /// gets no new calls for `pause` unless it answers earlier. With [`UNTIL_PROBED`], it gets none
    /// until it has answered probes.
    pub fn on_failed(&self, now: Timestamp, pause: Duration) {
        self.load.failures.fetch_add(1, Relaxed);
        self.load.unreachable.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_failed(now, pause));
    }

    /// Records that a request sent at `since` is still unanswered. Returns the number of
    /// consecutive unanswered requests, or 0 if the request does not count: the back end has
    /// answered another request since then, is in maintenance, or has had another administrative
    /// state since then.
    ///
    /// Unanswered requests alone do not take a back end down. The server may have crashed, or it
    /// may ignore this request. A probe distinguishes the two cases.
    pub fn on_silent(&self, now: Timestamp, since: Timestamp) -> u32 {
        if self.has_answered(since) {
            return 0;
        }
        self.load.failures.fetch_add(1, Relaxed);
        let (admin_state, set_at) = self.load.health.admin_state();
        if admin_state == AdminState::Maintenance || since < set_at {
            return 0;
        }
        // If two shards record a request at the same time, one of the requests may not be counted.
        // That delays a probe by one request.
        let silences = self.silences() + 1;
        if silences == 1 {
            self.load.silent_since.store(now.as_nanos(), Relaxed);
        }
        self.load.silences.store(silences, Relaxed);
        self.load.silent_at.store(now.as_nanos(), Relaxed);
        silences
    }

    /// Returns the number of consecutive requests without an answer since the last answer.
    pub(super) fn silences(&self) -> u32 {
        let silent_at = Timestamp::from_nanos(self.load.silent_at.load(Relaxed));
        if self.has_answered(silent_at) { 0 } else { self.load.silences.load(Relaxed) }
    }

    /// Asks for permission to send an immediate probe, outside the regular schedule. If the probe
    /// is permitted, the next immediate probe is permitted only after `interval`.
    ///
    /// # Errors
    /// Returns the time at which the next immediate probe is allowed.
    pub fn question(&self, now: Timestamp, interval: Duration) -> Result<(), Timestamp> {
        let at = now.as_nanos().max(1);
        let next = |last: u64| match last {
            0 => Some(at),
            _ => (Timestamp::from_nanos(last) + interval <= now).then_some(at),
        };
        let asked = self.load.questioned_at.fetch_update(Relaxed, Relaxed, next);
        asked.map(drop).map_err(|last| Timestamp::from_nanos(last) + interval)
    }

    /// Records that an immediate probe ([`question`](Self::question)) got no answer. The back end
    /// gets no new calls for `pause`. `is_probed` is true if the back end is also probed regularly.
    /// Then an answered probe can end the pause soon, so the pool need not
    /// [spare](crate::Pool::spare) the back end.
    pub fn on_question_unanswered(&self, now: Timestamp, pause: Duration, is_probed: bool) {
        self.load.probe_failures.fetch_add(1, Relaxed);
        self.load.probe_status.store(0, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_failed(now, pause));
        self.load.health.set_failing_probes(is_probed);
    }

    /// Records an answer: the back end is reachable.
    pub fn on_answered(&self, now: Timestamp) {
        self.load.health.change(now, |liveness| liveness.on_answered(now));
        self.record_answered(now);
    }

    /// Records an answered probe. After `rise` consecutive answered probes, a back end that was
    /// down is up.
    pub fn on_probe_answered(&self, now: Timestamp, rise: u32) {
        self.load.probes_answered.fetch_add(1, Relaxed);
        self.load.health.set_failing_probes(false);
        self.load.silences.store(0, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_probe_answered(now, rise));
        self.record_answered(now);
    }

    /// Records a failed probe: it was not answered (`status` is `None`), or the `status` of the
    /// response is not accepted. `fall` consecutive failures take the back end down until it
    /// answers probes.
    pub fn on_probe_failed(&self, now: Timestamp, fall: u32, status: Option<u16>) {
        self.load.probe_failures.fetch_add(1, Relaxed);
        self.load.probe_status.store(status.unwrap_or(0), Relaxed);
        self.load.health.change(now, |liveness| liveness.on_unanswered(now, fall, UNTIL_PROBED));
        self.load.health.set_failing_probes(true);
    }

    /// Records that the back end is no longer probed. If failed probes took it down, it may get new
    /// calls at once. If requests took it down, it may get new calls when `pause` has passed since
    /// it went down.
    pub fn on_unprobed(&self, now: Timestamp, pause: Duration) {
        self.load.health.on_unprobed(now, pause);
    }

    /// Returns the number of finished probes, and how many of them failed.
    pub fn probes(&self) -> (u64, u64) {
        let failed = self.load.probe_failures.load(Relaxed);
        (self.load.probes_answered.load(Relaxed) + failed, failed)
    }

    /// Returns the status of the response to the last probe that failed, or `None` if this probe
    /// got no response or no probe has failed.
    pub fn failed_probe_status(&self) -> Option<u16> {
        Some(self.load.probe_status.load(Relaxed)).filter(|status| *status > 0)
    }

    pub(super) fn record_answered(&self, now: Timestamp) {
        let now = now.as_nanos();
        if now.saturating_sub(self.load.answered_at.load(Relaxed)) >= ANSWERED_STEP_NS {
            self.load.answered_at.store(now, Relaxed);
        }
    }

    /// Returns whether an answer of the back end was recorded after `since`. An answer less than
    /// 10 ms after the last recorded one is not recorded.
    pub fn has_answered(&self, since: Timestamp) -> bool {
        self.load.answered_at.load(Relaxed) > since.as_nanos()
    }
}
