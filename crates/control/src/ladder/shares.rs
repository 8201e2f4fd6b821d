//! The shares of the datagrams that are dropped before they are read.
//!
//! # Callers that come late
//!
//! If the share `p` of a method falls, retransmissions of callers that were dropped before pass.
//! These callers have called during the last half minute, and send up to seven times as many
//! packets as the new callers. New callers with the same marks cannot be distinguished from them.
//! If the retransmissions were admitted like other packets, they would take the places of callers
//! that are in time, and would count in the measured load. So packets whose marks were dropped
//! until recently are *late*: the [gate](crate::Gate) admits them only while few others wait, and
//! rejects them otherwise. The rejection ends their retransmissions. After a mark was dropped for a
//! time, it is late for this time plus T1. The maximum is 16 s. The reason is RFC 3261 §17.1.1.2:
//! the pause before each copy is at most T1 longer than the time since the first copy. A REGISTER
//! is late for at most 4 s, because its copies come at least every T2 (§17.1.2.2).
//!
//! `p` has 65 levels. Each level passes a tenth less than the level before. `p` rises at once to
//! the required level if an eighth less should pass, and rejecting takes more than the budget,
//! buffers overflow or the standing wait is too long. `p` falls if a fifth more should pass, or if
//! everything should pass. It falls only while none of these three conditions holds. It falls by
//! one level a period, because each fall lets late callers through. If rejecting takes less than a
//! quarter of the budget, it falls by four levels. If more than half of the period was idle, the
//! time for rejections in earlier periods does not count here.

use std::time::Duration;

use tidegate_world::{DroppableMethod, Timestamp};

use super::dropped::{Dropped, LATE_MAX, LATE_MAX_NON_INVITE, level_for};

/// More messages are dropped only if the fraction of them that should pass is less than this factor
/// times the fraction that passes now.
const RISE: f64 = 1.0 / 1.15;

/// Fewer messages are dropped only if the fraction of them that should pass is more than this
/// factor times the fraction that passes now.
const FALL: f64 = 1.2;

/// The share of the datagrams of each method that is dropped.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// For each [method](DroppableMethod), the marks whose packets are dropped.
    dropped: [Dropped; 2],
    /// Time at which a share was last changed.
    changed: Timestamp,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self { dropped: none_dropped(), changed: Timestamp::ZERO }
    }

    /// Drops nothing from now on. No mark is late.
    pub(super) fn clear(&mut self) {
        self.dropped = none_dropped();
    }

    /// Returns whether messages of any method are dropped.
    pub(super) fn is_any(&self) -> bool {
        self.dropped.iter().any(|dropped| dropped.level() > 0)
    }

    /// Returns the share of the packets of a method to drop, 0 to 1.
    pub(super) fn of(&self, method: DroppableMethod) -> f64 {
        1.0 - self.dropped[method as usize].passing()
    }

    /// Returns, for each method, the fraction of the marks that are fresh: packets with these marks
    /// are not dropped now, and were not dropped recently.
    pub(super) fn fresh(&self) -> [f64; 2] {
        self.dropped.each_ref().map(Dropped::fresh)
    }

    /// Returns whether no packet of this method with this mark was dropped recently.
    pub(super) fn is_fresh(&self, method: DroppableMethod, mark: u32) -> bool {
        self.dropped[method as usize].is_fresh(mark)
    }

    /// Returns whether all messages that are read now arrived after the last change of a share.
    /// `settles` is the time after which a change has its full effect.
    pub(super) fn is_settled(&self, now: Timestamp, settles: Duration) -> bool {
        now.since(self.changed) > settles
    }

    /// Forgets the late marks of packets whose callers must have given up or got a response by
    /// `now`.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.dropped.iter_mut().for_each(|dropped| dropped.expire(now));
    }

    /// Changes the shares, if the changes are large enough. `wanted` is, for each method, the
    /// fraction of all marks whose packets should pass, 0 to 1. A share rises only if `may_rise` is
    /// true, and falls by at most `falls_by` levels. If `falls_by` is `None`, no share falls.
    /// Returns whether a share has risen.
    pub(super) fn adjust(
        &mut self,
        now: Timestamp,
        wanted: [f64; 2],
        may_rise: bool,
        falls_by: Option<usize>,
    ) -> bool {
        let mut has_risen = false;
        for (dropped, wanted) in self.dropped.iter_mut().zip(wanted) {
            let (level, passing) = (dropped.level(), dropped.passing());
            let next = match falls_by {
                _ if may_rise && wanted < RISE * passing => level_for(wanted),
                Some(levels) if wanted >= 1.0 || wanted > FALL * passing => {
                    level.saturating_sub(levels).max(level_for(wanted))
                }
                _ => level,
            };
            if next != level {
                has_risen |= next > level;
                dropped.set_level(now, next);
                self.changed = now;
            }
        }
        has_risen
    }
}

/// Returns, for each method, the state in which nothing is dropped. A client retransmits an INVITE
/// at longer intervals than any other request.
fn none_dropped() -> [Dropped; 2] {
    [Dropped::new(LATE_MAX), Dropped::new(LATE_MAX_NON_INVITE)]
}
