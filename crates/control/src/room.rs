//! Estimates the rate of calls for which the back ends have room, while they are full.
//!
//! The limits of back ends take calls first come, first served. So a source that floods would get
//! nearly all of their room, because one of its calls nearly always comes first. To prevent this,
//! [`Fairness`](crate::Fairness) divides this room among the sources. It needs the rate at which
//! room becomes free. This rate depends on the limits and on the duration of calls, so it is
//! measured: in each period of 100 ms in which a call found no room, it is the rate at which calls
//! were admitted recently.
//!
//! When the sources get no more than this rate, the back ends are no longer full, and nothing can
//! be measured. So the rate then grows by a twentieth in each period, until a call finds no room
//! again. After [`FORGOTTEN`] periods without such a call, the rate is forgotten, and nothing is
//! divided.
//!
//! **Known bias.** The measured rate contains the calls that filled the room, so it is too high for
//! about half a second after the back ends became full. Each shard measures its own part.

use tidegate_world::Timestamp;

use crate::fading::Observation;

/// Growth of the rate in a period in which every call found room.
const GROWTH: f64 = 1.05;

/// Number of periods after the last one in which a call found no room.
const FORGOTTEN: u64 = 50;

/// An estimate of the rate at which room for calls becomes free.
#[derive(Debug, Default)]
pub(crate) struct Room {
    observation: Observation,
    /// Number of calls that were admitted. Each one counts less with its age.
    admitted: f64,
    /// True if a call found no room in the current period.
    is_full: bool,
    /// Number of the last period in which a call found no room.
    full_in: u64,
    /// The rate in calls a second, or `None` if the back ends were not full recently.
    rate_cps: Option<f64>,
    /// Part of a call that may still pass ([`passes`](Self::passes)).
    passing: f64,
}

impl Room {
    /// Records that a call found no room.
    pub(crate) fn on_full(&mut self, now: Timestamp) {
        self.advance(now);
        self.is_full = true;
        // The first full period is not over yet. Until then, its rate so far is used.
        if self.rate_cps.is_none() {
            self.measure(now);
        }
    }

    /// Records that a call was admitted.
    pub(crate) fn on_admitted(&mut self, now: Timestamp) {
        self.advance(now);
        self.admitted += 1.0;
    }

    /// Records that a call which was admitted earlier found no room after all.
    pub(crate) fn on_admitted_in_vain(&mut self, now: Timestamp) {
        self.advance(now);
        self.admitted = (self.admitted - 1.0).max(0.0);
    }

    /// Returns the share, 0 to 1, of the calls for which the back ends have room if `offered_cps`
    /// calls a second are offered. Returns 1 if the back ends were not full recently.
    pub(crate) fn share(&mut self, now: Timestamp, offered_cps: f64) -> f64 {
        self.advance(now);
        match self.rate_cps {
            Some(rate_cps) if rate_cps < offered_cps => rate_cps / offered_cps,
            _ => 1.0,
        }
    }

    /// Returns whether the next call passes, if this share of the calls passes at equal distances.
    pub(crate) fn passes(&mut self, share: f64) -> bool {
        self.passing += share;
        let passes = self.passing >= 1.0;
        self.passing -= f64::from(u8::from(passes));
        passes
    }

    fn advance(&mut self, now: Timestamp) {
        let before = self.observation.period();
        self.admitted *= self.observation.advance(now);
        let passed = self.observation.period() - before;
        if passed == 0 {
            return;
        }
        if std::mem::take(&mut self.is_full) {
            self.full_in = before;
            self.measure(now);
        } else if let Some(rate_cps) = &mut self.rate_cps {
            let periods = passed.min(FORGOTTEN) as i32;
            *rate_cps *= GROWTH.powi(periods);
        }
        if self.observation.period() - self.full_in > FORGOTTEN {
            self.rate_cps = None;
        }
    }

    fn measure(&mut self, now: Timestamp) {
        self.rate_cps = Some(self.admitted / self.observation.seconds(now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// Offers a call each millisecond. Every tenth one finds room, if `is_full` is true. Otherwise
    /// all of them do.
    fn offer(room: &mut Room, from_ms: u64, to_ms: u64, is_full: bool) {
        for ms in from_ms..to_ms {
            match is_full && ms % 10 != 0 {
                true => room.on_full(at(ms)),
                false => room.on_admitted(at(ms)),
            }
        }
    }

    #[test]
    fn the_rate_is_that_of_the_admitted_calls_while_others_find_no_room() {
        let mut room = Room::default();
        offer(&mut room, 0, 3000, true);
        let share = room.share(at(3000), 1000.0);
        assert!((0.09..0.11).contains(&share), "{share}");
        assert_eq!(room.share(at(3000), 50.0), 1.0, "less is offered than there is room for");
    }

    #[test]
    fn nothing_is_divided_while_there_is_room() {
        let mut room = Room::default();
        assert_eq!(room.share(at(0), 1000.0), 1.0);
        offer(&mut room, 0, 3000, false);
        assert_eq!(room.share(at(3000), 1e9), 1.0);
    }

    #[test]
    fn the_rate_grows_while_all_find_room_and_is_forgotten_after_five_seconds() {
        let mut room = Room::default();
        offer(&mut room, 0, 3000, true);
        let full = room.share(at(3000), 1e6);
        let ratio = room.share(at(4000), 1e6) / full;
        assert!((1.5..1.8).contains(&ratio), "1.05 to the tenth power is 1.63, not {ratio}");
        assert!(room.share(at(7900), 1e6) < 1.0);
        assert_eq!(room.share(at(8200), 1e6), 1.0);
    }

    #[test]
    fn a_call_that_was_admitted_in_vain_used_no_room() {
        let mut room = Room::default();
        for ms in 0..3000 {
            room.on_admitted(at(ms));
            if ms % 10 != 0 {
                room.on_admitted_in_vain(at(ms));
                room.on_full(at(ms));
            }
        }
        let share = room.share(at(3000), 1000.0);
        assert!((0.08..0.12).contains(&share), "{share}");
    }

    #[test]
    fn a_share_of_the_calls_passes_at_equal_distances() {
        let mut room = Room::default();
        let passed: Vec<_> = (0..12).map(|_| u8::from(room.passes(0.25))).collect();
        assert_eq!(passed, [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    }
}
