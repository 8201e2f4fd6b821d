//! Tests of devices that keep a registration: RFC 3261 §10.2 and RFC 5626 §4.5.

use std::time::Duration;

use crate::net::{Net, answering, calling};
use crate::script::{Script, Sent, response, uac, uas};
use tidegate_agent::{
    AnswererConfig, BackOff, Caller, CallerConfig, CallerConfigError, DeviceStats, DevicesConfig,
    Load, RegistrationLoss,
};
use tidegate_world::{Pool, Seed, Timestamp};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns devices that all lose their registrations after a second. After failures they wait 2, 4,
/// 4, … s.
fn devices(count: u32) -> DevicesConfig {
    DevicesConfig {
        count,
        refresh: s(1000),
        back_off: BackOff { base: s(1), max: s(4), jitter: 0.0 },
        obeys_retry_after: true,
        loss: Some(RegistrationLoss { at: s(1), share: 1.0, within: Duration::ZERO }),
    }
}

/// Returns a caller whose only device has sent its first REGISTER, at 1,000 ms. The only call of
/// the caller comes after the end of any test.
fn registering(devices: DevicesConfig) -> (Script<Caller>, Sent) {
    let profile = "instant:100000".parse().unwrap();
    let load = Load { calls: 1, profile, ..Load::default() };
    let config = CallerConfig { load, devices: Some(devices), ..CallerConfig::new(uac(), uas()) };
    let caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
    let mut script = Script::new(caller, uac());
    let register = script.until(1000).sent_one();
    assert_eq!((register.what(), register.ms), ("REGISTER", 1000));
    (script, register)
}

fn stats(script: &Script<Caller>) -> &DeviceStats {
    let stats = &script.agent.stats().devices;
    let rejected: u64 = stats.rejected.values().sum();
    assert_eq!(stats.attempts, stats.accepted + rejected + stats.timeouts + stats.open);
    stats
}

// RFC 3261 §10.2: "The "userinfo" and "@" components of the SIP URI MUST NOT be present"; "All
// registrations from a UAC SHOULD use the same Call-ID header field value for registrations sent to
// a particular registrar."; "A UA MUST increment the CSeq value by one for each REGISTER request
// with the same Call-ID."
#[test]
fn registers_of_a_device_are_those_of_one_registration() {
    let (mut script, first) = registering(devices(1));
    assert_eq!(first.request_uri(), "sip:192.0.2.2:5060");
    assert_eq!(first.header("To"), "<sip:device-0@192.0.2.2:5060>");
    assert_eq!(first.header("CSeq"), "1 REGISTER");
    assert_eq!(first.header("Contact"), "<sip:device-0@192.0.2.1:5060>");
    assert_eq!(first.header("Expires"), "2000");
    assert_eq!((stats(&script).lost, stats(&script).registered), (1, 0));

    script.until(1020).tell(uas(), &response(&first, 500, ";tag=r", ""));
    script.until(3019);
    assert!(script.sent().is_empty());
    let second = script.until(3020).sent_one();
    assert_eq!(second.header("CSeq"), "2 REGISTER");
    for same in ["Call-ID", "From", "To", "Contact"] {
        assert_eq!(second.header(same), first.header(same));
    }
    assert_ne!(second.branch(), first.branch());

    // A late response to the first attempt changes nothing.
    script.tell(uas(), &response(&first, 200, ";tag=r", ""));
    assert_eq!((stats(&script).late, stats(&script).registered), (1, 0));
    script.until(3050).tell(uas(), &response(&second, 200, ";tag=r", ""));
    assert_eq!((stats(&script).registered, stats(&script).accepted), (1, 1));
    assert_eq!(stats(&script).delay.max().as_millis(), 2050);
    // The device refreshes its registration after 1,000 s.
    let refresh = script.until(1_003_050).sent_one();
    assert_eq!((refresh.ms, refresh.header("CSeq")), (1_003_050, "3 REGISTER"));
}

#[test]
fn a_device_waits_as_long_as_it_is_told_if_it_obeys() {
    for (obeys_retry_after, next) in [(true, 8000), (false, 3000)] {
        let (mut script, first) = registering(DevicesConfig { obeys_retry_after, ..devices(1) });
        script.tell(uas(), &response(&first, 503, ";tag=r", "Retry-After: 7\n"));
        script.until(next - 1);
        assert!(script.sent().is_empty());
        assert_eq!(script.until(next).sent_one().header("CSeq"), "2 REGISTER");
        assert_eq!(stats(&script).rejected[&503], 1);
    }
}

// RFC 3261 §17.1.2.2: timer E fires after T1 and doubles up to T2, timer F after 64·T1.
#[test]
fn a_register_without_response_is_retransmitted_and_then_tried_again() {
    let (mut script, first) = registering(devices(1));
    script.until(32_999);
    let sent = script.sent();
    let times: Vec<u64> = sent.iter().map(|sent| sent.ms).collect();
    let later = [1500, 2500, 4500, 8500, 12_500, 16_500, 20_500, 24_500, 28_500, 32_500];
    assert_eq!(times, later);
    assert!(sent.iter().all(|sent| sent.branch() == first.branch()));
    script.until(33_000);
    assert_eq!((stats(&script).timeouts, stats(&script).repeated), (1, 10));
    let next = script.until(35_000).sent_one();
    assert_eq!((next.ms, next.header("CSeq")), (35_000, "2 REGISTER"));
}

#[test]
fn an_avalanche_comes_at_once_or_spread() {
    for (within, at_once) in [(0, 1000), (20, 0)] {
        let loss = RegistrationLoss { at: s(5), share: 1.0, within: s(within) };
        let devices = DevicesConfig { loss: Some(loss), refresh: s(100_000), ..devices(1000) };
        let config = CallerConfig { devices: Some(devices), ..calling(1.0, 1) };
        let mut net = Net::new(config, answering(), 1);
        net.run(Timestamp::ZERO + Duration::from_millis(5001));
        let stats = &net.caller.stats().devices;
        assert!(stats.attempts.abs_diff(at_once) < 10, "{stats:?}");
        assert!(stats.registered < 5, "{stats:?}");
        net.run(Timestamp::ZERO + s(26));
        let stats = &net.caller.stats().devices;
        assert_eq!((stats.devices, stats.registered), (1000, 1000));
        assert_eq!((stats.lost, stats.delay.count()), (1000, 1000));
    }
}

#[test]
fn devices_refresh_at_their_rate() {
    let devices = DevicesConfig { refresh: s(10), loss: None, ..devices(1000) };
    let config = CallerConfig { devices: Some(devices), ..calling(1.0, 1) };
    let mut net = Net::new(config, answering(), 2);
    net.run(Timestamp::ZERO + s(40));
    let stats = &net.caller.stats().devices;
    assert_eq!((stats.registered, stats.lost, stats.timeouts), (1000, 0, 0));
    // Each device registers once in 10 s and a round trip of 10 ms.
    assert!((3980..=4000).contains(&stats.attempts), "{stats:?}");
    assert!(net.caller.is_done(), "devices do not keep a caller from its end");
}

#[test]
fn a_share_of_the_devices_is_lost() {
    let loss = RegistrationLoss { at: s(1), share: 0.25, within: Duration::ZERO };
    let devices = DevicesConfig { loss: Some(loss), ..devices(10_000) };
    let silent = AnswererConfig { mix: "silent=1".parse().unwrap(), ..answering() };
    let config = CallerConfig { devices: Some(devices), ..calling(1.0, 1) };
    let mut net = Net::new(config, silent, 1);
    net.run(Timestamp::ZERO + s(2));
    let lost = net.caller.stats().devices.lost as f64 / 10_000.0;
    assert!((lost - 0.25).abs() < 5.0 * (0.1875 / 10_000.0_f64).sqrt(), "{lost}");
}

#[test]
fn impossible_devices_are_rejected() {
    let rejected = |devices: DevicesConfig| {
        let config = CallerConfig { devices: Some(devices), ..CallerConfig::new(uac(), uas()) };
        let caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new());
        assert_eq!(caller.err(), Some(CallerConfigError::Devices));
    };
    rejected(devices(DevicesConfig::COUNT_MAX + 1));
    rejected(DevicesConfig { refresh: Duration::ZERO, ..devices(1) });
    rejected(DevicesConfig {
        back_off: BackOff { jitter: 1.5, ..devices(1).back_off },
        ..devices(1)
    });
}
