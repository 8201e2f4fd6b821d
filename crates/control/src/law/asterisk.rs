//! Asterisk's taskprocessors: two watermarks on a queue of tasks.
//!
//! Signal, trip, recovery and cold start are those of [`ohta`](super::ohta), with a high watermark
//! of 500 tasks and a low one of 450. Each message of a new call is a task. A taskprocessor has
//! room for 1500 tasks.
//!
//! While Asterisk is overloaded, it does not respond to requests over UDP, so callers retransmit
//! them. It rejects requests over other transports with a 503. In Tidegate, the option `disposal`
//! selects one of these two reactions.
//!
//! Known bias: a call waits until the 450 to 500 calls ahead of it have been served. This takes 0.1
//! s at 5,000 calls/s, and 2.5 s at 200 calls/s, which is longer than callers wait before they
//! retransmit. Retransmissions are new tasks, so they keep the queue near its watermarks.
//!
//! Source: Asterisk, `main/taskprocessor.c` and `res/res_pjsip/pjsip_distributor.c`.

use super::ohta::{Watermarks, high_mark, low_mark, queue_size};
use crate::{Entry, Param, Values};

static BUFFER: Param = queue_size(1500.0);

static HIGH: Param = high_mark("high_water", 500.0);

static LOW: Param = low_mark("low_water", 450.0);

pub(crate) static ENTRY: Entry = Entry {
    name: "asterisk",
    summary: "rejects new work from the moment the queue reaches a high watermark until the queue \
              has fallen to a slightly lower one",
    source: "Asterisk, taskprocessor.c, pjsip_distributor.c",
    doc: "The watermarks are `high_water` and `low_water`. While Asterisk is overloaded, it drops \
          requests over UDP. For the same behaviour, set `disposal = \"drop\"`.",
    params: &[&BUFFER, &HIGH, &LOW],
    check: |values| {
        let [low, high, buffer] = [&LOW, &HIGH, &BUFFER].map(|param| values.of(param));
        if low < high && high <= buffer { Ok(()) } else { Err("low_water < high_water <= buffer") }
    },
    build: |values: &Values| Box::new(Watermarks::new(values, &BUFFER, &HIGH, &LOW)),
};

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use crate::Allowance;

    #[test]
    fn the_marks_are_those_of_asterisk() {
        let mut bench = Bench::of(&ENTRY, &[]);
        for (waiting, allowance) in [
            (499, Allowance::Open),
            (500, Allowance::Closed),
            (451, Allowance::Closed),
            (450, Allowance::Open),
        ] {
            bench.signals.queue.waiting = waiting;
            bench.arrival();
            assert_eq!(bench.allowance(), allowance, "at {waiting}");
        }
        assert_eq!(bench.control.queue.waiting_max, 1500);
        assert!(ENTRY.values(&[("low_water", 500.0)]).is_err());
        assert!(ENTRY.values(&[("buffer", 499.0)]).is_err());
    }
}
