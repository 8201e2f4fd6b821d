//! Tests of pools whose back ends are the servers that the DNS lists for a domain (RFC 3263, RFC
//! 2782), in simulated time. The resolver is late or fails. Servers crash, are added and are
//! removed.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, CallerStats, Load};
use tidegate_balance::BackendRegistry;
use tidegate_proxy::Secret;
use tidegate_server::assembly::Assembly;
use tidegate_server::config::{Config, Found};
use tidegate_sim::{Fault, Link, Network, NodeId, Resolution, Silence};
use tidegate_world::{Core, Pool, Seed, SrvRecord, Timestamp};

const CALLER: &str = "127.0.0.1:5080";
const PROXY: &str = "127.0.0.1:5060";
const SERVICE: &str = "_sip._udp.example.com";
/// The servers of the domain: name, address, priority and weight.
const SERVERS: [(&str, &str, u16, u16); 3] = [
    ("a.example.com.", "127.0.0.2:5070", 1, 3),
    ("b.example.com.", "127.0.0.3:5071", 1, 1),
    ("c.example.com.", "127.0.0.4:5072", 2, 1),
];
/// The number of calls. There is one call a second on average.
const CALLS: u32 = 200;

struct Stage<'c> {
    network: Network<&'c mut dyn Core>,
    proxy: NodeId,
    servers: [NodeId; 3],
    registry: BackendRegistry,
    /// The servers that were last sent to the proxy.
    told: Found,
}

struct Ended {
    caller: CallerStats,
    answered: [u64; 3],
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn at(s: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(s)
}

impl Stage<'_> {
    /// Changes the SRV records of the domain to these servers.
    fn list(&mut self, servers: &[usize]) {
        let record = |&server: &usize| {
            let (target, place, priority, weight) = SERVERS[server];
            SrvRecord { priority, weight, port: address(place).port(), target: target.into() }
        };
        let records: Vec<_> = servers.iter().map(record).collect();
        self.network.zone_mut().set_srv(SERVICE, &records, Duration::from_secs(10));
    }

    /// Runs the simulation until `end`, and sends the commands that the main thread would send.
    fn run_until(&mut self, end: Timestamp) {
        while self.network.now() < end {
            let found = Found::of(&self.registry.services());
            if found != self.told {
                self.network.command(self.proxy, found.text().as_bytes());
                self.told = found;
            }
            let next = self.network.now() + Duration::from_millis(250);
            self.network.run_until(next.min(end));
        }
    }

    fn crash(&mut self, server: usize) {
        let fault = Fault::Crash { node: self.servers[server], silence: Silence::Refused };
        let now = self.network.now();
        self.network.apply(now, &fault, |_| unreachable!("no server restarts"));
    }

    fn resolve_by(&mut self, resolution: Resolution) {
        self.network.zone_mut().resolve_by(resolution);
    }
}

fn run(mode: &str, hold_s: u64, act: impl FnOnce(&mut Stage<'_>)) -> Ended {
    let text = format!(
        "[[listen]]\ntransport = \"udp\"\naddress = \"{PROXY}\"\n\
         [[pool]]\nname = \"app\"\npolicy = \"rr\"\nmode = \"{mode}\"\n\
         [[pool.backend]]\nuri = \"sip:example.com\"\n"
    );
    let config = Config::parse(Path::new("c"), text.as_bytes()).unwrap();
    let (seed, keys) = (Seed(3), Secret::of([1; 32]));
    let assembly = Assembly::new(&config, &keys, vec![address(PROXY)], seed);
    let mut proxy = assembly.part(0).core(Pool::new());
    let caller = CallerConfig {
        load: Load { rate_cps: 1.0, calls: CALLS, ..Load::default() },
        hold: Duration::from_secs(hold_s).into(),
        ..CallerConfig::new(address(CALLER), address(PROXY))
    };
    let mut caller = Caller::new(caller, seed, 0, Timestamp::ZERO, Pool::new()).unwrap();
    let mut answerers = SERVERS.map(|(_, place, ..)| {
        Answerer::new(AnswererConfig::new(address(place)), seed, 1, Pool::new())
    });

    let link = Link::delaying(Duration::from_millis(1));
    let mut network = Network::<&mut dyn Core>::new(seed, link, ());
    network.add(&[address(CALLER)], &mut caller);
    let proxy = network.add(&[address(PROXY)], &mut proxy);
    let [a, b, c] = &mut answerers;
    let servers = [(a, 0), (b, 1), (c, 2)]
        .map(|(core, index)| network.add(&[address(SERVERS[index].1)], core));
    for (host, place, ..) in SERVERS {
        network.zone_mut().set(host, &[address(place).ip()], Duration::from_secs(10));
    }
    let registry = assembly.registry().clone();
    let mut stage = Stage { network, proxy, servers, registry, told: Found::default() };
    stage.list(&[0, 1, 2]);
    act(&mut stage);
    // Without the drain, the proxy would query the DNS forever.
    stage.run_until(at(900));
    stage.network.drain(stage.proxy);
    stage.network.run_until(Timestamp::NEVER);
    for pool in stage.registry.pools() {
        for backend in pool.backends() {
            assert_eq!((backend.calls(), backend.work()), (0, 0), "every count came back");
        }
    }
    drop(stage);
    let answered = answerers.each_ref().map(|answerer| answerer.stats().completed);
    Ended { caller: caller.stats().clone(), answered }
}

// RFC 2782: "Larger weights SHOULD be given a proportionately higher probability of being
// selected", among those of the lowest-numbered priority.
#[test]
fn calls_are_shared_by_weight_among_the_servers_of_the_first_priority() {
    for mode in ["stateless", "transaction"] {
        let ended = run(mode, 3, |stage| {
            stage.resolve_by(Resolution { delay: Duration::from_secs(5), ..Resolution::default() });
        });
        let rejected = ended.caller.failed.status.get(&503).copied().unwrap_or_default();
        // The answers for SRV and A are late, so the calls of the first ten seconds are rejected.
        // Ten are expected, and five standard deviations are 16.
        assert!((1..=26).contains(&rejected), "{rejected}");
        let served = u64::from(CALLS) - rejected;
        assert_eq!(ended.caller.completed, served, "{:?}", ended.caller.failed);
        let [a, b, c] = ended.answered;
        assert_eq!((a + b, c), (served, 0));
        assert!((3 * b).abs_diff(a) <= 4, "{a}, {b}");
    }
}

// RFC 2782: "A client MUST attempt to contact the target host with the lowest-numbered priority it
// can reach".
#[test]
fn servers_of_the_next_priority_get_calls_while_the_dns_is_silent() {
    let ended = run("transaction", 3, |stage| {
        stage.run_until(at(20));
        stage.resolve_by(Resolution { fails: 1.0, ..Resolution::default() });
        stage.run_until(at(60));
        stage.crash(0);
        stage.run_until(at(100));
        stage.crash(1);
    });
    // A call that was in progress at a server when it crashed cannot end there, so it fails.
    let failed = u64::from(CALLS) - ended.caller.completed;
    assert!(failed <= 20, "{failed}: {:?}", ended.caller.failed);
    assert!(ended.answered[2] > 50, "{:?}", ended.answered);
}

#[test]
fn calls_of_a_server_that_leaves_the_dns_end_there() {
    for mode in ["stateless", "transaction"] {
        let ended = run(mode, 200, |stage| {
            stage.run_until(at(50));
            stage.list(&[1, 2]);
            stage.run_until(at(100));
            stage.list(&[2]);
        });
        // The first call may come before the first answer.
        assert!(ended.caller.completed >= u64::from(CALLS) - 1, "{:?}", ended.caller.failed);
        let [a, b, c] = ended.answered;
        assert!(a > 20 && b > 40 && c > 60, "{mode}: {:?}", ended.answered);
    }
}
