//! Whether a back end may be given calls, and how many: from what it does, and from what operators
//! want.
//!
//! Three things are kept apart, each in one word that all shards share. Whether it answers is the
//! state machine [`Liveness`], fed with probes and with what becomes of requests. Whether it has
//! asked for a pause by the Retry-After of a 503 is a time (RFC 3261 §21.5.4: one "SHOULD NOT
//! forward any other requests to that server for the duration specified"). What it is there for is
//! its [`AdminState`]. New calls it gets if nothing speaks against it; requests of calls that it holds it
//! gets in any case.
//!
//! The thresholds `fall` and `rise` are those of HAProxy's health checks.

mod evidence;
mod liveness;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::Timestamp;

pub(crate) use evidence::Evidence;
pub use evidence::{Parties, Sources};
pub use liveness::COUNT_MAX;
pub(crate) use liveness::Liveness;

/// What a back end is there for, as its operators want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminState {
    /// To take calls.
    InService,
    /// To finish what it holds: it is given no new calls.
    Draining,
    /// Likewise, and what it does says nothing of its health.
    Maintenance,
    /// To finish what it holds, and to be forgotten: it is configured no more.
    Removed,
}

impl AdminState {
    const ALL: [Self; 4] = [Self::InService, Self::Draining, Self::Maintenance, Self::Removed];
}

/// The state of a back end, for those who look on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes calls.
    Up,
    /// It takes calls, and has not answered the last that it was asked.
    Suspect,
    /// It takes a share of its calls that grows: it has just returned.
    SlowStart,
    /// It has asked for a pause.
    Busy,
    /// It takes calls although it is busy or down by what requests have shown: too many of its pool
    /// would be excluded otherwise.
    Spared,
    /// It does not answer, or its host name has no address.
    Down,
    /// [`AdminState::Draining`].
    Draining,
    /// [`AdminState::Maintenance`].
    Maintenance,
    /// [`AdminState::Removed`].
    Removed,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Up,
        Self::Suspect,
        Self::SlowStart,
        Self::Busy,
        Self::Spared,
        Self::Down,
        Self::Draining,
        Self::Maintenance,
        Self::Removed,
    ];

    /// Its name in metrics and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::SlowStart => "slow-start",
            Self::Busy => "busy",
            Self::Spared => "spared",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Maintenance => "maintenance",
            Self::Removed => "removed",
        }
    }
}

/// The share of its weight that a back end has at the moment of its return, in hundredths.
const SHARE_AT_RETURN: u64 = 10;

/// A back end's health.
///
/// Each word stands alone, so relaxed atomics suffice: a shard that reads one a few nanoseconds old
/// picks as if what changed it had come later. What every choice asks for stands first.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Health {
    liveness: AtomicU64,
    /// Until when it wants no new requests.
    busy_until: AtomicU64,
    /// The duty in the last two bits, and since when.
    admin_state: AtomicU64,
    slow_start: AtomicU64,
    /// When it was last taken down.
    fell_at: AtomicU64,
    falls: AtomicU64,
    returns: AtomicU64,
    /// Since when there is anything to know of it.
    known_since: AtomicU64,
    /// Time at which requests last excluded it.
    excluded_at: AtomicU64,
    /// It has failed its last probe: while it is down that says so, and not requests alone.
    fails_probes: AtomicBool,
    /// It takes calls all the same.
    is_spared: AtomicBool,
}

impl Health {
    /// Returns whether it answers, as far as one knows, or is taken for one that does.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.liveness().is_up(now) || self.is_spared.load(Relaxed)
    }

    /// Whether it may be given new calls.
    pub fn takes_calls(&self, now: Timestamp) -> bool {
        // Of one that is excluded nothing more is asked than whether it is spared.
        (self.is_clear(now) || self.is_spared.load(Relaxed))
            && self.admin_state().0 == AdminState::InService
    }

    /// Returns whether no failure of its own excludes it.
    pub fn is_clear(&self, now: Timestamp) -> bool {
        self.liveness().is_up(now) && self.busy_until.load(Relaxed) <= now.as_nanos()
    }

    /// Returns when requests last failed, if they alone exclude it. Failed probes are better
    /// evidence.
    pub fn excluded_by_requests_at(&self, now: Timestamp) -> Option<u64> {
        let fails_probes = self.fails_probes.load(Relaxed) && !self.liveness().is_up(now);
        (!self.is_clear(now) && !fails_probes).then(|| self.excluded_at.load(Relaxed))
    }

    /// Requests have shown what excludes it.
    pub fn record_excluded(&self, now: Timestamp) {
        self.excluded_at.store(now.as_nanos(), Relaxed);
    }

    pub fn set_failing_probes(&self, fails: bool) {
        self.fails_probes.store(fails, Relaxed);
    }

    /// Returns whether it takes calls although it is excluded.
    pub fn is_spared(&self) -> bool {
        self.is_spared.load(Relaxed)
    }

    pub fn set_spared(&self, is_spared: bool) {
        self.is_spared.store(is_spared, Relaxed);
    }

    /// When it may be given new calls, or could be before, if nothing else happens; `None` if
    /// nobody knows.
    pub fn returns_at(&self) -> Option<Timestamp> {
        let busy_until = Timestamp::from_nanos(self.busy_until.load(Relaxed));
        let up_at = self.liveness().up_by_itself_at()?;
        (self.admin_state().0 == AdminState::InService).then(|| up_at.max(busy_until))
    }

    pub fn admin_state(&self) -> (AdminState, Timestamp) {
        let word = self.admin_state.load(Relaxed);
        (AdminState::ALL[(word & 3) as usize], Timestamp::from_nanos(word >> 2))
    }

    /// Gives it a duty, and returns the one before. It keeps what it has since when, if it has that
    /// already. What comes back from maintenance is taken for up.
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

    /// Nothing is known of it any more: it is taken for up.
    pub fn forget(&self) {
        self.liveness.store(Liveness::COLD.pack(), Relaxed);
        self.busy_until.store(0, Relaxed);
        self.set_failing_probes(false);
        self.set_spared(false);
    }

    /// It was not there before `now`.
    pub fn set_known_since(&self, now: Timestamp) {
        self.known_since.store(now.as_nanos(), Relaxed);
    }

    pub fn set_slow_start(&self, slow_start: Duration) {
        self.slow_start.store(u64::try_from(slow_start.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Lets something happen to the state machine, unless the back end is in maintenance.
    pub fn change(&self, now: Timestamp, next: impl Fn(Liveness) -> Liveness) {
        if self.admin_state().0 == AdminState::Maintenance {
            return;
        }
        let step = |word| {
            let (before, after) = (Liveness::unpack(word), next(Liveness::unpack(word)));
            // A store that changes nothing would make the line go back and forth between shards.
            (before != after).then(|| after.pack())
        };
        let Ok(before) = self.liveness.fetch_update(Relaxed, Relaxed, step) else { return };
        let before = Liveness::unpack(before);
        match (before.is_up(now), next(before).is_up(now)) {
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

    /// It wants no new requests for that long.
    pub fn pause(&self, now: Timestamp, wait: Duration) {
        self.busy_until.fetch_max((now + wait).as_nanos(), Relaxed);
    }

    /// Its share of its weight at `now`, in thousandths: 100 at its return, then growing evenly to
    /// 1,000. At a cold start nobody has a share to leave to others, so there it is whole.
    pub fn share(&self, now: Timestamp) -> u64 {
        let slow_start = self.slow_start.load(Relaxed);
        // First: a policy asks for each back end at each choice.
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
        let known_since = Timestamp::from_nanos(self.known_since.load(Relaxed));
        let (state, since) = self.state_since(now);
        (state, since.max(known_since))
    }

    fn state_since(&self, now: Timestamp) -> (State, Timestamp) {
        let (admin_state, since) = self.admin_state();
        let busy_until = Timestamp::from_nanos(self.busy_until.load(Relaxed));
        let liveness = self.liveness();
        match admin_state {
            AdminState::Draining => (State::Draining, since),
            AdminState::Maintenance => (State::Maintenance, since),
            AdminState::Removed => (State::Removed, since),
            AdminState::InService if self.is_spared() && !self.is_clear(now) => {
                (State::Spared, Timestamp::from_nanos(self.excluded_at.load(Relaxed)))
            }
            AdminState::InService if !liveness.is_up(now) => {
                (State::Down, Timestamp::from_nanos(self.fell_at.load(Relaxed)))
            }
            AdminState::InService if busy_until > now => (State::Busy, now),
            AdminState::InService if liveness.is_suspect() => {
                (State::Suspect, self.returned_at(now))
            }
            AdminState::InService if self.share(now) < 1000 => {
                (State::SlowStart, self.returned_at(now))
            }
            AdminState::InService => (State::Up, self.returned_at(now)),
        }
    }

    /// How often it was taken down, and how often it came back by an answer.
    pub fn transitions(&self) -> (u64, u64) {
        (self.falls.load(Relaxed), self.returns.load(Relaxed))
    }

    fn liveness(&self) -> Liveness {
        Liveness::unpack(self.liveness.load(Relaxed))
    }

    /// Since when it may be given calls; zero if it always could.
    fn returned_at(&self, now: Timestamp) -> Timestamp {
        let (_, in_service) = self.admin_state();
        let busy_until = Timestamp::from_nanos(self.busy_until.load(Relaxed));
        let busy_until = if busy_until <= now { busy_until } else { Timestamp::ZERO };
        self.liveness().up_since(now).max(in_service).max(busy_until)
    }
}

#[cfg(test)]
mod tests;
