//! win-disc: in each interval, as many calls are admitted as can be served in the interval, plus as
//! many as may wait.
//!
//! Signal: the calls that wait, N, and the rate at which calls are served, μ, both estimated from
//! messages ([`Sessions`](crate::Sessions)). Every T_c, w = μ·T_c + μ·D_B − N is computed, where
//! D_B is the delay budget, and w calls are admitted in the next interval. The law trips when more
//! than w calls arrive in an interval. The law recovers with the next interval: w grows as the
//! queue empties. Cold start: everything is admitted until the first tick.
//!
//! Known bias: μ is the rate of admitted calls, so below the capacity it equals the load. After a
//! step of the load, w can grow only by a factor of 1 + D_B/T_c in each interval. All w calls may
//! arrive at once at the start of an interval. If D_B is above T1/2, callers repeat, because a 200
//! and its ACK both pass through the queue. A call waits for up to T_c plus D_B, and before that in
//! the receive buffer. If this is more than T1, callers repeat their INVITEs. With a T_c of 0.5 s
//! the goodput is .83 of the bound at three times the capacity, and .24 at five times. With a T_c
//! of 0.2 s it stays at the bound.
//!
//! Source: paper 002 §3.3. There each sender has a window of its own. Here
//! [feedback](crate::feedback) shares one window among the senders. Our addition: while nothing
//! waits, one call is admitted even if w calls were admitted before. Otherwise the processor would
//! be idle until the next tick.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::window::{BUDGET, INTERVAL, admit_further};
use crate::{Bucket, Control, Entry, Law, Signals, Values};

pub(crate) static ENTRY: Entry = Entry {
    name: "win-disc",
    summary: "admits in each interval as many calls as the server can serve in this interval, plus \
              those that may wait within the delay budget",
    source: "paper 002 §3.3",
    doc: "Every `t_c` the number of calls to admit in the next interval becomes μ·`t_c` + μ·`d_b` \
          − N. μ is the measured rate of calls served, and N is the number of calls that wait.",
    params: &[&INTERVAL, &BUDGET],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(WinDisc {
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            budget_s: values.of(&BUDGET),
            window: None,
            waiting: 0.0,
        })
    },
};

#[derive(Debug)]
struct WinDisc {
    interval: Duration,
    budget_s: f64,
    /// w: the number of calls to admit as computed at the last tick, and the number of calls that
    /// had been admitted by then.
    window: Option<(f64, u64)>,
    /// N: the number of calls that waited at the last tick.
    waiting: f64,
}

impl WinDisc {
    fn apply(&self, signals: &Signals, control: &mut Control) {
        if let Some((window, before)) = self.window {
            let left = window - (signals.flow(Bucket::Session).admitted - before) as f64;
            // The processor must not be idle until the next tick.
            let least = if signals.sessions_waiting() < 1.0 { 1.0 } else { 0.0 };
            admit_further(signals, control, left.max(least));
        }
    }
}

impl Law for WinDisc {
    fn on_arrival(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.apply(signals, control);
    }

    fn on_service(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.apply(signals, control);
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.waiting = signals.sessions_waiting();
        let rate_cps = signals.sessions.rate_cps();
        let window = rate_cps * (self.interval.as_secs_f64() + self.budget_s) - self.waiting;
        self.window = Some((window.round().max(0.0), signals.flow(Bucket::Session).admitted));
        self.apply(signals, control);
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn is_at_rest(&self) -> bool {
        self.waiting < 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;
    use crate::{Allowance, Backlog};

    #[test]
    fn an_interval_admits_the_calls_it_can_serve_and_those_that_may_still_wait() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.arrival();
        assert_eq!(bench.allowance(), Allowance::Open);
        // Before anything is measured, 100 calls/s are assumed, with seven messages each.
        bench.signals.backlog = Backlog { sessions: 5, others: 30, unread: 0 };
        bench.tick();
        assert_near(bench.window(), 30.0);
        bench.signals.flow_mut(Bucket::Session).admitted = 12;
        bench.signals.in_progress[Bucket::Session as usize] = 4;
        bench.arrival();
        assert_near(bench.window(), 4.0 + 18.0);
        bench.signals.flow_mut(Bucket::Session).admitted = 31;
        bench.service();
        assert_near(bench.window(), 4.0);
        assert!(!bench.law.is_at_rest());
        bench.signals.backlog = Backlog::default();
        bench.service();
        assert_near(bench.window(), 4.0 + 1.0);
        bench.tick();
        assert_near(bench.window(), 44.0);
        assert!(bench.law.is_at_rest());
    }
}
