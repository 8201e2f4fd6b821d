//! Peak-EWMA: draws two back ends at random, and selects the one that would answer sooner.
//!
//! - Signal: the open transactions, and an average of response times that rises to a longer
//!   response time at once and falls slowly.
//! - Choice: `choices` back ends are drawn in proportion to their weights, and the one with the
//!   lowest average · (open + 1) is taken. So a back end that stalls is avoided after one slow
//!   response, and tried again as its average decays (time constant `decay_s`). The product is not
//!   divided by the weight. Otherwise, of two idle back ends, the one with the higher weight would
//!   win each time it is drawn.
//! - Ties: the one drawn first.
//! - Cold start: a back end without response times counts as if its average were `initial_ms`.
//! - Known bias: the response times of all transactions are in one average, and INVITEs cause its
//!   peaks. The first response to an INVITE may come from a ringing phone. Then the average
//!   includes the path to the phones. If two back ends answer in microseconds, chance decides
//!   between them.
//!
//! Source: Finagle's PeakEwma (Twitter), as in Linkerd; drawn as by p2c.

use std::time::Duration;

use tidegate_world::{Param, Stream};

use super::p2c::CHOICES;
use super::sample::Sample;
use super::{Build, Candidates, Choose, Entry, Values};
use crate::{Key, Policy};

static DECAY: Param = Param::real("decay_s", "s", 10.0, 0.01, 3600.0).doc(
    "The time constant with which the average response time of a back end falls. After this time, \
     37 % of the difference between the average and the shorter response times remains.",
);

static INITIAL: Param = Param::real("initial_ms", "ms", 30.0, 0.001, 60_000.0).doc(
    "The average response time that the policy assumes for a back end that has not responded yet.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "peak-ewma",
    summary: "draws two back ends at random and selects the one that is likely to respond sooner",
    source: "Finagle, Linkerd",
    doc: "The score is average response time · (open transactions + 1), and the lower score wins. \
          A longer response time raises the average at once. Shorter response times lower the \
          average slowly. So one slow response is enough for the policy to avoid a back end that \
          stalls.",
    params: &[&DECAY, &INITIAL, &CHOICES],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::PeakEwma,
        key: Key::Call,
        over: |values, backends| {
            Box::new(PeakEwma {
                sample: Sample::new(backends),
                choices: values.of(&CHOICES) as usize,
                decay: decay(values),
                initial: Duration::from_secs_f64(values.of(&INITIAL) / 1e3),
            })
        },
    },
};

/// Returns the time constant of the average response times.
pub(crate) fn decay(values: &Values) -> Duration {
    Duration::from_secs_f64(values.of(&DECAY))
}

#[derive(Debug)]
struct PeakEwma {
    sample: Sample,
    choices: usize,
    decay: Duration,
    initial: Duration,
}

impl Choose for PeakEwma {
    fn choose(&mut self, among: &Candidates<'_>, draws: &mut Stream) -> Option<usize> {
        let cost = |i: usize| {
            let backend = &among.backends[i];
            let average = backend.response_times().peak(among.now, self.decay);
            average.unwrap_or(self.initial).as_secs_f64() * (backend.transactions() + 1) as f64
        };
        self.sample.best(among, draws, self.choices, cost)
    }
}
