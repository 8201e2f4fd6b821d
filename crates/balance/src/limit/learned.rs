//! The rate limit of a back end. All shards share it, and the counts of the current interval. At
//! the end of the interval, one shard computes the next rate with a [`RateLaw`](super::RateLaw). If
//! another shard holds the lock of `record`, a shard does not wait for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_world::Timestamp;

use super::AtomicF64;
use super::rate_law::LawState;
use super::rate_learning::{Interval, RateLearning};

/// Minimum length of an interval in which all rejections have an unknown reason, as a multiple of
/// [`RateLearning::interval`]. If load proves to be the reason, the interval may end earlier.
const SUSPECT_INTERVALS: u32 = 3;

/// The value of `ends_at` which means that nothing is learned.
const OFF: u64 = u64::MAX;

/// The learned rate of a back end, and the counts of the current interval.
#[derive(Debug)]
pub(crate) struct Learned {
    /// Earliest end of the current interval, in nanoseconds since the program started.
    ends_at: AtomicU64,
    /// Copy of the rate in `record`, in requests a second. It is read without a lock.
    rate: AtomicF64,
    /// Requests that the back end got in the current interval.
    given: AtomicU64,
    /// Time of the last request, in nanoseconds since the program started.
    given_at: AtomicU64,
    /// Rejections in the current interval that are caused by load.
    rejected: AtomicU64,
    /// Rejections in the current interval with an unknown reason: load, or something else.
    suspected: AtomicU64,
    /// True if the rate limit kept a request from the back end in the current interval.
    wanted: AtomicBool,
    /// Only requests sent from this time on are evidence about the rate, in nanoseconds since the
    /// program started.
    counts_from: AtomicU64,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    learning: Option<RateLearning>,
    began: Timestamp,
    law: LawState,
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            ends_at: AtomicU64::new(OFF),
            rate: AtomicF64::default(),
            given: AtomicU64::new(0),
            given_at: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            suspected: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            counts_from: AtomicU64::new(0),
            record: Mutex::new(Record {
                learning: None,
                began: Timestamp::ZERO,
                law: LawState::cold(None),
            }),
        }
    }
}

impl Learned {
    pub(crate) fn is_on(&self) -> bool {
        self.ends_at.load(Relaxed) != OFF
    }

    /// Sets the parameters of learning, or stops learning. The learned rate is kept if learning
    /// continues with the same law. `apply` is called with the rate before another shard can change
    /// it.
    pub(crate) fn set(&self, learning: Option<RateLearning>, apply: impl FnOnce(f64)) {
        let mut record = self.lock();
        let law_of = |learning: Option<RateLearning>| learning.map(|learning| learning.law);
        let is_same = self.is_on() && law_of(learning) == law_of(record.learning);
        record.learning = learning;
        if !is_same {
            record.law = LawState::cold(learning);
            self.start_interval(&mut record, Timestamp::ZERO);
        }
        self.put(&record, apply);
    }

    /// Starts learning again, because the back end may be another server now. For `apply` see
    /// [`set`](Self::set).
    pub(crate) fn forget(&self, apply: impl FnOnce(f64)) {
        let mut record = self.lock();
        record.law = LawState::cold(record.learning);
        self.start_interval(&mut record, Timestamp::ZERO);
        self.put(&record, apply);
    }

    /// Returns the rate in requests a second, or infinity if nothing is learned.
    pub(crate) fn rate(&self) -> f64 {
        self.rate.get()
    }

    /// Records that the rate limit kept a request from the back end.
    pub(crate) fn on_wanted(&self) {
        if !self.wanted.load(Relaxed) {
            self.wanted.store(true, Relaxed);
        }
    }

    /// Records that the back end gets a request. If this ends an interval, the rate may change, to
    /// at most `cps_max`. For `apply` see [`set`](Self::set).
    pub(crate) fn on_given(&self, now: Timestamp, cps_max: f64, apply: impl FnOnce(f64)) {
        let before = self.given.fetch_add(1, Relaxed);
        let given_at = Timestamp::from_nanos(self.given_at.swap(now.as_nanos(), Relaxed));
        if self.ends_at.load(Relaxed) > now.as_nanos() {
            return;
        }
        let Ok(mut record) = self.record.try_lock() else { return };
        let Some(learning) = record.learning else { return };
        if record.began == Timestamp::ZERO {
            // This is the first request since counting began.
            return self.start_interval_with(&mut record, now, 1);
        }
        if !learning.is_over(now.since(record.began), before + 1) {
            return;
        }
        let is_suspect = self.suspected.load(Relaxed) > 0 && self.rejected.load(Relaxed) == 0;
        if is_suspect && now.since(record.began) < SUSPECT_INTERVALS * learning.interval {
            return;
        }
        // A pause before this request, without calls or with the back end down, contains no
        // information.
        let has_paused = now.since(given_at) > learning.interval;
        let (until, given) = if has_paused { (given_at, before) } else { (now, before + 1) };
        let interval = Interval {
            lasted: until.since(record.began).max(learning.interval),
            given,
            rejected: self.rejected.load(Relaxed),
            wanted: self.wanted.load(Relaxed),
        };
        // Rejections of requests sent within an interval after a decrease do not count. So an
        // interval that began in this time may not raise the rate.
        let is_deaf = record.began.as_nanos() < self.counts_from.load(Relaxed);
        if interval.rejected > 0 && record.law.needs_rest() {
            self.counts_from.store((now + learning.interval).as_nanos(), Relaxed);
        }
        if interval.rejected > 0 || !is_deaf {
            record.law = record.law.step(&learning, &interval, cps_max);
        }
        self.start_interval_with(&mut record, now, has_paused.into());
        self.put(&record, apply);
    }

    /// Records that the back end rejected a request sent at `sent`. If `is_proved` is true, load is
    /// known to be the cause, also of the earlier rejections in this interval.
    pub(crate) fn on_rejected(&self, sent: Timestamp, is_proved: bool) {
        if !self.is_on() || sent.as_nanos() < self.counts_from.load(Relaxed) {
            return;
        }
        if is_proved {
            self.rejected.fetch_add(1 + self.suspected.swap(0, Relaxed), Relaxed);
        } else {
            self.suspected.fetch_add(1, Relaxed);
        }
    }

    /// Starts an interval at `now`. If `now` is zero, the interval starts with the next request.
    fn start_interval(&self, record: &mut Record, now: Timestamp) {
        self.start_interval_with(record, now, 0);
    }

    /// Starts an interval at `now`, in which `given` requests have been sent already.
    fn start_interval_with(&self, record: &mut Record, now: Timestamp, given: u64) {
        record.began = now;
        let ends_at = record.learning.map(|learning| (now + learning.interval).as_nanos());
        let ends_at = if now == Timestamp::ZERO { ends_at.and(Some(0)) } else { ends_at };
        self.ends_at.store(ends_at.unwrap_or(OFF), Relaxed);
        self.given.store(given, Relaxed);
        self.rejected.store(0, Relaxed);
        self.suspected.store(0, Relaxed);
        self.wanted.store(false, Relaxed);
    }

    fn put(&self, record: &Record, apply: impl FnOnce(f64)) {
        self.rate.set(record.law.rate());
        apply(record.law.rate());
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // No code panics while it holds the lock.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NONE: f64 = f64::INFINITY;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(1000 + ms)
    }

    fn learning() -> Learned {
        let learned = Learned::default();
        learned.set(Some(RateLearning::default()), |_| {});
        learned
    }

    /// Gives the back end a request. Returns the rate, if that ended an interval.
    fn given(learned: &Learned, now: Timestamp) -> Option<f64> {
        let mut rate = None;
        learned.on_given(now, NONE, |new| rate = Some(new));
        rate
    }

    /// Sends one request each 5 ms from `from` on. `is_rejected` decides its outcome after 20 ms.
    /// Returns the rates that were set during the run, each with its time in milliseconds.
    fn run(
        learned: &Learned,
        from: u64,
        until: u64,
        is_rejected: impl Fn(u64) -> bool,
    ) -> Vec<(u64, f64)> {
        let mut rates = Vec::new();
        for ms in (from..until).step_by(5) {
            if ms >= from + 20 && is_rejected(ms - 20) {
                learned.on_rejected(at(ms - 20), true);
            }
            let rate = given(learned, at(ms));
            rates.extend(rate.map(|rate| (ms, rate.round())));
        }
        rates
    }

    #[test]
    fn each_interval_is_one_step() {
        let learned = learning();
        assert_eq!(run(&learned, 0, 605, |_| false), [(200, NONE), (400, NONE), (600, NONE)]);
        assert_eq!(learned.rate(), NONE);
        // 40 requests were sent in the interval. 36 of them have been answered by then.
        assert_eq!(run(&learned, 605, 805, |ms| ms % 10 == 0), [(800, 105.0)]);
    }

    #[test]
    fn rejections_of_work_from_before_a_decrease_do_not_count() {
        let learned = learning();
        run(&learned, 0, 200, |_| true);
        let fallen = given(&learned, at(200)).unwrap();
        for ms in [120, 150, 199, 201, 399] {
            learned.on_rejected(at(ms), true);
        }
        let rates = run(&learned, 205, 405, |_| false);
        assert!(rates.len() == 1 && rates[0].1 >= fallen.floor(), "{rates:?} after {fallen}");
        learned.on_rejected(at(400), true);
        assert!(run(&learned, 405, 610, |_| false)[0].1 < rates[0].1);
    }

    #[test]
    fn a_pause_without_requests_teaches_nothing() {
        for pause in [300, 5_000, 60_000] {
            let learned = learning();
            run(&learned, 0, 305, |ms| ms % 10 == 0);
            let rate = learned.rate();
            assert_eq!(rate, 105.0_f64.min(rate), "the rate fell from 200 to about half");
            // A request sent long after the decrease is rejected, and then there are no calls.
            run(&learned, 305, 500, |ms| ms == 450);
            given(&learned, at(500 + pause));
            assert!(learned.rate() >= 0.7 * rate, "{rate} became {}", learned.rate());
        }
    }

    #[test]
    fn the_request_that_begins_an_interval_counts_in_it() {
        let learned = learning();
        let mut rates = Vec::new();
        for s in [0, 3, 6, 9] {
            rates.extend(given(&learned, at(s * 1000)));
            learned.on_rejected(at(s * 1000), true);
        }
        // The rate is half of one request in 200 ms. Requests sent at a decrease are no evidence.
        // Then the rate is halved again.
        assert_eq!(rates, [2.5, 2.5, 1.25]);
    }

    #[test]
    fn soon_after_a_decrease_nothing_is_known() {
        let learned = learning();
        let rates = run(&learned, 0, 405, |ms| ms < 200);
        assert_eq!(rates[0].1, rates[1].1, "{rates:?}");
        let grown = run(&learned, 405, 605, |_| false);
        assert!(grown[0].1 > rates[1].1, "{grown:?} after {rates:?}");
    }

    #[test]
    fn late_proofs_count_from_the_beginning() {
        // 40 requests in 200 ms, half of them rejected. At the end it becomes known that this is a
        // sign of load.
        let rate = |is_proved: bool| {
            let learned = learning();
            for ms in (0..200).step_by(5) {
                given(&learned, at(ms));
                if ms % 10 == 0 {
                    learned.on_rejected(at(ms), false);
                }
            }
            assert_eq!(given(&learned, at(200)), None, "it is not known yet");
            learned.on_rejected(at(200), is_proved);
            let rates = (205..=600).step_by(5).filter_map(|ms| given(&learned, at(ms)));
            rates.last().unwrap()
        };
        assert!(rate(true) < 200.0);
        assert_eq!(rate(false), NONE);
    }

    #[test]
    fn it_is_switched_on_and_off_and_forgets() {
        let learned = Learned::default();
        assert!(!learned.is_on());
        learned.on_rejected(at(0), true);
        assert!(run(&learned, 0, 1000, |_| true).is_empty());
        learned.set(Some(RateLearning::default()), |_| {});
        run(&learned, 1000, 1300, |_| true);
        let rate = learned.rate();
        assert!(learned.is_on() && rate < NONE);
        learned.set(Some(RateLearning { increase: 0.5, ..RateLearning::default() }), |_| {});
        assert_eq!(learned.rate(), rate, "other numbers, the same back end");
        learned.forget(|rate| assert_eq!(rate, NONE));
        assert!(learned.is_on() && learned.rate() == NONE);
        run(&learned, 2000, 2300, |_| true);
        learned.set(None, |rate| assert_eq!(rate, NONE));
        assert!(!learned.is_on() && learned.rate() == NONE);
    }

    #[test]
    fn with_few_requests_the_tenth_ends_an_interval() {
        let learned = learning();
        let ends = |ms: &u64| given(&learned, at(*ms)).is_some();
        let ended: Vec<_> = (0..1000).step_by(25).filter(ends).collect();
        // The first interval has one additional request.
        assert_eq!(ended, [225, 475, 725, 975]);
    }

    #[test]
    fn the_first_interval_begins_with_the_first_request_however_early() {
        let learned = learning();
        let ends =
            |ms: &u64| given(&learned, Timestamp::ZERO + Duration::from_millis(*ms)).is_some();
        let ended: Vec<_> = (1..500).step_by(25).filter(ends).collect();
        assert_eq!(ended, [226, 476]);
    }

    #[test]
    fn a_rejection_counts_in_an_interval_that_began_idle() {
        let learned = learning();
        run(&learned, 0, 205, |ms| ms % 10 == 0);
        for ms in (300..1200).step_by(100) {
            given(&learned, at(ms));
        }
        learned.on_rejected(at(900), true);
        // Ten requests in a second, nine of them accepted, less the margin.
        assert_eq!(given(&learned, at(1200)), Some(10.0 * (0.9 * 0.95)));
    }

    #[test]
    fn a_gap_of_one_interval_is_not_a_pause() {
        let learned = learning();
        run(&learned, 0, 205, |ms| ms % 10 == 0);
        let fallen = learned.rate();
        for ms in (400..=4200).step_by(200) {
            learned.on_wanted();
            given(&learned, at(ms));
        }
        // The first ten requests do not count, because they were sent so soon after the decrease.
        // The rate then grows for 2 s.
        assert_eq!(learned.rate(), fallen * (1.0 + 0.05 * 2.0));
    }
}
