//! Two watermarks on the queue.
//!
//! Signal: the length of the queue in which new sessions wait. At the high watermark the law trips:
//! every new call is rejected. At the low watermark the law recovers: every call is admitted. Cold
//! start: open.
//!
//! Known bias: the queue oscillates between the watermarks (paper 001, figure 6 a). In an overload,
//! an admitted call waits until at least as many calls as the low watermark have been served. With
//! the paper's watermarks of 800 and 400 calls, callers do not wait that long, unless the server
//! serves thousands of calls a second. Paper 002's threshold rejection is the same law on a queue
//! of all messages.
//!
//! Source: paper 001 §4.2, after Ohta 2006; paper 002 §4.3.

use tidegate_world::Timestamp;

use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static BUFFER: Param = queue_size(1000.0);

static HIGH: Param = high_mark("hi_wm", 800.0);

static LOW: Param = low_mark("lo_wm", 400.0);

pub(crate) static ENTRY: Entry = Entry {
    name: "ohta",
    summary: "rejects new work from the moment the queue reaches a high watermark until the queue \
              has fallen to a low one",
    source: "paper 001 §4.2, after Ohta 2006; paper 002 §4.3 (threshold rejection)",
    doc: "The watermarks are `hi_wm` and `lo_wm`.",
    params: &[&BUFFER, &HIGH, &LOW],
    check: |values| {
        let ordered = values.of(&LOW) < values.of(&HIGH) && values.of(&HIGH) <= values.of(&BUFFER);
        if ordered { Ok(()) } else { Err("lo_wm < hi_wm <= buffer") }
    },
    build: |values: &Values| Box::new(Watermarks::new(values, &BUFFER, &HIGH, &LOW)),
};

/// Returns the parameter for the size of the queue, with this default in calls.
pub(super) const fn queue_size(default: f64) -> Param {
    Param::whole("buffer", "calls", default, 1, 1_000_000).doc(
        "The number of new calls that may wait. Further calls are rejected. With \
         `queue = \"fifo\"` all waiting messages count, here and for the watermarks.",
    )
}

/// Returns the parameter for the high watermark, with this default in calls.
pub(super) const fn high_mark(name: &'static str, default: f64) -> Param {
    Param::whole(name, "calls", default, 1, 1_000_000)
        .doc("High watermark: if this number of calls or more wait, new work is rejected.")
}

/// Returns the parameter for the low watermark, with this default in calls.
pub(super) const fn low_mark(name: &'static str, default: f64) -> Param {
    Param::whole(name, "calls", default, 0, 1_000_000)
        .doc("Low watermark: when this number of calls or fewer wait, new work is admitted again.")
}

/// A law with two watermarks on the queue.
#[derive(Debug)]
pub(super) struct Watermarks {
    buffer: usize,
    high: usize,
    low: usize,
    rejecting: bool,
}

impl Watermarks {
    pub(super) fn new(values: &Values, buffer: &Param, high: &Param, low: &Param) -> Self {
        let [buffer, high, low] = [buffer, high, low].map(|param| values.of(param) as usize);
        Self { buffer, high, low, rejecting: false }
    }

    fn look(&mut self, signals: &Signals, control: &mut Control) {
        let waiting = signals.queue.waiting;
        if waiting >= self.high {
            self.rejecting = true;
        } else if waiting <= self.low {
            self.rejecting = false;
        }
        control.queue.waiting_max = self.buffer;
        control.admit_of_all(if self.rejecting { Allowance::Closed } else { Allowance::Open });
    }
}

impl Law for Watermarks {
    fn on_arrival(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.look(signals, control);
    }

    fn on_service(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        self.look(signals, control);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bucket;

    #[test]
    fn between_the_marks_the_last_decision_holds() {
        let mut law = (ENTRY.build)(&ENTRY.defaults());
        let mut signals = Signals::default();
        let mut control = Control::OPEN;
        for (waiting, admitted) in
            [(0, true), (799, true), (800, false), (401, false), (400, true), (799, true)]
        {
            signals.queue.waiting = waiting;
            law.on_arrival(Timestamp::ZERO, &signals, &mut control);
            let open = control.admit(Bucket::Session) == Allowance::Open;
            assert_eq!(open, admitted, "at {waiting}");
        }
        signals.queue.waiting = 1000;
        law.on_service(Timestamp::ZERO, &signals, &mut control);
        assert_eq!(control.admit(Bucket::Session), Allowance::Closed);
        assert_eq!(control.queue.waiting_max, 1000);
    }

    #[test]
    fn the_marks_are_in_order() {
        let values = |buffer, high, low| {
            ENTRY.values(&[("buffer", buffer), ("hi_wm", high), ("lo_wm", low)])
        };
        assert!(values(10.0, 10.0, 9.0).is_ok());
        for (buffer, high, low) in [(9.0, 10.0, 5.0), (10.0, 5.0, 5.0), (10.0, 5.0, 6.0)] {
            assert!(values(buffer, high, low).is_err(), "{buffer} {high} {low}");
        }
    }
}
