//! The contract between a core and its driver.

use crate::{
    CloseCause, Connect, ConnectionId, Failure, Flow, Load, Query, QueryAnswer, QueryId, Received,
    Shedding, Timestamp, Transmit, Work,
};

/// Bytes of an order at the most: a configuration of about 200,000 back ends.
pub const COMMAND_MAX: usize = 16 << 20;

/// Bytes that a core hands out on one connection at the most until it hears
/// [`Core::on_writable`]; the message that reaches the bound goes beyond it.
pub const STREAM_WINDOW: usize = 64 * 1024;

/// A message that belongs to another shard of the same process.
#[derive(Debug)]
pub struct Handoff {
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
///    `on_failed`, `on_connected`, `on_closed`, `on_writable`, `on_load`, `on_command`, `on_answer`,
///    `on_drain`) with a `now` that never goes back.
/// 2. After it, and before the next input whose outcome could depend on what was
///    sent, the driver drains the *outputs*: [`poll_transmit`](Self::poll_transmit),
///    [`poll_handoff`](Self::poll_handoff), [`poll_query`](Self::poll_query),
///    [`poll_connect`](Self::poll_connect) and [`poll_close`](Self::poll_close), in this order, until
///    they yield nothing. A driver may gather the outputs of several inputs into one batch; their order
///    is kept.
/// 3. When it has nothing else to do it sleeps until a packet arrives or until
///    [`poll_timeout`](Self::poll_timeout), and then calls `handle_timeout`.
///    Calling it too early changes nothing.
/// 4. A query is answered by [`on_answer`](Self::on_answer) once, late, or never; while it is out
///    everything else goes on.
///
/// # Connections
///
/// What travels over a stream travels on a connection. Its life is the same for the one that the
/// core opens and for the one that the driver accepts:
///
/// 1. It begins with [`poll_connect`](Self::poll_connect), by which the core names it, or with
///    [`on_connected`](Self::on_connected), by which the driver does. The first is followed by
///    `on_connected` as well, if it succeeds.
/// 2. After `on_connected` each message that comes on it is an `offer`, cut out of the stream by
///    the driver (`sip::Framer`), with the connection in its flow. The core sends on it by a
///    [`Transmit`] with that flow. A transmit on a stream always names an open connection; the
///    driver drops what names none, and counts it.
/// 3. The driver holds what the system does not take. The core hands out at most [`STREAM_WINDOW`]
///    bytes and one message on a connection, and keeps what goes beyond until
///    [`on_writable`](Self::on_writable). The driver calls that when the system has taken all it was
///    handed for the connection, and it was handed at least half a `STREAM_WINDOW` since it opened
///    or since the last call.
/// 4. It ends with exactly one [`on_closed`](Self::on_closed), also after
///    [`poll_close`](Self::poll_close), and only then is its name free.
///
/// Keep-alives (RFC 5626 §4.4.1) are messages here: a ping is an `offer` or a `Transmit` of CRLF
/// CRLF, a pong one of CRLF. The core answers a ping; the driver takes a CRLF for a pong if it has
/// sent a ping.
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

    /// A connection is open: one that the core asked for, or one that the driver accepted. `flow`
    /// names it, with the addresses of both ends.
    fn on_connected(&mut self, _now: Timestamp, _flow: Flow) {}

    /// A connection is no more, or could not be opened. What was handed out on it may be lost.
    fn on_closed(&mut self, _now: Timestamp, _id: ConnectionId, _cause: CloseCause) {}

    /// The system has taken all that was handed out on a connection: another
    /// [`STREAM_WINDOW`] may follow.
    fn on_writable(&mut self, _now: Timestamp, _id: ConnectionId) {}

    /// How busy the driver was until now, and how full its sockets are. Comes every few
    /// milliseconds while there is anything to do.
    fn on_load(&mut self, _now: Timestamp, _load: Load) {}

    /// An operator wants something changed. `command` is text, of at most
    /// [`COMMAND_MAX`](crate::COMMAND_MAX) bytes, in the words of whoever built the core and gives
    /// the order: it was checked by the same reader before. What is not understood all the same
    /// changes nothing.
    fn on_command(&mut self, _now: Timestamp, _order: &[u8]) {}

    /// What became of a [query](Self::poll_query). One that is not waited for, or no more, changes
    /// nothing.
    fn on_answer(&mut self, _now: Timestamp, _id: QueryId, _answer: QueryAnswer) {}

    /// The process is to stop: admit no new work, finish what is held.
    fn on_drain(&mut self, now: Timestamp);

    /// The next packet to send.
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// The next message that another shard must handle.
    fn poll_handoff(&mut self) -> Option<Handoff> {
        None
    }

    /// The next question to something slow: the DNS, a disk, another machine.
    fn poll_query(&mut self) -> Option<Query> {
        None
    }

    /// The next connection to open.
    fn poll_connect(&mut self) -> Option<Connect> {
        None
    }

    /// The next connection to close, once what was handed out on it before is sent.
    fn poll_close(&mut self) -> Option<ConnectionId> {
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
