//! win-auto: a fixed window of waiting calls, reduced by one for each repetition.
//!
//! Signal: repetitions of new calls. A call takes one place of the window when it arrives and gives
//! it back when it is taken from the queue. A repetition takes a place and does not give it back.
//! So the window shrinks with each repetition, until the waiting calls have been served and are no
//! longer repeated. The law trips when the window is full. The law recovers by `leak` calls a
//! second, up to W_0, the window at the start. The leak is our addition: in the paper the places of
//! repetitions are never given back, so that lost messages reduce the window to nothing. Here the
//! window never falls below one call. Cold start: W_0.
//!
//! Options: if `delay_max` is set, a call that has waited for longer than this does not give its
//! place back either. This is the paper's remedy for a window that is too large. The waits of
//! single requests, such as REGISTER, and of calls with priority have no effect.
//!
//! Known bias: W_0 fixes the delay of the queue, W_0/μ, so an operator must know μ to choose W_0.
//! If W_0 makes calls wait for more than T1/2, each call causes repetitions of its 200 and its BYE.
//! Then a call has ten messages instead of seven, and goodput settles at seven tenths. The window
//! does not see those repetitions.
//!
//! Source: paper 002 §3.5, §5.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Allowance, Bucket, Control, Entry, Law, Param, Signals, Values};

static WINDOW: Param = Param::real("w_0", "calls", 10.0, 1.0, 1_000_000.0)
    .doc("The window at the start. This is also the largest window.");

static LEAK: Param = Param::real("leak", "calls/s", 1.0, 0.0, 10_000.0).doc(
    "Calls a second by which the window grows back. 0: the window never grows back, as in paper \
     002.",
);

static DELAY: Param = Param::real("delay_max", "s", 0.0, 0.0, 60.0).doc(
    "The delay in the queue beyond which a call makes the window smaller by one. 0: the delay has \
     no effect.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "win-auto",
    summary: "admits calls into a window that each retransmission makes smaller",
    source: "paper 002 §3.5",
    doc: "The window limits the calls that wait. At the start it is `w_0`. Each retransmission of \
          a new INVITE makes it smaller by one, and so does each call that has waited longer than \
          `delay_max`. It grows back by `leak` calls a second.",
    params: &[&WINDOW, &LEAK, &DELAY],
    check: |_| Ok(()),
    build: |values: &Values| {
        let window_max = values.of(&WINDOW);
        Box::new(WinAuto {
            window_max,
            leak_cps: values.of(&LEAK),
            delay_max: Some(values.of(&DELAY))
                .filter(|&delay_s| delay_s > 0.0)
                .map(Duration::from_secs_f64),
            window: window_max,
            repeated: 0,
            ticked: Timestamp::ZERO,
        })
    },
};

const WINDOW_MIN: f64 = 1.0;

/// Time between two steps of the window's growth.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct WinAuto {
    window_max: f64,
    leak_cps: f64,
    delay_max: Option<Duration>,
    window: f64,
    /// Number of repetitions since the start that have already taken a place of the window.
    repeated: u64,
    ticked: Timestamp,
}

impl WinAuto {
    fn change(&mut self, by: f64, control: &mut Control) {
        self.window = (self.window + by).clamp(WINDOW_MIN, self.window_max);
        control.admit_of_all(Allowance::Window(self.window));
    }

    fn take_off_repetitions(&mut self, signals: &Signals, control: &mut Control) {
        let repeated = signals.flow(Bucket::Session).repeated;
        let new = repeated - std::mem::replace(&mut self.repeated, repeated);
        self.change(-(new as f64), control);
    }
}

impl Law for WinAuto {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        (self.ticked, self.repeated) = (now, signals.flow(Bucket::Session).repeated);
    }

    fn on_arrival(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.take_off_repetitions(signals, control);
    }

    fn on_service(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        let is_late = self.delay_max.is_some_and(|max| signals.service.sojourn > max);
        if signals.service.is_session && is_late {
            self.change(-1.0, control);
        }
    }

    /// Makes the next tick grow the window for the time from now on. The law rests only while its
    /// window cannot grow.
    fn on_wake(&mut self, now: Timestamp, _: &Signals) {
        self.ticked = now;
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.take_off_repetitions(signals, control);
        self.change(self.leak_cps * now.since(self.ticked).as_secs_f64(), control);
        self.ticked = now;
    }

    fn tick(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn is_at_rest(&self) -> bool {
        self.window >= self.window_max || self.leak_cps == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    fn repeat(bench: &mut Bench, count: u64) -> f64 {
        bench.signals.flow_mut(Bucket::Session).repeated += count;
        bench.arrival();
        bench.window()
    }

    fn seconds(bench: &mut Bench, count: u32) -> f64 {
        for _ in 0..10 * count {
            bench.pass(TICK, 1.0);
            bench.tick();
        }
        bench.window()
    }

    #[test]
    fn a_repetition_takes_a_place_and_time_returns_it() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_near(repeat(&mut bench, 0), 10.0);
        assert_near(repeat(&mut bench, 3), 7.0);
        assert!(!bench.law.is_at_rest());
        assert_near(seconds(&mut bench, 2), 9.0);
        assert_near(seconds(&mut bench, 5), 10.0);
        assert!(bench.law.is_at_rest());
        assert_near(repeat(&mut bench, 50), 1.0);
    }

    #[test]
    fn without_leak_no_place_is_returned() {
        let mut bench = Bench::of(&ENTRY, &[("leak", 0.0)]);
        assert_near(repeat(&mut bench, 4), 6.0);
        assert_near(seconds(&mut bench, 60), 6.0);
    }

    #[test]
    fn a_call_that_waited_too_long_does_not_return_its_place() {
        let mut bench = Bench::of(&ENTRY, &[("delay_max", 0.25)]);
        bench.arrival();
        bench.taken(Duration::from_millis(250));
        assert_near(bench.window(), 10.0);
        bench.taken(Duration::from_millis(251));
        assert_near(bench.window(), 9.0);
        bench.signals.service.is_session = false;
        bench.service();
        assert_near(bench.window(), 9.0);
    }

    // The law rests at its largest window, so the time of a rest returns no places.
    #[test]
    fn a_rest_returns_no_places() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.pass(Duration::from_secs(3600), 0.0);
        bench.law.on_wake(bench.now, &bench.signals);
        assert_near(repeat(&mut bench, 50), 1.0);
        bench.pass(TICK, 1.0);
        bench.tick();
        assert_near(bench.window(), 1.1);
    }
}
