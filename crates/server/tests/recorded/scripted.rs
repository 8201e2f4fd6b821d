//! The driver of sockets on a scripted machine: the test sets the time and the datagrams.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_io::{Buffers, Drive, Handoffs, Kind, Limits, Machine, Outlet, Ready, Stop, Waker};
use tidegate_world::{Core, Failure, Pool, Received, Shedding, Timestamp, Transmit};

use super::{Arrival, Timed};

/// Gives the arrivals to `core`, and stops the driver at `end`. Returns the packets of the core.
pub fn run(mut core: impl Core, arrivals: &[Arrival], end: Timestamp) -> Timed {
    let (stop, pool) = (Stop::new(), Pool::new());
    let mut sent = Timed::new();
    let script = Script {
        now: Timestamp::ZERO,
        arrivals: arrivals.iter().cloned().collect(),
        end,
        posted: Posted::default(),
        sent: &mut sent,
        stop: stop.clone(),
        pool: pool.clone(),
    };
    let mut drive = Drive::on(
        script,
        Limits { coalesce: Duration::ZERO, ..Limits::default() },
        Handoffs::alone().unwrap(),
        Arc::default(),
        &stop,
        pool,
    );
    drive.run(&mut core).unwrap();
    drop(drive);
    sent
}

/// A machine on which work takes no time.
struct Script<'a> {
    now: Timestamp,
    arrivals: VecDeque<Arrival>,
    end: Timestamp,
    posted: Posted,
    sent: &'a mut Timed,
    stop: Stop,
    pool: Pool,
}

/// The packets that the next flush will send.
#[derive(Default)]
struct Posted(Vec<Transmit>);

impl Outlet for Posted {
    fn post(&mut self, transmit: Transmit) {
        self.0.push(transmit);
    }
}

impl Machine for Script<'_> {
    type Outlet = Posted;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn cpu(&self) -> Duration {
        Duration::ZERO
    }

    fn begin_turn(&mut self, _is_behind: bool) {}

    fn receive(
        &mut self,
        kind: Kind,
        _: Ready,
        limit: usize,
        mut offer: impl FnMut(&mut Posted, Timestamp, Received),
    ) -> io::Result<usize> {
        for taken in 0..limit {
            let is_next = |arrival: &Arrival| {
                let its = match () {
                    () if arrival.bytes.starts_with(b"INVI") => Kind::Invite,
                    () if arrival.bytes.starts_with(b"SIP/") => Kind::Response,
                    () => Kind::Ordinary,
                };
                arrival.at <= self.now && its == kind
            };
            // Each kind of message has a socket of its own.
            let next = self.arrivals.iter().position(is_next);
            let Some(Arrival { at, flow, bytes }) = next.and_then(|i| self.arrivals.remove(i))
            else {
                return Ok(taken);
            };
            let received = Received::new(at, flow, self.pool.copy(&bytes));
            offer(&mut self.posted, self.now, received);
        }
        Ok(limit)
    }

    fn reports(
        &mut self,
        _: Ready,
        _: usize,
        _: impl FnMut(&mut Posted, Failure),
    ) -> io::Result<bool> {
        Ok(false)
    }

    fn outlet(&mut self) -> &mut Posted {
        &mut self.posted
    }

    fn flush(&mut self) {
        let now = self.now;
        self.sent.extend(self.posted.0.drain(..).map(|t| (now, t.flow, t.bytes.to_vec())));
    }

    fn failures(&self) -> usize {
        0
    }

    fn take_failure(&mut self) -> Option<Failure> {
        None
    }

    fn read_drop_counters(&mut self) -> Buffers {
        Buffers::default()
    }

    fn shed(&mut self, shedding: &Shedding) {
        assert_eq!(*shedding, Shedding::NONE, "nothing asks for it");
    }

    fn pause(&mut self, time: Duration) {
        unreachable!("a pause of {time:?}: nothing here makes one worth it");
    }

    fn sleep(&mut self, _: &Waker, timeout: Option<Duration>) -> (io::Result<Ready>, bool) {
        let arrival = self.arrivals.front().map_or(Timestamp::NEVER, |arrival| arrival.at);
        let timer = timeout.map_or(Timestamp::NEVER, |timeout| self.now + timeout);
        self.now = arrival.min(timer).min(self.end);
        if self.now == self.end && self.stop.requests() == 0 {
            self.stop.request();
            // Remaining work is dropped then.
            self.stop.request();
        }
        (Ok(Ready::UNKNOWN), false)
    }
}
