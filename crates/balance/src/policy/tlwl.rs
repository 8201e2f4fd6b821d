//! Transaction-least-work-left: selects the back end with the least work in open transactions,
//! relative to its weight.
//!
//! - Signal: the transactions that leases count on each back end, each with the weight of its
//!   method.
//! - Choice: the back end with the least sum of these weights, relative to its own weight.
//! - Ties: in turn.
//! - Cold start: all back ends have no transactions, so they take turns.
//! - Recovery: not needed, because a lease subtracts its weight when it is dropped.
//! - Weights: paper 003 found that an INVITE counts best as 1.75 BYEs on its servers, and also
//!   tried 2; "TLWL can be adapted to workloads with other transaction types by using different
//!   weights based on the overheads of the transaction types", so each method has a weight. With
//!   `learned`, the weight of an INVITE is learned for each back end from its response times
//!   (`cost_ratio`).
//! - Known bias: an INVITE that rings for a long time counts although no server works on it. A back
//!   end that fails fast looks idle and attracts calls.
//!
//! Source: paper 003 §IV.A.3.

use tidegate_world::{Param, Stream};

use super::least::Least;
use super::{Build, Candidates, Choose, Entry, Values};
use crate::{Backend, Key, Policy, Work};

macro_rules! weights {
    ($($constant:ident $name:literal $default:literal $doc:literal)*) => {
        $(static $constant: Param =
            Param::real($name, "weight", $default, 0.01, 100.0).doc($doc);)*
        /// The parameters that set the weights, in the order of [`Work`].
        static WEIGHTS: [&Param; Work::COUNT] = [$(&$constant),*];
    };
}

weights! {
    INVITE "invite" 1.75 "Weight of an INVITE. With `learned`, this is only the initial weight."
    BYE "bye" 1.0 "Weight of a BYE."
    INFO "info" 1.0 "Weight of an INFO."
    MESSAGE "message" 1.0 "Weight of a MESSAGE."
    NOTIFY "notify" 1.0 "Weight of a NOTIFY."
    OPTIONS "options" 1.0 "Weight of an OPTIONS."
    PRACK "prack" 1.0 "Weight of a PRACK."
    PUBLISH "publish" 1.0 "Weight of a PUBLISH."
    REFER "refer" 1.0 "Weight of a REFER."
    REGISTER "register" 1.0 "Weight of a REGISTER."
    SUBSCRIBE "subscribe" 1.0 "Weight of a SUBSCRIBE."
    UPDATE "update" 1.0 "Weight of an UPDATE."
    OTHER "other" 1.0 "Weight of a request of any other method."
}

static LEARNED: Param = Param::whole("learned", "0 or 1", 0.0, 0, 1).doc(
    "1: Tidegate learns the weight of an INVITE separately for each back end. It estimates how \
     much each waiting INVITE, and each other waiting request, lengthens the response times of the \
     back end. The weight is the ratio of the two, at least 1 and at most 4, times the weight of a \
     BYE. 0: the weight is `invite`.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "tlwl",
    summary: "selects the back end with the least work in open transactions, relative to its weight",
    source: "paper 003 §IV.A.3",
    doc: "Each transaction counts with the weight of its method, from its request to its final \
          response.",
    params: &[
        &INVITE, &BYE, &INFO, &MESSAGE, &NOTIFY, &OPTIONS, &PRACK, &PUBLISH, &REFER, &REGISTER,
        &SUBSCRIBE, &UPDATE, &OTHER, &LEARNED,
    ],
    check: |_| Ok(()),
    build: Build { policy: Policy::Tlwl, key: Key::Call, over: |_, _| Box::new(Tlwl::default()) },
};

/// The weights of the kinds of transaction, in hundredths.
#[derive(Debug)]
pub(crate) struct Weights {
    hundredths: [u32; Work::COUNT],
    /// True if the weight of starting a call is learned for each back end.
    pub(crate) learns: bool,
}

impl Weights {
    pub(crate) fn of(values: &Values) -> Self {
        Self {
            hundredths: WEIGHTS.map(|param| (values.of(param) * 100.0).round() as u32),
            learns: values.of(&LEARNED) == 1.0,
        }
    }

    pub(crate) fn weight(&self, backend: &Backend, kind: Work) -> u32 {
        let learned = backend.cost_ratio().filter(|_| self.learns && kind == Work::CallStart);
        learned.map_or(self.hundredths[kind as usize], |ratio| {
            let end = f64::from(self.hundredths[Work::CallEnd as usize]);
            (ratio * end).round() as u32
        })
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self::of(&ENTRY.defaults())
    }
}

#[derive(Debug, Default)]
struct Tlwl {
    least: Least,
}

impl Choose for Tlwl {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        self.least.pick(among, |i| among.backends[i].work())
    }
}
