//! Round robin: in turn, in proportion to the weights.
//!
//! Signal: none. Smooth weighted round robin: at each pick every usable back end
//! gains its weight, the richest is taken and pays the sum of what was gained. With
//! equal weights it is plain round robin; with 5:1:1 it yields a a b a c a a, never
//! a burst of five. A back end that is down gains nothing, so it is not owed a burst
//! when it returns. Each shard turns its own wheel.
//! Known bias: blind to how long calls last and to how fast the back ends are.

use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::Backend;

#[derive(Debug)]
pub(super) struct Rr {
    credit: Box<[i64]>,
}

impl Rr {
    pub(super) fn new(backends: usize) -> Self {
        Self { credit: vec![0; backends].into() }
    }

    pub(super) fn pick(
        &mut self,
        now: Timestamp,
        backends: &[Arc<Backend>],
        usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut gained = 0;
        let mut richest: Option<usize> = None;
        for (i, backend) in backends.iter().enumerate() {
            if !usable(i) {
                continue;
            }
            let weight = backend.effective_weight(now) as i64;
            self.credit[i] += weight;
            gained += weight;
            if richest.is_none_or(|r| self.credit[i] > self.credit[r]) {
                richest = Some(i);
            }
        }
        self.credit[richest?] -= gained;
        richest
    }
}
