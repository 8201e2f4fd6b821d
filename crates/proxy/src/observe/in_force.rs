//! Gauges that publish the settings that operators can change, and the decisions of the shadow law.

use std::time::Duration;

use tidegate_control::{Bucket, Compared, Gate, Reading, Values, registry};
use tidegate_world::{Counter, Timestamp};

/// The minimum length of a window in which occupancy is measured. After an idle time, the window is
/// as long as that time.
const WINDOW: Duration = Duration::from_millis(100);

/// The settings of a shard that operators can change, as they are after the last command.
#[derive(Debug, Default)]
pub struct InForce {
    /// Commands that the shard executed, except new keys.
    pub commands: Counter,
    /// Commands that the shard did not execute, because it did not understand them, or because the
    /// shard's table of back ends has no room for additional back ends.
    pub commands_rejected: Counter,
    /// Commands of operators among `commands`: laws, administrative states and reloads. The other
    /// commands look up a call, or list the servers of domains.
    pub operator_commands: Counter,
    /// Commands of operators among `commands_rejected`.
    pub operator_commands_rejected: Counter,
    /// Number of the last command that the shard did not execute, counted from 1, or 0 if there was
    /// none. Commands with keys have no number.
    pub last_rejected: Counter,
    /// The version of the key that signs new route tokens.
    pub key_version: Counter,
    /// The law in force: its index in the [registry](registry::LAWS), counted from 1, or 0 before
    /// it is known.
    pub law: Counter,
    /// The shadow law, whose decisions have no effect: its index in the registry of laws, counted
    /// from 1, or 0 without a shadow law.
    pub shadow: Counter,
    /// Share of new work that the shadow law would reject, in millionths, by bucket.
    pub rejecting_of_shadow: [Counter; Bucket::ALL.len()],
    /// Number of pieces of new work, by bucket and by the decisions of the law in force and of the
    /// shadow law, since the shadow law started.
    pub compared: [ComparedCounters; Bucket::ALL.len()],
    /// Occupancy of the processor in the last completed window of a tenth of a second, in
    /// millionths.
    pub occupancy: Counter,
    /// Number of new calls that wait in the queue.
    pub waiting: Counter,
}

/// A published [`Compared`].
#[derive(Debug, Default)]
pub struct ComparedCounters {
    /// Number of pieces of work in [`Compared::both`].
    pub both: Counter,
    /// Number of pieces of work in [`Compared::only_real`].
    pub only_real: Counter,
    /// Number of pieces of work in [`Compared::only_shadow`].
    pub only_shadow: Counter,
    /// Number of pieces of work in [`Compared::neither`].
    pub neither: Counter,
}

impl InForce {
    pub(crate) fn publish(&self, gate: &Gate) {
        let place = |values: &Values| {
            let place = registry::LAWS.iter().position(|law| std::ptr::eq(*law, values.entry()));
            place.map_or(0, |place| place as u64 + 1)
        };
        self.law.set(place(gate.law()));
        self.shadow.set(gate.shadow().map_or(0, |shadow| place(shadow.values())));
        self.waiting.set(gate.signals().queue.waiting as u64);
        for bucket in Bucket::ALL {
            let share = gate.share_of_shadow(bucket).unwrap_or(1.0);
            self.rejecting_of_shadow[bucket as usize].set(((1.0 - share) * 1e6).round() as u64);
            let compared = gate.shadow().map(|shadow| *shadow.compared(bucket));
            self.compared[bucket as usize].set(compared.unwrap_or_default());
        }
    }
}

impl ComparedCounters {
    fn set(&self, compared: Compared) {
        let Compared { both, only_real, only_shadow, neither } = compared;
        self.both.set(both);
        self.only_real.set(only_real);
        self.only_shadow.set(only_shadow);
        self.neither.set(neither);
    }

    /// Returns the last published values.
    pub fn get(&self) -> Compared {
        Compared {
            both: self.both.get(),
            only_real: self.only_real.get(),
            only_shadow: self.only_shadow.get(),
            neither: self.neither.get(),
        }
    }
}

/// The occupancy of the processor in windows of a tenth of a second.
#[derive(Debug, Default)]
pub(crate) struct RecentOccupancy {
    since: Reading,
    last: f64,
}

impl RecentOccupancy {
    /// Takes a reading of the processor at `now`. Returns the occupancy in the last completed
    /// window.
    pub(crate) fn update(&mut self, now: Timestamp, newest: Reading) -> f64 {
        if now.since(self.since.at) >= WINDOW {
            self.last = newest.occupancy_since(self.since).unwrap_or(self.last);
            self.since = newest;
        }
        self.last
    }

    pub(crate) fn last(&self) -> f64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_that_of_the_last_window() {
        let mut recent = RecentOccupancy::default();
        let mut read = |at_ms: u64, occupied_ms| {
            let at = Timestamp::ZERO + Duration::from_millis(at_ms);
            recent.update(at, Reading { at, occupied: Duration::from_millis(occupied_ms) })
        };
        assert_eq!(read(50, 50), 0.0, "no window is over");
        assert_eq!(read(100, 60), 0.6);
        assert_eq!(read(150, 110), 0.6);
        assert_eq!(read(200, 160), 1.0);
        // After an idle time the window is as long as that time.
        assert_eq!(read(1200, 260), 0.1);
    }
}
