//! Measures the CPU time of a server's core alone, without sockets. The CPU clock of the thread is
//! read before and after each batch of messages.

use std::hint::black_box;
use std::time::Duration;

use tidegate_world::{Core, Flow, Pool, Received, Timestamp, Transmit};

use super::messages::Parties;
use super::script::{Passed, Side, Way};
use super::subject::{State, Subject};
use super::{empty_ns, thread_ns};

/// Time between the arrivals of two messages, as the server under test sees it: 50,000 messages/s.
const STEP: Duration = Duration::from_micros(20);

/// Number of batches without messages that are measured first. The median of their CPU times is
/// subtracted from the CPU time of each later batch.
const EMPTY: usize = 201;

/// A server that is measured without sockets.
pub(crate) struct Alone {
    subject: Subject,
    parties: Parties,
    pool: Pool,
    now: Timestamp,
    /// CPU time that the measurement shows for a batch without messages, in ns.
    empty_ns: f64,
}

impl Alone {
    pub fn new(state: &State, parties: Parties) -> Result<Self, String> {
        let pool = Pool::new();
        let subject = Subject::new(state, &parties, &pool).map_err(|error| error.to_string())?;
        let mut alone = Self { subject, parties, pool, now: Timestamp::ZERO, empty_ns: 0.0 };
        alone.empty_ns = empty_ns(EMPTY, || Ok(alone.turn(Vec::new()).0))?;
        Ok(alone)
    }

    /// Gives the core the messages in `received` one after the other, and lets the core serve each
    /// message. Returns the CPU time in ns, and the packets that the core sends.
    fn turn(&mut self, received: Vec<Received>) -> (f64, Vec<Transmit>) {
        let mut sent = Vec::with_capacity(2 * received.len());
        let begun = thread_ns();
        for message in received {
            self.now = self.now + STEP;
            self.subject.offer(self.now, message);
            while self.subject.serve(self.now) {}
            while let Some(transmit) = black_box(self.subject.poll_transmit()) {
                sent.push(transmit);
            }
        }
        ((thread_ns() - begun) as f64, sent)
    }
}

impl Way for Alone {
    fn pass(&mut self, from: Side, batch: &[Vec<u8>]) -> Result<Passed, String> {
        let remote = match from {
            Side::Caller => self.parties.caller,
            Side::Backend => self.parties.backend,
        };
        let flow = Flow::udp(self.parties.server, remote);
        let received = batch.iter().zip(1..).map(|(bytes, number)| {
            let arrived = self.now + STEP * number;
            Received::new(arrived, flow, self.pool.copy(bytes))
        });
        let received = received.collect();
        let (ns, sent) = self.turn(received);
        let side = |transmit: &Transmit| match transmit.flow.remote == self.parties.backend {
            true => Side::Backend,
            false => Side::Caller,
        };
        let sent = sent.iter().map(|packet| (side(packet), packet.bytes.to_vec())).collect();
        let ns = (ns - self.empty_ns).max(0.0);
        Ok(Passed { ns, rejected: self.subject.take_rejected(), sent })
    }

    fn rest(&mut self) -> Result<(), String> {
        self.subject.rest();
        Ok(())
    }
}

/// Two servers that get the same messages: one rejects them and is measured, the other admits them.
/// Callers and back ends continue the calls with what the admitting server sends. If they used only
/// what the rejecting server sends, each call would end with its INVITE, and the rejection of later
/// messages could not be measured.
pub(crate) struct Diverted<W> {
    pub rejecting: W,
    pub admitting: Alone,
}

impl<W: Way> Way for Diverted<W> {
    fn pass(&mut self, from: Side, batch: &[Vec<u8>]) -> Result<Passed, String> {
        let passed = self.rejecting.pass(from, batch)?;
        let admitted = self.admitting.pass(from, batch)?;
        // Only the rejections of the rejecting server are used.
        let is_rejection = |(_, bytes): &(Side, Vec<u8>)| bytes.starts_with(b"SIP/2.0 503");
        let rejections = passed.sent.into_iter().filter(is_rejection);
        Ok(Passed { sent: admitted.sent.into_iter().chain(rejections).collect(), ..passed })
    }

    fn rest(&mut self) -> Result<(), String> {
        self.rejecting.rest()?;
        self.admitting.rest()
    }
}
