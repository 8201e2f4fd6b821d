mod laws;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use tidegate_world::{Purpose, Seed, Stream};

use super::*;
use crate::limit::WindowLaw;

const US: u64 = 1_000;
const T1_US: u64 = 500_000;

fn at(us: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000 + us * US)
}

fn ms(ms: u64) -> Timestamp {
    at(ms * 1000)
}

fn learning() -> Window {
    let window = Window::default();
    window.set(Some(WindowLearning::default()));
    window
}

/// A server with one queue, and callers whose rate does not depend on its load.
struct World {
    window: Window,
    draws: Stream,
    /// Mean time to serve the INVITE and the rest of a call, µs.
    costs_us: (f64, f64),
    /// Time in µs by which the path delays each response.
    path_us: u64,
    /// Maximum number of jobs in the server's queue. Further jobs are lost.
    room: usize,
    /// Cost of a retransmitted INVITE as a part of the cost of an INVITE, or `None` if unanswered
    /// INVITEs are not retransmitted.
    repeated: Option<f64>,
    now: u64,
    busy_until: u64,
    /// Jobs in the server's queue: the time of sending, or `None` for the rest of a call.
    queue: VecDeque<Option<u64>>,
    /// INVITEs that the server has served, by their time of sending.
    served: HashSet<u64>,
    /// INVITEs without a response, by their time of sending.
    unanswered: HashSet<u64>,
    responses: BinaryHeap<Reverse<(u64, u64)>>,
    /// Timers of retransmissions. Each has the time at which it fires, the time of sending of the
    /// INVITE, and the time since the previous copy.
    timers: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Times to the first response, µs.
    took_us: Vec<u64>,
}

/// The outcome of a run.
#[derive(Debug, Default)]
struct Outcome {
    offered: u64,
    rejected: u64,
    /// Responses within 500 ms.
    good: u64,
    late: u64,
}

impl World {
    fn new(seed: u64, costs_us: (f64, f64)) -> Self {
        Self {
            window: learning(),
            draws: Seed(seed).stream(Purpose::Arrivals, 0),
            costs_us,
            path_us: 300,
            room: usize::MAX,
            repeated: None,
            now: 0,
            busy_until: 0,
            queue: VecDeque::new(),
            served: HashSet::new(),
            unanswered: HashSet::new(),
            responses: BinaryHeap::new(),
            timers: BinaryHeap::new(),
            took_us: Vec::new(),
        }
    }

    fn capacity_cps(&self) -> f64 {
        1e6 / (self.costs_us.0 + self.costs_us.1)
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        let uniform = (self.draws.below(1 << 24) + 1) as f64 / f64::from(1 << 24);
        (-mean * uniform.ln()) as u64
    }

    /// Offers `cps` calls a second for `seconds`.
    fn run(&mut self, cps: f64, seconds: f64) -> Outcome {
        let mut outcome = Outcome::default();
        let end = self.now + (seconds * 1e6) as u64;
        let mut arrival = self.now + self.exponential(1e6 / cps);
        loop {
            let served = if self.queue.is_empty() { u64::MAX } else { self.busy_until };
            let response = self.responses.peek().map_or(u64::MAX, |&Reverse((due, _))| due);
            let timer = self.timers.peek().map_or(u64::MAX, |&Reverse((due, ..))| due);
            self.now = arrival.min(served).min(response).min(timer).max(self.now);
            if self.now >= end {
                return outcome;
            }
            if self.now == response {
                let Some(Reverse((_, sent))) = self.responses.pop() else { unreachable!() };
                if !self.unanswered.remove(&sent) {
                    continue;
                }
                self.window.on_heard(at(self.now), at(sent));
                let took = self.now - sent;
                self.took_us.push(took);
                *(if took <= 500_000 { &mut outcome.good } else { &mut outcome.late }) += 1;
            } else if self.now == arrival {
                arrival += self.exponential(1e6 / cps).max(1);
                outcome.offered += 1;
                if self.window.conforms(at(self.now), false) {
                    self.window.on_sent(at(self.now));
                    self.unanswered.insert(self.now);
                    if self.repeated.is_some() {
                        self.timers.push(Reverse((self.now + T1_US, self.now, T1_US)));
                    }
                    self.put(Some(self.now));
                } else {
                    outcome.rejected += 1;
                }
            } else if self.now == timer {
                self.retransmit();
            } else {
                self.serve();
            }
        }
    }

    /// RFC 3261 §17.1.1.2: timer A doubles with each retransmission, and timer B ends them after
    /// 64·T1.
    fn retransmit(&mut self) {
        let Some(Reverse((due, sent, waited))) = self.timers.pop() else { return };
        if !self.unanswered.contains(&sent) {
            return;
        }
        if due - sent >= 64 * T1_US {
            self.unanswered.remove(&sent);
            return;
        }
        self.timers.push(Reverse((due + 2 * waited, sent, 2 * waited)));
        self.put(Some(sent));
    }

    fn put(&mut self, job: Option<u64>) {
        if self.queue.len() >= self.room {
            return;
        }
        if self.queue.is_empty() {
            self.busy_until = self.now + self.cost(job);
        }
        self.queue.push_back(job);
    }

    fn serve(&mut self) {
        let Some(done) = self.queue.pop_front() else { return };
        if let Some(&next) = self.queue.front() {
            self.busy_until = self.now + self.cost(next);
        }
        if let Some(sent) = done {
            self.responses.push(Reverse((self.now + self.path_us, sent)));
            if self.served.insert(sent) {
                self.put(None);
            }
        }
    }

    fn cost(&mut self, job: Option<u64>) -> u64 {
        let (invite, rest) = self.costs_us;
        let mean = match job {
            Some(sent) if self.served.contains(&sent) => invite * self.repeated.unwrap_or(1.0),
            Some(_) => invite,
            None => rest,
        };
        self.exponential(mean).max(1)
    }
}

#[test]
fn a_server_keeps_its_goodput_at_any_load() {
    for (cost, seed) in [(400.0, 1), (4_000.0, 2), (20_000.0, 3)] {
        for load in [1.0, 1.2, 2.0, 5.0, 10.0] {
            let mut world = World::new(seed, (0.6 * cost, 0.4 * cost));
            let capacity = world.capacity_cps();
            world.run(load * capacity, 5.0);
            let seen = world.run(load * capacity, 20.0);
            let goodput = seen.good as f64 / 20.0 / capacity;
            // At the capacity, a queue of ten places loses a tenth of the requests.
            let least = if load == 1.0 { 0.86 } else { 0.95 };
            assert!(goodput >= least, "{cost} µs, load {load}: {goodput}, {seen:?}");
        }
    }
}

#[test]
fn a_server_with_a_small_buffer_keeps_its_goodput() {
    // The buffer holds only 32 ms of work, so no request waits long.
    for load in [1.2, 2.0, 5.0] {
        let mut world = World::new(11, (240.0, 160.0));
        world.room = 160;
        let capacity = world.capacity_cps();
        world.run(load * capacity, 10.0);
        let seen = world.run(load * capacity, 20.0);
        let lost = seen.offered - seen.rejected - seen.good - seen.late;
        assert!(seen.good as f64 / 20.0 / capacity >= 0.95, "{load}: {seen:?}");
        assert!(lost * 50 < seen.good, "{load}: {lost} of {seen:?}");
    }
}

#[test]
fn below_the_capacity_it_rejects_nothing() {
    for (cost, load, seed) in [(400.0, 0.9, 4), (4_000.0, 0.8, 5), (20_000.0, 0.6, 6)] {
        let mut world = World::new(seed, (0.6 * cost, 0.4 * cost));
        let seen = world.run(load * world.capacity_cps(), 300.0);
        assert!(seen.offered > 8_000 && seen.rejected == 0, "{cost} µs: {seen:?}");
    }
}

#[test]
fn a_slow_server_near_its_capacity_loses_few() {
    // The waits of a server with 250 calls/s exceed 100 ms at times.
    let mut world = World::new(5, (2_400.0, 1_600.0));
    let seen = world.run(0.9 * world.capacity_cps(), 300.0);
    assert!(seen.rejected * 100 < seen.offered, "{seen:?}");
}

#[test]
fn after_a_flood_nothing_is_rejected_soon() {
    let mut world = World::new(6, (600.0, 400.0));
    world.run(5_000.0, 10.0);
    world.run(500.0, 1.0);
    let seen = world.run(500.0, 10.0);
    assert!(seen.rejected == 0 && seen.late == 0, "{seen:?}");
}

#[test]
fn it_follows_a_server_that_becomes_slower_and_faster() {
    let mut world = World::new(7, (600.0, 400.0));
    world.run(3_000.0, 5.0);
    for (cost, seed) in [(4_000.0, "slower"), (500.0, "faster")] {
        world.costs_us = (0.6 * cost, 0.4 * cost);
        world.run(3.0 * world.capacity_cps(), 3.0);
        let seen = world.run(3.0 * world.capacity_cps(), 10.0);
        let goodput = seen.good as f64 / 10.0 / world.capacity_cps();
        assert!(goodput >= 0.95, "{seed}: {goodput} {seen:?}");
    }
}

#[test]
fn a_longer_path_does_not_close_it() {
    let mut world = World::new(8, (600.0, 400.0));
    world.run(2_000.0, 5.0);
    world.path_us = 120_000;
    world.run(2_000.0, 10.0);
    let seen = world.run(2_000.0, 10.0);
    let goodput = seen.good as f64 / 10.0 / world.capacity_cps();
    assert!(goodput >= 0.9, "{goodput} {seen:?}");
}

#[test]
fn lost_requests_use_up_the_window_for_half_a_second() {
    let window = learning();
    for i in 0..100 {
        window.on_sent(ms(i));
    }
    assert_eq!(window.unheard(ms(100)), 100);
    assert_eq!(window.unheard(ms(700)), 0);
    // The places of old slices are reused.
    window.on_sent(ms(700));
    window.on_heard(ms(710), ms(50));
    assert_eq!(window.unheard(ms(710)), 1, "an old request no longer counts");
    window.on_heard(ms(711), ms(700));
    window.on_heard(ms(711), ms(700));
    assert_eq!(window.unheard(ms(711)), 0);
}

#[test]
fn losses_from_before_a_pause_do_not_count() {
    // Fifty requests get no response. From `from_ms` on, twenty requests get one.
    let size = |from_ms: u64| {
        let window = learning();
        for i in 0..50 {
            window.on_sent(ms(10 * i));
        }
        for i in 0..20 {
            let sent = ms(from_ms + 25 * i);
            window.on_sent(sent);
            window.on_heard(sent + Duration::from_millis(1), sent);
        }
        window.size()
    };
    assert!(size(600_000).is_infinite());
    assert!(size(500).is_finite());
}

#[test]
fn it_is_switched_on_and_off_and_forgets() {
    let window = Window::default();
    window.on_sent(ms(0));
    assert!(!window.is_on() && window.unheard(ms(0)) == 0 && window.conforms(ms(0), false));
    let mut world = World::new(9, (600.0, 400.0));
    world.run(5_000.0, 5.0);
    let size = world.window.size();
    assert!(size.is_finite());
    world
        .window
        .set(Some(WindowLearning { delay: Duration::from_millis(20), ..Default::default() }));
    assert_eq!(world.window.size(), size, "other numbers, the same back end");
    let other = WindowLearning { law: WindowLaw::Gradient, ..Default::default() };
    world.window.set(Some(other));
    assert!(world.window.is_on() && world.window.size().is_infinite(), "another law");
    world.window.set(Some(WindowLearning::default()));
    world.run(5_000.0, 5.0);
    assert!(world.window.size().is_finite());
    world.window.forget();
    assert!(world.window.is_on() && world.window.size().is_infinite());
    world.run(5_000.0, 5.0);
    assert!(world.window.size().is_finite());
    world.window.set(None);
    assert!(!world.window.is_on() && world.window.size().is_infinite());
}

#[test]
fn priority_has_a_tenth_more() {
    let mut world = World::new(10, (600.0, 400.0));
    world.run(5_000.0, 5.0);
    let (window, now) = (&world.window, at(world.now));
    while window.conforms(now, false) {
        window.on_sent(now);
    }
    let mut more = 0;
    while window.conforms(now, true) {
        window.on_sent(now);
        more += 1;
    }
    assert!((1..=window.size() as i32 / 10 + 1).contains(&more), "{more}");
}
