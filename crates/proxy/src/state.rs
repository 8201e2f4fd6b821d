//! The state that routing changes: the call table, the back-end selectors of the pools, and the
//! tiers of calls.

pub(crate) mod pickers;
pub(crate) mod tiering;

use tidegate_balance::Picker;

use crate::dialog::Calls;
use crate::settings::Settings;
use pickers::pickers;
use tiering::Tiering;

/// The call table, the selectors of back ends, and the tiers of calls.
pub(crate) struct RoutingState {
    pub(crate) calls: Calls,
    /// For each pool, the selector of its back ends.
    pub(crate) pickers: Vec<Picker>,
    pub(crate) tiering: Tiering,
}

impl RoutingState {
    /// Creates the state of a shard at its start.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            calls: Calls::new(settings.calls_max, settings.idle_max),
            pickers: pickers(settings.seed, settings.shard, &settings.pools),
            tiering: Tiering::new(settings),
        }
    }

    pub(crate) fn picker(&self, pool: u16) -> &Picker {
        &self.pickers[usize::from(pool)]
    }

    pub(crate) fn picker_mut(&mut self, pool: u16) -> &mut Picker {
        &mut self.pickers[usize::from(pool)]
    }
}

/// The result of checking whether the transaction table has room for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) is_full: bool,
    pub(crate) is_full_for_new: bool,
    /// True if the table is so full that shares apply, and the source of the request has used up
    /// its share.
    pub(crate) is_over_share: bool,
}

impl Room {
    /// Returns whether a new request may take a place.
    pub(crate) fn is_free_for_new(self) -> bool {
        !self.is_full_for_new && !self.is_over_share
    }
}
