//! Tests of ticks, and of the rate at which work leaves the queue.

use super::*;

/// A law that ticks every 20 ms, and then lets work wait for as long as the lag that it sees.
static LAGS: Entry = Entry {
    name: "lags",
    summary: "",
    source: "",
    doc: "",
    params: &[],
    check: |_| Ok(()),
    build: |_: &Values| Box::new(Lags),
};

#[derive(Debug)]
struct Lags;

impl Law for Lags {
    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        control.queue.wait_max = signals.queue.lag;
    }

    fn tick(&self) -> Option<Duration> {
        Some(MS * 20)
    }

    fn is_at_rest(&self) -> bool {
        false
    }
}

/// The law `none` has no ticks, and `tide` has a tick every 10 ms.
#[test]
fn a_shadow_law_sees_the_longest_lag_since_its_own_last_tick() {
    for name in ["none", "tide"] {
        let law = crate::registry::find(name).unwrap().defaults();
        let settings = Settings { shadow: Some(LAGS.defaults()), ..Settings::new(law) };
        let mut gate = Gate::new(settings, Seed(1), 0);
        gate.on_arrival(at(0), 0);
        for ms in [3, 8, 5] {
            gate.on_lag(MS * ms);
        }
        let seen = [10, 20, 40].map(|ms| {
            gate.handle_timeout(at(ms), 0);
            gate.shadow().unwrap().control().queue.wait_max
        });
        assert_eq!(seen, [None, Some(MS * 8), None], "{name}");
    }
}

#[test]
fn a_new_law_sees_no_lag_from_before() {
    let law = crate::registry::find("none").unwrap().defaults();
    let mut gate = Gate::new(Settings::new(law), Seed(1), 0);
    gate.on_arrival(at(0), 0);
    gate.on_lag(MS * 8);
    gate.switch(at(1000), LAGS.defaults(), None);
    gate.handle_timeout(at(1020), 0);
    assert_eq!(gate.control().queue.wait_max, None);
}

#[test]
fn a_law_without_ticks_arms_no_timer() {
    let mut gate = gate(&[]);
    gate.on_arrival(at(0), 0);
    assert_eq!(gate.poll_timeout(), None);
    gate.handle_timeout(at(100), 5);
    assert_eq!((gate.control().queue.waiting_max, gate.poll_timeout()), (1_000_000, None));
}

#[test]
fn ticks_begin_with_an_arrival_and_cease_when_nothing_is_left_to_do() {
    let mut gate = gate(&[("tick", 10.0)]);
    assert_eq!(gate.poll_timeout(), None);
    gate.on_arrival(at(100), 0);
    gate.on_arrival(at(105), 0);
    assert_eq!(gate.poll_timeout(), Some(at(110)), "a second arrival does not put it off");
    // A timeout that is handled too early changes nothing.
    gate.handle_timeout(at(109), 7);
    assert_eq!(gate.signals().queue.waiting, 0);
    assert_eq!(gate.poll_timeout(), Some(at(110)));
    // After a late tick, the next one is a whole interval later.
    gate.handle_timeout(at(117), 1);
    assert_eq!(gate.poll_timeout(), Some(at(127)), "something waits");
    gate.handle_timeout(at(127), 0);
    assert_eq!(gate.poll_timeout(), None);
    gate.on_arrival(at(60_000), 0);
    assert_eq!(gate.poll_timeout(), Some(at(60_010)));
}

#[test]
fn a_restless_law_goes_on_ticking() {
    let mut gate = gate(&[("tick", 10.0), ("restless", 1.0)]);
    gate.on_arrival(at(0), 0);
    gate.handle_timeout(at(10), 0);
    assert_eq!(gate.poll_timeout(), Some(at(20)));
}

#[test]
fn ticks_go_on_while_other_new_work_than_sessions_waits() {
    let tide = crate::registry::find("tide").unwrap().defaults();
    let mut gate = Gate::new(Settings { shadow: Some(tide), ..Settings::new(tide) }, Seed(1), 0);
    gate.on_arrival(at(0), 0);
    let Verdict::Admit(registration) = gate.on_new(at(0), Bucket::Single, 0, None, true) else {
        panic!()
    };
    gate.handle_timeout(at(10), 0);
    assert_eq!(gate.poll_timeout(), Some(at(20)));
    assert_eq!(gate.shadow().unwrap().due(), at(20));
    gate.on_taken(at(15), registration);
    gate.handle_timeout(at(20), 0);
    assert_eq!(gate.poll_timeout(), None);
}

/// The law `tide` rests between the calls of this test. It computes the same window as without
/// rests, and so does the shadow law.
#[test]
fn a_rest_does_not_change_what_a_law_measures() {
    let tide = crate::registry::find("tide").unwrap().defaults();
    let settings = Settings { shadow: Some(tide), ..Settings::new(tide) };
    let mut gate = Gate::new(settings, Seed(1), 0);
    let (mut now, mut busy) = (at(0), Duration::ZERO);
    for _ in 0..1000 {
        now = now + Duration::from_secs(10);
        // A driver reads the load before it reads the first message.
        gate.on_load(now, &Load { busy, cpu: busy, ..Load::default() });
        gate.on_arrival(now, 0);
        let Verdict::Admit(ticket) = gate.on_new(now, Bucket::Session, INVITE, None, true) else {
            panic!()
        };
        assert_eq!(gate.on_taken(now, ticket), None);
        busy += MS;
        now = now + 10 * MS;
        gate.on_load(now, &Load { busy, cpu: busy, ..Load::default() });
        gate.handle_timeout(now, 0);
        assert_eq!(gate.poll_timeout(), None);
    }
    // A thousand calls a second for 160 ms.
    let window = |control: &Control| match control.admit(Bucket::Session) {
        Allowance::Window(window) => window,
        other => panic!("{other:?}"),
    };
    let windows = [gate.control(), gate.shadow().unwrap().control()].map(window);
    assert!(windows.iter().all(|window| (window - 160.0).abs() < 1.0), "{windows:?}");
}

#[test]
fn sessions_are_released_at_the_rate_of_the_law() {
    let mut gate = gate(&[("rate", 100.0), ("tick", 10.0)]);
    let mut tickets: Vec<_> = (1..=4).map(|call| enters(&mut gate, at(0), Some(call))).collect();
    for tick in 1..=4 {
        assert!(!gate.may_release());
        gate.handle_timeout(at(tick * 10), tickets.len());
        assert!(gate.may_release(), "one each tick");
        gate.on_taken(at(tick * 10), tickets.pop().unwrap());
    }
    assert!(!gate.may_release());
}

#[test]
fn only_sessions_are_paced() {
    let mut gate = gate(&[("rate", 100.0), ("tick", 10.0)]);
    gate.on_arrival(at(0), 0);
    let Verdict::Admit(single) = gate.on_new(at(0), Bucket::Single, 0, None, true) else {
        panic!()
    };
    gate.handle_timeout(at(10), 1);
    gate.on_taken(at(10), single);
    assert!(gate.may_release());
}

// Ticks were missed for 20 ms. The work that they would have released is released now. If it is not
// taken, it counts as credit at the next tick.
#[test]
fn a_late_tick_releases_for_the_time_that_has_passed() {
    let mut gate = gate(&[("rate", 100.0), ("tick", 10.0)]);
    let tickets: Vec<_> = (1..=5).map(|call| enters(&mut gate, at(0), Some(call))).collect();
    gate.handle_timeout(at(30), 5);
    let mut taken = 0;
    for ticket in tickets {
        if gate.may_release() {
            gate.on_taken(at(30), ticket);
            taken += 1;
        }
    }
    assert_eq!(taken, 3);
    gate.handle_timeout(at(45), 2);
    assert_eq!(gate.signals().queue.credit, 0.0);
    gate.handle_timeout(at(55), 2);
    assert_eq!(gate.signals().queue.credit, 1.5);
}

const TICKET: Ticket = Ticket {
    bucket: Bucket::Session,
    class: 0,
    fingerprint: None,
    again: false,
    exempt: false,
    shadow_exempt: false,
    source: None,
    is_handed_off: false,
};

// Time without waiting work earns no credit.
#[test]
fn idle_time_earns_no_credit() {
    let mut gate = gate(&[("rate", 100.0), ("tick", 10.0)]);
    gate.on_arrival(at(0), 0);
    gate.handle_timeout(at(10), 0);
    gate.on_taken(at(10), TICKET);
    gate.on_arrival(at(9_990), 0);
    gate.handle_timeout(at(10_000), 50);
    assert!(gate.may_release());
    gate.on_taken(at(10_000), TICKET);
    assert!(!gate.may_release());
}

// REGISTERs, OPTIONS and calls with priority wait in queues of their own. Their short waits must not
// end an overload of calls, and their long waits must not begin one.
#[test]
fn only_sessions_without_priority_count_in_the_signal_of_a_law() {
    let tripped = |call_waits: Duration, others_wait: Duration| {
        let law = crate::registry::find("codel").unwrap().values(&[]).unwrap();
        let mut settings = Settings::new(law);
        settings.sources.priority_cps = 1e6;
        let mut gate = Gate::new(settings, Seed(1), 0);
        let priority = Sender { has_priority: true, ..Sender::default() };
        for ms in 0..300 {
            let call = enters(&mut gate, at(ms), None);
            gate.on_service(at(ms), Some(&call), call_waits, 9);
            gate.on_taken(at(ms), call);
            for (sender, bucket) in
                [(Sender::default(), Bucket::Single), (priority, Bucket::Session)]
            {
                let Verdict::Admit(other) =
                    gate.on_new_from(at(ms), &sender, bucket, 8, None, true)
                else {
                    panic!("{bucket:?}")
                };
                gate.on_service(at(ms), Some(&other), others_wait, 9);
                assert_eq!(gate.on_taken(at(ms), other), None);
            }
        }
        gate.control().queue.wait_max.is_some()
    };
    assert!(tripped(MS * 50, MS));
    assert!(!tripped(MS, MS * 50));
}
