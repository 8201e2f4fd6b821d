//! Selects the back end with the least load in relation to its weight.
//!
//! Back ends with equal load take turns: the scan starts after the back end that was selected last.
//! Otherwise the first back end would get every call that arrives while all are idle.

use super::Candidates;

#[derive(Debug, Default)]
pub(super) struct Least {
    start: usize,
}

impl Least {
    pub(super) fn pick(
        &mut self,
        among: &Candidates<'_>,
        load: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        let n = among.backends.len();
        let begin = self.start.min(n);
        // Index, load, weight.
        let mut best: Option<(usize, u64, u64)> = None;
        for i in (begin..n).chain(0..begin) {
            let (load_i, weight_i) = (load(i), among.weight(i));
            let is_less = best.is_none_or(|(_, load_b, weight_b)| {
                if weight_i == weight_b {
                    return load_i < load_b;
                }
                // load_i / weight_i < load_b / weight_b, without division.
                u128::from(load_i) * u128::from(weight_b)
                    < u128::from(load_b) * u128::from(weight_i)
            });
            // This check is last, because it costs most and few candidates get this far.
            if is_less && (among.is_usable)(i) {
                best = Some((i, load_i, weight_i));
            }
        }
        let (picked, ..) = best?;
        // Start behind the selected back end, not one past the previous start, so that equal back
        // ends take turns evenly even while others are busy.
        self.start = picked + 1;
        Some(picked)
    }
}
