//! The gate: it keeps the signals, asks the law, and judges new work.

use std::fmt;
use std::time::Duration;

use tidegate_world::{Load, Purpose, Seed, Stream, Timestamp};

use crate::arrival_rate::ArrivalRate;
use crate::bound;
use crate::signals::{BUCKETS, Reading};
use crate::sources::Sources;
use crate::{
    Allowance, Backlog, Bucket, Control, Decide, Decision, Fairness, Law, Memory, Occupancy, Pacer,
    Pass, Reason, Scheme, Sender, Service, Sessions, Settings, Shadow, Signals, Source, Throttle,
    Ticket, Values, Verdict,
};

/// One server's gate.
pub struct Gate {
    law: Box<dyn Law>,
    settings: Settings,
    signals: Signals,
    control: Control,
    /// As many as the scheme needs.
    throttles: Vec<Throttle>,
    /// New work that is judged, by bucket.
    judged: [ArrivalRate; BUCKETS],
    /// Ranks of what has no fingerprint.
    ranks: Stream,
    sources: Sources,
    /// None of a gate without costs nothing.
    shadow: Option<Box<Shadow>>,
    /// For the throttles of a shadow.
    seed: (Seed, u32),
    memory: Memory,
    pacer: Pacer,
    ticked: Timestamp,
    /// The next tick; `NEVER` while the law rests.
    due: Timestamp,
    stopping: bool,
}

impl Gate {
    /// The gate of the server numbered `element`. It admits everything until its law says
    /// otherwise. Random throttles draw from `seed`.
    pub fn new(settings: Settings, seed: Seed, element: u32) -> Self {
        let mut gate = Self {
            law: (settings.law.entry().build)(&settings.law),
            signals: Signals { sessions: Sessions::new(settings.sessions), ..Signals::default() },
            control: Control::OPEN,
            throttles: throttles(&settings, Purpose::Throttle, seed, element),
            judged: Default::default(),
            ranks: seed.stream(Purpose::Rank, element),
            sources: Sources::new(&settings.sources, seed, element),
            shadow: None,
            seed: (seed, element),
            memory: Memory::new(settings.memory_max),
            pacer: Pacer::default(),
            ticked: Timestamp::ZERO,
            due: Timestamp::NEVER,
            stopping: false,
            settings,
        };
        gate.cast_shadow(Timestamp::ZERO);
        gate
    }

    /// The same gate before a queue that holds `room` new sessions, or messages where all wait
    /// in one.
    pub fn with_room(mut self, room: usize) -> Self {
        self.signals.queue.room = room;
        self
    }

    /// Puts `law` in the place of the law in force, and `shadow` in that of its shadow. One that
    /// stays as it is keeps all that it knows.
    ///
    /// Another begins [cold](Law::on_begin), with everything admitted. The signals, the decisions
    /// remembered, the accounts of the throttle and whatever waits stay; a queue that was
    /// released at a pace is released at once, as the processor comes to it.
    pub fn switch(&mut self, now: Timestamp, law: Values, shadow: Option<Values>) {
        if law != self.settings.law {
            self.law = (law.entry().build)(&law);
            self.settings.law = law;
            self.control = Control::OPEN;
            self.pacer = Pacer::default();
            self.signals.queue.credit = 0.0;
            self.law.on_begin(now, &self.signals);
            self.ticked = now;
            // What waits need not wait for an arrival.
            self.due = self.law.tick().map_or(Timestamp::NEVER, |tick| now + tick);
        }
        if shadow != self.settings.shadow {
            self.settings.shadow = shadow;
            self.cast_shadow(now);
        }
    }

    fn cast_shadow(&mut self, now: Timestamp) {
        let (seed, element) = self.seed;
        self.shadow = self.settings.shadow.map(|values| {
            let throttles = throttles(&self.settings, Purpose::ShadowThrottle, seed, element);
            let ranks = seed.stream(Purpose::ShadowRank, element);
            Box::new(Shadow::begin(now, values, throttles, ranks, &self.signals))
        });
    }

    /// The law in force and its parameters.
    pub fn law(&self) -> &Values {
        &self.settings.law
    }

    /// The law beside it that decides nothing.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_deref()
    }

    /// The share of new work in a bucket that the shadow would admit, 0 to 1.
    pub fn share_of_shadow(&self, bucket: Bucket) -> Option<f64> {
        Some(self.share_under(self.shadow()?.control(), bucket))
    }

    /// What the server sees of itself.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// What the law decided last.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// What is remembered of earlier decisions.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What is shared among the sources of the new work in a bucket, if it is.
    pub fn fairness(&self, bucket: Bucket) -> Option<&Fairness> {
        self.sources.fair(bucket)
    }

    /// Times that a source was not told apart from others, for want of room.
    pub fn sources_overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// The share of new work in a bucket that the law admits, 0 to 1, at the rate at which it
    /// arrives and with what is in progress.
    pub fn share(&self, bucket: Bucket) -> f64 {
        self.share_under(&self.control, bucket)
    }

    fn share_under(&self, control: &Control, bucket: Bucket) -> f64 {
        let allowed = self.allowed(control, bucket);
        match bucket {
            Bucket::Session => allowed * (1.0 - control.rank_floor.clamp(0.0, 1.0)),
            Bucket::Single => allowed,
            Bucket::Priority => 1.0,
        }
    }

    /// The share of the messages of a class that is admitted, 0 to 1. They are new work if they
    /// have a bucket.
    pub fn share_of_class(&self, bucket: Option<Bucket>, class: u8) -> f64 {
        match self.allowance_of(&self.control, bucket, class) {
            Allowance::Fraction(fraction) => fraction,
            _ => bucket.map_or(1.0, |bucket| self.share(bucket)),
        }
    }

    /// When new work is judged.
    pub fn decide(&self) -> Decide {
        self.settings.decide
    }

    /// Admits no new work from here on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// The processor and the sockets were read.
    pub fn on_load(&mut self, now: Timestamp, load: &Load) {
        let occupied = match self.settings.occupancy {
            Occupancy::Busy => load.busy,
            Occupancy::Cpu => load.cpu,
        };
        self.signals.processor = Reading { at: now, occupied };
        self.signals.socket_fill = f64::from(load.socket_fill);
    }

    /// A message of any kind has arrived; `waiting` are in the queue of new sessions.
    pub fn on_arrival(&mut self, now: Timestamp, waiting: usize) {
        self.signals.messages += 1;
        self.signals.queue.waiting = waiting;
        if self.settings.decide == Decide::Arrival {
            self.control.admit_next = false;
        }
        self.law.on_arrival(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            if self.settings.decide == Decide::Arrival {
                shadow.take_exemption();
            }
            shadow.on_arrival(now, &self.signals);
        }
        if self.due == Timestamp::NEVER
            && let Some(tick) = self.law.tick()
        {
            self.ticked = now;
            self.due = now + tick;
        }
    }

    /// A new session waited for `lag` in a receive buffer before it was looked at.
    pub fn on_lag(&mut self, lag: Duration) {
        self.signals.queue.lag = self.signals.queue.lag.max(lag);
    }

    /// [`on_new_from`](Self::on_new_from) somebody of whom nothing is known.
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

    /// The message that has just arrived from `sender` asks for new work; it is judged, unless
    /// that is to be done [at its service](Decide::Service). `has_room`: there is room to queue it.
    ///
    /// `class` is its number, below [`CLASSES_MAX`](tidegate_world::Work::CLASSES_MAX).
    /// `fingerprint` is a keyed hash that a repetition has in common with the original; without
    /// one it is taken as new.
    pub fn on_new_from(
        &mut self,
        now: Timestamp,
        sender: &Sender,
        bucket: Bucket,
        class: u8,
        fingerprint: Option<u64>,
        has_room: bool,
    ) -> Verdict {
        self.signals.mix.record(now, class, true);
        let exempt = std::mem::take(&mut self.control.admit_next);
        let decision = self.recall(now, fingerprint);
        let limit = decision.is_none().then(|| self.sources.exceeded(now, sender)).flatten();
        let goes_ahead = sender.has_priority
            && limit.is_none()
            && (decision.is_some() || self.sources.may_go_ahead(now));
        let (bucket, has_room) =
            if goes_ahead { (Bucket::Priority, true) } else { (bucket, has_room) };
        let flow = self.signals.flow_mut(bucket);
        flow.arrived += 1;
        if decision.is_some() {
            flow.repeated += 1;
        } else {
            flow.offered += 1;
        }
        match decision {
            None if let Some(limit) = limit => {
                let fingerprint = fingerprint.filter(|_| limit.sticky);
                self.refuse(now, bucket, fingerprint, Reason::SourceLimit)
            }
            None => {
                let source = self.sources.on_arrival(now, bucket, sender);
                let ticket = Ticket { bucket, class, fingerprint, again: false, exempt, source };
                self.judge_new(now, ticket, has_room)
            }
            // Its original has been served: without room nothing is lost.
            Some(Decision::Served) if has_room => {
                let source = None;
                Verdict::Admit(Ticket { bucket, class, fingerprint, again: true, exempt, source })
            }
            Some(Decision::Served | Decision::Waits) => Verdict::Absorb,
            Some(Decision::Refused) => {
                self.signals.messages_refused += 1;
                Verdict::Refuse(Reason::Again)
            }
        }
    }

    fn judge_new(&mut self, now: Timestamp, ticket: Ticket, has_room: bool) -> Verdict {
        let Ticket { bucket, fingerprint, .. } = ticket;
        let waiting_max = match bucket {
            Bucket::Session => self.control.queue.waiting_max,
            Bucket::Single | Bucket::Priority => usize::MAX,
        };
        if self.stopping {
            return self.refuse(now, bucket, fingerprint, Reason::Stopping);
        }
        if !has_room || self.signals.queue.waiting >= waiting_max {
            self.compare(now, &ticket, has_room, false);
            return self.refuse(now, bucket, fingerprint, Reason::QueueFull);
        }
        if !self.may_queue(&ticket, waiting_max) {
            return self.refuse(now, bucket, fingerprint, Reason::SourceShare);
        }
        if self.settings.decide == Decide::Arrival {
            let reason = self.judge(now, &ticket);
            self.compare(now, &ticket, has_room, reason.is_none());
            if let Some(reason) = reason {
                return self.refuse(now, bucket, fingerprint, reason);
            }
            self.signals.flow_mut(bucket).admitted += 1;
        }
        self.signals.flow_mut(bucket).entered += 1;
        self.signals.in_progress[bucket as usize] += 1;
        if let Some((fair, source)) = self.sources.fair_mut(bucket).zip(ticket.source) {
            fair.hold(source);
        }
        self.remember(now, fingerprint, Decision::Waits);
        Verdict::Admit(ticket)
    }

    /// A message of `class` that is no new work is judged: at its arrival, or when its service
    /// begins, as [`decide`](Self::decide) has it. Whether it is admitted.
    pub fn on_ongoing(&mut self, now: Timestamp, class: u8) -> bool {
        self.signals.mix.record(now, class, false);
        let exempt = std::mem::take(&mut self.control.admit_next);
        let passes = self.stopping || self.passes(now, None, class) || exempt;
        if passes {
            self.on_session_message(now, class, false);
        } else {
            self.signals.messages_refused += 1;
        }
        passes
    }

    /// New work whose [service begins](Self::on_service) is taken from the queue. It is judged,
    /// if it was not [at its arrival](Decide::Arrival); `Some` says why it is not to be done
    /// after all.
    pub fn on_taken(&mut self, now: Timestamp, ticket: Ticket) -> Option<Reason> {
        let Ticket { bucket, class, fingerprint, again, .. } = ticket;
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
        let is_stale = self.is_stale(bucket);
        match self.settings.decide {
            Decide::Arrival if is_stale => {
                self.signals.flow_mut(bucket).stale += 1;
                self.signals.messages_refused += 1;
                self.remember(now, fingerprint, Decision::Refused);
                return Some(Reason::Stale);
            }
            Decide::Arrival => {}
            Decide::Service => {
                // What is too old is no use to the throttle, which others may pass.
                let reason = if is_stale { Some(Reason::Stale) } else { self.judge(now, &ticket) };
                self.compare(now, &ticket, true, reason.is_none());
                if let Some(reason) = reason {
                    self.refuse(now, bucket, fingerprint, reason);
                    return Some(reason);
                }
                self.signals.flow_mut(bucket).admitted += 1;
            }
        }
        self.signals.flow_mut(bucket).taken += 1;
        if bucket != Bucket::Single {
            self.on_session_message(now, class, true);
        }
        self.remember(now, fingerprint, Decision::Served);
        None
    }

    /// New work that was admitted is refused after all by whoever was to do it: there is no room
    /// for it, or nobody behind. Its repetitions are refused as well.
    pub fn on_refused(&mut self, now: Timestamp, fingerprint: u64) {
        self.remember(now, Some(fingerprint), Decision::Refused);
    }

    /// Whether a new session that arrives now is likely to be refused.
    pub fn is_refusing(&self) -> bool {
        let Control { queue, .. } = &self.control;
        self.stopping
            || self.share(Bucket::Session) < 1.0
            || self.signals.queue.waiting >= queue.waiting_max
    }

    /// Whether a new session may be taken from the queue.
    pub fn may_release(&self) -> bool {
        self.stopping || self.pacer.may_release(self.control.queue.release)
    }

    /// The service of a message begins, which waited for `sojourn`; `waiting` are in the queue
    /// of new sessions.
    pub fn on_service(&mut self, now: Timestamp, is_new: bool, sojourn: Duration, waiting: usize) {
        self.signals.queue.waiting = waiting;
        self.signals.sojourn.record(now, is_new, sojourn);
        self.signals.service = Service { is_new, sojourn, cost: Duration::ZERO };
        self.law.on_service(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            shadow.on_service(now, &self.signals);
        }
    }

    /// The service of a message of `class` is complete and took `cost`.
    pub fn on_completion(&mut self, now: Timestamp, class: u8, cost: Duration) {
        self.signals.costs.record(class, cost);
        self.signals.service.cost = cost;
        self.law.on_completion(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            shadow.on_completion(now, &self.signals);
        }
    }

    /// It took `cost` to look at `looked` messages that arrived, and to refuse `refused` of them.
    pub fn on_looked(&mut self, looked: u32, refused: u32, cost: Duration) {
        self.signals.costs.record_looks(looked, refused, cost);
    }

    /// So much waits for service.
    pub fn on_backlog(&mut self, backlog: Backlog) {
        self.signals.backlog = backlog;
    }

    /// r: what it takes to dispose of a session that is not admitted, its repetitions and the
    /// acknowledgements of its refusals included; `None` before the first. It lacks what the
    /// operating system does for them.
    pub fn refusal_cost(&self) -> Option<Duration> {
        let Signals { costs, messages_refused, .. } = &self.signals;
        let flows = Bucket::ALL.map(|bucket| self.signals.flow(bucket));
        let pieces: u64 = flows.iter().map(|flow| flow.refused + flow.stale).sum();
        let once = costs.refused()? + costs.looked().unwrap_or_default();
        Some(once.mul_f64((*messages_refused as f64 / pieces.max(1) as f64).max(1.0)))
    }

    /// The most goodput that a law can keep at the load that is offered now, in multiples of the
    /// capacity ([`bound`]); `None` while costs are not known.
    pub fn bound(&self) -> Option<f64> {
        let session_s = self.signals.sessions.cost()?.as_secs_f64();
        let refusal_s = self.refusal_cost()?.as_secs_f64();
        let offered = self.judged[Bucket::Session as usize].rate();
        Some(bound::goodput(offered * session_s, (refusal_s / session_s).min(1.0)))
    }

    /// Fires a tick that is due; `waiting` are in the queue of new sessions.
    pub fn handle_timeout(&mut self, now: Timestamp, waiting: usize) {
        if now < self.due {
            // As the signals are: what the law in force sees must not depend on its shadow.
            if let Some(shadow) = &mut self.shadow {
                shadow.handle_timeout(now, &self.signals);
            }
            return;
        }
        self.signals.queue.waiting = waiting;
        self.signals.queue.credit = self.pacer.credit();
        self.signals.sojourn.close_window(now);
        self.law.on_tick(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            shadow.handle_timeout(now, &self.signals);
        }
        self.signals.queue.lag = Duration::ZERO;
        self.pacer.advance(self.control.queue.release, now.since(self.ticked), waiting);
        self.ticked = now;
        self.due = match self.law.tick() {
            Some(tick) if waiting > 0 || !self.law.is_at_rest() => now + tick,
            _ => Timestamp::NEVER,
        };
    }

    /// When a tick is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = self.shadow.as_ref().map_or(self.due, |shadow| self.due.min(shadow.due()));
        (due != Timestamp::NEVER).then_some(due)
    }

    /// Whether what is taken from the queue has waited too long in it.
    fn is_stale(&self, bucket: Bucket) -> bool {
        !self.stopping && self.control.makes_stale(bucket, self.signals.service.sojourn)
    }

    /// Whether the source of a new session may have one more wait in the queue.
    fn may_queue(&self, ticket: &Ticket, waiting_max: usize) -> bool {
        let Some((fair, source)) = self.sources.fair(ticket.bucket).zip(ticket.source) else {
            return true;
        };
        let queue = &self.signals.queue;
        let room = if queue.room > 0 { queue.room.min(waiting_max) } else { waiting_max };
        ticket.bucket != Bucket::Session || fair.may_hold(source, room, queue.waiting)
    }

    /// Why new work is not admitted; `None` if it is.
    fn judge(&mut self, now: Timestamp, ticket: &Ticket) -> Option<Reason> {
        let Ticket { bucket, class, fingerprint, exempt, source, .. } = *ticket;
        if bucket == Bucket::Priority {
            return None;
        }
        self.judged[bucket as usize].on_arrival(now);
        let floor = match bucket {
            Bucket::Session => self.control.rank_floor.clamp(0.0, 1.0),
            _ => 0.0,
        };
        let reason = if floor > 0.0 && self.rank(fingerprint) < floor {
            Some(Reason::Rank)
        } else {
            (!self.passes(now, Some(bucket), class) && !exempt).then_some(Reason::Law)
        };
        match source {
            Some(source) if !exempt => self.judge_fairly(now, ticket, source, floor, reason),
            _ => reason,
        }
    }

    /// Why new work of a source is not admitted, of which the law would let pass one piece, but
    /// for a `reason`. Which one that is, is for fairness to say.
    fn judge_fairly(
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
            let (size, held) = (size.max(0.0).ceil() as usize, in_progress as usize);
            let may_hold = fair.may_hold(source, size, held);
            return reason.or((!may_hold).then_some(Reason::SourceShare));
        }
        match fair.judge(now, source, share * (1.0 - floor), reason.is_none()) {
            Pass::Yes => None,
            Pass::OverShare => Some(Reason::SourceShare),
            Pass::No => reason.or(Some(Reason::Law)),
        }
    }

    /// Has the shadow judge a piece of work that was `admitted`, or was not. What found no room
    /// finds none under another law.
    fn compare(&mut self, now: Timestamp, ticket: &Ticket, has_room: bool, admitted: bool) {
        let Ticket { bucket, class, fingerprint, .. } = *ticket;
        let Some(mut shadow) = self.shadow.take() else { return };
        let throttle = self.settings.scheme.throttle_of(Some(bucket), class);
        let allowance = self.allowance_of(shadow.control(), Some(bucket), class);
        let in_progress = self.in_progress(bucket);
        let waiting = self.signals.queue.waiting;
        let exempt = shadow.take_exemption();
        let passes = |shadow: &mut Shadow| {
            throttle.is_none_or(|index| shadow.passes(index, now, allowance, in_progress))
        };
        let is_stale = self.settings.decide == Decide::Service
            && shadow.control().makes_stale(bucket, self.signals.service.sojourn);
        let admits = has_room
            && !is_stale
            && shadow.has_place(bucket, waiting, fingerprint)
            && (passes(&mut shadow) || exempt);
        shadow.compare(bucket, admitted, admits);
        self.shadow = Some(shadow);
    }

    fn passes(&mut self, now: Timestamp, bucket: Option<Bucket>, class: u8) -> bool {
        let Some(throttle) = self.settings.scheme.throttle_of(bucket, class) else { return true };
        let allowance = self.allowance_of(&self.control, bucket, class);
        let in_progress = bucket.map_or(0, |bucket| self.in_progress(bucket));
        self.throttles[throttle].passes(now, allowance, in_progress)
    }

    /// What the scheme makes of the law's allowance for the messages of a class.
    fn allowance_of(&self, control: &Control, bucket: Option<Bucket>, class: u8) -> Allowance {
        let Signals { mix, costs, .. } = &self.signals;
        match (&self.settings.scheme, bucket) {
            (Scheme::Simplified { .. }, None) => Allowance::Open,
            (scheme @ Scheme::Simplified { .. }, Some(bucket)) => {
                scheme.of_new_work(control.admit(bucket), mix.share_of_new())
            }
            (Scheme::Single, _) => Allowance::Fraction(self.allowed(control, Bucket::Session)),
            (Scheme::Multi(shedding), _) => Allowance::Fraction(shedding.share(
                class,
                self.allowed(control, Bucket::Session),
                mix,
                costs,
            )),
        }
    }

    /// The share that a law's allowance is of the new work that is judged.
    fn allowed(&self, control: &Control, bucket: Bucket) -> f64 {
        let left = match control.admit(bucket) {
            Allowance::Window(window) => {
                Allowance::Window(window - self.in_progress(bucket) as f64)
            }
            other => other,
        };
        left.fraction(self.judged[bucket as usize].rate()).clamp(0.0, 1.0)
    }

    /// A message of a session is to be served, which begins it or not.
    fn on_session_message(&mut self, now: Timestamp, class: u8, begins: bool) {
        let cost = self.signals.costs.of(class);
        self.signals.sessions.on_message(now, begins, cost);
        self.signals.sessions.on_class(class);
    }

    /// What counts for a window. Judged at service, messages may wait that nobody has read.
    fn in_progress(&self, bucket: Bucket) -> u64 {
        let known = self.signals.in_progress(bucket);
        match (bucket, self.settings.decide) {
            (Bucket::Session, Decide::Service) => known.max(self.signals.queue.waiting as u64),
            _ => known,
        }
    }

    /// Uniform in 0 to 1.
    fn rank(&mut self, fingerprint: Option<u64>) -> f64 {
        fingerprint.map_or_else(|| self.ranks.unit(), rank_of)
    }

    fn refuse(
        &mut self,
        now: Timestamp,
        bucket: Bucket,
        fingerprint: Option<u64>,
        reason: Reason,
    ) -> Verdict {
        self.signals.flow_mut(bucket).refused += 1;
        self.signals.messages_refused += 1;
        self.remember(now, fingerprint, Decision::Refused);
        Verdict::Refuse(reason)
    }

    fn recall(&mut self, now: Timestamp, fingerprint: Option<u64>) -> Option<Decision> {
        let fingerprint = fingerprint.filter(|_| self.settings.sticky)?;
        self.memory.recall(now, fingerprint)
    }

    fn remember(&mut self, now: Timestamp, fingerprint: Option<u64>, decision: Decision) {
        if let Some(fingerprint) = fingerprint.filter(|_| self.settings.sticky) {
            self.memory.remember(now, fingerprint, decision);
        }
    }
}

/// The rank of what has this fingerprint, which is a keyed hash.
pub(crate) fn rank_of(fingerprint: u64) -> f64 {
    (fingerprint >> 11) as f64 / (1u64 << 53) as f64
}

/// The throttles of the server numbered `element`, as many as the scheme needs.
fn throttles(settings: &Settings, purpose: Purpose, seed: Seed, element: u32) -> Vec<Throttle> {
    let count = settings.scheme.throttles();
    let throttle = |index: usize| {
        let number = element.wrapping_mul(count as u32).wrapping_add(index as u32);
        Throttle::new(settings.throttle, settings.burst, seed.stream(purpose, number))
    };
    (0..count).map(throttle).collect()
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("law", &self.law)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
