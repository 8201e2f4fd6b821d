//! Chooses which calls are served with transactions, in pools with the mode `adaptive`.

use std::time::Duration;

use tidegate_control::{Gate, Reason, Tier, TierSettings, Tiers};

use crate::message::class::Class;
use crate::settings::{Mode, PoolSettings, Settings};

/// The choice of the tier of each call in a shard, and the tier of the message in service.
pub(crate) struct Tiering {
    settings: TierSettings,
    /// The division of calls among the tiers, or `None` if no pool has the mode `adaptive`.
    tiers: Option<Tiers>,
    /// The tier (with or without transactions) of the message in service or, between two messages,
    /// of the last message. `None` if that message was not forwarded.
    served: Option<Tier>,
}

impl Tiering {
    pub(crate) fn new(settings: &Settings) -> Self {
        let occupancy_max = settings.overload.stateful_max;
        let tiers = TierSettings { occupancy_max, ..TierSettings::default() };
        let mut tiering = Self { settings: tiers, tiers: None, served: None };
        tiering.enlist(&settings.pools);
        tiering
    }

    /// Applies a change of the pools. The measurements of the tiers are kept if any pool is still
    /// adaptive.
    pub(crate) fn enlist(&mut self, pools: &[PoolSettings]) {
        let is_adaptive = pools.iter().any(|pool| pool.mode == Mode::Adaptive);
        let tiers = self.tiers.take().filter(|_| is_adaptive);
        self.tiers = tiers.or_else(|| is_adaptive.then(|| Tiers::new(self.settings)));
    }

    /// Chooses the tier of a call, if any pool is adaptive.
    pub(crate) fn choose(&mut self, has_room: bool) -> Option<Tier> {
        Some(self.tiers.as_mut()?.choose(has_room))
    }

    /// Records that a new call begins in a pool that is not adaptive. Its messages are measured
    /// like those of the other calls.
    pub(crate) fn on_begun(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            tiers.on_begun();
        }
    }

    pub(crate) fn tiers(&self) -> Option<&Tiers> {
        self.tiers.as_ref()
    }

    /// Records that the service of a message starts.
    pub(crate) fn begin(&mut self) {
        self.served = None;
    }

    /// Records that the message in service is served in `tier`.
    pub(crate) fn note(&mut self, tier: Tier) {
        self.served = Some(tier);
    }

    /// Records the end of the service of a message. Returns `true` if the message was served
    /// without transactions.
    pub(crate) fn on_served(&mut self, class: Class) -> bool {
        if let (Some(tiers), Some(_)) = (&mut self.tiers, self.served) {
            tiers.on_served(class as u8);
        }
        self.served == Some(Tier::Stateless)
    }

    /// Records that the service of the last message took `cost`.
    pub(crate) fn on_completion(&mut self, class: Class, cost: Duration) {
        if let (Some(tiers), Some(tier)) = (&mut self.tiers, self.served) {
            tiers.on_completion(class as u8, tier, cost);
        }
    }

    /// Records a rejection of new work, if more processor time might have prevented it.
    pub(crate) fn on_rejected(&mut self, reason: Reason) {
        let Some(tiers) = &mut self.tiers else { return };
        match reason {
            // With more processor time, the law might have admitted this work.
            Reason::Law
            | Reason::Rank
            | Reason::Stale
            | Reason::Late
            | Reason::QueueFull
            | Reason::SourceShare
            | Reason::PeerShare => tiers.on_rejected(),
            // In these cases, more processor time would not lead to admission.
            Reason::Again
            | Reason::PoolFull
            | Reason::PoolShare
            | Reason::Feedback
            | Reason::PoolDown
            | Reason::Stopping
            | Reason::SourceLimit => {}
        }
    }

    /// Reads the gate's latest measurements of the processor and of the queue.
    pub(crate) fn on_reading(&mut self, gate: &Gate) {
        if let Some(tiers) = &mut self.tiers {
            let signals = gate.signals();
            tiers.on_reading(signals.processor, signals.queue.waiting, gate.occupancy_aimed_at());
        }
    }
}
