//! Tests of the registrant by RFC 3261 §10, message by message.

use std::time::Duration;

use crate::script::{Script, Sent, at, response, uac, uas};
use tidegate_agent::{
    ConnectionUse, Load, LoadError, Process, Registrant, RegistrantConfig, RegistrantConfigError,
};
use tidegate_world::{
    Cause, CloseCause, Connect, ConnectionId, Core, Failure, Flow, Pool, Received, Seed, Timestamp,
    Transmit, Transport,
};

/// Returns the configuration of two users that register in turn, one registration a second.
fn config(count: u32) -> RegistrantConfig {
    let load = Load { process: Process::Uniform, rate_cps: 1.0, calls: count, ..Load::default() };
    let aor = "sip:phone@example.com".to_owned();
    RegistrantConfig { load, users: 2, aor, ..RegistrantConfig::new(uac(), uas()) }
}

fn registrant(config: RegistrantConfig) -> Registrant {
    Registrant::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap()
}

/// Returns a registrant that has sent its first REGISTER.
fn registering(config: RegistrantConfig) -> (Script<Registrant>, Sent) {
    let mut script = Script::new(registrant(config), uac());
    let register = script.until(0).sent_one();
    assert_eq!(register.what(), "REGISTER");
    (script, register)
}

/// RFC 3261 §10.2: "The "userinfo" and "@" components of the SIP URI MUST NOT be present."
#[test]
fn a_register_is_what_10_2_demands() {
    let (_, register) = registering(config(1));
    assert_eq!(register.to, uas());
    assert_eq!(register.request_uri(), "sip:example.com");
    assert!(register.branch().starts_with("z9hG4bK"));
    assert!(register.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;rport;"));
    assert_eq!(register.header("To"), "<sip:phone-0@example.com>");
    assert!(register.header("From").starts_with("<sip:phone-0@example.com>;tag="));
    assert_eq!(register.header("Contact"), "<sip:user-0@192.0.2.1:5060>");
    assert_eq!(register.header("CSeq"), "1 REGISTER");
    assert_eq!(register.header("Expires"), "3600");
    assert_eq!(register.header("Max-Forwards"), "70");
    assert_eq!(register.header("Content-Length"), "0");
}

/// RFC 3261 §10.2: "A UA MUST increment the CSeq value by one for each REGISTER request with the
/// same Call-ID."
#[test]
fn users_register_in_turn_and_again() {
    let (mut script, mut register) = registering(config(4));
    let mut said = Vec::new();
    for ms in [0, 1000, 2000, 3000] {
        if ms > 0 {
            register = script.until(ms).sent_one();
        }
        said.push([register.header("To").to_owned(), register.header("CSeq").to_owned()]);
        let granted =
            "Contact: <sip:user-9@192.0.2.9>;expires=7, <sip:user@192.0.2.1:5060>;expires=60\n";
        script.tell(uas(), &response(&register, 200, ";tag=b", granted));
    }
    let expected = [("0", "1"), ("1", "1"), ("0", "2"), ("1", "2")];
    let expected = expected.map(|(user, cseq)| {
        [format!("<sip:phone-{user}@example.com>"), format!("{cseq} REGISTER")]
    });
    assert_eq!(said, expected);
    let stats = script.agent.stats();
    assert_eq!((stats.offered, stats.registered, stats.registered_in_time), (4, 4, 4));
    assert_eq!((stats.granted_s_min, stats.granted_s_max), (Some(60), Some(60)));
    assert!(script.agent.is_done());
}

/// RFC 3261 §10.2: "All registrations from a UAC SHOULD use the same Call-ID header field value for
/// registrations sent to a particular registrar."
#[test]
fn a_user_keeps_its_call_id() {
    let (mut script, first) = registering(RegistrantConfig { users: 1, ..config(2) });
    script.tell(uas(), &response(&first, 200, ";tag=b", ""));
    let second = script.until(1000).sent_one();
    assert_eq!(first.header("To"), "<sip:phone@example.com>");
    assert_eq!(first.header("Call-ID"), second.header("Call-ID"));
    assert_ne!(first.branch(), second.branch());
}

/// RFC 3261 §10.2: "UAs MUST NOT send a new registration (that is, containing new Contact header
/// field values, as opposed to a retransmission) until they have received a final response from the
/// registrar for the previous one or the previous REGISTER request has timed out."
#[test]
fn a_user_that_waits_leaves_its_turn_out() {
    let (mut script, _) = registering(RegistrantConfig { users: 1, ..config(3) });
    script.until(2100);
    assert!(script.sent().iter().all(|again| again.header("CSeq") == "1 REGISTER"));
    let stats = script.agent.stats();
    assert_eq!((stats.offered, stats.begun, stats.not_begun), (3, 1, 2));
    assert_eq!(stats.overflowed, 0);
}

#[test]
fn a_registration_without_room_is_told_from_one_whose_user_waits() {
    let (mut script, _) = registering(RegistrantConfig { open_max: 1, ..config(3) });
    script.until(2100);
    let stats = script.agent.stats();
    assert_eq!((stats.begun, stats.not_begun, stats.overflowed), (1, 2, 1));
}

#[test]
fn timer_e_repeats_the_register_until_timer_f() {
    // §17.1.2.2.
    let (mut script, register) = registering(config(1));
    script.until(40_000);
    let sent = script.sent();
    assert!(sent.iter().all(|again| again.text == register.text), "copies");
    let moments: Vec<_> = sent.iter().map(|again| again.ms).collect();
    let expected = [500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500];
    assert_eq!(moments, expected);
    let stats = script.agent.stats();
    assert_eq!((stats.failed.timeout, stats.repeated, stats.open), (1, 10, 0));
    assert!(script.agent.is_done());
}

/// RFC 3261 §10.2.4: "If so, it updates the expiration time interval according to the expires
/// parameter or, if absent, the Expires field value."
#[test]
fn the_time_granted_is_read() {
    for (headers, granted) in [
        ("Contact: <sip:user-0@192.0.2.1:5060>;expires=60\nExpires: 90\n", Some(60)),
        ("Contact: <sip:user-0@192.0.2.1:5060>\nExpires: 90\n", Some(90)),
        ("Contact: <sip:user-0@192.0.2.9:5060>;expires=60\n", None),
        ("", None),
    ] {
        let (mut script, register) = registering(config(1));
        script.tell(uas(), &response(&register, 200, ";tag=b", headers));
        let stats = script.agent.stats();
        assert_eq!(stats.granted_s_min, granted, "{headers}");
        assert_eq!(stats.granted_unknown, u64::from(granted.is_none()), "{headers}");
    }
}

#[test]
fn a_rejected_registration_is_a_failure_and_a_copy_is_late() {
    let (mut script, register) = registering(config(1));
    script.until(10).tell(uas(), &response(&register, 100, "", ""));
    // §17.1.2.2: timer E is T2 in the Proceeding state.
    script.until(4600);
    assert_eq!(script.schedule(), at("REGISTER", &[500, 4500]));
    let rejected = response(&register, 403, ";tag=b", "");
    script.tell(uas(), &rejected).tell(uas(), &rejected);
    let stats = script.agent.stats();
    assert_eq!((stats.failed.status[&403], stats.late, stats.registered), (1, 1, 0));
    script.tell(uas(), "SIP/2.0 200 OK\n\n").tell_bytes(uas(), b"junk");
    script.tell(uas(), &response(&register, 200, ";tag=b", "").replace("bKr", "bKs"));
    let stats = script.agent.stats();
    assert_eq!((stats.unexpected, stats.malformed), (1, 2));
    assert!(script.sent().is_empty());
}

#[test]
fn each_registration_has_a_connection() {
    let mut registrant = registrant(RegistrantConfig {
        transport: Transport::Tcp,
        connections: ConnectionUse::Each,
        ..config(2)
    });
    let mut begin = |ms: u64| -> (ConnectionId, Transmit) {
        registrant.handle_timeout(Timestamp::ZERO + Duration::from_millis(ms));
        let connect = registrant.poll_connect().expect("a connection");
        assert_eq!((connect.transport, connect.remote), (Transport::Tcp, uas()));
        let transmit = registrant.poll_transmit().expect("a REGISTER");
        assert_eq!(transmit.flow.connection, Some(connect.id));
        assert!(transmit.bytes.windows(9).any(|w| w == b"0/TCP 192"), "the Via names TCP");
        (connect.id, transmit)
    };
    let (first, _) = begin(0);
    let (second, register) = begin(1000);
    assert_ne!(first, second);
    // RFC 3261 §8.1.3.1: a connection failure ends the registration at once.
    let flow = Flow { connection: Some(second), ..register.flow };
    let now = Timestamp::ZERO + Duration::from_millis(1001);
    registrant.on_failed(now, Failure::new(flow, Cause::Refused, &register.bytes));
    registrant.on_closed(now, second, CloseCause::Refused);
    assert_eq!(registrant.stats().failed.transport, 1);
    assert_eq!(registrant.poll_close(), Some(second));
    assert_eq!(registrant.poll_close(), None);
}

/// The end of a connection once was the cause of each timeout of another registration too.
#[test]
fn the_end_of_a_connection_is_not_the_cause_of_a_timeout_on_another() {
    let mut registrant = registrant(RegistrantConfig {
        transport: Transport::Tcp,
        connections: ConnectionUse::Each,
        ..config(2)
    });
    let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
    let mut begin = |ms| -> Connect {
        registrant.handle_timeout(at(ms));
        registrant.poll_transmit().expect("a REGISTER");
        registrant.poll_connect().expect("a connection")
    };
    let [first, _] = [0, 1000].map(&mut begin);
    let flow = Flow::connected(first.transport, first.local, first.remote, first.id);
    registrant.on_failed(at(2000), Failure::new(flow, Cause::Closed, b""));
    registrant.on_closed(at(2000), first.id, CloseCause::Reset);
    registrant.handle_timeout(at(40_000));
    let failed = &registrant.stats().failed;
    assert_eq!((failed.transport, failed.timeout, failed.total()), (1, 1, 2));
}

/// RFC 7118 §8.1: the Contact of the response has the random host that the user has chosen.
#[test]
fn a_user_over_a_websocket_finds_its_contact_by_its_random_host() {
    let mut registrant = registrant(RegistrantConfig { transport: Transport::Wss, ..config(1) });
    registrant.handle_timeout(Timestamp::ZERO);
    let connect = registrant.poll_connect().expect("a connection");
    let register = registrant.poll_transmit().expect("a REGISTER");
    assert_eq!(register.flow.connection, Some(connect.id));
    let text = String::from_utf8(register.bytes.to_vec()).unwrap();
    let register = Sent { ms: 0, to: uas(), text };
    let contact = register.header("Contact").to_owned();
    assert!(contact.ends_with(".invalid;transport=ws>"), "{contact}");
    let granted = format!("Contact: <sip:user@other.invalid>;expires=7, {contact};expires=60\n");
    let ok = response(&register, 200, ";tag=b", &granted);
    let ok = ok.replace("\r\n", "\n").replace('\n', "\r\n");
    let Connect { id, transport, local, remote } = connect;
    let flow = Flow::connected(transport, local, remote, id);
    let now = Timestamp::ZERO + Duration::from_millis(1);
    registrant.offer(now, Received::new(now, flow, Pool::new().copy(ok.as_bytes())));
    assert_eq!(registrant.stats().granted_s_min, Some(60));
    assert!(registrant.is_done());
}

/// RFC 5626 §4.4.1: "The client "pings" by sending a double-CRLF".
#[test]
fn connections_are_kept_until_the_run_is_stopped() {
    let mut registrant = registrant(RegistrantConfig {
        transport: Transport::Tcp,
        connections: ConnectionUse::Shared(2),
        keep_alive: Some(Duration::from_secs(25)),
        ..config(2)
    });
    let at = |ms: u64| Timestamp::ZERO + Duration::from_millis(ms);
    let mut names = Vec::new();
    for ms in [0, 1000] {
        registrant.handle_timeout(at(ms));
        let connect = registrant.poll_connect().expect("a connection");
        let Connect { id, transport, local, remote } = connect;
        registrant.on_connected(at(ms), Flow::connected(transport, local, remote, id));
        let register = registrant.poll_transmit().expect("a REGISTER").bytes;
        let text = String::from_utf8(register.to_vec()).unwrap();
        let ok = response(&Sent { ms, to: uas(), text }, 200, ";tag=b", "");
        let ok = ok.replace("\r\n", "\n").replace('\n', "\r\n");
        let flow = Flow::connected(transport, local, remote, id);
        registrant.offer(at(ms), Received::new(at(ms), flow, Pool::new().copy(ok.as_bytes())));
        names.push(id);
    }
    assert_eq!(registrant.stats().registered, 2);
    assert!(!registrant.is_done(), "the connections are kept");
    let mut pings = |ms: u64| -> Vec<ConnectionId> {
        registrant.handle_timeout(at(ms));
        let sent = std::iter::from_fn(|| registrant.poll_transmit());
        let ping = |transmit: Transmit| {
            assert_eq!(&transmit.bytes[..], b"\r\n\r\n");
            transmit.flow.connection.expect("a connection")
        };
        sent.map(ping).collect()
    };
    assert_eq!(pings(24_999), []);
    assert_eq!(pings(25_000), [names[0]]);
    assert_eq!(pings(26_000), [names[1]]);
    assert_eq!(pings(60_000), names);
    registrant.on_closed(at(60_000), names[0], CloseCause::Reset);
    assert_eq!(registrant.poll_timeout(), Some(at(85_000)));
    registrant.handle_timeout(at(85_000));
    let only = registrant.poll_transmit().expect("a ping");
    assert_eq!(only.flow.connection, Some(names[1]));
    assert!(registrant.poll_transmit().is_none());
    let stats = registrant.stats();
    assert_eq!((stats.pings, stats.connections_ended), (5, 1));
    registrant.on_drain(at(85_001));
    assert!(registrant.is_done() && registrant.poll_timeout().is_none());
}

/// The rate of rejections and the share of retransmissions once included the warm-up.
#[test]
fn rejections_and_retransmissions_of_the_warm_up_are_told_apart() {
    let warm_up = Duration::from_secs(1);
    let (mut script, first) = registering(RegistrantConfig { warm_up, ..config(2) });
    for (ms, register) in [(600, Some(first)), (1600, None)] {
        let register = match register {
            Some(register) => register,
            None => script.until(1000).sent_one(),
        };
        assert_eq!(script.until(ms).sent_one().what(), "REGISTER", "timer E");
        script.tell(uas(), &response(&register, 503, ";tag=b", ""));
    }
    let stats = script.agent.stats();
    assert_eq!((stats.failed.status[&503], stats.repeated), (2, 2));
    assert_eq!((stats.measured.offered, stats.measured.rejected), (1, 1));
    assert_eq!(stats.measured.repeated, 1);
}

/// The command with `--keep-alive` once exited with 0 although a signal came before the last
/// registration.
#[test]
fn a_registrant_that_is_stopped_early_has_not_offered_all() {
    for (ms, offered, all) in [(1000, 2, false), (2000, 3, true)] {
        let (mut script, _) = registering(config(3));
        script.until(ms);
        assert_eq!(script.agent.has_offered_all(), all);
        let now = script.now();
        script.agent.on_drain(now);
        assert_eq!(script.agent.stats().offered, offered);
        assert_eq!(script.agent.has_offered_all(), all, "{offered} of 3");
    }
}

#[test]
fn a_configuration_without_sense_is_an_error() {
    let rejected = |config: RegistrantConfig| {
        Registrant::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).err()
    };
    let none = RegistrantConfig { users: 0, ..config(1) };
    assert_eq!(rejected(none), Some(RegistrantConfigError::Users));
    for aor in ["", "sip:@host", "sip:user@", "sip:a b@host", "sip:{to}@host"] {
        let config = RegistrantConfig { aor: aor.to_owned(), ..config(1) };
        assert_eq!(rejected(config), Some(RegistrantConfigError::Aor), "{aor}");
    }
    for (transport, connections) in [
        (Transport::Udp, ConnectionUse::Each),
        (Transport::Udp, ConnectionUse::Shared(2)),
        (Transport::Tcp, ConnectionUse::Shared(3)),
    ] {
        let config = RegistrantConfig { transport, connections, ..config(1) };
        assert_eq!(rejected(config), Some(RegistrantConfigError::Connections), "{transport:?}");
    }
    let keep_alive = Some(Duration::from_secs(25));
    let lasting = RegistrantConfig { transport: Transport::Wss, keep_alive, ..config(1) };
    assert_eq!(rejected(lasting), None);
    for (transport, connections) in [
        (Transport::Udp, ConnectionUse::Shared(1)),
        (Transport::Tcp, ConnectionUse::Shared(1)),
        (Transport::Tcp, ConnectionUse::Each),
        (Transport::Wss, ConnectionUse::Each),
    ] {
        let config = RegistrantConfig { transport, connections, keep_alive, ..config(1) };
        assert_eq!(rejected(config), Some(RegistrantConfigError::KeepAlive), "{transport:?}");
    }
    let mut slow = config(1);
    slow.load.rate_cps = 0.0;
    assert_eq!(rejected(slow), Some(RegistrantConfigError::Load(LoadError::Rate(0.0))));
    let mut timeless = config(1);
    timeless.timing.t1 = Duration::ZERO;
    assert_eq!(rejected(timeless), Some(RegistrantConfigError::T1));
    let mut pauseless = config(1);
    pauseless.timing.t2 = Duration::ZERO;
    assert_eq!(rejected(pauseless), Some(RegistrantConfigError::T2));
    assert_eq!(RegistrantConfigError::T1.to_string(), "T1 must be above 0 ms");
}
