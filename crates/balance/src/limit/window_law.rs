//! The laws that compute the window of a back end.
//!
//! A new law is one file with a state and a `step`, a variant of [`WindowLaw`] and a variant of
//! [`LawState`].

use super::delay::DelayWindow;
use super::gradient::GradientWindow;
use super::retransmissions::RetransmissionWindow;
use super::window_learning::{Responses, WindowLaw, WindowLearning};

/// The learned window of a back end, with the state of the law that computes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LawState {
    Delay(DelayWindow),
    Gradient(GradientWindow),
    Retransmissions(RetransmissionWindow),
}

impl LawState {
    /// Returns the state of the law of `learning` before the first interval.
    pub(crate) fn cold(learning: Option<WindowLearning>) -> Self {
        match learning.unwrap_or_default().law {
            WindowLaw::Delay => Self::Delay(DelayWindow::COLD),
            WindowLaw::Gradient => Self::Gradient(GradientWindow::COLD),
            WindowLaw::Retransmissions => Self::Retransmissions(RetransmissionWindow::COLD),
        }
    }

    /// Returns the maximum number of requests without a response, or infinity if no maximum has
    /// been learned.
    pub(crate) const fn window(&self) -> f64 {
        match self {
            Self::Delay(law) => law.window,
            Self::Gradient(law) => law.window,
            Self::Retransmissions(law) => law.window,
        }
    }

    /// Returns the state after an interval with the responses `seen`.
    pub(crate) fn step(self, learning: &WindowLearning, seen: &Responses) -> Self {
        match self {
            Self::Delay(law) => Self::Delay(law.step(learning, seen)),
            Self::Gradient(law) => Self::Gradient(law.step(seen)),
            Self::Retransmissions(law) => Self::Retransmissions(law.step(seen)),
        }
    }
}
