use std::sync::atomic::Ordering::Relaxed;

use tidegate_balance::{
    AdminState, BackendSpec, Demand, EndpointAddress, Limits, Picker, Policy, PoolSpec,
};
use tidegate_control::{Ban, BanCause, HeavySource, Reason};
use tidegate_proxy::{DropReason, source_of};
use tidegate_world::{Purpose, Seed};

use super::*;
use crate::testing::at_ms as at;

struct Watched {
    watch: Watch,
    registry: BackendRegistry,
    shards: Vec<ShardCounters>,
    bans: BanList,
}

impl Watched {
    fn new() -> Self {
        Self::over_tls(false)
    }

    /// Creates a watch over pools that are reached over TLS if `is_over_tls` is true.
    fn over_tls(is_over_tls: bool) -> Self {
        let post = |(port, name): (u16, &str)| BackendSpec {
            name: name.to_owned(),
            endpoint_address: EndpointAddress::Address(([127, 0, 0, 1], port).into()),
            weight: 1,
            priority: 0,
            limits: Limits::default(),
        };
        let backends: Vec<_> = [(1, "a"), (2, "b")].map(post).into();
        let slow_start = Duration::ZERO;
        let services = Vec::new();
        let app = PoolSpec { name: "app".to_owned(), slow_start, backends, services };
        let other = PoolSpec { name: "other".to_owned(), ..app.clone() };
        let registry = BackendRegistry::new(&[
            app,
            PoolSpec { backends: other.backends[..1].to_vec(), ..other },
        ]);
        let shards = vec![ShardCounters::default(), ShardCounters::default()];
        let bans = BanList::new(64);
        let is_over_tls = Box::new(move |_: &str| is_over_tls);
        let watch = Watch::new(registry.clone(), is_over_tls, shards.clone(), bans.clone());
        Self { watch, registry, shards, bans }
    }

    fn look(&mut self, ms: u64) -> Vec<String> {
        let mut told = Vec::new();
        self.watch.look(at(ms), |observation| told.push(observation.what));
        told
    }
}

#[test]
fn an_outage_and_its_end_are_logged_once_with_the_cause() {
    let mut watched = Watched::new();
    assert_eq!(watched.look(0), [""; 0]);
    let [a, b] = ["a", "b"].map(|name| watched.registry.find(name).unwrap());
    a.on_failed(at(100), Duration::from_secs(2));
    b.set_admin_state(at(100), AdminState::Draining);
    // `a` is in both pools and is reported once.
    assert_eq!(
        watched.look(250),
        [
            "back end a of pool app is down: no program listens at its port (ICMP port \
             unreachable, or a refused connection)",
            "back end b of pool app is draining: an operator has drained it",
            "pool app: no back end takes new calls",
            "pool other: no back end takes new calls",
        ]
    );
    assert_eq!(watched.look(500), [""; 0]);
    a.on_probe_answered(at(600), 1);
    a.on_answered(at(600));
    assert_eq!(watched.look(750), [""; 0], "a line every few seconds");
    let told = watched.look(3500);
    assert!(told[0].starts_with("back end a of pool app is up"), "{told:?}");
    assert!(
        told[1..].contains(&"pool app: takes new calls again, 1 of 2 back ends are up".to_owned())
    );
    assert_eq!(watched.look(3750), [""; 0]);
}

/// The error of a TLS handshake.
const EXPIRED: &str = "invalid peer certificate: Expired";

/// A probe is not sent if the TLS handshake fails. A regression: the log said that the back end did
/// not answer the probe.
#[test]
fn a_failed_tls_handshake_is_logged_as_the_cause() {
    let mut watched = Watched::over_tls(true);
    watched.look(0);
    let [a, b] = ["a", "b"].map(|name| watched.registry.find(name).unwrap());
    for backend in [&a, &b] {
        let errors = &watched.shards[1].io.tls_errors;
        errors.record(at(50), backend.address().unwrap(), Some(EXPIRED));
    }
    b.on_probe_failed(at(100), 1, None);
    let told = watched.look(250);
    let expected = "back end b of pool app is down: the TLS handshake failed: invalid peer \
                    certificate: Expired";
    assert!(told.contains(&expected.to_owned()), "{told:?}");
    // The error is too old to be the cause.
    a.on_probe_failed(at(70_000), 1, None);
    let told = watched.look(70_250);
    assert!(
        told.contains(&"back end a of pool app is down: a probe got no answer".to_owned()),
        "{told:?}"
    );
}

/// An error of TLS is not the cause if another shard has completed a handshake since, if the back
/// end answered over TLS, or if a reload has changed the transport of the pool.
#[test]
fn an_earlier_tls_error_is_not_the_cause() {
    for (is_over_tls, succeeds, status, cause) in [
        (true, true, None, "a probe got no answer"),
        (true, false, Some(503), "it answered 503 to a probe"),
        (false, false, None, "a probe got no answer"),
    ] {
        let mut watched = Watched::over_tls(is_over_tls);
        watched.look(0);
        let b = watched.registry.find("b").unwrap();
        let address = b.address().unwrap();
        watched.shards[1].io.tls_errors.record(at(50), address, Some(EXPIRED));
        if succeeds {
            watched.shards[0].io.tls_errors.record(at(100), address, None);
        }
        b.on_probe_failed(at(200), 1, status);
        let told = watched.look(250);
        let expected = format!("back end b of pool app is down: {cause}");
        assert!(told.contains(&expected), "{told:?}");
    }
}

/// A regression: the counters of the new back end were compared with those of the old one.
#[test]
fn the_causes_of_a_back_end_with_the_name_of_another_one_are_its_own() {
    let mut watched = Watched::new();
    watched.look(0);
    let old = watched.registry.find("b").unwrap();
    for _ in 0..5 {
        old.on_probe_failed(at(100), 1, None);
    }
    watched.look(250);
    old.on_probe_answered(at(600), 1);
    old.on_answered(at(600));
    let told = watched.look(3500);
    assert!(told[0].starts_with("back end b of pool app is up"), "{told:?}");
    let backend = BackendSpec {
        name: "b".to_owned(),
        endpoint_address: EndpointAddress::Address(([127, 0, 0, 1], 3).into()),
        weight: 1,
        priority: 0,
        limits: Limits::default(),
    };
    let (slow_start, services) = (Duration::ZERO, Vec::new());
    let backends = vec![backend];
    let app = PoolSpec { name: "app".to_owned(), slow_start, backends, services };
    watched.registry.enlist(at(3600), 1, &[app]);
    watched.look(7_000);
    let new = watched.registry.find("b").unwrap();
    assert!(!Arc::ptr_eq(&old, &new));
    new.on_probe_failed(at(9_000), 1, None);
    let told = watched.look(10_000);
    assert!(
        told.contains(&"back end b of pool app is down: a probe got no answer".to_owned()),
        "{told:?}"
    );
}

/// A regression: after the reload, the log reported an outage of the pool until its last call had
/// ended.
#[test]
fn a_pool_that_a_reload_removes_is_not_logged_as_an_outage() {
    let mut watched = Watched::new();
    watched.look(0);
    let pools = watched.registry.pools();
    let draws = Seed(1).stream(Purpose::Balance, 0);
    let mut picker = Picker::new(pools[1].clone(), Policy::Rr, draws);
    let _call = picker.assign(at(0), 0, Demand::Call, |_, _| true).unwrap();
    watched.registry.enlist(at(100), 1, &[]);
    let removed = "back end a of pool app is removed: it is no longer configured";
    assert_eq!(watched.look(250), [removed]);
}

#[test]
fn an_outage_between_two_samples_is_logged() {
    let mut watched = Watched::new();
    watched.look(0);
    let a = watched.registry.find("a").unwrap();
    a.on_failed(at(10), Duration::from_secs(2));
    a.on_probe_answered(at(20), 1);
    a.on_answered(at(20));
    let told = watched.look(250);
    assert!(told[0].contains("is up (2 changes since the last line)"), "{told:?}");
}

#[test]
fn an_outage_before_the_first_sample_is_not_logged() {
    let mut watched = Watched::new();
    let a = watched.registry.find("a").unwrap();
    a.on_failed(at(10), Duration::from_secs(2));
    a.on_probe_answered(at(20), 1);
    a.on_answered(at(20));
    assert_eq!(watched.look(250), [""; 0]);
}

/// A silent back end has sent no ICMP error. A log line about ICMP would make an operator check the
/// process instead of the network.
#[test]
fn a_silent_back_end_is_not_logged_as_unreachable() {
    let mut watched = Watched::new();
    watched.look(0);
    let [a, b] = ["a", "b"].map(|name| watched.registry.find(name).unwrap());
    for backend in [&a, &b] {
        backend.on_silent(at(50), at(20));
        backend.on_question_unanswered(at(100), Duration::from_secs(5), false);
    }
    let told = watched.look(250);
    let down = |name| format!("back end {name} of pool app is down: a probe got no answer");
    assert_eq!(told[..2], ["a", "b"].map(down));
    b.on_rejected(at(3000), None, tidegate_balance::Sources::default(), None);
    let told = watched.look(5500);
    assert_eq!(
        told[..2],
        [
            "back end a of pool app is suspect: it did not respond to requests",
            "back end b of pool app is suspect: it answered 503",
        ]
    );
}

/// If the server answers, the operator need not look for a fault in the network.
#[test]
fn a_probe_that_was_answered_is_logged_with_the_status() {
    let mut watched = Watched::new();
    watched.look(0);
    let [a, b] = ["a", "b"].map(|name| watched.registry.find(name).unwrap());
    a.on_probe_failed(at(100), 1, Some(503));
    b.on_probe_failed(at(100), 1, None);
    assert_eq!(
        watched.look(250)[..2],
        [
            "back end a of pool app is down: it answered 503 to a probe",
            "back end b of pool app is down: a probe got no answer",
        ]
    );
}

#[test]
fn full_tables_are_logged_at_start_and_end() {
    let mut watched = Watched::new();
    watched.look(0);
    for shard in &watched.shards {
        shard.proxy.calls_rejected.add(3);
        shard.io.overflow.add(1);
    }
    let begins = [
        "the call table is full: begins",
        "a receive buffer is full, and the kernel drops datagrams: begins",
    ];
    assert_eq!(watched.look(250), begins);
    watched.shards[1].proxy.calls_rejected.add(4);
    assert_eq!(watched.look(500), [""; 0]);
    assert_eq!(
        watched.look(5500),
        [
            "the call table is full: over, 10 requests rejected in 0.2 s",
            "a receive buffer is full, and the kernel drops datagrams: over, 2 datagrams dropped in \
             0.1 s",
        ]
    );
}

#[test]
fn drops_in_the_kernel_are_logged_at_start_and_end() {
    let mut watched = Watched::new();
    watched.look(0);
    watched.shards[0].io.filtered.add(700);
    watched.shards[1].emulated_filtered.add(33);
    let drops =
        "INVITEs and REGISTERs are dropped without a response, because of overload or a ban";
    assert_eq!(watched.look(250), [format!("{drops}: begins")]);
    assert_eq!(watched.look(5500), [format!("{drops}: over, 733 requests dropped in 0.1 s")]);
}

/// A regression: the log line said that the kernel dropped the requests. But Tidegate drops
/// requests from streams itself.
#[test]
fn drops_from_streams_are_logged_too() {
    let mut watched = Watched::new();
    watched.look(0);
    watched.shards[0].proxy.dropped(DropReason::DropShare).add(5);
    let told = watched.look(250);
    assert!(
        told.len() == 1 && told[0].starts_with("INVITEs and REGISTERs are dropped"),
        "{told:?}"
    );
}

/// A regression: the log counted a reload once for each shard that did not apply it.
#[test]
fn a_reload_that_no_shard_applies_is_one() {
    let mut watched = Watched::new();
    watched.look(0);
    for shard in &watched.shards {
        shard.proxy.in_force.commands_rejected.add(1);
    }
    let told = watched.look(250);
    assert!(told.len() == 1 && told[0].ends_with(": begins"), "{told:?}");
    let over = watched.look(5_500);
    assert!(over[0].ends_with(": over, 1 reloads not applied in 0.1 s"), "{over:?}");
}

#[test]
fn drops_of_heavy_sources_are_logged_with_the_sources() {
    let mut watched = Watched::new();
    let counters = Arc::clone(&watched.shards[1].proxy);
    counters.overload.drop_share.set(500_000);
    let of =
        |host: u8| HeavySource { source: source_of([192, 0, 2, host].into()), rate_cps: 900.0 };
    counters.heavy.publish(true, || vec![of(7), of(9)]);
    let targeted = |told: Vec<String>| -> Vec<String> {
        told.into_iter().filter(|line| line.contains("heavy")).collect()
    };
    assert_eq!(targeted(watched.look(0)), [""; 0], "nothing was dropped yet");
    watched.shards[1].io.filtered.add(700);
    let drops = "only INVITEs and REGISTERs of heavy sources are dropped without a response";
    let begins = format!("{drops} (192.0.2.7, 192.0.2.9): begins");
    assert_eq!(targeted(watched.look(250)), [begins]);
    // From now on, the kernel drops requests of all sources, so no such line is due.
    counters.heavy.publish(false, Vec::new);
    watched.shards[1].io.filtered.add(30);
    assert_eq!(targeted(watched.look(500)), [""; 0]);
    let over = format!("{drops}: over, 700 requests dropped in 0.1 s");
    assert_eq!(targeted(watched.look(5500)), [over]);
}

#[test]
fn a_rule_that_the_kernel_rejects_is_logged() {
    let mut watched = Watched::new();
    watched.look(0);
    watched.shards[1].io.shed_errors.add(1);
    let begins = "the kernel does not accept the rule for the requests to drop; raise \
                  net.core.optmem_max: begins";
    assert_eq!(watched.look(250), [begins]);
}

#[test]
fn the_law_is_logged_by_name() {
    let mut watched = Watched::new();
    watched.look(0);
    watched.shards[0].proxy.rejected(Reason::Law).add(1);
    assert_eq!(watched.look(250), ["the law in force rejects new requests: begins"]);
}

#[test]
fn a_ban_is_logged_once_and_many_are_sampled() {
    let mut watched = Watched::new();
    watched.look(0);
    let ban = |n: u8, s: u64| {
        let source = source_of([192, 0, 2, n].into());
        let until = at(1000 * s);
        Ban { source, until, cause: BanCause::Limit, rate: 300, is_proven: false }
    };
    watched.bans.ban(at(200), ban(1, 60));
    assert_eq!(watched.look(250), ["source 192.0.2.1 is banned for 60 s: limit"]);
    watched.bans.ban(at(300), ban(1, 90));
    assert_eq!(watched.look(500), [""; 0], "it is only longer");
    for n in 2..20 {
        watched.bans.ban(at(600), ban(n, 120));
    }
    assert_eq!(watched.look(750).len(), 4);
    assert_eq!(watched.look(10_250), ["14 more sources were banned in the last few seconds"]);
    // A source that is banned again after its ban has ended is reported again.
    assert_eq!(watched.look(95_000), [""; 0]);
    watched.bans.ban(at(95_100), ban(1, 100));
    assert_eq!(watched.look(95_250), ["source 192.0.2.1 is banned for 5 s: limit"]);
    assert_eq!(watched.look(105_250), [""; 0], "there are no others");
}

#[test]
fn an_unresolved_name_is_logged() {
    let pool_spec = PoolSpec {
        name: "app".to_owned(),
        slow_start: Duration::ZERO,
        services: Vec::new(),
        backends: vec![BackendSpec {
            name: "a".to_owned(),
            endpoint_address: EndpointAddress::Name("sip.example.com".into(), 5060),
            weight: 1,
            priority: 0,
            limits: Limits::default(),
        }],
    };
    let mut watched = Watched::new();
    watched.registry.enlist(at(0), 1, &[pool_spec]);
    let first = watched.look(0);
    assert_eq!(first[0], "back end a of pool app is down: its name has no address");
    let a = watched.registry.find("a").unwrap();
    let named = a.named().unwrap();
    named.lookups.unanswered.fetch_add(1, Relaxed);
    let silent = "back end a of pool app: no name server answers for sip.example.com";
    assert_eq!(watched.look(4000), [silent]);
    named.lookups.found.fetch_add(1, Relaxed);
    a.move_to([192, 0, 2, 1].into());
    let told = watched.look(8000);
    let found = "back end a of pool app: sip.example.com can be resolved again";
    assert!(told.contains(&found.to_owned()), "{told:?}");
}

#[test]
fn an_unresolved_domain_is_logged() {
    let pool_spec = PoolSpec {
        name: "app".to_owned(),
        slow_start: Duration::ZERO,
        services: vec![("example.com".into(), Transport::Udp)],
        backends: Vec::new(),
    };
    let mut watched = Watched::new();
    watched.registry.enlist(at(0), 1, &[pool_spec]);
    watched.look(0);
    let service = watched.registry.services().pop().unwrap();
    for (s, count, line) in [
        (4, &service.lookups.unanswered, "no name server answers for domain example.com"),
        (8, &service.lookups.found, "domain example.com can be resolved again"),
        (
            12,
            &service.lookups.not_found,
            "domain example.com has no SRV records any more; its servers stay as they were",
        ),
    ] {
        count.fetch_add(1, Relaxed);
        assert_eq!(watched.look(s * 1000), [line]);
    }
}

/// A regression: after queries for both transports, each check wrote a line.
#[test]
fn a_domain_that_pools_reach_over_two_transports_is_logged_for_each() {
    let pool_spec = |name: &str, transport| PoolSpec {
        name: name.to_owned(),
        slow_start: Duration::ZERO,
        services: vec![("example.com".into(), transport)],
        backends: Vec::new(),
    };
    let pool_specs = [pool_spec("a", Transport::Udp), pool_spec("b", Transport::Tcp)];
    let mut watched = Watched::new();
    watched.registry.enlist(at(0), 1, &pool_specs);
    watched.look(0);
    let services = watched.registry.services();
    services[0].lookups.found.fetch_add(1, Relaxed);
    services[1].lookups.unanswered.fetch_add(1, Relaxed);
    assert_eq!(watched.look(4000), ["no name server answers for domain example.com"]);
    assert_eq!([8, 12].map(|s| watched.look(s * 1000)), [[""; 0]; 2]);
}

#[test]
fn an_observation_is_a_line_that_begins_with_the_time() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_210_096_250);
    let line = Observation { at, what: "pool app: x".to_owned() }.to_string();
    assert_eq!(line, "2024-02-29T12:34:56.250Z pool app: x");
}
