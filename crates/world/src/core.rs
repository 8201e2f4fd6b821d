//! The contract between a core and its driver.

use crate::{
    CloseCause, Connect, ConnectionId, Failure, Flow, Load, Query, QueryAnswer, QueryId, Received,
    Shedding, Timestamp, Transmit, Work,
};

/// Maximum length of an operator's command in bytes. This is enough for a configuration of about
/// 200,000 back ends.
pub const COMMAND_MAX: usize = 16 << 20;

/// Maximum number of bytes that a core hands out on one connection before it gets
/// [`Core::on_writable`]. The message that reaches this number is handed out whole, so the sum may
/// be larger.
pub const STREAM_WINDOW: usize = 64 * 1024;

/// An input for the core of another shard of the same process.
#[derive(Debug)]
pub struct Handoff {
    /// Number of the shard whose core gets the input.
    pub shard: u16,
    /// The input.
    pub input: HandoffInput,
}

/// An input that one shard passes to the core of another shard, the receiving shard.
#[derive(Debug)]
pub enum HandoffInput {
    /// A message that belongs to a transaction or call of the receiving shard, to be
    /// [offered](Core::offer) there.
    Received(Received),
    /// A message to send on a connection of the receiving shard ([`Core::on_transmit`]).
    Transmit(Transmit),
    /// A report that a message sent by the receiving shard could not be delivered
    /// ([`Core::on_failed`]).
    Failure(Failure),
}

/// A pure state machine, to which a driver passes time and packets.
///
/// # The contract
///
/// 1. The driver calls one *input* function (`offer`, `serve`, `handle_timeout`, `on_failed`,
///    `on_transmit`, `on_connected`, `on_closed`, `on_writable`, `on_load`, `on_command`,
///    `on_answer`, `on_drain`) with a `now` that never goes back.
/// 2. After an input, the driver drains the *outputs*: [`poll_transmit`](Self::poll_transmit),
///    [`poll_handoff`](Self::poll_handoff), [`poll_query`](Self::poll_query),
///    [`poll_connect`](Self::poll_connect) and [`poll_close`](Self::poll_close), in this order,
///    until they yield nothing. It does so before the next input whose outcome could depend on
///    these outputs. A driver may gather the outputs of several inputs into one batch, but keeps
///    their order.
/// 3. When the driver has nothing else to do, it sleeps until a packet arrives or until the time of
///    [`poll_timeout`](Self::poll_timeout). At that time it calls `handle_timeout`. An early call
///    of `handle_timeout` changes nothing.
/// 4. The driver answers a query by [`on_answer`](Self::on_answer) at most once, possibly late, and
///    possibly never. The core does all other work meanwhile.
///
/// # Connections
///
/// Messages over a stream travel on a connection. Connections opened by the core and connections
/// accepted by the driver go through the same steps:
///
/// 1. A connection that the core opens begins with [`poll_connect`](Self::poll_connect), which
///    returns its name. If it can be opened, [`on_connected`](Self::on_connected) follows. A
///    connection that the driver accepts begins with `on_connected`, which passes its name.
/// 2. After `on_connected`, the driver cuts the arriving bytes into messages (`sip::Framer`). It
///    passes each message to `offer`, with the connection in its flow. The core sends on the
///    connection by a [`Transmit`] with that flow. A transmit on a stream always names an open
///    connection of the same shard. The driver drops and counts any other transmit on a stream. A
///    core sends on a connection of another shard by [`poll_handoff`](Self::poll_handoff).
/// 3. The driver buffers the bytes that the operating system does not accept yet. The core hands
///    out at most [`STREAM_WINDOW`] bytes and one message on a connection, and keeps further
///    messages until [`on_writable`](Self::on_writable). The driver calls this function when the
///    operating system has accepted all bytes of the connection, and the core has handed out at
///    least half a `STREAM_WINDOW` since the connection opened or since the driver last called this
///    function.
/// 4. A connection ends with exactly one [`on_closed`](Self::on_closed), also after
///    [`poll_close`](Self::poll_close). Only then may its name be used for another connection.
///
/// Keep-alives (RFC 5626 §4.4.1) are messages here: a ping has the bytes CRLF CRLF, and a pong has
/// the bytes CRLF. Each is an `offer` when it arrives, and a `Transmit` when it is sent. The core
/// answers a ping. The driver treats a single CRLF as a pong if it has sent a ping.
///
/// The inputs are few on purpose. A core knows nothing except its inputs, so a record of the inputs
/// ([`Recorder`](crate::Recorder)) is enough to repeat a run. A core that wraps another core, or is
/// an enum of several cores, passes the inputs on by [`delegate!`](crate::delegate!).
pub trait Core {
    /// Takes a packet that has arrived. The core classifies the packet, and then queues, drops or
    /// rejects it, or hands it off to another shard. The work is bounded and cheap.
    fn offer(&mut self, now: Timestamp, received: Received);

    /// Serves one queued message. Returns `false` if no message was waiting, as always in a core
    /// that handles each message in [`offer`](Self::offer).
    fn serve(&mut self, _now: Timestamp) -> bool {
        false
    }

    /// Fires expired timers.
    fn handle_timeout(&mut self, now: Timestamp);

    /// Reports that a packet could not be delivered.
    fn on_failed(&mut self, _now: Timestamp, _failure: Failure) {}

    /// Sends a message that another shard has handed off, on a connection of this shard. A core
    /// without connections drops the message.
    fn on_transmit(&mut self, _now: Timestamp, _transmit: Transmit) {}

    /// Reports that a connection is open. Either the core asked for the connection, or the driver
    /// accepted it. `flow` contains the name of the connection and the addresses of both ends.
    fn on_connected(&mut self, _now: Timestamp, _flow: Flow) {}

    /// Reports that a connection has ended, or could not be opened. Data that the core handed out
    /// on the connection may be lost.
    fn on_closed(&mut self, _now: Timestamp, _id: ConnectionId, _cause: CloseCause) {}

    /// Reports that the operating system has accepted all bytes that the core handed out on a
    /// connection. The core may hand out another [`STREAM_WINDOW`] of bytes.
    fn on_writable(&mut self, _now: Timestamp, _id: ConnectionId) {}

    /// Reports how busy the driver was until now, and how full its sockets are. The driver calls
    /// this every few milliseconds while it has any work.
    fn on_load(&mut self, _now: Timestamp, _load: Load) {}

    /// Executes an operator's command. `command` is text of at most [`COMMAND_MAX`] bytes. The code
    /// that built the core defines the language of the commands, validates each command, and sends
    /// it. An invalid command changes nothing.
    fn on_command(&mut self, _now: Timestamp, _command: &[u8]) {}

    /// Reports the result of a [query](Self::poll_query). A result that the core does not wait for
    /// changes nothing.
    fn on_answer(&mut self, _now: Timestamp, _id: QueryId, _answer: QueryAnswer) {}

    /// Starts draining: the core admits no new work and finishes the existing work.
    fn on_drain(&mut self, now: Timestamp);

    /// Returns the next packet to send, if there is one.
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// Returns the next input for the core of another shard, if there is one.
    fn poll_handoff(&mut self) -> Option<Handoff> {
        None
    }

    /// Returns the next query to a slow service (the DNS, a disk, another machine), if there is
    /// one.
    fn poll_query(&mut self) -> Option<Query> {
        None
    }

    /// Returns the next connection to open, if there is one.
    fn poll_connect(&mut self) -> Option<Connect> {
        None
    }

    /// Returns the next connection to close, if there is one. The driver first sends everything
    /// that the core has handed out on the connection, and then closes it.
    fn poll_close(&mut self) -> Option<ConnectionId> {
        None
    }

    /// Returns rules for dropping datagrams before the core gets them. The driver calls this at
    /// each [`on_load`](Self::on_load), and applies the rules until the next `on_load`. While a
    /// core wants datagrams dropped, it also keeps a timer set. Otherwise the driver would not call
    /// this function again until a packet arrives.
    fn poll_shedding(&self) -> &Shedding {
        const { &Shedding::NONE }
    }

    /// Returns the kind of work that the last `offer` or `serve` did. An emulated processor charges
    /// time for this work.
    fn last_work(&self) -> Work {
        Work::default()
    }

    /// Returns the time at which `handle_timeout` is next needed, or `None` if no timer is armed.
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// Returns whether the core has finished all work after `on_drain`, so that stopping it loses
    /// nothing.
    fn is_drained(&self) -> bool;
}
