//! Selection by the callee: all calls to one user go to one back end.
//!
//! - Signal: none.
//! - Choice: the back end with the highest score (`score`) for a keyed hash of the user and host in
//!   To. To is used instead of the Request-URI, because a REGISTER names its user only in To. So
//!   the bindings of a user and the calls to this user are on the same back end.
//! - Weights: each back end wins in proportion to its weight.
//! - Ties: none.
//! - Cold start: none.
//! - Known bias: paper 003 §II: "it is difficult to come up with an assignment of receivers to
//!   servers that result in even load balancing", and it "does not adapt itself well to changing
//!   distributions of calls to receivers": the calls to a frequently called number all go to one
//!   back end.
//!
//! Source: paper 003 §II.

use tidegate_world::Stream;

use super::hash::Hash;
use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

pub(crate) static ENTRY: Entry = Entry {
    name: "hash-to",
    summary: "selects by the callee: all calls to one user go to one back end",
    source: "paper 003 §II, with weighted rendezvous hashing",
    doc: "The policy hashes the user and host in To, so the registrations of a user and the calls \
          to this user reach the same server. When a back end is removed, only its own users move. \
          A single user who gets very many calls can overload a back end.",
    params: &[],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::HashTo,
        key: Key::Callee,
        over: |_, backends| Box::new(HashTo { hash: Hash::new(backends) }),
    },
};

#[derive(Debug)]
struct HashTo {
    hash: Hash,
}

impl Choose for HashTo {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        self.hash.pick(among)
    }
}
