//! A threshold on the occupancy of the processor: the control that most products have.
//!
//! Signal: the occupancy of the processor over the last `t_c`. If this occupancy reaches `limit`,
//! the law trips: all new work is rejected until the next reading. The law recovers when a reading
//! is below `limit`. Cold start: open. After a time without messages, the first reading begins with
//! the message that ends this time.
//!
//! Known bias: the law admits all or nothing. In a long overload it admits everything for `t_c`, so
//! that the queue fills. Then it rejects everything for `t_c`, so that the queue empties and the
//! processor becomes idle. Callers that are admitted wait for as long as the queue permits. The law
//! does not notice an overload shorter than `t_c`.
//!
//! Source: Oracle, "CPU Overload Protection" (`load-limit`: beyond it, 503 for initial requests;
//! the load is an average over 5 s); LiveKit, `node_selector.cpu_load_limit`, 0.9.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::signals::Reading;
use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static LIMIT: Param = Param::real("limit", "fraction", 0.9, 0.01, 1.0)
    .doc("The occupancy at or above which new work is rejected.");

static INTERVAL: Param = Param::real("t_c", "s", 5.0, 0.01, 60.0)
    .doc("Time from one reading to the next. The occupancy is the average over this time.");

pub(crate) static ENTRY: Entry = Entry {
    name: "cpu-threshold",
    summary: "rejects all new work while the processor is busier than a limit",
    source: "Oracle, CPU Overload Protection, and LiveKit, cpu_load_limit",
    doc: "Every `t_c` the law reads the occupancy of the processor since the last reading. If the \
          occupancy was `limit` or more, all new work is rejected until the next reading.",
    params: &[&LIMIT, &INTERVAL],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Threshold {
            limit: values.of(&LIMIT),
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            read: Reading::default(),
            rejecting: false,
        })
    },
};

#[derive(Debug)]
struct Threshold {
    limit: f64,
    interval: Duration,
    read: Reading,
    rejecting: bool,
}

impl Law for Threshold {
    fn on_begin(&mut self, _: Timestamp, signals: &Signals) {
        self.read = signals.processor;
    }

    /// Makes the next reading measure the occupancy from now on. Otherwise it would be the average
    /// over a time without messages.
    fn on_wake(&mut self, _: Timestamp, signals: &Signals) {
        self.read = signals.processor;
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        let Some(occupancy) = signals.processor.occupancy_since(self.read) else { return };
        self.read = signals.processor;
        self.rejecting = occupancy >= self.limit;
        control.admit_of_all(if self.rejecting { Allowance::Closed } else { Allowance::Open });
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn occupancy_aimed_at(&self) -> Option<f64> {
        Some(self.limit)
    }

    fn is_at_rest(&self) -> bool {
        !self.rejecting
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    #[test]
    fn each_reading_decides_until_the_next() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_eq!(bench.law.tick(), Some(Duration::from_secs(5)));
        for (occupancy, allowance, rests) in [
            (0.89, Allowance::Open, true),
            (0.91, Allowance::Closed, false),
            (1.0, Allowance::Closed, false),
            (0.1, Allowance::Open, true),
        ] {
            bench.pass(Duration::from_secs(5), occupancy);
            bench.tick();
            assert_eq!((bench.allowance(), bench.law.is_at_rest()), (allowance, rests));
        }
        // Without a reading in between nothing changes.
        bench.tick();
        assert_eq!(bench.allowance(), Allowance::Open);
    }

    #[test]
    fn time_before_the_start_does_not_count() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.pass(Duration::from_secs(100), 1.0);
        bench.law.on_begin(bench.now, &bench.signals);
        bench.pass(Duration::from_secs(5), 0.5);
        bench.tick();
        assert_eq!(bench.allowance(), Allowance::Open);
    }

    #[test]
    fn a_rest_is_not_part_of_a_reading() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.pass(Duration::from_secs(1), 0.0);
        bench.law.on_wake(bench.now, &bench.signals);
        bench.pass(Duration::from_secs(5), 1.0);
        bench.tick();
        assert_eq!(bench.allowance(), Allowance::Closed);
    }
}
