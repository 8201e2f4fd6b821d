//! The policies, and the picker that runs one of them for a shard.

mod hash;
mod least;
mod rr;

use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::group::front;
use crate::{Backend, Lease, Pool, Work};

/// How the back end of a new call is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// In turn, in proportion to the weights.
    Rr,
    /// By the Call-ID, so that every balancer makes the same choice.
    Hash,
    /// The fewest calls (003 §IV, call-join-shortest-queue).
    Cjsq,
    /// The least work in open transactions, an INVITE weighing 1.75 of a BYE
    /// (003 §IV, transaction-least-work-left).
    Tlwl,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rr, Self::Hash, Self::Cjsq, Self::Tlwl];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rr => "rr",
            Self::Hash => "hash",
            Self::Cjsq => "cjsq",
            Self::Tlwl => "tlwl",
        }
    }
}

/// One shard's chooser over a pool.
#[derive(Debug)]
pub struct Picker {
    pool: Pool,
    policy: Policy,
    hash: hash::Hash,
    state: State,
}

#[derive(Debug)]
enum State {
    Rr(rr::Rr),
    Hash,
    Cjsq(least::Least),
    Tlwl(least::Least),
}

impl Picker {
    /// A chooser by `policy` over `pool`.
    pub fn new(pool: Pool, policy: Policy) -> Self {
        let state = match policy {
            Policy::Rr => State::Rr(rr::Rr::new(pool.backends().len())),
            Policy::Hash => State::Hash,
            Policy::Cjsq => State::Cjsq(least::Least::default()),
            Policy::Tlwl => State::Tlwl(least::Least::default()),
        };
        Self { hash: hash::Hash::new(pool.backends()), pool, policy, state }
    }

    /// How it chooses.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The pool it chooses from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Chooses the back end of a new call and counts it as assigned.
    ///
    /// `call` is a hash of the Call-ID; `not` is a back end to pass over (it has
    /// just failed this call). Back ends that are down are passed over; `None`
    /// when no other is left.
    pub fn pick(&mut self, now: Timestamp, call: u64, not: Option<usize>) -> Option<usize> {
        self.pick_where(now, call, |i, _| Some(i) != not)
    }

    /// As [`pick`](Self::pick), among those that `may_have` it, by index and back end.
    pub fn pick_where(
        &mut self,
        now: Timestamp,
        call: u64,
        may_have: impl Fn(usize, &Backend) -> bool,
    ) -> Option<usize> {
        let backends = self.pool.backends();
        let usable = |i: usize| may_have(i, &backends[i]) && backends[i].is_up(now);
        let group = front(backends, usable)?;
        let usable = |i: usize| backends[i].priority() == group && usable(i);
        let picked = match &mut self.state {
            State::Rr(rr) => rr.pick(now, backends, usable),
            State::Hash => self.hash.pick(now, backends, call, usable),
            State::Cjsq(least) => least.pick(now, backends, Backend::calls, usable),
            State::Tlwl(least) => least.pick(now, backends, Backend::work, usable),
        }?;
        backends[picked].note_assigned();
        Some(picked)
    }

    /// Chooses by the hash of the Call-ID alone, whatever the policy, and counts
    /// nothing: the same call gets the same back end while none goes up or down.
    pub fn pick_by_call(&self, now: Timestamp, call: u64, not: Option<usize>) -> Option<usize> {
        let backends = self.pool.backends();
        let usable = |i: usize| Some(i) != not && backends[i].is_up(now);
        let group = front(backends, usable)?;
        self.hash.pick(now, backends, call, |i| backends[i].priority() == group && usable(i))
    }

    /// The back end at `index` (as [`pick`](Self::pick) gave it).
    pub fn backend(&self, index: usize) -> &Arc<Backend> {
        &self.pool.backends()[index]
    }

    /// Counts a call on the back end at `index` while the lease lives.
    pub fn call_lease(&self, index: usize) -> Lease {
        Lease::call(self.backend(index))
    }

    /// Counts a transaction on the back end at `index` while the lease lives.
    pub fn transaction_lease(&self, index: usize, work: Work) -> Lease {
        Lease::transaction(self.backend(index), work)
    }
}

#[cfg(test)]
mod tests;
