//! Groups of back ends with the same priority. A group is a backup for the groups with lower
//! priority numbers.
//!
//! Calls go to the group with the lowest number that has an available back end. A group is used
//! when all back ends of the groups with lower numbers are down, draining, busy or full, or have
//! already been tried.

use std::sync::Arc;

use crate::Backend;

/// The groups of a pool: the priority that each back end had when the groups were created.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    priorities: Box<[u32]>,
    are_several: bool,
}

impl Groups {
    pub(crate) fn of(backends: &[Arc<Backend>]) -> Self {
        let priorities: Box<[u32]> = backends.iter().map(|backend| backend.priority()).collect();
        let are_several = priorities.windows(2).any(|pair| pair[0] != pair[1]);
        Self { priorities, are_several }
    }

    /// Returns the priority of the group to use: the lowest number for which a back end is
    /// `usable`. Returns `None` if there is none. With a single group, `usable` is not called.
    pub(crate) fn front(&self, usable: impl Fn(usize) -> bool) -> Option<u32> {
        if !self.are_several {
            return self.priorities.first().copied();
        }
        let usable = self.priorities.iter().enumerate().filter(|(i, _)| usable(*i));
        usable.map(|(_, priority)| *priority).min()
    }

    /// Returns whether the back end at `i` belongs to the group with that priority.
    pub(crate) fn holds(&self, priority: u32, i: usize) -> bool {
        self.priorities[i] == priority
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_world::{Purpose, Seed, Timestamp};

    use crate::{Demand, Picker, Policy, Pool};

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);
    const PAUSE: Duration = Duration::from_secs(5);

    fn picked(picker: &mut Picker, may_have: impl Fn(usize) -> bool + Copy) -> Vec<usize> {
        let key = |c: u64| c.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pick = |c| {
            let assigned = picker.assign(NOW, key(c), Demand::Single, |i, _| may_have(i));
            assigned.ok().map(|assigned| assigned.index)
        };
        let mut picked: Vec<_> = (0..64).filter_map(pick).collect();
        picked.sort_unstable();
        picked.dedup();
        picked
    }

    #[test]
    fn each_may_be_a_group_of_its_own() {
        let backends = ["a", "b"].map(|name| (name, ([127, 0, 0, 1], 5070).into(), 1));
        let pool = Pool::new("app", &backends);
        pool.backends()[1].set_priority(1);
        let draws = Seed(1).stream(Purpose::Balance, 0);
        let mut picker = Picker::new(pool.clone(), Policy::Rr, draws);
        assert_eq!(picked(&mut picker, |_| true), [0]);
        pool.backends()[0].on_failed(NOW, PAUSE);
        assert_eq!(picked(&mut picker, |_| true), [1]);
    }

    #[test]
    fn a_group_is_used_when_no_better_one_is_available() {
        let address = |port| ([127, 0, 0, 1], port).into();
        let backends =
            ["a", "b", "c", "d"].map(|name| (name, address(u16::from(name.as_bytes()[0])), 1));
        for policy in Policy::ALL {
            let pool = Pool::new("app", &backends);
            for (backend, priority) in pool.backends().iter().zip([7, 0, 0, 3]) {
                backend.set_priority(priority);
            }
            let mut picker = Picker::new(pool.clone(), policy, Seed(1).stream(Purpose::Balance, 0));
            assert_eq!(picked(&mut picker, |_| true), [1, 2], "{policy:?}");
            assert!(matches!(picker.pick_by_call(NOW, 5, None), Some(1 | 2)));
            pool.backends()[1].on_failed(NOW, PAUSE);
            assert_eq!(picked(&mut picker, |_| true), [2], "{policy:?}");
            // A back end that was tried counts as unavailable.
            assert_eq!(picked(&mut picker, |i| i != 2), [3], "{policy:?}");
            pool.backends()[2].on_failed(NOW, PAUSE);
            assert_eq!(picked(&mut picker, |_| true), [3], "{policy:?}");
            assert_eq!(picker.pick_by_call(NOW, 5, None), Some(3));
            pool.backends()[3].on_failed(NOW, PAUSE);
            assert_eq!(picked(&mut picker, |_| true), [0], "{policy:?}");
            pool.backends()[0].on_failed(NOW, PAUSE);
            assert_eq!(picked(&mut picker, |_| true), [0; 0], "{policy:?}");
        }
    }
}
