//! The processor time that handshakes may take while messages wait.

use std::time::Duration;

/// Ratio of the processor time of other work to that of handshakes while messages wait. With 3,
/// handshakes take at most a quarter of the processor time.
const OTHERS: i64 = 3;

/// Maximum processor time that handshakes may take at once after a time without handshakes. It is
/// enough for several handshakes.
const CREDIT_MAX_NS: i64 = 2_000_000;

/// The credit of handshakes: the processor time that they may still take while messages wait.
///
/// A fixed number of handshakes in a turn does not limit their part of the processor, because their
/// cost depends on the keys of certificates and on the machine, and turns differ in length.
#[derive(Debug, Default)]
pub(super) struct HandshakeBudget {
    /// True if messages wait for service. Otherwise the processor has time for all handshakes.
    is_behind: bool,
    /// CPU time of the thread at the last call of `earn` or `spend`.
    counted: Duration,
    credit_ns: i64,
}

impl HandshakeBudget {
    pub(super) fn set_behind(&mut self, is_behind: bool) {
        self.is_behind = is_behind;
    }

    /// Returns whether a handshake may take a step now.
    pub(super) fn allows_step(&self) -> bool {
        !self.is_behind || self.credit_ns > 0
    }

    /// Adds credit for the work other than handshakes since the last call of `earn` or `spend`.
    /// `cpu` is the CPU time of the thread until now.
    pub(super) fn earn(&mut self, cpu: Duration) {
        let earned = nanoseconds(self.passed(cpu)) / OTHERS;
        self.credit_ns = self.credit_ns.saturating_add(earned).min(CREDIT_MAX_NS);
    }

    /// Spends credit on a step that has just ended. `cpu` is the CPU time of the thread until now.
    /// Returns the processor time of the step.
    pub(super) fn spend(&mut self, cpu: Duration) -> Duration {
        let cost = self.passed(cpu);
        let left = self.credit_ns.saturating_sub(nanoseconds(cost));
        // While messages wait, a step is charged its whole cost: a signature with a long key can
        // take more than the credit. Otherwise the debt is limited, because the step used spare
        // time.
        self.credit_ns = if self.is_behind { left } else { left.max(-CREDIT_MAX_NS) };
        cost
    }

    /// Returns the processor time since the last call of this function.
    fn passed(&mut self, cpu: Duration) -> Duration {
        let before = std::mem::replace(&mut self.counted, cpu);
        cpu.saturating_sub(before)
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(300);

    /// Lets a thread work for a second of processor time, with `others` of other work in each turn,
    /// and with handshakes whose steps take `step`. Returns the part of the time that handshakes
    /// took.
    fn part_of_handshakes(is_behind: bool, others: Duration, step: Duration) -> f64 {
        let mut budget = HandshakeBudget::default();
        budget.set_behind(is_behind);
        let (mut cpu, mut taken) = (Duration::ZERO, Duration::ZERO);
        while cpu < Duration::from_secs(1) {
            cpu += others;
            budget.earn(cpu);
            // A turn has a limited number of steps.
            for _ in 0..8 {
                if !budget.allows_step() {
                    break;
                }
                cpu += step;
                taken += budget.spend(cpu);
            }
        }
        taken.as_secs_f64() / cpu.as_secs_f64()
    }

    #[test]
    fn handshakes_take_a_quarter_of_the_processor_while_messages_wait() {
        for others_us in [100, 1000, 5000] {
            for step in [STEP, Duration::from_millis(6)] {
                let part = part_of_handshakes(true, Duration::from_micros(others_us), step);
                assert!((0.24..0.26).contains(&part), "{others_us}, {step:?}: {part}");
            }
        }
        // After a long turn the credit has its maximum.
        assert!(part_of_handshakes(true, Duration::from_millis(50), STEP) < 0.05);
    }

    #[test]
    fn handshakes_have_no_limit_while_nothing_else_waits() {
        let part = part_of_handshakes(false, Duration::from_micros(100), STEP);
        assert!(part > 0.95, "{part}");
    }

    #[test]
    fn handshakes_of_an_idle_time_leave_a_small_debt() {
        let mut budget = HandshakeBudget::default();
        budget.spend(Duration::from_secs(5));
        budget.set_behind(true);
        assert!(!budget.allows_step());
        budget.earn(Duration::from_secs(5) + Duration::from_millis(7));
        assert!(budget.allows_step());
    }
}
