//! A model of a processor. Each of its cores performs one step at a time.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::quota::{Account, Quota};
use super::settings::Disturbance;

/// The cores of a processor, and the times at which they become free.
#[derive(Debug)]
pub(super) struct Processor {
    /// For each core, the time at which it completes its last step.
    cores: Vec<Timestamp>,
    /// For each core, the cost of its last step.
    costs: Vec<Duration>,
    /// Index of the core that becomes free first.
    first: usize,
    /// Sum of the costs and the interruptions of all steps, on all cores together.
    charged: Duration,
    /// Sum of the costs of all steps, without interruptions.
    spent: Duration,
    /// The fraction of the time of each core that other programs use, at least 0 and below 1.
    background: f64,
    disturbance: Disturbance,
    quota: Option<Account>,
}

impl Processor {
    /// Creates an idle processor with this number of cores.
    ///
    /// # Panics
    /// Panics if there are no cores, if `background` is not at least 0 and below 1, or if there is
    /// a quota and more than one core.
    pub(super) fn new(
        cores: u16,
        background: f64,
        disturbance: Disturbance,
        quota: Option<Quota>,
    ) -> Self {
        assert!(cores > 0, "a processor without cores");
        assert!(cores == 1 || quota.is_none(), "a quota for {cores} cores");
        assert!((0.0..1.0).contains(&background), "a background load of {background}");
        let count = usize::from(cores);
        Self {
            cores: vec![Timestamp::ZERO; count],
            costs: vec![Duration::ZERO; count],
            first: 0,
            charged: Duration::ZERO,
            spent: Duration::ZERO,
            background,
            disturbance,
            quota: quota.map(Account::new),
        }
    }

    /// Returns the earliest time at which a core is free. It may be in the past.
    pub(super) fn free_at(&self) -> Timestamp {
        self.cores[self.first]
    }

    /// Performs a step that costs `cost` and begins at `at`. A core must be free then. Returns the
    /// time at which the step is complete.
    pub(super) fn work(&mut self, at: Timestamp, cost: Duration) -> Timestamp {
        debug_assert!(at >= self.free_at(), "no core is free at this time");
        let stretched = self.stretched(cost);
        let completion = match &mut self.quota {
            Some(quota) => quota.completion(at, stretched),
            None => self.disturbance.completion(at, stretched),
        };
        self.cores[self.first] = completion;
        self.costs[self.first] = cost;
        let interrupted = completion.since(at).saturating_sub(stretched);
        self.charged = self.charged.saturating_add(cost + interrupted);
        self.spent = self.spent.saturating_add(cost);
        // If several cores become free at the same time, `first` may be any of them.
        let cores = self.cores.iter().enumerate();
        self.first = cores.min_by_key(|(_, free_at)| **free_at).map_or(0, |(core, _)| core);
        completion
    }

    /// Returns for how long a core has been busy until `now`, on average over all cores. This
    /// includes the time that other programs used. The result is multiplied by
    /// [`Disturbance::misread`], which makes it wrong on purpose. `now` must not be before the
    /// start of the last work.
    pub(super) fn busy(&self, now: Timestamp) -> Duration {
        let to_come = self.cores.iter().map(|&free_at| self.own(free_at.since(now)));
        let done = to_come.fold(self.charged, Duration::saturating_sub);
        let others = now.since(Timestamp::ZERO) - self.own(now.since(Timestamp::ZERO));
        self.misread(done / self.cores.len() as u32 + others)
    }

    /// Returns the CPU time of all steps until `now`, on average over all cores. This does not
    /// include interruptions and the time that other programs used. The interruptions of a step in
    /// progress count as if they came before its work. The result is multiplied by
    /// [`Disturbance::misread`], which makes it wrong on purpose. `now` must not be before the
    /// start of the last work.
    pub(super) fn cpu(&self, now: Timestamp) -> Duration {
        let steps = self.cores.iter().zip(&self.costs);
        let to_come = steps.map(|(free_at, cost)| self.own(free_at.since(now)).min(*cost));
        let done = to_come.fold(self.spent, Duration::saturating_sub);
        self.misread(done / self.cores.len() as u32)
    }

    /// Returns `time` multiplied by [`Disturbance::misread`].
    fn misread(&self, time: Duration) -> Duration {
        if self.disturbance.misread == 1.0 { time } else { time.mul_f64(self.disturbance.misread) }
    }

    /// Returns the duration of work that costs `cost`, while other programs use their part of the
    /// core.
    fn stretched(&self, cost: Duration) -> Duration {
        if self.background == 0.0 {
            return cost;
        }
        let seconds = cost.as_secs_f64() / (1.0 - self.background);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Returns the part of `time` on a core that the server can use: other programs use the rest.
    fn own(&self, time: Duration) -> Duration {
        if self.background == 0.0 { time } else { time.mul_f64(1.0 - self.background) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    fn ns(ns: u64) -> Duration {
        Duration::from_nanos(ns)
    }

    #[test]
    fn the_elapsed_part_of_work_in_progress_is_busy_time() {
        let mut processor = Processor::new(1, 0.0, Disturbance::NONE, None);
        assert_eq!(processor.work(at(100), ns(10)), at(110));
        assert_eq!(processor.work(at(200), ns(50)), at(250));
        for (now, busy) in [(200, 10), (201, 11), (249, 59), (250, 60), (1000, 60)] {
            assert_eq!(processor.busy(at(now)), ns(busy), "at {now}");
            assert_eq!(processor.cpu(at(now)), ns(busy), "at {now}");
        }
        assert_eq!(processor.free_at(), at(250));
    }

    #[test]
    fn work_goes_to_the_core_that_is_free_first() {
        let mut processor = Processor::new(3, 0.0, Disturbance::NONE, None);
        for (begins, cost, completion, free_at) in
            [(0, 30, 30, 0), (0, 10, 10, 0), (5, 15, 20, 10), (10, 50, 60, 20), (20, 1, 21, 21)]
        {
            assert_eq!(processor.work(at(begins), ns(cost)), at(completion));
            assert_eq!(processor.free_at(), at(free_at));
        }
        // At 20 ns the cores have worked for 20, 10 + 10 and 15 ns. At 60 ns they have worked for
        // 106 ns in total.
        assert_eq!(processor.busy(at(21)), ns((21 + 21 + 16) / 3));
        assert_eq!(processor.busy(at(60)), ns(106 / 3));
        assert_eq!([21, 60].map(|now| processor.cpu(at(now))), [58 / 3, 106 / 3].map(ns));
    }

    #[test]
    fn time_taken_by_other_programs_slows_work_and_is_busy_time() {
        let mut processor = Processor::new(2, 0.75, Disturbance::NONE, None);
        assert_eq!(processor.busy(at(1000)), ns(750));
        assert_eq!(processor.work(at(1000), ns(100)), at(1400));
        assert_eq!(processor.work(at(1000), ns(100)), at(1400));
        // While its cores work, the processor has no idle time.
        assert_eq!(processor.busy(at(1200)), ns(950));
        assert_eq!(processor.busy(at(1400)), ns(1150));
        assert_eq!(processor.busy(at(2400)), ns(1900));
        // Only the work itself counts as CPU time, and not the other programs.
        let cpu = [1000, 1200, 1400, 2400].map(|now| processor.cpu(at(now)));
        assert_eq!(cpu, [0, 50, 100, 100].map(ns));
    }

    #[test]
    fn time_stolen_by_others_is_busy_time_and_readings_may_be_scaled() {
        let stolen = Some((ns(100), ns(80)));
        let disturbance = Disturbance { stolen, ..Disturbance::NONE };
        let mut processor = Processor::new(1, 0.0, disturbance, None);
        assert_eq!(processor.work(at(0), ns(30)), at(110));
        assert_eq!([50, 110, 200].map(|now| processor.busy(at(now))), [50, 110, 110].map(ns));
        // The work takes 30 ns. The rest of the busy time was stolen.
        assert_eq!([50, 105, 200].map(|now| processor.cpu(at(now))), [0, 25, 30].map(ns));
        let mut processor =
            Processor::new(1, 0.0, Disturbance { misread: 3.0, ..Disturbance::NONE }, None);
        processor.work(at(0), ns(30));
        assert_eq!((processor.busy(at(40)), processor.cpu(at(40))), (ns(90), ns(90)));
    }

    #[test]
    fn time_for_which_a_quota_keeps_work_waiting_is_busy_time() {
        let quota = Quota { period: ns(100), runtime: ns(20), tick: Duration::ZERO };
        let mut processor = Processor::new(1, 0.0, Disturbance::NONE, Some(quota));
        assert_eq!(processor.work(at(10), ns(30)), at(110));
        assert_eq!([50, 110, 150].map(|now| processor.busy(at(now))), [40, 100, 100].map(ns));
        assert_eq!([50, 105, 150].map(|now| processor.cpu(at(now))), [0, 25, 30].map(ns));
        assert_eq!(processor.work(at(200), ns(5)), at(205));
        assert_eq!((processor.busy(at(205)), processor.cpu(at(205))), (ns(105), ns(35)));
    }

    #[test]
    #[should_panic(expected = "a background load of 1")]
    fn a_background_load_of_one_is_a_bug() {
        Processor::new(1, 1.0, Disturbance::NONE, None);
    }
}
