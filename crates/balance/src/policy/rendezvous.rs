//! Bounded-load rendezvous hashing: selection by the Call-ID, with a bound on the share of each
//! back end.
//!
//! - Signal: the calls that leases count.
//! - Choice: the back end with the highest score (`score`) for the Call-ID, of those with fewer
//!   calls than ⌈(1 + ε) · (calls + 1) · w / Σw⌉. Here w is the weight of the back end, and `calls`
//!   and Σw are the sums over all usable back ends. So no back end exceeds its share of the calls
//!   by more than ε and one call. There is always a back end below its bound, because the sum of
//!   the bounds exceeds the number of calls.
//! - Weights: scores and bounds use them.
//! - Ties: none.
//! - Cold start: none.
//! - Known bias: balancers make the same choice only while no bound is reached. When one is
//!   reached, calls go to back ends that another balancer would not choose. Calls are bounded, not
//!   work. If a back end goes down, its calls move, and so do calls that then exceed the bounds of
//!   other back ends.
//!
//! Source: Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, SODA 2018, over
//! rendezvous instead of a ring; ε as HAProxy's `hash-balance-factor`.

use tidegate_world::{Param, Stream};

use super::score::Scores;
use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

static EPSILON: Param = Param::real("epsilon", "fraction", 0.25, 0.01, 100.0)
    .doc("Fraction by which a back end may exceed its share of the calls.");

pub(crate) static ENTRY: Entry = Entry {
    name: "rendezvous",
    summary: "selects by the Call-ID, but gives no back end much more than its share of the calls",
    source: "Mirrokni, Thorup, Zadimoghaddam 2018",
    doc: "Selects like `hash`, but only among the back ends that have fewer than (1 + `epsilon`) \
          times their share of all calls.",
    params: &[&EPSILON],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::Rendezvous,
        key: Key::Call,
        over: |values, backends| {
            Box::new(Rendezvous { scores: Scores::new(backends), epsilon: values.of(&EPSILON) })
        },
    },
};

#[derive(Debug)]
struct Rendezvous {
    scores: Scores,
    epsilon: f64,
}

impl Choose for Rendezvous {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        let (calls, weights) = among.usable().fold((0, 0), |(calls, weights), i| {
            (calls + among.backends[i].calls(), weights + among.weight(i))
        });
        let per_weight = (1.0 + self.epsilon) * (calls + 1) as f64 / weights as f64;
        let has_room = |i: usize| {
            let bound = (per_weight * among.weight(i) as f64).ceil();
            (among.backends[i].calls() as f64) < bound
        };
        // Another shard may have taken the last room since the sum was computed.
        let weight = |i| among.weight(i);
        let with_room = self.scores.highest(among, weight, has_room);
        with_room.or_else(|| self.scores.highest(among, weight, |_| true))
    }
}
