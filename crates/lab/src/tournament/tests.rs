use tidegate_control::Decide;
use tidegate_proxy::{Disposal, Overload, Queueing};

use super::*;
use crate::outcome::Generator;
use crate::worlds::{Computed, Simulated};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/tournament")
}

fn tournament(selection: Selection) -> Result<Tournament, String> {
    Tournament::load(&folder(), selection)
}

fn selection(laws: &[&str], scenarios: &[&str], seeds: u32) -> Selection {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Selection { laws: owned(laws), scenarios: owned(scenarios), seeds, speeds: vec![1.0] }
}

#[test]
fn every_law_takes_part_in_every_bout_under_the_same_seeds() {
    let all = tournament(selection(&[], &[], 10)).unwrap();
    let bouts = all.bouts();
    assert!(bouts.len() >= 15, "{}", bouts.len());
    for bout in &bouts {
        for entry in registry::LAWS.iter() {
            let own = bout.runs.iter().filter(|run| run.law == entry.name);
            let seeds = |route| {
                let runs = own.clone().filter(move |run| run.route == route);
                runs.map(|run| run.spec.seed).collect::<Vec<_>>()
            };
            assert_eq!(seeds(Route::Same), (1..=10).collect::<Vec<_>>(), "{}", entry.name);
            let on_one_path = own.clone().filter(|run| run.route == Route::Same).all(|run| {
                let Overload { gate, queueing, disposal, .. } = &run.spec.variant.overload;
                let is_own_law = gate.law == entry.defaults() && gate.decide == Decide::Arrival;
                is_own_law && (*queueing, *disposal) == (Queueing::Class, Disposal::Reject)
            });
            assert!(on_one_path, "{}", entry.name);
            assert!([0, 10].contains(&seeds(Route::Own).len()), "{}", entry.name);
        }
    }
    assert_eq!(all.runs(), bouts.iter().map(|bout| bout.runs.len()).sum::<usize>());
}

#[test]
fn sources_have_fair_shares_on_both_paths_of_one_bout_and_on_none_of_the_other() {
    let both = tournament(selection(&["tide", "asterisk"], &["sources", "sources-fair"], 1));
    let bouts = both.unwrap().bouts();
    for bout in &bouts {
        let routes: Vec<Route> = bout.runs.iter().map(|run| run.route).collect();
        assert_eq!(routes, [Route::Same, Route::Same, Route::Own], "{}", bout.name);
        let as_named = |run: &Entry| {
            run.spec.variant.overload.gate.sources.fair == (bout.name == "sources-fair")
        };
        assert!(bout.runs.iter().all(as_named), "{}", bout.name);
        let conditions = &bout.runs[0].spec.conditions;
        assert!(conditions.trunk > 0.0, "{}", bout.name);
        // Each small source offers more than 40 calls, so its fairness is defined (at least 20
        // calls).
        let (load, small) = (bout.runs[0].spec.rate_cps(), 1.0 - conditions.trunk);
        let measured_s = bout.runs[0].spec.measured.as_secs_f64();
        assert!(load * small * measured_s / f64::from(conditions.sources) > 40.0);
    }
    assert_eq!(bouts.len(), 2);
}

#[test]
fn an_unknown_name_is_an_error() {
    let error = tournament(selection(&["tyde"], &[], 1)).unwrap_err();
    assert!(error.starts_with("there is no law `tyde`; there are none, tide"), "{error}");
    let error = tournament(selection(&[], &["stedy"], 1)).unwrap_err();
    assert!(error.starts_with("there is no scenario `stedy`; there are "), "{error}");
}

/// Equal runs would give each difference an interval without width.
#[test]
fn runs_that_do_not_describe_a_law_give_no_rank() {
    let run = |seeds, outcome: Outcome| {
        let one = tournament(selection(&["tide"], &["step"], seeds)).unwrap();
        let same = Computed::new(Kind::Sim, |_, _, _| Ok(outcome.clone()));
        one.run(&same, 1, &AtomicBool::new(false), |_| ()).map(|_| ())
    };
    let outcome = Outcome { offered: 100, good: 100, measured_s: 1.0, ..Outcome::default() };
    let equal = run(2, outcome.clone()).unwrap_err();
    assert!(equal.starts_with("step: the repetitions of tide"), "{equal}");
    assert_eq!(run(1, outcome.clone()), Ok(()));
    let too_slow = Some("too many calls were open".to_owned());
    let generator = Generator { too_slow, ..Generator::default() };
    let doubted = run(1, Outcome { generator, ..outcome }).unwrap_err();
    assert!(doubted.contains("too slow: too many calls were open"), "{doubted}");
}

/// A stopped run is not a failed run, even if all runs of its bout had started.
#[test]
fn a_cancelled_tournament_has_no_results_and_no_error() {
    let one = tournament(selection(&["tide"], &["step"], 1)).unwrap();
    assert_eq!(one.runs(), 1);
    let stopped = Computed::new(Kind::Sim, |_, _, cancelled| {
        cancelled.store(true, SeqCst);
        Err("stopped".to_owned())
    });
    let results = one.run(&stopped, 1, &AtomicBool::new(false), |_| panic!("a bout ended"));
    assert!(results.unwrap().is_none());
}

#[test]
fn a_tournament_is_the_same_each_time_its_seeds_differ_and_its_files_show_it() {
    let laws = ["none", "tide", "asterisk", "codel"];
    let small = tournament(selection(&laws, &["step"], 2)).unwrap();
    let run = |jobs| {
        let (world, go_on) = (Simulated::new(), AtomicBool::new(false));
        let mut ended = 0;
        let results = small.run(&world, jobs, &go_on, |_| ended += 1).unwrap().unwrap();
        assert_eq!(ended, 1);
        results
    };
    let results = run(2);
    let [bout] = &*results.bouts else { panic!("{}", results.bouts.len()) };
    let tide = bout.on("tide", Route::Same).unwrap();
    let [first, second] = &*tide.scores else { panic!("{}", tide.scores.len()) };
    assert_ne!(first.offered, second.offered);
    let none = bout.on("none", Route::Same).unwrap();
    assert_eq!(none.scores[0].offered, first.offered, "the same calls");
    assert!(tide.goodput.mean > none.goodput.mean, "{} {}", tide.goodput.mean, none.goodput.mean);
    assert_eq!(bout.on("asterisk", Route::Own).map(|cell| cell.route), Some(Route::Own));

    // On its own path, codel has other parameters than on the same path.
    assert_eq!(results.tuned, ["codel"]);
    assert!(report::win(&results, "asterisk").is_some());
    assert_eq!(report::win(&results, "codel"), None);

    let [out, again] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let page = results.write(out.path()).unwrap();
    run(1).write(again.path()).unwrap();
    for name in ["runs.csv", "results.json", "report.html", "settling.svg"] {
        let [one, other] = [&out, &again].map(|folder| fs::read(folder.path().join(name)).unwrap());
        assert!(one == other, "{name} differs");
    }
    let page = fs::read_to_string(page).unwrap();
    for shown in
        ["<h1>Every law in every scenario</h1>", "asterisk", "Jain", "<svg", "settled after"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    let csv = fs::read_to_string(out.path().join("runs.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * bout.cells.len(), "{csv}");
}
