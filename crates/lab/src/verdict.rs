//! Compares results with the expectations of a scenario.

use serde::{Deserialize, Serialize};

use crate::run_spec::RunSpec;
use crate::scenario::{Expectation, Variant};
use crate::summary::Row;

/// An expected result, and whether the actual results agree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Verdict {
    /// The expectation and the actual result in one line, with the reason if the verdict is not
    /// valid.
    pub condition: String,
    /// True if the verdict is valid and the expectation was met.
    pub held: bool,
    /// True if the results describe the server. False if the load generator was too slow or lost
    /// datagrams, or if runs are missing.
    pub valid: bool,
}

impl Verdict {
    /// Returns the word for the verdict in reports: `ok`, `FAIL` or `not valid`.
    pub fn word(&self) -> &'static str {
        match (self.valid, self.held) {
            (false, _) => "not valid",
            (true, true) => "ok",
            (true, false) => "FAIL",
        }
    }
}

/// Compares `rows` with the expectations of a scenario. `planned` are all runs of the scenario. An
/// expectation is not met if its runs are missing, or if no goodput is possible in them. A verdict
/// is not valid if planned runs are missing, or if the load generator was too slow or lost
/// datagrams in one of the runs.
pub fn judge<'a>(
    expectations: &[Expectation],
    planned: impl Iterator<Item = &'a RunSpec> + Clone,
    rows: &[Row],
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let repetitions = planned.clone().map(|run| run.repetition + 1).max().unwrap_or(0);
    for expected in expectations {
        // No list and an empty list both mean all loads.
        let loads = expected.loads.as_deref().unwrap_or_default();
        let concerns = |variant: &Variant, load: f64| {
            variant.name() == expected.variant && (loads.is_empty() || loads.contains(&load))
        };
        let concerned = |row: &&Row| concerns(&row.variant, row.load);
        // If all runs of a parameter set failed, it has no row.
        let lacks_row = |run: &&RunSpec| {
            run.repetition == 0
                && concerns(&run.variant, run.conditions.load)
                && !rows.iter().any(|row| row.includes(run))
        };
        let lacking = planned.clone().filter(lacks_row);
        let lacking =
            lacking.map(|run| format!("at load {}, all runs are missing", run.conditions.load));
        let rows: Vec<&Row> = rows.iter().filter(concerned).collect();
        let complete = loads.iter().all(|load| rows.iter().any(|row| row.load == *load));
        let share = |row: &&Row| row.goodput_of_bound.map_or(f64::NAN, |spread| spread.median);
        let by_share = |a: &&&Row, b: &&&Row| share(a).total_cmp(&share(b));
        // `total_cmp` orders NaN above every number, so the minimum would hide it.
        let judged = rows.iter().all(|row| row.goodput_of_bound.is_some()) && complete;
        let doubted = rows.iter().filter_map(|row| doubt(row, repetitions as usize));
        let doubts: Vec<String> = doubted.chain(lacking).collect();
        let valid = doubts.is_empty();
        let doubts: String = doubts.iter().map(|doubt| format!("; {doubt}")).collect();
        let held_at = |row: &Row| format!("{:.0} % at load {}", share(&row) * 100.0, row.load);
        let mut verdict = |limit: Option<f64>, worst: Option<&&Row>, most: bool| {
            let Some(limit) = limit else { return };
            let word = if most { "at most" } else { "at least" };
            let what =
                format!("{} has {word} {:.0} % of the bound", expected.variant, limit * 100.0);
            let found = worst.map_or_else(|| "not run".to_owned(), |row| held_at(row));
            let kept = |row: &&Row| if most { share(row) <= limit } else { share(row) >= limit };
            let held = judged && valid && worst.is_some_and(kept);
            let extreme = if most { "most" } else { "least" };
            let condition = format!("{what}: {extreme} {found}{doubts}");
            verdicts.push(Verdict { condition, held, valid });
        };
        verdict(expected.goodput_of_bound_min, rows.iter().min_by(by_share), false);
        verdict(expected.goodput_of_bound_max, rows.iter().max_by(by_share), true);
    }
    verdicts
}

/// Returns the reasons why the runs of `row` may not describe the server, or `None` if there is no
/// such reason.
fn doubt(row: &Row, repetitions: usize) -> Option<String> {
    let mut reasons = Vec::new();
    if row.runs < repetitions {
        reasons.push(format!("{} of {repetitions} runs are missing", repetitions - row.runs));
    }
    if row.too_slow > 0 {
        reasons
            .push(format!("the generator was too slow in {} of {} runs", row.too_slow, row.runs));
    }
    if row.drops > 0 {
        reasons.push(format!("the generator lost {} datagrams", row.drops));
    }
    (!reasons.is_empty()).then(|| format!("at load {}, {}", row.load, reasons.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::summary;
    use crate::testing;
    use crate::worlds::Kind;

    /// Returns the runs of 1,000 s at each load of a sweep.
    fn planned(sweep: &str, repetitions: u32) -> Vec<RunSpec> {
        let text = format!(
            "[emulate]\nserve_us = {{ default = 2000, invite = 0 }}\n[sweep]\n{sweep}\n\
             [schedule]\nrepetitions = {repetitions}\nmeasured_s = 1000\n\
             [[variant]]\noverload = {{ law = \"pi\" }}\n"
        );
        testing::planned(&text, Kind::Real)
    }

    const LOADS: &str = "load = [1, 2]";

    /// Returns a row for one run at each load, with these goodputs as fractions of the capacity,
    /// which is 100 calls/s. Rejections cost nothing.
    fn rows(goodput: [f64; 2]) -> Vec<Row> {
        let runs = planned(LOADS, 1);
        let outcomes: Vec<Outcome> = std::iter::zip(&runs, goodput)
            .map(|(run, goodput)| Outcome {
                offered: (run.conditions.load * 100_000.0) as u64,
                good: (goodput * 100_000.0) as u64,
                measured_s: 1000.0,
                ..Outcome::default()
            })
            .collect();
        summary::rows(runs.iter().zip(&outcomes))
    }

    fn expect(min: Option<f64>, max: Option<f64>, loads: &[f64]) -> Expectation {
        Expectation {
            variant: "pi (arrival, class)".to_owned(),
            loads: Some(loads.to_vec()),
            goodput_of_bound_min: min,
            goodput_of_bound_max: max,
        }
    }

    fn held(expected: Expectation, rows: &[Row]) -> bool {
        let verdicts = judge(&[expected], planned(LOADS, 1).iter(), rows);
        assert_eq!(verdicts.len(), 1);
        verdicts[0].held
    }

    #[test]
    fn an_expectation_limits_the_worst_share_at_all_loads_or_the_named_ones() {
        let rows = rows([0.95, 0.7]);
        assert!(held(expect(Some(0.7), None, &[]), &rows));
        assert!(!held(expect(Some(0.71), None, &[]), &rows));
        assert!(held(expect(Some(0.9), None, &[1.0]), &rows));
        assert!(held(expect(None, Some(0.96), &[]), &rows));
        assert!(!held(expect(None, Some(0.94), &[]), &rows));
        assert!(held(expect(None, Some(0.94), &[2.0]), &rows));
    }

    #[test]
    fn conditions_of_missing_runs_do_not_hold() {
        let rows = rows([1.0, 1.0]);
        assert!(!held(expect(Some(0.1), None, &[3.0]), &rows));
        assert!(!held(expect(Some(0.1), None, &[1.0, 3.0]), &rows));
        assert!(!held(expect(None, Some(1.0), &[]), &[]));
    }

    #[test]
    fn no_verdict_is_valid_if_the_generator_or_a_run_failed() {
        let judged = |change: &dyn Fn(&mut Row), limit: Expectation, repetitions| {
            let mut rows = rows([0.1, 0.9]);
            change(&mut rows[0]);
            let verdict = judge(&[limit], planned(LOADS, repetitions).iter(), &rows).remove(0);
            assert_eq!(verdict.held, verdict.word() == "ok");
            (verdict.word(), verdict.condition)
        };
        let most = || expect(None, Some(0.2), &[1.0]);
        let least = || expect(Some(0.8), None, &[]);
        let kept_up = |_: &mut Row| {};
        assert_eq!(judged(&kept_up, most(), 1).0, "ok");
        assert_eq!(judged(&kept_up, least(), 1).0, "FAIL");
        // A generator that is too slow has a low goodput too.
        let slow = |row: &mut Row| row.figures.too_slow = 1;
        let lossy = |row: &mut Row| row.figures.drops = 7;
        for (change, repetitions, reason) in [
            (
                &slow as &dyn Fn(&mut Row),
                1,
                "; at load 1, the generator was too slow in 1 of 1 runs",
            ),
            (&lossy, 1, "; at load 1, the generator lost 7 datagrams"),
            (&kept_up, 3, "; at load 1, 2 of 3 runs are missing"),
        ] {
            for limit in [most(), least()] {
                let (word, condition) = judged(change, limit, repetitions);
                assert_eq!(word, "not valid", "{condition}");
                assert!(condition.contains(reason), "{condition}");
            }
        }
        // Runs at other loads than those of the expectation do not affect the verdict.
        assert_eq!(judged(&slow, expect(Some(0.8), None, &[2.0]), 1).0, "ok");
    }

    /// If all runs at one load, or with one value of another axis, have failed, these runs have no
    /// row. The verdict must not be `ok` then.
    #[test]
    fn no_verdict_is_valid_if_all_runs_of_a_parameter_set_are_missing() {
        let judged = |sweep: &str, limit: Expectation| {
            let rows = rows([0.95, 0.7]);
            let verdict = judge(&[limit], planned(sweep, 1).iter(), &rows).remove(0);
            (verdict.word(), verdict.condition)
        };
        let least = |loads: &[f64]| expect(Some(0.5), None, loads);
        assert_eq!(judged(LOADS, least(&[])).0, "ok");
        let (word, condition) = judged("load = [1, 2, 10]", least(&[]));
        assert_eq!(word, "not valid");
        assert!(
            condition.ends_with("least 70 % at load 2; at load 10, all runs are missing"),
            "{condition}"
        );
        assert_eq!(judged("load = [1, 2, 10]", least(&[1.0, 2.0])).0, "ok");
        let (word, condition) = judged("load = [1, 2]\nqueue_max = [256, 512]", least(&[2.0]));
        assert_eq!(word, "not valid", "{condition}");
    }

    #[test]
    fn a_verdict_states_the_expectation_and_the_result() {
        let planned = planned(LOADS, 1);
        let limit = expect(Some(0.8), None, &[]);
        let verdicts = judge(&[limit], planned.iter(), &rows([0.95, 0.7]));
        let expected = "pi (arrival, class) has at least 80 % of the bound: least 70 % at load 2";
        assert_eq!(verdicts[0].condition, expected);
    }
}
