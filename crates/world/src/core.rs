//! The contract between a core and its driver.

use crate::{
    Failure, Load, Query, QueryAnswer, QueryId, Received, Shedding, Timestamp, Transmit, Work,
};

/// Bytes of an order at the most: a configuration of about 10,000 back ends. An order is recorded whole,
/// in one block of a recording.
pub const ORDER_MAX: usize = 768 * 1024;

/// A message that belongs to another shard of the same process.
#[derive(Debug)]
pub struct Crossing {
    /// The shard it belongs to.
    pub shard: u16,
    /// The message, to be offered there.
    pub received: Received,
}

/// A pure state machine, given time and packets from outside.
///
/// # The contract
///
/// 1. The driver calls one *input* function (`offer`, `serve`, `handle_timeout`,
///    `on_failed`, `on_load`, `on_order`, `on_answer`, `on_drain`) with a `now` that never goes
///    back.
/// 2. After it, and before the next input whose outcome could depend on what was
///    sent, the driver drains the *outputs*: [`poll_transmit`](Self::poll_transmit),
///    [`poll_crossing`](Self::poll_crossing) and [`poll_query`](Self::poll_query) until they
///    yield nothing. A driver may gather the outputs of several inputs into one batch; their order
///    is kept.
/// 3. When it has nothing else to do it sleeps until a packet arrives or until
///    [`poll_timeout`](Self::poll_timeout), and then calls `handle_timeout`.
///    Calling it too early changes nothing.
/// 4. A query is answered by [`on_answer`](Self::on_answer) once, late, or never; while it is out
///    everything else goes on.
///
/// The inputs are few on purpose: whoever records them has recorded all that a
/// core can know ([`Recorder`](crate::Recorder)). A core that stands around another one, or is
/// one of several kinds, hands them on by [`delegate`](crate::delegate).
pub trait Core {
    /// A packet has arrived. The core classifies and queues it, or disposes of it
    /// at once; it does no work that is not bounded and cheap.
    fn offer(&mut self, now: Timestamp, received: Received);

    /// Does the work of one queued message. `false` when none was waiting.
    fn serve(&mut self, now: Timestamp) -> bool;

    /// Fires the timers that are due.
    fn handle_timeout(&mut self, now: Timestamp);

    /// The transport could not deliver something.
    fn on_failed(&mut self, now: Timestamp, failure: Failure);

    /// How busy the driver was until now, and how full its sockets are. Comes every few
    /// milliseconds while there is anything to do.
    fn on_load(&mut self, _now: Timestamp, _load: Load) {}

    /// An operator wants something changed. `order` is text, of at most
    /// [`ORDER_MAX`](crate::ORDER_MAX) bytes, in the words of whoever built the core and gives
    /// the order: it was checked by the same reader before. What is not understood all the same
    /// changes nothing.
    fn on_order(&mut self, _now: Timestamp, _order: &[u8]) {}

    /// What became of a [query](Self::poll_query). One that is not waited for, or no more, changes
    /// nothing.
    fn on_answer(&mut self, _now: Timestamp, _id: QueryId, _answer: QueryAnswer) {}

    /// The process is to stop: admit no new work, finish what is held.
    fn on_drain(&mut self, now: Timestamp);

    /// The next packet to send.
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// The next message that another shard must handle.
    fn poll_crossing(&mut self) -> Option<Crossing> {
        None
    }

    /// The next question to something slow: the DNS, a disk, another machine.
    fn poll_query(&mut self) -> Option<Query> {
        None
    }

    /// What is to be dropped before the core is given it. The driver asks at each
    /// [`on_load`](Self::on_load), and it holds until another answer: while the core wants
    /// anything dropped it arms a timer, or it would not be asked when nothing gets through.
    fn poll_shedding(&self) -> &Shedding {
        const { &Shedding::NONE }
    }

    /// What the last `offer` or `serve` did, for whoever models its cost.
    fn last_work(&self) -> Work {
        Work::default()
    }

    /// When `handle_timeout` is next needed; `None` if no timer is armed.
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// After `on_drain`: true once nothing is held that stopping would lose.
    fn is_drained(&self) -> bool;
}
