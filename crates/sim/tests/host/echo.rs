//! A core that echoes, and records its inputs and their times.

use std::collections::VecDeque;

use tidegate_world::{
    Core, Failure, Flow, Handoff, HandoffInput, Load, Pool, Received, Shedding, Timestamp,
    Transmit, Work,
};

/// An input, as the core saw it.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Offer(String),
    Serve(String),
    Idle,
    Timeout,
    Failed,
    Load(Load),
    Command(String),
    Drain,
}

/// A core for packets `WORD CLASS` and any further text. It rejects `NO` at the offer. When it
/// serves a packet, it passes `OVER` to shard 1, drops `HUSH`, and echoes all others.
pub struct Echo {
    pub seen: Vec<(Timestamp, Seen)>,
    /// Times of its timers, the earliest first. Each sends `timer`.
    pub timers: VecDeque<Timestamp>,
    /// True if a timer that has fired stays in `timers`.
    pub stuck: bool,
    /// Datagrams that it wants shed.
    pub shedding: Shedding,
    waiting: VecDeque<Received>,
    out: VecDeque<Transmit>,
    handoffs: VecDeque<Handoff>,
    work: Work,
    pool: Pool,
}

impl Echo {
    pub fn new() -> Self {
        let (seen, timers, waiting, out, handoffs) = Default::default();
        let (work, pool, shedding) = Default::default();
        Self { seen, timers, stuck: false, shedding, waiting, out, handoffs, work, pool }
    }

    /// Returns its inputs except the load.
    pub fn inputs(&self) -> Vec<(Timestamp, Seen)> {
        self.seen.iter().filter(|(_, seen)| !matches!(seen, Seen::Load(_))).cloned().collect()
    }

    /// Returns the loads that it got.
    pub fn loads(&self) -> Vec<(Timestamp, Load)> {
        let load = |(at, seen): &(Timestamp, Seen)| match seen {
            Seen::Load(load) => Some((*at, *load)),
            _ => None,
        };
        self.seen.iter().filter_map(load).collect()
    }

    fn note(&mut self, now: Timestamp, seen: Seen) {
        if let Some((last, _)) = self.seen.last() {
            assert!(*last <= now, "time went back to {now:?} for {seen:?}");
        }
        self.seen.push((now, seen));
    }

    fn send(&mut self, text: &str) {
        self.out.push_back(Transmit::new(flow(), self.pool.copy(text.as_bytes())));
    }
}

/// Returns the flow of packets to the core.
pub fn flow() -> Flow {
    Flow::udp("127.0.0.1:2".parse().unwrap(), "127.0.0.1:1".parse().unwrap())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn class(text: &str) -> Option<u8> {
    text.split(' ').nth(1).and_then(|class| class.parse().ok())
}

impl Core for Echo {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let text = text(&received.bytes);
        let class = class(&text);
        self.work = Work { offered: class, ..Work::default() };
        if text.starts_with("NO") {
            self.work.rejected = class;
            self.send(&text);
        } else {
            self.waiting.push_back(received);
        }
        self.note(now, Seen::Offer(text));
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let Some(received) = self.waiting.pop_front() else {
            self.note(now, Seen::Idle);
            return false;
        };
        let text = text(&received.bytes);
        self.work = Work { served: class(&text), ..Work::default() };
        match text.split(' ').next() {
            Some("OVER") => {
                let input = HandoffInput::Received(received);
                self.handoffs.push_back(Handoff { shard: 1, input });
            }
            Some("HUSH") => {}
            _ => self.send(&text),
        }
        self.note(now, Seen::Serve(text));
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.note(now, Seen::Timeout);
        while !self.stuck && self.timers.pop_front_if(|due| *due <= now).is_some() {
            self.send("timer");
        }
    }

    fn on_failed(&mut self, now: Timestamp, _: Failure) {
        self.note(now, Seen::Failed);
        self.send("failed");
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.note(now, Seen::Load(load));
    }

    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        self.note(now, Seen::Command(text(command)));
        self.send("order");
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.note(now, Seen::Drain);
        self.send("drain");
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoffs.pop_front()
    }

    fn poll_shedding(&self) -> &Shedding {
        &self.shedding
    }

    fn last_work(&self) -> Work {
        self.work
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.front().copied()
    }

    fn is_drained(&self) -> bool {
        self.waiting.is_empty()
    }
}
