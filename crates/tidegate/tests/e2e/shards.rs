//! Tests with several shards.

use rustix::process::Signal;

use crate::stage::{Configuration, Load, Peer, Sipp, Stage, Tidegate, eventually};

const CALLS: u32 = 200;

#[test]
fn calls_of_several_callers_cross_between_shards() {
    let stage = Stage::new();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let configuration = Configuration { shards: 2, ..Configuration::new(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);

    // The source port determines the shard. One caller uses a port for each call, so both shards
    // get calls. Some responses arrive at the other shard and are handed off.
    let loads = [("uac-routes", true), ("uac-routes", false), ("uac", false)].map(
        |(scenario, socket_each)| Load {
            scenario,
            socket_each,
            calls: CALLS,
            rate_cps: 100,
            hold_ms: 200,
            is_tcp: false,
        },
    );
    let callers = loads.each_ref().map(|load| Sipp::caller(&stage, tidegate.address(), load));
    for caller in callers {
        caller.wait().assert_all_well(CALLS);
    }
    let served = callees.map(Sipp::finish);
    for calls in &served {
        calls.assert_all_well(calls.created);
    }
    assert_eq!(served.iter().map(|calls| calls.created).sum::<u32>(), 3 * CALLS);

    let metrics = tidegate.metrics();
    assert!(metrics.sum("crossings_total", &[]) > 0);
    for shard in ["0", "1"] {
        let labels = [("shard", shard), ("class", "invite")];
        assert!(metrics.sum("messages_received_total", &labels) > 0, "shard {shard}");
    }
    // A message counts as received once, even if it is handed off.
    let received = metrics.sum("messages_received_total", &[]);
    assert_eq!(received, metrics.sum("udp_received_total", &[]));
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
}

/// The BYE of a caller that ignores Record-Route and sends from another port still finds its call.
#[test]
fn a_bye_from_another_port_without_a_route_finds_its_call() {
    let stage = Stage::new();
    let backend = Peer::new(stage.ip());
    let configuration =
        Configuration { shards: 2, ..Configuration::new(&stage, &[backend.address()]) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.address();
    let uri = format!("sip:bob@{here}");
    // Sixteen callers with other ports are tried, because not every port belongs to the other
    // shard.
    for number in 0..16 {
        let (caller, elsewhere) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
        let invite = caller.request("INVITE", &uri, number, 1);
        caller.send(here, &invite);
        let request = backend.receive();
        backend.send(here, &backend.response(&request, "200 OK"));
        let to = caller.receive().field("To").to_owned();
        let bye = elsewhere
            .request("BYE", &uri, number, 2)
            .with("Call-ID", invite.field("Call-ID"))
            .with("To", &to);
        elsewhere.send(here, &bye);
        let request = backend.receive();
        assert!(request.start().starts_with("BYE "), "{}", request.start());
        backend.send(here, &backend.response(&request, "200 OK"));
        assert_eq!(elsewhere.receive().status(), 200);
    }
    let metrics = tidegate.metrics();
    assert!(metrics.sum("crossings_total", &[]) > 0);
    metrics.assert_nothing_held();
}

/// A shard without calls must still hand messages to a shard with calls.
#[test]
fn a_stopping_process_keeps_all_its_shards_running() {
    let stage = Stage::new();
    let backend = Peer::new(stage.ip());
    let configuration =
        Configuration { shards: 2, ..Configuration::new(&stage, &[backend.address()]) };
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.address();
    // Callers are tried until one belongs to another shard than the back end.
    let (caller, invite) = (0..)
        .find_map(|number| {
            let caller = Peer::new(stage.ip());
            caller.send(here, &caller.request("INVITE", &format!("sip:bob@{here}"), number, 1));
            let invite = backend.receive();
            backend.send(here, &backend.response(&invite, "180 Ringing"));
            assert_eq!(caller.receive().status(), 180);
            if tidegate.metrics().sum("crossings_total", &[]) > 0 {
                return Some((caller, invite));
            }
            backend.send(here, &backend.response(&invite, "486 Busy Here"));
            assert_eq!(caller.receive().status(), 486);
            assert!(backend.receive().start().starts_with("ACK "), "hop by hop");
            None
        })
        .expect("ports are not all of one shard");

    tidegate.signal(Signal::TERM);
    eventually("it drains", || tidegate.get("/readyz").filter(|answer| answer.0 == 503));
    for number in 0..8 {
        let late = Peer::new(stage.ip());
        let invite = late.request("INVITE", &format!("sip:bob@{here}"), number, 1);
        assert_eq!(late.ask(here, &invite).status(), 503, "each shard says so");
    }
    backend.accept(&invite, here, &caller);
    assert_eq!(tidegate.exit().code(), Some(0));
}

/// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of the
/// original request that created the transaction".
///
/// The kernel distributes the connections of callers over the shards. The messages of back ends
/// over UDP arrive at the shard of the back end.
#[test]
fn calls_on_connections_of_several_shards_reach_back_ends_over_both_transports() {
    for (is_tcp_inside, is_stateless) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let (stage, home) = (Stage::new(), Stage::new());
        let callees = ["uas-record-route", "uas-hangs-up"].map(|scenario| match is_tcp_inside {
            true => Sipp::tcp_callee(&stage, scenario),
            false => Sipp::callee(&stage, scenario),
        });
        for (callee, scenario) in callees.into_iter().zip(["uac-routes", "uac-hung-up"]) {
            let configuration = Configuration {
                shards: 4,
                is_tcp_inside,
                is_stateless,
                ..Configuration::with_tcp(&stage, &[callee.address()])
            };
            let tidegate = Tidegate::start(&stage, &configuration);
            let load = Load {
                scenario,
                socket_each: true,
                calls: CALLS,
                rate_cps: 150,
                hold_ms: 100,
                is_tcp: true,
            };
            let caller = Sipp::caller(&home, tidegate.tcp_address(), &load);
            caller.wait().assert_all_well(CALLS);
            callee.finish().assert_all_well(CALLS);
            let metrics = tidegate.metrics();
            assert_eq!(metrics.sum("crossings_total", &[]) > 0, !is_tcp_inside);
            for shard in ["0", "1", "2", "3"] {
                let begun =
                    metrics.sum("connections_begun_total", &[("by", "peer"), ("shard", shard)]);
                assert!(begun > 0, "shard {shard}");
            }
            assert_eq!(metrics.sum("stream_unsent_total", &[]), 0);
            metrics.assert_nothing_lost();
            metrics.assert_nothing_held();
        }
    }
}
