//! DAGOR: each call has a random rank, and calls with a rank below a floor are rejected. The floor
//! rises while calls wait too long.
//!
//! Signal: the mean wait of new calls before their service, in a window of time or of 2,000 calls,
//! whichever ends first. The law trips when this mean exceeds 20 ms: the admitted share of ranks is
//! multiplied by 0.95. The law recovers slowly: the share grows by 0.01 a window, so it needs 100
//! windows to grow from 0 to 1. Cold start: everything is admitted.
//!
//! A call and its retransmissions have the same fixed rank. While the floor stays the same, the law
//! decides about a retransmission as about the call. If requests need several servers, all servers
//! reject the same requests. So no server works on a request that another server rejects. This is
//! the purpose of the law.
//!
//! Known bias: the step is 5 % a window, however large the overload. It takes 32 windows to reduce
//! the share to a fifth, and meanwhile the queue fills. A few calls that waited long can raise the
//! mean above its limit although most calls waited only a short time. WeChat's servers get 2,000
//! calls in a fraction of a second, and the default window is that long. WeChat's limit of a second
//! would be too long for a server of hundreds of calls a second.
//!
//! A window in which calls waited but none was taken from the queue is ignored. Single requests,
//! such as REGISTER, and calls with priority do not count. The floor does not apply to them, so it
//! could never shorten their waits.
//!
//! Source: Zhou et al., "Overload Control for Scaling WeChat Microservices", SoCC 2018, §4.1 and
//! §4.2: 20 ms, 2,000 requests or one second, α 5 %, β 1 %.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Control, Entry, Law, Param, Signals, Values};

static WAIT_MAX: Param = Param::real("wait_max", "s", 0.02, 0.000_1, 10.0)
    .doc("The mean wait above which the law admits fewer calls.");

static WINDOW: Param = Param::real("window", "s", 0.2, 0.001, 60.0)
    .doc("Longest duration of a window. WeChat uses 1.");

static CALLS: Param = Param::whole("calls", "calls", 2000.0, 1, 1_000_000)
    .doc("Calls taken from the queue after which a window ends.");

static ALPHA: Param = Param::real("alpha", "fraction", 0.05, 0.001, 0.9).doc(
    "Share by which the law reduces the admitted share of calls after a window with a mean wait \
     above `wait_max`.",
);

static BETA: Param = Param::real("beta", "fraction", 0.01, 0.001, 1.0).doc(
    "Amount that the law adds to the admitted share of calls after a window with a mean wait of at \
     most `wait_max`.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "dagor",
    summary: "rejects calls of low rank while the mean wait is too long",
    source: "Zhou et al., SoCC 2018",
    doc: "A window ends after the time `window`, or after `calls` calls taken from the queue. If \
          the mean wait of these calls was above `wait_max`, the law multiplies the admitted share \
          of ranks by 1 − `alpha`. Otherwise the share grows by `beta`. A call and its \
          retransmissions have one rank.",
    params: &[&WAIT_MAX, &WINDOW, &CALLS, &ALPHA, &BETA],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Dagor {
            wait_max: Duration::from_secs_f64(values.of(&WAIT_MAX)),
            window: Duration::from_secs_f64(values.of(&WINDOW)),
            calls_max: values.of(&CALLS) as u32,
            alpha: values.of(&ALPHA),
            beta: values.of(&BETA),
            waited: Duration::ZERO,
            calls: 0,
            admitted: 1.0,
        })
    },
};

#[derive(Debug)]
struct Dagor {
    wait_max: Duration,
    window: Duration,
    calls_max: u32,
    alpha: f64,
    beta: f64,
    /// Sum of the waits of the calls that were taken from the queue in this window.
    waited: Duration,
    calls: u32,
    /// The admitted share of the calls, 0 to 1: those with the highest ranks.
    admitted: f64,
}

impl Dagor {
    fn end_window(&mut self, signals: &Signals, control: &mut Control) {
        let is_overloaded = self.waited > self.wait_max * self.calls;
        let says_nothing = self.calls == 0 && signals.queue.waiting > 0;
        (self.waited, self.calls) = (Duration::ZERO, 0);
        if says_nothing {
            return;
        }
        self.admitted = if is_overloaded {
            self.admitted * (1.0 - self.alpha)
        } else {
            (self.admitted + self.beta).min(1.0)
        };
        control.rank_floor = 1.0 - self.admitted;
    }
}

impl Law for Dagor {
    fn on_service(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        if !signals.service.is_session {
            return;
        }
        self.waited += signals.service.sojourn;
        self.calls += 1;
        if self.calls >= self.calls_max {
            self.end_window(signals, control);
        }
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.end_window(signals, control);
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.window)
    }

    fn is_at_rest(&self) -> bool {
        self.admitted >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    fn taken(bench: &mut Bench, sojourns_ms: &[u64]) -> f64 {
        for &ms in sojourns_ms {
            bench.taken(Duration::from_millis(ms));
        }
        admitted(bench)
    }

    fn tick(bench: &mut Bench) -> f64 {
        bench.tick();
        admitted(bench)
    }

    fn admitted(bench: &Bench) -> f64 {
        1.0 - bench.control.rank_floor
    }

    #[test]
    fn a_long_mean_wait_removes_a_twentieth_and_any_other_adds_a_hundredth() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_eq!(bench.law.tick(), Some(Duration::from_millis(200)));
        taken(&mut bench, &[1, 40, 20]);
        assert_near(tick(&mut bench), 0.95);
        taken(&mut bench, &[100, 0, 0]);
        assert_near(tick(&mut bench), 0.95 * 0.95);
        // A mean of exactly 20 ms is not too long.
        taken(&mut bench, &[20, 20]);
        assert_near(tick(&mut bench), 0.95 * 0.95 + 0.01);
        assert!(!bench.law.is_at_rest());
        for _ in 0..7 {
            tick(&mut bench);
        }
        assert_near(admitted(&bench), 0.9825);
        tick(&mut bench);
        assert_near(tick(&mut bench), 1.0);
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn a_number_of_calls_also_ends_a_window() {
        let mut bench = Bench::of(&ENTRY, &[("calls", 3.0)]);
        assert_near(taken(&mut bench, &[60, 60]), 1.0);
        assert_near(taken(&mut bench, &[60]), 0.95);
        assert_near(taken(&mut bench, &[60, 60]), 0.95);
    }

    #[test]
    fn a_window_without_taken_calls_is_ignored() {
        let mut bench = Bench::of(&ENTRY, &[]);
        taken(&mut bench, &[60]);
        assert_near(tick(&mut bench), 0.95);
        bench.signals.queue.waiting = 5;
        assert_near(tick(&mut bench), 0.95);
        bench.signals.queue.waiting = 0;
        assert_near(tick(&mut bench), 0.96);
    }

    #[test]
    fn only_new_calls_count() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.signals.service.sojourn = Duration::from_secs(9);
        bench.service();
        assert_near(tick(&mut bench), 1.0);
    }

    #[test]
    fn it_steps_up_again_from_almost_zero() {
        let mut bench = Bench::of(&ENTRY, &[]);
        for _ in 0..5000 {
            taken(&mut bench, &[60]);
            tick(&mut bench);
        }
        assert!(admitted(&bench) < 1e-9);
        for _ in 0..100 {
            tick(&mut bench);
        }
        assert_near(admitted(&bench), 1.0);
    }
}
