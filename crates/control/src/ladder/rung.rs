//! The rungs of a ladder (the ways to shed work), and the parameters of a ladder.

use std::time::Duration;

use tidegate_world::unit_enum;

/// The parameters of a [`Ladder`](super::Ladder).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LadderSettings {
    /// The share of the processor that rejecting may take, between 0 and 1. The default is 0.08.
    pub budget: f64,
    /// Time between two decisions. The default is 100 ms.
    pub period: Duration,
    /// True if the ladder may pad its answers ([`Rung::Pad`]). The default is `false`.
    pub pads: bool,
    /// True if the ladder may drop datagrams unread ([`Rung::Drop`]). The default is `true`.
    pub drops: bool,
}

impl Default for LadderSettings {
    fn default() -> Self {
        Self { budget: 0.08, period: Duration::from_millis(100), pads: false, drops: true }
    }
}

unit_enum! {
    /// The treatment of new work that is not admitted. Metrics use these names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Rung {
        /// All work that is not admitted is answered.
        #[default]
        Reject = "reject",
        /// All work that is not admitted is answered, and these answers are padded to a few
        /// lengths.
        Pad = "pad",
        /// A share of the datagrams is dropped before they are read. Work that is read and not
        /// admitted is answered.
        Drop = "drop",
    }
}
