//! The policies that select a back end, one file for each. Each file opens with a description of
//! the policy: its signal, choice, weights, ties, cold start, known bias and source.

pub(crate) mod cjsq;
pub(crate) mod fnv;
pub(crate) mod hash;
pub(crate) mod hash_to;
mod least;
pub(crate) mod p2c;
pub(crate) mod peak_ewma;
pub(crate) mod rendezvous;
pub(crate) mod rr;
pub(crate) mod rwma;
mod sample;
mod score;
pub(crate) mod tjsq;
pub(crate) mod tlwl;

use std::fmt::Debug;
use std::sync::Arc;

use tidegate_world::{Kind, Stream, Timestamp, unit_enum};

use crate::Backend;

/// The marker type of registry entries for policies.
#[derive(Debug)]
pub enum Policies {}

impl Kind for Policies {
    const WORD: &'static str = "policy";
    type Build = Build;
}

/// The fields that only a registry entry for a policy has.
pub struct Build {
    /// The policy that the entry describes.
    pub policy: Policy,
    /// The part of the request by which the policy selects.
    pub key: Key,
    /// The function that creates the policy for the given back ends from checked values.
    pub(crate) over: fn(&Values, &[Arc<Backend>]) -> Box<dyn Choose>,
}

/// The name, documentation and parameters of a policy.
pub type Entry = tidegate_world::param::Entry<Policies>;

/// A policy with the values of its parameters, each within its bounds.
pub type Values = tidegate_world::Values<Policies>;

unit_enum! {
    /// A policy for selecting the back end of a new call. The [`entry`](Self::entry) of a policy
    /// describes it. The variants have the same order as the [registry](crate::registry::POLICIES).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "each is documented by its entry in the registry")]
    pub enum Policy {
        Rr,
        Hash,
        Fnv,
        Cjsq,
        Tjsq,
        Tlwl,
        HashTo,
        Rwma,
        P2c,
        PeakEwma,
        Rendezvous,
    }
}

/// The part of a request by which a policy selects. The caller passes it as the key of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A keyed hash of the Call-ID. It is also used for policies that need no key.
    Call,
    /// The [FNV-1a](crate::fnv1a) hash of the Call-ID.
    CallId,
    /// A keyed hash of the called user and host.
    Callee,
}

/// The state of a policy in one shard, which selects the back end of each call.
pub(crate) trait Choose: Debug + Send {
    /// Returns the back end of a new call, or `None` if no back end is usable.
    fn choose(&mut self, among: &Candidates<'_>, draws: &mut Stream) -> Option<usize>;
}

/// The back ends from which a policy selects.
pub(crate) struct Candidates<'a> {
    pub(crate) now: Timestamp,
    pub(crate) backends: &'a [Arc<Backend>],
    /// The key of the call, made from the part of the request that the policy's [`Key`] names.
    pub(crate) key: u64,
    pub(crate) is_usable: &'a dyn Fn(usize) -> bool,
    /// The priority of all usable back ends.
    pub(crate) priority: u32,
}

impl Candidates<'_> {
    /// Returns the indices of the back ends that may get the call.
    fn usable(&self) -> impl Iterator<Item = usize> {
        (0..self.backends.len()).filter(|&i| (self.is_usable)(i))
    }

    /// Returns the effective weight of the back end at index `i`, in thousandths.
    fn weight(&self, i: usize) -> u64 {
        self.backends[i].effective_weight(self.now)
    }
}

#[cfg(test)]
mod tests;
