//! The server, its processor and its callers, event by event.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::{
    Backlog, Bucket, Decide, Gate, QueueOrder, Release, Settings, Ticket, Verdict,
};
use tidegate_world::{Calendar, Load, Purpose, Stream, Timestamp};

use super::{Costs, Disturbance, Note, Outcome, Setup, Spread};

/// Interval at which the gate gets a reading of the processor.
const READING: Duration = Duration::from_millis(2);
/// Interval at which the state is noted.
const NOTE: Duration = Duration::from_millis(20);

/// A run in progress.
pub(super) struct Server<'a> {
    setup: &'a Setup,
    pub(super) gate: Gate,
    now: Timestamp,
    end: Timestamp,
    calendar: Calendar<Event>,
    arrivals: Stream,
    services: Stream,
    calls: Vec<Call>,
    /// Unread messages.
    unread: VecDeque<(usize, Timestamp)>,
    queue: VecDeque<Waiting>,
    /// Number of waiting pieces of work that belong to calls in progress.
    later: usize,
    job: Option<Job>,
    /// The time of the last reading of the processor. `busy` is the duration of all finished jobs,
    /// and `busy_since` is the start of the current or last job.
    read: Timestamp,
    busy: Duration,
    busy_since: Timestamp,
    recorded_busy: Duration,
    /// Time spent on reading minus time spent on service, while both were needed, in seconds.
    reading_lead_s: f64,
    /// Number of pauses so far, and the end of the last one.
    pauses: usize,
    paused_until: Timestamp,
    pub(super) outcome: Outcome,
}

enum Event {
    NewCall,
    Repetition(usize),
    Later,
    Completion,
    Note,
}

struct Call {
    began: Timestamp,
    /// Time to the next retransmission.
    interval: Duration,
    answered: bool,
}

struct Waiting {
    call: usize,
    ticket: Ticket,
    since: Timestamp,
    /// True if the message is not a retransmission, so that it counts as offered.
    counted: bool,
}

/// The current job of the processor.
enum Job {
    Look,
    Reject(usize),
    Serve(usize, Duration),
    ServeLater,
}

impl<'a> Server<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let (throttle, burst) = setup.throttle;
        let decide = setup.decide;
        let settings = Settings { decide, throttle, burst, ..Settings::new(setup.law) };
        let length: Duration = setup.profile.iter().map(|(length, _)| *length).sum();
        let mut server = Self {
            setup,
            gate: Gate::new(settings, setup.seed, 0).with_room(setup.queue_max),
            now: Timestamp::ZERO,
            end: Timestamp::ZERO + length,
            calendar: Calendar::new(),
            arrivals: setup.seed.stream(Purpose::Arrivals, 0),
            services: setup.seed.stream(Purpose::Hold, 0),
            calls: Vec::new(),
            unread: VecDeque::new(),
            queue: VecDeque::new(),
            later: 0,
            job: None,
            read: Timestamp::ZERO,
            busy: Duration::ZERO,
            busy_since: Timestamp::ZERO,
            recorded_busy: Duration::ZERO,
            reading_lead_s: 0.0,
            pauses: 0,
            paused_until: Timestamp::ZERO,
            outcome: Outcome::default(),
        };
        server.schedule_arrival();
        server.calendar.push(Timestamp::ZERO + NOTE, Event::Note);
        server
    }

    pub(super) fn run(&mut self) {
        loop {
            let event = self.calendar.next();
            let tick = self.gate.poll_timeout().map(|due| due.max(self.paused_until));
            let Some(at) = event.into_iter().chain(tick).min().filter(|&at| at < self.end) else {
                return;
            };
            assert!(at >= self.now, "time never goes back");
            self.now = at;
            if at >= self.paused_until.max(self.read + READING) {
                self.read = at;
                let busy = self.busy_until_now();
                let socket_fill = self.unread.len() as f32 / self.setup.queue_max as f32;
                self.gate.on_load(at, &Load { busy, cpu: busy, socket_fill, ..Load::default() });
            }
            if let Some((from, law)) = self.setup.switch
                && at >= self.paused_until.max(Timestamp::ZERO + from)
            {
                self.gate.switch(at, law, None);
            }
            if tick == Some(at) {
                self.gate.handle_timeout(at, self.waiting());
            } else if let Some((_, event)) = self.calendar.pop() {
                self.happen(event);
            }
            self.work();
        }
    }

    /// Returns the number of waiting calls that were neither admitted nor rejected.
    pub(super) fn undecided(&self) -> u64 {
        self.queue.iter().filter(|waiting| waiting.counted).count() as u64
    }

    /// Schedules the next arrival. A Poisson process has no memory, so the draw starts again when
    /// the rate changes.
    fn schedule_arrival(&mut self) {
        let (mut at, mut until) = (self.now, Timestamp::ZERO);
        for &(length, multiple) in &self.setup.profile {
            until = until + length;
            if at >= until {
                continue;
            }
            if multiple == 0.0 {
                at = until;
                continue;
            }
            let rate = multiple * self.setup.costs.capacity_cps();
            let next = at + Duration::from_secs_f64(self.arrivals.exponential(1.0 / rate));
            if next < until {
                return self.calendar.push(next, Event::NewCall);
            }
            at = until;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::NewCall => {
                self.schedule_arrival();
                self.outcome.began.push(self.now);
                self.calls.push(Call {
                    began: self.now,
                    interval: self.setup.disturbance.t1,
                    answered: false,
                });
                self.arrive(self.calls.len() - 1);
            }
            Event::Repetition(call) => {
                if !self.calls[call].answered {
                    self.outcome.repetitions += 1;
                    self.arrive(call);
                }
            }
            Event::Later => self.later += 1,
            Event::Completion => self.complete(),
            Event::Note => {
                let busy = self.busy_until_now();
                let occupied = busy - self.recorded_busy;
                self.recorded_busy = busy;
                self.outcome.notes.push(Note {
                    at: self.now,
                    waiting: self.waiting(),
                    occupancy: occupied.as_secs_f64() / NOTE.as_secs_f64(),
                    admitted: self.gate.share(Bucket::Session),
                });
                self.calendar.push(self.now + NOTE, Event::Note);
            }
        }
    }

    fn arrive(&mut self, call: usize) {
        let Call { began, interval, .. } = &mut self.calls[call];
        let next = self.now + *interval;
        *interval *= 2;
        if next < *began + 64 * self.setup.disturbance.t1 {
            self.calendar.push(next, Event::Repetition(call));
        }
        if self.setup.decide == Decide::Service {
            self.record_backlog();
            self.gate.on_arrival(self.now, self.waiting());
        }
        if self.unread.len() < self.setup.queue_max {
            self.unread.push_back((call, self.now));
        }
    }

    /// Returns the number of messages in the queue that the law controls.
    fn waiting(&self) -> usize {
        let unread = match (self.setup.decide, self.gate.control().queue.release) {
            (Decide::Service, Release::Open) => self.unread.len(),
            _ => 0,
        };
        self.queue.len() + unread
    }

    fn record_backlog(&mut self) {
        let unread = match self.setup.decide {
            Decide::Service => self.unread.len(),
            Decide::Arrival => 0,
        };
        self.gate.on_backlog(Backlog { sessions: self.queue.len(), others: self.later, unread });
    }

    fn busy_until_now(&self) -> Duration {
        let at_it =
            if self.job.is_some() { self.now.since(self.busy_since) } else { Duration::ZERO };
        self.busy + at_it
    }

    /// Gives a free processor its next job.
    fn work(&mut self) {
        while self.job.is_none() {
            let later = self.setup.disturbance.later.filter(|_| self.later > 0);
            let serves = later.is_some() || !self.queue.is_empty() && self.gate.may_release();
            let reads = !self.unread.is_empty();
            let (job, cost) = if reads && !(serves && self.reading_lead_s > 0.0) {
                let (job, cost) = self.read_one();
                self.reading_lead_s += if serves { cost.as_secs_f64() } else { 0.0 };
                (job, cost)
            } else if serves {
                let (job, cost) = match later {
                    Some((_, cost)) => {
                        self.later -= 1;
                        (Job::ServeLater, cost)
                    }
                    None => self.serve_next(),
                };
                self.reading_lead_s -= if reads { cost.as_secs_f64() } else { 0.0 };
                (job, cost)
            } else {
                return;
            };
            self.job = Some(job);
            self.busy_since = self.now;
            let done = self.after(cost) + self.next_pause();
            self.calendar.push(done, Event::Completion);
        }
    }

    /// Returns the length of the pause during the job that begins now, or zero.
    fn next_pause(&mut self) -> Duration {
        let Some(&(from, pause)) = self.setup.pauses.get(self.pauses) else {
            return Duration::ZERO;
        };
        if self.now < Timestamp::ZERO + from {
            return Duration::ZERO;
        }
        self.pauses += 1;
        self.paused_until = self.now + pause;
        pause
    }

    /// Returns the time at which work that begins now and takes `cost` is complete.
    fn after(&self, cost: Duration) -> Timestamp {
        let Some((period, stolen)) = self.setup.disturbance.stolen else { return self.now + cost };
        let [period, own] = [period, period - stolen].map(|time| time.as_nanos() as u64);
        let [now, cost] = [self.now.as_nanos(), cost.as_nanos() as u64];
        // The server's own processor time since the start, when the work is complete.
        let done = now / period * own + (now % period).min(own) + cost;
        Timestamp::from_nanos(done / own * period + done % own)
    }

    fn read_one(&mut self) -> (Job, Duration) {
        let (call, since) = self.unread.pop_front().expect("it is not empty");
        let Costs { look, reject, .. } = self.setup.costs;
        if self.setup.decide == Decide::Arrival {
            self.record_backlog();
            self.gate.on_arrival(self.now, self.waiting());
        }
        let fingerprint = (call as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let repeated = self.gate.signals().flow(Bucket::Session).repeated;
        let room = self.queue.len() < self.setup.queue_max;
        if self.setup.decide == Decide::Arrival {
            self.gate.on_lag(self.now.since(since));
        }
        match self.gate.on_new(self.now, Bucket::Session, 0, Some(fingerprint), room) {
            Verdict::Reject(_) => (Job::Reject(call), look + reject),
            Verdict::Absorb => (Job::Look, look),
            Verdict::Admit(ticket) => {
                let counted = self.gate.signals().flow(Bucket::Session).repeated == repeated;
                let waiting = Waiting { call, ticket, since, counted };
                let paced = self.gate.control().queue.release != Release::Open;
                if self.setup.decide == Decide::Arrival || paced {
                    self.queue.push_back(waiting);
                    (Job::Look, look)
                } else {
                    let (job, cost) = self.serve(waiting);
                    (job, look + cost)
                }
            }
        }
    }

    fn serve_next(&mut self) -> (Job, Duration) {
        let next = match self.gate.control().queue.order {
            QueueOrder::Fifo => self.queue.pop_front(),
            QueueOrder::Lifo => self.queue.pop_back(),
        };
        self.serve(next.expect("it is not empty"))
    }

    fn serve(&mut self, Waiting { call, ticket, since, .. }: Waiting) -> (Job, Duration) {
        let sojourn = self.now.since(since);
        self.record_backlog();
        self.gate.on_service(self.now, Some(&ticket), sojourn, self.waiting());
        let Costs { serve, reject, spread, .. } = self.setup.costs;
        if self.gate.on_taken(self.now, ticket).is_some() {
            return (Job::Reject(call), reject);
        }
        let mut cost = match spread {
            Spread::Constant => serve,
            Spread::Exponential => {
                Duration::from_secs_f64(self.services.exponential(serve.as_secs_f64()))
            }
            // The minimum of this distribution is a third of its mean.
            Spread::Heavy => {
                let times = (1.0 - self.services.unit()).powf(-1.0 / 1.5) / 3.0;
                serve.mul_f64(times.min(100.0))
            }
        };
        if let Some((from, factor)) = self.setup.disturbance.dearer_from
            && self.now >= Timestamp::ZERO + from
        {
            cost = cost.mul_f64(factor);
        }
        (Job::Serve(call, cost), cost)
    }

    fn complete(&mut self) {
        self.busy = self.busy_until_now();
        match self.job.take().expect("it was at work") {
            Job::Look | Job::ServeLater => {}
            Job::Reject(call) => {
                let Call { began, answered, .. } = &mut self.calls[call];
                if !std::mem::replace(answered, true) {
                    self.outcome.rejected.push(*began);
                }
            }
            Job::Serve(call, cost) => {
                let Disturbance { misjudged, later, .. } = self.setup.disturbance;
                self.gate.on_completion(self.now, 0, cost.mul_f64(misjudged));
                if let Some((hold, _)) = later {
                    self.calendar.push(self.now + hold, Event::Later);
                }
                let Call { began, answered, .. } = &mut self.calls[call];
                if !std::mem::replace(answered, true) {
                    self.outcome.served.push((*began, self.now));
                }
            }
        }
    }
}
