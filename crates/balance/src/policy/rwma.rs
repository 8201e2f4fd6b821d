//! Response-time weighted moving average: the smallest mean of the last response times.
//!
//! Signal: the last 20 response times of each back end to requests that begin calls, in a mean in
//! which the newest weighs 20 and the oldest 1. Choice: the smallest, divided by the weight. Ties:
//! in turn. Cold start: a back end without response times is tried before all others, so each is
//! tried once. Recovery: one whose last response time is older than `forget_s` is taken for one
//! without; else a back end that was slow once would never be asked again.
//! Known bias: response times tell of the past. Between two of them all calls go to the same back
//! end, so the load swings from one to the next; the more calls in flight, the wider. 003's
//! measurements have it far behind the policies that count what is open.
//!
//! Source: Jiang, Iyengar, Nahum, Segmuller, Tantawi, Wright: Design, Implementation, and
//! Performance of a Load Balancer for SIP Server Clusters, IEEE/ACM Transactions on Networking
//! 20(4), 2012 (003's reference 1), §III. That a mean is forgotten is ours.

use std::time::Duration;

use tidegate_world::Stream;

use super::least::Least;
use super::{Candidates, Choose};
use crate::registry::{Entry, Param};
use crate::{Key, Policy};

static FORGET: Param = Param {
    name: "forget_s",
    doc: "A back end whose last response time is older than this is asked anew.",
    unit: "s",
    default: 10.0,
    min: 0.1,
    max: 86_400.0,
};

pub(crate) static ENTRY: Entry = Entry {
    policy: Policy::Rwma,
    name: "rwma",
    summary: "the smallest mean of the last 20 response times to INVITEs, the newest weighing most",
    source: "Jiang et al. 2012 (003's reference 1)",
    doc: "The newest weighs 20, the oldest 1; the mean is divided by the back end's weight. The \
          response time of an INVITE lasts to the first response other than 100; a 5xx has none.",
    key: Key::Call,
    params: &[&FORGET],
    check: |_| Ok(()),
    build: |values, _| {
        let forget = Duration::from_secs_f64(values.of(&FORGET));
        Box::new(Rwma { least: Least::default(), forget })
    },
};

#[derive(Debug)]
struct Rwma {
    least: Least,
    forget: Duration,
}

impl Choose for Rwma {
    fn choose(&mut self, among: &Candidates<'_>, _draws: &mut Stream) -> Option<usize> {
        let mean = |i: usize| {
            let times = among.backends[i].response_times();
            times.fresh_start(among.now, self.forget).map_or(0, |mean| mean.as_nanos() as u64)
        };
        self.least.pick(among, mean)
    }
}
