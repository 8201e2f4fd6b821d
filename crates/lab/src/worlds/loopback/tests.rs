use tidegate_agent::Measured;

use super::*;
use crate::testing::planned;

/// Returns a run on real sockets of a scenario with these further lines.
fn run_with(lines: &str) -> RunSpec {
    let text = format!(
        "[emulate]\nserve_us = 1000\n[schedule]\nwarm_up_s = 0\nmeasured_s = 10\n\
         sample_ms = 4000\n[[variant]]\noverload = {{}}\n{lines}"
    );
    planned(&text, Kind::Real).remove(0)
}

/// If real sockets ignored the condition, the results would name it although it had no effect.
#[test]
fn a_condition_that_exists_only_in_simulated_time_is_rejected() {
    let fault = |keys: &str| format!("[[fault]]\nat_s = 1\nfor_s = 1\n{keys}");
    for (lines, named) in [
        ("[tcp]\n", "`[tcp]`"),
        ("[[link]]\nloss = 0.1\n", "`[[link]]`"),
        ("[workload]\ngoodput = \"acknowledged\"\n", "acknowledged"),
        ("[workload]\nsources = 2\n", "`sources`"),
        ("[workload]\ntrunk = 0.5\n", "`trunk`"),
        ("[disturbance]\ncosts = \"pareto\"\n", "`[disturbance]`"),
        ("[disturbance]\nstolen_ms = 10\n", "`[disturbance]`"),
        (&*fault("kind = \"crash\"\nsilent = true\n"), "`silent = true`"),
        (&*fault("kind = \"resolver\"\nfails = 1\n"), "`[[fault]]`"),
    ] {
        let error = check(&run_with(lines)).unwrap_err();
        assert!(error.contains(named) && error.contains("--world sim"), "{lines}: {error}");
    }
}

#[test]
fn a_condition_that_exists_on_real_sockets_is_accepted() {
    for lines in [
        "",
        "[disturbance]\ncosts = \"constant\"\n",
        "[workload]\nsources = 1\ntrunk = 0\n",
        "[[fault]]\nat_s = 1\nfor_s = 1\nkind = \"crash\"\n",
        "[[fault]]\nat_s = 1\nfor_s = 1\nkind = \"stall\"\n",
    ] {
        assert_eq!(check(&run_with(lines)), Ok(()), "{lines}");
    }
}

#[test]
fn a_fault_that_touches_another_one_ends_before_the_other_begins() {
    let s = Duration::from_secs;
    let stall = |at: u32| format!("[[fault]]\nkind = \"stall\"\nat_s = {at}\nfor_s = 2\n");
    let expected = [
        (s(2), Some(Step::Stop(0, s(4)))),
        (s(4), Some(Step::Continue(0, s(4)))),
        (s(4), Some(Step::Stop(0, s(6)))),
        (s(4), None),
        (s(6), Some(Step::Continue(0, s(6)))),
    ];
    for faults in [stall(2) + &stall(4), stall(4) + &stall(2)] {
        assert_eq!(agenda(&run_with(&faults))[..5], expected, "{faults}");
    }
}

#[test]
fn a_generator_with_a_busy_answerer_is_too_slow() {
    let answerer = |busy_ms: u64| Done {
        stats: AnswererStats::default(),
        drops: 0,
        cpu: Duration::from_millis(busy_ms),
        wall: Duration::from_secs(1),
    };
    let used = |busy_ms| {
        let answers = [answerer(100), answerer(busy_ms)];
        used(&run_with(""), &[], &answers, &Busiest::default())
    };
    let generator = used(950);
    assert_eq!((generator.answerer_load, generator.too_slow), (0.95, None));
    let generator = used(970);
    let reason = generator.too_slow.as_deref().unwrap();
    assert!(reason.contains("an answerer used 97 % of a core"), "{reason}");
    assert!(!generator.kept_up());
}

/// A run is longer than its load. So the answerer's load is only 94.7 % over the whole run,
/// although it is above 95 % during the load.
#[test]
fn an_answerer_that_is_busy_during_the_load_is_too_slow() {
    let ms = Duration::from_millis;
    let (stats, cpu, wall) = (AnswererStats::default(), ms(12_500), ms(13_200));
    let answers = [Done { stats, drops: 0, cpu, wall }];
    let run = run_with("");
    assert_eq!(used(&run, &[], &answers, &Busiest::default()).too_slow, None);
    let mut busiest = Busiest::default();
    for at in (0..=13_200).step_by(250) {
        busiest.record(ms(at), vec![ms(at.clamp(100, 12_600) - 100)]);
    }
    let reason = used(&run, &[], &answers, &busiest).too_slow.unwrap();
    assert!(reason.contains("an answerer used 100 % of a core"), "{reason}");
}

/// A limit of open calls that the scenario chooses belongs to its load. A caller that begins its
/// calls late is too slow nevertheless.
#[test]
fn a_generator_without_room_is_too_slow_unless_the_scenario_limits_its_calls() {
    let too_slow = |lines: &str, lateness_ms| {
        let measured = Measured { offered: 100, not_begun: 50, ..Measured::default() };
        let mut stats = CallerStats { measured, ..CallerStats::default() };
        stats.lateness.record(Duration::from_millis(lateness_ms));
        let (cpu, wall) = (Duration::ZERO, Duration::from_secs(1));
        let calls = [Done { stats, drops: 0, cpu, wall }];
        used(&run_with(lines), &calls, &[], &Busiest::default()).too_slow
    };
    let limit = "[workload]\nopen_max = 50\n";
    let reason = too_slow("", 0).unwrap();
    assert!(reason.contains("50 of 100 calls did not begin"), "{reason}");
    assert_eq!(too_slow(limit, 0), None);
    let reason = too_slow(limit, 10).unwrap();
    assert!(reason.contains("1 % of them more than 10"), "{reason}");
}
