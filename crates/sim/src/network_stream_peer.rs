//! A core for tests of streams. It opens connections and sends messages on command.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_world::{Connect, Pool, STREAM_WINDOW};

use super::*;

/// The recorded inputs of a core. They are kept after a crash of the core.
pub(super) type Heard = Rc<RefCell<Vec<(Duration, What)>>>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Connected(Flow),
    Closed(ConnectionId, CloseCause),
    Writable,
    Got(ConnectionId, String),
}

/// An action of a core that a command requests.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// Opens a connection.
    Connect(Transport),
    /// Sends this many requests with a body of this size on the last connection.
    Send(usize, usize),
    /// Sends this text unchanged on the last connection.
    Raw(String),
    /// Closes the last connection.
    Close,
    /// Reads one message, and then no more until the next such command.
    ReadOne,
}

/// A core that opens connections, sends numbered requests within the window, and answers the
/// requests that it gets.
pub(super) struct Peer {
    address: SocketAddr,
    other: SocketAddr,
    pool: Pool,
    next_id: ConnectionId,
    number: usize,
    /// The last open connection.
    flow: Option<Flow>,
    /// Bytes passed to the driver since it last reported the connection as writable.
    handed_out: usize,
    /// Messages not yet passed to the driver.
    waiting: VecDeque<String>,
    transmits: VecDeque<Transmit>,
    connects: VecDeque<Connect>,
    closes: VecDeque<ConnectionId>,
    /// Number of messages that it will read, or `None` if it reads everything.
    reads: Option<usize>,
    heard: Heard,
}

impl Peer {
    pub fn new(address: &str, other: &str, heard: &Heard) -> Self {
        Self {
            address: address.parse().unwrap(),
            other: other.parse().unwrap(),
            pool: Pool::new(),
            next_id: ConnectionId::FIRST_OPENED,
            number: 0,
            flow: None,
            handed_out: 0,
            waiting: VecDeque::new(),
            transmits: VecDeque::new(),
            connects: VecDeque::new(),
            closes: VecDeque::new(),
            reads: None,
            heard: Rc::clone(heard),
        }
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.reads != Some(0)
    }

    fn hear(&self, now: Timestamp, what: What) {
        self.heard.borrow_mut().push((now.since(Timestamp::ZERO), what));
    }

    fn transmit(&mut self, flow: Flow, text: &str) {
        self.transmits.push_back(Transmit::new(flow, self.pool.copy(text.as_bytes())));
    }

    /// Passes waiting messages to the driver until it has [`STREAM_WINDOW`] bytes or more, as the
    /// contract of [`Core`] demands.
    fn hand_out(&mut self) {
        while let Some(flow) = self.flow
            && self.handed_out < STREAM_WINDOW
            && let Some(text) = self.waiting.pop_front()
        {
            self.handed_out += text.len();
            self.transmit(flow, &text);
        }
    }
}

pub(super) fn request(number: usize, body: usize) -> String {
    let body = "x".repeat(body);
    format!("MESSAGE sip:{number} SIP/2.0\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

impl Core for Peer {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.reads = self.reads.map(|reads| reads - 1);
        let text = String::from_utf8(received.bytes.to_vec()).unwrap();
        let answer = match &text[..] {
            "\r\n\r\n" => Some("\r\n"),
            _ if text.starts_with("MESSAGE") => Some("SIP/2.0 200 OK\r\nl: 0\r\n\r\n"),
            _ => None,
        };
        if let Some(answer) = answer {
            self.transmit(received.flow, answer);
        }
        self.hear(now, What::Got(received.flow.connection.unwrap(), text));
    }
    fn handle_timeout(&mut self, _: Timestamp) {}
    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        self.hear(now, What::Connected(flow));
        (self.flow, self.handed_out) = (Some(flow), 0);
        self.hand_out();
    }
    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.hear(now, What::Closed(id, cause));
        if self.flow.is_some_and(|flow| flow.connection == Some(id)) {
            self.flow = None;
            self.waiting.clear();
        }
    }
    fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        self.hear(now, What::Writable);
        if self.flow.is_some_and(|flow| flow.connection == Some(id)) {
            self.handed_out = 0;
            self.hand_out();
        }
    }
    fn on_command(&mut self, _: Timestamp, command: &[u8]) {
        let text = std::str::from_utf8(command).unwrap();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "connect" => {
                let id = self.next_id;
                self.next_id = id.next();
                let transport = Transport::ALL.into_iter().find(|t| t.name() == rest).unwrap();
                let (local, remote) = (self.address, self.other);
                self.connects.push_back(Connect { id, transport, local, remote });
            }
            "send" => {
                let (count, body) = rest.split_once(' ').unwrap();
                for _ in 0..count.parse().unwrap() {
                    self.waiting.push_back(request(self.number, body.parse().unwrap()));
                    self.number += 1;
                }
                self.hand_out();
            }
            "raw" => {
                let flow = self.flow.unwrap_or(Flow {
                    transport: Transport::Tcp,
                    local: self.address,
                    remote: self.other,
                    connection: None,
                });
                self.transmit(flow, rest);
            }
            "read" => self.reads = Some(1),
            _ => self.closes.extend(self.flow.and_then(|flow| flow.connection)),
        }
    }
    fn on_drain(&mut self, _: Timestamp) {}
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }
    fn poll_connect(&mut self) -> Option<Connect> {
        self.connects.pop_front()
    }
    fn poll_close(&mut self) -> Option<ConnectionId> {
        self.closes.pop_front()
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }
    fn is_drained(&self) -> bool {
        true
    }
}
