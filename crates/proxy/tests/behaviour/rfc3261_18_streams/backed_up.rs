//! New work for back ends that read their connections too slowly.

use std::collections::BTreeSet;

use tidegate_control::Reason;
use tidegate_proxy::Obedience;
use tidegate_world::{Connect, ConnectionId, Counter};

use super::*;
use crate::connected::Carried;
use crate::rfc7339_client::{telling, value};

/// The numbers of the connections to the two back ends.
const A: u32 = 1;
const B: u32 = 3;

/// A little more than the time for which a back end gets no new calls after it did not read.
const AVOIDED_FOR: Duration = Duration::from_millis(1001);

fn over_tcp(message: &str) -> String {
    message.replace("SIP/2.0/UDP 198.51.100.7:5060", "SIP/2.0/TCP 192.168.1.2:5060")
}

fn new_call(call: &str) -> String {
    over_tcp(&request("INVITE", "sip:bob@192.0.2.1", call, 1, ""))
}

/// Sends both back ends more than the windows of their connections. From then on, they read
/// nothing. Returns when the proxy no longer takes this for a burst.
fn stall(scene: &mut Scene, phone: Flow) {
    let body = "x".repeat(40_000);
    for number in 0..4 {
        let message = request("MESSAGE", "sip:bob@192.0.2.1", &format!("long-{number}"), 1, "");
        let long = format!("Content-Length: 40000\r\n\r\n{body}");
        scene.offer(phone, &over_tcp(&message).replace("Content-Length: 0\r\n\r\n", &long));
        if let Some(Connect { id, transport, local, remote }) = scene.streams.poll_connect() {
            scene.streams.on_connected(scene.now, Flow::connected(transport, local, remote, id));
            scene.sent();
        }
    }
    scene.pass(Duration::from_millis(100));
}

/// Lets a back end read everything.
fn read_on(scene: &mut Scene, connection: u32) -> Vec<Carried> {
    scene.streams.on_writable(scene.now, ConnectionId::new(connection).unwrap());
    scene.sent()
}

/// Sends a call of the phone, and returns the connection on which its INVITE leaves.
fn connection_of(scene: &mut Scene, phone: Flow, call: &str) -> u32 {
    let sent = scene.send(phone, &new_call(call));
    number_of(only(sent, "INVITE").0)
}

/// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
/// request (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503".
#[test]
fn a_new_call_goes_to_a_back_end_that_reads() {
    let mut scene = tcp_scene();
    let phone = scene.accept(2, PHONE);
    stall(&mut scene, phone);
    assert!(read_on(&mut scene, B).is_empty());
    for number in 0..4 {
        let call = format!("call-{number}");
        assert_eq!(connection_of(&mut scene, phone, &call), B, "{call}");
    }
    assert!(scene.streams.connections().counters().backed_up.get() >= 1);
    // Back end A does not count as failed. It gets calls again after a second.
    assert!(read_on(&mut scene, A).is_empty());
    scene.pass(AVOIDED_FOR);
    let calls = (4..8).map(|number| connection_of(&mut scene, phone, &format!("call-{number}")));
    assert_eq!(calls.collect::<BTreeSet<_>>(), BTreeSet::from([A, B]));
}

/// A call ends at once if the connection of its back end does not take it. So this back end seems
/// to be idle, and most policies would select it for every new call.
#[test]
fn a_back_end_that_does_not_read_gets_one_new_call_a_second() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let phone = scene.accept(2, PHONE);
        stall(&mut scene, phone);
        assert!(read_on(&mut scene, B).is_empty());
        let mut calls = 0..;
        for second in 1..=3 {
            for call in calls.by_ref().take(8) {
                scene.offer(phone, &new_call(&format!("call-{call}")));
                scene.pass(Duration::ZERO);
            }
            let counters = scene.streams.connections().counters();
            assert_eq!(counters.backed_up.get(), second, "{mode:?}");
            scene.pass(AVOIDED_FOR);
        }
    }
}

/// A regression: the only back end that reads was asked again about a call that its restriction had
/// rejected, and such a call could go to the back end that does not read.
///
/// RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by
/// the current "oc" and "oc-algo" parameter values from that particular downstream server."
///
/// RFC 7339 §5.10: "It needs to ensure, however, that this destination is not in overload and is
/// capable of processing the extra load."
#[test]
fn a_call_that_the_only_back_end_that_reads_holds_back_is_rejected() {
    let obey = |settings: &mut Settings| settings.pools[0].obedience = Obedience::Always;
    let backends = [BACKEND_A, BACKEND_B];
    let mut scene = scene_with(Transport::Tcp, Mode::Transaction, backends, obey);
    let phone = scene.accept(2, PHONE);
    stall(&mut scene, phone);
    assert!(read_on(&mut scene, B).is_empty());
    let new = |scene: &mut Scene, call: &str| {
        let mut sent = scene.send(phone, &new_call(call));
        sent.extend(read_on(scene, B));
        sent.into_iter().find(|(_, sent)| sent.start().starts_with("INVITE"))
    };
    // The first of these calls shows that a back end does not read.
    let invites = ["first", "second"].map(|call| new(&mut scene, call).expect("it is sent"));
    assert_eq!(invites.each_ref().map(|(on, _)| number_of(*on)), [B, B]);
    let at_b = ConnectionId::new(B).unwrap();
    let backend = Flow::connected(Transport::Tcp, address(PROXY), address(BACKEND_B), at_b);
    scene.offer(backend, &telling(&invites[0].1, "180 Ringing", &value("loss", 50, 1)));
    let calls = (0..100).filter_map(|number| new(&mut scene, &format!("call-{number}")));
    let numbers: Vec<u32> = calls.map(|(on, _)| number_of(on)).collect();
    assert!(numbers.iter().all(|&number| number == B), "{numbers:?}");
    assert!((44..=51).contains(&numbers.len()), "{} of 100", numbers.len());
    let rejected = scene.counters.rejected(Reason::Feedback).get();
    assert_eq!(rejected + numbers.len() as u64, 100);
    assert_eq!(scene.streams.connections().counters().backed_up.get(), 1);
}

/// The queue has room for messages that finish work.
#[test]
fn a_request_within_a_call_waits_for_its_back_end() {
    let mut scene = tcp_scene();
    let (phone, backend, invite) = called(&mut scene);
    scene.offer(backend, &invite.answer("200 OK"));
    stall(&mut scene, phone);
    let route = format!("Totag\r\nRoute: {}\r\n", invite.header("Record-Route"));
    let bye = over_tcp(&request("BYE", "sip:bob@10.0.0.1:5070", "c", 2, &route));
    let sent = scene.send(phone, &bye);
    assert!(sent.is_empty(), "{sent:#?}");
    assert_eq!(number_of(only(read_on(&mut scene, A), "BYE").0), A);
}

/// RFC 3261 §16.7 item 6: a proxy forwards a 503 if "it can determine that any subsequent requests
/// it might proxy will also generate a 503". §17.1.1.3: the ACK to this response goes no further.
#[test]
fn a_call_is_rejected_if_no_back_end_reads() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let phone = scene.accept(2, PHONE);
        stall(&mut scene, phone);
        let sent = scene.send(phone, &new_call("late"));
        let (on, rejection) = only(sent, "SIP/2.0 503");
        assert_eq!(number_of(on), 2, "{mode:?}");
        assert!(rejection.all("Retry-After").is_empty(), "{rejection:#?}");
        // A retransmission gets the same answer, and does not wait for a back end.
        let (_, again) = only(scene.offer(phone, &new_call("late")), "SIP/2.0 503");
        assert_eq!(again.header("To"), rejection.header("To"), "{mode:?}");
        // The copy counts as a retransmission, and not as another rejection.
        let replied = |reason| scene.counters.replied_for(503, reason).get();
        let rejections = [ReplyReason::BackedUp, ReplyReason::Failed].map(replied);
        assert_eq!(rejections, [1, 0], "{mode:?}");
        let repeated = [&scene.counters.retransmissions, &scene.counters.responses_resent];
        assert_eq!(repeated.map(Counter::get), [1, 1], "{mode:?}");
        let to = format!("To: {}", rejection.header("To"));
        let ack = over_tcp(&request("ACK", "sip:bob@192.0.2.1", "late", 1, ""));
        let ack = ack.replace("To: <sip:bob@example.com>", &to);
        assert!(scene.offer(phone, &ack).is_empty(), "{mode:?}");
        for connection in [A, B] {
            assert!(read_on(&mut scene, connection).is_empty(), "{mode:?}");
        }
        assert!([A, B].contains(&connection_of(&mut scene, phone, "next")), "{mode:?}");
    }
}
