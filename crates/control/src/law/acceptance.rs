//! Acceptance: the share of admitted calls follows the share of messages that were accepted.
//!
//! Signal: α, the accepted part of all messages over the last `k` measurements, which are taken
//! every `measure` messages. All kinds of messages count, even those that are never rejected. At
//! each measurement the admitted share f changes, without smoothing: f ← clamp(f_min, (α_targ/α)·f,
//! 1). The law trips whenever α exceeds the target. It recovers by the same factor α_targ/α, which
//! is larger after more rejections. Cold start: f = 1, with no change before k measurements.
//!
//! Known bias: the law does not see the load. If everything is accepted, α is above the target. So
//! even without load, f cycles between 1 and about 0.8 with the period of a window, and some 7 % of
//! the calls are rejected. Under load the law admits the share α_targ, however high the load is.
//! This is right for one load only. If only new calls are rejected, α counts all other messages as
//! accepted. Then the rejected share of the calls is several times 1 − α_targ.
//!
//! If `sustainable` is set, α is instead the rate of admitted calls divided by this sustainable
//! rate, as in the law for telephone switches from which the paper's law comes (Kasera et al.
//! 2001). Then f falls when more calls are admitted than can be served, in proportion to the
//! excess. The result depends on the configured rate: if this rate is half of what the server can
//! sustain, the goodput is halved.
//!
//! Calls that are rejected because no back end has room for them (`pool_full`) are not part of α.
//! The law cannot accept them with any f. If they counted as rejected, full back ends would raise
//! f. If they counted as accepted, full back ends would lower f. The cost of rejecting these calls
//! is part of the occupancy, which the law [`aro`](super::aro) measures as well.
//!
//! An interval without messages is not a measurement. After k such intervals in a row, f is 1
//! again.
//!
//! Source: paper 000 §3.2, equation 4; as a law of its own: §3.2, "acceptance rate algorithm".

use tidegate_world::Timestamp;

use super::cadence::{ACCEPT, Cadence, MEASURE, NOTICE};
use super::occupancy::{FLOOR, K};
use super::target_ratio::{Estimate, TargetRatio};
use crate::trail::Trail;
use crate::{Bucket, Entry, Param, Signals, Values};

pub(super) static TARGET: Param = Param::real("alpha_targ", "fraction", 0.95, 0.01, 1.0).doc(
    "Target of the acceptance α (see `sustainable`). While α is above the target, the law admits \
     less.",
);

pub(super) static SUSTAINABLE: Param = Param::real("sustainable", "1/s", 0.0, 0.0, 1_000_000.0).doc(
    "New calls a second that the server can sustain. The acceptance α is then the rate of admitted \
     calls divided by this number. 0: α is the accepted share of all messages, as in paper 000.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "acceptance",
    summary: "measures the share of accepted messages at intervals, and multiplies the admitted \
              share by target/measured",
    source: "paper 000 §3.2",
    doc: "At each measurement (see `measure`) the law computes α, which is the share of accepted \
          messages among all messages of the last `k` measurements. It then multiplies the \
          admitted share f by `alpha_targ`/α, and keeps f between `f_min` and 1. If `alpha_targ` \
          is below 1 and `sustainable` is 0, the law rejects some calls even if the server is \
          not overloaded.",
    params: &[&K, &MEASURE, &NOTICE, &ACCEPT, &TARGET, &FLOOR, &SUSTAINABLE],
    check: |_| Ok(()),
    build: |values: &Values| {
        let cadence = Cadence::new(values, values.of(&TARGET), 1.0);
        let acceptance = Box::new(Acceptance::new(values));
        Box::new(TargetRatio::new(cadence, values.of(&FLOOR), vec![acceptance]))
    },
};

/// An estimate of the acceptance over the last k measurements.
#[derive(Debug)]
pub(super) struct Acceptance {
    target: f64,
    /// The lower limit `f_min` of the measured acceptance. It keeps the factor finite when every
    /// message is rejected.
    least: f64,
    /// Sustainable rate of new sessions a second, or `None` if α is the accepted share of all
    /// messages.
    sustainable_cps: Option<f64>,
    trail: Trail<Counts>,
    k: usize,
    /// Number of consecutive intervals without messages.
    silent: usize,
}

/// Counts of messages and of admitted sessions since the start. Messages that were rejected because
/// of full back ends are excluded.
#[derive(Clone, Copy, Debug)]
struct Counts {
    at: Timestamp,
    messages: u64,
    rejected: u64,
    admitted: u64,
}

impl Acceptance {
    pub(super) fn new(values: &Values) -> Self {
        let k = values.of(&K) as usize;
        let sustainable = values.of(&SUSTAINABLE);
        Self {
            target: values.of(&TARGET),
            least: values.of(&FLOOR),
            sustainable_cps: (sustainable > 0.0).then_some(sustainable),
            trail: Trail::new(k),
            k,
            silent: 0,
        }
    }
}

impl Estimate for Acceptance {
    fn factor(&mut self, now: Timestamp, arrived: u64, signals: &Signals) -> Option<f64> {
        if arrived == 0 && self.sustainable_cps.is_none() {
            self.silent += 1;
            if self.silent < self.k {
                return None;
            }
            self.trail.clear();
            return Some(f64::INFINITY);
        }
        self.silent = 0;
        let full = signals.messages_full;
        let newest = Counts {
            at: now,
            messages: signals.messages - full,
            rejected: signals.messages_rejected - full,
            admitted: signals.flow(Bucket::Session).admitted,
        };
        let oldest = self.trail.push(newest)?;
        let acceptance = match self.sustainable_cps {
            None => {
                let messages = newest.messages.saturating_sub(oldest.messages);
                let rejected = newest.rejected - oldest.rejected;
                if messages == 0 {
                    return None;
                }
                // The newest message is counted, but not decided yet.
                let accepted = messages.saturating_sub(rejected);
                (accepted as f64 / messages as f64).max(self.least)
            }
            Some(sustainable_cps) => {
                let passed_s = newest.at.since(oldest.at).as_secs_f64();
                if passed_s == 0.0 {
                    return None;
                }
                (newest.admitted - oldest.admitted) as f64 / passed_s / sustainable_cps
            }
        };
        // Without anything admitted there is no load: the factor is infinite.
        Some(self.target / acceptance)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::bench::{Bench, assert_near};
    use super::*;

    fn fresh(sustainable: f64) -> Bench {
        let given = [("k", 3.0), ("measure", 10.0), ("alpha_targ", 0.8), ("f_min", 0.1)];
        Bench::of(&ENTRY, &[&given[..], &[("sustainable", sustainable)]].concat())
    }

    /// Runs `count` messages, one each millisecond. The first `rejected` of them are rejected.
    fn messages(bench: &mut Bench, count: u64, rejected: u64) -> f64 {
        for i in 0..count {
            bench.pass(Duration::from_millis(1), 0.0);
            bench.signals.messages += 1;
            bench.arrival();
            let flow = bench.signals.flow_mut(Bucket::Session);
            if i < rejected {
                flow.rejected += 1;
                bench.signals.messages_rejected += 1;
            } else {
                flow.admitted += 1;
            }
        }
        bench.share()
    }

    fn ticks(bench: &mut Bench, count: u32) -> f64 {
        for _ in 0..count {
            bench.pass(bench.law.tick().unwrap(), 0.0);
            bench.tick();
        }
        bench.share()
    }

    #[test]
    fn the_share_is_multiplied_by_target_over_acceptance() {
        let mut bench = fresh(0.0);
        assert_near(messages(&mut bench, 29, 0), 1.0);
        // 000 §3.2 as printed: everything was accepted, which is above the target.
        assert_near(messages(&mut bench, 1, 0), 0.8);
        // The window is 20 messages, of which 2 are rejected, then 4, then 10.
        assert_near(messages(&mut bench, 10, 2), 0.8 / 0.9 * 0.8);
        assert_near(messages(&mut bench, 10, 2), 0.8 / 0.9 * 0.8);
        assert!(!bench.law.is_at_rest());
        assert_near(messages(&mut bench, 10, 8), 1.0);
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn the_share_never_falls_below_its_floor() {
        assert_near(messages(&mut fresh(0.0), 500, 0), 0.1);
    }

    #[test]
    fn after_complete_rejection_the_factor_is_limited_by_the_floor() {
        let mut bench = fresh(0.0);
        messages(&mut bench, 90, 0);
        assert_near(bench.share(), 0.8_f64.powi(7));
        // After two intervals, with the factors 0.8 and 0.8/0.5, no message in the window was
        // accepted.
        messages(&mut bench, 20, 20);
        let before = bench.share();
        assert_near(messages(&mut bench, 10, 10), (8.0 * before).min(1.0));
    }

    #[test]
    fn an_interval_without_messages_is_no_measurement_and_a_window_of_them_opens() {
        let mut bench = fresh(0.0);
        let share = messages(&mut bench, 40, 0);
        assert_near(share, 0.64);
        assert_near(ticks(&mut bench, 2), share);
        assert_near(ticks(&mut bench, 1), 1.0);
        // The window starts again.
        assert_near(messages(&mut bench, 29, 0), 1.0);
        assert_near(messages(&mut bench, 1, 0), 0.8);
        // A message between ticks is a measurement.
        ticks(&mut bench, 2);
        messages(&mut bench, 10, 0);
        assert!(ticks(&mut bench, 2) < 1.0);
    }

    #[test]
    fn rejections_by_back_ends_are_not_included() {
        let mut bench = fresh(0.0);
        messages(&mut bench, 30, 0);
        assert_near(bench.share(), 0.8);
        let full = |bench: &mut Bench, count| {
            for _ in 0..count {
                bench.pass(Duration::from_millis(1), 0.0);
                bench.signals.messages += 1;
                bench.arrival();
                bench.signals.messages_rejected += 1;
                bench.signals.messages_full += 1;
            }
            bench.share()
        };
        // Of the 20 messages in the window, 4 do not count because back ends were full, and the
        // decision on the newest is still open.
        messages(&mut bench, 5, 2);
        assert_near(full(&mut bench, 5), 0.8 / (14.0 / 16.0) * 0.8);
        // If these are all messages, acceptance is unknown.
        full(&mut bench, 20);
        let before = bench.share();
        assert_near(full(&mut bench, 100), before);
    }

    #[test]
    fn only_a_rate_above_the_sustainable_one_trips() {
        // Messages come at 1,000 a second.
        let mut bench = fresh(2000.0);
        assert_near(messages(&mut bench, 100, 0), 1.0);
        let mut bench = fresh(500.0);
        // At the first measurement, the newest message is not decided yet. Later, the window has
        // one undecided message at each end.
        assert_near(messages(&mut bench, 30, 0), 0.4);
        assert_near(messages(&mut bench, 10, 0), 0.16);
        // Nothing is admitted: no load.
        assert_near(ticks(&mut bench, 1), (0.8_f64 / (10.0 / 1.01 / 500.0) * 0.16).min(1.0));
        assert_near(ticks(&mut bench, 2), 1.0);
    }

    #[test]
    fn simultaneous_arrivals_have_no_rate() {
        let mut bench = fresh(500.0);
        for _ in 0..100 {
            bench.signals.messages += 1;
            bench.signals.flow_mut(Bucket::Session).admitted += 1;
            bench.arrival();
        }
        assert_near(bench.share(), 1.0);
    }
}
