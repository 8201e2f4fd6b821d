//! Three sending servers in front of one receiving server: the model of paper 002, §4.
//!
//! The receiver has one FIFO, of 500 messages in the paper, and serves 500 messages/s, or 3000
//! rejections/s. It gets seven messages of each call: INVITE, 100, 180, 200, ACK, BYE, 200.
//! Senders, callers and callees take no time, and neither do links. Calls begin as Poisson
//! processes and last 30 s on average. A callee answers at once. INVITE and BYE are repeated until
//! the first response, a 200 until its ACK (RFC 3261 §17.1.1.2, §17.1.2.2, §13.3.1.4). A call
//! counts if INVITE, 180, 200 and ACK all arrive within 10 s.
//!
//! The gate judges an INVITE as it arrives. Rejections and repetitions also wait in the FIFO and
//! take processing time. Every response carries the feedback of that moment. As in the proxy, the
//! gate is told the length of the FIFO in messages, and the kinds of the messages in it.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::feedback::{
    Algorithms, Arrival, Category, Feedback, Offer, Restriction, RestrictionSettings, SendVerdict,
    UpstreamSettings, Upstreams,
};
use tidegate_control::{Backlog, Bucket, Gate, Sender, Settings, Ticket, Values, Verdict};
use tidegate_world::{Calendar, Load, Purpose, Seed, Stream, Timestamp};

/// The capacity in calls a second: 500 messages a second, seven messages in a call.
pub const CAPACITY_CPS: f64 = 500.0 / 7.0;
const MESSAGE: Duration = Duration::from_millis(2);
const REJECTION: Duration = Duration::from_nanos(333_333);
pub const ROOM: usize = 500;
const HOLD_S: f64 = 30.0;
const PATIENCE: Duration = Duration::from_secs(10);
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// Time between two readings of the processor.
const READING: Duration = Duration::from_millis(10);

/// One of the senders.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Calls a second, from `from_s` to `to_s`.
    pub cps: f64,
    pub from_s: f64,
    pub to_s: f64,
    /// The algorithms that the sender offers, or `None` if it does not take part in overload
    /// control.
    pub offers: Option<Algorithms>,
    /// True if the sender holds back requests as the feedback requires.
    pub obeys: bool,
    /// The load that the sender states when the receiver asks for it, as a multiple of its measured
    /// load, or `None` if it states nothing.
    pub claims: Option<f64>,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub law: Values,
    pub sources: Vec<Source>,
    pub upstreams: UpstreamSettings,
    /// Maximum number of messages in the FIFO.
    pub room: usize,
    /// Share of the feedback values that are lost, and the longest delay of the others. Each delay
    /// is random, so the values arrive in any order.
    pub lost: f64,
    pub delay_max: Duration,
    pub length: Duration,
    pub seed: Seed,
}

/// A call that counts: its sender, its start, and the arrival of its ACK.
pub type Completed = (usize, Timestamp, Timestamp);

enum Event {
    NewCall(usize),
    InviteTimer(usize, Duration),
    OkTimer(usize, Duration),
    HangUp(usize),
    ByeTimer(usize, Duration),
    Told(usize),
    Served,
    Reading,
}

#[derive(Debug)]
enum Message {
    Invite(Ticket),
    Repetition,
    Rejection,
    Trying,
    Ringing,
    Ok,
    Ack,
    Bye,
    ByeOk,
}

#[derive(Debug, Default)]
struct Call {
    source: usize,
    began: Timestamp,
    /// True if the caller has received a response to the INVITE.
    answered: bool,
    rang: bool,
    acked: bool,
    ended: bool,
}

pub struct Chain<'a> {
    setup: &'a Setup,
    now: Timestamp,
    calendar: Calendar<Event>,
    arrivals: Vec<Stream>,
    holds: Stream,
    link: Stream,
    restrictions: Vec<Restriction>,
    /// Feedback values that have not reached their sender yet.
    told: Vec<Vec<(Timestamp, Feedback)>>,
    gate: Gate,
    upstreams: Upstreams,
    queue: VecDeque<(Message, usize, Timestamp)>,
    /// New calls in the queue.
    waiting: usize,
    serving: Option<(Message, usize)>,
    busy: Duration,
    calls: Vec<Call>,
    pub completed: Vec<Completed>,
}

/// Runs a setup to its end. Returns the calls that count.
pub fn run(setup: &Setup) -> Vec<Completed> {
    let mut chain = Chain::new(setup);
    chain.run();
    chain.completed
}

impl<'a> Chain<'a> {
    fn new(setup: &'a Setup) -> Self {
        let seed = setup.seed;
        let numbers = 0..setup.sources.len();
        let settings = RestrictionSettings::default();
        let restriction = |n| Restriction::new(&settings, seed, n as u32);
        let mut chain = Self {
            setup,
            now: Timestamp::ZERO,
            calendar: Calendar::new(),
            arrivals: numbers.clone().map(|n| seed.stream(Purpose::Arrivals, n as u32)).collect(),
            holds: seed.stream(Purpose::Hold, 0),
            link: seed.stream(Purpose::Link, 0),
            restrictions: numbers.clone().map(restriction).collect(),
            told: numbers.clone().map(|_| Vec::new()).collect(),
            gate: Gate::new(Settings::new(setup.law), seed, 0).with_room(setup.room),
            upstreams: Upstreams::new(&setup.upstreams, seed, 0),
            queue: VecDeque::new(),
            waiting: 0,
            serving: None,
            busy: Duration::ZERO,
            calls: Vec::new(),
            completed: Vec::new(),
        };
        for (n, source) in setup.sources.iter().enumerate() {
            let first = Timestamp::ZERO + Duration::from_secs_f64(source.from_s);
            chain.schedule_call(n, first);
        }
        chain.calendar.push(Timestamp::ZERO + READING, Event::Reading);
        chain
    }

    fn schedule_call(&mut self, n: usize, after: Timestamp) {
        let Source { cps, to_s, .. } = self.setup.sources[n];
        if cps > 0.0 {
            let wait_s = self.arrivals[n].exponential(1.0 / cps);
            let at = after + Duration::from_secs_f64(wait_s);
            if at.as_secs_f64() < to_s {
                self.calendar.push(at, Event::NewCall(n));
            }
        }
    }

    fn run(&mut self) {
        let end = Timestamp::ZERO + self.setup.length;
        loop {
            let event = self.calendar.next();
            let ticks = [self.gate.poll_timeout(), self.upstreams.poll_timeout()];
            let next = ticks.into_iter().flatten().chain(event).min();
            let Some(at) = next.filter(|&at| at < end) else { return };
            self.now = at;
            if event == Some(at) {
                let Some((_, event)) = self.calendar.pop() else { return };
                self.happen(event);
            }
            self.gate.handle_timeout(at, self.queue.len());
            self.upstreams.handle_timeout(at, &self.gate);
            self.serve();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::NewCall(n) => {
                self.schedule_call(n, self.now);
                if self.may_send(n, Category::Session) {
                    self.calls.push(Call { source: n, began: self.now, ..Call::default() });
                    self.send_invite(self.calls.len() - 1, T1);
                }
            }
            Event::InviteTimer(call, interval) => {
                let Call { answered, began, .. } = self.calls[call];
                if !answered && self.now.since(began) < 64 * T1 {
                    self.send_invite(call, 2 * interval);
                }
            }
            Event::OkTimer(call, interval) => {
                if !self.calls[call].acked {
                    self.send_ok(call, (2 * interval).min(T2));
                }
            }
            Event::HangUp(call) => {
                // A BYE that may not be sent waits.
                if self.may_send(self.calls[call].source, Category::Ongoing) {
                    self.send_bye(call, T1);
                } else {
                    self.calendar.push(self.now + T1, Event::HangUp(call));
                }
            }
            Event::ByeTimer(call, interval) => {
                if !self.calls[call].ended {
                    self.send_bye(call, (2 * interval).min(T2));
                }
            }
            Event::Told(n) => {
                let now = self.now;
                let due = self.told[n].iter().position(|(at, _)| *at <= now);
                if let Some(due) = due {
                    let (_, feedback) = self.told[n].swap_remove(due);
                    self.restrictions[n].on_feedback(now, feedback);
                    self.restrictions[n].on_load_wanted(self.upstreams.wants_loads());
                }
            }
            Event::Served => self.complete(),
            Event::Reading => {
                let load = Load { busy: self.busy, cpu: self.busy, ..Load::default() };
                self.gate.on_load(self.now, &load);
                self.calendar.push(self.now + READING, Event::Reading);
            }
        }
    }

    /// Returns whether a sender sends a request: its restriction permits it, or it does not obey.
    fn may_send(&mut self, n: usize, category: Category) -> bool {
        let verdict = self.restrictions[n].on_request(self.now, category);
        !self.setup.sources[n].obeys || verdict == SendVerdict::Send
    }

    fn send_invite(&mut self, call: usize, interval: Duration) {
        self.calendar.push(self.now + interval, Event::InviteTimer(call, interval));
        if self.queue.len() >= self.setup.room {
            return;
        }
        self.gate.on_arrival(self.now, self.queue.len());
        let fingerprint = (call as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let is_first = self.calls[call].began == self.now;
        let arrival = match self.arrives(call, Category::Session) {
            _ if !is_first => Arrival::Judge,
            arrival => arrival,
        };
        let sender = Sender { restricted: arrival == Arrival::Pass, ..Sender::default() };
        let message = match arrival {
            Arrival::Reject => Message::Rejection,
            _ => {
                let (now, bucket) = (self.now, Bucket::Session);
                match self.gate.on_new_from(now, &sender, bucket, 0, Some(fingerprint), true) {
                    Verdict::Admit(ticket) => {
                        self.waiting += 1;
                        Message::Invite(ticket)
                    }
                    Verdict::Absorb => Message::Repetition,
                    Verdict::Reject(_) => Message::Rejection,
                }
            }
        };
        self.enqueue(message, call);
    }

    /// Reports a request to the overload control of the receiver, and returns its decision.
    fn arrives(&mut self, call: usize, category: Category) -> Arrival {
        let n = self.calls[call].source;
        let Source { offers, claims, .. } = self.setup.sources[n];
        let announced_cps = self.restrictions[n].announced_cps(self.now);
        let original_cps = claims.zip(announced_cps).map(|(times, cps)| times * cps);
        let offer = Offer { algorithms: offers, original_cps, weight: 1, host: None };
        self.upstreams.on_request(self.now, n as u128, category, &offer)
    }

    fn send_ok(&mut self, call: usize, interval: Duration) {
        self.calendar.push(self.now + interval, Event::OkTimer(call, interval));
        self.arrive(Message::Ok, call, 3);
    }

    fn send_bye(&mut self, call: usize, interval: Duration) {
        self.calendar.push(self.now + interval, Event::ByeTimer(call, interval));
        if interval == T1 {
            self.arrives(call, Category::Ongoing);
        }
        self.arrive(Message::Bye, call, 5);
    }

    /// Puts a message of a call in progress into the queue.
    fn arrive(&mut self, message: Message, call: usize, class: u8) {
        if self.queue.len() < self.setup.room {
            self.gate.on_arrival(self.now, self.queue.len());
            self.gate.on_ongoing(self.now, class);
            self.enqueue(message, call);
        }
    }

    fn enqueue(&mut self, message: Message, call: usize) {
        self.queue.push_back((message, call, self.now));
        self.record_backlog();
    }

    fn record_backlog(&mut self) {
        let (sessions, others) = (self.waiting, self.queue.len() - self.waiting);
        self.gate.on_backlog(Backlog { sessions, others, unread: 0 });
    }

    fn serve(&mut self) {
        if self.serving.is_some() {
            return;
        }
        let Some((mut message, call, since)) = self.queue.pop_front() else { return };
        let is_new = matches!(message, Message::Invite(_));
        self.waiting -= usize::from(is_new);
        self.record_backlog();
        let ticket = if let Message::Invite(ticket) = &message { Some(ticket) } else { None };
        self.gate.on_service(self.now, ticket, self.now.since(since), self.queue.len());
        if let Message::Invite(ticket) = message {
            message = match self.gate.on_taken(self.now, ticket) {
                Some(_) => Message::Rejection,
                None => Message::Repetition,
            };
        }
        let cost = if matches!(message, Message::Rejection) { REJECTION } else { MESSAGE };
        self.busy += cost;
        self.serving = Some((message, call));
        self.calendar.push(self.now + cost, Event::Served);
    }

    fn complete(&mut self) {
        let Some((message, call)) = self.serving.take() else { return };
        let class = match message {
            Message::Bye => 5,
            _ => 3,
        };
        if !matches!(message, Message::Rejection) {
            self.gate.on_completion(self.now, class, MESSAGE);
        }
        match message {
            Message::Invite(_) | Message::Repetition => {
                if !self.respond(call) {
                    self.arrive(Message::Trying, call, 3);
                    self.arrive(Message::Ringing, call, 3);
                    self.send_ok(call, T1);
                }
            }
            Message::Rejection => {
                self.respond(call);
            }
            Message::Trying => {}
            Message::Ringing => {
                self.respond(call);
                self.calls[call].rang = true;
            }
            Message::Ok => {
                self.respond(call);
                let n = self.calls[call].source;
                self.may_send(n, Category::Required);
                self.arrives(call, Category::Required);
                self.arrive(Message::Ack, call, 4);
            }
            Message::Ack => {
                let Call { source, began, rang, acked, .. } = self.calls[call];
                if !acked {
                    self.calls[call].acked = true;
                    if rang && self.now.since(began) <= PATIENCE {
                        self.completed.push((source, began, self.now));
                    }
                    let hold = Duration::from_secs_f64(self.holds.exponential(HOLD_S));
                    self.calendar.push(self.now + hold, Event::HangUp(call));
                }
            }
            Message::Bye => self.arrive(Message::ByeOk, call, 3),
            Message::ByeOk => {
                self.respond(call);
                self.calls[call].ended = true;
            }
        }
    }

    /// Sends a response to the sender of a call, with the feedback of this moment. Returns whether
    /// the sender had a response to this call before.
    fn respond(&mut self, call: usize) -> bool {
        let n = self.calls[call].source;
        let before = std::mem::replace(&mut self.calls[call].answered, true);
        if let Some(feedback) = self.upstreams.feedback(self.now, n as u128)
            && self.link.unit() >= self.setup.lost
        {
            let at = self.now + self.setup.delay_max.mul_f64(self.link.unit());
            self.told[n].push((at, feedback));
            self.calendar.push(at, Event::Told(n));
        }
        before
    }
}
