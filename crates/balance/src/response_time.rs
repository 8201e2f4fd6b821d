//! How long a back end takes to answer.
//!
//! The response time of a transaction lasts from the moment at which its request is handed on to
//! the response by which the back end has shown that it did its part. Which one that is the holder
//! of the [`TransactionLease`](crate::TransactionLease) says. For SIP: of an INVITE the first response other than 100,
//! since what comes after the ringing is a person's time, not a server's; of any other request the
//! final one. Responses of the class 5xx are left out: a refusal is cheap, and would make the back
//! end that refuses look like the fastest. What is never answered has no response time; that it is
//! open counts, and health takes a silent back end out.
//!
//! One record a back end, shared by all shards: how fast a server is does not depend on who asks,
//! and of many shards each would see too few responses for a window of 20. A shard that finds the
//! record in use leaves its response time out rather than wait; the results are published as
//! atomics, each read alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::{Histogram, Timestamp};

use crate::Work;
use crate::cost_ratio::CostRatio;
use crate::peak::{Peak, kept};
use crate::recent::Recent;

/// What a policy wants to know of response times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Time constant of the peak average.
    pub(crate) decay: Duration,
    /// Whether the ratio of costs is learned.
    pub(crate) learns: bool,
}

/// A transaction that has not been answered.
#[derive(Debug)]
pub(crate) struct Waiting {
    work: Work,
    since: Timestamp,
    watch: Watch,
    /// What waited when it was sent, itself included.
    starts: u32,
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
    /// Weighted mean of the last ones; zero if there is none.
    start_ns: AtomicU64,
    end_ns: AtomicU64,
    /// When that of a start was last taken.
    start_at: AtomicU64,
    peak_ns: AtomicU64,
    peak_at: AtomicU64,
    /// In thousandths; zero before anything is learned.
    cost_ratio: AtomicU32,
    /// Of requests that begin calls.
    histogram: Histogram,
    /// Unanswered requests, while the ratio is learned.
    starts: AtomicU32,
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
    /// Weighted mean of the last response times of requests that begin calls; zero if none.
    pub(crate) fn start(&self) -> Duration {
        Duration::from_nanos(self.start_ns.load(Relaxed))
    }

    /// All of those that begin calls.
    pub(crate) fn starts(&self) -> &Histogram {
        &self.histogram
    }

    /// The same of those that end calls.
    pub(crate) fn end(&self) -> Duration {
        Duration::from_nanos(self.end_ns.load(Relaxed))
    }

    /// [`start`](Self::start), if one was taken within the last `within`.
    pub(crate) fn fresh_start(&self, now: Timestamp, within: Duration) -> Option<Duration> {
        let at = Timestamp::from_nanos(self.start_at.load(Relaxed));
        Some(self.start()).filter(|mean| !mean.is_zero() && now.since(at) < within)
    }

    /// Drops the response times of requests that begin calls if the last one is older than
    /// `after`, so that the next one stands alone: a mean of the time before would have its way
    /// for twenty more.
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

    /// The peak average as it has decayed until `now`; `None` before the first response.
    pub(crate) fn peak(&self, now: Timestamp, decay: Duration) -> Option<Duration> {
        let average = self.peak_ns.load(Relaxed);
        let at = Timestamp::from_nanos(self.peak_at.load(Relaxed));
        (average != 0)
            .then(|| Duration::from_nanos((average as f64 * kept(now.since(at), decay)) as u64))
    }

    /// What the start of a call costs, as a multiple of its end.
    /// `None` before it is learned.
    pub(crate) fn cost_ratio(&self) -> Option<f64> {
        let thousandths = self.cost_ratio.load(Relaxed);
        (thousandths != 0).then(|| f64::from(thousandths) / 1e3)
    }

    /// A request is handed on.
    pub(crate) fn begin(&self, now: Timestamp, work: Work, watch: Watch) -> Waiting {
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

    /// It was answered.
    pub(crate) fn on_answered(&self, now: Timestamp, waiting: Waiting) {
        // At least 1 ns, for zero stands for none.
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

    /// It waits no longer, whether it was answered or not.
    pub(crate) fn give_up(&self, waiting: Waiting) {
        if waiting.watch.learns {
            self.unanswered(waiting.work).fetch_sub(1, Relaxed);
        }
    }

    fn unanswered(&self, work: Work) -> &AtomicU32 {
        if work == Work::CallStart { &self.starts } else { &self.ends }
    }
}
