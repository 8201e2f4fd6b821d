//! Controlled delay: if a queue never becomes short, the server is overloaded.
//!
//! Signal: the minimum sojourn of new calls in each interval of 100 ms. A burst makes some calls
//! wait long, but not all. If all calls wait long, there is a standing queue. The law trips when
//! the minimum exceeds 5 ms. While it is tripped, the newest call is served first, because its
//! caller is the least likely to have hung up. A call that has waited more than twice the target is
//! rejected when its turn comes. The law recovers after an interval in which the queue was once
//! empty. With `newest_first = 0`, when the oldest call is served first, it recovers after an
//! interval in which a call waited at most 5 ms. Cold start: not tripped.
//!
//! Single requests, such as REGISTER, and calls with priority do not count. Usually they wait in
//! queues of their own, which can be empty while calls wait.
//!
//! Nothing is ever rejected at arrival, and no share is set: the queue itself is the throttle.
//!
//! Meta's library folly always serves the oldest call first, so it can always use the minimum
//! sojourn. If the newest call is served first, that minimum is always short, and the law would
//! believe in every other interval that the overload has ended. So while the newest call is served
//! first, only an empty queue counts as short.
//!
//! Known bias: each rejection comes late, after the call has waited and has occupied a place in the
//! queue. The target must be longer than the time in which the server reads and serves a batch of
//! messages. Otherwise a server that works in batches always counts as overloaded.
//!
//! Source: folly, `folly/executors/Codel.cpp` (interval, target, the timeout of twice the target);
//! after Nichols and Jacobson, "Controlling Queue Delay", 2012. Newest first: Maurer, "Fail at
//! Scale", 2015.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Control, Entry, Law, Param, QueueOrder, Signals, Values};

static TARGET: Param = Param::real("target", "s", 0.005, 0.000_1, 10.0).doc(
    "Limit for the shortest sojourn in an interval. In an overload, calls that have waited twice \
     this limit are rejected.",
);

static INTERVAL: Param = Param::real("interval", "s", 0.1, 0.001, 60.0)
    .doc("If every sojourn in this time is above `target`, the server counts as overloaded.");

static NEWEST_FIRST: Param = Param::whole("newest_first", "0 or 1", 1.0, 0, 1).doc(
    "1: in an overload the newest call is served first. 0: the oldest call is served first, as in \
     folly.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "codel",
    summary: "in a standing queue, serves the newest call first and rejects calls that have waited \
              long",
    source: "folly, Codel.cpp",
    doc: "The server counts as overloaded when no call waited less than `target` during an \
          `interval`. Then the newest call is served first, and a call that has waited twice the \
          `target` is rejected when its turn comes.",
    params: &[&TARGET, &INTERVAL, &NEWEST_FIRST],
    check: |values| {
        let ordered = values.of(&TARGET) < values.of(&INTERVAL);
        if ordered { Ok(()) } else { Err("target < interval") }
    },
    build: |values: &Values| {
        Box::new(Codel {
            target: Duration::from_secs_f64(values.of(&TARGET)),
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            newest_first: values.of(&NEWEST_FIRST) == 1.0,
            until: Timestamp::ZERO,
            least: None,
            overloaded: false,
        })
    },
};

#[derive(Debug)]
struct Codel {
    target: Duration,
    interval: Duration,
    newest_first: bool,
    /// Time at which the current interval ends.
    until: Timestamp,
    /// The minimum sojourn in the current interval, or `None` before the first call in it.
    least: Option<Duration>,
    overloaded: bool,
}

impl Codel {
    /// Returns the sojourn that shows whether the queue is short. While the newest call is served
    /// first, this is zero if the queue is empty, and [`Duration::MAX`] otherwise.
    fn sojourn(&self, signals: &Signals) -> Duration {
        if !(self.overloaded && self.newest_first) {
            signals.service.sojourn
        } else if signals.queue.waiting == 0 {
            Duration::ZERO
        } else {
            Duration::MAX
        }
    }
}

impl Law for Codel {
    fn on_service(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        if !signals.service.is_session {
            return;
        }
        if now >= self.until {
            self.until = now + self.interval;
            if let Some(least) = self.least.take() {
                self.overloaded = least > self.target;
                let newest_first = self.overloaded && self.newest_first;
                let queue = &mut control.queue;
                queue.wait_max = self.overloaded.then_some(2 * self.target);
                queue.order = if newest_first { QueueOrder::Lifo } else { QueueOrder::Fifo };
            }
        }
        let sojourn = self.sojourn(signals);
        self.least = Some(self.least.map_or(sojourn, |least| least.min(sojourn)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Starts `count` services, one each millisecond. The sojourns repeat, and `waiting` messages
    /// remain in the queue. Returns whether the law found an overload in the end.
    fn services(bench: &mut Bench, count: usize, sojourns_ms: &[f64], waiting: usize) -> bool {
        bench.signals.queue.waiting = waiting;
        for ms in sojourns_ms.iter().cycle().take(count) {
            bench.pass(MS, 0.0);
            bench.taken(MS.mul_f64(*ms));
        }
        bench.control.queue.wait_max.is_some()
    }

    #[test]
    fn an_interval_without_a_short_wait_is_an_overload() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert!(!services(&mut bench, 100, &[5.1], 9));
        assert!(services(&mut bench, 1, &[5.1], 9));
        let queue = bench.control.queue;
        assert_eq!((queue.order, queue.wait_max), (QueueOrder::Lifo, Some(10 * MS)));
        let allowance = bench.allowance();
        assert_eq!(allowance, crate::Allowance::Open);
    }

    #[test]
    fn a_single_short_wait_in_an_interval_is_enough() {
        let mut bench = Bench::of(&ENTRY, &[]);
        let mut sojourns = [900.0; 50];
        sojourns[20] = 5.0;
        assert!(!services(&mut bench, 1000, &sojourns, 9));
    }

    #[test]
    fn newest_first_only_an_empty_queue_is_short() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert!(services(&mut bench, 300, &[8.0], 9));
        assert!(services(&mut bench, 300, &[0.1], 9), "the newest never waits");
        // The queue is empty once. The interval is over, so the overload ends.
        services(&mut bench, 1, &[300.0], 0);
        assert!(!services(&mut bench, 100, &[0.1], 9));
        assert_eq!(bench.control.queue, Control::OPEN.queue);
        // While the law is not tripped, any short wait is enough.
        assert!(!services(&mut bench, 300, &[0.1, 900.0], 9));
    }

    #[test]
    fn with_the_oldest_first_the_minimum_wait_always_counts() {
        let mut bench = Bench::of(&ENTRY, &[("newest_first", 0.0)]);
        assert!(services(&mut bench, 300, &[8.0], 9));
        assert_eq!(bench.control.queue.order, QueueOrder::Fifo);
        assert!(services(&mut bench, 300, &[5.1], 0));
        assert!(!services(&mut bench, 201, &[5.0], 9));
    }

    #[test]
    fn only_new_calls_count() {
        let mut bench = Bench::of(&ENTRY, &[]);
        for _ in 0..300 {
            services(&mut bench, 1, &[8.0], 9);
            bench.signals.service = crate::Service::default();
            bench.service();
        }
        assert!(bench.control.queue.wait_max.is_some());
    }

    #[test]
    fn an_interval_is_longer_than_the_target() {
        assert!(ENTRY.values(&[("target", 0.1)]).is_err());
        assert!(ENTRY.values(&[("target", 0.099)]).is_ok());
        assert!(ENTRY.values(&[("newest_first", 0.5)]).is_err());
    }
}
