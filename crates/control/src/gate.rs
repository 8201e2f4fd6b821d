//! The gate: keeps the signals, runs the law, and judges new work.

mod admission;
mod counts;
mod droppable;
mod figures;

use std::fmt;
use std::time::Duration;

use tidegate_world::{DroppableMethod, Load, Purpose, Seed, Stream, Timestamp};

use crate::arrival_rate::ArrivalRate;
use crate::signals::{BUCKETS, Reading};
use crate::sources::Sources;
use crate::{
    Answers, Backlog, Bucket, Control, Decide, Fairness, Flow, Law, Memory, Occupancy, Pacer,
    PriorityCap, Service, Sessions, Settings, Shadow, Signals, Throttle, Ticket, Values,
};

/// A rejection counts as early if the processor was idle for a part of this time before the
/// rejection.
const EARLY: Duration = Duration::from_millis(100);
/// Occupancy of the processor from one reading to the next, 0 to 1, from which the processor counts
/// as busy all the time. It is below 1, because the CPU clock and the monotonic clock are not read
/// at exactly the same moment.
const FULL: f64 = 0.95;

/// The gate of one server, which runs an overload control [`Law`] and admits or rejects new work.
pub struct Gate {
    law: Box<dyn Law>,
    settings: Settings,
    signals: Signals,
    /// The parts of the counts of new work, by bucket, that other gates have counted before.
    handed_off: [Flow; BUCKETS],
    control: Control,
    /// The throttles that the class scheme needs.
    throttles: Vec<Throttle>,
    /// The rate of new work that the law judges, by bucket.
    decided: [ArrivalRate; BUCKETS],
    /// The rate of new sessions, without repetitions, but with sessions that are rejected before
    /// the law judges them.
    offered: ArrivalRate,
    /// Random numbers from which work without a fingerprint gets its rank.
    ranks: Stream,
    sources: Sources,
    /// The shadow law, whose decisions have no effect, or `None`.
    shadow: Option<Box<Shadow>>,
    /// The seed and the number of the server, from which the throttles of a shadow law are created.
    seed: (Seed, u32),
    memory: Memory,
    pacer: Pacer,
    /// Time at which a reading of the processor load last showed idle time, or `None` before the
    /// first such reading.
    idle: Option<Timestamp>,
    ticked: Timestamp,
    /// The time of the next tick, or `NEVER` while the law is at rest.
    due: Timestamp,
    stopping: bool,
}

impl Gate {
    /// Creates the gate of the server numbered `element`. It admits everything until its law
    /// decides otherwise. Random throttles draw from `seed`.
    pub fn new(settings: Settings, seed: Seed, element: u32) -> Self {
        let mut gate = Self {
            law: (settings.law.entry().build)(&settings.law),
            signals: Signals { sessions: Sessions::new(settings.sessions), ..Signals::default() },
            handed_off: Default::default(),
            control: Control::OPEN,
            throttles: throttles(&settings, Purpose::Throttle, seed, element),
            decided: Default::default(),
            offered: ArrivalRate::default(),
            ranks: seed.stream(Purpose::Rank, element),
            sources: Sources::new(&settings.sources, seed, element),
            shadow: None,
            seed: (seed, element),
            memory: Memory::new(settings.memory_max),
            pacer: Pacer::default(),
            idle: None,
            ticked: Timestamp::ZERO,
            due: Timestamp::NEVER,
            stopping: false,
            settings,
        };
        gate.cast_shadow(Timestamp::ZERO);
        gate
    }

    /// Sets the size of the queue behind the gate: for `room` new sessions, or for `room` messages
    /// if all messages wait in one queue.
    pub fn with_room(mut self, room: usize) -> Self {
        self.signals.queue.room = room;
        self
    }

    /// Shares the cap on priority work with other gates, such as those of the other shards.
    pub fn sharing_priority(mut self, cap: PriorityCap) -> Self {
        self.sources.share_priority(cap);
        self
    }

    /// Replaces the law in force by `law`, and the shadow law by `shadow`. If the law is the same
    /// as before, it keeps its state. If only its parameters change, it keeps its measurements if
    /// it [can](Law::adjust).
    ///
    /// A new law starts [without measurements](Law::on_begin), with everything admitted. The
    /// signals, the remembered decisions, the state of the throttles and the waiting work are kept.
    /// Waiting work is released without a limit until the new law sets a rate of release.
    pub fn switch(&mut self, now: Timestamp, law: Values, shadow: Option<Values>) {
        if law != self.settings.law {
            let is_same = law.entry() == self.settings.law.entry();
            if !(is_same && self.law.adjust(&law)) {
                self.replace_law(now, &law);
            }
            self.settings.law = law;
        }
        if shadow != self.settings.shadow {
            self.settings.shadow = shadow;
            self.cast_shadow(now);
        }
    }

    fn replace_law(&mut self, now: Timestamp, law: &Values) {
        self.law = (law.entry().build)(law);
        self.control = Control::OPEN;
        self.pacer = Pacer::default();
        self.signals.queue.credit = 0.0;
        // A law without ticks has left the longest lag since it began.
        self.signals.queue.lag = None;
        self.law.on_begin(now, &self.signals);
        self.ticked = now;
        // The law must tick even if nothing arrives, because work may already wait.
        self.due = self.law.tick().map_or(Timestamp::NEVER, |tick| now + tick);
    }

    fn cast_shadow(&mut self, now: Timestamp) {
        let (seed, element) = self.seed;
        self.shadow = self.settings.shadow.map(|values| {
            let throttles = throttles(&self.settings, Purpose::ShadowThrottle, seed, element);
            let ranks = seed.stream(Purpose::ShadowRank, element);
            Box::new(Shadow::start(now, values, throttles, ranks, &self.signals))
        });
    }

    /// Returns the law in force and its parameters.
    pub fn law(&self) -> &Values {
        &self.settings.law
    }

    /// Returns the shadow law, or `None` if there is none. Its decisions have no effect.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_deref()
    }

    /// Returns the signals that the server measures about itself.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Returns the latest decision of the law.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the processor occupancy, 0 to 1, that the law in force aims at, or `None` if it aims
    /// at none.
    pub fn occupancy_aimed_at(&self) -> Option<f64> {
        self.law.occupancy_aimed_at()
    }

    /// Returns the memory of earlier decisions.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the fair shares of the sources in a bucket. Returns `None` for priority work, or if
    /// the setting `fair` is not enabled.
    pub fn fairness(&self, bucket: Bucket) -> Option<&Fairness> {
        self.sources.fair(bucket)
    }

    /// Returns how often a source was counted together with other sources because a table of
    /// sources was full.
    pub fn sources_overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// Returns the moment at which new work is judged.
    pub fn decide(&self) -> Decide {
        self.settings.decide
    }

    /// Rejects all new work from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Records a reading of the processor and the sockets.
    pub fn on_load(&mut self, now: Timestamp, load: &Load) {
        let occupied = match self.settings.occupancy {
            Occupancy::Busy => load.busy,
            Occupancy::Cpu => load.cpu,
        };
        let reading = Reading { at: now, occupied };
        if reading.occupancy_since(self.signals.processor).is_some_and(|part| part < FULL) {
            self.idle = Some(now);
        }
        self.signals.processor = reading;
        self.signals.socket_fill = f64::from(load.socket_fill);
    }

    /// Records which share of the INVITEs and of the REGISTERs is dropped before it is read, from now
    /// on. If only those of heavy sources are dropped, it is the share of these.
    pub fn set_dropped(&mut self, shares: [f64; DroppableMethod::ALL.len()]) {
        self.signals.dropped = shares;
    }

    /// Records the arrival of a message of any kind. `waiting` is the number of messages in the
    /// queue of new sessions.
    pub fn on_arrival(&mut self, now: Timestamp, waiting: usize) {
        self.signals.messages += 1;
        self.signals.queue.waiting = waiting;
        if self.settings.decide == Decide::Arrival {
            self.control.admit_next = false;
        }
        if self.due == Timestamp::NEVER {
            self.law.on_wake(now, &self.signals);
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

    /// Records that new work waited for `lag` in a receive buffer before it was read.
    pub fn on_lag(&mut self, lag: Duration) {
        self.signals.queue.lag = self.signals.queue.lag.max(Some(lag));
        if let Some(shadow) = &mut self.shadow {
            shadow.on_lag(lag);
        }
    }

    /// Returns whether the gate now rejects all new sessions or a part of them.
    pub fn is_rejecting(&self) -> bool {
        let Control { queue, .. } = &self.control;
        self.stopping
            || self.share(Bucket::Session) < 1.0
            || self.signals.queue.waiting >= queue.waiting_max
    }

    /// Returns whether the law allows taking a new session from the queue now.
    pub fn may_release(&self) -> bool {
        let is_bounded = self.signals.answers.waiting as f64 >= self.unanswered_max();
        let release = self.control.queue.release;
        self.stopping || (self.pacer.may_release(release) && !is_bounded)
    }

    /// Returns the number of unanswered INVITEs from which new sessions wait in the queue, or
    /// infinity if there is no limit. There is none if work is judged when it is taken from the
    /// queue.
    pub fn unanswered_max(&self) -> f64 {
        match self.settings.decide {
            Decide::Arrival => self.control.queue.unanswered_max,
            Decide::Service => f64::INFINITY,
        }
    }

    /// Records that a back end has sent a new INVITE.
    pub fn on_backend_call(&mut self, now: Timestamp) {
        self.signals.back_ends_called = Some(now);
    }

    /// Records the counts of INVITEs that were sent to back ends, and of their answers.
    pub fn on_answers(&mut self, answers: Answers) {
        self.signals.answers = answers;
    }

    /// Records that the service of a message begins after it waited for `sojourn`. `ticket` is its
    /// ticket, or `None` if the message does not ask for new work. With a ticket, the caller then
    /// also calls [`on_taken`](Self::on_taken). `waiting` is the number of messages in the queue of
    /// new sessions.
    pub fn on_service(
        &mut self,
        now: Timestamp,
        ticket: Option<&Ticket>,
        sojourn: Duration,
        waiting: usize,
    ) {
        let is_session = ticket.is_some_and(|ticket| ticket.bucket == Bucket::Session);
        self.signals.queue.waiting = waiting;
        self.signals.sojourn.record(now, ticket.is_some(), sojourn);
        self.signals.service = Service { is_session, sojourn, cost: Duration::ZERO };
        // The law must not count this piece in a window, because it no longer waits. It is taken
        // out only for this call: `on_taken` takes it out for good.
        let in_progress = self.signals.in_progress;
        if let Some(ticket) = ticket.filter(|ticket| !ticket.again) {
            let count = &mut self.signals.in_progress[ticket.bucket as usize];
            *count = count.saturating_sub(1);
        }
        self.law.on_service(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            shadow.on_service(now, &self.signals);
        }
        self.signals.in_progress = in_progress;
    }

    /// Records that the service of a message of `class` is complete and took `cost`.
    pub fn on_completion(&mut self, now: Timestamp, class: u8, cost: Duration) {
        self.signals.costs.record(class, cost);
        self.signals.service.cost = cost;
        self.law.on_completion(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            shadow.on_completion(now, &self.signals);
        }
    }

    /// Records that examining `looked` messages, and rejecting `rejected` of them, took `cost`.
    pub fn on_looked(&mut self, looked: u32, rejected: u32, cost: Duration) {
        self.signals.costs.record_looks(looked, rejected, cost);
    }

    /// Records how much work waits for service.
    pub fn on_backlog(&mut self, backlog: Backlog) {
        self.signals.backlog = backlog;
    }

    /// Lets the law act if its tick is due. `waiting` is the number of messages in the queue of new
    /// sessions.
    pub fn handle_timeout(&mut self, now: Timestamp, waiting: usize) {
        if now < self.due {
            // Except for the lag, the shadow uses the signals as they are. Updating them here would
            // change the signals of the law in force.
            if let Some(shadow) = &mut self.shadow {
                shadow.handle_timeout(now, &mut self.signals);
            }
            return;
        }
        self.signals.queue.waiting = waiting;
        self.signals.queue.credit = self.pacer.credit();
        self.signals.sojourn.close_window(now);
        self.law.on_tick(now, &self.signals, &mut self.control);
        if let Some(shadow) = &mut self.shadow {
            shadow.handle_timeout(now, &mut self.signals);
        }
        self.signals.queue.lag = None;
        self.pacer.advance(self.control.queue.release, now.since(self.ticked), waiting);
        self.ticked = now;
        self.due = match self.law.tick() {
            Some(tick) if self.signals.new_work_waits() || !self.law.is_at_rest() => now + tick,
            _ => Timestamp::NEVER,
        };
    }

    /// Returns the time of the next tick of the law or its shadow, or `None` if none is needed.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = self.shadow.as_ref().map_or(self.due, |shadow| self.due.min(shadow.due()));
        (due != Timestamp::NEVER).then_some(due)
    }
}

/// Creates the throttles of the server numbered `element`, as many as the scheme needs.
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
pub(crate) mod tests;
