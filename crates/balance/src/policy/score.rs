//! Weighted rendezvous hashing: each back end gets a score, computed from a key and the address of
//! the back end.
//!
//! The score is −w / ln u. Here w is the weight of the back end, and u is a uniform number between 0
//! and 1 from the hash of key and address. The highest score wins, and each back end wins in
//! proportion to its weight (Thaler, Ravishankar: A Name-Based Mapping Scheme for Rendezvous, 1996;
//! the weights: Schindelhauer, Schomaker 2005). If a back end is removed, only its own keys move.
//! If a weight changes, as few keys as possible move. Balancers with the same back ends make the
//! same choice for a key without communication.

use std::sync::Arc;

use super::Candidates;
use crate::Backend;
use crate::hashing::{fnv1a, mix, unit};

#[derive(Debug)]
pub(super) struct Scores {
    /// For each back end, a hash of its endpoint, which is mixed with the key of a call.
    salts: Box<[u64]>,
}

impl Scores {
    pub(super) fn new(backends: &[Arc<Backend>]) -> Self {
        Self {
            salts: backends.iter().map(|b| fnv1a(b.endpoint().to_string().as_bytes())).collect(),
        }
    }

    /// Returns the back end with the highest score for the key, among those for which `may_win`
    /// returns true. The score depends on the `weight` of the back end.
    pub(super) fn highest(
        &self,
        among: &Candidates<'_>,
        weight: impl Fn(usize) -> u64,
        may_win: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        // Index, hash, weight.
        let mut best: Option<(usize, u64, u64)> = None;
        for i in 0..self.salts.len() {
            let (hash, weight) = (mix(among.key ^ self.salts[i]), weight(i));
            let is_higher = best.is_none_or(|(_, hash_b, weight_b)| {
                if weight == weight_b {
                    // With equal weights the score grows with the hash, so two logarithms are
                    // saved.
                    return hash > hash_b;
                }
                let score = |hash: u64, weight: u64| -(weight as f64) / unit(hash).ln();
                score(hash, weight) > score(hash_b, weight_b)
            });
            // This check is last, because it costs most and few candidates get this far.
            if is_higher && (among.is_usable)(i) && may_win(i) {
                best = Some((i, hash, weight));
            }
        }
        best.map(|(i, ..)| i)
    }
}
