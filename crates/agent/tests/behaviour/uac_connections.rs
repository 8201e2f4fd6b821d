//! Tests of the connections that a caller opens over a stream.

use std::time::Duration;

use crate::script::one_call::{config, ok};
use crate::script::{Sent, response, uac, uas};
use tidegate_agent::{Caller, CallerConfig, ConnectionUse};
use tidegate_world::{
    Cause, CloseCause, ConnectionId, Core, Failure, Flow, Pool, Received, Seed, Timestamp,
    Transport,
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

/// Reports that a message could not be sent on its connection.
fn fail(caller: &mut Caller, ms: u64, message: &Sent) {
    let (transport, local, remote) = (Transport::Tcp, uac(), message.to);
    let flow = Flow { transport, local, remote, connection: None };
    let failure = Failure::unsent(flow, Cause::Closed, message.text.as_bytes());
    caller.on_failed(at(ms), failure);
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

/// The end of a connection once was the cause of each timeout of another call too.
#[test]
fn the_end_of_a_connection_is_not_the_cause_of_a_timeout_on_another() {
    let mut caller = caller(ConnectionUse::Each, 2);
    caller.handle_timeout(at(0));
    let first = sent(&mut caller).1;
    caller.handle_timeout(at(1000));
    assert_ne!(sent(&mut caller).1, first);
    let (transport, local, remote) = (Transport::Tcp, uac(), uas());
    let flow = Flow { transport, local, remote, connection: first };
    caller.on_failed(at(2000), Failure::new(flow, Cause::Closed, b""));
    caller.on_closed(at(2000), first.expect("a connection"), CloseCause::Reset);
    caller.handle_timeout(at(40_000));
    let failed = &caller.stats().failed;
    assert_eq!((failed.transport, failed.timeout, failed.total()), (1, 1, 2));
}

/// RFC 3261 §8.1.3.1: "If a fatal transport error is reported by the transport layer (generally,
/// due to fatal ICMP errors in UDP or connection failures in TCP), the condition MUST be treated as
/// a 503 (Service Unavailable) status code."
///
/// A call whose BYE or CANCEL could not be sent once waited for 64·T1.
#[test]
fn a_request_that_cannot_be_sent_ends_its_call() {
    let patience = Duration::from_secs(2).into();
    let calling = || {
        let config = CallerConfig { transport: Transport::Tcp, patience, ..config() };
        let mut caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
        caller.handle_timeout(at(0));
        let invite = sent(&mut caller).0;
        (caller, invite)
    };

    let (mut caller, invite) = calling();
    fail(&mut caller, 1, &invite);
    assert_eq!((caller.stats().failed.transport, caller.is_done()), (1, true));

    let (mut caller, invite) = calling();
    tell(&mut caller, 1, None, &ok(&invite));
    assert_eq!(sent(&mut caller).0.what(), "ACK");
    caller.handle_timeout(at(10_001));
    let bye = sent(&mut caller).0;
    assert_eq!(bye.what(), "BYE");
    fail(&mut caller, 10_002, &bye);
    let stats = caller.stats();
    assert_eq!((stats.set_up, stats.talking, stats.failed.transport), (1, 0, 1));
    assert_eq!((stats.unsent, stats.failed.total(), caller.is_done()), (1, 1, true));

    // The INVITE has a provisional response when the patience ends, so the caller sends a CANCEL.
    let cancelling = || {
        let (mut caller, invite) = calling();
        tell(&mut caller, 1, None, &response(&invite, 180, ";tag=b", ""));
        caller.handle_timeout(at(2000));
        let cancel = sent(&mut caller).0;
        assert_eq!(cancel.what(), "CANCEL");
        (caller, invite, cancel)
    };
    let (mut caller, _, cancel) = cancelling();
    fail(&mut caller, 2001, &cancel);
    assert_eq!((caller.stats().failed.abandoned, caller.is_done()), (1, true));

    // The 2xx has ended the transaction of the CANCEL. The BYE decides.
    let (mut caller, invite, cancel) = cancelling();
    tell(&mut caller, 2001, None, &ok(&invite));
    let [ack, bye] = [(); 2].map(|()| sent(&mut caller).0);
    assert_eq!([ack.what(), bye.what()], ["ACK", "BYE"]);
    fail(&mut caller, 2002, &cancel);
    assert!(!caller.is_done());
    fail(&mut caller, 2003, &bye);
    let failed = &caller.stats().failed;
    assert_eq!((failed.abandoned, failed.total(), caller.is_done()), (1, 1, true));
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
