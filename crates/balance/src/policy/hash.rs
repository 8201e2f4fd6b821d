//! Selection by the Call-ID: weighted rendezvous hashing.
//!
//! - Signal: none.
//! - Choice: the back end with the highest score (`score`) for a keyed hash of the Call-ID. With
//!   `hash % n` as in paper 003, most calls move when a back end is removed. Here only the calls of
//!   the removed back end move. All balancers with the same secret and back ends choose alike.
//! - Weights: each back end wins in proportion to its weight.
//! - Ties: none.
//! - Cold start: none.
//! - Known bias: the policy ignores the load. With few calls the shares are uneven by chance.
//!
//! Source: paper 003 §VI.a (Hash), with rendezvous in place of the remainder.

use std::sync::Arc;

use tidegate_world::Stream;

use super::score::Scores;
use super::{Build, Candidates, Choose, Entry};
use crate::{Backend, Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "hash",
    summary: "selects by the Call-ID: balancers with the same keys and back ends make the same \
              choice",
    source: "paper 003 §VI.a, with weighted rendezvous hashing",
    doc: "When a back end is removed, only its own calls move. The hash is keyed with the secret \
          in `state_dir`, so no caller can aim calls at one back end.",
    params: &[],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::Hash,
        key: Key::Call,
        over: |_, backends| Box::new(Hash::new(backends)),
    },
};

#[derive(Debug)]
pub(crate) struct Hash {
    scores: Scores,
}

impl Hash {
    pub(crate) fn new(backends: &[Arc<Backend>]) -> Self {
        Self { scores: Scores::new(backends) }
    }

    pub(crate) fn pick(&self, among: &Candidates<'_>) -> Option<usize> {
        self.scores.highest(among, |i| among.weight(i), |_| true)
    }

    /// Selects by the configured weights. A back end in slow start gets its whole share, so the
    /// choice does not depend on the time.
    pub(crate) fn pick_by_configured_weight(&self, among: &Candidates<'_>) -> Option<usize> {
        let weight = |i: usize| u64::from(among.backends[i].weight());
        self.scores.highest(among, weight, |_| true)
    }
}

impl Choose for Hash {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        self.pick(among)
    }
}
