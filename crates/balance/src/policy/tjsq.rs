//! Transaction-join-shortest-queue: selects the back end with the fewest open transactions,
//! relative to its weight.
//!
//! - Signal: the transactions that leases count on each back end, from a request to its final
//!   response.
//! - Choice: the back end with the fewest transactions divided by its weight.
//! - Ties: in turn.
//! - Cold start: all back ends have no transactions, so they take turns.
//! - Recovery: not needed, because a lease subtracts its count when it is dropped.
//! - Known bias: an INVITE has the same weight as a BYE, although it costs more. An INVITE that
//!   rings for a long time counts although no server works on it. A back end that fails fast looks
//!   idle and attracts calls.
//!
//! Source: paper 003 §IV.A.2.

use tidegate_world::Stream;

use super::least::Least;
use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "tjsq",
    summary: "selects the back end with the fewest open transactions, relative to its weight",
    source: "paper 003 §IV.A.2",
    doc: "A transaction counts from its request to the final response. So the policy notices at \
          once when a back end responds slowly.",
    params: &[],
    check: |_| Ok(()),
    build: Build { policy: Policy::Tjsq, key: Key::Call, over: |_, _| Box::new(Tjsq::default()) },
};

#[derive(Debug, Default)]
struct Tjsq {
    least: Least,
}

impl Choose for Tjsq {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        self.least.pick(among, |i| among.backends[i].transactions())
    }
}
