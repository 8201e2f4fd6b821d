//! RFC 7339, the client: tests of a server in two pools of which only one obeys feedback.

use std::time::Duration;

use crate::rfc7339_client::*;
use crate::script::*;
use tidegate_balance::{BackendRegistry, BackendSpec, EndpointAddress, Limits, Policy, PoolSpec};
use tidegate_proxy::{Obedience, PoolSettings, Probe, Rule, RuleTarget, Senders};

/// A proxy with one back end in two pools. If a pool is named `other`, it has another back end.
/// Requests go to the pool `registrations`.
struct Scene {
    script: Script,
    registry: BackendRegistry,
}

fn specs(names: [&str; 2]) -> [PoolSpec; 2] {
    names.map(|name| {
        let at = if name == "other" { BACKEND_B } else { BACKEND_A };
        let endpoint_address = EndpointAddress::Address(address(at));
        let (name, limits) = (name.to_owned(), Limits::default());
        let backend =
            BackendSpec { name: at.to_owned(), endpoint_address, weight: 1, priority: 0, limits };
        let backends = vec![backend];
        PoolSpec { name, slow_start: Duration::ZERO, backends, services: Vec::new() }
    })
}

/// Returns the pools `names`, of which only `registrations` obeys. The first one probes.
fn pools(registry: &BackendRegistry, names: [&str; 2], obedience: Obedience) -> Vec<PoolSettings> {
    let pools = registry.pools().into_iter().zip(names).zip([true, false]);
    pools
        .map(|((pool, name), is_first)| {
            let mut settings = PoolSettings::new(pool, Policy::Rr).stateless();
            let probe = Probe { interval: Duration::from_secs(1), jitter: 0.0, ..Probe::default() };
            settings.health.probe = is_first.then_some(probe);
            let obeys = name == "registrations";
            settings.obedience = if obeys { obedience } else { Obedience::Never };
            settings
        })
        .collect()
}

fn rules(names: [&str; 2]) -> Vec<Rule> {
    let at = names.iter().position(|name| *name == "registrations").unwrap();
    vec![Rule::new(Senders::Any, RuleTarget::Pool(at))]
}

impl Scene {
    fn new(names: [&str; 2], obedience: Obedience) -> Self {
        let registry = BackendRegistry::new(&specs(names));
        let script = Script::with(Policy::Rr, |settings| {
            settings.pools = pools(&registry, names, obedience);
            settings.rules = rules(names);
        });
        Self { script, registry }
    }
}

/// RFC 7339 §5.5: "A SIP client MUST honor overload control values it receives from downstream neighbors."
#[test]
fn feedback_is_read_if_any_pool_of_the_back_end_obeys() {
    for names in [["calls", "registrations"], ["registrations", "calls"]] {
        let mut script = Scene::new(names, Obedience::Always).script;
        let call = calls(&mut script, "a", 1).remove(0).unwrap();
        let told = telling(&call, "180 Ringing", &value("loss", 100, 1));
        script.send(&call.to.to_string(), &told);
        assert_eq!(sent(&calls(&mut script, "b", 10)), 0, "{names:?}");
    }
}

/// RFC 7339 §5.1: "If a client determines that this is the first contact with a server, the client MUST insert
/// the "oc" parameter without any value and MUST insert the "oc-algo" parameter with a list of algorithms it
/// supports."
#[test]
fn a_probe_offers_overload_control_if_any_pool_of_the_back_end_obeys() {
    for names in [["calls", "registrations"], ["registrations", "calls"]] {
        let mut script = Scene::new(names, Obedience::Proven).script;
        script.pass(Duration::from_secs(1));
        let probe = script.sent().pop().expect("the back end is probed");
        let told = telling(&probe, "200 OK", &value("loss", 100, 1));
        script.send(BACKEND_A, &told);
        assert_eq!(sent(&calls(&mut script, "b", 10)), 0, "{names:?}");
    }
}

/// RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the
/// current "oc" and "oc-algo" parameter values from that particular downstream server."
#[test]
fn a_reload_that_adds_a_pool_before_the_one_that_obeys_keeps_a_restriction() {
    let mut scene = Scene::new(["other", "registrations"], Obedience::Always);
    let call = calls(&mut scene.script, "a", 1).remove(0).unwrap();
    let told = telling(&call, "180 Ringing", &value("loss", 100, 1));
    scene.script.send(BACKEND_A, &told);
    let names = ["calls", "registrations"];
    scene.registry.enlist(scene.script.now, 1, &specs(names));
    let pools = pools(&scene.registry, names, Obedience::Always);
    assert!(scene.script.proxy.reload(scene.script.now, pools, rules(names)));
    assert_eq!(sent(&calls(&mut scene.script, "b", 10)), 0);
}

/// RFC 7339 §11: "If the attacker can make the recipient believe that the overload status was created by
/// its direct downstream neighbor (and not by the attacker further downstream), the recipient stops
/// sending traffic to the victim." Without probes nothing renews the proof that a back end gives feedback.
#[test]
fn a_reload_that_ends_the_probes_ends_a_restriction_that_needs_a_proof() {
    let names = ["registrations", "other"];
    let mut scene = Scene::new(names, Obedience::Proven);
    scene.script.pass(Duration::from_secs(1));
    let probe = scene.script.sent().pop().expect("the back end is probed");
    scene.script.send(BACKEND_A, &telling(&probe, "200 OK", &value("loss", 100, 1)));
    assert_eq!(sent(&calls(&mut scene.script, "a", 10)), 0);
    let mut pools = pools(&scene.registry, names, Obedience::Proven);
    pools[0].health.probe = None;
    assert!(scene.script.proxy.reload(scene.script.now, pools, rules(names)));
    assert_eq!(sent(&calls(&mut scene.script, "b", 10)), 10);
}

/// RFC 3263 §4.3: "For SIP requests, failure occurs if the transaction layer reports a 503 error response".
/// A restriction that one pool obeys holds back no failover of another pool that never obeys.
#[test]
fn a_pool_that_never_obeys_fails_over_to_a_restricted_back_end() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.pools[0].obedience = Obedience::Always;
        let backends = settings.pools[0].pool.backends().to_vec();
        let emergency = tidegate_balance::Pool::of("emergency", backends);
        let emergency = PoolSettings::new(emergency, Policy::Rr);
        settings.pools.push(PoolSettings { obedience: Obedience::Never, ..emergency });
        let rule = |methods: &[&str], pool| Rule {
            from: Senders::Any,
            methods: methods.iter().map(ToString::to_string).collect(),
            domains: Vec::new(),
            to: RuleTarget::Pool(pool),
        };
        settings.rules = vec![rule(&["MESSAGE"], 0), rule(&[], 1)];
    });
    for (call, at, percent) in [("a", BACKEND_A, 0), ("b", BACKEND_B, 100)] {
        let text = request("MESSAGE", "sip:bob@192.0.2.1", call, 1, "");
        let sent = script.one(CALLER, &text);
        assert_eq!(sent.to, address(at));
        script.send(at, &telling(&sent, "200 OK", &value("loss", percent, 1)));
    }
    let mut invite_to = |from: &str, text: &str| {
        let sent = script.send(from, text);
        let invite = sent.into_iter().find(|sent| sent.start().starts_with("INVITE"));
        invite.expect("it goes to a back end")
    };
    let first = invite_to(CALLER, &invite("c"));
    assert_eq!(first.to, address(BACKEND_A));
    let second = invite_to(BACKEND_A, &first.answer("503 Service Unavailable"));
    assert_eq!(second.to, address(BACKEND_B));
}

/// Returns a proxy with a second pool, in which [`BACKEND_C`] gets the requests of the other back
/// ends.
fn with_media(obedience: Obedience) -> Script {
    Script::with(Policy::Rr, |settings| {
        let media = tidegate_balance::Pool::new("media", &[("m", address(BACKEND_C), 1)]);
        settings.pools.push(PoolSettings { obedience, ..stateless(media) });
        let rule = |from, pool| Rule::new(from, RuleTarget::Pool(pool));
        settings.rules = vec![rule(Senders::Pool, 1), rule(Senders::Any, 0)];
    })
}

/// RFC 7339 §4.1: "A SIP client MUST add an "oc" parameter to the topmost Via header it inserts into every
/// SIP request." So does a request of one back end to another.
#[test]
fn a_request_of_a_back_end_to_another_pool_offers_overload_control() {
    for obedience in [Obedience::Always, Obedience::Never] {
        let mut script = with_media(obedience);
        script.one(CALLER, &invite("a"));
        let text = invite("a").replace("198.51.100.7:5060", BACKEND_A);
        let sent = script.one(BACKEND_A, &text);
        assert_eq!(sent.to, address(BACKEND_C));
        let via = sent.all("Via")[0];
        assert_eq!(via.ends_with(OFFER), obedience == Obedience::Always, "{via}");
    }
}

/// RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the
/// current "oc" and "oc-algo" parameter values from that particular downstream server." A request and its
/// retransmissions are one request.
#[test]
fn a_restriction_is_asked_once_about_a_request_of_a_back_end_to_another() {
    let mut script = with_media(Obedience::Always);
    let text = |call: &str| invite(call).replace("198.51.100.7:5060", BACKEND_A);
    let first = script.one(BACKEND_A, &text("a"));
    script.send(BACKEND_C, &telling(&first, "180 Ringing", &value("loss", 50, 1)));
    let mut forwarded = 0;
    for number in 0..40 {
        let text = text(&format!("b{number}"));
        let copies = [(); 4].map(|()| {
            let sent = script.send(BACKEND_A, &text);
            let invite = sent.iter().find(|sent| sent.start().starts_with("INVITE"));
            invite.map(|invite| invite.text.clone())
        });
        assert!(copies.iter().all(|copy| *copy == copies[0]), "{number}: {copies:?}");
        forwarded += usize::from(copies[0].is_some());
    }
    assert!((8..=32).contains(&forwarded), "{forwarded} of 40");
}

/// RFC 7339 §5.4: "The scope of overload control applies to unique combinations of IP and port values."
/// §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the current "oc"
/// and "oc-algo" parameter values from that particular downstream server."
#[test]
fn a_restriction_also_applies_to_requests_to_the_address_of_a_back_end() {
    for obedience in [Obedience::Always, Obedience::Never] {
        let mut script = with_media(obedience);
        let text = |call: &str| {
            let text = request("INVITE", &format!("sip:bob@{BACKEND_C}"), call, 1, "");
            text.replace("198.51.100.7:5060", BACKEND_A)
        };
        let sent = script.one(BACKEND_A, &text("a"));
        assert_eq!(sent.to, address(BACKEND_C));
        let obeys = obedience == Obedience::Always;
        assert_eq!(sent.all("Via")[0].ends_with(OFFER), obeys);
        let ringing = match obeys {
            true => telling(&sent, "180 Ringing", &value("loss", 100, 1)),
            false => sent.answer("180 Ringing"),
        };
        script.send(BACKEND_C, &ringing);
        let sent = script.one(BACKEND_A, &text("b"));
        let start = if obeys { "SIP/2.0 503" } else { "INVITE" };
        assert!(sent.start().starts_with(start), "{}", sent.text);
    }
}
