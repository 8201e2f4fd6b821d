//! The picker: applies a policy to a pool in one shard.

use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::group::Groups;
use crate::headroom::Acquired;
use crate::policy::{Candidates, Choose, hash, peak_ewma, tlwl};
use crate::registry::Values;
use crate::response_time::Watch;
use crate::{Backend, CallLease, Demand, Key, Policy, Pool, RetryBudget, TransactionLease, Work};

/// Maximum number of attempts to assign a request. An attempt fails if another shard takes the last
/// headroom of the selected back end.
const TRIES: usize = 8;

/// A back end that was assigned to a request, with the lease of the call.
#[derive(Debug)]
#[must_use = "a call is no longer counted when its lease is dropped"]
pub struct Assignment {
    /// The index of the back end in the pool.
    pub index: usize,
    /// The lease of the call, or `None` for a request outside any call.
    pub lease: Option<CallLease>,
}

/// The reason why no back end was assigned to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBackend {
    /// No back end that the caller permits is up.
    Down,
    /// All back ends that are up and that the caller permits lack headroom.
    Full,
}

/// A selector of back ends from a pool, for one shard.
#[derive(Debug)]
pub struct Picker {
    pool: Pool,
    values: Values,
    /// The configured weight of each back end when the policy was created.
    shares: Box<[u32]>,
    groups: Groups,
    key: Key,
    policy: Box<dyn Choose>,
    hash: hash::Hash,
    weights: tlwl::Weights,
    watch: Watch,
    retries: RetryBudget,
    draws: Stream,
}

impl Picker {
    /// Creates a picker that selects from `pool` by `policy`. The picker draws random numbers from
    /// `draws`, a stream of its own ([`Purpose::Balance`](tidegate_world::Purpose::Balance)).
    pub fn new(pool: Pool, policy: impl Into<Values>, draws: Stream) -> Self {
        let values = policy.into();
        let entry = values.entry();
        let weights = match entry.build.policy {
            Policy::Tlwl => tlwl::Weights::of(&values),
            _ => tlwl::Weights::default(),
        };
        let decay = match entry.build.policy {
            Policy::PeakEwma => peak_ewma::decay(&values),
            _ => Duration::from_secs(10),
        };
        Self {
            shares: pool.backends().iter().map(|backend| backend.weight()).collect(),
            groups: Groups::of(pool.backends()),
            values,
            key: entry.build.key,
            policy: (entry.build.over)(&values, pool.backends()),
            hash: hash::Hash::new(pool.backends()),
            watch: Watch { decay, learns: weights.learns },
            weights,
            retries: RetryBudget::default(),
            pool,
            draws,
        }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns whether the picker already selects by `policy` from the same back ends in the same
    /// order, with their current weights and priorities.
    pub fn serves(&self, policy: impl Into<Values>, pool: &Pool) -> bool {
        let (own, others) = (self.pool.backends(), pool.backends());
        self.values == policy.into()
            && own.len() == others.len()
            && own.iter().zip(others).all(|(a, b)| Arc::ptr_eq(a, b))
            && others.iter().map(|backend| backend.weight()).eq(self.shares.iter().copied())
            && self.groups == Groups::of(others)
    }

    /// Returns the budget for further retries of rejected requests.
    pub fn retries(&mut self) -> &mut RetryBudget {
        &mut self.retries
    }

    /// Returns the part of a request by which the policy selects.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Selects the back end of a new call, and counts the call as assigned there.
    ///
    /// `key` is the part of the request that [`key`](Self::key) names. `not` is a back end to skip,
    /// for example because this call has just failed there. Back ends that are down are skipped
    /// too. Returns `None` if no back end is left.
    pub fn pick(&mut self, now: Timestamp, key: u64, not: Option<usize>) -> Option<usize> {
        let picked = self.choose(now, key, |i, _| Some(i) != not)?;
        self.backend(picked).record_assigned(now);
        Some(picked)
    }

    /// Selects like [`pick`](Self::pick), but only back ends for which `may_have` returns true and
    /// whose limits allow the `demand`, and counts the request against these limits. `may_have` gets
    /// the index and the back end.
    ///
    /// # Errors
    /// Returns an error if no permitted back end is up and has headroom.
    pub fn assign(
        &mut self,
        now: Timestamp,
        key: u64,
        demand: Demand,
        may_have: impl Fn(usize, &Backend) -> bool,
    ) -> Result<Assignment, NoBackend> {
        let assigned = self.assign_admitted(now, key, Some(demand), may_have, |_| Ok(()));
        assigned.map(|(assignment, ())| assignment)
    }

    /// Selects like [`assign`](Self::assign), but without limits if `demand` is `None`, and lets
    /// `admit` reject the request. `admit` is called with the index of the selected back end before
    /// anything is counted, so a request that it rejects changes no count. If another shard takes
    /// the headroom of that back end in the meantime, another back end is selected and `admit` is
    /// called again.
    ///
    /// # Errors
    /// Returns an error if no permitted back end is up and has headroom, or the error of `admit`.
    pub fn assign_admitted<A, E: From<NoBackend>>(
        &mut self,
        now: Timestamp,
        key: u64,
        demand: Option<Demand>,
        may_have: impl Fn(usize, &Backend) -> bool,
        mut admit: impl FnMut(usize) -> Result<A, E>,
    ) -> Result<(Assignment, A), E> {
        let has_headroom = |i: usize, backend: &Backend| {
            may_have(i, backend) && demand.is_none_or(|demand| backend.has_headroom(now, demand))
        };
        for _ in 0..TRIES {
            let Some(index) = self.choose(now, key, has_headroom) else { break };
            let admission = admit(index)?;
            let backend = self.backend(index);
            let acquired = match demand {
                Some(demand) => backend.try_acquire(now, demand),
                None => Some(Acquired(None)),
            };
            if let Some(Acquired(lease)) = acquired {
                backend.record_assigned(now);
                return Ok((Assignment { index, lease }, admission));
            }
        }
        let mut backends = self.pool.backends().iter().enumerate();
        let is_any_up = backends.any(|(i, backend)| backend.is_up(now) && may_have(i, backend));
        Err(E::from(if is_any_up { NoBackend::Full } else { NoBackend::Down }))
    }

    /// Counts a request against the limits of the back end at `index`, to which the request was
    /// already assigned. Does not count the request as assigned again. `admit` is called first and
    /// may reject the request.
    ///
    /// # Errors
    /// Returns an error if the back end is not up, or has no headroom, or the error of `admit`.
    pub fn assign_to<A, E: From<NoBackend>>(
        &self,
        now: Timestamp,
        index: usize,
        demand: Demand,
        admit: impl FnOnce() -> Result<A, E>,
    ) -> Result<(Assignment, A), E> {
        let backend = self.backend(index);
        if !backend.is_up(now) {
            return Err(E::from(NoBackend::Down));
        }
        if !backend.has_headroom(now, demand) {
            return Err(E::from(NoBackend::Full));
        }
        let admission = admit()?;
        let Acquired(lease) = backend.try_acquire(now, demand).ok_or(NoBackend::Full)?;
        Ok((Assignment { index, lease }, admission))
    }

    fn choose(
        &mut self,
        now: Timestamp,
        key: u64,
        may_have: impl Fn(usize, &Backend) -> bool,
    ) -> Option<usize> {
        let backends = self.pool.backends();
        let is_usable = |i: usize| backends[i].is_up(now) && may_have(i, &backends[i]);
        let (groups, front) = (&self.groups, self.groups.front(is_usable)?);
        let is_usable = |i: usize| groups.holds(front, i) && is_usable(i);
        let among = Candidates { now, backends, key, is_usable: &is_usable, priority: front };
        self.policy.choose(&among, &mut self.draws)
    }

    /// Selects only by the keyed hash of the Call-ID, whatever the policy is, and counts nothing. A
    /// call gets the same back end each time, as long as no back end goes up or down.
    pub fn pick_by_call(&self, now: Timestamp, call: u64, not: Option<usize>) -> Option<usize> {
        let backends = self.pool.backends();
        let is_usable = |i: usize| Some(i) != not && backends[i].is_up(now);
        let (groups, front) = (&self.groups, self.groups.front(is_usable)?);
        let is_usable = |i: usize| groups.holds(front, i) && is_usable(i);
        let among = Candidates { now, backends, key: call, is_usable: &is_usable, priority: front };
        self.hash.pick_by_configured_weight(&among)
    }

    /// Selects like [`pick`](Self::pick), but counts nothing. Returns `None` unless the policy is
    /// `hash` or `hash-to`, or the pool has a single back end. With other policies, the selection
    /// can depend on more than the key and the back ends that are up.
    pub fn pick_by_key(&mut self, now: Timestamp, key: u64) -> Option<usize> {
        let is_by_key = self.pool.backends().len() == 1
            || matches!(self.values.entry().build.policy, Policy::Hash | Policy::HashTo);
        if is_by_key { self.choose(now, key, |_, _| true) } else { None }
    }

    /// Returns the back end at `index` (as returned by [`pick`](Self::pick)).
    pub fn backend(&self, index: usize) -> &Arc<Backend> {
        &self.pool.backends()[index]
    }

    /// Counts a call at the back end at `index` until the lease is dropped.
    pub fn call_lease(&self, index: usize) -> CallLease {
        CallLease::new(self.backend(index))
    }

    /// Counts a transaction at the back end at `index` until the lease is dropped. The response
    /// time of the transaction starts at `now`.
    pub fn transaction_lease(&self, now: Timestamp, index: usize, kind: Work) -> TransactionLease {
        let backend = self.backend(index);
        let work = self.weights.weight(backend, kind);
        TransactionLease::new(backend, now, kind, work, self.watch)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

    #[test]
    fn a_call_keeps_its_back_end_while_the_weight_of_another_grows() {
        let backend = |port: u16| ("b", ([127, 0, 0, 1], port).into(), 1);
        let draws = Seed(1).stream(Purpose::Balance, 0);
        let shared = Pool::new("app", &[1, 2, 3].map(backend));
        let picker = Picker::new(shared.clone(), Policy::Rr, draws);
        let back = &shared.backends()[0];
        back.set_slow_start(Duration::from_secs(60));
        back.on_failed(NOW, Duration::from_secs(5));
        let key = |call: u64| call.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = |s: u64| NOW + Duration::from_secs(s);
        let picks =
            |s| (0..300).map(|c| picker.pick_by_call(at(s), key(c), None)).collect::<Vec<_>>();
        let first = picks(5);
        assert!(first.contains(&Some(0)));
        assert!([6, 20, 40, 64, 66].into_iter().all(|s| picks(s) == first));
    }

    #[test]
    fn a_back_end_that_has_come_back_gets_its_share_of_the_calls_slowly() {
        let backend = |port: u16| ("b", ([127, 0, 0, 1], port).into(), 1);
        let draws = Seed(1).stream(Purpose::Balance, 0);
        let shared = Pool::new("app", &[1, 2, 3].map(backend));
        let mut picker = Picker::new(shared.clone(), Policy::Rr, draws);
        shared.backends()[0].set_slow_start(Duration::from_secs(10));
        shared.backends()[0].on_failed(NOW, Duration::from_secs(5));
        let mut shares = |s: u64, picks: u64| {
            let mut shares = [0; 3];
            for call in 0..picks {
                shares[picker.pick(NOW + Duration::from_secs(s), call, None).unwrap()] += 1;
            }
            shares
        };
        assert_eq!(shares(5, 2100), [100, 1000, 1000], "a tenth of its weight");
        assert_eq!(shares(10, 2550), [550, 1000, 1000], "after half of the time");
        assert_eq!(shares(15, 3000), [1000; 3]);
    }
}
