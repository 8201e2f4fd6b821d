//! Two agents in simulated time: no sockets, a constant delay, losses by seed.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{
    Answerer, AnswererConfig, AnswererStats, Caller, CallerConfig, CallerStats, Load,
};
use tidegate_world::{
    Calendar, Core, Flow, Pool, Purpose, Received, Seed, Stream, Timestamp, Transmit,
};

pub fn uac() -> SocketAddr {
    "192.0.2.1:5060".parse().unwrap()
}

pub fn uas() -> SocketAddr {
    "192.0.2.2:5060".parse().unwrap()
}

/// Returns the defaults, for `calls` calls at `rate_cps`.
pub fn calling(rate_cps: f64, calls: u32) -> CallerConfig {
    let load = Load { rate_cps, calls, ..Load::default() };
    CallerConfig { load, ..CallerConfig::new(uac(), uas()) }
}

pub fn answering() -> AnswererConfig {
    AnswererConfig::new(uas())
}

/// A packet in flight: its source, its target, and its bytes.
type Flight = (SocketAddr, SocketAddr, Vec<u8>);

pub struct Net {
    pub caller: Caller,
    pub answerer: Answerer,
    pub now: Timestamp,
    pub delay: Duration,
    /// Fraction of packets that are lost, 0..1.
    pub loss: f64,
    /// Each packet sent, if a trace is kept.
    pub trace: Option<Vec<(Timestamp, String)>>,
    link: Stream,
    pool: Pool,
    flights: Calendar<Flight>,
}

impl Net {
    pub fn new(calling: CallerConfig, answering: AnswererConfig, seed: u64) -> Self {
        let pool = Pool::new();
        let seed = Seed(seed);
        Self {
            caller: Caller::new(calling, seed, 0, Timestamp::ZERO, pool.clone()).unwrap(),
            answerer: Answerer::new(answering, seed, 1, pool.clone()),
            now: Timestamp::ZERO,
            delay: Duration::from_millis(5),
            loss: 0.0,
            trace: None,
            link: seed.stream(Purpose::Link, 0),
            pool,
            flights: Calendar::new(),
        }
    }

    /// Runs until no event is left, or until `end`.
    pub fn run(&mut self, end: Timestamp) {
        loop {
            let flight = self.flights.next();
            let timeouts = [self.caller.poll_timeout(), self.answerer.poll_timeout()];
            let next = timeouts.into_iter().chain([flight]).flatten().min();
            let Some(next) = next.filter(|&at| at <= end) else { return };
            self.now = self.now.max(next);
            if flight == Some(next) {
                let (_, (from, to, bytes)) = self.flights.pop().unwrap();
                let received = Received::new(self.now, Flow::udp(to, from), self.pool.copy(&bytes));
                if to == uac() {
                    self.caller.offer(self.now, received);
                } else if to == uas() {
                    self.answerer.offer(self.now, received);
                }
            } else if timeouts[0] == Some(next) {
                self.caller.handle_timeout(self.now);
            } else {
                self.answerer.handle_timeout(self.now);
            }
            while let Some(transmit) = self.caller.poll_transmit() {
                self.fly(transmit);
            }
            while let Some(transmit) = self.answerer.poll_transmit() {
                self.fly(transmit);
            }
        }
    }

    /// Runs until both agents have no calls and no timers left.
    pub fn run_out(&mut self) -> (CallerStats, AnswererStats) {
        self.run(Timestamp::NEVER - Duration::from_nanos(1));
        assert!(self.caller.is_done());
        assert_eq!(self.answerer.held(), 0, "the answerer's table empties by itself");
        (self.caller.stats().clone(), self.answerer.stats())
    }

    fn fly(&mut self, Transmit { flow, bytes, .. }: Transmit) {
        if let Some(trace) = &mut self.trace {
            trace.push((self.now, String::from_utf8_lossy(&bytes).into_owned()));
        }
        if self.link.unit() >= self.loss {
            let at = self.now + self.delay;
            self.flights.push(at, (flow.local, flow.remote, bytes.to_vec()));
        }
    }
}
