//! Ranks of new work. A law may reject the work with the lowest ranks. A retransmission has the
//! same rank as the original request, so both get the same decision.

use tidegate_world::Stream;

/// Returns the rank of work with this fingerprint, which is a keyed hash. Ranks are uniformly
/// distributed from 0 to 1. Work without a fingerprint gets a random rank from `draws`.
pub(crate) fn rank(fingerprint: Option<u64>, draws: &mut Stream) -> f64 {
    fingerprint.map_or_else(|| draws.unit(), |hash| (hash >> 11) as f64 / (1u64 << 53) as f64)
}
