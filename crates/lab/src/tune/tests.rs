use std::path::Path;
use std::sync::Mutex;

use tidegate_control::registry;

use super::*;
use crate::store::Programs;
use crate::testing::scenario;

const SCENARIO: &str = "[emulate]\nserve_us = 1000\n[sweep]\nload = [2, 3]\n\
    [[variant]]\noverload = { law = \"none\" }\n\
    [[variant]]\noverload = { law = \"pi\", decide = \"service\" }\n\
    [schedule]\nseed = 5\nrepetitions = 2\n";

/// A world whose goodput is greatest when `k_pc` is 20 and `k_ic` is 1.
#[derive(Default)]
struct Hill(Mutex<Vec<(u64, f64)>>);

impl World for Hill {
    fn kind(&self) -> Kind {
        Kind::Sim
    }

    fn run(&self, run: &RunSpec, _: &Path, _: &AtomicBool) -> Result<Outcome, String> {
        let value = |name: &str| {
            let law = run.variant.overload.gate.law;
            law.each().find(|(param, _)| param.name == name).unwrap().1
        };
        assert_eq!(run.variant.decide(), "service", "of the variant with the law");
        self.0.lock().unwrap().push((run.seed, value("k_pc")));
        let far = (value("k_pc") / 20.0).ln().powi(2) + (value("k_ic") / 1.0).ln().powi(2);
        let goodput = 0.9 * (-far / 8.0).exp();
        let offered = run.rate_cps() * 100.0;
        let kept = goodput * run.bound(run.conditions.load) * 100.0 * run.capacity_cps();
        Ok(Outcome {
            offered: offered as u64,
            good: kept as u64,
            measured_s: 100.0,
            ..Outcome::default()
        })
    }
}

fn parameters(steps: u32) -> Parameters {
    let start = registry::find("pi").unwrap().defaults();
    let named = ["k_pc", "k_ic"];
    Parameters {
        scenario: scenario(SCENARIO),
        start,
        sought: start.each().map(|(p, _)| p).filter(|p| named.contains(&p.name)).collect(),
        objective: Objective::Goodput,
        steps,
        settings: Settings::default(),
    }
}

fn tuned(parameters: &Parameters, world: &Hill) -> Result<Tuned, String> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &Programs::running().unwrap()).unwrap();
    let cancelled = AtomicBool::new(false);
    let bench = Bench { world, store: &store, jobs: 2, cancelled: &cancelled };
    tune(parameters, &bench, &|_, _| {})
}

#[test]
fn the_best_parameters_are_found_and_judged_by_other_seeds() {
    let (parameters, world) = (parameters(300), Hill::default());
    let tuned = tuned(&parameters, &world).unwrap();
    let found: Vec<f64> = parameters.sought.iter().map(|param| tuned.found.of(param)).collect();
    assert!((14.0..28.0).contains(&found[0]) && (0.7..1.5).contains(&found[1]), "{found:?}");
    assert!(tuned.before.median < 0.65, "{:?}", tuned.before);
    assert!(tuned.after.median > 0.87, "{:?}", tuned.after);
    let mut seeds: Vec<u64> = world.0.lock().unwrap().iter().map(|(seed, _)| *seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds, [5, 6, 1_000_005, 1_000_006]);
}

#[test]
fn parameters_stay_within_their_bounds() {
    let mut parameters = parameters(1);
    parameters.settings.amplitude = 50.0;
    let tuned = tuned(&parameters, &Hill::default()).unwrap();
    let most: Vec<f64> =
        parameters.sought.iter().map(|param| *param.range.bounds().end()).collect();
    assert_eq!(tuned.path[0].tried, most);
}

#[test]
fn parameters_above_zero_are_tuned_by_default() {
    let start = registry::find("pi").unwrap().defaults();
    let names: Vec<&str> = Parameters::tunable(&start).iter().map(|param| param.name).collect();
    assert!(names.contains(&"k_pq") && names.contains(&"c_t"), "{names:?}");
    assert!(!names.contains(&"t_q") && !names.contains(&"adaptive"), "{names:?}");
}

#[test]
fn a_delay_is_in_multiples_of_the_deadline_and_no_set_up_is_the_worst() {
    let scenario = parameters(1).scenario;
    let run = runs(&scenario, Kind::Sim).remove(0);
    let mut outcome = Outcome::default();
    assert_eq!(Objective::Delay.of(&run, &outcome), 10.0);
    let p99_ms = run.conditions.deadline_ms / 2.0;
    outcome.set_up_delay = Some(crate::outcome::Quantiles { p99_ms, ..Default::default() });
    assert_eq!(Objective::Delay.of(&run, &outcome), 0.5);
}

#[test]
fn the_picture_has_a_line_for_each_parameter() {
    let parameters = parameters(12);
    let tuned = tuned(&parameters, &Hill::default()).unwrap();
    let figure = picture(&parameters, &tuned.path);
    let names: Vec<&str> = figure.panels[0].lines.iter().map(|line| &*line.name).collect();
    assert_eq!(names, ["k_pc", "k_ic"]);
    assert_eq!(figure.panels[1].lines[0].points.len(), 12);
    assert!(figure.svg().contains("</svg>"));
}
