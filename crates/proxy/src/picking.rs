//! Who gets what is new: a back end of a pool, or of another pool that stands in for it.

use smallvec::SmallVec;
use tidegate_balance::{
    Assigned, Backend, Demand, Key, Lease, Picker, Policy, Pool, Unassigned, Values, fnv1a,
};
use tidegate_control::Tier;
use tidegate_sip::Method;
use tidegate_world::{Purpose, Seed, Timestamp};

use crate::callee::callee;
use crate::calls::{CallRef, Member};
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::request::Request;
use crate::settings::{Choice, Mode, PoolSettings};
use crate::stateful;

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

    /// Gives a request that is for `pool` to one of its back ends, or to one of the first of the
    /// pools that stand in for it that can have it. `call` is what is held of its Call-ID.
    ///
    /// With a `demand` it is something new, and goes to who has headroom; else to who is up.
    pub(crate) fn assign(
        &mut self,
        now: Timestamp,
        pool: u16,
        call: Option<CallRef>,
        request: &Request<'_>,
        fingerprint: u128,
        demand: Option<Demand>,
    ) -> Result<Chosen, Instead> {
        self.picker_mut(pool).retries().earn();
        let assigned = self.try_assign(now, pool, call, request, fingerprint, demand);
        match assigned {
            // Rather than to nobody it goes to one of which requests alone have said that it is down.
            Err(Instead::PoolDown(_)) if self.spare(now) => {
                self.try_assign(now, pool, call, request, fingerprint, demand)
            }
            _ => assigned,
        }
    }

    fn try_assign(
        &mut self,
        now: Timestamp,
        pool: u16,
        call: Option<CallRef>,
        request: &Request<'_>,
        fingerprint: u128,
        demand: Option<Demand>,
    ) -> Result<Chosen, Instead> {
        let pools: SmallVec<[u16; 4]> = self.and_backups(pool).collect();
        let may_have = |pool: &Pool| match demand {
            Some(demand) => pool.has_headroom(now, demand),
            None => pool.is_up(now),
        };
        let mut is_any_up = false;
        for &pool in &pools {
            // To choose among nobody would still move what a policy draws and whose turn it is.
            let backends = &self.pool_settings(pool).pool;
            if pools.len() > 1 && !may_have(backends) {
                is_any_up |= backends.is_up(now);
                continue;
            }
            if demand.is_some() {
                self.check_room(pool, call, request)?;
            }
            let key = self.choice_key(pool, request, fingerprint);
            if let Some(group) = self.groups(now, pool).front() {
                let member = Member { pool, backend: group[0] };
                return Ok(Chosen { member, key, call: None });
            }
            match self.choose(now, pool, key, demand, |_, _| true) {
                Ok(chosen) => return Ok(chosen),
                // Perhaps another shard has taken what was left here a moment ago.
                Err(Unassigned::Full) => is_any_up = true,
                Err(Unassigned::Down) => {}
            }
        }
        let why = if is_any_up { Unassigned::Full } else { Unassigned::Down };
        Err(self.unassigned(now, pool, why))
    }

    /// Says that there is no room for the transaction that something new would have in `pool`:
    /// before a back end is chosen, for a choice counts.
    pub(crate) fn check_room(
        &self,
        pool: u16,
        call: Option<CallRef>,
        request: &Request<'_>,
    ) -> Result<(), Instead> {
        let is_stateful = match call {
            Some(call) => self.tier(pool, call) == Tier::Stateful,
            // Where that is left open, a call that finds no room has none.
            None => self.mode(pool) == Mode::Transaction,
        };
        if is_stateful && self.transactions().is_full_for_new() {
            Err(self.transactions_full())
        } else if is_stateful && request.has_its_share {
            self.counters.transactions_over_share.add(1);
            Err(stateful::SHARE_FULL)
        } else {
            Ok(())
        }
    }

    /// Chooses a back end for a new request by its [`choice_key`](Self::choice_key), among those
    /// that `may_have` it and have headroom for it, if it demands any.
    pub(crate) fn choose(
        &mut self,
        now: Timestamp,
        pool: u16,
        key: u64,
        demand: Option<Demand>,
        may_have: impl Fn(usize, &Backend) -> bool,
    ) -> Result<Chosen, Unassigned> {
        let picker = self.picker_mut(pool);
        let (index, call) = match demand {
            Some(demand) => {
                let Assigned { index, call } = picker.assign(now, key, demand, may_have)?;
                (index, call)
            }
            None => (picker.pick_where(now, key, may_have).ok_or(Unassigned::Down)?, None),
        };
        Ok(Chosen { member: Member { pool, backend: index as u16 }, key, call })
    }

    /// A pool, and those that stand in for it, in their order.
    pub(crate) fn and_backups(&self, pool: u16) -> impl Iterator<Item = u16> {
        let next = |&pool: &u16| self.pool_settings(pool).backup;
        std::iter::successors(Some(pool), next).take(BACKUPS_MAX)
    }

    /// Chooses a back end for what another back end sends to a pool, or to one that stands in for
    /// it. RFC 3261 §16.11: by the message alone, so that repetitions, CANCEL and ACK get the same
    /// choice.
    pub(crate) fn pick_by_call(
        &self,
        now: Timestamp,
        pool: u16,
        fingerprint: u128,
        from: Member,
    ) -> Result<Member, Instead> {
        let is_up = |&pool: &u16| self.pool_settings(pool).pool.is_up(now);
        let pool = self.and_backups(pool).find(is_up).unwrap_or(pool);
        let not = (from.pool == pool).then(|| usize::from(from.backend));
        self.picker(pool)
            .pick_by_call(now, fingerprint as u64, not)
            .map(|backend| Member { pool, backend: backend as u16 })
            .ok_or_else(|| self.nobody(now, pool, Some(from)))
    }
}

/// Who was chosen for a new request.
pub(crate) struct Chosen {
    pub(crate) member: Member,
    /// What it was chosen by.
    pub(crate) key: u64,
    /// What a call holds of its headroom.
    pub(crate) call: Option<Lease>,
}

/// What a request of this method that begins something asks of its back end.
pub(crate) fn demand_of(method: Method, has_priority: bool) -> Demand {
    match method {
        Method::Invite if has_priority => Demand::Priority,
        Method::Invite => Demand::Call,
        _ => Demand::Single,
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
