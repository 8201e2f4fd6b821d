//! Runs calls through a proxy over real sockets, and records its inputs and packets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig};
use tidegate_balance::{Policy, Pool as Backends};
use tidegate_control::registry;
use tidegate_io::{Clock, Drive, Group, Handoffs, Limits, Listen, Shard, Stop, open};
use tidegate_proxy::{Listener, PoolSettings, Proxy, Secret, Settings};
use tidegate_world::{Core, Entry, Flow, Memory, Pool, Recorder, Seed, Transmit, delegate};

pub const CALLS: u32 = 300;

pub type Sent = Vec<(Flow, Vec<u8>)>;

/// A core that records its packets when the driver takes them.
struct Tapped<C> {
    core: C,
    sent: Sent,
    /// Called when the driver has taken all packets that an input caused.
    taken: fn(&C, &Stop),
    stop: Stop,
}

impl<C: Core> Core for Tapped<C> {
    fn poll_transmit(&mut self) -> Option<Transmit> {
        let Some(transmit) = self.core.poll_transmit() else {
            (self.taken)(&self.core, &self.stop);
            return None;
        };
        self.sent.push((transmit.flow, transmit.bytes.to_vec()));
        Some(transmit)
    }

    delegate!(self.core, but poll_transmit);
}

/// Starts a thread that drives the core made by `core` at `group` and then passes it to `finish`.
fn drive<C: Core + 'static, R: Send + 'static>(
    group: &Group,
    clock: Clock,
    stop: &Stop,
    core: impl FnOnce(Pool) -> C + Send + 'static,
    finish: impl FnOnce(C) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let (listeners, stop) = (vec![group.listener(0)], stop.clone());
    thread::spawn(move || {
        let pool = Pool::new();
        let mut core = core(pool.clone());
        let handoffs = Handoffs::alone().unwrap();
        let (limits, counters) = (Limits::default(), Arc::default());
        let shard = Shard { clock, limits, listeners, handoffs, counters, stop, pool };
        Drive::new(shard).unwrap().run(&mut core).unwrap();
        finish(core)
    })
}

/// The addresses of a run.
#[derive(Clone, Copy)]
pub struct Topology {
    pub proxy: SocketAddr,
    pub backends: [SocketAddr; 2],
    pub transactions: bool,
}

/// A finished run.
pub struct Run {
    pub topology: Topology,
    /// Inputs of the proxy.
    pub log: Vec<Entry>,
    /// Packets of the proxy.
    pub sent: Sent,
}

/// Returns a proxy whose law uses both the queue and the load, so that its packets depend on every
/// kind of input.
pub fn proxy(Topology { proxy, backends, transactions }: Topology) -> Proxy {
    let pool = Backends::new("app", &[("a", backends[0], 1), ("b", backends[1], 1)]);
    let secret = Secret::of([3; 32]);
    let pool = PoolSettings::new(pool, Policy::Tlwl);
    let pool = if transactions { pool } else { pool.stateless() };
    let mut settings = Settings::new(vec![Listener::new(proxy)], vec![pool], secret);
    settings.overload.gate.law = registry::find("pi").unwrap().values(&[("t_q", 0.02)]).unwrap();
    Proxy::new(settings, Arc::default(), Pool::new())
}

/// Runs calls through a proxy over real sockets.
pub fn run(transactions: bool) -> Run {
    let clock = Clock::start();
    let group = |split| {
        let any = "127.0.0.1:0".parse().unwrap();
        open(&Listen { split, ..Listen::new(any) }).unwrap()
    };
    let (proxied, called) = (group(true), [group(false), group(false)]);
    let calling = group(false);
    let (local, target) = (calling.local(), proxied.local());
    let backends = [called[0].local(), called[1].local()];
    let topology = Topology { proxy: target, backends, transactions };

    let (stop_calling, stop_others) = (Stop::new(), Stop::new());
    let answerers: Vec<_> = (1..)
        .zip(&called)
        .map(|(element, group)| {
            let at = group.local();
            let answerer =
                move |pool| Answerer::new(AnswererConfig::new(at), Seed(5), element, pool);
            drive(group, clock, &stop_others, answerer, drop)
        })
        .collect();
    let stop = stop_others.clone();
    let through = drive(
        &proxied,
        clock,
        &stop_others,
        move |_| {
            let core = Recorder::new(proxy(topology), Memory::new(100_000));
            Tapped { core, sent: Vec::new(), taken: |_, _| {}, stop }
        },
        |tapped| (tapped.core.into_log().into_log(), tapped.sent),
    );
    let load =
        tidegate_agent::Load { rate_cps: 500.0, calls: CALLS, ..tidegate_agent::Load::default() };
    let stop = stop_calling.clone();
    let caller = drive(
        &calling,
        clock,
        &stop_calling,
        move |pool| {
            let config = CallerConfig { load, ..CallerConfig::new(local, target) };
            let core = Caller::new(config, Seed(5), 0, clock.now(), pool).unwrap();
            let taken = |caller: &Caller, stop: &Stop| {
                if caller.is_done() && stop.requests() == 0 {
                    stop.request();
                }
            };
            Tapped { core, sent: Vec::new(), taken, stop }
        },
        |tapped| tapped.core.stats().clone(),
    );
    let called = caller.join().unwrap();
    // On a busy machine the law rejects some calls.
    assert_eq!(called.completed + called.failed.total(), u64::from(CALLS));
    assert!(called.completed > 0, "{:?}", called.failed);
    stop_others.request();
    let ((log, lost), sent) = through.join().unwrap();
    assert_eq!(lost, 0);
    for answerer in answerers {
        answerer.join().unwrap();
    }
    Run { topology, log, sent }
}
