//! Selection by the remainder of the FNV-1a hash of the Call-ID, as in 003.
//!
//! Signal: none. Choice: the hash modulo the sum of the configured weights. Weights: each back end
//! has as many remainders as its weight. Ties: none. Cold start: none. A back end that is down
//! hands its calls to the next one that is up. Known bias: blind to load. The hash is not keyed, so
//! a peer that chooses Call-IDs chooses back ends. A change of the configuration moves nearly every
//! call, and a neighbour bears the whole load of one that fails. Slow starts do not apply: a sum of
//! weights that changes would move every call. It is here for comparison; use `hash`.
//!
//! Source: 003 §VI.a (FNV Hash).

use tidegate_world::Stream;

use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "fnv",
    summary: "by the FNV-1a hash of the Call-ID, modulo the number of back ends",
    source: "003 §VI.a",
    doc: "The hash has no key, so a caller that chooses its Call-IDs chooses its back end. If a \
          back end is down, its calls go to the next one. Use this policy only for comparisons. \
          Otherwise use `hash`.",
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
    /// For each back end, the first remainder beyond its own.
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
