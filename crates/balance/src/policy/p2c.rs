//! The power of two choices: draws two back ends at random, and selects the one with fewer open
//! transactions, relative to its weight.
//!
//! - Signal: the open transactions that leases count.
//! - Choice: `choices` different back ends are drawn, each in proportion to its weight, and the one
//!   with the least load is taken. With n back ends and n calls, the back end with the most calls
//!   has about ln ln n / ln 2 calls. If only one back end were drawn, the maximum would be about ln
//!   n / ln ln n. The cost does not depend on the number of back ends. Balancers or shards that do
//!   not see each other's counts do not all choose the same back end.
//! - Ties: the one drawn first, so the calls to an idle pool are spread at random.
//! - Cold start: none.
//! - Known bias: at light load the shares are uneven by chance. A back end that fails fast looks
//!   idle and attracts calls, but only calls for which it is drawn.
//!
//! Source: Mitzenmacher: The Power of Two Choices in Randomized Load Balancing, IEEE TPDS 12(10),
//! 2001; as `random two least_conn` in nginx and `LEAST_REQUEST` in Envoy.

use tidegate_world::{Param, Stream};

use super::sample::{CHOICES_MAX, Sample};
use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(super) static CHOICES: Param = Param::whole("choices", "back ends", 2.0, 1, CHOICES_MAX as u32)
    .doc("The number of back ends that are drawn at random and compared.");

pub(crate) static ENTRY: Entry = Entry {
    name: "p2c",
    summary: "draws two back ends at random and selects the one with fewer open transactions, \
              relative to its weight",
    source: "Mitzenmacher 2001",
    doc: "Each back end is drawn with a probability in proportion to its weight. The cost does not \
          depend on the number of back ends, and several balancers in front of one pool do not all \
          choose the same back end.",
    params: &[&CHOICES],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::P2c,
        key: Key::Call,
        over: |values, backends| {
            Box::new(P2c { sample: Sample::new(backends), choices: values.of(&CHOICES) as usize })
        },
    },
};

#[derive(Debug)]
struct P2c {
    sample: Sample,
    choices: usize,
}

impl Choose for P2c {
    fn choose(&mut self, among: &Candidates<'_>, draws: &mut Stream) -> Option<usize> {
        let open = |i: usize| among.backends[i].transactions() as f64 / among.weight(i) as f64;
        self.sample.best(among, draws, self.choices, open)
    }
}
