//! Response times of a back end.
//!
//! The response time of a transaction is the time from sending the request to the response that
//! shows that the back end did its work. The owner of the
//! [`TransactionLease`](crate::TransactionLease) decides which response that is. For an INVITE, it
//! is the first response other than 100, because after the ringing a person answers, not a server.
//! For any other request, it is the final response. 5xx responses are left out: a rejection is
//! cheap, and would make the rejecting back end look like the fastest. A request that is never
//! answered has no response time. It counts as an open transaction, and the health checks exclude a
//! silent back end.
//!
//! All shards share one record per back end, because the speed of a server does not depend on the
//! shard, and a single shard may see too few responses for a mean of 20. If another shard is using
//! the record, a shard discards its response time instead of waiting. The results are published as
//! atomics, each of which is read separately.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::{Histogram, Timestamp};

use crate::Work;
use crate::cost_ratio::CostRatio;
use crate::peak::{Peak, kept};
use crate::recent::Recent;

/// Settings of a policy for the recording of response times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Time constant of the peak average ([`Peak`]).
    pub(crate) decay: Duration,
    /// True if the [`CostRatio`] is learned.
    pub(crate) learns: bool,
}

/// A request that has not been answered.
#[derive(Debug)]
pub(crate) struct Waiting {
    work: Work,
    since: Timestamp,
    watch: Watch,
    /// Number of unanswered requests that start calls when this request was sent, including this
    /// request. Zero if the [`CostRatio`] is not learned.
    starts: u32,
    /// Number of all other unanswered requests when this request was sent, including this request.
    /// Zero if the [`CostRatio`] is not learned.
    ends: u32,
}

impl Waiting {
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }
}

/// The response times of a back end.
#[derive(Debug)]
pub(crate) struct ResponseTimes {
    record: Mutex<Record>,
    /// Weighted mean of the last response times to requests that start calls, in nanoseconds, or
    /// zero if there is none.
    start_ns: AtomicU64,
    /// Weighted mean of the last response times to requests that end calls, in nanoseconds, or zero
    /// if there is none.
    end_ns: AtomicU64,
    /// Time of the last response to a request that starts a call, in nanoseconds since the program
    /// started.
    start_at: AtomicU64,
    /// Peak average in nanoseconds, or zero before the first response.
    peak_ns: AtomicU64,
    /// Time of the last change of the peak average, in nanoseconds since the program started.
    peak_at: AtomicU64,
    /// The [`CostRatio`] in thousandths, or zero before it is learned.
    cost_ratio: AtomicU32,
    /// Histogram of the response times to requests that start calls.
    histogram: Histogram,
    /// Number of unanswered requests that start calls, counted while the [`CostRatio`] is learned.
    starts: AtomicU32,
    /// Number of unanswered requests that do not start calls, counted while the [`CostRatio`] is
    /// learned.
    ends: AtomicU32,
}

#[derive(Debug, Default)]
struct Record {
    start: Recent,
    end: Recent,
    peak: Peak,
    cost: CostRatio,
}

impl Default for ResponseTimes {
    fn default() -> Self {
        Self {
            record: Mutex::default(),
            start_ns: AtomicU64::new(0),
            end_ns: AtomicU64::new(0),
            start_at: AtomicU64::new(0),
            peak_ns: AtomicU64::new(0),
            peak_at: AtomicU64::new(0),
            cost_ratio: AtomicU32::new(0),
            histogram: Histogram::default(),
            starts: AtomicU32::new(0),
            ends: AtomicU32::new(0),
        }
    }
}

impl ResponseTimes {
    /// Returns the weighted mean of the last response times to requests that start calls, or zero
    /// if there is none.
    pub(crate) fn start(&self) -> Duration {
        Duration::from_nanos(self.start_ns.load(Relaxed))
    }

    /// Returns the histogram of the response times to requests that start calls.
    pub(crate) fn starts(&self) -> &Histogram {
        &self.histogram
    }

    /// Returns the weighted mean of the last response times to requests that end calls, or zero if
    /// there is none.
    pub(crate) fn end(&self) -> Duration {
        Duration::from_nanos(self.end_ns.load(Relaxed))
    }

    /// Returns the same mean as [`start`](Self::start), or `None` if there is none or the last of
    /// its response times is older than `within`.
    pub(crate) fn fresh_start(&self, now: Timestamp, within: Duration) -> Option<Duration> {
        let at = Timestamp::from_nanos(self.start_at.load(Relaxed));
        Some(self.start()).filter(|mean| !mean.is_zero() && now.since(at) < within)
    }

    /// Discards the response times of requests that start calls if the last of them is older than
    /// `after`. Otherwise the old response times would dominate the mean for twenty more responses.
    pub(crate) fn forget_start(&self, now: Timestamp, after: Duration) {
        let is_known = self.start_ns.load(Relaxed) != 0;
        if !is_known || self.fresh_start(now, after).is_some() {
            return;
        }
        if let Ok(mut record) = self.record.try_lock() {
            record.start = Recent::default();
            self.start_ns.store(0, Relaxed);
        }
    }

    /// Returns the peak average, decayed until `now`, or `None` before the first response.
    pub(crate) fn peak(&self, now: Timestamp, decay: Duration) -> Option<Duration> {
        let average = self.peak_ns.load(Relaxed);
        let at = Timestamp::from_nanos(self.peak_at.load(Relaxed));
        (average != 0)
            .then(|| Duration::from_nanos((average as f64 * kept(now.since(at), decay)) as u64))
    }

    /// Returns the cost of starting a call as a multiple of the cost of ending one, or `None` until
    /// it is learned.
    pub(crate) fn cost_ratio(&self) -> Option<f64> {
        let thousandths = self.cost_ratio.load(Relaxed);
        (thousandths != 0).then(|| f64::from(thousandths) / 1e3)
    }

    pub(crate) fn record_request(&self, now: Timestamp, work: Work, watch: Watch) -> Waiting {
        let (mut starts, mut ends) = (0, 0);
        if watch.learns {
            let mine = self.unanswered(work).fetch_add(1, Relaxed) + 1;
            (starts, ends) = match work {
                Work::CallStart => (mine, self.ends.load(Relaxed)),
                _ => (self.starts.load(Relaxed), mine),
            };
        }
        Waiting { work, since: now, watch, starts, ends }
    }

    pub(crate) fn on_answered(&self, now: Timestamp, waiting: Waiting) {
        // At least 1 ns, because zero means none.
        let time = now.since(waiting.since).max(Duration::from_nanos(1));
        let Waiting { work, watch, starts, ends, .. } = waiting;
        self.give_up(waiting);
        if work == Work::CallStart {
            self.histogram.observe(time);
        }
        let Ok(mut record) = self.record.try_lock() else { return };
        let ns = |mean: Duration| (mean.as_nanos() as u64).max(1);
        record.peak.push(now, time, watch.decay);
        self.peak_ns.store(ns(record.peak.average()), Relaxed);
        self.peak_at.store(now.as_nanos(), Relaxed);
        match work {
            Work::CallStart => {
                record.start.push(time);
                self.start_ns.store(ns(record.start.mean()), Relaxed);
                self.start_at.store(now.as_nanos(), Relaxed);
            }
            Work::CallEnd => {
                record.end.push(time);
                self.end_ns.store(ns(record.end.mean()), Relaxed);
            }
            _ => {}
        }
        if watch.learns {
            record.cost.push(starts, ends, time.as_secs_f64());
            let ratio = record.cost.ratio().unwrap_or_default();
            self.cost_ratio.store((ratio * 1e3).round() as u32, Relaxed);
        }
    }

    /// Stops counting a request as unanswered, after its response or when its lease is dropped.
    pub(crate) fn give_up(&self, waiting: Waiting) {
        if waiting.watch.learns {
            self.unanswered(waiting.work).fetch_sub(1, Relaxed);
        }
    }

    fn unanswered(&self, work: Work) -> &AtomicU32 {
        if work == Work::CallStart { &self.starts } else { &self.ends }
    }
}
