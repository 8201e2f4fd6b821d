//! Requests to a party whose connection belongs to another process: Tidegate has restarted, or
//! another instance serves the request.

use std::sync::Arc;

use tidegate_balance::{Backend, Endpoint, Named};
use tidegate_proxy::{Rule, RuleTarget, Senders};
use tidegate_world::{QueryAnswer, Seed};

use super::*;

/// A Contact at the address of the party that [`without_connection`] sets up.
const TRUNK: &str = "sip:gw@198.51.100.7:5070;transport=tcp";

/// Makes a process, and another one with the same keys.
fn two(mode: Mode, adjust: impl Fn(&mut Settings)) -> [Scene; 2] {
    [Seed(1), Seed(2)].map(|seed| {
        scene_with(Transport::Tcp, mode, [BACKEND_A, BACKEND_B], |settings| {
            settings.seed = seed;
            adjust(settings);
        })
    })
}

/// Sets up a call of a party with this Via and Contact through another process. Returns this
/// process, the connection that the back end has opened to it, and the BYE of the back end.
fn restarted(mode: Mode, via: &str, contact: &str) -> (Scene, Flow, String) {
    let [mut before, mut after] = two(mode, |_| {});
    let (_, bye) = without_connection(&mut before, via, contact);
    let backend = after.accept(2, "10.0.0.1:41000");
    (after, backend, bye)
}

/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)."
#[test]
fn a_request_to_a_party_that_accepts_connections_opens_one() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let (mut scene, backend, bye) = restarted(mode, "198.51.100.7:5060", TRUNK);
        assert!(scene.offer(backend, &bye).is_empty(), "{mode:?}: it waits for the connection");
        let (trunk, sent) = scene.open();
        assert_eq!(trunk.remote, address("198.51.100.7:5070"), "{mode:?}");
        only(sent, "BYE");
    }
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
/// response to the request." A connection to a party behind a NAT would fail or lead elsewhere.
#[test]
fn a_request_to_a_party_that_needs_its_connection_gets_430() {
    for (via, contact) in [
        ("198.51.100.7:5060", "sip:gw@198.51.100.7:5070;transport=tcp;ob"),
        ("192.168.1.2:5060", TRUNK),
        ("192.168.1.2:5060", "sip:gw@198.51.100.7:5070"),
        ("192.168.1.2:5060", "sip:gw@203.0.113.5:5070;transport=tcp"),
    ] {
        for mode in [Mode::Transaction, Mode::Stateless] {
            let (mut scene, backend, bye) = restarted(mode, via, contact);
            let (on, _) = only(scene.offer(backend, &bye), "SIP/2.0 430");
            assert_eq!(number_of(on), 2, "{mode:?} {via} {contact}");
            assert!(scene.streams.poll_connect().is_none(), "{mode:?} {via} {contact}");
        }
    }
}

/// RFC 3261 §12.2.1.1, as above: the Contact names another transport than the INVITE had.
#[test]
fn a_request_to_a_contact_over_udp_leaves_over_udp() {
    let contact = "sip:gw@198.51.100.7:5070";
    let (mut scene, backend, bye) = restarted(Mode::Transaction, "198.51.100.7:5060", contact);
    let (_, bye) = only(scene.offer(backend, &bye), "BYE");
    assert_eq!(bye.to, address("198.51.100.7:5070"));
    assert!(scene.streams.poll_connect().is_none());
}

/// The Contact leads nowhere, or the party has named an element in a Record-Route that only the
/// party itself can reach. So the party is reached as for a response (RFC 3261 §18.2.2).
#[test]
fn a_request_to_a_party_without_a_usable_contact_opens_a_connection_to_its_via() {
    let unusable = [
        "sip:gw@198.51.100.7:5061;transport=tls",
        "sip:gw@192.168.1.2:5070;transport=tcp",
        "sip:gw@sbc.example.com;transport=tcp",
    ];
    let by_route = ["gw.example.com", "192.168.1.2"].map(|next| (TRUNK, Some(next)));
    for (contact, next) in unusable.map(|contact| (contact, None)).into_iter().chain(by_route) {
        let (mut scene, backend, bye) = restarted(Mode::Transaction, "198.51.100.7:5066", contact);
        let bye = match next {
            Some(next) => bye.replace("\r\nFrom:", &format!(", <sip:{next};lr>\r\nFrom:")),
            None => bye,
        };
        assert!(scene.offer(backend, &bye).is_empty(), "{contact} {next:?}");
        let (party, sent) = scene.open();
        assert_eq!(party.remote, address("198.51.100.7:5066"), "{contact} {next:?}");
        only(sent, "BYE");
    }
}

/// RFC 3261 §12.2.1.1, as above. The caller has closed its connection, or Tidegate has restarted.
#[test]
fn a_request_of_a_user_to_its_caller_finds_a_caller_that_is_not_behind_nat() {
    for via in ["198.51.100.7:5060", "192.168.1.2:5060"] {
        for is_restarted in [true, false] {
            request_of_a_user(via, is_restarted);
        }
    }
}

/// Sets up a call from a party with this Via to a user. The connection of the party then ends.
/// Sends the BYE of the user through another process if `is_restarted`.
fn request_of_a_user(via: &str, is_restarted: bool) {
    let [mut before, after] = two(Mode::Transaction, |settings| {
        let domains = vec!["example.com".to_owned()];
        let to_users = Rule { domains, ..Rule::new(Senders::Any, RuleTarget::Users) };
        settings.rules.insert(0, to_users);
    });
    let caller = before.accept(2, "198.51.100.7:40123");
    let invite = invite("TCP", via);
    before.offer(caller, &invite.replace("sip:bob@192.0.2.1", "sip:alice@example.com"));
    let query = before.streams.poll_query().expect("a look-up of the user");
    let found = QueryAnswer::Found(Arc::from(&b"<sip:a@203.0.113.7:5062>\n"[..]));
    before.streams.on_answer(before.now, query.id, found);
    while before.streams.serve(before.now) {}
    let (_, forwarded) = only(before.sent(), "INVITE");
    let user = Flow::udp(address(PROXY), forwarded.to);
    before.offer(user, &forwarded.answer("200 OK"));
    before.close(caller, CloseCause::Ended);
    before.pass(Duration::from_secs(1));
    let bye = bye(&forwarded.all("Record-Route").join(", "), "UDP");
    let mut scene = if is_restarted { after } else { before };
    let mut sent = scene.offer(user, &bye);
    sent.extend(scene.pass(Duration::ZERO));
    if via.starts_with("192.") {
        only(sent, "SIP/2.0 430");
        assert!(scene.streams.poll_connect().is_none());
    } else {
        assert!(sent.is_empty(), "it waits for the connection");
        let (party, sent) = scene.open();
        assert_eq!(party.remote, address(via));
        only(sent, "BYE");
    }
}

/// A regression: the Record-Route named the port of the connection, so the BYE of the callee got 481.
///
/// RFC 3261 §12.1.1: "The route set MUST be set to the list of URIs in the Record-Route header field from
/// the request". The back end with the host name accepts connections at another port than that of the
/// connection that it has opened.
#[test]
fn a_request_to_a_named_back_end_that_had_opened_its_connection_opens_one() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let [mut before, mut after] = two(mode, |settings| {
            let named = Endpoint::Name(Named::new("app.example", 5070));
            let backend = Arc::new(Backend::new("a", named, 1));
            backend.move_to(address(BACKEND_A).ip());
            let pool = balance::Pool::of("app", vec![backend]);
            let pool = PoolSettings { mode, ..PoolSettings::new(pool, Policy::Rr) };
            settings.pools = vec![PoolSettings { listener: Some(1), ..pool }];
        });
        let own = before.accept(2, "10.0.0.1:41000");
        let invite = invite("TCP", BACKEND_A).replace("bob@192.0.2.1", "carol@203.0.113.9");
        let (_, invited) = only(before.offer(own, &invite), "INVITE");
        let callee = Flow::udp(address(PROXY), invited.to);
        before.offer(callee, &invited.answer("200 OK"));
        let routes = invited.all("Record-Route").join(", ");
        let hangup = bye(&routes, "UDP").replace("10.0.0.1:5070", "203.0.113.9:5060");
        let sent = after.offer(callee, &hangup);
        assert!(sent.is_empty(), "{mode:?}: it waits for a connection: {sent:#?}");
        let (backend, sent) = after.open();
        assert_eq!(backend.remote, address(BACKEND_A), "{mode:?}");
        only(sent, "BYE");
    }
}
