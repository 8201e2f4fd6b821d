//! Tests of instances that share an address and a secret, but no state.

use crate::script::*;
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::{EgressRoute, Health, Listener, Mode, PoolSettings, Probe};
use tidegate_world::Seed;

const OWN: [&str; 2] = ["192.0.2.11:5060", "192.0.2.12:5060"];

/// Makes an instance that shares the address [`PROXY`] with the others.
fn instance(number: usize, mode: Mode) -> Script {
    Script::with(Policy::Rr, |settings| {
        let shared = Listener { shared: true, ..Listener::new(address(PROXY)) };
        settings.listeners = vec![shared, Listener::new(address(OWN[number]))];
        settings.seed = Seed(number as u64);
        settings.pools[0].mode = mode;
    })
}

/// Returns the packet that an instance sends for a message to `local`, except its 100.
fn one_at(script: &mut Script, local: &str, from: &str, text: &str) -> Sent {
    script.offer_at(local, from, text.as_bytes(), 0);
    let mut sent = script.serve();
    sent.retain(|sent| !sent.start().contains(" 100 "));
    assert_eq!(sent.len(), 1, "one packet for\n{text}\nbut {sent:#?}");
    sent.remove(0)
}

#[test]
fn responses_reach_the_instance_of_their_request_and_the_dialog_belongs_to_all() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let [mut first, mut second] = [0, 1].map(|number| instance(number, mode));
        let asked = one_at(&mut first, PROXY, CALLER, &invite("a"));
        assert_eq!((asked.from, asked.to), (address(OWN[0]), address(BACKEND_A)));
        assert!(asked.header("Via").contains(OWN[0]), "{}", asked.text);
        let routes = asked.all("Record-Route");
        assert_eq!(
            routes.len(),
            1,
            "its own address would disappear with the instance: {routes:?}"
        );
        assert!(routes[0].ends_with("@192.0.2.1:5060;lr>"), "{routes:?}");
        let answer = one_at(&mut first, OWN[0], BACKEND_A, &asked.answer("200 OK"));
        assert_eq!((answer.from, answer.to), (address(PROXY), address(CALLER)));

        // The first instance is gone.
        let more = format!("Totag\r\nRoute: {}\r\n", routes[0]);
        for (method, number) in [("ACK", 1), ("INVITE", 2), ("BYE", 3)] {
            let text = request(method, "sip:bob@10.0.0.1", "a", number, &more);
            let sent = one_at(&mut second, PROXY, CALLER, &text);
            assert_eq!((sent.from, sent.to), (address(OWN[1]), address(BACKEND_A)), "{method}");
            assert!(sent.all("Route").is_empty());
            if method == "INVITE" {
                let answer = one_at(&mut second, OWN[1], BACKEND_A, &sent.answer("200 OK"));
                assert_eq!((answer.from, answer.to), (address(PROXY), address(CALLER)));
            }
        }
    }
}

// A response at the shared address could reach another instance.
#[test]
fn requests_and_probes_leave_from_the_own_address_whatever_the_order_and_the_route_are() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let shared = Listener { shared: true, ..Listener::new(address(PROXY)) };
        settings.listeners = vec![Listener::new(address(OWN[0])), shared];
        let to = "0.0.0.0/0".parse().unwrap();
        settings.egress_routes = vec![EgressRoute { to, listener: 1 }];
        let health = Health { probe: Some(Probe::default()), ..Health::default() };
        let pool = Pool::new("app", &[("a", address(BACKEND_A), 1)]);
        settings.pools = vec![PoolSettings { health, ..PoolSettings::new(pool, Policy::Rr) }];
    });
    for (local, call) in [(OWN[0], "a"), (PROXY, "b")] {
        let asked = one_at(&mut script, local, CALLER, &invite(call));
        assert_eq!((asked.from, asked.to), (address(OWN[0]), address(BACKEND_A)), "{local}");
    }
    script.pass(Probe::default().interval);
    let mut probes = script.sent();
    probes.retain(|sent| sent.start().starts_with("OPTIONS"));
    assert!(!probes.is_empty());
    assert!(probes.iter().all(|probe| probe.from == address(OWN[0])), "{probes:#?}");
}

// The caller knows only the shared address, and its NAT lets only this address through.
#[test]
fn requests_of_the_callee_leave_from_the_shared_address() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let [mut first, mut second] = [0, 1].map(|number| instance(number, mode));
        let asked = one_at(&mut first, PROXY, CALLER, &invite("a"));
        let more = format!("Totag\r\nRoute: {}\r\n", asked.header("Record-Route"));
        let bye = request("BYE", "sip:alice@198.51.100.7", "a", 1, &more);
        let sent = one_at(&mut second, PROXY, BACKEND_A, &bye);
        assert_eq!((sent.from, sent.to), (address(PROXY), address(CALLER)));
        // The response may arrive at the other instance, which forwards it.
        let passed = one_at(&mut first, PROXY, CALLER, &sent.answer("200 OK"));
        assert_eq!(passed.start(), "SIP/2.0 200 OK");
        assert_eq!(passed.from, address(PROXY));
    }
}
