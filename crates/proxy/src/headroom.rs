//! Headroom: whether those behind could take a new call, asked at the door.
//!
//! Where a request leads is known when it is routed, and there it is refused if nobody there has
//! headroom. But if nobody has any wherever a stranger's call may lead, that is known before it is
//! read, and it is refused like what the law does not admit: at that cost, and by the same gate.

use tidegate_balance::Demand;
use tidegate_control::Headroom;
use tidegate_world::{Path, Timestamp};

use crate::endpoint::Endpoint;
use crate::origin::Origin;
use crate::settings::{RuleTarget, Senders};

impl Endpoint {
    /// For which calls from there is there headroom. While nobody is up there is as much as there
    /// may be: that is no matter of limits.
    pub(crate) fn headroom(&self, now: Timestamp, path: &Path) -> Headroom {
        let has = |demand| {
            let mut pools = self.pools_of_strangers();
            pools.any(|pool| self.pool_settings(pool).pool.has_headroom(now, demand))
        };
        // First: it is so nearly always, and cheap to know.
        if has(Demand::Call) || !self.is_strangers_call(path) {
            return Headroom::Any;
        }
        if has(Demand::Priority) {
            return Headroom::Priority;
        }
        let is_up = |pool| self.pool_settings(pool).pool.is_up(now);
        if self.pools_of_strangers().any(is_up) { Headroom::None } else { Headroom::Any }
    }

    /// Whether a call from there can lead to pools alone.
    fn is_strangers_call(&self, path: &Path) -> bool {
        self.addresses().origin(path) == Origin::Stranger
    }

    /// The pools that the calls of strangers may lead to.
    fn pools_of_strangers(&self) -> impl Iterator<Item = u16> {
        let rules = self.rules().iter().filter(|rule| rule.from != Senders::Pool);
        let pools = rules.filter_map(|rule| match rule.to {
            RuleTarget::Pool(pool) => Some(pool as u16),
            RuleTarget::RequestUri => None,
        });
        pools.flat_map(|pool| self.and_backups(pool))
    }
}
