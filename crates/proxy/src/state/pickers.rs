//! The selectors of back ends, one for each pool.

use tidegate_balance::{Picker, Policy, Values};
use tidegate_world::{Purpose, Seed};

use crate::settings::{Choice, PoolSettings};

/// Creates the selector of each of these pools.
pub(crate) fn pickers(seed: Seed, shard: u16, pools: &[PoolSettings]) -> Vec<Picker> {
    (0..).zip(pools).map(|(place, settings)| picker_of(seed, shard, place, settings)).collect()
}

/// Creates the selector of the pool with the index `place`.
pub(crate) fn picker_of(seed: Seed, shard: u16, place: u16, settings: &PoolSettings) -> Picker {
    let draws = seed.stream(Purpose::Balance, u32::from(shard) << 16 | u32::from(place));
    Picker::new(settings.pool.clone(), policy_of(settings), draws)
}

/// Returns the policy by which a pool selects one of its back ends.
pub(crate) fn policy_of(settings: &PoolSettings) -> Values {
    match settings.choice {
        Choice::One(policy) => policy,
        // A forked request goes to all back ends. Requests from one back end to another are divided
        // by Call-ID.
        Choice::All(_) => Policy::Hash.into(),
    }
}
