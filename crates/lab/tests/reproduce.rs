//! Tests of the claims of the papers, and of the way from a claim to the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use tidegate_lab::outcome::{Generator, Outcome};
use tidegate_lab::progress::Lines;
use tidegate_lab::reproduce::{self, Claim, Claims, Finding, Grade, Page, Reproduction};
use tidegate_lab::run_spec::RunSpec;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::store::Programs;
use tidegate_lab::worlds::{Computed, Kind, World};

const SCENARIO: &str = r#"
title = "Two laws"
[workload]
open_max = 100
[emulate]
serve_us = 1000
[sweep]
load = [1, 2, 3]
[schedule]
repetitions = 3
[[variant]]
overload = { law = "none" }
[[variant]]
overload = { law = "pi" }
"#;

const CLAIMS: &str = r#"
paper = "x"
[[setup]]
id = "many"
scenario = "two"
change = { workload = { open_max = 200 } }
quick = { schedule = { measured_s = 1 } }
[[claim]]
id = "x-better"
place = "§1"
says = "pi keeps more than none"
setup = "many"
values.more = "goodput('pi', load=2) - goodput('none', load=2)"
values.least = "goodput(['pi', 'none'], load=[1, 2])|min"
reproduced = "more > 0.2 and lowest.least > 0.1"
partly = "more > 0"
shows = "{{ more }} more"
verdict = "reproduced"
paper = { more = 0.5, least = 0.2 }
planted = { more = 0.1 }
quick = true
[[claim]]
id = "x-other"
place = "§2"
says = "pi keeps everything"
setup = "many"
values.kept = "goodput('pi', load=3)"
reproduced = "kept > 0.99"
shows = "{{ kept }}"
verdict = "not"
paper = { kept = 1 }
planted = { kept = 0.5 }
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn each_rule_accepts_the_numbers_of_its_paper_and_no_planted_ones() {
    let scenarios = repository().join("scenarios");
    let claims = Claims::load(&scenarios.join("claims")).unwrap();
    reproduce::check(&claims, &scenarios).unwrap();
    assert!(claims.all().any(|claim| claim.quick && claim.verdict == Grade::Reproduced));
}

/// The range of five runs contains the true median with a probability of 94 %, that of three runs
/// with 75 %. Five runs of the farms of paper 003 would take more than an hour.
#[test]
fn each_claim_is_judged_by_at_least_five_seeds() {
    let scenarios = repository().join("scenarios");
    let claims = Claims::load(&scenarios.join("claims")).unwrap();
    for setup in claims.setups() {
        let changed = setup.change.get("schedule").and_then(|schedule| schedule.get("repetitions"));
        let seeds = changed.and_then(toml::Value::as_integer).unwrap_or_else(|| {
            let scenario = Scenario::load(&scenarios.join(format!("{}.toml", setup.scenario)));
            scenario.unwrap_or_else(|wrong| panic!("{wrong}")).schedule.repetitions.into()
        });
        let least = if setup.id.starts_with("003") { 3 } else { 5 };
        assert!(seeds >= least, "{}: {seeds} seeds", setup.id);
    }
}

#[test]
fn the_page_has_what_was_recorded_and_each_verdict_is_that_of_its_rule() {
    let claims = Claims::load(&repository().join("scenarios/claims")).unwrap();
    let page = Page::within(&repository().join("docs"));
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        page.update(&claims, &[], "").unwrap();
    }
    page.check(&claims).unwrap();
    // `tidegate-lab reproduce --check` also finds rows whose commit is not in the history. A test
    // may run without the history.
    let stale = page.stale(&claims, &repository().join("scenarios"), &|_| true).unwrap();
    assert!(stale.is_empty(), "{stale:?}");
}

/// A world in which the goodput of the law `pi` is the field `pi` times the capacity, and that of
/// `none` is 0.3 times the capacity. Each further seed adds a little.
struct Reckoned {
    pi: f64,
    runs: Mutex<Vec<String>>,
}

impl Reckoned {
    fn keeping(pi: f64) -> Self {
        Self { pi, runs: Mutex::default() }
    }
}

impl World for Reckoned {
    fn kind(&self) -> Kind {
        Kind::Sim
    }

    fn run(&self, run: &RunSpec, _: &Path, _: &AtomicBool) -> Result<Outcome, String> {
        assert_eq!(run.conditions.open_max, Some(200), "the changed value");
        let what = format!("{} {} {}", run.variant.label, run.conditions.load, run.seed);
        self.runs.lock().unwrap().push(what);
        let kept = if run.variant.label == "pi" { self.pi } else { 0.3 };
        let measured_s = run.measured.as_secs_f64();
        let calls = (kept + 0.01 * run.seed as f64) * run.capacity_cps() * measured_s;
        Ok(Outcome { good: calls.round() as u64, measured_s, ..Outcome::default() })
    }
}

/// A folder with a scenario, a file of two claims, and a page.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let desk = Self(folder);
        fs::create_dir(desk.at("claims")).unwrap();
        fs::write(desk.at("two.toml"), SCENARIO).unwrap();
        fs::write(desk.at("claims/x.toml"), CLAIMS).unwrap();
        let marks =
            "<!-- begin: tidegate-lab reproduce -->\n<!-- end: tidegate-lab reproduce -->\n";
        fs::write(desk.at("reproduction.md"), format!("before\n{marks}after\n")).unwrap();
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn claims(&self) -> Claims {
        Claims::load(&self.at("claims")).unwrap()
    }

    fn change(&self, from: &str, to: &str) {
        assert!(CLAIMS.contains(from), "{from}");
        fs::write(self.at("claims/x.toml"), CLAIMS.replace(from, to)).unwrap();
    }

    /// Changes the claims in their current form. [`change`](Self::change) starts from the initial
    /// claims.
    fn change_more(&self, from: &str, to: &str) {
        let claims = fs::read_to_string(self.at("claims/x.toml")).unwrap();
        assert!(claims.contains(from), "{from}");
        fs::write(self.at("claims/x.toml"), claims.replace(from, to)).unwrap();
    }

    fn perform(&self, world: &dyn World, row: &str, quick: bool) -> Result<Vec<Finding>, String> {
        let claims = self.claims();
        let selected: Vec<&Claim> =
            claims.all().filter(|claim| claim.id.starts_with(row)).collect();
        let reproduction = Reproduction {
            claims: &claims,
            scenarios: self.0.path(),
            folder: &tempfile::tempdir().unwrap().path().join("out"),
            programs: &Programs::running().unwrap(),
            world,
            jobs: 1,
            quick,
            observer: &Lines::new(std::io::sink()),
            cancelled: &AtomicBool::new(false),
        };
        Ok(reproduction.perform(&selected)?.expect("not cancelled"))
    }
}

#[test]
fn a_verdict_follows_from_the_medians_of_the_seeds() {
    let desk = Desk::new();
    let found = desk.perform(&Reckoned::keeping(0.8), "", false).unwrap();
    assert_eq!(
        (&*found[0].id, found[0].verdict, found[0].seeds),
        ("x-better", Grade::Reproduced, 3)
    );
    assert!((found[0].values["more"].median - 0.5).abs() < 0.01, "{found:?}");
    let least = found[0].values["least"];
    assert!((least.min - 0.31).abs() < 0.01 && (least.max - 0.33).abs() < 0.01, "{least:?}");
    assert_eq!(found[1].verdict, Grade::Not);
    // The same rules give other verdicts in other worlds.
    for (pi, verdicts) in [
        (0.4, [Grade::Partly, Grade::Not]),
        (0.2, [Grade::Not, Grade::Not]),
        (0.99, [Grade::Reproduced, Grade::Reproduced]),
    ] {
        let found = desk.perform(&Reckoned::keeping(pi), "", false).unwrap();
        assert_eq!([found[0].verdict, found[1].verdict], verdicts, "{pi}");
    }
}

#[test]
fn a_row_needs_only_the_runs_that_it_names_and_quick_one_seed_of_them() {
    let desk = Desk::new();
    let world = Reckoned::keeping(0.8);
    desk.perform(&world, "x-other", false).unwrap();
    assert_eq!(*world.runs.lock().unwrap(), ["pi 3 1", "pi 3 2", "pi 3 3"]);
    let world = Reckoned::keeping(0.8);
    let found = desk.perform(&world, "x-better", true).unwrap();
    assert_eq!(found[0].seeds, 1);
    let runs = world.runs.lock().unwrap();
    assert_eq!(*runs, ["none 1 1", "none 2 1", "pi 1 1", "pi 2 1"]);
}

#[test]
fn identical_repetitions_get_no_verdict() {
    let same = Computed::new(Kind::Sim, |_, _, _| {
        Ok(Outcome { offered: 100, good: 100, measured_s: 1.0, ..Outcome::default() })
    });
    let wrong = Desk::new().perform(&same, "", false).unwrap_err();
    assert!(wrong.contains("the repetitions of"), "{wrong}");
}

#[test]
fn a_run_whose_callers_did_not_offer_its_load_gets_no_verdict() {
    // Callers begin too few calls.
    let limited = Computed::new(Kind::Sim, |run, _, _| {
        let too_slow = Some("too many calls were open".to_owned());
        let generator = Generator { too_slow, ..Generator::default() };
        Ok(Outcome { offered: run.seed, generator, measured_s: 1.0, ..Outcome::default() })
    });
    let wrong = Desk::new().perform(&limited, "", false).unwrap_err();
    assert!(wrong.contains("too slow: too many calls were open"), "{wrong}");
}

#[test]
fn the_page_shows_findings_and_differs_once_a_rule_or_the_page_is_changed() {
    let desk = Desk::new();
    let page = Page::within(desk.0.path());
    assert!(page.check(&desk.claims()).is_err(), "nothing was run");
    let found = desk.perform(&Reckoned::keeping(0.8), "", false).unwrap();
    page.update(&desk.claims(), &found, "abc").unwrap();
    page.check(&desk.claims()).unwrap();
    let text = fs::read_to_string(&page.page).unwrap();
    assert!(text.starts_with("before\n<!-- begin") && text.ends_with("-->\nafter\n"), "{text}");
    let row = "| §1: pi keeps more than none | reproduced | 0.50 more | \
               `more > 0.2 and lowest.least > 0.1` | 3 of `x-better`, abc |";
    assert!(text.lines().any(|line| line == row), "{text}");
    assert!(text.contains("experiments for 2 claims: 1 are reproduced, 0 partly, and 1 not"));

    // New findings of one claim do not change those of the others.
    let found = desk.perform(&Reckoned::keeping(0.7), "x-better", false).unwrap();
    page.update(&desk.claims(), &found, "def").unwrap();
    let changed = fs::read_to_string(&page.page).unwrap();
    assert!(changed.contains("0.40 more") && changed.contains("`x-better`, def"), "{changed}");
    assert!(changed.contains("3 of `x-other`, abc"), "{changed}");

    desk.change("more > 0.2 and", "more > 0.45 and");
    assert!(page.check(&desk.claims()).unwrap_err().contains("x-better"), "another verdict");
    desk.change("says = \"pi keeps more", "says = \"pi has more");
    assert!(page.check(&desk.claims()).unwrap_err().contains("differs from what"), "another claim");
    desk.change("pi", "pi");
    page.check(&desk.claims()).unwrap();
    fs::write(&page.page, changed.replace("0.40 more", "0.90 more")).unwrap();
    assert!(
        page.check(&desk.claims()).unwrap_err().contains("differs from what"),
        "an edited number"
    );
}

#[test]
fn a_row_that_a_command_measures_has_the_commit_of_its_program() {
    let desk = Desk::new();
    let measured = "place = \"§3\"\nsays = \"it is cheap\"\nverdict = \"partly\"\n\
                    shows = \"2 µs\"\ncommand = \"make show-it\"\n";
    let rows = format!("[[measured]]\n{measured}commit = \"abc\"\n[[measured]]\n{measured}");
    fs::write(desk.at("claims/x.toml"), CLAIMS.to_owned() + &rows).unwrap();
    let commits = desk.claims().measured_commits();
    assert_eq!(commits.into_iter().collect::<Vec<_>>(), [("abc".to_owned(), 1)]);
    let page = Page::within(desk.0.path());
    page.update(&desk.claims(), &[], "def").unwrap();
    let text = fs::read_to_string(&page.page).unwrap();
    for command in ["`make show-it`, abc", "`make show-it`"] {
        let row = format!("| §3: it is cheap | partly | 2 µs |  | {command} |");
        assert!(text.lines().any(|line| line == row), "{text}");
    }
}

/// Rows are run again one after another, so a row must not wait for the others.
#[test]
fn a_row_can_be_written_while_another_one_lacks_a_value() {
    let desk = Desk::new();
    let page = Page::within(desk.0.path());
    let found = desk.perform(&Reckoned::keeping(0.8), "", false).unwrap();
    page.update(&desk.claims(), &found, "abc").unwrap();
    desk.change("kept", "held");
    let lacking = page.check(&desk.claims()).unwrap_err();
    assert!(lacking.starts_with("x-other: the record has no values of this claim"), "{lacking}");
    let found = desk.perform(&Reckoned::keeping(0.7), "x-better", false).unwrap();
    page.update(&desk.claims(), &found, "def").unwrap();
    let text = fs::read_to_string(&page.page).unwrap();
    assert!(text.contains("0.40 more") && text.contains("not run yet"), "{text}");
    let found = desk.perform(&Reckoned::keeping(0.8), "x-other", false).unwrap();
    page.update(&desk.claims(), &found, "def").unwrap();
    page.check(&desk.claims()).unwrap();
}

#[test]
fn a_row_is_stale_once_its_scenario_or_rule_has_changed_or_its_commit_is_lost() {
    let desk = Desk::new();
    let page = Page::within(desk.0.path());
    let found = desk.perform(&Reckoned::keeping(0.8), "", false).unwrap();
    page.update(&desk.claims(), &found, "abc").unwrap();
    let stale_in = |history: &str| -> Vec<String> {
        let has_commit = |commit: &str| history.contains(commit);
        let stale = page.stale(&desk.claims(), desk.0.path(), &has_commit).unwrap();
        stale.into_iter().map(|stale| format!("{}: {}", stale.id, stale.reason)).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(stale_in("abc def"), none);

    // The verdicts stay the same, so only this check notices these changes.
    for (from, to) in [
        ("goodput('pi', load=3)\"", "goodput('pi', load=2)\""),
        ("reproduced = \"kept > 0.99\"", "reproduced = \"kept > 0.98\""),
        ("verdict = \"not\"", "partly = \"kept > 0.9\"\nverdict = \"not\""),
    ] {
        desk.change(from, to);
        assert_eq!(stale_in("abc"), ["x-other: its rule has changed"], "{to}");
    }
    desk.change("open_max = 200", "open_max = 300");
    let scenario = ["x-better: its scenario has changed", "x-other: its scenario has changed"];
    assert_eq!(stale_in("abc"), scenario);
    desk.change("pi", "pi");
    fs::write(desk.at("two.toml"), SCENARIO.replace("serve_us = 1000", "serve_us = 999")).unwrap();
    assert_eq!(stale_in("abc"), scenario);

    // A change of titles or comments changes no run.
    let other = SCENARIO.replace("Two laws", "Laws") + "# A comment.\n";
    fs::write(desk.at("two.toml"), other).unwrap();
    desk.change("measured_s = 1 }", "measured_s = 2 }");
    assert_eq!(stale_in("abc"), none);

    let lost = "its commit abc is not in the history";
    assert_eq!(stale_in("def"), ["x-better", "x-other"].map(|id| format!("{id}: {lost}")));
    let record = fs::read_to_string(&page.record).unwrap();
    let mut old: serde_json::Value = serde_json::from_str(&record).unwrap();
    old["x-other"].as_object_mut().unwrap().remove("origin").unwrap();
    fs::write(&page.record, old.to_string()).unwrap();
    let unknown = "x-other: the record does not name its scenario and its rule";
    assert_eq!(stale_in("abc"), [unknown]);
}

#[test]
fn a_value_that_is_no_number_gets_no_verdict() {
    for (expression, reason) in [
        // The runs have no outage, and no call is set up in them.
        ("goodput_end('pi', load=3)", "`goodput_end` has no value"),
        ("[goodput_end('pi', load=3), 2]|min", "`goodput_end` has no value"),
        ("delay_ms('pi', load=3)", "`delay_ms` has no value"),
        // At no load of the sweep are enough requests handled.
        ("peak('pi')", "`peak` has no value"),
        ("cps('pi', load=3) / cps('none', load=3)", "unable to calculate 0.0 / 0.0"),
        ("goodput('pi', load=3) * 1e308 * 1e308", "is inf for a seed"),
    ] {
        let desk = Desk::new();
        desk.change("goodput('pi', load=3)", expression);
        desk.change_more("kept > 0.99", "kept > 0.99 or kept <= 0.99");
        let said = desk.perform(&Reckoned::keeping(0.8), "x-other", false).unwrap_err();
        assert!(said.starts_with("x-other: ") && said.contains(reason), "{expression}: {said}");
    }
}

#[test]
fn wrong_claims_are_named_before_anything_runs() {
    for (from, to, wrong) in [
        (
            "planted = { more = 0.1 }",
            "planted = { more = 0.9 }",
            "the rule also gives `reproduced` with the wrong numbers",
        ),
        (
            "planted = { more = 0.1 }",
            "planted = [{ more = 0.1 }, { least = 0.3 }]",
            "with the wrong numbers in `planted`: {\"least\": 0.3}",
        ),
        ("planted = { more = 0.1 }", "planted = []", "`planted` has no wrong numbers"),
        ("more > 0.2 and", "more > 0.7 and", "of the paper the rule gives `partly`"),
        ("paper = { more = 0.5, least", "paper = { least", "a number for each"),
        (
            "planted = { more = 0.1 }",
            "planted = { mor = 0.1 }",
            "`mor`, which is not one of `values`",
        ),
        ("goodput('none', load=2)", "goodput('none', load=4)", "load = 4"),
        ("goodput('none', load=2)", "goodput('nine', load=2)", "no variant `nine`"),
        ("goodput('none', load=2)", "godput('none', load=2)", "godput"),
        (
            "goodput('none', load=2)",
            "goodput('none', load=2, from_s=1)",
            "`goodput` applies to a whole run",
        ),
        (
            "goodput('none', load=2)",
            "jain('none', load=2, source=2)",
            "`jain` counts the callers of all servers, without `source`",
        ),
        (
            "goodput('none', load=2)",
            "goodput('none', load=[])",
            "a list in the expression is empty",
        ),
        (
            "goodput('pi', load=3)",
            "goodput('pi', load=3, setup='few')",
            "`few` is not the name of a set-up",
        ),
        ("shows = \"{{ more }} more\"", "shows = \"{{ mor }} more\"", "x-better"),
        ("open_max = 200", "open_maxi = 200", "open_maxi"),
        ("scenario = \"two\"", "scenario = \"three\"", "three.toml"),
    ] {
        let desk = Desk::new();
        desk.change(from, to);
        let said = reproduce::check(&desk.claims(), desk.0.path()).unwrap_err();
        assert!(said.contains(wrong), "{from} → {to}: {said}");
    }
    let desk = Desk::new();
    for (from, to, wrong) in [
        ("id = \"x-other\"", "id = \"x-better\"", "are called `x-better`"),
        ("verdict = \"not\"", "verdict = \"no\"", "no"),
    ] {
        desk.change(from, to);
        let said = Claims::load(&desk.at("claims")).unwrap_err();
        assert!(said.contains(wrong) && said.contains("claims"), "{said}");
    }
}
