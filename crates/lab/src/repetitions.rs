//! Checks that the repetitions of an experiment differ.
//!
//! Runs that differ only in their seed show the variation of a result by chance. If nothing in a
//! scenario is random, as with `arrivals = "uniform"` in simulated time, all repetitions are the
//! same run. Their median then has no meaning, and their confidence interval has no width.

use crate::outcome::Outcome;
use crate::run_spec::RunSpec;
use crate::summary;
use crate::verdict::Verdict;

/// Returns a failed verdict for each parameter set in `results` that was run with at least two
/// seeds, with the same outcome in all runs.
pub fn judge(results: &[(&RunSpec, &Outcome)]) -> Vec<Verdict> {
    summary::groups(results.iter().copied()).iter().filter_map(|group| judge_group(group)).collect()
}

/// Returns a failed verdict if all runs of a parameter set have the same outcome under different
/// seeds. Returns `None` otherwise, and if there is only one run, or if no call was offered.
fn judge_group(group: &[(&RunSpec, &Outcome)]) -> Option<Verdict> {
    let &[(run, first), ref others @ ..] = group else { return None };
    let same = |&(other, outcome): &(&RunSpec, &Outcome)| {
        other.seed != run.seed && without_effort(outcome) == without_effort(first)
    };
    let equal = !others.is_empty() && first.offered > 0 && others.iter().all(same);
    let swept: String =
        run.swept.iter().map(|(axis, value)| format!(", {} {value}", axis.title())).collect();
    let condition = format!(
        "the repetitions of {}{swept} must differ, but all {} are equal; draw something at \
         random, such as `arrivals = \"poisson\"`, or set `repetitions = 1`",
        run.variant.name(),
        group.len(),
    );
    equal.then_some(Verdict { condition, held: false, valid: true })
}

/// Returns the outcome without the values that describe the effort of the run: its CPU time and
/// number of attempts.
fn without_effort(outcome: &Outcome) -> Outcome {
    Outcome { attempts: 0, tidegate_cpu_s: 0.0, ..outcome.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;
    use crate::worlds::Kind;

    /// Returns the runs of two variants under two loads, three of each.
    fn twelve() -> Vec<RunSpec> {
        let text = "[emulate]\nserve_us = 1000\n[sweep]\nload = [1, 2]\n\
                    [schedule]\nrepetitions = 3\n[[variant]]\noverload = { law = \"none\" }\n\
                    [[variant]]\noverload = { law = \"pi\" }\n";
        planned(text, Kind::Sim)
    }

    /// Returns the conditions that did not hold for runs with such an outcome.
    fn check(outcome: impl Fn(&RunSpec) -> Outcome) -> Vec<String> {
        let runs = twelve();
        let outcomes: Vec<Outcome> = runs.iter().map(outcome).collect();
        let verdicts = judge(&runs.iter().zip(&outcomes).collect::<Vec<_>>());
        assert!(verdicts.iter().all(|verdict| !verdict.held));
        verdicts.into_iter().map(|verdict| verdict.condition).collect()
    }

    #[test]
    fn repetitions_that_differ_pass() {
        let seeded = |run: &RunSpec| Outcome { offered: run.seed, ..Outcome::default() };
        assert_eq!(check(seeded), Vec::<String>::new());
        let third = |run: &RunSpec| Outcome {
            offered: 100 + u64::from(run.repetition == 2),
            ..Outcome::default()
        };
        assert_eq!(check(third), Vec::<String>::new(), "one that differs is enough");
    }

    #[test]
    fn a_run_that_is_counted_several_times_is_named() {
        let one = |run: &RunSpec| Outcome {
            offered: if run.variant.label == "pi" && run.conditions.load > 1.0 {
                100
            } else {
                run.seed
            },
            // The CPU time and the number of attempts may differ between equal runs.
            tidegate_cpu_s: run.seed as f64,
            attempts: run.repetition,
            ..Outcome::default()
        };
        let conditions = check(one);
        let said =
            "the repetitions of pi (arrival, class), load 2 must differ, but all 3 are equal";
        assert!(conditions.len() == 1 && conditions[0].starts_with(said), "{conditions:?}");
        assert_eq!(check(|_| Outcome { offered: 7, ..Outcome::default() }).len(), 4);
    }

    #[test]
    fn single_runs_and_runs_without_calls_are_not_compared() {
        assert_eq!(check(|_| Outcome::default()), Vec::<String>::new());
        let runs = twelve();
        let one = Outcome { offered: 7, ..Outcome::default() };
        let single: Vec<_> =
            runs.iter().filter(|run| run.repetition == 0).map(|run| (run, &one)).collect();
        assert_eq!(judge(&single), []);
    }
}
