//! Tests of the connections that a caller opens over a stream.

use std::time::Duration;

use crate::script::one_call::{config, ok};
use crate::script::{Sent, uac, uas};
use tidegate_agent::{Caller, CallerConfig, ConnectionUse};
use tidegate_world::{
    CloseCause, ConnectionId, Core, Flow, Pool, Received, Seed, Timestamp, Transport,
};

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

fn caller(connections: ConnectionUse, calls: u32) -> Caller {
    caller_over(Transport::Tcp, connections, calls)
}

fn caller_over(transport: Transport, connections: ConnectionUse, calls: u32) -> Caller {
    let mut config = CallerConfig { transport, connections, ..config() };
    config.load.calls = calls;
    config.callers = 2;
    Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap()
}

/// Returns the message that the caller sends now, and its connection.
fn sent(caller: &mut Caller) -> (Sent, Option<ConnectionId>) {
    let transmit = caller.poll_transmit().expect("a message");
    let text = String::from_utf8(transmit.bytes.to_vec()).unwrap();
    (Sent { ms: 0, to: transmit.flow.remote, text }, transmit.flow.connection)
}

/// Answers a message on its connection.
fn tell(caller: &mut Caller, ms: u64, id: Option<ConnectionId>, text: &str) {
    let bytes = text.replace('\n', "\r\n");
    let (transport, local, remote) = (Transport::Tcp, uac(), uas());
    let flow = Flow { transport, local, remote, connection: id };
    caller.offer(at(ms), Received::new(at(ms), flow, Pool::new().copy(bytes.as_bytes())));
}

/// All messages of a call travel on its connection, which it closes at its end.
#[test]
fn a_call_has_a_connection_of_its_own() {
    let mut caller = caller(ConnectionUse::Each, 1);
    caller.handle_timeout(at(0));
    let opened = caller.poll_connect().expect("a connection");
    assert_eq!((opened.transport, opened.local, opened.remote), (Transport::Tcp, uac(), uas()));
    let (invite, id) = sent(&mut caller);
    assert_eq!((invite.what(), id), ("INVITE", Some(opened.id)));
    tell(&mut caller, 1, id, &ok(&invite).replace("192.0.2.22:5070", "192.0.2.2:5060"));
    let (ack, id) = sent(&mut caller);
    assert_eq!((ack.what(), id), ("ACK", Some(opened.id)));
    // When the connection breaks, the BYE uses another one.
    caller.on_closed(at(2), opened.id, CloseCause::Reset);
    caller.handle_timeout(at(10_001));
    let again = caller.poll_connect().expect("another connection").id;
    let (bye, id) = sent(&mut caller);
    assert_eq!((bye.what(), id), ("BYE", Some(again)));
    assert!(again != opened.id && caller.poll_close().is_none());
    tell(&mut caller, 10_002, id, &ok(&bye));
    assert_eq!(caller.poll_close(), Some(again));
    assert_eq!((caller.stats().completed, caller.is_done()), (1, true));
}

#[test]
fn users_have_their_connections() {
    let mut caller = caller(ConnectionUse::Shared(2), 4);
    let mut used = Vec::new();
    for call in 0..4 {
        caller.handle_timeout(at(call * 1000));
        let (invite, id) = sent(&mut caller);
        let from = invite.header("From").split('@').next().unwrap().to_owned();
        used.push((from, id.expect("it is named").get()));
    }
    assert_eq!((&used[0], &used[1]), (&used[2], &used[3]));
    assert!(used[0].0 != used[1].0 && used[0].1 != used[1].1);
    assert_eq!(std::iter::from_fn(|| caller.poll_connect()).count(), 2);
}

#[test]
fn one_connection_for_all_calls_is_not_named() {
    let mut caller = caller(ConnectionUse::default(), 1);
    caller.handle_timeout(at(0));
    assert_eq!(sent(&mut caller).1, None);
    assert!(caller.poll_connect().is_none());
}

/// RFC 7118 §B.1: "A SIP WebSocket Client running in such an environment can construct a domain
/// name consisting of a random token followed by the ".invalid" top-level domain name, as stated in
/// [RFC2606], and uses it within its Via and Contact headers."
///
/// RFC 7118 §5.3: "Given the fact that SIP responses can only be sent over the existing WebSocket
/// connection".
#[test]
fn a_call_over_a_websocket_stays_on_it() {
    for (transport, by) in [
        (Transport::Ws, ConnectionUse::default()),
        (Transport::Wss, ConnectionUse::default()),
        (Transport::Wss, ConnectionUse::Each),
    ] {
        let mut caller = caller_over(transport, by, 1);
        caller.handle_timeout(at(0));
        let opened = caller.poll_connect().expect("a connection");
        assert_eq!((opened.transport, opened.local, opened.remote), (transport, uac(), uas()));
        let (invite, id) = sent(&mut caller);
        assert_eq!((invite.what(), id, invite.to), ("INVITE", Some(opened.id), uas()));
        let contact = invite.header("Contact").to_owned();
        let (_, host) = contact.split_once('@').unwrap();
        let host = host.strip_suffix(";transport=ws>").expect("the only value of RFC 7118");
        assert!(host.ends_with(".invalid"), "{host}");
        let via = format!("SIP/2.0/{} {host};rport;branch=", transport.name());
        assert!(invite.header("Via").starts_with(&via), "{via}");
        // In its Record-Route, the server writes an address that does not lead to it.
        let routes = "Record-Route: <sip:192.0.2.9:443;transport=ws;lr>\nTo:";
        tell(&mut caller, 1, id, &ok(&invite).replace("To:", routes));
        let (ack, id) = sent(&mut caller);
        assert_eq!((ack.what(), id, ack.to), ("ACK", Some(opened.id), uas()));
        assert_eq!(ack.header("Route"), "<sip:192.0.2.9:443;transport=ws;lr>");
        assert!(ack.header("Via").starts_with(&via), "{via}");
        caller.handle_timeout(at(10_001));
        let (bye, id) = sent(&mut caller);
        assert_eq!((bye.what(), id, bye.to), ("BYE", Some(opened.id), uas()));
        tell(&mut caller, 10_002, id, &ok(&bye));
        assert_eq!((caller.stats().completed, caller.is_done()), (1, true));
        assert_eq!(caller.poll_close(), (by == ConnectionUse::Each).then_some(opened.id));
        assert!(caller.poll_connect().is_none());
    }
}
