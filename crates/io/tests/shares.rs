//! Tests of the share of a turn that each kind of message gets, and of handoffs between shards.

mod cores;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use cores::{Echo, Seen, group, next, peer, received, start};
use tidegate_io::*;

fn is_invite(seen: &Seen) -> Option<bool> {
    match seen {
        Seen::Offered { bytes, .. } => Some(bytes.starts_with(b"INVITE")),
        _ => None,
    }
}

/// Starts a thread that sends INVITEs as fast as it can until `end` is true.
fn flood(to: std::net::SocketAddr, end: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    thread::spawn(move || {
        while !end.load(Relaxed) {
            socket.send_to(b"INVITE", to).unwrap();
        }
    })
}

#[test]
fn a_flood_of_invites_starves_neither_the_other_socket_nor_the_service() {
    const INVITES: u32 = 3_000;
    const OTHERS: usize = 300;
    let group = group("127.0.0.1", 1, true);
    let peer = peer("127.0.0.1");
    // Many INVITEs wait already when the shard starts, and more arrive while it runs.
    for _ in 0..INVITES {
        peer.send_to(b"INVITE", group.local()).unwrap();
    }
    for _ in 0..OTHERS {
        peer.send_to(b"BYE", group.local()).unwrap();
    }
    let end = Arc::new(AtomicBool::new(false));
    let flooder = flood(group.local(), Arc::clone(&end));
    let (mut core, sight) = Echo::new();
    core.work = 20_000;
    let limits = Limits::default();
    let handoffs = Handoffs::alone().unwrap();
    let running = start(core, Clock::start(), limits, vec![group.listener(0)], handoffs);

    // Between two services, at most the messages of one turn are offered. All other messages are
    // offered before the last INVITE of the second turn.
    let (mut others, mut invites, mut served) = (0, 0, 0);
    let mut offered_in_a_row = 0;
    while others < OTHERS || served < 200 {
        let seen = next(&sight);
        match is_invite(&seen) {
            Some(true) => invites += 1,
            Some(false) => others += 1,
            None => {
                served += 1;
                offered_in_a_row = 0;
                continue;
            }
        }
        offered_in_a_row += 1;
        assert!(offered_in_a_row <= limits.ordinary + limits.invites);
        assert!(others == OTHERS || invites <= 2 * limits.invites);
    }
    end.store(true, Relaxed);
    flooder.join().unwrap();
    let counters = Arc::clone(&running.counters);
    running.stop.request();
    drop(sight);
    assert!(counters.limited_invites.get() > 0);
    assert!(counters.limited_service.get() > 0);
    running.end();
}

#[test]
fn a_flood_of_byes_neither_starves_responses_nor_takes_their_room() {
    const RESPONSES: usize = 300;
    // Each socket has room for about a thousand messages.
    let listen = Listen { receive_buffer: 1 << 20, ..Listen::new("127.0.0.1:0".parse().unwrap()) };
    let group = open(&listen).unwrap();
    let peer = peer("127.0.0.1");
    for _ in 0..5_000 {
        peer.send_to(b"BYE", group.local()).unwrap();
    }
    for _ in 0..RESPONSES {
        peer.send_to(b"SIP/2.0 200 OK", group.local()).unwrap();
    }
    let (core, sight) = Echo::new();
    let limits = Limits { responses: 256, ..Limits::default() };
    let handoffs = Handoffs::alone().unwrap();
    let running = start(core, Clock::start(), limits, vec![group.listener(0)], handoffs);
    let (mut responses, mut others) = (0, 0);
    while responses < RESPONSES {
        if let Seen::Offered { bytes, .. } = next(&sight) {
            let is_response = bytes.starts_with(b"SIP/");
            responses += usize::from(is_response);
            others += usize::from(!is_response);
        }
    }
    // All responses are offered before the BYEs of the second turn.
    assert!(others <= limits.ordinary, "{others}");
    drop(sight);
    let (_, counters) = running.end();
    assert!(counters.overflow.get() > 0, "it is a flood");
    assert_eq!(counters.received_response.get(), RESPONSES as u64);
    assert!(counters.limited_responses.get() > 0);
}

#[test]
fn a_message_crosses_to_the_shard_it_belongs_to() {
    let group = group("127.0.0.1", 2, true);
    let clock = Clock::start();
    let mut runs = Vec::new();
    for (i, handoffs) in Handoffs::mesh(2, 64).unwrap().into_iter().enumerate() {
        let (mut core, sight) = Echo::new();
        core.pass_to = Some(1 - i as u16);
        let listeners = vec![group.listener(i as u16)];
        runs.push((start(core, clock, Limits::default(), listeners, handoffs), sight));
    }
    let peer = peer("127.0.0.1");
    for i in 0..100u8 {
        peer.send_to(&[i], group.local()).unwrap();
        assert_eq!(received(&peer), (vec![i], group.local()));
    }
    let counters: Vec<_> = runs.into_iter().map(|(running, _)| running.end().1).collect();
    // All datagrams of the peer reach one shard, which hands them off to the other shard.
    let home = counters.iter().position(|c| c.received() == 100).unwrap();
    let away = &counters[1 - home];
    assert_eq!((counters[home].handoffs_out.get(), counters[home].sent.get()), (100, 0));
    assert_eq!((away.sent.get(), away.received()), (100, 0));
}

#[test]
fn crossings_beyond_the_queue_are_counted() {
    let group = group("127.0.0.1", 1, true);
    let (mut core, sight) = Echo::new();
    core.pass_to = Some(1);
    // Nothing takes messages from the queue of the other shard.
    let mut mesh = Handoffs::mesh(2, 16).unwrap();
    let other = mesh.remove(1);
    let listeners = vec![group.listener(0)];
    let running = start(core, Clock::start(), Limits::default(), listeners, mesh.remove(0));
    let peer = peer("127.0.0.1");
    for _ in 0..50 {
        peer.send_to(b"BYE", group.local()).unwrap();
    }
    for _ in 0..50 {
        assert_eq!(is_invite(&next(&sight)), Some(false));
    }
    // The messages for a shard that has ended must not keep this shard running.
    drop(other);
    let (_, counters) = running.end();
    assert_eq!((counters.handoffs_out.get(), counters.handoffs_lost.get()), (16, 34));
}
