//! win-cont: at any time, as many further calls are admitted as the delay budget allows.
//!
//! Signal: N, the calls that wait, and μ, the rate at which calls are served, as in
//! [win-disc](super::win_disc). After each message, left = μ·D_B − N is computed, where D_B is the
//! delay budget. If left is at least the threshold W_ovth, this number of further calls is
//! admitted, otherwise none. While no call waits, at least one is admitted. The law trips when the
//! calls that wait fill the budget. The law recovers with the next message that is served. Cold
//! start: everything is admitted until the first message is served or the first tick is due.
//!
//! Options: with `check` = 1, N is computed only after messages that begin a call without priority.
//! (Calls with priority usually wait in another queue.) A fixed `bound` can replace μ·D_B. It needs
//! no estimate of μ, but an operator must know μ to choose it.
//!
//! Known bias: μ is the rate of admitted calls. So at a small load the budget is small, and bursts
//! are rejected although the processor has room for them.
//!
//! Source: paper 002 §3.4. [Feedback](crate::feedback) divides the window among the senders, by
//! *weighted fair processing* (§6.2): it uses the weights of user-centric fairness, and adds the
//! rounding error of one value to the next value. Our addition: one call is admitted while none
//! waits. Otherwise a budget of less than W_ovth calls, as after a time with a small load, would
//! keep out all calls forever, because μ changes only when a call is served.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::window::{BUDGET, admit_further};
use crate::{Control, Entry, Law, Param, Signals, Values};

static BOUND: Param = Param::real("bound", "calls", 0.0, 0.0, 1_000_000.0)
    .doc("A fixed limit for the calls that wait, used instead of μ·`d_b`. 0: no fixed limit.");

static THRESHOLD: Param = Param::real("w_ovth", "calls", 1.0, 0.01, 10_000.0).doc(
    "The smallest number of calls that the law admits at once. While no call waits, it admits one \
     even if this number is larger.",
);

static CHECK: Param = Param::whole("check", "0 or 1", 0.0, 0, 1).doc(
    "The messages after which the law counts the calls that wait. 0: after every message. 1: after \
     messages that begin a call.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "win-cont",
    summary: "after each message, admits as many further calls as the delay budget allows",
    source: "paper 002 §3.4",
    doc: "After each message the law computes μ·`d_b` − N. μ is the measured rate of calls served, \
          and N is the number of calls that wait. If the result is at least `w_ovth`, the law \
          admits this number of further calls. Otherwise it admits none. While no call waits, it \
          admits at least one.",
    params: &[&BUDGET, &BOUND, &THRESHOLD, &CHECK],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(WinCont {
            budget_s: values.of(&BUDGET),
            bound: Some(values.of(&BOUND)).filter(|&bound| bound > 0.0),
            threshold: values.of(&THRESHOLD),
            only_new: values.of(&CHECK) == 1.0,
        })
    },
};

/// Time between two computations of the window (the number of calls that may wait) while nothing is
/// served.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct WinCont {
    budget_s: f64,
    bound: Option<f64>,
    threshold: f64,
    only_new: bool,
}

impl WinCont {
    fn look(&self, signals: &Signals, control: &mut Control) {
        let bound = self.bound.unwrap_or_else(|| signals.sessions.rate_cps() * self.budget_s);
        let waiting = signals.sessions_waiting();
        let left = bound - waiting;
        let count = if left >= self.threshold { left } else { 0.0 };
        // μ is measured by the calls that are served, so an idle processor must get one.
        let least = if waiting < 1.0 { 1.0 } else { 0.0 };
        admit_further(signals, control, count.max(least));
    }
}

impl Law for WinCont {
    fn on_service(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        if signals.service.is_session || !self.only_new {
            self.look(signals, control);
        }
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.look(signals, control);
    }

    fn tick(&self) -> Option<Duration> {
        Some(TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;
    use crate::{Backlog, Estimation, Sessions};

    fn left(bench: &mut Bench, sessions: usize, is_session: bool) -> f64 {
        bench.signals.backlog = Backlog { sessions, ..Backlog::default() };
        bench.signals.service.is_session = is_session;
        bench.service();
        bench.window()
    }

    #[test]
    fn after_each_message_the_unused_budget_is_admitted() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_near(left(&mut bench, 5, false), 15.0);
        assert_near(left(&mut bench, 19, true), 1.0);
        assert_near(left(&mut bench, 20, false), 0.0);
        assert_near(left(&mut bench, 40, false), 0.0);
        bench.signals.backlog = Backlog::default();
        bench.tick();
        assert_near(bench.window(), 20.0);
    }

    #[test]
    fn bound_threshold_and_check_can_be_configured() {
        let given = [("bound", 10.0), ("w_ovth", 3.0), ("check", 1.0)];
        let mut bench = Bench::of(&ENTRY, &given);
        assert_near(left(&mut bench, 7, true), 3.0);
        assert_near(left(&mut bench, 2, false), 3.0);
        assert_near(left(&mut bench, 8, true), 0.0);
    }

    #[test]
    fn an_idle_server_admits_a_call_however_small_the_budget_is() {
        for given in [&[("d_b", 0.1)][..], &[("w_ovth", 3.0)], &[("bound", 0.5)]] {
            let mut bench = Bench::of(&ENTRY, given);
            let estimation = Estimation { rate_cps: 5.0, ..Estimation::default() };
            bench.signals.sessions = Sessions::new(estimation);
            assert_near(left(&mut bench, 0, true), 1.0);
            // One call waits, so no other is admitted.
            assert_near(left(&mut bench, 1, false), 0.0);
            bench.signals.backlog = Backlog::default();
            bench.tick();
            assert_near(bench.window(), 1.0);
        }
    }
}
