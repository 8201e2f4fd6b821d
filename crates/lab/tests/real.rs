//! Tests of nodes on real sockets.

#![allow(clippy::disallowed_methods)] // It waits for real sockets.

use std::thread;
use std::time::{Duration, Instant};

use tidegate_agent::{
    AnswererConfig, BackOff, CallerConfig, DevicesConfig, Load, Redial, RegistrationLoss, Span,
};
use tidegate_lab::real::{Answerers, Callers};
use tidegate_world::Seed;

/// Waits up to 30 s for a condition, because the machine may be busy.
fn until(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "it did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn callers_reach_answerers_and_both_report_their_calls() {
    let answerers = Answerers::start(2, |_, at| AnswererConfig::new(at), Seed(1)).unwrap();
    let target = answerers.addresses().next().unwrap();
    let load = Load { rate_cps: 500.0, calls: 100, ..Load::default() };
    let configure = |local| CallerConfig {
        load,
        warm_up: Duration::from_millis(50),
        ..CallerConfig::new(local, target)
    };
    let callers = Callers::start(configure, Seed(1), 0).unwrap();
    until(|| callers.reading().offered == 100 && callers.reading().open == 0);
    assert_eq!(callers.reading().set_up, 100);
    let called = callers.finish().unwrap();
    assert_eq!((called.stats.completed, called.drops), (100, 0));
    let measured = &called.stats.measured;
    assert!(measured.offered > 0 && measured.offered < 100, "{measured:?}");
    assert_eq!(measured.set_up, measured.offered);
    assert_eq!(measured.set_up_delay.count(), measured.set_up);
    assert!(called.cpu > Duration::ZERO && called.cpu <= called.wall);
    let answered = answerers.finish().unwrap();
    let calls: Vec<_> = answered.iter().map(|done| done.stats.calls).collect();
    assert_eq!(calls, [100, 0]);
}

#[test]
fn callers_without_a_callee_stop_at_once() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = nobody.local_addr().unwrap();
    let configure = |local| CallerConfig::new(local, target);
    let callers = Callers::start(configure, Seed(1), 0).unwrap();
    until(|| callers.reading().repeated > 0);
    let called = callers.finish().unwrap();
    assert_eq!(called.stats.completed, 0);
    assert!(called.stats.open > 0);
}

#[test]
fn an_impossible_load_is_rejected() {
    let target = "127.0.0.1:9".parse().unwrap();
    let impossible = |local| CallerConfig { callers: 0, ..CallerConfig::new(local, target) };
    let error = Callers::start(impossible, Seed(1), 0).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the number of calling users is 0: it must be 1 or more");
}

#[test]
fn people_call_again_and_devices_register_on_real_sockets() {
    let rejects =
        |_, at| AnswererConfig { mix: "503=1".parse().unwrap(), ..AnswererConfig::new(at) };
    let answerers = Answerers::start(1, rejects, Seed(1)).unwrap();
    let target = answerers.addresses().next().unwrap();
    let ms = Duration::from_millis;
    let redial =
        Redial { attempts_max: 3, probability: 1.0, wait: Span::Fixed(ms(20)), waiting_max: 1000 };
    let devices = DevicesConfig {
        count: 40,
        refresh: Duration::from_secs(1000),
        back_off: BackOff { base: ms(50), max: ms(50), jitter: 0.0 },
        obeys_retry_after: true,
        loss: Some(RegistrationLoss { at: ms(30), share: 1.0, within: ms(10) }),
    };
    let configure = |local| CallerConfig {
        load: Load { rate_cps: 500.0, calls: 50, ..Load::default() },
        redial: Some(redial),
        devices: Some(devices),
        ..CallerConfig::new(local, target)
    };
    let callers = Callers::start(configure, Seed(1), 0).unwrap();
    let reading = || callers.reading();
    until(|| reading().offered == 150 && reading().open == 0);
    until(|| reading().registers >= 40 && reading().registered == 40);
    let stats = callers.finish().unwrap().stats;
    let persons = &stats.persons;
    assert_eq!((persons.came, persons.redials, persons.gave_up), (50, 100, 50));
    assert_eq!((stats.devices.lost, stats.devices.registered), (40, 40));
    answerers.finish().unwrap();
}
