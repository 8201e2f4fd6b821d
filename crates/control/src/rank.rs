//! The rank of a piece of work. A law may reject the lowest ranks. A session and its repetitions
//! have the same rank, so that they get the same decision.

use tidegate_world::Stream;

/// Returns the rank, uniform in 0 to 1, of work with this fingerprint, which is a keyed hash. Work
/// without a fingerprint gets a random rank from `draws`.
pub(crate) fn rank(fingerprint: Option<u64>, draws: &mut Stream) -> f64 {
    fingerprint.map_or_else(|| draws.unit(), |hash| (hash >> 11) as f64 / (1u64 << 53) as f64)
}
