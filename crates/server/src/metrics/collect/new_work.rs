//! Counts and rates of the new work of a shard, for operators.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_control::{Allowance, Bucket};
use tidegate_world::Timestamp;

use super::ShardCounters;

/// The length of the interval over which rates are measured.
const SPAN: Duration = Duration::from_secs(1);

/// Maximum number of samples kept. If the samples are very frequent, they cover less time than
/// [`SPAN`].
const SAMPLES_MAX: usize = 64;

/// Counts of new work since the start.
///
/// ```text
/// arrived = offered + repeated + in_kernel
/// offered = admitted + rejected + undecided
/// ```
///
/// Work is undecided while it waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewWork {
    /// Pieces of work that Tidegate has read, each counted once.
    offered: u64,
    /// Pieces of work that were admitted and were not rejected later.
    admitted: u64,
    /// Pieces of work that Tidegate has read, and then rejected or dropped for any reason.
    rejected: u64,
    /// Retransmissions of work that waits or has been decided.
    repeated: u64,
    /// INVITEs and REGISTERs that the kernel or the emulated host has dropped unread, and those
    /// dropped from streams. All of them are in the count of calls, because the kernel does not
    /// count the two methods separately. Some may be retransmissions or re-INVITEs, which the
    /// kernel cannot distinguish from other requests.
    in_kernel: u64,
}

impl NewWork {
    /// Counts the new calls of a shard.
    pub(crate) fn calls(shard: &ShardCounters) -> Self {
        Self {
            in_kernel: shard.filtered(),
            ..Self::of(shard, &[Bucket::Session, Bucket::Priority])
        }
    }

    /// Counts the other new work of a shard: requests that do not begin a call.
    pub(crate) fn others(shard: &ShardCounters) -> Self {
        Self::of(shard, &[Bucket::Single])
    }

    fn of(shard: &ShardCounters, buckets: &[Bucket]) -> Self {
        let mut sum = Self::default();
        for &bucket in buckets {
            let flow = &shard.proxy.overload.flows[bucket as usize];
            let before = shard.proxy.rejected_before(bucket).get();
            let after = flow.stale.get() + shard.proxy.rejected_after(bucket).get();
            sum.offered += flow.offered.get() + before;
            // `after` may be larger than `admitted`: the counters are read one after the other, and
            // `after` also contains calls that another shard has admitted and handed off.
            sum.admitted += flow.admitted.get();
            sum.rejected += flow.rejected.get() + before;
            let after = after.min(sum.admitted);
            sum.admitted -= after;
            sum.rejected += after;
            sum.repeated += flow.repeated.get();
        }
        sum
    }

    fn arrived(&self) -> u64 {
        self.offered + self.repeated + self.in_kernel
    }

    /// Returns the counts since the start as JSON.
    pub(crate) fn to_json(self) -> Value {
        let Self { offered, admitted, rejected, repeated, in_kernel } = self;
        json!({
            "arrived": self.arrived(),
            "dropped_in_kernel": in_kernel,
            "repeated": repeated,
            "offered": offered,
            "admitted": admitted,
            "rejected": rejected,
            "undecided": offered.saturating_sub(admitted + rejected),
        })
    }

    /// Returns, as JSON, the rates in 1/s at which the counts grew in the `seconds` since
    /// `earlier`.
    fn rates_since(&self, earlier: &Self, seconds: f64) -> Value {
        let rate = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier)) as f64 / seconds;
        json!({
            "arrived": rate(Self::arrived),
            "dropped_in_kernel": rate(|work| work.in_kernel),
            "repeated": rate(|work| work.repeated),
            "offered": rate(|work| work.offered),
            "admitted": rate(|work| work.admitted),
            "rejected": rate(|work| work.rejected),
        })
    }
}

/// The new calls and the other new work at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    calls: NewWork,
    others: NewWork,
}

/// Samples of the last second, from which rates are computed. The main thread adds the samples.
#[derive(Debug, Default)]
pub struct RecentWork(Mutex<VecDeque<Sample>>);

impl RecentWork {
    /// Takes a sample of `shard` at `now`.
    pub(crate) fn record(&self, now: Timestamp, shard: &ShardCounters) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, others) = (NewWork::calls(shard), NewWork::others(shard));
        samples.push_back(Sample { at: now, calls, others });
        // Only one sample that is older than the span is needed, as the start of the interval.
        while samples.len() > SAMPLES_MAX
            || samples.get(1).is_some_and(|second| now.since(second.at) >= SPAN)
        {
            samples.pop_front();
        }
    }

    /// Returns the rates of the last second, in 1/s. The result is null until there are two
    /// samples.
    pub(crate) fn to_json(&self) -> Value {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return Value::Null;
        };
        let seconds = last.at.since(first.at).as_secs_f64();
        if seconds == 0.0 {
            return Value::Null;
        }
        json!({
            "calls": last.calls.rates_since(&first.calls, seconds),
            "others": last.others.rates_since(&first.others, seconds),
        })
    }
}

/// Returns the limit of a law as JSON: the kind of limit, and the value in the unit of this kind.
pub(crate) fn limit(allowance: Allowance) -> Value {
    let (kind, value) = match allowance {
        Allowance::Open => ("none", None),
        Allowance::Fraction(fraction) => ("share", Some(fraction)),
        Allowance::Rate(rate) => ("rate_cps", Some(rate)),
        Allowance::Window(window) => ("window", Some(window)),
        Allowance::Closed => ("closed", None),
    };
    json!({ "kind": kind, "value": value })
}

#[cfg(test)]
mod tests {
    use tidegate_proxy::DropReason;

    use super::*;
    use crate::testing::at_ms as at;

    /// Adds new calls to the counts: calls that were offered to the gate, admitted calls, rejected
    /// calls, and calls that the kernel dropped.
    fn add(shard: &ShardCounters, [offered, admitted, rejected, filtered]: [u64; 4]) {
        let flow = &shard.proxy.overload.flows[Bucket::Session as usize];
        flow.offered.add(offered);
        flow.admitted.add(admitted);
        flow.rejected.add(rejected);
        shard.io.filtered.add(filtered);
    }

    #[test]
    fn the_parts_add_up_to_what_arrived() {
        let shard = ShardCounters::default();
        add(&shard, [100, 60, 35, 400]);
        let priority = &shard.proxy.overload.flows[Bucket::Priority as usize];
        priority.offered.add(3);
        priority.admitted.add(3);
        let session = &shard.proxy.overload.flows[Bucket::Session as usize];
        session.repeated.add(7);
        session.stale.add(5);
        shard.emulated_filtered.add(30);
        shard.proxy.dropped(DropReason::DropShare).add(20);
        shard.proxy.rejected_after(Bucket::Session).add(2);
        shard.proxy.rejected_before(Bucket::Session).add(11);
        let work = NewWork::calls(&shard);
        let expected =
            NewWork { offered: 114, admitted: 56, rejected: 53, repeated: 7, in_kernel: 450 };
        assert_eq!(work, expected);
        let shown = work.to_json();
        assert_eq!((&shown["arrived"], &shown["undecided"]), (&571.into(), &5.into()));
        assert_eq!(NewWork::others(&shard), NewWork::default());
    }

    #[test]
    fn rates_are_those_of_the_last_second() {
        let shard = ShardCounters::default();
        let recent = RecentWork::default();
        assert_eq!(recent.to_json(), Value::Null);
        for step in 0..12 {
            recent.record(at(250 * step), &shard);
            add(&shard, [100, 25, 75, 25 * step]);
        }
        let calls = recent.to_json()["calls"].take();
        // Each of the last four intervals had 7, 8, 9 or 10 times 25 drops.
        assert_eq!(calls["dropped_in_kernel"], 25.0 * f64::from(7 + 8 + 9 + 10));
        let rates = ["offered", "admitted", "rejected"].map(|name| calls[name].as_f64());
        assert_eq!(rates, [Some(400.0), Some(100.0), Some(300.0)]);
        // After an idle second the rates are zero.
        for step in 12..17 {
            recent.record(at(250 * step), &shard);
        }
        assert_eq!(recent.to_json()["calls"]["arrived"], 0.0);
    }
}
