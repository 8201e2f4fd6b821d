//! Call-join-shortest-queue: selects the back end with the fewest calls, relative to its
//! weight.
//!
//! - Signal: the calls that leases count on each back end, from the INVITE to the end of the BYE.
//! - Choice: the back end with the fewest calls divided by its weight.
//! - Ties: in turn.
//! - Cold start: all back ends have no calls, so they take turns.
//! - Recovery: not needed, because a lease subtracts its count when it is dropped.
//! - Known bias: calls are long and mostly without messages, so their number is a poor measure of
//!   the work that waits now. A back end that has come back has no calls. It gets all new calls
//!   until it has as many calls as the others. With long calls that is a flood, which a slow start
//!   reduces. A back end that fails fast looks idle and attracts calls.
//!
//! Source: paper 003 §IV.A.1.

use tidegate_world::Stream;

use super::least::Least;
use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "cjsq",
    summary: "selects the back end with the fewest calls, relative to its weight",
    source: "paper 003 §IV.A.1",
    doc: "A call counts from its INVITE to the end of its BYE. This policy counts calls, not the \
          work that waits in a back end. A back end that has just come up has no calls, so it gets \
          all new calls until it has as many as the others.",
    params: &[],
    check: |_| Ok(()),
    build: Build { policy: Policy::Cjsq, key: Key::Call, over: |_, _| Box::new(Cjsq::default()) },
};

#[derive(Debug, Default)]
struct Cjsq {
    least: Least,
}

impl Choose for Cjsq {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        self.least.pick(among, |i| among.backends[i].calls())
    }
}
