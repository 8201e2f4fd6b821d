//! Round robin: selects the back ends in turn, in proportion to their weights.
//!
//! - Signal: none.
//! - Choice: smooth weighted round robin. At each choice, the credit of every usable back end grows
//!   by its weight. The one with the highest credit is selected, and its credit falls by the sum of
//!   all weights. With equal weights this is the plain round robin of paper 003. With 5:1:1 the
//!   order is a a b a c a a, without a burst of five.
//! - Ties: the first in the configuration.
//! - Cold start: none.
//! - Recovery: the credit of a back end that is down does not grow, so it gets no burst when it
//!   comes back. Each shard has its own credits.
//! - Known bias: the policy ignores how long calls last and how fast the back ends are.
//!
//! Source: paper 003 §VI.a (RR); the weights as in nginx since 1.3.1.

use tidegate_world::Stream;

use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "rr",
    summary: "selects each back end in turn, in proportion to the weights",
    source: "paper 003 §VI.a; the weights as in nginx",
    doc: "Smooth weighted round robin: with weights 5, 1 and 1 the order is a a b a c a a. With \
          equal weights it is the plain round robin of paper 003.",
    params: &[],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::Rr,
        key: Key::Call,
        over: |_, backends| Box::new(Rr { credit: vec![0; backends.len()].into() }),
    },
};

#[derive(Debug)]
struct Rr {
    credit: Box<[i64]>,
}

impl Choose for Rr {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        let mut gained = 0;
        let mut richest: Option<usize> = None;
        for i in among.usable() {
            let weight = among.weight(i) as i64;
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
