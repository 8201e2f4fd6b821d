//! Admits a number of calls in addition to those that wait, and defines the parameters that several
//! laws of paper 002 share.

use crate::{Allowance, Bucket, Control, Param, Signals};

pub(super) static INTERVAL: Param = Param {
    name: "t_c",
    doc: "Control interval T_c.",
    unit: "s",
    default: 0.2,
    min: 0.001,
    max: 60.0,
};

pub(super) static BUDGET: Param = Param {
    name: "d_b",
    doc: "Budget D_B of the delay in the queue.",
    unit: "s",
    default: 0.2,
    min: 0.001,
    max: 60.0,
};

/// Admits `count` pieces of new work in addition to those that wait now.
pub(super) fn admit_further(signals: &Signals, control: &mut Control, count: f64) {
    for bucket in Bucket::ALL {
        // If work is judged when it is taken from the queue, all waiting work is behind it.
        let waiting = match bucket {
            Bucket::Session => signals.in_progress(bucket).max(signals.queue.waiting as u64),
            _ => signals.in_progress(bucket),
        };
        control.set_admit(bucket, Allowance::Window(waiting as f64 + count.max(0.0)));
    }
}
