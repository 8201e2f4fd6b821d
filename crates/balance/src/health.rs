//! The health of a back end: whether it may get new calls, and how many.
//!
//! Health has three independent parts. Each is one word that all shards share. The first is the
//! state machine [`Liveness`]: whether the back end answers, as probes and the outcomes of requests
//! show. The second is the end of a pause that the back end has asked for by Retry-After in a 503
//! (RFC 3261 §21.5.4: one "SHOULD NOT forward any other requests to that server for the duration
//! specified"). The third is the [`AdminState`] that the operator has set. The back end gets new
//! calls if none of the three forbids it. A pause and the administrative state do not affect the
//! in-dialog requests of its calls.
//!
//! `fall` consecutive failed probes take a back end down, and `rise` consecutive answered probes
//! bring it back, as in HAProxy's health checks.

mod evidence;
mod liveness;
mod sources;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::{Timestamp, unit_enum};

pub(crate) use evidence::Evidence;
pub use evidence::Parties;
pub use liveness::COUNT_MAX;
pub(crate) use liveness::Liveness;
pub use sources::Sources;

unit_enum! {
    /// The administrative state of a back end, which an operator sets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AdminState {
        /// The back end takes calls.
        InService,
        /// The back end finishes its calls and gets no new ones.
        Draining,
        /// The back end finishes its calls and gets no new ones. Its responses and failures do not
        /// change its health.
        Maintenance,
        /// The back end is no longer configured. It finishes its calls and is then forgotten.
        Removed,
    }
}

unit_enum! {
    /// The state of a back end as operators see it. Metrics and commands use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum State {
        /// The back end takes calls.
        Up = "up",
        /// The back end takes calls, but did not answer the last request or probe.
        Suspect = "suspect",
        /// The back end has just come back up. At first it gets fewer calls than its weight allows,
        /// and then more and more.
        SlowStart = "slow-start",
        /// The back end has asked for a pause, by Retry-After in a 503.
        Busy = "busy",
        /// The back end takes calls although requests showed that it is busy or down, because
        /// otherwise too many back ends of its pool would be excluded.
        Spared = "spared",
        /// The back end does not answer, or its host name has no address.
        Down = "down",
        /// The back end is in [`AdminState::Draining`].
        Draining = "draining",
        /// The back end is in [`AdminState::Maintenance`].
        Maintenance = "maintenance",
        /// The back end is in [`AdminState::Removed`].
        Removed = "removed",
    }
}

/// The effective weight of a back end that has just come back up, in hundredths of its configured
/// weight.
const SHARE_AT_RETURN: u64 = 10;

/// The health of a back end.
///
/// The fields are independent, so relaxed atomics suffice. A shard that reads a value that is a few
/// nanoseconds old selects as if the change had come later. The fields that every selection reads
/// come first.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Health {
    liveness: AtomicU64,
    /// End of the pause that the back end asked for, in nanoseconds since the program started.
    busy_until: AtomicU64,
    /// The [`AdminState`] in the last two bits, and the time when it was set in the other bits.
    admin_state: AtomicU64,
    slow_start: AtomicU64,
    /// Time at which the back end last went down, in nanoseconds since the program started.
    fell_at: AtomicU64,
    falls: AtomicU64,
    returns: AtomicU64,
    /// Time at which the last pause that the back end asked for began, in nanoseconds since the
    /// program started.
    busy_since: AtomicU64,
    /// Time at which the back end last became [spared](State::Spared), in nanoseconds since the
    /// program started.
    spared_since: AtomicU64,
    /// Time at which a failure last made the back end suspect, in nanoseconds since the program
    /// started.
    suspect_since: AtomicU64,
    /// Time since which the back end has existed, in nanoseconds since the program started.
    known_since: AtomicU64,
    /// Time at which failed or rejected requests were last a reason to exclude the back end, in
    /// nanoseconds since the program started.
    excluded_at: AtomicU64,
    /// True if the last probe failed. Then a probe shows that the back end is down, and not only
    /// requests.
    fails_probes: AtomicBool,
    /// True if the back end gets calls although failed requests have made it unavailable.
    is_spared: AtomicBool,
}

impl Health {
    /// Returns whether the back end answers, as far as is known, or is [spared](State::Spared).
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.liveness().is_up(now) || self.is_spared.load(Relaxed)
    }

    /// Returns whether the back end may get new calls.
    pub(crate) fn takes_calls(&self, now: Timestamp) -> bool {
        // For an excluded back end only the spared flag matters.
        (self.is_clear(now) || self.is_spared.load(Relaxed))
            && self.admin_state().0 == AdminState::InService
    }

    /// Returns whether neither failures nor a pause exclude the back end.
    pub fn is_clear(&self, now: Timestamp) -> bool {
        self.liveness().is_up(now) && self.busy_until.load(Relaxed) <= now.as_nanos()
    }

    /// Returns the last time at which failed or rejected requests were a reason to exclude the back
    /// end, in nanoseconds since the program started. Returns `None` if the back end is not
    /// excluded. Also returns `None` if probes have failed too, because failed probes are better
    /// evidence.
    pub(crate) fn excluded_by_requests_at(&self, now: Timestamp) -> Option<u64> {
        let fails_probes = self.fails_probes.load(Relaxed) && !self.liveness().is_up(now);
        (!self.is_clear(now) && !fails_probes).then(|| self.excluded_at.load(Relaxed))
    }

    /// Records that failed or rejected requests are a reason to exclude the back end.
    pub fn record_excluded(&self, now: Timestamp) {
        self.excluded_at.store(now.as_nanos(), Relaxed);
    }

    pub(crate) fn set_failing_probes(&self, fails: bool) {
        self.fails_probes.store(fails, Relaxed);
    }

    pub fn is_spared(&self) -> bool {
        self.is_spared.load(Relaxed)
    }

    /// Sets whether the back end is [spared](State::Spared). Returns whether the back end is now
    /// spared and was not before.
    pub(crate) fn set_spared(&self, now: Timestamp, is_spared: bool) -> bool {
        let is_new = is_spared && !self.is_spared();
        if is_new {
            self.spared_since.store(now.as_nanos(), Relaxed);
        }
        self.is_spared.store(is_spared, Relaxed);
        is_new
    }

    /// Returns the time from which the back end may get new calls if nothing else happens, or
    /// `None` if the back end waits for answers to probes or is not in service.
    pub fn returns_at(&self) -> Option<Timestamp> {
        let busy_until = Timestamp::from_nanos(self.busy_until.load(Relaxed));
        let up_at = self.liveness().up_by_itself_at()?;
        (self.admin_state().0 == AdminState::InService).then(|| up_at.max(busy_until))
    }

    pub fn admin_state(&self) -> (AdminState, Timestamp) {
        let word = self.admin_state.load(Relaxed);
        (AdminState::ALL[(word & 3) as usize], Timestamp::from_nanos(word >> 2))
    }

    /// Sets the administrative state and returns the previous one. If the state does not change,
    /// the time when it was set does not change either. A back end that leaves maintenance counts
    /// as up.
    pub fn set_admin_state(&self, now: Timestamp, admin_state: AdminState) -> AdminState {
        let (before, _) = self.admin_state();
        if before == admin_state {
            return before;
        }
        self.admin_state.store(now.as_nanos() << 2 | admin_state as u64, Relaxed);
        if before == AdminState::Maintenance {
            self.forget();
        }
        before
    }

    /// Forgets all failures and pauses, so that the back end counts as up.
    pub fn forget(&self) {
        self.liveness.store(Liveness::COLD.pack(), Relaxed);
        self.busy_until.store(0, Relaxed);
        self.set_failing_probes(false);
        self.is_spared.store(false, Relaxed);
    }

    /// Records that the back end did not exist before `now`.
    pub(crate) fn set_known_since(&self, now: Timestamp) {
        self.known_since.store(now.as_nanos(), Relaxed);
    }

    pub fn set_slow_start(&self, slow_start: Duration) {
        self.slow_start.store(u64::try_from(slow_start.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Changes the [`Liveness`] by the function `next`, unless the back end is in maintenance.
    pub fn change(&self, now: Timestamp, next: impl Fn(Liveness) -> Liveness) {
        if self.admin_state().0 == AdminState::Maintenance {
            return;
        }
        let step = |word| {
            let (before, after) = (Liveness::unpack(word), next(Liveness::unpack(word)));
            // A store without a change would move the cache line back and forth between shards.
            (before != after).then(|| after.pack())
        };
        let Ok(before) = self.liveness.fetch_update(Relaxed, Relaxed, step) else { return };
        let before = Liveness::unpack(before);
        let after = next(before);
        if after.is_suspect() && !before.is_suspect() {
            self.suspect_since.store(now.as_nanos(), Relaxed);
        }
        match (before.is_up(now), after.is_up(now)) {
            (true, false) => {
                self.set_failing_probes(false);
                self.fell_at.store(now.as_nanos(), Relaxed);
                self.falls.fetch_add(1, Relaxed);
            }
            (false, true) => {
                self.returns.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }

    /// Records that the back end is no longer probed. Earlier results of probes no longer count. If
    /// requests took the back end down, it stays down until `pause` has passed since it went down,
    /// as if there had been no probes.
    pub fn on_unprobed(&self, now: Timestamp, pause: Duration) {
        let until = match self.fails_probes.load(Relaxed) {
            true => now,
            false => Timestamp::from_nanos(self.fell_at.load(Relaxed)) + pause,
        };
        self.change(now, |liveness| liveness.on_unprobed(until));
        self.set_failing_probes(false);
    }

    /// Records that the back end asked for no new requests for `wait`. If a pause is in force, it
    /// ends at the later of the two times.
    pub fn pause(&self, now: Timestamp, wait: Duration) {
        if self.busy_until.load(Relaxed) <= now.as_nanos() {
            self.busy_since.store(now.as_nanos(), Relaxed);
        }
        self.busy_until.fetch_max((now + wait).as_nanos(), Relaxed);
    }

    /// Returns the effective weight of the back end at `now`, in thousandths of its configured
    /// weight. The value is 100 when the back end comes back up, and then grows linearly to 1,000.
    /// After a cold start it is 1,000 at once, because no other back end could take the calls.
    pub fn share(&self, now: Timestamp) -> u64 {
        let slow_start = self.slow_start.load(Relaxed);
        // This check is first, because a policy calls this function for each back end at each
        // selection.
        if slow_start == 0 {
            return 1000;
        }
        let returned = self.returned_at(now);
        if returned == Timestamp::ZERO {
            return 1000;
        }
        let elapsed = u64::try_from(now.since(returned).as_nanos()).unwrap_or(u64::MAX);
        if elapsed >= slow_start {
            return 1000;
        }
        let grown = u128::from(elapsed) * u128::from(1000 - 10 * SHARE_AT_RETURN);
        10 * SHARE_AT_RETURN + (grown / u128::from(slow_start)) as u64
    }

    pub fn state(&self, now: Timestamp) -> (State, Timestamp) {
        let (state, since) = self.state_since(now);
        (state, since.max(self.known_since()))
    }

    /// Returns the time since which the back end has existed.
    pub(crate) fn known_since(&self) -> Timestamp {
        Timestamp::from_nanos(self.known_since.load(Relaxed))
    }

    fn state_since(&self, now: Timestamp) -> (State, Timestamp) {
        let time = |word: &AtomicU64| Timestamp::from_nanos(word.load(Relaxed));
        let (admin_state, since) = self.admin_state();
        let liveness = self.liveness();
        let is_up = liveness.is_up(now);
        // The time when failures or a pause that the back end asked for last excluded it.
        let excluded = || time(if is_up { &self.busy_since } else { &self.fell_at });
        match admin_state {
            AdminState::Draining => (State::Draining, since),
            AdminState::Maintenance => (State::Maintenance, since),
            AdminState::Removed => (State::Removed, since),
            AdminState::InService if self.is_spared() && !self.is_clear(now) => {
                // The spared flag may have been set during an earlier exclusion.
                (State::Spared, time(&self.spared_since).max(excluded()))
            }
            AdminState::InService if !is_up => (State::Down, excluded()),
            // A pause can begin while the back end is down or draining.
            AdminState::InService if time(&self.busy_until) > now => {
                (State::Busy, excluded().max(self.returned_at(now)))
            }
            AdminState::InService if liveness.is_suspect() => {
                (State::Suspect, time(&self.suspect_since).max(self.returned_at(now)))
            }
            AdminState::InService if self.share(now) < 1000 => {
                (State::SlowStart, self.returned_at(now))
            }
            AdminState::InService => (State::Up, self.returned_at(now)),
        }
    }

    /// Returns how often the back end went down, and how often an answer or the end of probing
    /// brought it back.
    pub fn transitions(&self) -> (u64, u64) {
        (self.falls.load(Relaxed), self.returns.load(Relaxed))
    }

    fn liveness(&self) -> Liveness {
        Liveness::unpack(self.liveness.load(Relaxed))
    }

    /// Returns the time since which the back end may get calls, or zero if it could get them from
    /// the start. Ignores a pause that has not ended.
    fn returned_at(&self, now: Timestamp) -> Timestamp {
        let (_, in_service) = self.admin_state();
        let busy_until = Timestamp::from_nanos(self.busy_until.load(Relaxed));
        let busy_until = if busy_until <= now { busy_until } else { Timestamp::ZERO };
        self.liveness().up_since(now).max(in_service).max(busy_until)
    }
}

#[cfg(test)]
mod tests;
