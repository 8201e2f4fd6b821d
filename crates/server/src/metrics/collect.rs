//! Collects the metrics of the shards, the sockets and the back ends.

mod backends;
mod connections;
mod feedback;
mod in_force;
mod messages;
mod names;
mod new_work;
mod overload;
mod process;
mod resolution;
mod sockets;
mod tiers;

use std::sync::Arc;

use tidegate_balance as balance;
use tidegate_io as io;
use tidegate_proxy as proxy;
use tidegate_transport::ConnectionCounters;
use tidegate_world::Counter;

use crate::key::Keeper;
use crate::metrics::{Family, Metrics, Number};
use crate::recording::Tally;

pub(crate) use feedback::restriction;
pub use new_work::RecentWork;
pub(crate) use new_work::{NewWork, limit};
pub(crate) use overload::sojourns;

/// The counters of one shard.
#[derive(Clone, Default)]
pub struct ShardCounters {
    /// Counters of the shard's sockets.
    pub io: Arc<io::Counters>,
    /// Counters of the shard's core.
    pub proxy: Arc<proxy::Counters>,
    /// Counters of the shard's connections.
    pub connections: Arc<ConnectionCounters>,
    /// Number of datagrams that were dropped because an emulated receive buffer was full.
    pub emulated_overflow: Arc<Counter>,
    /// Number of datagrams that the emulated kernel dropped because the core asked for it.
    pub emulated_filtered: Arc<Counter>,
    /// Counts and rates of new calls and other new requests in the last second.
    pub recent: Arc<RecentWork>,
    /// Counts of the recording, if the shard is recorded. Otherwise they stay 0.
    pub(crate) recording: Arc<Tally>,
}

impl ShardCounters {
    /// Returns the number of INVITEs and REGISTERs that were dropped because of overload or a ban:
    /// by the kernel, by the emulated host, or by Tidegate after it had read them from a stream.
    pub(crate) fn filtered(&self) -> u64 {
        let in_streams = self.proxy.dropped(proxy::DropReason::DropShare).get();
        self.io.filtered.get() + self.emulated_filtered.get() + in_streams
    }
}

/// Adds the metrics of these shards, of the back ends in `registry`, of `next_hops`, and of the
/// process.
pub(crate) fn add(
    metrics: &mut Metrics,
    shards: Vec<ShardCounters>,
    registry: balance::BackendRegistry,
    next_hops: proxy::NextHops,
    clock: io::Clock,
) {
    metrics.add(move |samples| {
        for (index, shard) in shards.iter().enumerate() {
            let index = index.to_string();
            messages::add(samples, &index, &shard.proxy);
            overload::add(samples, &index, &shard.proxy, clock.now().as_nanos());
            in_force::add(samples, &index, &shard.proxy);
            tiers::add(samples, &index, &shard.proxy);
            resolution::add(samples, &index, &shard.proxy);
            sockets::add(samples, &index, &shard.io);
            connections::add(samples, &index, shard);
            feedback::add_given(samples, &index, &shard.proxy);
            samples.push_each(&EMULATED, &[("shard", &index)], shard);
        }
    });
    metrics.add_process(process::add);
    metrics.add(move |samples| {
        for pool in registry.pools() {
            backends::add(samples, &pool, clock.now());
        }
        for service in registry.services() {
            names::add_domain(samples, &service);
        }
        feedback::add_received(samples, &next_hops, clock.now());
    });
}

/// Adds the metrics of a recording.
pub(crate) fn add_recording(metrics: &mut Metrics, tally: Arc<Tally>) {
    metrics.add(move |samples| samples.push_each(&RECORDING, &[], &*tally));
}

/// Adds a metric that shows whether the last check of the key file failed.
pub(crate) fn add_keys(metrics: &mut Metrics, keeper: Arc<Keeper>) {
    metrics.add(move |samples| samples.push(&TROUBLE, &[], u64::from(keeper.has_trouble())));
}

/// Adds a metric that shows whether the last reload of the configuration failed.
pub(crate) fn add_reloads(
    metrics: &mut Metrics,
    has_failed: impl Fn() -> bool + Send + Sync + 'static,
) {
    metrics.add(move |samples| {
        samples.push(&RELOAD_FAILED, &[], u64::from(has_failed()));
    });
}

static RELOAD_FAILED: Family = Family::gauge(
    "reload_failed",
    "1 if the last reload of the configuration failed, also after SIGHUP, otherwise 0",
);

static TROUBLE: Family =
    Family::gauge("keys_trouble", "1 if the last check of the key file failed, otherwise 0");

static EMULATED: [Number<ShardCounters>; 2] = [
    Number::counter(
        "emulated_overflow",
        "Datagrams dropped at full receive buffers of the emulated processor",
        |shard| shard.emulated_overflow.get().into(),
    ),
    Number::counter(
        "emulated_filtered",
        "INVITEs and REGISTERs that the emulated kernel dropped because Tidegate asked for it",
        |shard| shard.emulated_filtered.get().into(),
    ),
];

static RECORDING: [Number<Tally>; 2] = [
    Number::counter(
        "recorded_inputs",
        "Inputs (messages, timers, commands and others) written to the recording",
        |tally| tally.written.get().into(),
    ),
    Number::counter("unrecorded_inputs", "Inputs that are missing from the recording", |tally| {
        tally.lost().into()
    }),
];

fn seconds(ns: &Counter) -> f64 {
    ns.get() as f64 / 1e9
}

fn thousandths(count: &Counter) -> f64 {
    count.get() as f64 / 1e3
}

pub(crate) fn millionths(count: &Counter) -> f64 {
    count.get() as f64 / 1e6
}
