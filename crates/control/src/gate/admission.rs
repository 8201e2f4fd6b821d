//! Decides on messages that ask for new work or belong to existing work. The decision is made when
//! the message arrives, or when it is taken from the queue.

use tidegate_world::Timestamp;

use super::Gate;
use crate::rank::rank;
use crate::{
    Allowance, Bucket, Control, Decide, Decision, FairnessDecision, Headroom, Reason, Recalled,
    Sender, Shadow, Source, Ticket, Verdict,
};

/// A call that is probably too late is admitted only while less than this part, 0 to 1, of the
/// queue or of the law's window is used.
const SPARE: f64 = 0.1;

/// The ruling of the law in force on a piece of work, without fair shares. The decision of the
/// shadow law is compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ruling {
    Admitted,
    Rejected,
    /// The queue or every possible pool is full. Both laws count as rejecting the work, because it
    /// would find no room under the shadow law either.
    NoRoom,
}

/// Returns the decision that the gate remembers for work that it rejects for `reason`.
fn decision_after(reason: Reason) -> Decision {
    match reason {
        Reason::PoolFull | Reason::PoolShare => Decision::Full,
        _ => Decision::Rejected,
    }
}

impl Gate {
    /// Judges new work from an unknown sender, and is otherwise the same as
    /// [`on_new_from`](Self::on_new_from).
    pub fn on_new(
        &mut self,
        now: Timestamp,
        bucket: Bucket,
        class: u8,
        fingerprint: Option<u64>,
        has_room: bool,
    ) -> Verdict {
        self.on_new_from(now, &Sender::default(), bucket, class, fingerprint, has_room)
    }

    /// Judges new work from `sender`: calls [`recall`](Self::recall),
    /// [`exceeds_limit`](Self::exceeds_limit) and [`judge`](Self::judge).
    pub fn on_new_from(
        &mut self,
        now: Timestamp,
        sender: &Sender,
        bucket: Bucket,
        class: u8,
        fingerprint: Option<u64>,
        has_room: bool,
    ) -> Verdict {
        let recalled = self.recall(now, fingerprint);
        let exceeds_limit = self.exceeds_limit(now, sender, recalled);
        let sender = Sender { exceeds_limit, ..*sender };
        self.judge(now, &sender, bucket, class, recalled, has_room)
    }

    /// Searches the memory for a decision on new work. `fingerprint` is a keyed hash that is the
    /// same for a repetition and its original. A message without a fingerprint counts as new.
    pub fn recall(&mut self, now: Timestamp, fingerprint: Option<u64>) -> Recalled {
        let known = fingerprint.filter(|_| self.settings.sticky);
        let decision = known.and_then(|fingerprint| self.memory.recall(now, fingerprint));
        Recalled { fingerprint, decision }
    }

    /// Returns whether new work exceeds the limit of its source. If it does not, it is counted
    /// against the limit. A repetition exceeds no limit. Must be called once before
    /// [`judge`](Self::judge), which gets the result in `sender`. Between the two calls, the caller
    /// may apply other limits to work that does not exceed the limit of its source.
    pub fn exceeds_limit(&mut self, now: Timestamp, sender: &Sender, recalled: Recalled) -> bool {
        !recalled.is_repetition() && self.sources.exceeds_limit(now, sender)
    }

    /// Judges a message that has just arrived from `sender` and asks for new work. If work is
    /// judged [at its service](Decide::Service), the law decides later, in
    /// [`on_taken`](Self::on_taken). All other conditions, such as the result of
    /// [`exceeds_limit`](Self::exceeds_limit), are checked here. `has_room` is true if there is
    /// room in the queue.
    ///
    /// `class` is the number of the message's class, below
    /// [`CLASSES_MAX`](tidegate_world::Work::CLASSES_MAX). `recalled` is the result of
    /// [`recall`](Self::recall) for this message. The memory is not searched again.
    pub fn judge(
        &mut self,
        now: Timestamp,
        sender: &Sender,
        bucket: Bucket,
        class: u8,
        recalled: Recalled,
        has_room: bool,
    ) -> Verdict {
        let Recalled { fingerprint, decision } = recalled;
        self.signals.mix.record(now, class, true);
        let exempt = std::mem::take(&mut self.control.admit_next);
        let goes_ahead = sender.has_priority
            && !sender.exceeds_limit
            && (decision.is_some() || self.sources.may_go_ahead(now));
        let (bucket, has_room) =
            if goes_ahead { (Bucket::Priority, true) } else { (bucket, has_room) };
        let is_handed_off = sender.is_handed_off;
        self.count(bucket, is_handed_off, |flow| {
            flow.arrived += 1;
            flow.repeated += u64::from(decision.is_some());
            flow.offered += u64::from(decision.is_none());
        });
        if decision.is_none() && bucket == Bucket::Session {
            self.offered.on_arrival(now);
        }
        match decision {
            None if sender.exceeds_limit => {
                self.count_rejected(now, bucket, is_handed_off, Reason::SourceLimit);
                if let Some(decision) = self.sources.remembered_excess(sender) {
                    self.remember(now, fingerprint, decision);
                }
                Verdict::Reject(Reason::SourceLimit)
            }
            None => {
                let exempt = exempt || self.exempts(&self.control, sender, bucket, class);
                let shadow_exempt = self
                    .shadow()
                    .is_some_and(|shadow| self.exempts(shadow.control(), sender, bucket, class));
                let source = self.sources.on_arrival(now, bucket, sender);
                let ticket = Ticket {
                    bucket,
                    class,
                    fingerprint,
                    again: false,
                    exempt,
                    shadow_exempt,
                    source,
                    is_handed_off,
                };
                self.decide_new(now, ticket, sender, has_room)
            }
            // The original has been served, so the repetition is served too if there is room.
            // Without room, the repetition can be dropped without harm.
            Some(Decision::Served) if has_room => Verdict::Admit(Ticket {
                bucket,
                class,
                fingerprint,
                again: true,
                exempt,
                shadow_exempt: false,
                source: None,
                is_handed_off,
            }),
            Some(Decision::Served | Decision::Waits | Decision::Dropped) => Verdict::Absorb,
            Some(decision @ (Decision::Rejected | Decision::Full)) => {
                self.signals.messages_rejected += 1;
                self.signals.messages_full += u64::from(decision == Decision::Full);
                Verdict::Reject(Reason::Again)
            }
        }
    }

    /// Judges a message of `class` that is not new work. Must be called at the arrival of the
    /// message or when its service begins, depending on [`decide`](Self::decide). Returns whether
    /// the message is admitted.
    pub fn on_ongoing(&mut self, now: Timestamp, class: u8) -> bool {
        self.signals.mix.record(now, class, false);
        let exempt = std::mem::take(&mut self.control.admit_next);
        let passes = self.stopping || self.passes(now, None, class) || exempt;
        if passes {
            self.on_session_message(now, class, false);
        } else {
            self.signals.messages_rejected += 1;
        }
        passes
    }

    /// Records that new work is taken from the queue. The caller first calls
    /// [`on_service`](Self::on_service). Judges the work, unless it was judged [at its
    /// arrival](Decide::Arrival). Returns the reason if the work must be rejected now, or `None` if
    /// it can be served.
    pub fn on_taken(&mut self, now: Timestamp, ticket: Ticket) -> Option<Reason> {
        let Ticket { bucket, class, fingerprint, again, is_handed_off, .. } = ticket;
        if bucket == Bucket::Session {
            self.pacer.on_released(self.control.queue.release);
        }
        if again {
            self.on_session_message(now, class, false);
            return None;
        }
        let in_progress = &mut self.signals.in_progress[bucket as usize];
        *in_progress = in_progress.saturating_sub(1);
        if let Some((fair, source)) = self.sources.fair_mut(bucket).zip(ticket.source) {
            fair.release(source);
        }
        let is_stale = self.is_stale(bucket, class);
        match self.settings.decide {
            Decide::Arrival if is_stale => {
                let flow = self.signals.flow_mut(bucket);
                flow.stale += 1;
                flow.lost += 1;
                self.count_early(now, bucket, Reason::Stale);
                self.signals.messages_rejected += 1;
                self.remember(now, fingerprint, Decision::Rejected);
                return Some(Reason::Stale);
            }
            Decide::Arrival => {}
            Decide::Service => {
                // Stale work must not use up the allowance of the throttle, which other work can
                // use.
                let reason = if is_stale {
                    self.compare(now, &ticket, Ruling::Rejected);
                    Some(Reason::Stale)
                } else {
                    self.decide_waiting(now, &ticket)
                };
                if let Some(reason) = reason {
                    self.reject(now, &ticket, reason);
                    return Some(reason);
                }
                self.count(bucket, is_handed_off, |flow| flow.admitted += 1);
            }
        }
        self.signals.flow_mut(bucket).taken += 1;
        if bucket != Bucket::Single {
            self.on_session_message(now, class, true);
        }
        self.remember(now, fingerprint, Decision::Served);
        None
    }

    /// Records that admitted work was rejected later, because a queue was full or no back end was
    /// available. The gate will reject its repetitions as well.
    pub fn on_rejected(&mut self, now: Timestamp, fingerprint: u64) {
        self.remember(now, Some(fingerprint), Decision::Rejected);
    }

    /// Like [`on_rejected`](Self::on_rejected), for work that was rejected because no pool has
    /// [headroom](Sender::headroom).
    pub fn on_full(&mut self, now: Timestamp, fingerprint: u64) {
        self.remember(now, Some(fingerprint), Decision::Full);
    }

    fn decide_new(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        sender: &Sender,
        has_room: bool,
    ) -> Verdict {
        if self.stopping {
            return self.reject(now, &ticket, Reason::Stopping);
        }
        if let Some((reason, ruling)) = self.reason_before_law(now, &ticket, sender, has_room) {
            self.compare(now, &ticket, ruling);
            return self.reject(now, &ticket, reason);
        }
        let Ticket { bucket, fingerprint, is_handed_off, .. } = ticket;
        if self.settings.decide == Decide::Arrival {
            if let Some(reason) = self.decide_waiting(now, &ticket) {
                return self.reject(now, &ticket, reason);
            }
            self.count(bucket, is_handed_off, |flow| flow.admitted += 1);
        }
        self.signals.flow_mut(bucket).entered += 1;
        self.signals.in_progress[bucket as usize] += 1;
        self.sources.on_admitted(now, bucket, sender);
        if let Some((fair, source)) = self.sources.fair_mut(bucket).zip(ticket.source) {
            fair.hold(source);
        }
        self.remember(now, fingerprint, Decision::Waits);
        Verdict::Admit(ticket)
    }

    /// Returns the first condition that keeps new work out before the law decides on it, and the
    /// ruling that the shadow law is compared with. Returns `None` if there is no such condition.
    fn reason_before_law(
        &mut self,
        now: Timestamp,
        ticket: &Ticket,
        sender: &Sender,
        has_room: bool,
    ) -> Option<(Reason, Ruling)> {
        let Ticket { bucket, class, exempt, .. } = *ticket;
        let waiting_max = match bucket {
            Bucket::Session if self.sheds(bucket, class) => self.control.queue.waiting_max,
            _ => usize::MAX,
        };
        // A call that is exempt uses room too, so it counts.
        let may_use_reserve = self.sources.may_use_reserve(now, bucket, sender) || exempt;
        if !sender.headroom.holds(bucket) {
            return Some((Reason::PoolFull, Ruling::NoRoom));
        }
        if sender.headroom == Headroom::Reserve && !may_use_reserve {
            return Some((Reason::PoolShare, Ruling::NoRoom));
        }
        if !has_room {
            return Some((Reason::QueueFull, Ruling::NoRoom));
        }
        // The shadow law may allow more waiting work.
        if self.signals.queue.waiting >= waiting_max {
            return Some((Reason::QueueFull, Ruling::Rejected));
        }
        let is_late = sender.is_late && !exempt && bucket != Bucket::Priority;
        if is_late && !self.has_spare_places(bucket, class, waiting_max) {
            return Some((Reason::Late, Ruling::Rejected));
        }
        if !self.may_queue(ticket, waiting_max) {
            // The source would find no room under the shadow law either.
            let reason = self.reason_without_place(bucket, Reason::QueueFull);
            return Some((reason, Ruling::NoRoom));
        }
        None
    }

    /// Returns whether the scheme sheds new work of this class. The law rejects no other work.
    fn sheds(&self, bucket: Bucket, class: u8) -> bool {
        self.settings.scheme.throttle_of(Some(bucket), class).is_some()
    }

    /// Returns whether the work that is now taken from the queue has waited too long.
    fn is_stale(&self, bucket: Bucket, class: u8) -> bool {
        !self.stopping
            && self.sheds(bucket, class)
            && self.control.makes_stale(bucket, self.signals.service.sojourn)
    }

    /// Returns whether a piece of new work that is probably late may be admitted, because it does
    /// not take the place of another piece. Less than a tenth of the places that the law allows in
    /// the queue must be used. If the law sets a window, less than a tenth of the window must be
    /// used. If the law sets a share below 1 or a rate, no other piece may wait for service.
    fn has_spare_places(&self, bucket: Bucket, class: u8, waiting_max: usize) -> bool {
        let in_progress = self.in_progress(bucket);
        // A scheme may turn a window into a share, but here the window itself is needed.
        let allowance = match self.control.admit(bucket) {
            window @ Allowance::Window(_) if self.sheds(bucket, class) => window,
            _ => self.allowance_of(&self.control, Some(bucket), class),
        };
        let passes = match allowance {
            Allowance::Open => true,
            Allowance::Fraction(fraction) => fraction >= 1.0 || in_progress == 0,
            Allowance::Window(size) => (in_progress as f64) < size * SPARE,
            // While nothing waits, the throttle decides as it does for any other work.
            Allowance::Rate(_) => in_progress == 0,
            Allowance::Closed => false,
        };
        passes && (self.signals.queue.waiting as f64) < waiting_max as f64 * SPARE
    }

    /// Returns whether the source of a new session may have one more session in the queue.
    fn may_queue(&self, ticket: &Ticket, waiting_max: usize) -> bool {
        let Some((fair, source)) = self.sources.fair(ticket.bucket).zip(ticket.source) else {
            return true;
        };
        let queue = &self.signals.queue;
        let room = if queue.room > 0 { queue.room.min(waiting_max) } else { waiting_max };
        ticket.bucket != Bucket::Session || fair.may_hold(source, room, queue.waiting)
    }

    /// Returns the reason to reject work whose source may hold no further place. While no other
    /// source is known, the source has not used up a share. Then the reason is `full`, the same as
    /// if no place were free.
    fn reason_without_place(&self, bucket: Bucket, full: Reason) -> Reason {
        let is_shared = self.sources.fair(bucket).is_some_and(|fair| fair.sources() > 1);
        if is_shared { Reason::SourceShare } else { full }
    }

    /// Returns the reason why new work is not admitted, or `None` if it is admitted. Lets the
    /// shadow law judge the work too.
    fn decide_waiting(&mut self, now: Timestamp, ticket: &Ticket) -> Option<Reason> {
        let Ticket { bucket, class, fingerprint, exempt, source, .. } = *ticket;
        if bucket == Bucket::Priority {
            self.compare(now, ticket, Ruling::Admitted);
            return None;
        }
        self.decided[bucket as usize].on_arrival(now);
        let floor = match bucket {
            Bucket::Session if self.sheds(bucket, class) => self.control.rank_floor.clamp(0.0, 1.0),
            _ => 0.0,
        };
        let reason = if floor > 0.0 && !exempt && rank(fingerprint, &mut self.ranks) < floor {
            Some(Reason::Rank)
        } else {
            (!self.passes(now, Some(bucket), class) && !exempt).then_some(Reason::Law)
        };
        // Fairness decides only which sources get the work that the law admits.
        let ruling = if reason.is_none() { Ruling::Admitted } else { Ruling::Rejected };
        self.compare(now, ticket, ruling);
        match source {
            Some(source) if !exempt => self.decide_fairly(now, ticket, source, floor, reason),
            _ => reason,
        }
    }

    /// Applies fairness to a piece of new work of `source`. `reason` is the law's reason to reject
    /// the piece, or `None` if the law admits it. Fairness decides which sources get the admitted
    /// work. Returns the reason why this piece is not admitted.
    fn decide_fairly(
        &mut self,
        now: Timestamp,
        ticket: &Ticket,
        source: Source,
        floor: f64,
        reason: Option<Reason>,
    ) -> Option<Reason> {
        let Ticket { bucket, class, .. } = *ticket;
        let in_progress = self.in_progress(bucket);
        let allowance = self.allowance_of(&self.control, Some(bucket), class);
        let share = match allowance {
            Allowance::Fraction(fraction) => fraction.clamp(0.0, 1.0),
            _ => self.allowed(&self.control, bucket),
        };
        let Some(fair) = self.sources.fair_mut(bucket) else { return reason };
        if let Allowance::Window(size) = allowance {
            // A fraction of a place admits no piece, so it is no place to share.
            let (size, held) = (size.max(0.0).floor() as usize, in_progress as usize);
            if reason.is_some() || fair.may_hold(source, size, held) {
                return reason;
            }
            return Some(self.reason_without_place(bucket, Reason::Law));
        }
        match fair.decide_waiting(now, source, share * (1.0 - floor), reason.is_none()) {
            FairnessDecision::Yes => None,
            FairnessDecision::OverShare => Some(Reason::SourceShare),
            FairnessDecision::No => reason.or(Some(Reason::Law)),
        }
    }

    /// Lets the shadow law judge a piece of work, and compares its decision with `ruling`.
    fn compare(&mut self, now: Timestamp, ticket: &Ticket, ruling: Ruling) {
        let Ticket { bucket, class, fingerprint, shadow_exempt, is_handed_off, .. } = *ticket;
        let Some(mut shadow) = self.shadow.take() else { return };
        let throttle = self.settings.scheme.throttle_of(Some(bucket), class);
        let allowance = self.allowance_of(shadow.control(), Some(bucket), class);
        let in_progress = self.in_progress(bucket);
        let waiting = self.signals.queue.waiting;
        let exempt = shadow.take_exemption() || shadow_exempt;
        let passes = |shadow: &mut Shadow| {
            throttle.is_none_or(|index| shadow.passes(index, now, allowance, in_progress))
        };
        let sheds = throttle.is_some();
        let is_stale = sheds
            && self.settings.decide == Decide::Service
            && shadow.control().makes_stale(bucket, self.signals.service.sojourn);
        let admits = ruling != Ruling::NoRoom
            && !is_stale
            && (!sheds || shadow.has_place(bucket, waiting, fingerprint, exempt))
            && (passes(&mut shadow) || exempt);
        if !is_handed_off {
            shadow.compare(bucket, ruling == Ruling::Admitted, admits);
        }
        self.shadow = Some(shadow);
    }

    /// Returns whether the law leaves the work of `sender` unjudged under `control`. There are two
    /// cases: a gate has admitted the work before, or the sender keeps within its share of this
    /// server while the law admits a share of the new work, or all of it.
    fn exempts(&self, control: &Control, sender: &Sender, bucket: Bucket, class: u8) -> bool {
        let applies_share = || {
            let allowance = self.allowance_of(control, Some(bucket), class);
            matches!(allowance, Allowance::Open | Allowance::Fraction(_))
        };
        sender.is_admitted || sender.restricted && applies_share()
    }

    fn passes(&mut self, now: Timestamp, bucket: Option<Bucket>, class: u8) -> bool {
        let Some(throttle) = self.settings.scheme.throttle_of(bucket, class) else { return true };
        let allowance = self.allowance_of(&self.control, bucket, class);
        let in_progress = bucket.map_or(0, |bucket| self.in_progress(bucket));
        self.throttles[throttle].passes(now, allowance, in_progress)
    }

    /// Records that the service of a message of a session begins. `begins` is true if the message
    /// begins the session.
    fn on_session_message(&mut self, now: Timestamp, class: u8, begins: bool) {
        let cost = self.signals.costs.of(class);
        self.signals.sessions.on_message(now, begins, cost);
        self.signals.sessions.on_class(class);
    }

    fn reject(&mut self, now: Timestamp, ticket: &Ticket, reason: Reason) -> Verdict {
        self.count_rejected(now, ticket.bucket, ticket.is_handed_off, reason);
        self.remember(now, ticket.fingerprint, decision_after(reason));
        Verdict::Reject(reason)
    }

    fn count_rejected(
        &mut self,
        now: Timestamp,
        bucket: Bucket,
        is_handed_off: bool,
        reason: Reason,
    ) {
        self.count(bucket, is_handed_off, |flow| {
            flow.rejected += 1;
            flow.limited += u64::from(reason.is_of_limit());
            flow.lost += u64::from(matches!(reason, Reason::QueueFull | Reason::Stale));
        });
        self.count_early(now, bucket, reason);
        self.signals.messages_rejected += 1;
        self.signals.messages_full += u64::from(decision_after(reason) == Decision::Full);
    }

    fn remember(&mut self, now: Timestamp, fingerprint: Option<u64>, decision: Decision) {
        if let Some(fingerprint) = fingerprint.filter(|_| self.settings.sticky) {
            self.memory.remember(now, fingerprint, decision);
        }
    }
}
