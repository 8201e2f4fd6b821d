//! Draws a few back ends, each in proportion to its weight, at a cost that does not grow with their
//! number.

use std::sync::Arc;

use tidegate_world::Stream;

use super::Candidates;
use crate::Backend;

/// Maximum number of draws that may hit unusable or already drawn back ends. After that, the back
/// ends are searched in order.
const TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Sample {
    /// For each back end, the sum of the configured weights of all back ends up to this one,
    /// including its own.
    ends: Box<[u64]>,
}

impl Sample {
    pub(super) fn new(backends: &[Arc<Backend>]) -> Self {
        let ends = backends.iter().scan(0, |end, backend| {
            *end += u64::from(backend.weight());
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    /// Draws `choices` different usable back ends, and returns the one with the lowest `cost`. If
    /// costs are equal, returns the one drawn first.
    pub(super) fn best(
        &self,
        among: &Candidates<'_>,
        draws: &mut Stream,
        choices: usize,
        cost: impl Fn(usize) -> f64,
    ) -> Option<usize> {
        let first = self.draw(among, draws, |_| false).or_else(|| self.seek(among, draws))?;
        let mut drawn = [first; CHOICES_MAX];
        let mut best = (first, cost(first));
        for k in 1..choices.min(CHOICES_MAX) {
            let was_drawn = |i: usize| drawn[..k].contains(&i);
            // There may be no other usable back end.
            let Some(next) = self.draw(among, draws, was_drawn) else { break };
            drawn[k] = next;
            let next = (next, cost(next));
            if next.1 < best.1 {
                best = next;
            }
        }
        Some(best.0)
    }

    fn draw(
        &self,
        among: &Candidates<'_>,
        draws: &mut Stream,
        was_drawn: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let total = *self.ends.last()?;
        (0..TRIES).find_map(|_| {
            let at = draws.below(total);
            let i = self.ends.partition_point(|&end| end <= at);
            let full = u64::from(among.backends[i].weight()) * 1000;
            let weight = among.weight(i);
            // A back end in slow start is drawn less often, by its effective weight.
            let is_taken = weight >= full || draws.below(full) < weight;
            (is_taken && !was_drawn(i) && (among.is_usable)(i)).then_some(i)
        })
    }

    /// Returns the first usable back end from a random index on, or `None` if no back end is
    /// usable.
    fn seek(&self, among: &Candidates<'_>, draws: &mut Stream) -> Option<usize> {
        let n = self.ends.len();
        let start = draws.below(n as u64) as usize;
        (start..n).chain(0..start).find(|&i| (among.is_usable)(i))
    }
}

/// Maximum number of back ends that are compared.
pub(super) const CHOICES_MAX: usize = 16;
