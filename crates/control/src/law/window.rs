//! A window that counts what is still to come, for the laws of 002.

use crate::{Allowance, Bucket, Control, Signals};

/// Admits `count` pieces of new work beside those that wait.
pub(super) fn admit_further(signals: &Signals, control: &mut Control, count: f64) {
    for bucket in Bucket::ALL {
        // Where work is judged as it is taken from the queue, all that waits is behind it.
        let waiting = match bucket {
            Bucket::Session => signals.in_progress(bucket).max(signals.queue.waiting as u64),
            _ => signals.in_progress(bucket),
        };
        control.set_admit(bucket, Allowance::Window(waiting as f64 + count.max(0.0)));
    }
}
