//! Computes the scores of the runs of a tournament, and the rank of each law in a bout.

use serde::Serialize;

use super::Route;
use crate::outcome::Outcome;
use crate::run_spec::RunSpec;
use crate::spread::Spread;
use crate::worlds::possible_cps;

/// The score of one run: a row of `runs.csv`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Name of the bout.
    pub bout: String,
    /// Name of the law.
    pub law: &'static str,
    /// The path on which the law was run.
    #[serde(rename = "path")]
    pub route: Route,
    /// Seed of the run.
    pub seed: u64,
    /// Number of calls offered in the measured time.
    pub offered: u64,
    /// Number of offered calls that were set up within the deadline.
    pub good: u64,
    /// Goodput as a fraction of the capacity.
    #[serde(rename = "goodput_of_capacity")]
    pub goodput: f64,
    /// Goodput as a fraction of the greatest possible goodput, or `None` if no goodput is possible.
    #[serde(rename = "goodput_of_bound")]
    pub kept: Option<f64>,
    /// Set-up delay that 1 % of the calls exceeded, in ms. `None` if no call was set up.
    pub p99_ms: Option<f64>,
    /// Seconds from the last rise of the load above the capacity until the goodput was steady.
    /// `None` if the load did not rise above the capacity, or the goodput did not become steady.
    pub settled_s: Option<f64>,
    /// The fraction of the calls that was rejected although the processor had idle time within the
    /// last 0.1 s.
    #[serde(rename = "rejected_early")]
    pub early: f64,
    /// Jain's index of fairness among the sources. `None` if the index is not defined
    /// ([`Outcome::fairness`]).
    #[serde(rename = "jain")]
    pub fairness: Option<f64>,
    /// The fraction of the calls from the trunk (one large source) that was set up in time. `None`
    /// if there is no trunk.
    #[serde(rename = "trunk_in_time")]
    pub trunk: Option<f64>,
    /// The fraction of the calls from all sources other than the trunk that was set up in time.
    /// `None` if there is no trunk.
    #[serde(rename = "others_in_time")]
    pub others: Option<f64>,
}

/// The results of one law on one path in a bout.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Name of the law.
    pub law: &'static str,
    /// The path on which the law was run.
    pub route: Route,
    /// Goodput as a fraction of the capacity.
    pub goodput: Spread,
    /// Goodput as a fraction of the greatest possible goodput.
    pub kept: Option<Spread>,
    /// Set-up delay that 1 % of the calls exceeded, in ms. `None` if no call was set up in any run.
    pub p99_ms: Option<Spread>,
    /// Number of runs in which the goodput became steady after the load had last risen above the
    /// capacity, and the time in seconds from this rise.
    pub settled: (usize, Option<Spread>),
    /// The fraction of the calls that was rejected although the processor had idle time within the
    /// last 0.1 s.
    pub early: Spread,
    /// Jain's index of fairness among the sources. `None` if the index is not defined
    /// ([`Outcome::fairness`]).
    pub fairness: Option<Spread>,
    /// The fraction of the calls from the trunk (one large source) that was set up in time. `None`
    /// if there is no trunk.
    pub trunk: Option<Spread>,
    /// The fraction of the calls from all sources other than the trunk that was set up in time.
    /// `None` if there is no trunk.
    pub others: Option<Spread>,
    /// The rank of the law among all laws on this path.
    pub place: Place,
    /// The rank of the law among all laws on their own paths. `None` for results on the same path,
    /// if the law also has its own path.
    #[serde(skip)]
    pub own_place: Option<Place>,
    /// The score of each run, in the order of the seeds.
    #[serde(skip)]
    pub scores: Vec<Score>,
}

/// The rank of a law in a bout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The law has the highest mean goodput.
    First,
    /// The law is not clearly worse than the law with the highest mean goodput. Either its goodput
    /// is lower by at most 0.005 of the capacity, or the difference is not significant at a
    /// confidence of 95 %. A difference between single runs is never significant.
    Tied,
    /// The law is clearly worse than the law with the highest mean goodput.
    Behind,
}

/// The largest difference in goodput that is ignored, as a fraction of the capacity.
const ALIKE: f64 = 0.005;

impl Cell {
    /// Returns the rank of the law among all laws on `route`. Returns `None` if the law does not
    /// compete there with these results.
    pub fn place_on(&self, route: Route) -> Option<Place> {
        match route {
            Route::Same => (self.route == Route::Same).then_some(self.place),
            Route::Own => self.own_place,
        }
    }
}

impl Score {
    /// Computes the score of a run.
    pub fn of(
        bout: &str,
        law: &'static str,
        route: Route,
        run: &RunSpec,
        outcome: &Outcome,
    ) -> Self {
        let capacity = run.capacity_cps();
        let (from, to) = (run.warm_up, run.measured_until());
        let expected = {
            let load = crate::worlds::load(run, 1.0);
            load.calls_until(to) - load.calls_until(from)
        };
        let possible_cps = possible_cps(run, from, to, outcome.offered as f64 / expected);
        let early: u64 = outcome.nodes.iter().map(|node| node.early).sum();
        Self {
            bout: bout.to_owned(),
            law,
            route,
            seed: run.seed,
            offered: outcome.offered,
            good: outcome.good,
            goodput: outcome.goodput_cps() / capacity,
            kept: (possible_cps > 0.0).then(|| outcome.goodput_cps() / possible_cps),
            p99_ms: outcome.set_up_delay.map(|delay| delay.p99_ms),
            settled_s: outcome.settled_s,
            // Both numbers count from the start of the run, including the warm-up.
            early: early as f64 / outcome.counted("offered").max(1.0),
            fairness: outcome.fairness,
            trunk: outcome.trunk_in_time,
            others: outcome.others_in_time,
        }
    }
}

/// Returns a cell for each law and each path that occur in `scores`. The scores must be in the
/// order of their seeds. A law without its own path has only one cell. This cell also competes with
/// the cells of other laws on their own paths.
pub(super) fn cells(laws: &[&'static str], scores: &[Score]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for &law in laws {
        for route in Route::ALL {
            let own = scores.iter().filter(|score| (score.law, score.route) == (law, route));
            cells.extend(cell(law, route, own.cloned().collect()));
        }
    }
    for route in Route::ALL {
        // Laws without their own path also compete with the entrants on their own paths.
        let has_own =
            |cell: &Cell| cells.iter().any(|c| c.law == cell.law && c.route == Route::Own);
        let field: Vec<usize> = (0..cells.len())
            .filter(|&index| match route {
                Route::Same => cells[index].route == Route::Same,
                Route::Own => cells[index].route == Route::Own || !has_own(&cells[index]),
            })
            .collect();
        let best = field
            .iter()
            .copied()
            .max_by(|&a, &b| cells[a].goodput.mean.total_cmp(&cells[b].goodput.mean));
        let Some(best) = best else { continue };
        let first = cells[best].scores.clone();
        for index in field {
            let cell = &mut cells[index];
            let place = match index == best {
                true => Place::First,
                false => place(&first, &cell.scores),
            };
            if cell.route == route {
                cell.place = place;
            }
            if route == Route::Own {
                cell.own_place = Some(place);
            }
        }
    }
    cells
}

fn cell(law: &'static str, route: Route, scores: Vec<Score>) -> Option<Cell> {
    let spread = |of: fn(&Score) -> Option<f64>| Spread::of(scores.iter().filter_map(of));
    let settled = scores.iter().filter(|score| score.settled_s.is_some()).count();
    Some(Cell {
        law,
        route,
        goodput: spread(|score| Some(score.goodput))?,
        kept: spread(|score| score.kept),
        p99_ms: spread(|score| score.p99_ms),
        settled: (settled, spread(|score| score.settled_s)),
        early: spread(|score| Some(score.early))?,
        fairness: spread(|score| score.fairness),
        trunk: spread(|score| score.trunk),
        others: spread(|score| score.others),
        place: Place::Behind,
        own_place: None,
        scores,
    })
}

/// Returns the rank of a law. Compares its `scores` with `first`, the scores of the law with the
/// highest goodput, seed by seed.
fn place(first: &[Score], scores: &[Score]) -> Place {
    let pairs = first.iter().zip(scores).filter(|(a, b)| a.seed == b.seed);
    let behind = Spread::of(pairs.map(|(first, own)| first.goodput - own.goodput));
    match behind {
        Some(behind) if behind.mean <= ALIKE => Place::Tied,
        Some(Spread { ci95: Some([low, _]), .. }) if low > 0.0 => Place::Behind,
        _ => Place::Tied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{CallersOutcome, NodeOutcome};
    use crate::testing::planned;
    use crate::worlds::Kind;

    fn score(law: &'static str, route: Route, seed: u64, goodput: f64) -> Score {
        Score {
            bout: "steady".to_owned(),
            law,
            route,
            seed,
            offered: 100,
            good: 50,
            goodput,
            kept: Some(goodput),
            p99_ms: None,
            settled_s: (seed == 1).then_some(0.5),
            early: 0.0,
            fairness: None,
            trunk: None,
            others: None,
        }
    }

    #[test]
    fn early_rejections_and_offered_calls_are_those_of_the_whole_run() {
        let text = "[emulate]\nserve_us = 1000\n[[variant]]\noverload = {}\n";
        let run = planned(text, Kind::Sim).remove(0);
        let callers = |offered: u64| CallersOutcome {
            to: "server".to_owned(),
            stats: serde_json::json!({ "offered": offered }),
        };
        let outcome = Outcome {
            offered: 100,
            measured_s: 1.0,
            callers: vec![callers(150), callers(50)],
            nodes: vec![NodeOutcome { early: 20, ..NodeOutcome::default() }],
            ..Outcome::default()
        };
        let score = Score::of("steady", "pi", Route::Same, &run, &outcome);
        assert_eq!((score.offered, score.early), (100, 0.1));
    }

    #[test]
    fn an_entrant_is_tied_unless_it_is_worse_by_the_same_seeds() {
        let runs = |law, route, values: [f64; 3]| {
            let with = |(seed, value)| score(law, route, seed, value);
            (1..).zip(values).map(with).collect::<Vec<_>>()
        };
        let scores = [
            runs("a", Route::Same, [0.90, 0.80, 0.85]),
            runs("b", Route::Same, [0.88, 0.78, 0.83]),
            runs("c", Route::Same, [0.80, 0.85, 0.84]),
            runs("d", Route::Same, [0.896, 0.796, 0.846]),
            runs("b", Route::Own, [0.95, 0.95, 0.95]),
        ]
        .concat();
        let cells = cells(&["a", "b", "c", "d"], &scores);
        let places: Vec<_> = cells.iter().map(|cell| (cell.law, cell.route, cell.place)).collect();
        assert_eq!(
            places,
            [
                ("a", Route::Same, Place::First),
                // The goodput differs by 0.02 under every seed.
                ("b", Route::Same, Place::Behind),
                ("b", Route::Own, Place::First),
                ("c", Route::Same, Place::Tied),
                ("d", Route::Same, Place::Tied),
            ]
        );
        // Laws without their own path have another rank where others are on their own paths.
        let places = cells.iter().map(|cell| (cell.law, cell.place_on(Route::Own)));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [
                ("a", Some(Place::Tied)),
                ("b", None),
                ("b", Some(Place::First)),
                ("c", Some(Place::Behind)),
                ("d", Some(Place::Tied)),
            ]
        );
        assert_eq!(cells[2].place_on(Route::Same), None);
        // A single run has no confidence interval, so its difference is not significant.
        let single = [score("a", Route::Same, 1, 0.9), score("b", Route::Same, 1, 0.1)];
        let places: Vec<_> = super::cells(&["a", "b"], &single).iter().map(|c| c.place).collect();
        assert_eq!(places, [Place::First, Place::Tied]);
        assert_eq!(cells[0].settled.0, 1);
        assert_eq!(cells[0].settled.1.map(|spread| spread.mean), Some(0.5));
    }
}
