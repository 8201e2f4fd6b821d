//! Response-time weighted moving average: selects by the smallest mean of the last response times.
//!
//! - Signal: a weighted mean of the last 20 response times of each back end to requests that begin
//!   calls. The newest has weight 20, and the oldest has weight 1.
//! - Choice: the back end with the smallest mean divided by its weight.
//! - Ties: in turn.
//! - Cold start: a back end without response times is selected before all others, until it has one.
//! - Recovery: a back end whose last response time is older than `forget_s` counts as one without
//!   response times. Otherwise a back end that was slow once would be tried again only when all
//!   others are as slow.
//! - Known bias: only the back end that gets calls has new response times. It gets all calls until
//!   its mean exceeds the smallest mean of the others, which are idle meanwhile. Then its queue
//!   drains, and the longest response times come last. So in the end its mean is higher than when
//!   the calls moved away. Therefore the means at which the load moves to another back end only
//!   rise, until they are forgotten. In a simulation of three servers at half load they rise from 3
//!   ms to a third of a second within 30 s, while one server works and two are idle. INVITEs take
//!   124 ms on average, and 10 ms if means are forgotten after 0.1 s (`tests/farm/herd.rs`). Even
//!   then, the signal is late: a response time shows how long the queue was when the request
//!   arrived.
//!
//! Source: Jiang, Iyengar, Nahum, Segmuller, Tantawi, Wright: Design, Implementation, and
//! Performance of a Load Balancer for SIP Server Clusters, IEEE/ACM Transactions on Networking
//! 20(4), 2012 (paper 003's reference 1), §III. Forgetting a mean is our addition.

use std::time::Duration;

use tidegate_world::{Param, Stream};

use super::least::Least;
use super::{Build, Candidates, Choose, Entry};
use crate::{Key, Policy};

static FORGET: Param = Param::real("forget_s", "s", 10.0, 0.1, 86_400.0).doc(
    "If the last response time of a back end is older than this, the policy tries the back end \
     again like a new one.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "rwma",
    summary: "selects the back end with the smallest weighted mean of its last 20 response times \
              to INVITEs",
    source: "Jiang et al. 2012 (reference 1 of paper 003)",
    doc: "The newest response time has weight 20, and the oldest has weight 1. The mean is divided \
          by the back end's weight. The response time of an INVITE is the time to the first \
          response other than 100. If that response is a 5xx, the response time does not count.",
    params: &[&FORGET],
    check: |_| Ok(()),
    build: Build {
        policy: Policy::Rwma,
        key: Key::Call,
        over: |values, _| {
            let forget = Duration::from_secs_f64(values.of(&FORGET));
            Box::new(Rwma { least: Least::default(), forget })
        },
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
        let picked = self.least.pick(among, mean)?;
        among.backends[picked].response_times().forget_start(among.now, self.forget);
        Some(picked)
    }
}
