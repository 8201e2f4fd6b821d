//! Tests of a host in the simulator's network.

use std::time::Duration;

use tidegate_emulate::{Host, HostSettings};
use tidegate_sim::{Link, Network, Summary, Trace};
use tidegate_world::{Core, Failure, Flow, Pool, Received, Seed, Timestamp, Transmit};

use crate::echo::Echo;
use crate::{at, fifo};

/// A core that sends a packet every millisecond, and records when each comes back.
struct Source {
    left: u32,
    next: Timestamp,
    due: u32,
    text: &'static str,
    back: Vec<Timestamp>,
    pool: Pool,
}

impl Source {
    fn new(left: u32, text: &'static str) -> Self {
        let (due, next, back, pool) = Default::default();
        Self { left, next, due, text, back, pool }
    }
}

impl Core for Source {
    fn offer(&mut self, now: Timestamp, _: Received) {
        self.back.push(now);
    }
    fn handle_timeout(&mut self, now: Timestamp) {
        self.left -= 1;
        self.due += 1;
        self.next = now + Duration::from_millis(1);
    }
    fn on_failed(&mut self, _: Timestamp, failure: Failure) {
        panic!("{failure:?}");
    }
    fn on_drain(&mut self, _: Timestamp) {}
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.due = self.due.checked_sub(1)?;
        let flow = Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        Some(Transmit::new(flow, self.pool.copy(self.text.as_bytes())))
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        (self.left > 0).then_some(self.next)
    }
    fn is_drained(&self) -> bool {
        true
    }
}

/// Sends a hundred packets through a core that is 5 ms from their source.
fn through(core: &mut dyn Core, text: &'static str) -> (Summary, Vec<Timestamp>, u128) {
    let mut source = Source::new(100, text);
    let link = Link::delaying(Duration::from_millis(5));
    let mut network = Network::<&mut dyn Core, _>::new(Seed(1), link, Trace::new());
    network.add(&["127.0.0.1:1".parse().unwrap()], &mut source);
    network.add(&["127.0.0.1:2".parse().unwrap()], core);
    let summary = network.run_until(Timestamp::NEVER);
    let (_, trace) = network.into_parts();
    (summary, source.back, trace.digest())
}

fn run(settings: &HostSettings) -> (Summary, Vec<Timestamp>, u128) {
    let mut host = Host::new(Echo::new(), settings);
    let outcome = through(&mut host, "BYE 0");
    assert!(host.is_drained());
    outcome
}

#[test]
fn answers_leave_when_the_work_for_them_is_complete() {
    for (serve_us, gap_us) in [(0, 1_000), (400, 1_000), (2_500, 2_500)] {
        let (_, back, _) = run(&fifo(0, serve_us, 0));
        let expected: Vec<_> = (0..100).map(|k| at(10_000 + serve_us + k * gap_us)).collect();
        assert_eq!(back, expected, "{serve_us} µs");
    }
}

#[test]
fn a_host_without_costs_is_transparent() {
    assert_eq!(run(&fifo(0, 0, 0)), through(&mut Echo::new(), "BYE 0"));
}

/// Sends a hundred packets, one each millisecond, to a host that gets no processor from 30 to 40
/// ms. Returns the times from 35.5 to 51 ms at which packets came back, and the number of packets
/// lost at the full buffer.
fn stalled(settings: &HostSettings) -> (Vec<Timestamp>, u64) {
    let mut source = Source::new(100, "BYE 0");
    let mut host = Host::new(Echo::new(), settings);
    let link = Link::delaying(Duration::from_millis(5));
    let mut network = Network::<&mut dyn Core>::new(Seed(1), link, ());
    network.add(&["127.0.0.1:1".parse().unwrap()], &mut source);
    let node = network.add(&["127.0.0.1:2".parse().unwrap()], &mut host);
    network.run_until(at(30_000));
    network.stall(node, at(40_000));
    network.run_until(Timestamp::NEVER);
    drop(network);
    let back = source.back.into_iter().filter(|back| (at(35_500)..at(51_000)).contains(back));
    (back.collect(), host.overflow().get())
}

#[test]
fn a_stalled_host_loses_its_time_and_the_packets_beyond_its_buffer() {
    let lost = HostSettings { catches_up: false, buffer_max: 6, ..fifo(0, 900, 0) };
    // Ten packets arrive from 31 to 40 ms. At 40 ms the host starts the first one, six wait in the
    // buffer, and three are lost. The packet of 30 ms was complete during the stall, but could not
    // leave before its end.
    let (back, overflow) = stalled(&lost);
    let expected: Vec<_> = (0..7).map(|k| at(45_000 + k * 900)).collect();
    assert_eq!((&back[..7], overflow), (&expected[..], 3));

    // By default, a host catches up with a late driver, as behind real sockets.
    let (back, overflow) = stalled(&HostSettings { catches_up: true, ..lost });
    let expected = [[at(45_000); 10].as_slice(), &[at(45_900)]].concat();
    assert_eq!((&back[..11], overflow), (&expected[..], 0));
}

#[test]
fn a_stalled_host_begins_its_waiting_work_when_it_goes_on() {
    // One packet arrives every millisecond and takes 2.5 ms, so many packets wait when the stall
    // begins.
    let busy = HostSettings { catches_up: false, ..fifo(0, 2_500, 0) };
    let (back, _) = stalled(&busy);
    // Services start at 5, 7.5, …, 30 ms: the last one starts before the stall and is complete
    // during it.
    let expected: Vec<_> = (0..5).map(|k| at(45_000 + k * 2_500)).collect();
    assert_eq!(back.iter().filter(|&&back| back >= at(45_000)).count(), 3, "{back:?}");
    assert_eq!(back[back.len() - 3..], expected[..3]);
}

#[test]
fn messages_for_a_missing_shard_are_dropped_and_counted() {
    let (summary, back, _) = through(&mut Host::new(Echo::new(), &fifo(0, 2_500, 0)), "OVER 0");
    assert_eq!((summary.handoffs, back.len()), (100, 0));
}

#[test]
fn one_seed_gives_one_trace_at_any_cost() {
    assert_eq!(run(&fifo(10, 2_500, 0)), run(&fifo(10, 2_500, 0)));
    assert_ne!(run(&fifo(10, 2_500, 0)).2, run(&fifo(11, 2_500, 0)).2);
}
