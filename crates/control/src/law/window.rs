//! Admits a number of calls in addition to those that wait. Defines the parameters that several
//! laws of paper 002 share.

use crate::{Allowance, Bucket, Control, Param, Signals};

pub(super) static INTERVAL: Param = Param::real("t_c", "s", 0.2, 0.001, 60.0)
    .doc("Control interval T_c: time from one change of the limit for new calls to the next.");

pub(super) static BUDGET: Param = Param::real("d_b", "s", 0.2, 0.001, 60.0)
    .doc("Delay budget D_B: the delay in the queue that the law allows.");

/// Admits `count` pieces of new work in addition to those that wait now.
///
/// The gate compares the window with [`in_window`](Signals::in_window), so this function adds
/// `count` to the same number. It must not use the length of the queue. In a queue of all messages,
/// the length is several times as large, and the window would admit several times as many calls.
pub(super) fn admit_further(signals: &Signals, control: &mut Control, count: f64) {
    for bucket in Bucket::ALL {
        let waiting = signals.in_window(bucket) as f64;
        control.set_admit(bucket, Allowance::Window(waiting + count.max(0.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backlog;

    #[test]
    fn in_one_queue_of_all_messages_only_calls_count() {
        let mut signals = Signals::default();
        let mut control = Control::OPEN;
        signals.queue.waiting = 70;
        signals.backlog = Backlog { sessions: 10, others: 60, unread: 0 };
        signals.in_progress[Bucket::Session as usize] = 10;
        admit_further(&signals, &mut control, 4.0);
        assert_eq!(control.admit(Bucket::Session), Allowance::Window(14.0));
        assert_eq!(control.admit(Bucket::Single), Allowance::Window(4.0));
        admit_further(&signals, &mut control, -4.0);
        assert_eq!(control.admit(Bucket::Session), Allowance::Window(10.0));
    }
}
