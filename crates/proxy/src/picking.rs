//! Who gets what is new: a back end of a pool, or of another pool that stands in for it.

use tidegate_balance::{Backend, Key, Picker, Policy, Values, fnv1a};
use tidegate_world::{Purpose, Seed, Timestamp};

use crate::callee::callee;
use crate::calls::Member;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::request::Request;
use crate::settings::{Choice, PoolSettings};

/// Pools that stand in for one after the other at the most. A circle, which a configuration is
/// refused for, ends too.
const BACKUPS_MAX: usize = 256;

impl Endpoint {
    /// What the policy of a pool chooses by of a request whose Call-ID has that fingerprint.
    pub(crate) fn choice_key(&self, pool: u16, request: &Request<'_>, fingerprint: u128) -> u64 {
        match self.picker(pool).key() {
            Key::Call => fingerprint as u64,
            Key::CallId => fnv1a(request.essentials.call_id),
            Key::Callee => callee(&self.keys().call, &request.essentials.to),
        }
    }

    /// Chooses a back end for a new call, by its [`choice_key`](Self::choice_key).
    pub(crate) fn pick(&mut self, now: Timestamp, pool: u16, key: u64) -> Result<u16, Instead> {
        self.picker_mut(pool)
            .pick(now, key, None)
            .map(|backend| backend as u16)
            .ok_or(Instead::Reply(503, "no back end is up"))
    }

    /// Chooses a back end for a new call among those that `may_have` it.
    pub(crate) fn pick_another(
        &mut self,
        now: Timestamp,
        pool: u16,
        key: u64,
        may_have: impl Fn(usize, &Backend) -> bool,
    ) -> Option<u16> {
        self.picker_mut(pool).pick_where(now, key, may_have).map(|backend| backend as u16)
    }

    /// The pool that new calls of `pool` go to: itself, or if none of its back ends may be given
    /// any, the first of those that stand in for it of which one may.
    pub(crate) fn standing_in(&self, now: Timestamp, pool: u16) -> u16 {
        if self.pool_settings(pool).backup.is_none() {
            return pool;
        }
        let is_up = |&pool: &u16| self.pool_settings(pool).pool.is_up(now);
        self.and_backups(pool).find(is_up).unwrap_or(pool)
    }

    /// A pool, and those that stand in for it, in their order.
    pub(crate) fn and_backups(&self, pool: u16) -> impl Iterator<Item = u16> {
        let next = |&pool: &u16| self.pool_settings(pool).backup;
        std::iter::successors(Some(pool), next).take(BACKUPS_MAX)
    }

    /// Chooses a back end for what another back end sends to a pool. RFC 3261 §16.11: by
    /// the message alone, so that repetitions, CANCEL and ACK get the same choice.
    pub(crate) fn pick_by_call(
        &self,
        now: Timestamp,
        pool: u16,
        fingerprint: u128,
        from: Member,
    ) -> Result<Member, Instead> {
        let not = (from.pool == pool).then(|| usize::from(from.backend));
        self.picker(pool)
            .pick_by_call(now, fingerprint as u64, not)
            .map(|backend| Member { pool, backend: backend as u16 })
            .ok_or(Instead::Reply(503, "no back end is up"))
    }
}

/// Who chooses in each of these pools.
pub(crate) fn pickers(seed: Seed, shard: u16, pools: &[PoolSettings]) -> Vec<Picker> {
    (0..).zip(pools).map(|(place, settings)| picker_of(seed, shard, place, settings)).collect()
}

/// Who chooses in the pool at `place`, which is used so.
pub(crate) fn picker_of(seed: Seed, shard: u16, place: u16, settings: &PoolSettings) -> Picker {
    let draws = seed.stream(Purpose::Balance, u32::from(shard) << 16 | u32::from(place));
    Picker::new(settings.pool.clone(), policy_of(settings), draws)
}

/// How a pool chooses one of its back ends.
pub(crate) fn policy_of(settings: &PoolSettings) -> Values {
    match settings.choice {
        Choice::One(policy) => policy,
        // All are chosen; what one back end sends to another is divided by its Call-ID.
        Choice::All(_) => Policy::Hash.into(),
    }
}
