//! The least loaded for its weight: CJSQ by calls, TLWL by weighted transactions.
//!
//! Signal: the counts that leases hold on each back end. CJSQ counts a call from
//! its INVITE to the end of its BYE; TLWL counts each open transaction by its
//! weight (INVITE 1.75, BYE 1), so it sees how fast a back end answers, which a
//! count of long quiet calls hides. Source: 003 §IV.
//! Recovery: none needed, counts are idempotent by transaction and come back with
//! their lease. Cold start: all zero, so the ties decide: the scan begins one
//! further at each pick, or the first back end would get every call that arrives
//! while all are idle.
//! Known bias: a back end that fails fast looks idle and attracts calls.

use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::Backend;

#[derive(Debug, Default)]
pub(super) struct Least {
    start: usize,
}

impl Least {
    pub(super) fn pick(
        &mut self,
        now: Timestamp,
        backends: &[Arc<Backend>],
        load: impl Fn(&Backend) -> u64,
        usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let n = backends.len();
        let mut best: Option<(usize, u64)> = None;
        for i in (0..n).map(|k| (self.start + k) % n) {
            if !usable(i) {
                continue;
            }
            let load_i = load(&backends[i]);
            let less = best.is_none_or(|(b, load_b)| {
                // load_i / weight_i < load_b / weight_b, without division.
                u128::from(load_i) * u128::from(backends[b].effective_weight(now))
                    < u128::from(load_b) * u128::from(backends[i].effective_weight(now))
            });
            if less {
                best = Some((i, load_i));
            }
        }
        let (picked, _) = best?;
        // One past the picked, not one past the old start: among equals the turn
        // then goes round evenly even when others are busy.
        self.start = picked + 1;
        Some(picked)
    }
}
