//! Tests of the closed loop, which holds calls back while a number of others are open.

use std::time::Duration;

use crate::net::{Net, answering, calling};
use tidegate_agent::{CallerConfig, CallerStats, Process};
use tidegate_world::Timestamp;

/// Returns a load of 100 calls/s at equal gaps. Each call is held for 1 s, and ten may be open at
/// once.
fn limited(calls: u32) -> CallerConfig {
    let mut config = calling(100.0, calls);
    config.load.process = Process::Uniform;
    CallerConfig { hold: Duration::from_secs(1).into(), open_limit: Some(10), ..config }
}

fn balanced(stats: &CallerStats) {
    let CallerStats { offered, begun, not_begun, expired, waiting, .. } = stats;
    assert_eq!(*offered, begun + not_begun + expired + waiting);
    assert_eq!(*begun, stats.completed + stats.failed.total() + stats.open);
}

fn after(seconds: f64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs_f64(seconds)
}

#[test]
fn no_more_calls_than_the_limit_are_open_and_all_are_made_in_the_end() {
    let mut net = Net::new(limited(100), answering(), 1);
    for tenths in 1..=100u32 {
        net.run(after(f64::from(tenths) / 10.0));
        let stats = net.caller.stats();
        balanced(stats);
        // The number of offered calls does not depend on how many calls have ended.
        assert_eq!(stats.offered, u64::from(tenths * 10 + 1).min(100));
        assert!(stats.open <= 10);
        assert!(stats.open == 10 || stats.waiting == 0, "room is used at once: {stats:?}");
    }
    let (stats, _) = net.run_out();
    balanced(&stats);
    assert_eq!((stats.completed, stats.held_back, stats.waiting, stats.expired), (100, 90, 0, 0));
    // The first ten calls are set up after 10 ms. The last ten are due 0.9 s later, but start only
    // after nine calls of 1.02 s.
    assert_eq!(stats.set_up_delay.count(), 100);
    let longest = stats.set_up_delay.max().as_secs_f64();
    assert!((8.2..8.4).contains(&longest), "from the intended moment: {longest}");
    // The calls start late because of the limit, not because the generator is late.
    assert_eq!((stats.lateness.count(), stats.too_slow()), (10, None));
}

#[test]
fn callers_held_back_at_the_end_never_begin() {
    let mut config = limited(u32::MAX);
    config.load.duration = Duration::from_millis(3500);
    let mut net = Net::new(config, answering(), 2);
    net.run(after(3.5));
    let stats = net.caller.stats().clone();
    balanced(&stats);
    // In 3.5 s, the ten calls were replaced three times.
    assert_eq!((stats.offered, stats.begun, stats.waiting, stats.expired), (351, 40, 311, 0));
    net.run(after(3.500_001));
    assert_eq!((net.caller.stats().waiting, net.caller.stats().expired), (0, 311));
    let (stats, _) = net.run_out();
    balanced(&stats);
    assert_eq!((stats.completed, stats.held_back, stats.not_begun), (40, 341, 0));
    assert_eq!(stats.too_slow(), None);
}

#[test]
fn draining_discards_delayed_calls() {
    use tidegate_world::Core;
    let mut net = Net::new(limited(100), answering(), 3);
    net.run(after(0.5));
    net.caller.on_drain(net.now);
    let (stats, _) = net.run_out();
    balanced(&stats);
    assert_eq!((stats.offered, stats.completed, stats.expired), (51, 10, 41));
}

#[test]
fn a_limit_above_the_table_size_holds_nothing_back() {
    let config = CallerConfig { open_max: 10, open_limit: Some(20), ..limited(100) };
    let (stats, _) = Net::new(config, answering(), 4).run_out();
    balanced(&stats);
    assert_eq!((stats.begun, stats.not_begun, stats.held_back), (10, 90, 0));
}

#[test]
fn each_call_is_held_as_long_as_if_nothing_had_been_held_back() {
    let holds = |limit| {
        let hold = tidegate_agent::Span::Exponential(Duration::from_millis(200));
        let config = CallerConfig { hold, open_limit: limit, ..limited(50) };
        let mut net = Net::new(config, answering(), 5);
        net.trace = Some(Vec::new());
        net.run_out();
        let mut spans = std::collections::BTreeMap::new();
        for (at, text) in net.trace.unwrap() {
            let call = text.split("Call-ID: ").nth(1).unwrap().split("\r\n").next().unwrap();
            if text.starts_with("INVITE") {
                spans.insert(call.to_owned(), (at, Duration::ZERO));
            } else if text.starts_with("BYE") {
                let span = spans.get_mut(call).unwrap();
                span.1 = at.since(span.0);
            }
        }
        let mut spans: Vec<_> = spans.into_values().collect();
        spans.sort_unstable();
        spans.into_iter().map(|(_, held)| held).collect::<Vec<_>>()
    };
    let free = holds(None);
    assert_eq!(free.len(), 50);
    assert_eq!(free, holds(Some(3)));
}

#[test]
fn held_back_calls_are_bounded() {
    use tidegate_agent::Caller;
    use tidegate_world::{Core, Pool, Seed};
    let mut config = limited(1_000_100);
    config.load.rate_cps = 1e9;
    let mut caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
    while caller.stats().offered < 1_000_100 {
        caller.handle_timeout(after(0.1));
    }
    let stats = caller.stats();
    balanced(stats);
    assert_eq!((stats.begun, stats.waiting, stats.not_begun), (10, 1_000_000, 90));
}

#[test]
fn calls_of_the_warm_up_are_not_measured() {
    let config = CallerConfig { warm_up: Duration::from_millis(300), ..limited(100) };
    let (stats, _) = Net::new(config, answering(), 7).run_out();
    assert_eq!((stats.offered, stats.measured.offered), (100, 70));
    assert_eq!((stats.set_up, stats.measured.set_up), (100, 70));
}

#[test]
fn calls_after_the_measured_time_are_only_a_load() {
    let [warm_up, measured_until] = [295, 695].map(Duration::from_millis);
    let hold = Duration::from_millis(100).into();
    let config = CallerConfig { hold, open_limit: None, warm_up, measured_until, ..limited(100) };
    let (stats, _) = Net::new(config, answering(), 7).run_out();
    let measured = &stats.measured;
    assert_eq!((stats.offered, stats.set_up, stats.completed), (100, 100, 100));
    assert_eq!((measured.offered, measured.set_up, measured.set_up_in_time), (40, 40, 40));
    assert_eq!(measured.set_up_delay.count(), 40);
    // A call that starts at t sends its BYE at t + 110 ms. 40 of the BYEs are sent between 295 and
    // 695 ms.
    assert_eq!((measured.byes, measured.byes_in_time), (40, 40));
    assert_eq!((stats.persons.measured_came, stats.persons.measured_served), (40, 40));
    let goodput_cps = stats.measured_goodput_cps(warm_up, measured_until);
    assert!((goodput_cps - 100.0).abs() < 1e-6, "{goodput_cps}");
}

// A flooded server once seemed to set up calls after 3.5 s. It set them up when the load had ended.
#[test]
fn the_delay_of_a_call_that_is_set_up_too_late_and_after_the_load_is_not_measured() {
    let run = |measured_until, deadline| {
        let mut config = limited(100);
        config.load.duration = Duration::from_secs(1);
        let config = CallerConfig { open_limit: None, measured_until, deadline, ..config };
        let mut net = Net::new(config, answering(), 7);
        net.delay = Duration::from_millis(300);
        let measured = net.run_out().0.measured;
        (measured.set_up, measured.set_up_in_time, measured.set_up_delay.count())
    };
    // The calls begin at equal gaps of 10 ms and are set up after 600 ms. So the calls that begin
    // after 400 ms are set up after the load.
    let [until, long, short] = [695, 700, 500].map(Duration::from_millis);
    assert_eq!(run(until, short), (70, 0, 41));
    assert_eq!(run(until, long), (70, 70, 70), "calls in time always count");
    assert_eq!(run(Duration::MAX, short), (100, 0, 100), "no load follows the measured calls");
}

#[test]
fn byes_are_measured_by_the_moment_they_are_sent() {
    let mut config = limited(100);
    config.load.duration = Duration::from_secs(1);
    let hold = Duration::from_millis(500).into();
    let warm_up = Duration::from_millis(600);
    let config = CallerConfig { hold, warm_up, open_limit: None, ..config };
    let mut net = Net::new(config, answering(), 7);
    net.run(after(0.897));
    net.delay = Duration::from_millis(300);
    let (stats, _) = net.run_out();
    // A call that starts at t sends its BYE at t + 510 ms. 40 of the BYEs are sent between 600 ms
    // and 1 s. The ten from 900 ms on are answered after 600 ms, the others after 10 ms.
    let measured = &stats.measured;
    assert_eq!((measured.byes, measured.byes_in_time, measured.bye_delay.count()), (40, 30, 40));
    assert_eq!(measured.bye_delay.quantile(0.5).as_millis(), 10);
    assert_eq!(measured.bye_delay.max().as_millis(), 600);
    assert_eq!(measured.requests(), measured.offered + 40);
    assert_eq!(measured.requests_handled(), measured.set_up_in_time + 30);
    assert_eq!(stats.completed, 100);
}

#[test]
fn a_call_held_back_longer_than_the_deadline_is_in_time_only_for_the_answerer() {
    let mut net = Net::new(limited(100), answering(), 6);
    net.run(after(1.5));
    // Ten calls started at once. Ten more started after 1 s, when the first ten had ended.
    let stats = net.caller.stats();
    assert_eq!((stats.offered, stats.begun, stats.completed), (100, 20, 10));
    assert_eq!((stats.set_up, stats.set_up_in_time), (20, 10));
    assert_eq!((stats.failed.total(), stats.repeated.invite), (0, 0));
    assert_eq!((stats.open, stats.waiting), (10, 80));
    let stats = net.answerer.stats();
    assert_eq!((stats.calls, stats.answered, stats.completed, stats.open), (20, 20, 10, 10));
    assert_eq!((stats.acknowledged, stats.acknowledged_in_time), (20, 20));
    assert_eq!((stats.invites_again, stats.repeated), (0, 0));
}
