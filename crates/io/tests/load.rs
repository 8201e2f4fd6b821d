//! Tests of the readings of the load that a core gets.

#![allow(clippy::disallowed_methods)] // Tests wait for real sockets.

mod cores;

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use cores::{peer, received};
use tidegate_io::*;
use tidegate_world::*;

/// The input of the worker after which it sends its report.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    WithLoad,
    WithNothingToServe,
}

/// A core that works on each packet, and passes each reading of the load to the test.
struct Worker {
    readings: Sender<(Timestamp, Load)>,
    /// Number of rounds of arithmetic for each packet.
    work: u32,
    waiting: VecDeque<Received>,
    out: VecDeque<Transmit>,
    /// The destination of the report, and the input after which the worker sends it.
    report: Option<(Sent, Flow)>,
    /// The time of the next tick.
    tick: Timestamp,
    ticks: Arc<Counter>,
    pool: Pool,
}

impl Worker {
    fn send(&mut self, at: Sent) {
        if let Some((_, flow)) = self.report.take_if(|(sent, _)| *sent == at) {
            self.out.push_back(Transmit::new(flow, self.pool.copy(b"report")));
        }
    }
}

impl Core for Worker {
    fn offer(&mut self, _: Timestamp, received: Received) {
        self.waiting.push_back(received);
    }

    fn serve(&mut self, _: Timestamp) -> bool {
        let Some(Received { flow, bytes, .. }) = self.waiting.pop_front() else {
            self.send(Sent::WithNothingToServe);
            return false;
        };
        let mut x = 1u64;
        for i in 0..self.work {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005) + u64::from(i));
        }
        self.out.push_back(Transmit::new(flow, bytes));
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.tick = now + SAMPLE;
        self.ticks.add(1);
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        let _ = self.readings.send((now, load));
        self.send(Sent::WithLoad);
    }

    fn on_drain(&mut self, _: Timestamp) {}

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.waiting.is_empty()).then_some(self.tick)
    }

    fn is_drained(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Opens a group on a free port with receive buffers of 100 kB.
fn group() -> Group {
    let address = "127.0.0.1:0".parse().unwrap();
    open(&Listen { receive_buffer: 100_000, ..Listen::new(address) }).unwrap()
}

/// Number of rounds of arithmetic that take about [`SAMPLE`] or longer on any machine.
const LONG: u32 = 3_000_000;

type Readings = Receiver<(Timestamp, Load)>;

/// Drives a worker until `meanwhile` returns, and returns the readings.
fn drive(
    group: &Group,
    limits: Limits,
    work: u32,
    report: Option<(Sent, SocketAddr)>,
    meanwhile: impl FnOnce(&Readings),
) -> Vec<(Timestamp, Load)> {
    drive_and_count(group, limits, work, report, &Arc::default(), meanwhile)
}

/// Drives a worker as [`drive`] does, and counts its ticks.
fn drive_and_count(
    group: &Group,
    limits: Limits,
    work: u32,
    report: Option<(Sent, SocketAddr)>,
    ticks: &Arc<Counter>,
    meanwhile: impl FnOnce(&Readings),
) -> Vec<(Timestamp, Load)> {
    let ticks = Arc::clone(ticks);
    let (readings, told) = channel();
    let listeners = vec![group.listener(0)];
    let local = group.local();
    let stop = Stop::new();
    let asked = stop.clone();
    let clock = Clock::start();
    let shard = thread::spawn(move || {
        let pool = Pool::new();
        let mut core = Worker {
            readings,
            work,
            waiting: VecDeque::new(),
            out: VecDeque::new(),
            report: report.map(|(at, remote)| (at, Flow::udp(local, remote))),
            tick: Timestamp::ZERO,
            ticks,
            pool: pool.clone(),
        };
        let handoffs = Handoffs::alone().unwrap();
        let counters = Arc::default();
        let shard = Shard { clock, limits, listeners, handoffs, counters, stop: asked, pool };
        Drive::new(shard).unwrap().run(&mut core).unwrap();
    });
    meanwhile(&told);
    stop.request();
    shard.join().unwrap();
    told.try_iter().collect()
}

fn reading(told: &Readings) -> (Timestamp, Load) {
    told.recv_timeout(Duration::from_secs(10)).expect("a reading within ten seconds")
}

/// Sends `count` datagrams that fit into the buffer together.
fn send(peer: &UdpSocket, group: &Group, count: usize) {
    for _ in 0..count {
        peer.send_to(b"BYE", group.local()).unwrap();
    }
}

#[test]
fn busy_time_is_all_the_time_while_there_is_work() {
    const MESSAGES: usize = 20;
    let group = group();
    let peer = peer("127.0.0.1");
    send(&peer, &group, MESSAGES);
    let mut seen = Vec::new();
    let rest = drive(&group, Limits::default(), LONG, None, |told| {
        seen.extend((0..5).map(|_| reading(told)));
        (0..MESSAGES).for_each(|_| drop(received(&peer)));
    });
    for pair in seen.windows(2) {
        let ((t0, load0), (t1, load1)) = (pair[0], pair[1]);
        // The shard did not wait between these two readings, so the whole time was busy.
        assert_eq!(load1.busy - load0.busy, t1.since(t0));
        assert!(load1.cpu > load0.cpu);
    }
    seen.extend(rest);
    for pair in seen.windows(2) {
        let ((t0, load0), (t1, load1)) = (pair[0], pair[1]);
        assert!(t1 > t0 && load1.busy >= load0.busy && load1.cpu >= load0.cpu);
        assert!(load1.busy - load0.busy <= t1.since(t0));
    }
    assert!(seen[0].1.busy <= seen[0].0.since(Timestamp::ZERO));
}

#[test]
fn time_spent_waiting_is_not_busy() {
    let group = group();
    let peer = peer("127.0.0.1");
    let rest = drive(&group, Limits::default(), 1, None, |_| {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(50));
            send(&peer, &group, 1);
            received(&peer);
        }
    });
    let (at, load) = rest[rest.len() - 1];
    let waited = at.since(Timestamp::ZERO).saturating_sub(load.busy);
    assert!(waited >= Duration::from_millis(50), "{waited:?} of {at:?}");
    // The load is not read while nothing happens. A reading every 2 ms would give seventy readings.
    assert!(rest.len() <= 20, "{rest:?}");
}

#[test]
fn fill_is_that_of_the_fullest_socket_while_datagrams_wait() {
    let group = group();
    let peer = peer("127.0.0.1");
    // Fifty datagrams take about 40 kB of the 100 kB. The exact number depends on the kernel.
    send(&peer, &group, 50);
    let limits = Limits { ordinary: 1, ..Limits::default() };
    drive(&group, limits, LONG, None, |told| {
        let first = reading(told).1.socket_fill;
        assert!(first > 0.1 && first < 0.9, "{first}");
        // One datagram is read in each turn, and none is sent meanwhile.
        let mut last = first;
        for _ in 0..50 {
            received(&peer);
        }
        while let Ok((_, load)) = told.try_recv() {
            assert!(load.socket_fill <= last);
            last = load.socket_fill;
        }
        assert!(last < first);
    });
}

#[test]
fn a_socket_that_overflows_is_full_and_no_more_than_full() {
    let group = group();
    let peer = peer("127.0.0.1");
    // Sends more than the buffer of the INVITE socket holds. The other socket stays empty.
    for _ in 0..500 {
        peer.send_to(b"INVITE", group.local()).unwrap();
    }
    drive(&group, Limits::default(), 1, None, |told| {
        let fill = reading(told).1.socket_fill;
        assert!(fill > 0.9 && fill <= 1.0, "{fill}");
    });
}

#[test]
fn turns_in_quick_succession_share_a_reading_of_the_counters() {
    let group = group();
    let peer = peer("127.0.0.1");
    // Each datagram takes one turn of some ten microseconds.
    send(&peer, &group, 100);
    let limits = Limits { ordinary: 1, ..Limits::default() };
    let rest = drive(&group, limits, 1, None, |_| {
        (0..100).for_each(|_| drop(received(&peer)));
    });
    for pair in rest.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= SAMPLE);
    }
}

/// Laws decide at ticks. If a long turn of a slow processor had only one tick, a law would treat
/// the turn as a stall.
#[test]
fn the_load_is_read_and_timers_fire_while_a_turn_serves() {
    const MESSAGES: usize = 20;
    let group = group();
    let peer = peer("127.0.0.1");
    send(&peer, &group, MESSAGES);
    // A turn serves several messages.
    let limits = Limits { quantum: Duration::from_millis(10), ..Limits::default() };
    let ticks = Arc::default();
    let rest = drive_and_count(&group, limits, 2 * LONG, None, &ticks, |_| {
        (0..MESSAGES).for_each(|_| drop(received(&peer)));
    });
    assert!(rest.len() >= MESSAGES && ticks.get() >= MESSAGES as u64 - 1, "{rest:?} {ticks:?}");
}

#[test]
fn packets_of_a_core_leave_at_once_after_every_input() {
    let group = group();
    let peer = peer("127.0.0.1");
    for at in [Sent::WithLoad, Sent::WithNothingToServe] {
        let report = Some((at, peer.local_addr().unwrap()));
        drive(&group, Limits::default(), 1, report, |_| {
            assert_eq!(received(&peer), (b"report".to_vec(), group.local()), "{at:?}");
        });
    }
}
