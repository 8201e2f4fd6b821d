//! Round robin: in turn, in proportion to the weights.
//!
//! Signal: none. Smooth weighted round robin: at each pick every usable back end
//! gains its weight, the richest is taken and pays the sum of what was gained. With
//! equal weights it is plain round robin, 003's; with 5:1:1 it yields a a b a c a a, never
//! a burst of five. Ties: the first in the configuration. Cold start: none. Recovery: a back end
//! that is down gains nothing, so it is not owed a burst when it returns. Each shard turns its own
//! wheel.
//! Known bias: blind to how long calls last and to how fast the back ends are.
//!
//! Source: 003 §VI.a (RR); the weights as nginx has them since 1.3.1.

use tidegate_world::Stream;

use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "rr",
    summary: "each back end in turn, in proportion to the weights",
    source: "003 §VI.a; the weights as in nginx",
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
