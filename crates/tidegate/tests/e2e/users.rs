//! Tests of user lookup and of the addresses of users.

use std::net::SocketAddr;

use crate::stage::{
    Configuration, Load, NameServer, Peer, Sipp, Stage, Tidegate, assert_exact, run_to_end,
};

/// Route to the users of `example.com`.
const ROUTES: &str = "[[route]]\ndomain = [\"example.com\"]\nto = \"users\"\n\
                      [[route]]\nto = \"app\"\n";

fn user(name: &str, contacts: &[String]) -> String {
    format!("[[user]]\naor = \"sip:{name}@example.com\"\ncontact = {contacts:?}\n")
}

/// Returns a configuration whose back end is unreachable, with these users.
fn with_users(stage: &Stage, users: &str) -> Configuration {
    let more = [users, ROUTES].concat();
    Configuration { more, ..Configuration::new(stage, &[stage.free_address()]) }
}

fn at(name: &str, address: SocketAddr) -> String {
    format!("sip:{name}@{address}")
}

#[test]
fn callers_reach_users_by_their_addresses_of_record_and_are_replayed() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let server = NameServer::start(stage.ip());
    server.set("phone.example", &[stage.ip()], 60);
    // SIPp calls `user1` to `user100`. A third of them have an address, and a third have a host
    // name. The others have an address that nobody answers and another one that works.
    let gone = at("gone", stage.free_address());
    let named = format!("sip:phone@phone.example:{}", callee.address().port());
    let contacts = |number: u32| match number % 3 {
        0 => vec![at("desk", callee.address())],
        1 => vec![named.clone()],
        _ => vec![gone.clone(), at("mobile", callee.address())],
    };
    let users = (1..=100).map(|number| user(&format!("user{number}"), &contacts(number)));
    let users: String = users.collect();
    let configuration = with_users(&stage, &(users + &server.table()));
    let recording = stage.path("recording");
    let recording = recording.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &configuration, &["--record", recording]);

    let load = Load { scenario: "uac-domain", calls: 100, ..Load::default() };
    let more = ["-s", "user", "-key", "domain", "example.com"];
    let caller = stage.free_address();
    let calls = Sipp::caller_at(&stage, caller, tidegate.address(), &load, &more).wait();
    calls.assert_all_well(100);
    callee.finish().assert_all_well(100);
    let metrics = tidegate.metrics();
    metrics.assert_nothing_lost();
    assert_eq!(metrics.sum("lookups_total", &[("outcome", "found")]), 100);
    assert_eq!(metrics.sum("lookups_total", &[]), 100);
    assert_eq!(metrics.sum("parked_requests", &[]), 0);

    tidegate.stop();
    assert_exact(run_to_end(&stage, &["replay", recording]));
}

#[test]
fn a_reload_changes_users_and_their_contacts() {
    let stage = Stage::new();
    let (caller, first) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let second = Peer::new(stage.ip());
    let configuration = with_users(&stage, &user("alice", &[at("a", first.address())]));
    let tidegate = Tidegate::start(&stage, &configuration);
    let ask = |name: &str, number| {
        let uri = format!("sip:{name}@example.com");
        caller.request("OPTIONS", &uri, number, number)
    };
    let reached = |name: &str, number, callee: &Peer, uri: &str| {
        caller.send(tidegate.address(), &ask(name, number));
        let (request, from) = callee.receive_from();
        assert_eq!(request.start(), format!("OPTIONS {uri} SIP/2.0"));
        callee.send(from, &callee.response(&request, "200 OK"));
        assert_eq!(caller.receive().status(), 200);
    };
    reached("alice", 1, &first, &at("a", first.address()));
    assert_eq!(caller.ask(tidegate.address(), &ask("bob", 2)).status(), 404);

    let users = user("bob", &[at("b", second.address())]) + &user("carol", &[]);
    with_users(&stage, &users).write(&stage, "tidegate.toml");
    let (code, said) = tidegate.ctl(&stage, &["reload"]);
    assert_eq!(code, Some(0), "{said}");
    reached("bob", 3, &second, &at("b", second.address()));
    assert_eq!(caller.ask(tidegate.address(), &ask("alice", 4)).status(), 404);
    assert_eq!(caller.ask(tidegate.address(), &ask("carol", 5)).status(), 480);
    let replies = |status, reason| {
        tidegate.metrics().sum("replies_total", &[("status", status), ("reason", reason)])
    };
    assert_eq!((replies("404", "no_user"), replies("480", "no_contact")), (2, 1));
}
