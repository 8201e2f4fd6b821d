//! The timers of RFC 3261 §17 and how a message is repeated by them.

use std::time::Duration;

use tidegate_world::Timestamp;

/// The base values of RFC 3261 §17.1.1.1 and §17.1.2.2, from which all timers derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// T1, the estimate of the round-trip time.
    pub t1: Duration,
    /// T2, the longest interval between repetitions of anything but an INVITE.
    pub t2: Duration,
    /// T4, the longest time a message stays in the network.
    pub t4: Duration,
}

impl Timers {
    /// 64·T1: timers B, F, H, J and L, after which a peer is given up.
    pub fn patience(&self) -> Duration {
        64 * self.t1
    }
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
        }
    }
}

/// What a [`Repeat`] asks for when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    /// Send the message once more.
    Again,
    /// 64·T1 have passed.
    GiveUp,
}

/// A message that is repeated until it is answered, at intervals that double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    interval: Duration,
    interval_max: Duration,
    next: Timestamp,
    end: Timestamp,
}

impl Repeat {
    /// Timers A and B: an INVITE sent at `now`.
    // RFC 3261 §17.1.1.2: "retransmitted with intervals that double after each
    // transmission", without a cap.
    pub fn invite(now: Timestamp, timers: &Timers) -> Self {
        Self::new(now, timers, Duration::MAX)
    }

    /// Timers E and F, G and H, and those of a 2xx: anything else sent at `now`.
    // RFC 3261 §17.1.2.2: "the timer is reset, but this time with a value of MIN(2*T1,
    // T2)"; §17.2.1 says the same of timer G and §13.3.1.4 of a 2xx.
    pub fn capped(now: Timestamp, timers: &Timers) -> Self {
        Self::new(now, timers, timers.t2)
    }

    fn new(now: Timestamp, timers: &Timers, interval_max: Duration) -> Self {
        Self {
            interval: timers.t1,
            interval_max,
            next: now + timers.t1,
            end: now + timers.patience(),
        }
    }

    /// When [`fire`](Self::fire) is next needed.
    pub fn due(&self) -> Timestamp {
        self.next.min(self.end)
    }

    /// What to do now that [`due`](Self::due) has passed.
    pub fn fire(&mut self, now: Timestamp) -> Fired {
        if now >= self.end {
            return Fired::GiveUp;
        }
        self.interval = (2 * self.interval).min(self.interval_max);
        self.next = now + self.interval;
        Fired::Again
    }

    /// A provisional response came to a request that is not an INVITE.
    // RFC 3261 §17.1.2.2: "If Timer E fires while in the 'Proceeding' state, … Timer E MUST
    // be reset with a value of T2 seconds."
    pub fn slow_down(&mut self) {
        self.interval = self.interval_max;
    }

    /// The message was answered, but its end is still waited for.
    pub fn hush(&mut self) {
        self.next = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds after the first transmission at which the message is repeated, and the end.
    fn schedule(mut repeat: Repeat) -> (Vec<u64>, u64) {
        let mut sent = Vec::new();
        loop {
            let now = repeat.due();
            let ms = now.as_nanos() / 1_000_000;
            match repeat.fire(now) {
                Fired::Again => sent.push(ms),
                Fired::GiveUp => return (sent, ms),
            }
        }
    }

    #[test]
    fn timer_a_doubles_until_timer_b() {
        // RFC 3261 §17.1.1.2: seven requests in all, intervals 500 ms, 1 s, 2 s, 4 s, 8 s, 16 s.
        let (sent, end) = schedule(Repeat::invite(Timestamp::ZERO, &Timers::default()));
        assert_eq!(sent, [500, 1500, 3500, 7500, 15_500, 31_500]);
        assert_eq!(end, 32_000);
    }

    #[test]
    fn timer_e_doubles_to_t2_until_timer_f() {
        // RFC 3261 §17.1.2.2: "500 ms, 1 s, 2 s, 4 s, 4 s, 4 s, etc."
        let (sent, end) = schedule(Repeat::capped(Timestamp::ZERO, &Timers::default()));
        assert_eq!(sent, [500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
        assert_eq!(end, 32_000);
    }

    #[test]
    fn a_provisional_response_slows_timer_e_to_t2() {
        let timers = Timers::default();
        let mut repeat = Repeat::capped(Timestamp::ZERO, &timers);
        repeat.slow_down();
        let first = repeat.due();
        assert_eq!(repeat.fire(first), Fired::Again);
        assert_eq!(repeat.due(), first + timers.t2);
    }
}
