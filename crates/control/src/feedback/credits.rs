//! Applies a window: the maximum number of unanswered calls (paper 002 §2.4). A single request
//! counts like a call.
//!
//! A call takes a credit when it is sent, and gives it back with the first response, or when its
//! transaction ends without one. A credit that is not given back is forgotten after 64·T1 to
//! 128·T1, so a lost message cannot close the window forever.
//!
//! A feedback value, the size of the window, holds for its validity. After that, an overloaded
//! server must not get all waiting calls at once. So the window starts at ten calls, or at its last
//! size if that is larger, and grows by one with each answer. So it doubles in every round trip.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::Category;

/// The window just after the last feedback value has expired, unless that value was larger.
const AFRESH: u32 = 10;

/// Minimum time after which the credit of a call is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(32);

/// A window so large that it does not restrict anything.
const OPEN: u32 = 4096;

/// The window of one server.
#[derive(Debug, Default)]
pub(super) struct Credits {
    /// Unanswered calls: those sent in this period, and those sent in the period before.
    unanswered: [u32; 2],
    period: Timestamp,
    /// The window that grows after a feedback value has expired. `None` before that, and when the
    /// window has become so large that it does not restrict anything.
    afresh: Option<u32>,
}

impl Credits {
    /// Returns how many more calls may be sent now.
    pub(super) fn left(&self, window: u32) -> u32 {
        window.saturating_sub(self.unanswered.iter().sum())
    }

    /// Returns whether a request may be sent: a new request only while fewer calls than `window`
    /// are unanswered. Priority calls may exceed the window by a quarter, and one of them passes
    /// even a closed window.
    pub(super) fn passes(&mut self, now: Timestamp, window: u32, category: Category) -> bool {
        self.forget(now);
        let reserve = if category == Category::Priority { (window / 4).max(1) } else { 0 };
        !category.is_new() || self.left(window.saturating_add(reserve)) > 0
    }

    /// Returns the window that applies after a feedback value has expired, if there is one.
    pub(super) fn window_afresh(&self) -> Option<u32> {
        self.afresh
    }

    /// Records that the last feedback value of the server has expired. `window` is this value.
    pub(super) fn on_expiry(&mut self, window: u32) {
        self.afresh = Some(window.max(AFRESH)).filter(|&window| window < OPEN);
    }

    /// Records that a new feedback value has arrived.
    pub(super) fn on_value(&mut self) {
        self.afresh = None;
    }

    /// Records that a call is sent.
    pub(super) fn on_sent(&mut self, now: Timestamp) {
        self.forget(now);
        self.unanswered[0] = self.unanswered[0].saturating_add(1);
    }

    /// Forgets calls that were sent long ago.
    fn forget(&mut self, now: Timestamp) {
        let passed = now.since(self.period);
        if passed >= FORGOTTEN {
            let before = if passed < 2 * FORGOTTEN { self.unanswered[0] } else { 0 };
            self.unanswered = [0, before];
            self.period = now;
        }
    }

    /// Records that a call got its first response (`is_answer` is true), or that it will get none
    /// (false).
    pub(super) fn on_settled(&mut self, is_answer: bool) {
        let from = usize::from(self.unanswered[1] > 0);
        self.unanswered[from] = self.unanswered[from].saturating_sub(1);
        if is_answer {
            self.afresh = self.afresh.map(|window| window + 1).filter(|&window| window < OPEN);
        }
    }
}
