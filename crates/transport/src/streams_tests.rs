use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{Cause, STREAM_WINDOW, Transport};

use super::*;

const LISTENER: &str = "192.0.2.1:5060";
const PEER: &str = "198.51.100.7:5060";

/// A core that records its inputs and sends the messages it is given.
#[derive(Default)]
struct Inside {
    offered: Vec<(Flow, String)>,
    failed: Vec<(Flow, Cause, String)>,
    ended: Vec<(u32, CloseCause)>,
    out: VecDeque<Transmit>,
    connects: VecDeque<Connect>,
    closes: VecDeque<ConnectionId>,
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Core for Inside {
    fn offer(&mut self, _: Timestamp, received: Received) {
        self.offered.push((received.flow, string(&received.bytes)));
    }
    fn handle_timeout(&mut self, _: Timestamp) {}
    fn on_failed(&mut self, _: Timestamp, failure: Failure) {
        self.failed.push((failure.flow, failure.cause, string(&failure.quote)));
    }
    fn on_closed(&mut self, _: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.ended.push((id.get(), cause));
    }
    fn on_drain(&mut self, _: Timestamp) {}
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
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

struct Scene {
    streams: Streams<Inside>,
    now: Timestamp,
    pool: Pool,
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns a response to a peer that listens at `via`.
fn response(via: &str) -> String {
    format!("SIP/2.0 200 OK\r\nVia: SIP/2.0/TCP {via};branch=z9hG4bKa\r\n\r\n")
}

/// Returns a TCP flow to a peer. The flow has no connection id.
fn to(remote: &str) -> Flow {
    Flow { transport: Transport::Tcp, local: at(LISTENER), remote: at(remote), connection: None }
}

impl Scene {
    fn new() -> Self {
        Self::within(ConnectionLimits::default())
    }

    fn within(limits: ConnectionLimits) -> Self {
        let streams = Streams::new(Inside::default(), limits, Pool::new());
        Self { streams, now: Timestamp::ZERO, pool: Pool::new() }
    }

    /// Lets the core send a message.
    fn send(&mut self, flow: Flow, text: &str) {
        let bytes = self.pool.copy(text.as_bytes());
        self.streams.core.out.push_back(Transmit::new(flow, bytes));
        self.streams.serve(self.now);
    }

    /// Returns the messages for the driver: connection, or 0 for none, and text.
    fn sent(&mut self) -> Vec<(u32, String)> {
        let transmits = std::iter::from_fn(|| self.streams.poll_transmit());
        let number = |flow: Flow| flow.connection.map_or(0, ConnectionId::get);
        transmits.map(|t| (number(t.flow), string(&t.bytes))).collect()
    }

    /// Opens the next requested connection.
    fn open(&mut self) -> Flow {
        let Connect { id, transport, remote, .. } = self.streams.poll_connect().expect("one");
        let flow = Flow::connected(transport, at("192.0.2.1:40000"), remote, id);
        self.streams.on_connected(self.now, flow);
        flow
    }

    /// Lets the core open a connection with this id. Returns the flow of messages on it.
    fn name(&mut self, number: u32) -> Flow {
        let id = ConnectionId::new(number).unwrap();
        let Flow { transport, local, remote, .. } = to(PEER);
        self.streams.core.connects.push_back(Connect { id, transport, local, remote });
        Flow { connection: Some(id), ..to(PEER) }
    }

    fn accept(&mut self, number: u32, remote: &str) -> Flow {
        let flow = Flow { connection: ConnectionId::new(number), ..to(remote) };
        self.streams.on_connected(self.now, flow);
        flow
    }

    fn offer(&mut self, flow: Flow, text: &str) {
        let received = Received::new(self.now, flow, self.pool.copy(text.as_bytes()));
        self.streams.offer(self.now, received);
    }
}

#[test]
fn messages_on_an_opened_connection_have_the_address_of_its_listener() {
    let mut scene = Scene::new();
    scene.send(to(PEER), "INVITE");
    let flow = scene.open();
    assert_eq!(scene.sent(), [(1, "INVITE".into())]);
    scene.offer(flow, "SIP/2.0 100");
    let inside = Flow { local: at(LISTENER), ..flow };
    assert_eq!(scene.streams.core.offered, [(inside, "SIP/2.0 100".into())]);
}

/// The socket of an opened connection has another local address, which the core does not know.
#[test]
fn messages_on_a_connection_that_is_being_closed_have_the_address_of_its_listener() {
    let mut scene = Scene::new();
    scene.send(to(PEER), "INVITE");
    let flow = scene.open();
    scene.streams.core.closes.push_back(flow.connection.unwrap());
    scene.streams.serve(scene.now);
    assert_eq!(scene.streams.poll_close(), flow.connection);
    scene.offer(flow, "SIP/2.0 100");
    scene.streams.on_closed(scene.now, flow.connection.unwrap(), CloseCause::Asked);
    let inside = Flow { local: at(LISTENER), ..flow };
    assert_eq!(scene.streams.core.offered, [(inside, "SIP/2.0 100".into())]);
    assert_eq!(scene.streams.core.failed, [(inside, Cause::Closed, String::new())]);
}

#[test]
fn datagrams_pass_as_they_are() {
    let mut scene = Scene::new();
    let flow = Flow::udp(at(LISTENER), at(PEER));
    scene.offer(flow, "INVITE");
    assert_eq!(scene.streams.core.offered, [(flow, "INVITE".into())]);
    scene.send(flow, "SIP/2.0 200");
    assert_eq!(scene.sent(), [(0, "SIP/2.0 200".into())]);
    assert!(scene.streams.poll_connect().is_none());
}

/// RFC 5626 §4.4.1: "the server responds with a single CRLF".
#[test]
fn a_ping_is_answered_and_the_core_sees_neither_it_nor_a_pong() {
    let mut scene = Scene::new();
    let flow = scene.accept(2, "198.51.100.9:31000");
    scene.offer(flow, "\r\n\r\n");
    assert_eq!(scene.sent(), [(2, "\r\n".into())]);
    scene.offer(flow, "\r\n");
    assert!(scene.sent().is_empty() && scene.streams.core.offered.is_empty());
}

/// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to
/// the IP address in the "received" parameter".
#[test]
fn a_response_may_use_another_connection_but_a_request_may_not() {
    let mut scene = Scene::new();
    let gone = Flow { connection: ConnectionId::new(2), ..to(PEER) };
    let answer = response("10.1.1.1:5070;received=198.51.100.7;rport=4000");
    scene.send(gone, &answer);
    let opened = scene.open();
    assert_eq!((opened.remote, scene.sent()), (at("198.51.100.7:5070"), vec![(1, answer)]));
    assert!(scene.streams.core.failed.is_empty());

    scene.send(gone, "BYE");
    assert!(scene.streams.poll_connect().is_none() && scene.sent().is_empty());
    assert_eq!(scene.streams.core.failed, [(gone, Cause::Gone, "BYE".into())]);
}

/// RFC 3261 §18.1.1: "If a request is destined to an IP address, port, and transport to which an
/// existing connection is open, it is RECOMMENDED that this connection be used".
#[test]
fn a_request_that_may_reconnect_uses_another_connection_if_its_own_is_gone() {
    let mut scene = Scene::new();
    let gone = Flow { connection: ConnectionId::new(2), ..to(PEER) };
    let send = |scene: &mut Scene, text: &str| {
        let transmit = Transmit::new(gone, scene.pool.copy(text.as_bytes()));
        scene.streams.core.out.push_back(Transmit { may_reconnect: true, ..transmit });
        scene.streams.serve(scene.now);
    };
    send(&mut scene, "INVITE");
    let opened = scene.open();
    assert_eq!((opened.remote, scene.sent()), (at(PEER), vec![(1, "INVITE".into())]));
    send(&mut scene, "ACK");
    assert_eq!(scene.sent(), [(1, "ACK".into())]);
    assert!(scene.streams.core.failed.is_empty());

    scene.accept(2, PEER);
    send(&mut scene, "BYE");
    assert_eq!(scene.sent(), [(2, "BYE".into())], "its own connection exists");
}

#[test]
fn a_request_that_cannot_reconnect_is_reported_once() {
    let mut scene = Scene::new();
    let gone = Flow { connection: ConnectionId::new(2), ..to(PEER) };
    let transmit = Transmit::new(gone, scene.pool.copy(b"BYE"));
    scene.streams.core.out.push_back(Transmit { may_reconnect: true, ..transmit });
    scene.streams.serve(scene.now);
    let Connect { id, .. } = scene.streams.poll_connect().expect("a connection to open");
    scene.streams.on_closed(scene.now, id, CloseCause::Refused);
    assert_eq!(scene.streams.core.failed, [(to(PEER), Cause::Refused, "BYE".into())]);
    assert!(scene.streams.poll_connect().is_none(), "it is tried once");
}

#[test]
fn a_response_that_no_other_connection_takes_is_given_up() {
    let mut scene = Scene::new();
    let gone = Flow { connection: ConnectionId::new(2), ..to(PEER) };
    scene.send(gone, &response(PEER));
    let Connect { id, .. } = scene.streams.poll_connect().expect("a connection to open");
    scene.streams.on_closed(scene.now, id, CloseCause::Refused);
    assert_eq!(scene.streams.core.failed, [(to(PEER), Cause::Refused, response(PEER))]);
    assert!(scene.streams.poll_connect().is_none(), "it is tried once");
}

/// The core does not know the connection of a request if the callee has removed the name of the
/// connection from our Via, or if the request came to the previous process.
#[test]
fn early_closers_and_unknown_connections_leave_most_of_the_connections_to_others() {
    let limits = ConnectionLimits { opened_max: 8, ..ConnectionLimits::default() };
    for is_known in [true, false] {
        let mut scene = Scene::within(limits);
        for host in 1..=9 {
            let via = format!("198.51.100.{host}:5060");
            let flow = match is_known {
                true => Flow { connection: ConnectionId::new(2), ..to(PEER) },
                false => to(&via),
            };
            scene.send(flow, &response(&via));
        }
        let opened = std::iter::from_fn(|| scene.streams.poll_connect()).count();
        assert_eq!(opened, 2, "{is_known}");
        scene.send(to(PEER), "INVITE");
        assert!(scene.streams.poll_connect().is_some(), "{is_known}: a request finds a place");
    }
}

#[test]
fn the_core_learns_of_the_end_of_a_connection() {
    let mut scene = Scene::new();
    scene.send(to(PEER), "INVITE");
    let flow = scene.open();
    scene.streams.on_closed(scene.now, flow.connection.unwrap(), CloseCause::Reset);
    let inside = Flow { local: at(LISTENER), ..flow };
    assert_eq!(scene.streams.core.failed, [(inside, Cause::Closed, String::new())]);
}

/// Strangers can open and end very many connections. So the core learns only of the end of those on
/// which a request may wait for its response.
#[test]
fn the_core_does_not_learn_of_the_end_of_a_connection_without_requests() {
    for text in ["\r\n\r\n", "OPTIONS"] {
        let mut scene = Scene::new();
        let flow = scene.accept(2, "198.51.100.9:31000");
        scene.offer(flow, text);
        scene.send(flow, "SIP/2.0 200");
        assert!(!scene.sent().is_empty());
        scene.streams.on_closed(scene.now, flow.connection.unwrap(), CloseCause::Ended);
        assert!(scene.streams.core.failed.is_empty(), "{text}");
    }
}

#[test]
fn waiting_messages_delay_the_drain_and_expire() {
    let mut scene = Scene::new();
    scene.send(to(PEER), "INVITE");
    assert!(!scene.streams.is_drained());
    let due = scene.streams.poll_timeout().expect("a timer");
    assert_eq!(due, scene.now + Duration::from_secs(4));
    scene.streams.handle_timeout(due);
    assert_eq!(scene.streams.core.failed, [(to(PEER), Cause::Unreachable, "INVITE".into())]);
    assert!(scene.streams.is_drained() && scene.streams.poll_close().is_some());
}

#[test]
fn the_core_opens_and_closes_connections_of_its_own() {
    let mut scene = Scene::new();
    let (first, second) = (scene.name(1), scene.name(3));
    scene.send(first, "INVITE 1");
    scene.send(second, "INVITE 2");
    scene.send(to(PEER), "INVITE 3");
    let opened = [scene.open(), scene.open(), scene.open()];
    assert_eq!(opened.map(|flow| flow.connection.unwrap().get()), [1, 3, 5]);
    let sent = [(1, "INVITE 1".into()), (3, "INVITE 2".into()), (5, "INVITE 3".into())];
    assert_eq!(scene.sent(), sent);
    scene.offer(opened[0], "SIP/2.0 200");
    assert_eq!(scene.streams.core.offered, [(first, "SIP/2.0 200".into())]);

    // The core closes a connection after its last message. This end is not a failure.
    scene.streams.core.closes.push_back(first.connection.unwrap());
    scene.send(first, "BYE 1");
    assert_eq!(scene.sent(), [(1, "BYE 1".into())]);
    assert_eq!(scene.streams.poll_close(), first.connection);
    scene.streams.on_closed(scene.now, first.connection.unwrap(), CloseCause::Asked);
    assert!(scene.streams.core.failed.is_empty());
    assert_eq!(scene.streams.core.ended, [(1, CloseCause::Asked)]);

    // Any other end is a failure.
    scene.streams.on_closed(scene.now, second.connection.unwrap(), CloseCause::Reset);
    assert_eq!(scene.streams.core.failed, [(second, Cause::Closed, String::new())]);
    assert_eq!(scene.streams.core.ended[1..], [(3, CloseCause::Reset)]);
    // The end of a named connection does not affect the table's own connection to the peer.
    scene.send(to(PEER), "OPTIONS");
    assert_eq!(scene.sent(), [(5, "OPTIONS".into())]);
}

#[test]
fn the_core_learns_at_once_that_its_connection_cannot_be_opened() {
    let mut scene =
        Scene::within(ConnectionLimits { opened_max: 1, ..ConnectionLimits::default() });
    let first = scene.name(1);
    scene.send(first, "INVITE 1");
    // The first id is in use. For the second connection, the table has no room.
    for number in [1, 3] {
        let flow = scene.name(number);
        scene.send(flow, "INVITE 2");
    }
    assert_eq!(scene.streams.core.ended, [(1, CloseCause::Other), (3, CloseCause::Other)]);
    let flow = Flow { connection: ConnectionId::new(3), ..to(PEER) };
    assert_eq!(scene.streams.core.failed, [(flow, Cause::Gone, "INVITE 2".into())]);
    scene.open();
    assert_eq!(scene.sent(), [(1, "INVITE 1".into()), (1, "INVITE 2".into())]);
}

fn shard(index: u16) -> ShardIndex {
    ShardIndex::new(index, 4)
}

fn in_shard(index: u16) -> Scene {
    let mut scene = Scene::new();
    scene.streams = scene.streams.in_shard(shard(index));
    scene
}

/// Returns the number of the first connection that a shard accepts.
fn accepted(index: u16) -> u32 {
    ConnectionId::first_accepted(shard(index)).get()
}

/// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of the
/// original request that created the transaction, if that connection is still open."
#[test]
fn a_message_on_a_connection_of_another_shard_is_sent_there() {
    let (mut here, mut there) = (in_shard(0), in_shard(3));
    let flow = there.accept(accepted(3), PEER);
    here.send(flow, "SIP/2.0 200");
    assert!(here.sent().is_empty() && here.streams.core.failed.is_empty());
    assert!(!here.streams.is_drained(), "the message would be lost");
    let handoff = here.streams.poll_handoff().expect("one");
    assert_eq!(handoff.shard, 3);
    assert!(here.streams.is_drained() && here.streams.poll_handoff().is_none());
    let HandoffInput::Transmit(transmit) = handoff.input else { panic!("{handoff:?}") };
    there.streams.on_transmit(there.now, transmit);
    assert_eq!(there.sent(), [(accepted(3), "SIP/2.0 200".into())]);
}

/// If the other shard rejected new work, it would need another handoff to report this.
#[test]
fn new_work_on_a_connection_of_another_shard_waits_there() {
    let mut here = in_shard(0);
    let flow = Flow { connection: ConnectionId::new(accepted(3)), ..to(PEER) };
    let invite = Transmit::new(flow, here.pool.copy(b"INVITE"));
    here.streams.core.out.push_back(Transmit { is_new_work: true, ..invite });
    here.streams.serve(here.now);
    let handoff = here.streams.poll_handoff().expect("one");
    let HandoffInput::Transmit(transmit) = handoff.input else { panic!("{handoff:?}") };
    assert!(!transmit.is_new_work);
}

/// RFC 3261 §18.4: "If the transport user asks for a request to be sent over a reliable transport,
/// and the result is a connection failure, the transport layer SHOULD inform the transport user of
/// a failure in sending."
#[test]
fn the_core_learns_at_once_that_a_peer_reads_too_slowly_for_new_work() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        scene.send(to(PEER), &"x".repeat(STREAM_WINDOW / 2));
    }
    scene.open();
    assert_eq!(scene.sent().len(), 2);
    scene.now = scene.now + Duration::from_secs(1);
    let invite = Transmit::new(to(PEER), scene.pool.copy(b"INVITE"));
    scene.streams.core.out.push_back(Transmit { is_new_work: true, ..invite });
    scene.send(to(PEER), "BYE");
    assert_eq!(scene.streams.core.failed, [(to(PEER), Cause::BackedUp, "INVITE".into())]);
    assert_eq!(scene.streams.connections().waiting_bytes(), 3, "the BYE waits");
}

#[test]
fn the_shard_of_a_connection_that_is_gone_learns_of_the_unsent_message() {
    let mut there = in_shard(3);
    let flow = Flow { connection: ConnectionId::new(accepted(3)), ..to(PEER) };
    let transmit = Transmit::new(flow, there.pool.copy(b"INVITE"));
    there.streams.on_transmit(there.now, transmit);
    assert_eq!(there.streams.core.failed, [(flow, Cause::Gone, "INVITE".into())]);
    assert!(there.streams.poll_handoff().is_none() && there.sent().is_empty());
}

#[test]
fn a_message_that_another_shard_has_received_passes_unchanged() {
    let mut here = in_shard(0);
    let flow = Flow { connection: ConnectionId::new(accepted(3)), ..to(PEER) };
    here.offer(flow, "BYE");
    assert_eq!(here.streams.core.offered, [(flow, "BYE".into())]);
}

#[test]
fn each_shard_opens_connections_under_names_of_its_own() {
    let mut there = in_shard(3);
    there.send(to(PEER), "INVITE");
    let flow = there.open();
    let id = ConnectionId::first_opened(shard(3));
    assert_eq!(flow.connection, Some(id));
    assert_eq!(there.sent(), [(id.get(), "INVITE".into())]);
}

/// RFC 3261 §18.4: "If the transport user asks for a request to be sent over a reliable transport,
/// and the result is a connection failure, the transport layer SHOULD inform the transport user of
/// a failure in sending."
#[test]
fn the_end_of_a_connection_is_reported_to_the_shards_that_may_have_sent_requests_on_it() {
    for (text, is_told) in [("", false), ("SIP/2.0 200 OK\r\n", false), ("INVITE", true)] {
        let mut there = in_shard(1);
        let flow = there.accept(accepted(1), PEER);
        there.send(flow, "SIP/2.0 200");
        if !text.is_empty() {
            let transmit = Transmit::new(flow, there.pool.copy(text.as_bytes()));
            there.streams.on_transmit(there.now, transmit);
        }
        there.streams.on_closed(there.now, flow.connection.unwrap(), CloseCause::Reset);
        let own = is_told.then(|| (flow, Cause::Closed, String::new()));
        assert_eq!(there.streams.core.failed, own.into_iter().collect::<Vec<_>>(), "{text}");
        let told: Vec<_> = std::iter::from_fn(|| there.streams.poll_handoff())
            .map(|handoff| match handoff.input {
                HandoffInput::Failure(failure) => {
                    assert_eq!(failure, Failure::new(flow, Cause::Closed, b""));
                    handoff.shard
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, if is_told { vec![0, 2, 3] } else { vec![] }, "{text}");
    }
}

/// The ids of connections are reused after many connections. RFC 5626 §5.1: "The flow token MUST be
/// an identifier that is unique to this network flow."
#[test]
fn a_reused_name_does_not_lead_to_another_host() {
    let mut scene = Scene::new();
    let flow = scene.accept(2, "203.0.113.66:5060");
    scene.send(Flow { remote: at(PEER), ..flow }, "INVITE");
    assert!(scene.sent().is_empty());
    let failed = &scene.streams.core.failed;
    assert!(matches!(failed[..], [(_, Cause::Gone, _)]), "{failed:?}");
    scene.send(Flow { remote: at("203.0.113.66:5070"), ..flow }, "INVITE");
    assert_eq!(scene.sent().len(), 1, "another port of the same host");
}
