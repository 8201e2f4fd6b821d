//! Tests of the loop of a shard, over real sockets.

#![allow(clippy::disallowed_methods)] // Tests wait for real sockets.

mod cores;

use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cores::{Echo, Seen, group, next, peer, received, start, start_with};
use tidegate_io::*;
use tidegate_world::*;

/// Starts an echo core at one listening address.
fn echo(ip: &str) -> (cores::Running, std::sync::mpsc::Receiver<Seen>, Group) {
    let group = group(ip, 1, true);
    let (core, sight) = Echo::new();
    let listeners = vec![group.listener(0)];
    let handoffs = Handoffs::alone().unwrap();
    (start(core, Clock::start(), Limits::default(), listeners, handoffs), sight, group)
}

fn each_datagram_comes_back(ip: &str) {
    let (running, _sight, group) = echo(ip);
    let peer = peer(ip);
    let texts = ["INVITE sip:a", "ACK sip:a", "", "SIP/2.0 200 OK"];
    for text in texts {
        peer.send_to(text.as_bytes(), group.local()).unwrap();
        assert_eq!(received(&peer), (text.as_bytes().to_vec(), group.local()));
    }
    let (summary, counters) = running.end();
    assert_eq!(summary.ended, Ended::Drained);
    let received =
        [&counters.received_invite, &counters.received_ordinary, &counters.received_response];
    assert_eq!(received.map(|counter| counter.get()), [1, 2, 1]);
    assert_eq!(counters.received(), 4);
    assert_eq!((counters.sent.get(), counters.send_dropped()), (4, 0));
    assert_eq!(counters.served.get(), 4);
    assert!(counters.wakes.get() > 0 && counters.busy_ns.get() > 0 && counters.idle_ns.get() > 0);
}

#[test]
fn received_messages_are_echoed() {
    each_datagram_comes_back("127.0.0.1");
    each_datagram_comes_back("::1");
}

#[test]
fn a_burst_that_outlasts_the_quantum_comes_back_whole_and_in_order() {
    // More datagrams than one flush sends, but no more than the peer's buffer takes.
    const BURST: u8 = 200;
    let group = group("127.0.0.1", 1, true);
    let peer = peer("127.0.0.1");
    for i in 0..BURST {
        peer.send_to(&[i], group.local()).unwrap();
    }
    let (mut core, _sight) = Echo::new();
    // Service lasts at least as long as reception. So the core works on a datagram for much longer
    // than reception may be blocked.
    core.work = 1_000_000;
    let limits = Limits { quantum: Duration::from_micros(10), ..Limits::default() };
    let handoffs = Handoffs::alone().unwrap();
    let running = start(core, Clock::start(), limits, vec![group.listener(0)], handoffs);
    for i in 0..BURST {
        assert_eq!(received(&peer).0, [i]);
    }
    let (_, counters) = running.end();
    assert!(counters.limited_service.get() > 10, "{}", counters.limited_service.get());
}

#[test]
fn each_listening_address_answers_for_itself() {
    let groups = [group("127.0.0.1", 1, true), group("::1", 1, false), group("127.0.0.1", 1, true)];
    let listeners = groups.iter().map(|group| group.listener(0)).collect();
    let (core, _sight) = Echo::new();
    let handoffs = Handoffs::alone().unwrap();
    let running = start(core, Clock::start(), Limits::default(), listeners, handoffs);
    let peers = ["127.0.0.1", "::1", "127.0.0.1"].map(peer);
    for round in 0..20 {
        for (group, peer) in groups.iter().zip(&peers) {
            let text = if round % 2 == 0 { b"INVITE" } else { b"CANCEL" };
            peer.send_to(text, group.local()).unwrap();
        }
        for (group, peer) in groups.iter().zip(&peers) {
            assert_eq!(received(peer).1, group.local());
        }
    }
    running.end();
}

#[test]
fn pauses_are_taken_at_a_high_rate_and_lose_nothing() {
    let (running, _sight, group) = echo("127.0.0.1");
    let peer = peer("127.0.0.1");
    let mut rounds = 0;
    while running.counters.pauses.get() < 10 {
        // At twenty datagrams for each round trip, a pause saves more than it costs.
        for i in 0..20u8 {
            peer.send_to(&[i], group.local()).unwrap();
        }
        for i in 0..20u8 {
            assert_eq!(received(&peer).0, [i]);
        }
        rounds += 1;
        assert!(rounds < 100_000, "no pause was taken");
    }
    let (_, counters) = running.end();
    assert_eq!(counters.received(), 20 * rounds);
}

#[test]
fn a_datagram_of_60_kib_survives() {
    let (running, _sight, group) = echo("127.0.0.1");
    let peer = peer("127.0.0.1");
    let large: Vec<u8> = (0..60 * 1024).map(|i| (i % 251) as u8).collect();
    peer.send_to(&large, group.local()).unwrap();
    assert!(received(&peer).0 == large);
    let (_, counters) = running.end();
    assert_eq!((counters.received_large.get(), counters.received_cut.get()), (1, 0));
}

/// Waits until the kernel records the arrival times of datagrams. It begins to do so when the first
/// socket that asks for arrival times is opened.
fn await_stamps(group: &Group) {
    let peer = peer("127.0.0.1");
    let mut inbox = Inbox::new(&Pool::new());
    for _ in 0..1_000 {
        peer.send_to(b"BYE", group.local()).unwrap();
        thread::sleep(Duration::from_millis(5));
        let read = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        inbox.receive(group.listener(0).ordinary(), BATCH).unwrap();
        if inbox.take().unwrap().stamp.unwrap() < read {
            return;
        }
    }
    panic!("the kernel does not stamp datagrams");
}

#[test]
fn time_in_the_sockets_queue_is_part_of_the_sojourn() {
    let group = group("127.0.0.1", 1, true);
    await_stamps(&group);
    let clock = Clock::start();
    peer("127.0.0.1").send_to(b"BYE", group.local()).unwrap();
    let sent = clock.now();
    thread::sleep(Duration::from_millis(60));
    let (core, sight) = Echo::new();
    let handoffs = Handoffs::alone().unwrap();
    let listeners = vec![group.listener(0)];
    let running = start(core, clock, Limits::default(), listeners, handoffs);
    let Seen::Offered { sojourn, .. } = next(&sight) else { panic!("offered first") };
    assert!(sojourn >= Duration::from_millis(60), "{sojourn:?}");
    assert!(sojourn < clock.now().since(sent) + Duration::from_millis(10), "{sojourn:?}");
    running.end();
}

#[test]
fn every_datagram_is_received_or_counted_as_overflow() {
    const SENT: u64 = 2_000;
    let address = "127.0.0.1:0".parse().unwrap();
    let group = open(&Listen { receive_buffer: 20_000, ..Listen::new(address) }).unwrap();
    let peer = peer("127.0.0.1");
    for i in 0..SENT {
        let text = if i % 2 == 0 { "INVITE" } else { "BYE" };
        peer.send_to(text.as_bytes(), group.local()).unwrap();
    }
    let (core, _sight) = Echo::new();
    let handoffs = Handoffs::alone().unwrap();
    let listeners = vec![group.listener(0)];
    let running = start(core, Clock::start(), Limits::default(), listeners, handoffs);
    // The last datagrams were dropped. No later datagram arrives that could report the drops.
    let mut waited = 0;
    while running.counters.received() + running.counters.overflow.get() < SENT {
        thread::sleep(Duration::from_millis(10));
        waited += 1;
        assert!(waited < 1_000, "counted while running, with no further datagram");
    }
    let (_, counters) = running.end();
    assert_eq!(counters.received() + counters.overflow.get(), SENT);
    assert!(counters.received() > 0 && counters.overflow.get() > SENT / 2);
}

#[test]
fn a_closed_port_comes_back_as_a_failure() {
    for (ip, from) in [("127.0.0.1", "127.0.3.2"), ("::1", "::1")] {
        let group = group(ip, 1, true);
        // This peer is closed before its echo is sent.
        let closed = {
            let peer = peer(from);
            peer.send_to(b"BYE", group.local()).unwrap();
            peer.local_addr().unwrap()
        };
        let (core, sight) = Echo::new();
        let handoffs = Handoffs::alone().unwrap();
        let listeners = vec![group.listener(0)];
        let running = start(core, Clock::start(), Limits::default(), listeners, handoffs);
        let failure = loop {
            if let Seen::Failed(failure) = next(&sight) {
                break failure;
            }
        };
        let flow = Flow::udp(group.local(), closed);
        assert_eq!(failure, Failure::new(flow, Cause::Refused, b"BYE"));
        let (_, counters) = running.end();
        assert_eq!((counters.icmp_reports.get(), counters.sent.get()), (1, 1));
    }
}

#[test]
fn a_timer_fires_when_it_is_due_and_not_before() {
    let clock = Clock::start();
    let group = group("127.0.0.1", 1, true);
    let (mut core, sight) = Echo::new();
    let due = clock.now() + Duration::from_millis(30);
    core.timer = Some(due);
    let handoffs = Handoffs::alone().unwrap();
    let listeners = vec![group.listener(0)];
    let running = start(core, clock, Limits::default(), listeners, handoffs);
    let Seen::Timeout(fired) = next(&sight) else { panic!("nothing else happens") };
    assert!(fired >= due);
    // Anything else than the timer would wake the shard late, after a second or more.
    assert!(fired.since(due) < Duration::from_secs(1), "{:?}", fired.since(due));
    running.end();
}

#[test]
fn each_wildcard_datagram_is_answered_from_the_address_it_came_to() {
    let group = open(&Listen::new("0.0.0.0:0".parse().unwrap())).unwrap();
    let (core, sight) = Echo::new();
    let handoffs = Handoffs::alone().unwrap();
    let listeners = vec![group.listener(0)];
    let running = start(core, Clock::start(), Limits::default(), listeners, handoffs);
    let peer = peer("127.0.0.1");
    for host in ["127.0.0.5", "127.0.0.9"] {
        let to = SocketAddr::new(host.parse().unwrap(), group.local().port());
        peer.send_to(b"OPTIONS", to).unwrap();
        assert_eq!(received(&peer), (b"OPTIONS".to_vec(), to));
        let Seen::Offered { flow, .. } = next(&sight) else { panic!("offered first") };
        assert_eq!(flow, Flow::udp(to, peer.local_addr().unwrap()));
        assert_eq!(next(&sight), Seen::Served);
    }
    running.end();
}

#[test]
fn a_stop_drains_once_and_waits_at_most_for_the_time_limit() {
    // The core is drained at once.
    let (running, sight, _group) = echo("127.0.0.1");
    let (summary, _) = running.end();
    assert_eq!(summary.ended, Ended::Drained);
    assert_eq!(sight.iter().collect::<Vec<_>>(), [Seen::Drain]);

    let undrained = |drain| {
        let group = group("127.0.0.1", 1, true);
        let (core, sight) = Echo::new();
        core.drains.store(false, Relaxed);
        let limits = Limits { drain, ..Limits::default() };
        let handoffs = Handoffs::alone().unwrap();
        let listeners = vec![group.listener(0)];
        (start(core, Clock::start(), limits, listeners, handoffs), sight, group)
    };
    // The core is never drained, so the time limit ends the run.
    let (running, _sight, _group) = undrained(Duration::from_millis(20));
    let (summary, _) = running.end();
    assert_eq!(summary.ended, Ended::Late);
    assert!(summary.after >= Duration::from_millis(20));

    // The core is never drained, so it works until the second request to stop.
    let (running, sight, group) = undrained(Duration::from_secs(3_600));
    running.stop.request();
    assert_eq!(next(&sight), Seen::Drain);
    let peer = peer("127.0.0.1");
    peer.send_to(b"BYE", group.local()).unwrap();
    assert_eq!(received(&peer).0, b"BYE");
    assert_eq!(running.end().0.ended, Ended::Forced);
}

/// A process that gets no more packets must not wait until its time limit if its last transaction
/// ends long before that limit.
#[test]
fn a_last_call_that_ends_by_a_timer_ends_the_drain() {
    let drain = Duration::from_secs(20);
    let group = group("127.0.0.1", 1, true);
    let clock = Clock::start();
    let (mut core, _sight) = Echo::new();
    core.drains.store(false, Relaxed);
    core.timer = Some(clock.now() + Duration::from_millis(50));
    let limits = Limits { drain, ..Limits::default() };
    let handoffs = Handoffs::alone().unwrap();
    let running = start(core, clock, limits, vec![group.listener(0)], handoffs);
    let (summary, _) = running.end();
    assert!(summary.ended == Ended::Drained && summary.after < drain, "{summary:?}");
}

#[test]
fn a_stopping_process_leaves_a_shared_address_and_serves_all_arrivals() {
    const CLIENTS: usize = 64;
    let shared = |address| open(&Listen { shared: true, ..Listen::new(address) }).unwrap();
    let group = shared("127.0.0.1:0".parse().unwrap());
    let other = shared(group.local());
    let clients: Vec<_> = iter::repeat_with(|| peer("127.0.0.1")).take(CLIENTS).collect();
    let ask = || {
        for client in &clients {
            client.send_to(b"INVITE", group.local()).unwrap();
        }
    };
    // Returns the number of datagrams that the kernel has given to the other process.
    let at_other = || {
        let socket = other.listener(0);
        iter::from_fn(|| socket.ordinary().recv(&mut [0; 16]).ok()).count()
    };
    ask();
    let (core, sight) = Echo::new();
    core.drains.store(false, Relaxed);
    let stop = Stop::new();
    stop.request();
    let (listeners, handoffs) = (vec![group.listener(0)], Handoffs::alone().unwrap());
    let running = start_with(core, Clock::start(), Limits::default(), listeners, handoffs, stop);
    let before = iter::from_fn(|| Some(next(&sight))).take_while(|seen| *seen != Seen::Drain);
    let offered = before.filter(|seen| matches!(seen, Seen::Offered { .. })).count();
    assert!(offered > 0 && offered + at_other() == CLIENTS, "{offered}");
    ask();
    assert_eq!(at_other(), CLIENTS, "it has left");
    assert_eq!(running.end().0.ended, Ended::Forced);
}

/// On a busy machine, the thread may be blocked for longer than the time for which it reads a
/// shared address. Even then, the shard must receive all datagrams that have arrived at that
/// address.
#[test]
fn arrivals_at_a_shared_address_are_all_read_before_the_end() {
    const DATAGRAMS: usize = 20;
    let listen = Listen { shared: true, ..Listen::new("127.0.0.1:0".parse().unwrap()) };
    let group = open(&listen).unwrap();
    let client = peer("127.0.0.1");
    for _ in 0..DATAGRAMS {
        client.send_to(b"INVITE", group.local()).unwrap();
    }
    let (mut core, sight) = Echo::new();
    core.stall = Duration::from_millis(25);
    let stop = Stop::new();
    stop.request();
    let (listeners, handoffs) = (vec![group.listener(0)], Handoffs::alone().unwrap());
    let limits = Limits { ordinary: 1, ..Limits::default() };
    let running = start_with(core, Clock::start(), limits, listeners, handoffs, stop);
    let before = iter::from_fn(|| Some(next(&sight))).take_while(|seen| *seen != Seen::Drain);
    let offered = before.filter(|seen| matches!(seen, Seen::Offered { .. })).count();
    assert_eq!(offered, DATAGRAMS);
    assert_eq!(running.join().0.ended, Ended::Drained);
}

#[test]
fn a_shard_without_work_continues_while_another_has_work() {
    let (clock, stop) = (Clock::start(), Stop::new());
    let [idle_group, holding_group] = [0; 2].map(|_| group("127.0.0.1", 1, true));
    let (mut idle, idle_sight) = Echo::new();
    idle.pass_to = Some(1);
    let (holding, holding_sight) = Echo::new();
    holding.drains.store(false, Relaxed);
    let holding_drains = Arc::clone(&holding.drains);
    let mut mesh = Handoffs::mesh(2, 8).unwrap().into_iter();
    let mut started = |core, group: &Group| {
        let handoffs = mesh.next().unwrap();
        let listeners = vec![group.listener(0)];
        start_with(core, clock, Limits::default(), listeners, handoffs, stop.clone())
    };
    let shards = [started(idle, &idle_group), started(holding, &holding_group)];
    let peer = peer("127.0.0.1");
    let answer = || peer.send_to(b"SIP/2.0 200 OK", idle_group.local()).unwrap();
    let handoffs = || {
        answer();
        iter::from_fn(|| Some(next(&holding_sight)))
            .any(|seen| matches!(seen, Seen::Offered { handoffs: 1, .. }))
    };
    assert!(handoffs(), "both run");
    stop.request();
    iter::from_fn(|| Some(next(&idle_sight))).find(|seen| *seen == Seen::Drain);
    assert!(handoffs(), "what arrives at the one still reaches the other");
    holding_drains.store(true, Relaxed);
    // If the shard has not noticed yet that its core is drained, the next packet makes it do so.
    answer();
    for shard in shards {
        assert_eq!(shard.join().0.ended, Ended::Drained);
    }
}

#[test]
fn a_command_wakes_a_shard_and_several_keep_their_order() {
    let group = group("127.0.0.1", 1, true);
    let (core, sight) = Echo::new();
    let listeners = vec![group.listener(0)];
    let handoffs = Handoffs::alone().unwrap();
    let running = start(core, Clock::start(), Limits::default(), listeners, handoffs);
    let command = |number: u8| Seen::Command(vec![number]);
    // The command is sent after the shard has started. Then the shard sleeps, because there is
    // nothing to do.
    let peer = peer("127.0.0.1");
    peer.send_to(b"x", group.local()).unwrap();
    received(&peer);
    while !matches!(next(&sight), Seen::Served) {}
    for number in 0..10 {
        running.commands.give(&[number]).unwrap();
        assert_eq!(next(&sight), command(number));
    }
    let several = 10..20;
    several.clone().for_each(|number| running.commands.give(&[number]).unwrap());
    several.for_each(|number| assert_eq!(next(&sight), command(number)));
    assert_eq!(running.end().0.ended, Ended::Drained);
}

#[test]
fn send_failures_are_counted_and_reported() {
    let group = group("127.0.0.1", 1, true);
    let (core, sight) = Echo::new();
    let mut mesh = Handoffs::mesh(2, 8).unwrap();
    let other = mesh.remove(1);
    let listeners = vec![group.listener(0)];
    let running = start(core, Clock::start(), Limits::default(), listeners, mesh.remove(0));

    // The core echoes packets that seem to have come on these flows, on which nothing can be sent.
    let local = group.local();
    let elsewhere: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let homeless = Flow::udp("127.0.0.99:5060".parse().unwrap(), elsewhere);
    let nowhere = Flow::udp(local, "127.0.0.1:0".parse().unwrap());
    let too_large = Flow::udp(local, peer("127.0.0.1").local_addr().unwrap());
    let pool = Pool::new();
    for (flow, len) in [(homeless, 1), (nowhere, 1), (too_large, 65_508)] {
        let received = Received::new(Timestamp::ZERO, flow, pool.copy(&vec![b'x'; len]));
        let input = HandoffInput::Received(received);
        assert!(other.send(Handoff { shard: 0, input }).is_ok());
    }
    let mut failures = Vec::new();
    while failures.len() < 3 {
        if let Seen::Failed(failure) = next(&sight) {
            failures.push(failure);
        }
    }
    let failed = |flow, cause| Failure::new(flow, cause, b"");
    for expected in [
        failed(homeless, Cause::Other),
        failed(nowhere, Cause::Other),
        failed(too_large, Cause::TooLarge),
    ] {
        assert!(failures.contains(&expected), "{expected:?} is not among {failures:?}");
    }
    let (_, counters) = running.end();
    assert_eq!(counters.send_homeless.get(), 1);
    assert_eq!(counters.send_refused.get(), 1);
    let unsent = counters.unsent.take();
    let why = unsent.iter().find(|(to, ..)| *to == nowhere.remote).map(|(_, why, _)| *why);
    assert_eq!(why, Some("nothing can be sent to port 0"), "no system call was made");
    assert_eq!(counters.send_too_large.get(), 1);
    assert_eq!(counters.sent.get(), 0);
}

#[test]
fn an_impossible_shard_is_refused() {
    let shard = Shard {
        clock: Clock::start(),
        limits: Limits::default(),
        listeners: vec![group("127.0.0.1", 1, false).listener(0); 17],
        handoffs: Handoffs::alone().unwrap(),
        counters: Default::default(),
        stop: Stop::new(),
        pool: Pool::new(),
    };
    assert_eq!(
        Drive::new(shard).unwrap_err().to_string(),
        "there are 17 listeners, but at most 16 are possible"
    );
}
