//! Tests of back ends that are configured by name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::stage::{
    Configuration, Load, NameServer, Peer, Sipp, Stage, Tidegate, assert_exact, run_to_end,
};

/// Returns a configuration whose only back end has that host name.
fn by_name(stage: &Stage, server: &NameServer, host: &str, port: u16) -> Configuration {
    let backend = format!("[[pool.backend]]\nuri = \"sip:{host}:{port}\"\nname = \"named\"\n");
    let more = backend + &server.table();
    Configuration { more, ..Configuration::new(stage, &[]) }
}

/// Waits until the back end has an address.
fn wait_until_up(tidegate: &Tidegate) {
    tidegate
        .wait_for("its name is resolved", |metrics| metrics.backend("backend_up", "named") == 1);
}

#[test]
fn calls_go_to_where_a_name_server_says_and_are_replayed() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let server = NameServer::start(stage.ip());
    server.set("app.example", &[stage.ip()], 60);
    let configuration = by_name(&stage, &server, "App.Example", callee.address().port());
    let recording = stage.path("recording");
    let recording = recording.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &configuration, &["--record", recording]);
    wait_until_up(&tidegate);

    let load = Load { scenario: "uac-routes", calls: 100, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(100);
    callee.finish().assert_all_well(100);
    let metrics = tidegate.assert_all_done();
    assert_eq!(metrics.backend("backend_assigned_total", "named"), 100);
    assert_eq!(metrics.backend("backend_moved_total", "named"), 1);
    assert_eq!(metrics.backend("backend_resolved", "named"), 1);
    assert_eq!(metrics.backend("backend_stale", "named"), 0);
    assert_eq!(metrics.sum("queries_lost_total", &[]), 0);

    let (_, status) = tidegate.get("/status").expect("a page");
    assert!(status.contains("\"host\": \"app.example\""), "{status}");
    let (code, table) = tidegate.ctl(&stage, &["backends"]);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("app.example") && table.contains(&stage.ip().to_string()), "{table}");

    tidegate.stop();
    let (code, said) = run_to_end(&stage, &["replay", recording]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\nexact: all ") && said.contains(" 1 answers"), "{said}");
}

#[test]
fn without_an_address_a_back_end_gets_no_calls_and_with_one_it_does() {
    let stage = Stage::new();
    let (caller, callee) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let server = NameServer::start(stage.ip());
    let configuration = by_name(&stage, &server, "app.example", callee.address().port());
    let tidegate = Tidegate::start(&stage, &configuration);
    let labels = [("backend", "named"), ("outcome", "not_found")];
    tidegate.wait_for("it was asked twice", |metrics| {
        metrics.sum("backend_lookups_total", &labels) >= 2
    });
    let invite = |number| caller.request("INVITE", "sip:service@example.com", number, 1);
    assert_eq!(caller.ask(tidegate.address(), &invite(1)).status(), 503);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.backend("backend_up", "named"), 0);
    assert_eq!(metrics.backend("backend_resolved", "named"), 0);
    let (_, status) = tidegate.get("/status").expect("a page");
    assert!(status.contains("\"address\": null"), "{status}");

    server.set("app.example", &[stage.ip()], 0);
    wait_until_up(&tidegate);
    caller.send(tidegate.address(), &invite(2));
    let (received, from) = callee.receive_from();
    assert!(received.start().starts_with("INVITE "), "{}", received.start());
    callee.send(from, &callee.response(&received, "200 OK"));
    assert_eq!(caller.receive().status(), 200);

    // The TTL of the answer was zero, and the DNS no longer answers. Tidegate keeps the old
    // address.
    server.silence("app.example");
    tidegate
        .wait_for("its address is old", |metrics| metrics.backend("backend_stale", "named") == 1);
    assert_eq!(tidegate.metrics().backend("backend_up", "named"), 1);
}

#[test]
fn a_call_stays_at_its_address_when_the_name_gets_another() {
    let (stage, elsewhere) = (Stage::new(), Stage::new());
    let caller = Peer::new(stage.ip());
    let first = Peer::new(stage.ip());
    let second = Peer::at(SocketAddr::new(elsewhere.ip(), first.address().port()));
    let server = NameServer::start(stage.ip());
    server.set("app.example", &[stage.ip()], 0);
    let configuration = by_name(&stage, &server, "app.example", first.address().port());
    let tidegate = Tidegate::start(&stage, &configuration);
    wait_until_up(&tidegate);
    let call = |number, callee: &Peer| {
        let invite = caller.request("INVITE", "sip:service@example.com", number, 1);
        caller.send(tidegate.address(), &invite);
        callee.accept(&callee.receive(), tidegate.address(), &caller)
    };
    let ok = call(1, &first);
    server.set("app.example", &[elsewhere.ip()], 0);
    tidegate
        .wait_for("it has moved", |metrics| metrics.backend("backend_moved_total", "named") == 2);
    let next = call(2, &second);
    // `in_dialog` derives the branch from the CSeq, so each BYE needs another CSeq.
    for (ok, callee, cseq) in [(ok, &first, 2), (next, &second, 3)] {
        caller.send(tidegate.address(), &caller.in_dialog("BYE", &ok, cseq));
        let (bye, from) = callee.receive_from();
        assert!(bye.start().starts_with("BYE "), "{}", bye.start());
        callee.send(from, &callee.response(&bye, "200 OK"));
        assert_eq!(caller.receive().status(), 200);
    }
    // Back ends may send to any address, even after their address was removed from the name.
    let outward = first.request("OPTIONS", &format!("sip:caller@{}", caller.address()), 3, 1);
    first.send(tidegate.address(), &outward);
    assert!(caller.receive().start().starts_with("OPTIONS "));
}

#[test]
fn a_call_from_before_a_restart_is_not_ended_while_names_are_unknown() {
    let stage = Stage::new();
    let (caller, callee) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let server = NameServer::start(stage.ip());
    server.set("app.example", &[stage.ip()], 60);
    let configuration = by_name(&stage, &server, "app.example", callee.address().port());
    let mut tidegate = Tidegate::start(&stage, &configuration);
    wait_until_up(&tidegate);
    let invite = caller.request("INVITE", "sip:service@example.com", 1, 1);
    caller.send(tidegate.address(), &invite);
    let ok = callee.accept(&callee.receive(), tidegate.address(), &caller);

    server.silence("app.example");
    tidegate = tidegate.killed_and_restarted(&stage);
    let bye = caller.in_dialog("BYE", &ok, 2);
    caller.send(tidegate.address(), &bye);
    let unresolved = [("reason", "unresolved")];
    tidegate.wait_for("it is passed over", |metrics| {
        metrics.sum("messages_dropped_total", &unresolved) == 1
    });
    server.set("app.example", &[stage.ip()], 60);
    wait_until_up(&tidegate);
    // The caller has got no answer to its BYE, so it retransmits the BYE.
    caller.send(tidegate.address(), &bye);
    assert!(callee.receive().start().starts_with("BYE "));
}

#[test]
fn a_name_of_the_hosts_file_needs_no_name_server() {
    let stage = Stage::new();
    let callee = Peer::new(Ipv4Addr::LOCALHOST.into());
    let (caller, server) = (Peer::new(stage.ip()), NameServer::start(stage.ip()));
    let configuration = by_name(&stage, &server, "localhost", callee.address().port());
    let tidegate = Tidegate::start(&stage, &configuration);
    wait_until_up(&tidegate);
    let invite = caller.request("INVITE", "sip:service@example.com", 1, 1);
    caller.send(tidegate.address(), &invite);
    assert!(callee.receive().start().starts_with("INVITE "));
}

#[test]
fn a_name_that_resolves_to_tidegate_itself_is_not_used() {
    let stage = Stage::new();
    let server = NameServer::start(stage.ip());
    let here = stage.free_address();
    let outside: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    // None of these addresses can be a back end: Tidegate itself, an address that a loopback socket
    // cannot reach, and the unspecified address.
    let addresses = [stage.ip(), outside, Ipv4Addr::UNSPECIFIED.into()];
    server.set("app.example", &addresses, 0);
    let mut configuration = by_name(&stage, &server, "app.example", here.port());
    configuration.listen = vec![here];
    let tidegate = Tidegate::start(&stage, &configuration);
    let labels = [("backend", "named"), ("outcome", "unusable")];
    tidegate.wait_for("the answer is not used", |metrics| {
        metrics.sum("backend_lookups_total", &labels) >= 1
    });
    assert_eq!(tidegate.metrics().backend("backend_up", "named"), 0);
}

/// Returns a configuration whose only back ends are the servers of `domain`.
fn by_domain(stage: &Stage, server: &NameServer, domain: &str) -> Configuration {
    let more = format!("[[pool.backend]]\nuri = \"sip:{domain}\"\n{}", server.table());
    Configuration { more, ..Configuration::new(stage, &[]) }
}

// RFC 3263 §4.2: "If the TARGET was not a numeric IP address, and no port was present in the URI,
// the client performs an SRV query"; RFC 2782: "A client MUST attempt to contact the target host
// with the lowest-numbered priority it can reach", with those of one priority by their weights.
#[test]
fn calls_go_to_the_servers_that_the_dns_lists_for_a_domain_and_follow_it() {
    let stage = Stage::new();
    let server = NameServer::start(stage.ip());
    let callees = [(); 3].map(|()| Sipp::callee(&stage, "uas-record-route"));
    let [a, b, c] = callees.each_ref().map(|callee| callee.address().port());
    for host in ["a.example", "b.example", "c.example"] {
        server.set(host, &[stage.ip()], 60);
    }
    let both = [(10, 3, a, "a.example"), (10, 1, b, "b.example"), (20, 1, c, "c.example")];
    server.set_servers("example", &both, 1);
    let configuration = by_domain(&stage, &server, "Example");
    let recording = stage.path("recording");
    let recording = recording.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &configuration, &["--record", recording]);
    let names = [("a", a), ("b", b), ("c", c)].map(|(host, port)| format!("{host}.example:{port}"));
    tidegate.wait_for("all servers have addresses", |metrics| {
        names.iter().all(|name| metrics.is_up(name))
    });
    let load = Load { scenario: "uac-routes", calls: 100, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(100);
    let metrics = tidegate.metrics();
    let assigned = |name: &String| metrics.backend("backend_assigned_total", name);
    assert_eq!(names.each_ref().map(assigned), [75, 25, 0]);

    // The DNS no longer lists the first two servers. The last one gets all calls, and the calls of
    // the others have ended.
    server.set_servers("example", &[(20, 1, c, "c.example")], 1);
    tidegate.wait_for("its servers have changed", |metrics| {
        metrics.sum("domain_changed_total", &[("domain", "example")]) == 2
            && metrics.sum("domain_servers", &[("domain", "example")]) == 1
            && !metrics.is_up(&names[0])
            && metrics.is_up(&names[2])
    });
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(100);
    assert_eq!(tidegate.metrics().backend("backend_assigned_total", &names[2]), 100);

    // The DNS no longer answers, so the servers stay the same.
    server.silence("_sip._udp.example");
    tidegate.wait_for("its servers are old", |metrics| metrics.sum("domain_stale", &[]) == 1);
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(100);
    let (_, status) = tidegate.get("/backends").expect("a page");
    assert!(status.contains("\"domain\": \"example\""), "{status}");
    tidegate.assert_all_done();
    for (callee, calls) in callees.into_iter().zip([75, 25, 200]) {
        callee.finish().assert_all_well(calls);
    }
    tidegate.stop();
    assert_exact(run_to_end(&stage, &["replay", recording]));
}

// RFC 3263 §4.2: "If no SRV records were found, the client performs an A or AAAA record lookup of
// the domain name."
#[test]
fn a_domain_without_srv_records_is_reached_at_its_own_address() {
    let stage = Stage::new();
    let server = NameServer::start(stage.ip());
    server.set("example", &[stage.ip()], 60);
    let callee = Peer::at(SocketAddr::new(stage.ip(), 5060));
    let caller = Peer::new(stage.ip());
    let tidegate = Tidegate::start(&stage, &by_domain(&stage, &server, "example"));
    let name = "example:5060";
    tidegate.wait_for("it is resolved", |metrics| metrics.is_up(name));
    caller.send(tidegate.address(), &caller.request("INVITE", "sip:service@example.com", 1, 1));
    let (received, from) = callee.receive_from();
    assert!(received.start().starts_with("INVITE "), "{}", received.start());
    callee.send(from, &callee.response(&received, "200 OK"));
    assert_eq!(caller.receive().status(), 200);
}

#[test]
fn until_the_servers_of_a_domain_are_known_calls_are_rejected_and_a_reload_keeps_them() {
    let stage = Stage::new();
    let server = NameServer::start(stage.ip());
    let (caller, callee) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    server.silence("_sip._udp.example");
    server.set("a.example", &[stage.ip()], 60);
    let configuration = by_domain(&stage, &server, "example");
    let tidegate = Tidegate::start(&stage, &configuration);
    let invite = |number| caller.request("INVITE", "sip:service@example.com", number, 1);
    let rejected = caller.ask(tidegate.address(), &invite(1));
    assert_eq!(rejected.status(), 503);
    assert!(rejected.field("Warning").contains("no back end has an address yet"));
    let port = callee.address().port();
    server.set_servers("example", &[(1, 1, port, "a.example")], 60);
    let name = format!("a.example:{port}");
    tidegate.wait_for("it is resolved", |metrics| metrics.is_up(&name));
    for command in [&["reload"][..], &["drain", &name], &["enable", &name]] {
        let (code, said) = tidegate.ctl(&stage, command);
        assert_eq!(code, Some(0), "{said}");
    }
    assert!(tidegate.metrics().is_up(&name));
    caller.send(tidegate.address(), &invite(2));
    let (received, from) = callee.receive_from();
    callee.send(from, &callee.response(&received, "200 OK"));
    assert_eq!(caller.receive().status(), 200);
}

#[test]
fn a_call_from_before_a_restart_is_not_ended_while_a_domain_is_unknown() {
    let stage = Stage::new();
    let (caller, callee) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let server = NameServer::start(stage.ip());
    let port = callee.address().port();
    server.set("a.example", &[stage.ip()], 60);
    server.set_servers("example", &[(1, 1, port, "a.example")], 60);
    let mut tidegate = Tidegate::start(&stage, &by_domain(&stage, &server, "example"));
    let name = format!("a.example:{port}");
    tidegate.wait_for("it is resolved", |metrics| metrics.is_up(&name));
    let invite = caller.request("INVITE", "sip:service@example.com", 1, 1);
    caller.send(tidegate.address(), &invite);
    let ok = callee.accept(&callee.receive(), tidegate.address(), &caller);

    server.silence("_sip._udp.example");
    tidegate = tidegate.killed_and_restarted(&stage);
    let bye = caller.in_dialog("BYE", &ok, 2);
    caller.send(tidegate.address(), &bye);
    tidegate.wait_for("it is passed over", |metrics| {
        metrics.sum("messages_dropped_total", &[("reason", "unresolved")]) == 1
    });
    server.set_servers("example", &[(1, 1, port, "a.example")], 60);
    tidegate.wait_for("it is resolved", |metrics| metrics.is_up(&name));
    caller.send(tidegate.address(), &bye);
    assert!(callee.receive().start().starts_with("BYE "));
}
