//! What a gate knows of those whose work it judges.

use tidegate_world::{Purpose, Seed, Timestamp};

use crate::throttle::TokenBucket;
use crate::{Bucket, Fairness, Limit, Limits, Source};

/// How sources are told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// Whether what passes is shared fairly among them.
    pub fair: bool,
    /// Sources told apart at the same time, for each thing that is kept of them.
    pub sources_max: usize,
    /// Limits, each known by its place.
    pub limits: Vec<Limit>,
    /// New work of priority that is admitted, in pieces a second; 0 for none.
    pub priority_cps: f64,
}

impl Default for SourceSettings {
    /// They are not.
    fn default() -> Self {
        Self { fair: false, sources_max: 4096, limits: Vec::new(), priority_cps: 0.0 }
    }
}

/// Who asks for new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The source, any number; `None` if it is not to be told apart from others.
    pub source: Option<u128>,
    /// As how many sources it counts where shares are fair.
    pub weight: u32,
    /// The [limit](SourceSettings::limits) that its source is under.
    pub limit: Option<usize>,
    /// The work has priority, and there is room for it where that waits.
    pub has_priority: bool,
    /// For which work there is room behind.
    pub headroom: Headroom,
}

impl Default for Sender {
    /// Anybody.
    fn default() -> Self {
        let (source, limit, has_priority) = (None, None, false);
        Self { source, weight: 1, limit, has_priority, headroom: Headroom::Any }
    }
}

/// For which new work there is room with those behind who would have to do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headroom {
    /// For any.
    #[default]
    Any,
    /// For what has priority: there is nothing left but the reserve that is kept for it.
    Priority,
    /// For none.
    None,
}

impl Headroom {
    /// Whether there is room for the new work of a bucket.
    pub(crate) fn holds(self, bucket: Bucket) -> bool {
        self == Self::Any || self == Self::Priority && bucket == Bucket::Priority
    }
}

/// Shares, limits and the cap on priority.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Of sessions, and of single requests.
    fair: Option<[Fairness; 2]>,
    limits: Limits,
    priority_cps: f64,
    priority: TokenBucket,
}

impl Sources {
    pub(crate) fn new(settings: &SourceSettings, seed: Seed, element: u32) -> Self {
        let SourceSettings { fair, sources_max, limits, priority_cps } = settings;
        let mut keys = seed.stream(Purpose::Sources, element);
        Self {
            limits: Limits::new(limits.clone(), *sources_max, &mut keys),
            fair: fair.then(|| [(); 2].map(|()| Fairness::new(*sources_max, &mut keys))),
            priority_cps: *priority_cps,
            priority: TokenBucket::new((priority_cps.ceil() as u32).max(1)),
        }
    }

    /// What is shared of the new work in a bucket.
    pub(crate) fn fair(&self, bucket: Bucket) -> Option<&Fairness> {
        let [sessions, singles] = self.fair.as_ref()?;
        match bucket {
            Bucket::Session => Some(sessions),
            Bucket::Single => Some(singles),
            Bucket::Priority => None,
        }
    }

    pub(crate) fn fair_mut(&mut self, bucket: Bucket) -> Option<&mut Fairness> {
        let [sessions, singles] = self.fair.as_mut()?;
        match bucket {
            Bucket::Session => Some(sessions),
            Bucket::Single => Some(singles),
            Bucket::Priority => None,
        }
    }

    /// A source asks for new work.
    pub(crate) fn on_arrival(
        &mut self,
        now: Timestamp,
        bucket: Bucket,
        sender: &Sender,
    ) -> Option<Source> {
        let source = sender.source?;
        Some(self.fair_mut(bucket)?.on_arrival(now, source, sender.weight))
    }

    /// The limit that a piece of work goes beyond.
    pub(crate) fn exceeded(&mut self, now: Timestamp, sender: &Sender) -> Option<Limit> {
        let (limit, source) = (sender.limit?, sender.source?);
        (!self.limits.passes(now, limit, source)).then(|| self.limits.get(limit))
    }

    /// Whether work of priority is admitted as such: below the cap.
    pub(crate) fn may_go_ahead(&mut self, now: Timestamp) -> bool {
        self.priority_cps > 0.0 && self.priority.passes(now, self.priority_cps)
    }

    /// Times that a source was not told apart, for want of room.
    pub(crate) fn overflowed(&self) -> u64 {
        let fair = self.fair.iter().flatten().map(Fairness::overflowed);
        fair.sum::<u64>() + self.limits.overflowed()
    }
}
