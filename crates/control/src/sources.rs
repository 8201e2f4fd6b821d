//! The state that a gate keeps about sources of new work.

use tidegate_world::{Purpose, Seed, Timestamp};

use crate::heavy::Heavy;
use crate::room::Room;
use crate::{Bucket, Decision, Fairness, Headroom, Limit, Limits, PriorityCap, Source};

/// Settings of fair shares and limits for the sources of new work.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// True if the admitted work is shared fairly among sources.
    pub fair: bool,
    /// Maximum number of sources in each table of sources. Sources beyond this number are not
    /// distinguished from each other.
    pub sources_max: usize,
    /// Limits on the new work of sources, each identified by its index.
    pub limits: Vec<Limit>,
    /// Maximum rate of priority work that is served before other work, in pieces a second, or 0 for
    /// none. Further priority work is treated like other work. All gates with the same
    /// [`PriorityCap`] share this rate.
    pub priority_cps: f64,
}

impl Default for SourceSettings {
    /// Creates settings that do not distinguish sources.
    fn default() -> Self {
        Self { fair: false, sources_max: 4096, limits: Vec::new(), priority_cps: 0.0 }
    }
}

/// The sender of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The number that identifies the source, or `None` if the source is not distinguished from
    /// others.
    pub source: Option<u128>,
    /// The number of sources that this source counts as, for fair shares.
    pub weight: u32,
    /// Index in [`SourceSettings::limits`] of the limit that applies to the source, or `None` if
    /// none does.
    pub limit: Option<usize>,
    /// True if the work [exceeds](crate::Gate::exceeds_limit) the limit of its source.
    pub exceeds_limit: bool,
    /// True if the work has priority and the queue for priority work has room.
    pub has_priority: bool,
    /// The kinds of work for which the back ends have room.
    pub headroom: Headroom,
    /// True if the work is within the sender's [share](crate::feedback::Arrival::Pass) of this
    /// server: the sender has reduced its work itself, or this server rejects what exceeds the
    /// share. Then the law's share is not applied again.
    pub restricted: bool,
    /// True if earlier copies of the message were probably dropped, so that the caller may have
    /// given up.
    pub is_late: bool,
    /// True if a gate has already admitted the work: the message repeats an admitted request with
    /// credentials, or comes from another shard. Then the law does not decide about it again.
    pub is_admitted: bool,
    /// True if the gate of another shard has admitted and counted the work, and handed it off. Then
    /// this gate leaves it out of its [`own_flow`](crate::Gate::own_flow).
    pub is_handed_off: bool,
}

impl Default for Sender {
    /// Creates an unknown sender.
    fn default() -> Self {
        Self {
            source: None,
            weight: 1,
            limit: None,
            exceeds_limit: false,
            has_priority: false,
            headroom: Headroom::Any,
            restricted: false,
            is_late: false,
            is_admitted: false,
            is_handed_off: false,
        }
    }
}

/// Fair shares, limits, and the cap on priority work.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The fair shares of sources in sessions and in single requests, or `None` if `fair` is not
    /// enabled.
    fair: Option<[Fairness; 2]>,
    /// The sources that cause an overload, or `None` if `fair` is not enabled.
    heavy: Option<Heavy>,
    /// The shares of the room of back ends at their limits, or `None` if `fair` is not enabled.
    room: Option<Room>,
    limits: Limits,
    priority_cps: f64,
    priority: PriorityCap,
}

impl Sources {
    pub(crate) fn new(settings: &SourceSettings, seed: Seed, element: u32) -> Self {
        let SourceSettings { fair, sources_max, limits, priority_cps } = settings;
        let mut keys = seed.stream(Purpose::Sources, element);
        Self {
            limits: Limits::new(limits.clone(), *sources_max, &mut keys),
            fair: fair.then(|| [(); 2].map(|()| Fairness::new(*sources_max, &mut keys))),
            heavy: fair.then(|| Heavy::new(*sources_max, &mut keys)),
            room: fair.then(|| Room::new(*sources_max, &mut keys)),
            priority_cps: *priority_cps,
            priority: PriorityCap::default(),
        }
    }

    /// Shares the cap on priority work with other gates.
    pub(crate) fn share_priority(&mut self, cap: PriorityCap) {
        self.priority = cap;
    }

    /// Returns the fair shares of the sources in a bucket. Returns `None` for priority work, or if
    /// `fair` is not enabled.
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

    pub(crate) fn heavy(&self) -> Option<&Heavy> {
        self.heavy.as_ref()
    }

    pub(crate) fn heavy_mut(&mut self) -> Option<&mut Heavy> {
        self.heavy.as_mut()
    }

    /// Records that a source asks for new work. Returns a reference to the source, or `None` if the
    /// source is not distinguished or `fair` is not enabled.
    pub(crate) fn on_arrival(
        &mut self,
        now: Timestamp,
        bucket: Bucket,
        sender: &Sender,
    ) -> Option<Source> {
        let source = sender.source?;
        Some(self.fair_mut(bucket)?.on_arrival(now, source, sender.weight))
    }

    /// Records that a sender asks for new work. Returns whether it may use the part of the room of
    /// back ends that is reserved for sources below their share.
    pub(crate) fn may_use_reserve(
        &mut self,
        now: Timestamp,
        bucket: Bucket,
        sender: &Sender,
    ) -> bool {
        let (Some(room), Some(source)) = (&mut self.room, sender.source) else { return true };
        bucket != Bucket::Session || room.on_call(now, source, sender.weight, sender.headroom)
    }

    /// Records that new work of a sender was admitted.
    pub(crate) fn on_admitted(&mut self, now: Timestamp, bucket: Bucket, sender: &Sender) {
        if let (Some(room), Some(source), Bucket::Session) = (&mut self.room, sender.source, bucket)
            && sender.headroom != Headroom::Any
        {
            room.on_admitted(now, source);
        }
    }

    /// Returns whether a piece of work exceeds the limit of its source. Otherwise the piece counts
    /// against this limit.
    pub(crate) fn exceeds_limit(&mut self, now: Timestamp, sender: &Sender) -> bool {
        let limited = sender.limit.zip(sender.source);
        limited.is_some_and(|(limit, source)| !self.limits.passes(now, limit, source))
    }

    /// Returns the decision that is remembered for work that exceeds the limit of its source, or
    /// `None` if none is remembered.
    pub(crate) fn remembered_excess(&self, sender: &Sender) -> Option<Decision> {
        self.limits.get(sender.limit?).remembered
    }

    /// Returns whether a piece of priority work is served before other work. If so, the piece
    /// counts against the cap on priority work.
    pub(crate) fn may_go_ahead(&mut self, now: Timestamp) -> bool {
        self.priority_cps > 0.0 && self.priority.passes(now, self.priority_cps)
    }

    /// Returns how often a source was not distinguished because a table was full.
    pub(crate) fn overflowed(&self) -> u64 {
        let fair = self.fair.iter().flatten().map(Fairness::overflowed);
        let heavy = self.heavy.as_ref().map_or(0, Heavy::overflowed);
        let room = self.room.as_ref().map_or(0, Room::overflowed);
        fair.sum::<u64>() + heavy + room + self.limits.overflowed()
    }
}
