use std::time::Duration;

use tidegate_world::{Cause, Pool, STREAM_WINDOW, Transport};

use super::ConnectionState::{BackedUp, Closing, Connecting, Open};
use super::*;

const LISTENER: &str = "192.0.2.1:5060";
const PEER: &str = "198.51.100.7:5060";

pub(super) struct Scene {
    pub(super) table: ConnectionTable,
    pub(super) now: Timestamp,
    pool: Pool,
}

impl Scene {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self {
            table: ConnectionTable::new(limits, Arc::default()),
            now: Timestamp::ZERO,
            pool: Pool::new(),
        }
    }

    fn transmit(&self, flow: Flow, text: &str) -> Transmit {
        Transmit::new(flow, self.pool.copy(text.as_bytes()))
    }

    pub(super) fn send(&mut self, flow: Flow, text: &str) -> Result<(), WhyUnsent> {
        let transmit = self.transmit(flow, text);
        self.table.send(self.now, transmit).map_err(|unsent| unsent.why)
    }

    /// Sends a request that begins new work.
    pub(super) fn send_new(&mut self, flow: Flow, text: &str) -> Result<(), WhyUnsent> {
        let transmit = Transmit { is_new_work: true, ..self.transmit(flow, text) };
        self.table.send(self.now, transmit).map_err(|unsent| unsent.why)
    }

    /// Sends a request to a peer that is neither a back end nor a trusted source.
    pub(super) fn send_to_stranger(&mut self, flow: Flow) -> Result<(), WhyUnsent> {
        let transmit = self.transmit(flow, "BYE sip:a@b SIP/2.0\r\n");
        let transmit = Transmit { is_to_stranger: true, ..transmit };
        self.table.send(self.now, transmit).map_err(|unsent| unsent.why)
    }

    /// Returns the messages for the driver: connection and text.
    pub(super) fn sent(&mut self) -> Vec<(u32, String)> {
        std::iter::from_fn(|| self.table.poll_transmit())
            .map(|t| {
                let text = String::from_utf8(t.bytes.to_vec()).unwrap();
                (t.flow.connection.unwrap().get(), text)
            })
            .collect()
    }

    fn unsent(&mut self) -> Vec<(String, WhyUnsent)> {
        std::iter::from_fn(|| self.table.poll_unsent())
            .map(|u| (String::from_utf8(u.transmit.bytes.to_vec()).unwrap(), u.why))
            .collect()
    }

    pub(super) fn closes(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.table.poll_close()).map(ConnectionId::get).collect()
    }

    pub(super) fn connect(&mut self) -> Connect {
        self.table.poll_connect().expect("a connection to open")
    }

    /// Sends a response whose flow names no connection.
    pub(super) fn respond(&mut self, flow: Flow) -> Result<(), WhyUnsent> {
        self.send(flow, "SIP/2.0 200 OK")
    }

    /// Reports that the next requested connection is open.
    pub(super) fn connected(&mut self) -> Flow {
        let Connect { id, transport, remote, .. } = self.connect();
        let flow = Flow::connected(transport, "192.0.2.1:40000".parse().unwrap(), remote, id);
        self.table.on_connected(self.now, flow);
        flow
    }

    /// Opens a connection to the target of `flow`.
    pub(super) fn opened(&mut self, flow: Flow) -> Flow {
        self.send(flow, "first").unwrap();
        let flow = self.connected();
        assert_eq!(self.sent(), [(flow.connection.unwrap().get(), "first".to_owned())]);
        flow
    }

    pub(super) fn accepted(&mut self, number: u32, remote: &str) -> Flow {
        let id = ConnectionId::new(number).unwrap();
        let flow = Flow { connection: Some(id), ..to(remote) };
        self.table.on_connected(self.now, flow);
        flow
    }

    /// Advances time to the next timer and fires it.
    pub(super) fn fire(&mut self) -> Duration {
        let due = self.table.poll_timeout().expect("a timer");
        let passed = due.since(self.now);
        self.now = self.now.max(due);
        self.table.handle_timeout(self.now);
        passed
    }
}

fn scene() -> Scene {
    Scene::new(ConnectionLimits::default())
}

/// Returns a TCP flow to a peer. The flow has no connection id.
pub(super) fn to(remote: &str) -> Flow {
    let [local, remote] = [LISTENER, remote].map(|text| text.parse().unwrap());
    Flow { transport: Transport::Tcp, local, remote, connection: None }
}

fn text(text: &str, why: WhyUnsent) -> (String, WhyUnsent) {
    (text.to_owned(), why)
}

/// RFC 3261 §18.1.1: "If a request is destined to an IP address, port, and transport to which an
/// existing connection is open, it is RECOMMENDED that this connection be used".
#[test]
fn messages_to_a_peer_wait_for_one_connection_and_use_it() {
    let mut scene = scene();
    scene.send(to(PEER), "one").unwrap();
    scene.send(to(PEER), "two").unwrap();
    let Connect { id, transport, local, remote } = scene.connect();
    assert_eq!((id, transport), (ConnectionId::FIRST_OPENED, Transport::Tcp));
    assert_eq!((local, remote), (LISTENER.parse().unwrap(), PEER.parse().unwrap()));
    assert!(scene.table.poll_connect().is_none() && scene.sent().is_empty());
    assert_eq!(scene.table.state(id), Some(Connecting));
    assert_eq!(scene.table.waiting_bytes(), 6);

    let flow = Flow::connected(transport, "192.0.2.1:40000".parse().unwrap(), remote, id);
    scene.table.on_connected(scene.now, flow);
    scene.send(to(PEER), "three").unwrap();
    let first = std::iter::from_fn(|| scene.table.poll_transmit()).next().unwrap();
    assert_eq!(first.flow, flow, "the flow is that of the connection");
    assert_eq!(scene.sent(), [(1, "two".into()), (1, "three".into())]);
    assert_eq!((scene.table.state(id), scene.table.waiting_bytes()), (Some(Open), 0));

    // Another transport, listener, port or address is another target.
    let tls = Flow { transport: Transport::Tls, ..to(PEER) };
    let other = Flow { local: "192.0.2.1:5070".parse().unwrap(), ..to(PEER) };
    for flow in [tls, other, to("198.51.100.7:5070"), to("198.51.100.8:5060")] {
        scene.send(flow, "x").unwrap();
        let connect = scene.connect();
        assert_eq!((connect.transport, connect.local), (flow.transport, flow.local));
        scene.send(flow, "y").unwrap();
        assert!(scene.table.poll_connect().is_none());
    }
    assert_eq!(scene.table.counters().opened.get(), 1);
}

/// RFC 3261 §18.4: "the transport layer SHOULD inform the transport user of a failure in sending."
#[test]
fn messages_for_a_failed_connection_are_returned_with_their_flow() {
    let mut scene = scene();
    scene.send(to(PEER), "one").unwrap();
    scene.send(to(PEER), "two").unwrap();
    let id = scene.connect().id;
    assert_eq!(scene.table.on_closed(id, CloseCause::Refused), None, "it was never in use");
    let unsent: Vec<Unsent> = std::iter::from_fn(|| scene.table.poll_unsent()).collect();
    assert_eq!(unsent.len(), 2);
    assert_eq!(unsent[0].transmit.flow, to(PEER));
    assert_eq!(unsent[0].why, WhyUnsent::Closed(CloseCause::Refused));
    let failure = unsent[1].failure();
    assert_eq!(
        (failure.flow, failure.cause, &failure.quote[..]),
        (to(PEER), Cause::Refused, &b"two"[..])
    );
    assert_eq!((scene.table.len(), scene.table.waiting_bytes()), (0, 0));
    assert_eq!(scene.table.counters().failed.get(), 1);
    // The next message opens a connection again, with another id.
    scene.send(to(PEER), "three").unwrap();
    assert_eq!(scene.connect().id.get(), 3);
}

#[test]
fn a_connection_that_does_not_open_in_time_is_given_up() {
    let mut scene = scene();
    scene.send(to(PEER), "one").unwrap();
    let id = scene.connect().id;
    assert_eq!(scene.fire(), ConnectionLimits::default().connect);
    assert_eq!(scene.unsent(), [text("one", WhyUnsent::Closed(CloseCause::TimedOut))]);
    assert_eq!((scene.closes(), scene.table.state(id)), (vec![1], Some(Closing)));
    // The connection opens too late, and is no longer needed.
    scene.table.on_connected(scene.now, Flow { connection: Some(id), ..to(PEER) });
    assert_eq!(scene.table.state(id), Some(Closing));
    scene.send(to(PEER), "two").unwrap();
    assert_eq!(scene.connect().id.get(), 3, "its name is taken until it is closed");
    assert_eq!(scene.table.on_closed(id, CloseCause::Asked), None);
    assert_eq!(scene.table.counters().failed.get(), 1);
}

/// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of the
/// original request that created the transaction, if that connection is still open."
#[test]
fn a_response_goes_on_its_connection_or_nowhere() {
    let mut scene = scene();
    let flow = scene.accepted(2, "198.51.100.7:51234");
    scene.send(flow, "SIP/2.0 200").unwrap();
    assert_eq!(scene.sent(), [(2, "SIP/2.0 200".into())]);
    let closed = scene.table.on_closed(flow.connection.unwrap(), CloseCause::Ended);
    assert_eq!(closed, None, "no request waits for a response on it");
    assert_eq!(scene.send(flow, "SIP/2.0 200"), Err(WhyUnsent::Gone));
    assert!(scene.table.poll_connect().is_none());
    // The table opens a connection for a flow that names none.
    scene.send(to(PEER), "SIP/2.0 200").unwrap();
    assert_eq!(scene.connect().remote, PEER.parse().unwrap());
}

#[test]
fn unread_messages_wait_and_go_on_in_order() {
    let mut scene = scene();
    let flow = scene.opened(to(PEER));
    let id = flow.connection.unwrap();
    let half = "x".repeat(STREAM_WINDOW / 2);
    for text in [&half[..], &half, "a", "b"] {
        scene.send(flow, text).unwrap();
    }
    assert_eq!(scene.sent().len(), 2, "the second one fills the window");
    assert_eq!((scene.table.state(id), scene.table.waiting_bytes()), (Some(BackedUp), 2));
    scene.table.on_writable(scene.now, id);
    scene.send(flow, "c").unwrap();
    let texts: String = scene.sent().into_iter().map(|sent| sent.1).collect();
    assert_eq!((&texts[..], scene.table.state(id)), ("abc", Some(Open)));
    // When the connection becomes writable, it has a new window.
    scene.table.on_writable(scene.now, id);
    scene.send(flow, &"x".repeat(STREAM_WINDOW - 1)).unwrap();
    assert_eq!(scene.table.state(id), Some(Open));
    scene.send(flow, "x").unwrap();
    assert_eq!(scene.table.state(id), Some(BackedUp));
}

#[test]
fn a_peer_that_reads_nothing_is_closed_however_much_it_sends() {
    let mut scene = scene();
    let flow = scene.opened(to(PEER));
    let id = flow.connection.unwrap();
    scene.send(flow, &"x".repeat(STREAM_WINDOW)).unwrap();
    scene.send(flow, "waits").unwrap();
    scene.now = scene.now + Duration::from_secs(20);
    assert!(scene.table.on_received(scene.now, id));
    while scene.table.state(id) != Some(Closing) {
        scene.fire();
    }
    assert_eq!(scene.now, Timestamp::ZERO + ConnectionLimits::default().stall);
    assert_eq!((scene.closes(), scene.table.counters().stalled.get()), (vec![1], 1));
    assert_eq!(scene.unsent(), [text("waits", WhyUnsent::Closed(CloseCause::TimedOut))]);
    assert_eq!(scene.send(flow, "late"), Err(WhyUnsent::Gone));
    assert!(scene.table.on_received(scene.now, id), "it does not know that it is closed");
}

/// RFC 3261 §18: "it is RECOMMENDED that connections be kept open for some implementation-defined
/// duration after the last message was sent or received over that connection."
#[test]
fn an_idle_connection_is_closed() {
    let limits = ConnectionLimits::default();
    let mut scene = scene();
    let silent = scene.accepted(2, "198.51.100.7:1");
    let talking = scene.accepted(4, "198.51.100.7:2");
    assert!(scene.table.on_received(scene.now, talking.connection.unwrap()));
    assert_eq!(scene.fire(), limits.first);
    assert_eq!(scene.closes(), [silent.connection.unwrap().get()]);
    // The time counts from the last message, received or sent.
    let later = Timestamp::ZERO + limits.idle / 2;
    scene.now = later;
    scene.send(talking, "x").unwrap();
    while scene.closes().is_empty() {
        scene.fire();
    }
    assert_eq!(scene.now, later + limits.idle);
    for flow in [silent, talking] {
        scene.table.on_closed(flow.connection.unwrap(), CloseCause::Asked);
    }
    assert_eq!(scene.table.counters().idle.get(), 2);
    assert_eq!(scene.table.len(), 0);
}

/// By default, the limits for the first message and for the rest of a message are equal.
#[test]
fn a_connection_that_was_closed_within_its_first_message_does_not_count_as_idle() {
    let mut scene = scene();
    let peers = [2, 4, 6].map(|id| scene.accepted(id, "198.51.100.7:1"));
    assert_eq!(scene.fire(), ConnectionLimits::default().first);
    assert_eq!(scene.closes().len(), 3);
    let causes = [CloseCause::TimedOut, CloseCause::Asked, CloseCause::Ended];
    for (flow, cause) in peers.into_iter().zip(causes) {
        scene.table.on_closed(flow.connection.unwrap(), cause);
    }
    assert_eq!(scene.table.counters().idle.get(), 2);
    // Other connections are closed for other reasons.
    let asked = scene.accepted(2, "198.51.100.7:1").connection.unwrap();
    scene.table.close(asked);
    scene.table.on_closed(asked, CloseCause::Asked);
    assert_eq!(scene.table.counters().idle.get(), 2);
}

#[test]
fn queues_are_bounded_and_overflows_are_counted() {
    let limits = ConnectionLimits {
        waiting_max: 3,
        waiting_bytes_max: 10,
        total_bytes_max: 12,
        ..ConnectionLimits::default()
    };
    let mut scene = Scene::new(limits);
    for _ in 0..3 {
        scene.send(to(PEER), "x").unwrap();
    }
    assert_eq!(scene.send(to(PEER), "x"), Err(WhyUnsent::NoRoom), "too many messages");
    scene.send(to("198.51.100.8:5060"), "1234567").unwrap();
    assert_eq!(
        scene.send(to("198.51.100.8:5060"), "1234"),
        Err(WhyUnsent::NoRoom),
        "too many bytes"
    );
    assert_eq!(scene.send(to("198.51.100.9:5060"), "123"), Err(WhyUnsent::NoRoom), "all together");
    scene.send(to("198.51.100.9:5060"), "12").unwrap();
    assert_eq!(scene.table.counters().overflow.get(), 3);
    assert_eq!(scene.table.waiting_bytes(), 12);
    // A message that is sent at once needs no room in the queue.
    let open = scene.accepted(2, "198.51.100.10:1");
    scene.send(open, "a message that is longer than any queue").unwrap();
    assert_eq!(scene.sent().len(), 1);
}

#[test]
fn connections_are_bounded_by_kind_and_by_remote_address() {
    let limits = ConnectionLimits {
        opened_max: 2,
        accepted_max: 3,
        per_remote_max: 2,
        ..ConnectionLimits::default()
    };
    let mut scene = Scene::new(limits);
    for (number, remote) in [(2, "[2001:db8::1]:1"), (4, "[2001:db8::2]:1")] {
        scene.accepted(number, remote);
    }
    assert!(scene.closes().is_empty());
    let excess = scene.accepted(6, "[2001:db8::3]:1");
    assert_eq!(scene.closes(), [6], "the network of 64 bits counts");
    assert_eq!(scene.send(excess, "x"), Err(WhyUnsent::Gone));
    assert!(!scene.table.on_received(scene.now, excess.connection.unwrap()));
    assert_eq!(scene.table.on_closed(excess.connection.unwrap(), CloseCause::Asked), None);
    scene.accepted(8, "198.51.100.7:1");
    scene.accepted(10, "198.51.100.8:1");
    assert_eq!(scene.closes(), [10], "as many as may be accepted");

    // The limit on accepted connections from a peer does not apply to connections opened to it.
    scene.send(to("[2001:db8::1]:5060"), "x").unwrap();
    scene.send(to("198.51.100.9:9"), "x").unwrap();
    assert_eq!(scene.send(to("198.51.100.10:9"), "x"), Err(WhyUnsent::TooMany), "as may be opened");
    assert_eq!(scene.table.counters().excess.get(), 3);
    let id = scene.connect().id;
    scene.table.on_closed(id, CloseCause::Refused);
    scene.send(to("198.51.100.7:9"), "x").unwrap();
}

/// RFC 5626 §4.4.1: "the server "pong" is a single CRLF".
#[test]
fn a_ping_is_answered_unless_the_peer_has_more_to_read() {
    let mut scene = scene();
    let flow = scene.accepted(2, PEER);
    let id = flow.connection.unwrap();
    let pong = scene.pool.copy(b"\r\n");
    scene.table.on_ping(scene.now, id, pong.clone());
    assert_eq!(scene.sent(), [(2, "\r\n".into())]);
    scene.send(flow, &"x".repeat(STREAM_WINDOW)).unwrap();
    scene.sent();
    scene.table.on_ping(scene.now, id, pong.clone());
    assert!(scene.sent().is_empty() && scene.table.waiting_bytes() == 0);
    assert_eq!(scene.table.counters().pongs_saved.get(), 1);
    scene.table.on_ping(scene.now, ConnectionId::new(4).unwrap(), pong);
    assert!(scene.sent().is_empty());
}

#[test]
fn a_connection_that_is_closed_sends_what_was_handed_out_and_returns_the_rest() {
    let mut scene = scene();
    let flow = scene.opened(to(PEER));
    let id = flow.connection.unwrap();
    scene.send(to(PEER), &"x".repeat(STREAM_WINDOW)).unwrap();
    scene.send(to(PEER), "waits").unwrap();
    scene.table.close(id);
    scene.table.close(id);
    assert_eq!((scene.sent().len(), scene.closes()), (1, vec![1]));
    assert_eq!(scene.unsent(), [text("waits", WhyUnsent::Closed(CloseCause::Asked))]);
    scene.table.on_writable(scene.now, id);
    assert_eq!(scene.table.state(id), Some(Closing));
    scene.send(to(PEER), "new").unwrap();
    assert_eq!(scene.connect().id.get(), 3);
    // If the connection ends before the driver takes the request to close it, the request is
    // dropped.
    let other = scene.accepted(2, PEER);
    scene.table.close(other.connection.unwrap());
    scene.table.on_closed(other.connection.unwrap(), CloseCause::Reset);
    assert!(scene.closes().is_empty());
}

/// The core must get messages, and the end of a connection, with the address of a listener as local
/// address.
#[test]
fn a_connection_without_a_target_still_belongs_to_its_listener() {
    let mut scene = scene();
    let listener = LISTENER.parse().unwrap();
    let closed = scene.opened(to(PEER));
    let id = closed.connection.unwrap();
    scene.table.close(id);
    assert_eq!(scene.table.local(id), Some(listener));
    let inside = Flow { local: listener, ..closed };
    assert_eq!(scene.table.on_closed(id, CloseCause::Asked), Some((inside, false)));
}

#[test]
fn timers_of_ended_connections_are_not_kept() {
    let mut scene = scene();
    for round in 0..10_000 {
        let flow = scene.accepted(2 + 2 * round, "198.51.100.7:1");
        scene.table.on_received(scene.now, flow.connection.unwrap());
        scene.table.on_closed(flow.connection.unwrap(), CloseCause::Ended);
    }
    assert!(scene.table.timers.len() <= 100, "{}", scene.table.timers.len());
}

#[test]
fn ids_wrap_after_the_last_one_and_skip_ids_in_use() {
    let mut scene = scene();
    scene.send(to(PEER), "x").unwrap();
    assert_eq!(scene.connect().id, ConnectionId::FIRST_OPENED);
    scene.table.next_id = ConnectionId::new(u32::MAX).unwrap();
    for (port, number) in [(1, u32::MAX), (2, 3), (3, 5)] {
        scene.send(to(&format!("198.51.100.8:{port}")), "x").unwrap();
        assert_eq!(scene.connect().id.get(), number);
    }
}
