//! A queue limited by a deadline: a call that has waited too long is rejected.
//!
//! Signal: the wait of a new call when its turn comes. If it exceeds `deadline`, the law trips: it
//! rejects that call. It needs no recovery. Cold start: open. Nothing is rejected at its arrival.
//!
//! Known bias: in a long overload, every call that is served has waited almost as long as the
//! deadline. The deadline must leave enough time for the service and for the response, here and at
//! each further server. A call is rejected only after this wait, and occupies a place in the queue
//! until then. The queue must have room for all calls that arrive within the deadline. Otherwise
//! its overflow decides which calls are rejected.
//!
//! Source: HAProxy, `timeout queue`: 503 for requests that have waited that long. The default here
//! follows from SIP: it is a fifth less than T1 (0.5 s), after which callers repeat their requests
//! (RFC 3261 §17.1.1.2).

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Control, Entry, Law, Param, Signals, Values};

static DEADLINE: Param = Param::real("deadline", "s", 0.4, 0.001, 60.0)
    .doc("The longest wait of a call that is still served.");

pub(crate) static ENTRY: Entry = Entry {
    name: "deadline",
    summary: "rejects calls that have waited too long when their turn comes",
    source: "HAProxy, timeout queue",
    doc: "The law admits all new work. A call that has waited for `deadline` is rejected when its \
          turn comes.",
    params: &[&DEADLINE],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Deadline { wait_max: Duration::from_secs_f64(values.of(&DEADLINE)) })
    },
};

#[derive(Debug)]
struct Deadline {
    wait_max: Duration,
}

impl Law for Deadline {
    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.queue.wait_max = Some(self.wait_max);
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use crate::Allowance;

    #[test]
    fn only_the_wait_is_limited() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.arrival();
        assert_eq!(bench.control.queue.wait_max, Some(Duration::from_millis(400)));
        assert_eq!(bench.allowance(), Allowance::Open);
    }
}
