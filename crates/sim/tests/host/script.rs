//! Scripts of a host: its inputs, the view of its core, and the times of its packets.

use tidegate_emulate::{Host, HostSettings};
use tidegate_world::{Cause, Core, Failure, HandoffInput, Load, Pool, Received, Timestamp, Work};

use crate::driver::{Run, drain};
use crate::echo::{Echo, Seen, flow};
use crate::{at, fifo, serving, span};

fn datagrams(list: &[(u64, &str)]) -> Vec<(Timestamp, String)> {
    list.iter().map(|&(us, text)| (at(us), text.to_string())).collect()
}

fn offer(text: &str) -> Seen {
    Seen::Offer(text.into())
}

fn served(text: &str) -> Seen {
    Seen::Serve(text.into())
}

fn received(us: u64, text: &str) -> Received {
    Received::new(at(us), flow(), Pool::new().copy(text.as_bytes()))
}

fn echo(timers: &[u64]) -> Echo {
    let mut echo = Echo::new();
    echo.timers = timers.iter().map(|&us| at(us)).collect();
    echo
}

fn inputs(seen: Vec<(Timestamp, Seen)>) -> Vec<(Timestamp, Seen)> {
    seen.into_iter().filter(|(_, seen)| !matches!(seen, Seen::Load(_))).collect()
}

#[test]
fn each_step_begins_when_the_one_before_is_complete() {
    let outcome = Run::new(fifo(2, 10, 0), &datagrams(&[(0, "A 0"), (5, "B 0"), (50, "C 0")])).go();
    let expected = [
        (at(0), offer("A 0")),
        (at(2), served("A 0")),
        (at(12), offer("B 0")),
        (at(14), served("B 0")),
        (at(24), Seen::Idle),
        (at(50), offer("C 0")),
        (at(52), served("C 0")),
        (at(62), Seen::Idle),
    ];
    assert_eq!(inputs(outcome.seen), expected);
    let sent = [(12, "A 0"), (24, "B 0"), (62, "C 0")];
    assert_eq!(outcome.sent, datagrams(&sent));
}

#[test]
fn services_follow_each_other_at_the_cost_of_each() {
    let burst = datagrams(&[(0, "A 0"), (0, "B 1"), (0, "C 2")]);
    let outcome = Run::new(serving(&[10, 300, 7]), &burst).go();
    let times: Vec<_> = inputs(outcome.seen)
        .into_iter()
        .filter(|(_, seen)| matches!(seen, Seen::Serve(_) | Seen::Idle))
        .map(|(at, _)| at)
        .collect();
    // A is served before B and C are offered: all arrived at the same time, but A was read first.
    assert_eq!(times, [0, 10, 310, 317].map(at));
    assert_eq!(outcome.sent, datagrams(&[(10, "A 0"), (310, "B 1"), (317, "C 2")]));
}

#[test]
fn timers_fire_when_due_while_the_processor_is_busy_and_their_packets_keep_the_order() {
    let one = datagrams(&[(0, "A 0")]);
    let timers = [3, 4, 40].map(at).into();
    let outcome = Run { timers, ..Run::new(fifo(0, 10, 0), &one) }.go();
    let expected = [
        (at(0), offer("A 0")),
        (at(0), served("A 0")),
        (at(3), Seen::Timeout),
        (at(4), Seen::Timeout),
        (at(10), Seen::Idle),
        (at(40), Seen::Timeout),
        (at(40), Seen::Idle),
    ];
    assert_eq!(inputs(outcome.seen), expected);
    let sent = [(10, "A 0"), (10, "timer"), (10, "timer"), (40, "timer")];
    assert_eq!(outcome.sent, datagrams(&sent));
}

#[test]
fn at_the_same_time_a_timer_precedes_a_completion_and_a_completion_an_arrival() {
    let two = datagrams(&[(0, "A 0"), (10, "B 0")]);
    let outcome = Run { timers: vec![at(10)], ..Run::new(fifo(0, 10, 0), &two) }.go();
    let expected = [(at(10), Seen::Timeout), (at(10), Seen::Idle), (at(10), offer("B 0"))];
    assert_eq!(inputs(outcome.seen)[2..5], expected);
}

#[test]
fn a_timer_that_stays_due_keeps_nothing_else_waiting() {
    let mut core = echo(&[1]);
    core.stuck = true;
    let mut host = Host::new(core, &fifo(0, 10, 0));
    host.offer(at(5), received(5, "A 0"));
    host.serve(at(20));
    assert_eq!(host.poll_transmit().unwrap().bytes[..], b"A 0"[..]);
    assert_eq!(host.poll_timeout(), Some(at(1)));
}

#[test]
fn with_a_split_invites_wait_for_everything_else() {
    let burst =
        datagrams(&[(0, "NO 0"), (1, "INVITE 0"), (2, "INVITE 0"), (3, "NO 1"), (11, "NO 2")]);
    let order = |split| -> Vec<String> {
        let settings = HostSettings { split, ..fifo(6, 0, 4) };
        let offers = inputs(Run::new(settings, &burst).go().seen).into_iter();
        offers
            .filter_map(|(_, seen)| match seen {
                Seen::Offer(text) => Some(text),
                _ => None,
            })
            .collect()
    };
    assert_eq!(order(false), ["NO 0", "INVITE 0", "INVITE 0", "NO 1", "NO 2"]);
    assert_eq!(order(true), ["NO 0", "NO 1", "NO 2", "INVITE 0", "INVITE 0"]);
}

#[test]
fn a_host_reads_from_streams_while_few_messages_wait() {
    let usual = fifo(0, 10, 0);
    for (settings, waiting_max) in [
        (HostSettings { batch: Some(1), ..usual.clone() }, 1),
        // In a turn, up to 256 ordinary messages and one INVITE.
        (HostSettings { split: true, batch: Some(1), ..usual.clone() }, 257),
        (HostSettings { buffer_max: 3, ..usual.clone() }, 3),
        (usual, 64),
    ] {
        let mut host = Host::new(Echo::new(), &settings);
        let mut count = 0;
        while host.reads_streams() {
            host.offer(at(0), received(0, "A 0"));
            count += 1;
        }
        assert_eq!(count, 1 + waiting_max, "one is in service");
        host.handle_timeout(at(10));
        assert!(host.reads_streams());
    }
}

#[test]
fn handoffs_leave_at_completion_and_arrive_when_delivered() {
    let mut host = Host::new(Echo::new(), &fifo(0, 10, 0));
    host.offer(at(0), received(0, "OVER 0"));
    host.serve(at(0));
    assert!(host.poll_handoff().is_none() && !host.is_drained());
    assert_eq!(host.poll_timeout(), Some(at(10)));
    host.handle_timeout(at(10));
    let handoff = host.poll_handoff().unwrap();
    assert_eq!(handoff.shard, 1);
    let HandoffInput::Received(mut received) = handoff.input else { panic!("{handoff:?}") };
    assert!(host.is_drained());

    // The message arrived at 0, but is handed to this shard at 90.
    received.handoffs = 1;
    let mut other = Host::new(Echo::new(), &fifo(0, 10, 0));
    other.offer(at(90), received);
    assert_eq!(inputs(other.core().seen.clone())[0], (at(90), offer("OVER 0")));
    assert_eq!(other.poll_timeout(), Some(at(100)));
}

#[test]
fn failures_commands_and_drains_reach_the_core_at_once_and_waiting_messages_are_kept() {
    let mut host = Host::new(echo(&[]), &fifo(0, 10, 0));
    let mut sent = Vec::new();
    host.offer(at(0), received(0, "A 0"));
    host.offer(at(1), received(1, "B 0"));
    host.on_failed(at(2), Failure::new(flow(), Cause::Refused, b""));
    host.on_command(at(3), b"faster");
    host.on_drain(at(3));
    drain(&mut host, at(3), &mut sent);
    let order = Seen::Command("faster".into());
    let held = [(at(2), Seen::Failed), (at(3), order), (at(3), Seen::Drain)];
    assert_eq!(host.core().inputs()[2..], held, "B still waits");
    assert!(sent.is_empty() && !host.is_drained());
    for us in [10, 20] {
        assert!(!host.is_drained());
        host.handle_timeout(at(us));
        drain(&mut host, at(us), &mut sent);
    }
    assert!(host.is_drained());
    let expected = [(10, "A 0"), (10, "failed"), (10, "order"), (10, "drain"), (20, "B 0")];
    assert_eq!(sent, datagrams(&expected));
}

#[test]
fn a_host_with_a_message_anywhere_is_not_drained() {
    let mut host = Host::new(Echo::new(), &fifo(5, 10, 0));
    assert!(host.is_drained());
    host.offer(at(0), received(0, "HUSH 0"));
    assert!(!host.is_drained(), "the core has it");
    host.handle_timeout(at(5));
    host.offer(at(6), received(6, "HUSH 0"));
    assert!(!host.is_drained(), "it is in its buffer");
    (15..=40).for_each(|us| host.handle_timeout(at(us)));
    assert!(host.is_drained());
}

#[test]
fn the_end_of_service_sends_at_once_and_is_followed_by_service() {
    let mut host = Host::new(Echo::new(), &fifo(0, 10, 0));
    host.on_drain(at(3));
    assert_eq!(host.core().inputs(), [(at(3), Seen::Drain), (at(3), Seen::Idle)]);
    assert_eq!(host.poll_transmit().unwrap().bytes[..], b"drain"[..]);
}

#[test]
fn functions_called_too_early_change_nothing() {
    let mut host = Host::new(echo(&[50]), &fifo(0, 10, 0));
    host.offer(at(0), received(0, "A 0"));
    let before = host.core().seen.clone();
    for us in 1..10 {
        host.handle_timeout(at(us));
        assert!(!host.serve(at(us)));
        assert!(host.poll_transmit().is_none());
        assert_eq!(host.poll_timeout(), Some(at(10)));
    }
    assert_eq!(host.core().seen, before);
}

#[test]
fn a_datagram_older_than_the_last_timer_is_charged_from_its_arrival() {
    let mut host = Host::new(echo(&[50]), &fifo(0, 10, 0));
    host.handle_timeout(at(60));
    assert_eq!(host.poll_transmit().unwrap().bytes[..], b"timer"[..]);
    host.offer(at(60), received(45, "A 0"));
    host.serve(at(60));
    let expected = [
        (at(50), Seen::Timeout),
        (at(50), Seen::Idle),
        (at(50), offer("A 0")),
        (at(50), served("A 0")),
        (at(55), Seen::Idle),
    ];
    assert_eq!(host.core().inputs(), expected);
    assert_eq!(host.poll_transmit().unwrap().bytes[..], b"A 0"[..], "complete at 55");
}

#[test]
fn a_drivers_reading_is_replaced_by_the_models_while_it_is_busy() {
    let mut host = Host::new(Echo::new(), &HostSettings { buffer_max: 4, ..fifo(0, 10_000, 0) });
    let real = Load { busy: span(77), cpu: span(66), socket_fill: 0.5, ..Load::default() };
    host.on_load(at(1), real);
    assert_eq!(host.core().loads(), [], "idle");
    host.offer(at(5_000), received(5_000, "A 0"));
    host.offer(at(5_000), received(5_000, "B 0"));
    host.on_load(at(6_000), real);
    host.on_load(at(9_000), real);
    let load =
        |us, socket_fill| Load { busy: span(us), cpu: span(us), socket_fill, ..Load::default() };
    let expected = [(at(5_000), load(0, 0.25)), (at(9_000), load(4_000, 0.25))];
    assert_eq!(host.core().loads(), expected);
    assert_eq!(host.poll_timeout(), Some(at(15_000)));
}

#[test]
fn the_reported_work_is_that_of_the_core() {
    let mut host = Host::new(Echo::new(), &fifo(5, 0, 0));
    host.offer(at(0), received(0, "NO 7"));
    let expected = Work { offered: Some(7), served: None, rejected: Some(7), stateless: false };
    assert_eq!(host.last_work(), expected);
}
