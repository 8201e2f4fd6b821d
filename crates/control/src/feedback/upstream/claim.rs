//! The load that a peer claims it would send without feedback, and the check of this claim.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::feedback::upstream_settings::TICK;

/// A peer that claims a load above its grant must send at least this part of the grant. The missing
/// requests are summed up. When they are as many as the peer may send in [`SHORTFALL_MAX`], the
/// claim counts as false. If the peer sends nothing, this happens after twice this time. An honest
/// peer also sends too little until a larger feedback value reaches it. Values travel in responses,
/// so a peer that has to hold back almost everything gets them late.
const CLAIMED_MIN: f64 = 0.5;
const SHORTFALL_MAX: Duration = Duration::from_secs(1);

/// Time for which the claim of a peer about its original load counts. Not every request of a peer
/// contains a claim.
const CLAIMED: Duration = Duration::from_secs(5);

/// Time for which the claims of a peer are ignored after it claimed a larger load than it has.
const DISTRUSTED: Duration = Duration::from_secs(60);

/// The load that one peer says it would send without feedback (its original load), and whether this
/// server believes it.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// The original load that the peer claimed last, and the time of this claim.
    last: Option<(f64, Timestamp)>,
    /// The last time at which the claim of the peer was found to be larger than its load.
    lied: Option<Timestamp>,
    is_doubted: bool,
    /// The requests missing from [`CLAIMED_MIN`] of the grant while the peer claimed a larger load,
    /// in seconds of the grant. It falls while the peer sends more or claims less.
    shortfall: f64,
}

impl Claim {
    /// Records that the peer claims an original load of `cps` calls a second.
    pub(super) fn on_claim(&mut self, now: Timestamp, cps: f64) {
        self.last = Some((cps, now));
    }

    /// Checks whether the peer claims a load above its grant of `granted_cps` calls a second, but
    /// does not use the grant. `used` is the fraction of the grant that the peer uses.
    pub(super) fn look(&mut self, now: Timestamp, granted_cps: f64, used: f64) {
        self.last = self.last.filter(|&(_, at)| now.since(at) <= CLAIMED);
        let wants_more = self.cps().is_some_and(|claimed| claimed > granted_cps);
        // The shortfall is not reset at a smaller claim. Otherwise a peer could reset it at will.
        let short = if wants_more { CLAIMED_MIN - used } else { -1.0 };
        self.shortfall = (self.shortfall + short * TICK.as_secs_f64()).max(0.0);
        if self.shortfall > SHORTFALL_MAX.as_secs_f64() {
            self.lied = Some(now);
        }
        self.is_doubted = self.lied.is_some_and(|at| now.since(at) <= DISTRUSTED);
    }

    /// Returns the claimed load in calls a second, or `None` if the peer claims nothing.
    pub(super) fn cps(&self) -> Option<f64> {
        self.last.map(|(cps, _)| cps)
    }

    /// Returns whether the peer has recently claimed a larger load than it has.
    pub(super) fn is_doubted(&self) -> bool {
        self.is_doubted
    }
}
