//! Headroom: whether those behind could take a new call, asked at the door.
//!
//! Where a request leads is known when it is routed, and there it is refused if nobody there has
//! headroom. But if nobody has any wherever a stranger's call may lead, that is known before it is
//! read, and it is refused like what the law does not admit: at that cost, and by the same gate.

use tidegate_balance::Demand;
use tidegate_control::Headroom;
use tidegate_world::{Flow, Timestamp};

use crate::endpoint::Endpoint;
use crate::origin::Origin;
use crate::settings::{PoolSettings, Rule, RuleTarget, Senders};

/// The pools that the calls of strangers may lead to, each once; none if none of them has limits.
pub(crate) struct Door(Box<[u16]>);

impl Door {
    /// As these rules lead to these pools, and to those that stand in for them.
    pub(crate) fn of(pools: &[PoolSettings], rules: &[Rule]) -> Self {
        let mut reached = vec![false; pools.len()];
        for rule in rules.iter().filter(|rule| rule.from != Senders::Pool) {
            let RuleTarget::Pool(pool) = rule.to else { continue };
            let mut next = Some(pool);
            while let Some(pool) = next.filter(|&pool| !reached[pool]) {
                reached[pool] = true;
                next = pools[pool].backup.map(usize::from);
            }
        }
        let is_limited =
            pools.iter().zip(&reached).any(|(p, reached)| *reached && p.pool.is_limited());
        let reached = (0..).zip(reached).filter(|(_, reached)| *reached && is_limited);
        Self(reached.map(|(pool, _)| pool).collect())
    }
}

impl Endpoint {
    /// For which calls from there is there headroom. While nobody is up there is as much as there
    /// may be: that is no matter of limits.
    pub(crate) fn headroom(&self, now: Timestamp, flow: &Flow) -> Headroom {
        let Door(pools) = self.door();
        let (mut is_any_up, mut left) = (false, Headroom::None);
        for backend in pools.iter().flat_map(|&pool| self.pool_settings(pool).pool.backends()) {
            // In a full pool this is all that is asked of most.
            let is_full = backend.free_calls(Demand::Call) == Some(0);
            if is_full && left == Headroom::Priority || !backend.is_up(now) {
                continue;
            }
            is_any_up = true;
            // The first one has some, nearly always.
            if !is_full && backend.has_headroom(now, Demand::Call) {
                return Headroom::Any;
            }
            if left == Headroom::None && backend.has_headroom(now, Demand::Priority) {
                left = Headroom::Priority;
            }
        }
        if is_any_up && self.is_strangers_call(flow) { left } else { Headroom::Any }
    }

    /// Whether a call from there can lead to pools alone.
    fn is_strangers_call(&self, flow: &Flow) -> bool {
        self.addresses().origin(flow) == Origin::Stranger
    }
}

#[cfg(test)]
mod tests {
    use tidegate_balance::{Limits, Policy, Pool};

    use super::*;

    fn pools(limited: &[bool], backups: &[Option<u16>]) -> Vec<PoolSettings> {
        let pool = |(&is_limited, &backup): (&bool, _)| {
            let pool = Pool::new("p", &[("b", ([127, 0, 0, 1], 5070).into(), 1)]);
            let calls_max = is_limited.then_some(1);
            pool.backends()[0].set_limits(&Limits { calls_max, ..Limits::default() });
            PoolSettings { backup, ..PoolSettings::new(pool, Policy::Rr) }
        };
        limited.iter().zip(backups).map(pool).collect()
    }

    fn rule(from: Senders, to: RuleTarget) -> Rule {
        Rule { from, methods: Vec::new(), domains: Vec::new(), to }
    }

    #[test]
    fn it_leads_to_each_pool_once_and_to_none_where_none_has_limits() {
        let to = |pool| rule(Senders::Any, RuleTarget::Pool(pool));
        let others =
            [rule(Senders::Pool, RuleTarget::Pool(0)), rule(Senders::Any, RuleTarget::RequestUri)];
        let rules = [&[to(3), to(1), to(3)], &others[..]].concat();
        let backups = [None, Some(2), None, Some(2)];
        let of = |limited: [bool; 4]| Door::of(&pools(&limited, &backups), &rules).0;
        assert_eq!(of([true, false, true, false])[..], [1, 2, 3]);
        assert_eq!(of([true, false, false, false])[..], [0; 0]);
        let circle = pools(&[true, false], &[Some(1), Some(0)]);
        assert_eq!(Door::of(&circle, &[to(0)]).0[..], [0, 1]);
    }
}
