//! Runs the recorded proxy among simulated callers and callees.

use std::net::SocketAddr;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load};
use tidegate_server::assembly::Assembly;
use tidegate_server::config::Config;
use tidegate_server::recording::Head;
use tidegate_sim::{Link, Network};
use tidegate_world::{Core, Pool, Recorder, Timestamp};

use super::observer::Observer;
use super::scene::Scene;

/// Simulates the proxy, callers and callees of `scene` until `end`. Returns the observations at the
/// proxy.
pub(super) fn run(scene: &Scene, config: &Config, head: &Head, end: Timestamp) -> Observer {
    let assembly = Assembly::new(config, &head.keys, head.listeners.clone(), head.seed)
        .within(head.environment.clone());
    let mut proxy = Recorder::new(assembly.part(0).core(Pool::new()), Observer::default());

    let mut agents: Vec<(SocketAddr, Box<dyn Core>)> = Vec::new();
    let mut elements = 0..;
    let mut element = || elements.next().expect("fewer than 2^32 agents");
    for &local in &scene.callees {
        let answerer = AnswererConfig {
            mix: scene.mix(),
            ring: scene.ring.unwrap_or_default().into(),
            provisionals: if scene.rings { vec![180] } else { Vec::new() },
            ..AnswererConfig::new(local)
        };
        agents.push((local, Box::new(Answerer::new(answerer, head.seed, element(), Pool::new()))));
    }
    for crowd in &scene.crowds {
        let plain = CallerConfig::new(crowd.address, crowd.target);
        let caller = CallerConfig {
            uri: crowd.uri.clone(),
            load: Load::of_trace(crowd.moments.clone()),
            hold: scene.hold.unwrap_or(end.since(Timestamp::ZERO)).into(),
            patience: scene.patience.map_or(plain.patience, Into::into),
            open_max: crowd.moments.moments().len(),
            ..plain.clone()
        };
        let mut start =
            |config| Caller::new(config, head.seed, element(), Timestamp::ZERO, Pool::new());
        // A URI that the simulated callers cannot write is replaced by the default.
        let caller =
            start(caller.clone()).or_else(|_| start(CallerConfig { uri: plain.uri, ..caller }));
        agents.push((crowd.address, Box::new(caller.expect("a caller at a recorded address"))));
    }

    let mut network: Network<&mut dyn Core> = Network::new(head.seed, Link::default(), ());
    network.add(&scene.proxy, &mut proxy);
    for (address, agent) in &mut agents {
        network.add(&[*address], agent);
    }
    network.run_until(end);
    drop(network);
    proxy.into_log()
}
