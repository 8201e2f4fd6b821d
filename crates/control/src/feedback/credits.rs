//! Obeys a window: the calls that may be sent and not yet be answered (002 §2.4).
//!
//! A call takes a credit when it is sent, and gives it back with the first response, or when its
//! transaction ends without one. A credit that was not given back after 64·T1 to twice that is
//! forgotten, so nothing that is lost closes the window for good.
//!
//! A value holds for its validity. After it, a server in trouble must not get all that has waited:
//! the window begins again at ten calls, or at what it was if that is more, and grows by one with
//! each answer, which doubles it in every round trip.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::Category;

/// Calls that may be unanswered when the last value has expired.
const AFRESH: u32 = 10;

/// Time after which the credit of a call is forgotten, at least.
const FORGOTTEN: Duration = Duration::from_secs(32);

/// A window that is as good as none.
const OPEN: u32 = 4096;

/// The state for one server.
#[derive(Debug, Default)]
pub(super) struct Credits {
    /// Calls that are not answered: sent in this period, and in the one before.
    unanswered: [u32; 2],
    period: Timestamp,
    /// The window since the last value has expired, while it is not open again.
    afresh: Option<u32>,
}

impl Credits {
    /// Returns the calls that may be sent now.
    pub(super) fn left(&self, window: u32) -> u32 {
        window.saturating_sub(self.unanswered.iter().sum())
    }

    /// Returns whether a request passes: one more unanswered call within the window. With priority
    /// it may exceed the window by a quarter, and one such call passes even a closed window.
    pub(super) fn passes(&mut self, now: Timestamp, window: u32, category: Category) -> bool {
        self.forget(now);
        let reserve = if category == Category::Priority { (window / 4).max(1) } else { 0 };
        !category.is_new() || self.left(window.saturating_add(reserve)) > 0
    }

    /// Returns the window without a valid value, if there is one.
    pub(super) fn window_afresh(&self) -> Option<u32> {
        self.afresh
    }

    /// Takes note that the value, of a `window`, has expired.
    pub(super) fn on_expiry(&mut self, window: u32) {
        self.afresh = Some(window.max(AFRESH)).filter(|&window| window < OPEN);
    }

    /// Takes note of a new value.
    pub(super) fn on_value(&mut self) {
        self.afresh = None;
    }

    /// Records that a call is sent.
    pub(super) fn on_sent(&mut self, now: Timestamp) {
        self.forget(now);
        self.unanswered[0] = self.unanswered[0].saturating_add(1);
    }

    /// Forgets the calls that were sent long ago.
    fn forget(&mut self, now: Timestamp) {
        let passed = now.since(self.period);
        if passed >= FORGOTTEN {
            let before = if passed < 2 * FORGOTTEN { self.unanswered[0] } else { 0 };
            self.unanswered = [0, before];
            self.period = now;
        }
    }

    /// Records that a call has its first response, or will get none.
    pub(super) fn on_settled(&mut self, is_answer: bool) {
        let from = usize::from(self.unanswered[1] > 0);
        self.unanswered[from] = self.unanswered[from].saturating_sub(1);
        if is_answer {
            self.afresh = self.afresh.map(|window| window + 1).filter(|&window| window < OPEN);
        }
    }
}
