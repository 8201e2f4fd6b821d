//! Selection by the remainder of the FNV-1a hash of the Call-ID, as in paper 003.
//!
//! - Signal: none.
//! - Choice: the back end to which the hash modulo the sum of the configured weights belongs.
//! - Weights: each back end owns as many of the remainders as its weight.
//! - Ties: none.
//! - Cold start: none. If a back end is down, the next one that is up gets its calls.
//! - Known bias: the policy ignores the load. The hash is not keyed, so a peer that chooses
//!   Call-IDs also chooses the back ends. A change of the configuration moves nearly every call to
//!   another back end. If a back end fails, its neighbour gets its whole load. Slow starts do not
//!   apply, because a change of the sum of weights would move every call. The policy exists for
//!   comparison. Use `hash`.
//!
//! Source: paper 003 §VI.a (FNV Hash).

use tidegate_world::Stream;

use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "fnv",
    summary: "selects by the FNV-1a hash of the Call-ID, modulo the sum of the weights",
    source: "paper 003 §VI.a",
    doc: "The hash has no key, so a caller that chooses its Call-IDs chooses its back end. If a \
          back end is down, its calls go to the next back end of the pool that is up. Use this \
          policy only for comparisons. Otherwise use `hash`.",
    params: &[],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::Fnv,
        key: Key::CallId,
        over: |_, backends| {
            let ends = backends.iter().scan(0, |end, backend| {
                *end += u64::from(backend.weight());
                Some(*end)
            });
            Box::new(Fnv { ends: ends.collect() })
        },
    },
};

#[derive(Debug)]
struct Fnv {
    /// For each back end, the first remainder that no longer belongs to it.
    ends: Box<[u64]>,
}

impl Choose for Fnv {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        let remainder = among.key % self.ends.last()?;
        let first = self.ends.partition_point(|&end| end <= remainder);
        let n = self.ends.len();
        (first..n).chain(0..first).find(|&i| (among.is_usable)(i))
    }
}
