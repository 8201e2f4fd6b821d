//! Reports to operators on heavy sources, which cause the overload.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_world::unit_enum;

use crate::bans::written;
use crate::metrics::collect::ShardCounters;
use crate::metrics::{Family, Metrics};

static HEAVY: Family = Family::gauge(
    "heavy_sources",
    "Heavy sources: the sources that cause the overload. While there are any, at least one shard \
     makes the kernel drop only their INVITEs and REGISTERs",
);
static DROPS_ALL: Family = Family::gauge(
    "kernel_drops_all",
    "1 while at least one shard makes the kernel drop INVITEs and REGISTERs of all sources that it \
     does not spare. 0 while the kernel drops only INVITEs and REGISTERs of heavy sources, or none. \
     Drops because of bans do not count",
);

unit_enum! {
    /// The set of sources whose INVITEs and REGISTERs the kernel drops because of overload. The
    /// variants are ordered by the size of this set. JSON uses these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Target {
        /// The kernel drops nothing.
        Nothing = "nothing",
        /// The kernel drops INVITEs and REGISTERs of heavy sources only.
        Heavy = "heavy",
        /// The kernel, at one shard or more, drops INVITEs and REGISTERs of all sources except
        /// exempt networks (`Shedding::spared`).
        All = "all",
    }
}

/// The heavy sources of a process, which cause its overload.
pub(crate) struct HeavySources {
    /// The rate of each heavy source, in messages a second. It is the sum of the estimates of all
    /// shards, because each shard reads other messages of the source.
    rates_cps: BTreeMap<u128, f64>,
    /// The rate of emergency calls from each source that sends a flood of them.
    emergencies_cps: BTreeMap<u128, f64>,
    pub(crate) target: Target,
}

impl HeavySources {
    /// Returns the heavy sources of these shards.
    pub(crate) fn of(shards: &[ShardCounters]) -> Self {
        let [mut rates_cps, mut emergencies_cps] = [const { BTreeMap::new() }; 2];
        let mut target = Target::Nothing;
        for shard in shards {
            let heavy = shard.proxy.heavy.get();
            let overload = &shard.proxy.overload;
            target = target.max(
                match overload.drop_share.get() + overload.drop_share_of_registers.get() {
                    0 => Target::Nothing,
                    _ if heavy.is_empty() => Target::All,
                    _ => Target::Heavy,
                },
            );
            let floods = shard.proxy.emergency_floods.get();
            for (rates, sources) in [(&mut rates_cps, heavy), (&mut emergencies_cps, floods)] {
                for source in sources {
                    *rates.entry(source.source).or_default() += source.rate_cps;
                }
            }
        }
        Self { rates_cps, emergencies_cps, target }
    }

    /// Returns the heavy sources with their rates, as JSON.
    pub(crate) fn to_json(&self) -> Value {
        as_json(&self.rates_cps)
    }

    /// Returns the sources that flood with emergency calls and the rates of these calls, as JSON.
    pub(crate) fn emergency_floods(&self) -> Value {
        as_json(&self.emergencies_cps)
    }

    /// Returns the addresses of the heavy sources in ascending order, separated by commas.
    pub(crate) fn written(&self) -> String {
        self.rates_cps.keys().map(|source| written(*source)).collect::<Vec<_>>().join(", ")
    }
}

fn as_json(rates_cps: &BTreeMap<u128, f64>) -> Value {
    let of = |(source, cps): (&u128, &f64)| json!({ "source": written(*source), "rate_cps": cps });
    rates_cps.iter().map(of).collect()
}

/// Adds two metrics: the number of heavy sources, and whether the kernel drops INVITEs and
/// REGISTERs of all sources.
pub(crate) fn add(metrics: &mut Metrics, shards: Vec<ShardCounters>) {
    metrics.add(move |samples| {
        let heavy = HeavySources::of(&shards);
        samples.push(&HEAVY, &[], heavy.rates_cps.len() as u64);
        samples.push(&DROPS_ALL, &[], u64::from(heavy.target == Target::All));
    });
}

#[cfg(test)]
mod tests {
    use tidegate_control::HeavySource;
    use tidegate_proxy::source_of;

    use super::*;

    /// Returns the counters of a shard that tells the kernel to drop this share of the INVITEs from
    /// these hosts.
    fn shard(share: f64, hosts: impl IntoIterator<Item = u8>) -> ShardCounters {
        let shard = ShardCounters::default();
        shard.proxy.overload.drop_share.set((share * 1e6) as u64);
        let of =
            |host: u8| HeavySource { source: source_of([192, 0, 2, host].into()), rate_cps: 150.0 };
        let heavy: Vec<_> = hosts.into_iter().map(of).collect();
        shard.proxy.heavy.publish(true, || heavy);
        shard
    }

    #[test]
    fn the_heavy_sources_of_all_shards_are_shown_with_the_sum_of_their_rates() {
        let shards = [shard(0.5, [7, 8]), shard(0.0, []), shard(0.9, [8])];
        let flood = HeavySource { source: source_of([192, 0, 2, 7].into()), rate_cps: 60.0 };
        for shard in &shards[1..] {
            shard.proxy.emergency_floods.publish(true, || vec![flood]);
        }
        let heavy = HeavySources::of(&shards);
        let floods = json!([{ "source": "192.0.2.7", "rate_cps": 120.0 }]);
        assert_eq!(heavy.emergency_floods(), floods);
        let expected = json!([
            { "source": "192.0.2.7", "rate_cps": 150.0 },
            { "source": "192.0.2.8", "rate_cps": 300.0 },
        ]);
        assert_eq!((heavy.to_json(), heavy.target), (expected, Target::Heavy));
        assert_eq!(heavy.written(), "192.0.2.7, 192.0.2.8");
    }

    #[test]
    fn the_target_is_that_of_the_shard_with_the_most_sources() {
        let target = |shards: &[ShardCounters]| HeavySources::of(shards).target;
        assert_eq!(target(&[shard(0.0, []), shard(0.0, [])]), Target::Nothing);
        assert_eq!(target(&[shard(0.0, [7])]), Target::Nothing, "only hashes are dropped");
        assert_eq!(target(&[shard(0.5, [7]), shard(0.5, [])]), Target::All);
        assert_eq!(target(&[shard(0.5, []), shard(0.0, [7])]), Target::All);
        assert_eq!(target(&[shard(0.5, 0..8), shard(0.0, []), shard(0.5, 8..16)]), Target::Heavy);
    }

    #[test]
    fn metrics_show_the_number_of_heavy_sources_and_drops_of_all() {
        let rendered = |shards: Vec<ShardCounters>| {
            let mut metrics = Metrics::new();
            add(&mut metrics, shards);
            metrics.render()
        };
        let text = rendered(vec![shard(0.5, [7, 8]), shard(0.5, [8])]);
        assert!(text.contains("\ntidegate_heavy_sources 2\n"), "{text}");
        assert!(text.contains("\ntidegate_kernel_drops_all 0\n"), "{text}");
        let text = rendered(vec![shard(0.5, [])]);
        assert!(text.contains("\ntidegate_heavy_sources 0\n"), "{text}");
        assert!(text.contains("\ntidegate_kernel_drops_all 1\n"), "{text}");
    }
}
