//! Tests of a full table: the eviction of connections, and the room that is reserved for messages
//! to back ends.

use std::time::Duration;

use tidegate_world::{Pool, STREAM_WINDOW};

use super::tests::{Scene, to};
use super::*;
use crate::connection::NEW_WORK_WAIT;

fn flow(number: usize) -> Flow {
    to(&format!("198.51.100.{number}:5060"))
}

/// Returns a table that may open `opened_max` connections and has opened all of them, each to
/// another peer. The connections were last used one second apart, in the order of the returned
/// flows.
fn full(opened_max: usize) -> (Scene, Vec<Flow>) {
    let mut scene = Scene::new(ConnectionLimits { opened_max, ..ConnectionLimits::default() });
    let mut flows = Vec::new();
    for number in 0..opened_max {
        flows.push(scene.opened(flow(number)));
        scene.now = scene.now + Duration::from_secs(1);
    }
    assert!(scene.closes().is_empty());
    (scene, flows)
}

/// Fills the window of a connection whose peer does not read.
fn fill(scene: &mut Scene, flow: Flow) {
    for _ in 0..2 {
        scene.send(flow, &"x".repeat(STREAM_WINDOW / 2)).unwrap();
    }
    assert_eq!(scene.sent().len(), 2);
}

fn id(flow: Flow) -> u32 {
    flow.connection.unwrap().get()
}

#[test]
fn the_least_recently_used_connection_is_evicted() {
    let (mut scene, flows) = full(4);
    let unused = ConnectionLimits::default().yields_after;
    scene.now = scene.now + unused;
    // The first two connections are used again: one sends a message, and the other receives one.
    scene.send(flows[0], "x").unwrap();
    assert_eq!(scene.sent().len(), 1);
    scene.table.on_received(scene.now, flows[1].connection.unwrap());
    assert_eq!(scene.send(flow(9), "x"), Err(WhyUnsent::TooMany), "it is not closed yet");
    assert_eq!(scene.closes(), [id(flows[2])]);
    scene.table.on_closed(flows[2].connection.unwrap(), CloseCause::Asked);
    scene.opened(flow(9));
    assert_eq!(scene.closes(), [id(flows[3])], "a place is kept for the next one");
    scene.table.on_closed(flows[3].connection.unwrap(), CloseCause::Asked);
    scene.opened(flow(10));
    assert!(scene.closes().is_empty(), "all others are in use");
    assert_eq!(scene.table.counters().evicted.get(), 2);
    assert_eq!((scene.table.len(), scene.table.counters().excess.get()), (4, 1));
}

#[test]
fn a_connection_in_use_is_not_evicted() {
    let (mut scene, flows) = full(4);
    scene.now = Timestamp::ZERO + ConnectionLimits::default().yields_after;
    scene.now = scene.now - Duration::from_millis(1);
    assert_eq!(scene.send(flow(9), "x"), Err(WhyUnsent::TooMany));
    assert!(scene.closes().is_empty(), "it was used a moment ago");
    // The table does not close a connection to make room if its peer does not read. A stalled
    // connection has its own time limit.
    for flow in flows {
        fill(&mut scene, flow);
    }
    scene.now = scene.now + 2 * ConnectionLimits::default().yields_after;
    assert_eq!(scene.send(flow(9), "x"), Err(WhyUnsent::TooMany));
    assert!(scene.closes().is_empty());
    assert_eq!(scene.table.counters().evicted.get(), 0);
}

/// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to the IP
/// address in the "received" parameter".
#[test]
fn connections_for_responses_take_a_quarter_of_the_places_and_yield_to_each_other() {
    let mut scene = Scene::new(ConnectionLimits { opened_max: 8, ..ConnectionLimits::default() });
    let half_a_second = Duration::from_millis(500);
    let mut opened = Vec::new();
    for number in [1, 2] {
        scene.respond(flow(number)).unwrap();
        opened.push(scene.connected());
        scene.now = scene.now + half_a_second;
    }
    assert_eq!(scene.sent().len(), 2);
    scene.now = scene.now - Duration::from_millis(1);
    assert_eq!(scene.respond(flow(3)), Err(WhyUnsent::TooMany), "both were just used");
    scene.now = scene.now + Duration::from_millis(1);
    scene.respond(flow(3)).unwrap();
    assert_eq!(scene.closes(), [id(opened[0])]);
    scene.table.on_closed(opened[0].connection.unwrap(), CloseCause::Asked);
    // A request waits for its response on the second connection, which therefore stays open.
    scene.send(flow(2), "BYE").unwrap();
    scene.now = scene.now + 10 * half_a_second;
    scene.respond(flow(4)).unwrap();
    assert_eq!(scene.respond(flow(5)), Err(WhyUnsent::TooMany), "they are being opened");
    assert!(scene.closes().is_empty());
    assert_eq!(scene.table.counters().evicted.get(), 1);
    // A further response to the same peer uses the same connection.
    scene.respond(flow(4)).unwrap();
}

#[test]
fn connections_for_responses_yield_to_requests() {
    let mut scene = Scene::new(ConnectionLimits { opened_max: 8, ..ConnectionLimits::default() });
    for number in [1, 5, 6, 7, 8] {
        scene.opened(flow(number));
    }
    for number in [2, 3] {
        scene.respond(flow(number)).unwrap();
    }
    let for_responses = [scene.connected(), scene.connected()];
    scene.now = scene.now + Duration::from_secs(1);
    scene.send(flow(4), "INVITE").unwrap();
    assert_eq!(scene.closes(), [id(for_responses[0])], "the connection of a request stays");
}

/// If pings counted as a use, one peer could keep all connections for responses by sending a ping
/// on each of them every second.
#[test]
fn a_connection_for_responses_is_not_kept_by_what_its_peer_sends() {
    let mut scene = Scene::new(ConnectionLimits { opened_max: 256, ..ConnectionLimits::default() });
    let mut opened = Vec::new();
    for port in 1..=64 {
        scene.respond(to(&format!("198.51.100.7:{port}"))).unwrap();
        opened.push(scene.connected());
    }
    assert_eq!((scene.sent().len(), scene.respond(flow(8))), (64, Err(WhyUnsent::TooMany)));
    let pool = Pool::new();
    for _ in 0..2 {
        scene.now = scene.now + Duration::from_millis(500);
        for peer in &opened {
            let id = peer.connection.unwrap();
            scene.table.on_ping(scene.now, id, pool.copy(b"\r\n"));
            scene.table.on_received(scene.now, id);
        }
    }
    assert_eq!(scene.sent().len(), 2 * 64, "the pings are answered");
    scene.respond(flow(8)).unwrap();
    assert_eq!(scene.closes(), [id(opened[0])]);
    // A further response is a use.
    scene.respond(to("198.51.100.7:2")).unwrap();
    scene.respond(flow(9)).unwrap();
    assert_eq!(scene.closes(), [id(opened[2])]);
}

/// An in-dialog request may be sent on a connection for responses, because its route token contains
/// the id of that connection.
#[test]
fn a_connection_for_responses_on_which_a_request_is_sent_yields_no_earlier_than_others() {
    let mut scene = Scene::new(ConnectionLimits { opened_max: 8, ..ConnectionLimits::default() });
    let mut opened = Vec::new();
    for number in [1, 2] {
        scene.respond(flow(number)).unwrap();
        opened.push(scene.connected());
    }
    scene.send(opened[0], "INVITE sip:a@b SIP/2.0\r\n").unwrap();
    scene.send(opened[1], "SIP/2.0 200 OK\r\n").unwrap();
    scene.now = scene.now + Duration::from_secs(2);
    scene.respond(flow(3)).unwrap();
    assert!(scene.closes().is_empty());
    scene.respond(flow(4)).unwrap();
    assert_eq!(scene.closes(), [id(opened[1])]);
}

/// Without this limit, a peer whose Via headers name ports without a listener could use up all
/// connections for responses.
#[test]
fn few_connections_for_responses_are_opening_to_one_address() {
    let mut scene = Scene::new(ConnectionLimits { opened_max: 128, ..ConnectionLimits::default() });
    let respond = |scene: &mut Scene, port: u16| scene.respond(to(&format!("198.51.100.7:{port}")));
    let answered = (1..=5).filter(|&port| respond(&mut scene, port).is_ok()).count();
    assert_eq!((answered, scene.table.counters().excess.get()), (2, 3));
    scene.respond(flow(8)).unwrap();
    let first = scene.connected();
    respond(&mut scene, 6).unwrap();
    assert_eq!(respond(&mut scene, 7), Err(WhyUnsent::TooMany));
    // The end of a connection that could not be opened makes room for another one. The end of an
    // open connection does not, because only connections that are being opened count.
    let second = scene.connect().id;
    scene.table.on_closed(second, CloseCause::Refused);
    scene.table.on_closed(first.connection.unwrap(), CloseCause::Ended);
    respond(&mut scene, 7).unwrap();
    assert_eq!(respond(&mut scene, 8), Err(WhyUnsent::TooMany));
}

#[test]
fn accepted_connections_leave_room_for_messages_to_back_ends() {
    let limits = ConnectionLimits {
        waiting_bytes_max: 60,
        total_bytes_max: 100,
        ..ConnectionLimits::default()
    };
    let mut scene = Scene::new(limits);
    let accepted = |scene: &mut Scene, number| {
        let flow = scene.accepted(number, "198.51.100.7:1");
        // Its peer does not read.
        fill(scene, flow);
        flow
    };
    let (one, two) = (accepted(&mut scene, 2), accepted(&mut scene, 4));
    scene.send(one, &"x".repeat(30)).unwrap();
    assert_eq!(scene.send(two, &"x".repeat(21)), Err(WhyUnsent::NoRoom), "half is for others");
    scene.send(two, &"x".repeat(20)).unwrap();
    scene.send(flow(8), &"x".repeat(50)).unwrap();
    assert_eq!(scene.send(flow(9), "x"), Err(WhyUnsent::NoRoom), "all together");
    assert_eq!((scene.table.waiting_bytes(), scene.table.counters().overflow.get()), (100, 2));
    // Messages that were sent or returned no longer count.
    scene.table.on_closed(one.connection.unwrap(), CloseCause::Reset);
    scene.send(two, &"x".repeat(30)).unwrap();
    scene.table.on_writable(scene.now, two.connection.unwrap());
    assert_eq!(scene.table.waiting_bytes(), 50);
}

/// The peer is a back end, or a phone that has opened the connection.
#[test]
fn new_work_does_not_wait_for_a_peer_that_does_not_read() {
    for is_accepted in [false, true] {
        let mut scene = Scene::new(ConnectionLimits::default());
        let stalled = match is_accepted {
            false => scene.opened(flow(1)),
            true => scene.accepted(2, "203.0.113.9:40123"),
        };
        let other = scene.opened(flow(2));
        fill(&mut scene, stalled);
        scene.now = scene.now + (NEW_WORK_WAIT - Duration::from_millis(1));
        scene.send_new(stalled, "INVITE 1").unwrap();
        scene.now = scene.now + Duration::from_millis(1);
        assert_eq!(scene.send_new(stalled, "INVITE 2"), Err(WhyUnsent::BackedUp));
        for text in ["ACK", "BYE", "SIP/2.0 200"] {
            scene.send(stalled, text).unwrap();
        }
        // Others are not affected.
        scene.send_new(other, "INVITE 3").unwrap();
        assert_eq!(scene.sent(), [(id(other), "INVITE 3".to_owned())]);
        let counters = scene.table.counters();
        assert_eq!((counters.backed_up.get(), counters.overflow.get()), (1, 0));
        // The peer reads again.
        scene.table.on_writable(scene.now, stalled.connection.unwrap());
        scene.send_new(stalled, "INVITE 4").unwrap();
        let texts: Vec<_> = scene.sent().into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["INVITE 1", "ACK", "BYE", "SIP/2.0 200", "INVITE 4"]);
    }
}

/// The driver frees the window several times, but the queue of messages is never empty.
#[test]
fn new_work_does_not_wait_for_a_peer_that_reads_less_than_is_sent() {
    let mut scene = Scene::new(ConnectionLimits::default());
    let slow = scene.opened(flow(1));
    fill(&mut scene, slow);
    for _ in 0..2 {
        for _ in 0..2 {
            scene.send(slow, &"x".repeat(STREAM_WINDOW / 2)).unwrap();
        }
        scene.send_new(slow, "INVITE 1").unwrap();
        scene.now = scene.now + NEW_WORK_WAIT / 2;
        scene.table.on_writable(scene.now, slow.connection.unwrap());
        assert!(scene.table.waiting_bytes() > 0);
    }
    assert_eq!(scene.send_new(slow, "INVITE 2"), Err(WhyUnsent::BackedUp));
    // The peer has read everything.
    scene.table.on_writable(scene.now, slow.connection.unwrap());
    assert_eq!(scene.table.waiting_bytes(), 0);
    scene.send_new(slow, "INVITE 3").unwrap();
    assert_eq!(scene.sent().last(), Some(&(id(slow), "INVITE 3".to_owned())));
    fill(&mut scene, slow);
    scene.send_new(slow, "INVITE 4").unwrap();
}

#[test]
fn new_work_leaves_a_part_of_the_queue_to_other_messages() {
    let limits =
        ConnectionLimits { waiting_max: 8, waiting_bytes_max: 80, ..ConnectionLimits::default() };
    let mut scene = Scene::new(limits);
    let flow_of_backend = scene.opened(flow(1));
    fill(&mut scene, flow_of_backend);
    // One connection is backed up, the other one is being opened.
    for (to, why) in [(flow_of_backend, WhyUnsent::BackedUp), (flow(2), WhyUnsent::NoRoom)] {
        assert_eq!(scene.send_new(to, &"x".repeat(61)), Err(why), "too many bytes");
        for _ in 0..6 {
            scene.send_new(to, "INVITE").unwrap();
        }
        assert_eq!(scene.send_new(to, "INVITE"), Err(why), "too many messages");
        for _ in 0..2 {
            scene.send(to, "BYE").unwrap();
        }
        assert_eq!(scene.send(to, "BYE"), Err(WhyUnsent::NoRoom));
    }
    let counters = scene.table.counters();
    assert_eq!((counters.backed_up.get(), counters.overflow.get()), (2, 1 + 3));
}

/// Opens `attempts` connections from the host with this number. Returns how many of them the table
/// accepts.
fn accepted_from(scene: &mut Scene, host: u32, attempts: u32) -> usize {
    let before = scene.table.len();
    for port in 1..=attempts {
        scene.accepted(2 * (100 * host + port), &format!("198.51.100.{host}:{port}"));
    }
    scene.table.len() - before
}

/// Without the lower limit for the last places, four sources could fill this table with
/// `per_remote_max` connections each.
#[test]
fn sources_with_many_connections_leave_places_to_others() {
    let limits =
        ConnectionLimits { accepted_max: 32, per_remote_max: 8, ..ConnectionLimits::default() };
    let mut scene = Scene::new(limits);
    let accepted: Vec<_> = (1..=8).map(|host| accepted_from(&mut scene, host, 20)).collect();
    assert_eq!(accepted, [8, 8, 8, 4, 2, 1, 1, 0]);
    assert_eq!(scene.table.counters().excess.get(), 8 * 20 - 32);
    // After a source has closed connections, other sources can use their places.
    for port in 1..=4 {
        scene.table.on_closed(ConnectionId::new(2 * (100 + port)).unwrap(), CloseCause::Ended);
    }
    assert_eq!(accepted_from(&mut scene, 9, 20), 2);
}

/// Opens `attempts` connections, each from another /64 of the /48 `site`, and `in_56` of them from
/// each /56. Returns how many of them the table accepts.
fn accepted_from_site(scene: &mut Scene, site: u32, in_56: u32, attempts: u32) -> usize {
    let before = scene.table.len();
    for number in 0..attempts {
        let (wide, narrow) = (number / in_56, number % in_56);
        let remote = format!("[2001:db8:{site:x}:{wide:02x}{narrow:02x}::1]:5060");
        scene.accepted(2 * (100 * site + number + 1), &remote);
    }
    scene.table.len() - before
}

/// RFC 6177 §2: a site may have a whole /56 or /48, so it has very many /64 networks.
#[test]
fn a_site_has_no_more_places_than_a_few_sources() {
    let limits =
        ConnectionLimits { accepted_max: 256, per_remote_max: 4, ..ConnectionLimits::default() };
    let mut scene = Scene::new(limits);
    assert_eq!(accepted_from_site(&mut scene, 1, 90, 90), 8, "all in one /56");
    assert_eq!(accepted_from_site(&mut scene, 2, 9, 90), 16, "in ten /56 of one /48");
    // The end of a connection frees a place in the /64, the /56 and the /48.
    scene.table.on_closed(ConnectionId::new(2 * 101).unwrap(), CloseCause::Ended);
    assert_eq!(scene.table.len(), 8 + 16 - 1);
    scene.accepted(2 * 191, "[2001:db8:1:ff::1]:5060");
    scene.accepted(2 * 192, "[2001:db8:1:ff::2]:5060");
    assert_eq!(scene.table.len(), 8 + 16);
}

#[test]
fn sites_with_many_connections_leave_places_to_others() {
    let limits =
        ConnectionLimits { accepted_max: 32, per_remote_max: 8, ..ConnectionLimits::default() };
    let mut scene = Scene::new(limits);
    let accepted: Vec<_> =
        (1..=5).map(|site| accepted_from_site(&mut scene, site, 1, 40)).collect();
    assert_eq!(accepted, [28, 2, 1, 1, 0]);
}

/// Behind a reverse proxy, all browsers have one address.
#[test]
fn one_source_may_have_all_places_if_the_limits_say_so() {
    for (per_remote_max, expected) in [(32, 32), (31, 31), (30, 30), (28, 28), (16, 16)] {
        let limits =
            ConnectionLimits { accepted_max: 32, per_remote_max, ..ConnectionLimits::default() };
        let mut scene = Scene::new(limits);
        assert_eq!(accepted_from(&mut scene, 1, 40), expected);
    }
}

/// If keep-alives counted as messages, strangers could keep all accepted connections with one ping
/// an hour on each.
#[test]
fn a_peer_that_sends_only_keep_alives_keeps_no_place() {
    let limits = ConnectionLimits { accepted_max: 1, ..ConnectionLimits::default() };
    let mut scene = Scene::new(limits);
    let silent = scene.accepted(2, "198.51.100.7:1").connection.unwrap();
    for seconds in [10, 20] {
        scene.now = Timestamp::ZERO + Duration::from_secs(seconds);
        scene.table.on_ping(scene.now, silent, Pool::new().copy(b"\r\n"));
        // The driver answers a WebSocket ping itself, and only reports it as a keep-alive.
        scene.table.on_keep_alive(scene.now, silent);
    }
    assert_eq!(scene.sent().len(), 2, "they are answered");
    scene.fire();
    assert_eq!((scene.now, scene.closes()), (Timestamp::ZERO + limits.first, vec![2]));
    scene.table.on_closed(silent, CloseCause::Asked);
    // After a message, keep-alives keep the connection.
    let phone = scene.accepted(4, "198.51.100.8:1").connection.unwrap();
    scene.table.on_received(scene.now, phone);
    scene.now = scene.now + limits.idle / 2;
    scene.table.on_keep_alive(scene.now, phone);
    let due = scene.now + limits.idle;
    while scene.closes().is_empty() {
        scene.fire();
    }
    assert_eq!(scene.now, due);
}
