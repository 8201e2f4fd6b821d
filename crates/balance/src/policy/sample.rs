//! Draws a few back ends, each in proportion to its weight, at a cost that does not grow with the
//! size of the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_world::Stream;

use super::Candidates;
use crate::Backend;

/// Maximum number of draws for one choice. A draw fails if the back end is unusable or already
/// drawn. If all draws for the first choice fail, the back ends are searched in order, from a
/// random one on. If all draws for a later choice fail, no further back end is compared.
const TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Sample {
    /// The back ends, grouped by priority. A selection draws from one group only.
    groups: BTreeMap<u32, Group>,
}

/// The back ends of one priority.
#[derive(Debug, Default)]
struct Group {
    /// Indices of the back ends.
    members: Vec<usize>,
    /// For each back end in `members`, the sum of its configured weight and of the weights of all
    /// back ends before it.
    ends: Vec<u64>,
}

impl Sample {
    pub(super) fn new(backends: &[Arc<Backend>]) -> Self {
        let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
        for (i, backend) in backends.iter().enumerate() {
            let group = groups.entry(backend.priority()).or_default();
            let before = group.ends.last().copied().unwrap_or_default();
            group.members.push(i);
            group.ends.push(before + u64::from(backend.weight()));
        }
        Self { groups }
    }

    /// Draws up to `choices` different usable back ends, and returns the one with the lowest
    /// `cost`. If costs are equal, returns the one drawn first.
    pub(super) fn best(
        &self,
        among: &Candidates<'_>,
        draws: &mut Stream,
        choices: usize,
        cost: impl Fn(usize) -> f64,
    ) -> Option<usize> {
        // Another shard may have changed a priority while this sample was made.
        let Some(group) = self.groups.get(&among.priority) else { return among.usable().next() };
        let first = group.draw(among, draws, |_| false).or_else(|| group.seek(among, draws));
        let first = first.or_else(|| among.usable().next())?;
        let mut drawn = [first; CHOICES_MAX];
        let mut best = (first, cost(first));
        for k in 1..choices.min(CHOICES_MAX) {
            let was_drawn = |i: usize| drawn[..k].contains(&i);
            // There may be no other usable back end.
            let Some(next) = group.draw(among, draws, was_drawn) else { break };
            drawn[k] = next;
            let next = (next, cost(next));
            if next.1 < best.1 {
                best = next;
            }
        }
        Some(best.0)
    }
}

impl Group {
    fn draw(
        &self,
        among: &Candidates<'_>,
        draws: &mut Stream,
        was_drawn: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let total = *self.ends.last()?;
        (0..TRIES).find_map(|_| {
            let at = draws.below(total);
            let i = self.members[self.ends.partition_point(|&end| end <= at)];
            let full = u64::from(among.backends[i].weight()) * 1000;
            let weight = among.weight(i);
            // A back end in slow start is drawn less often, by its effective weight.
            let is_taken = weight >= full || draws.below(full) < weight;
            (is_taken && !was_drawn(i) && (among.is_usable)(i)).then_some(i)
        })
    }

    /// Returns the first usable back end of the group from a random index on, or `None` if none is
    /// usable.
    fn seek(&self, among: &Candidates<'_>, draws: &mut Stream) -> Option<usize> {
        let start = draws.below(self.members.len() as u64) as usize;
        let (before, after) = self.members.split_at(start);
        after.iter().chain(before).copied().find(|&i| (among.is_usable)(i))
    }
}

/// Maximum number of back ends that one selection compares.
pub(super) const CHOICES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_world::{Purpose, Seed, Timestamp};

    use crate::{Picker, Policy, Pool, Work};

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

    #[test]
    fn p2c_compares_back_ends_of_one_priority_however_many_backups_there_are() {
        let backend = |port: u16| ("b", ([127, 0, 0, 1], port).into(), 1);
        let draws = Seed(1).stream(Purpose::Balance, 0);
        let shared = Pool::new("app", &(1..=22).map(backend).collect::<Vec<_>>());
        shared.backends()[2..].iter().for_each(|backup| backup.set_priority(1));
        let mut picker = Picker::new(shared.clone(), Policy::P2c, draws);
        let _open = picker.transaction_lease(NOW, 0, Work::CallStart);
        let mut picked =
            || (0..400).filter_map(|c| picker.pick(NOW, c, None)).collect::<Vec<usize>>();
        assert_eq!(picked(), [1; 400]);
        shared.backends()[..2].iter().for_each(|b| b.on_failed(NOW, Duration::from_secs(5)));
        let backups = picked();
        assert!((2..22).all(|i| backups.contains(&i)));
    }
}
