use proptest::prelude::*;

use super::*;

fn node(index: usize) -> NodeId {
    NodeId::new(index)
}

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

fn episode(begins_ms: u64, lasts_ms: u64, trouble: Trouble) -> Episode {
    Episode { begins: at(begins_ms), lasts: Duration::from_millis(lasts_ms), trouble }
}

fn shape() -> Shape {
    Shape {
        nodes: vec![node(1), node(2)],
        pairs: vec![(node(0), node(1)), (node(1), node(2))],
        begins: at(1000),
        ends: at(60_000),
        lasts_max: Duration::from_secs(10),
        episodes_max: 20,
    }
}

fn written() -> Plan {
    let crash = Trouble::Crash { node: node(1), silence: Silence::Refused };
    let link = Link { loss: 0.5, ..Link::delaying(Duration::from_millis(3)) };
    let impair = Trouble::Impair { from: node(0), to: node(1), link };
    let episodes = vec![
        episode(500, 250, Trouble::Partition { a: node(0), b: node(2) }),
        episode(100, 400, crash),
        episode(200, 50, Trouble::Stall { node: node(2) }),
        episode(150, 100, impair),
    ];
    Plan { episodes }
}

#[test]
fn an_episode_begins_with_a_fault_and_ends_with_its_end() {
    let link = Link { loss: 0.5, ..Link::delaying(Duration::from_millis(3)) };
    let expected = [
        (at(100), Fault::Crash { node: node(1), silence: Silence::Refused }),
        (at(150), Fault::Impair { from: node(0), to: node(1), link }),
        (at(200), Fault::Stall { node: node(2), lasts: Duration::from_millis(50) }),
        (at(250), Fault::Restore { from: node(0), to: node(1) }),
        (at(500), Fault::Restart { node: node(1) }),
        (at(500), Fault::Partition { a: node(0), b: node(2) }),
        (at(750), Fault::Heal { a: node(0), b: node(2) }),
    ];
    assert_eq!(written().steps(), expected);
}

#[test]
fn a_written_plan_and_its_faults_read_back_unchanged() {
    let text = serde_json::to_string(&written()).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), written());
    let begin = r#"[{"begins_us":500000,"lasts_us":250000,"trouble":{"partition":{"a":0,"b":2}}}"#;
    assert!(text.starts_with(begin), "{text}");
    for (_, fault) in written().steps() {
        let text = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault, "{text}");
    }
}

#[test]
fn every_kind_of_trouble_occurs_over_many_seeds() {
    let plans: Vec<_> = (0..200).map(|seed| Plan::random(Seed(seed), &shape())).collect();
    let troubles = || plans.iter().flat_map(|plan| &plan.episodes).map(|e| e.trouble);
    let count = |kind: fn(&Trouble) -> bool| troubles().filter(kind).count();
    let silence = |wanted| {
        let crash = |t: &Trouble| matches!(t, Trouble::Crash { silence, .. } if *silence == wanted);
        troubles().filter(crash).count()
    };
    let links = || {
        troubles().filter_map(|trouble| match trouble {
            Trouble::Impair { link, .. } => Some(link),
            _ => None,
        })
    };
    let counts = [
        silence(Silence::Refused),
        silence(Silence::Silent),
        count(|t| matches!(t, Trouble::Stall { .. })),
        count(|t| matches!(t, Trouble::Partition { .. })),
        links().filter(|link| link.loss > 0.0).count(),
        links().filter(|link| !link.delay.is_zero()).count(),
        links().filter(|link| !link.jitter.is_zero()).count(),
        links().filter(|link| link.reorder > 0.0).count(),
        links().filter(|link| link.duplicate > 0.0).count(),
        links().filter(|link| link.bandwidth.is_some()).count(),
    ];
    // About 2,000 episodes are drawn. Half of them clash with earlier ones and are left out.
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
    assert!(plans.iter().any(|plan| plan.episodes.is_empty()));
}

#[test]
fn every_kind_of_stream_fault_occurs_over_many_seeds() {
    let plans: Vec<_> = (0..100).map(|seed| Plan::of_streams(Seed(seed), &shape())).collect();
    let troubles = || plans.iter().flat_map(|plan| &plan.episodes).map(|e| e.trouble);
    let count = |kind: fn(&Trouble) -> bool| troubles().filter(kind).count();
    let counts = [
        count(|t| matches!(t, Trouble::Reset { .. })),
        count(|t| matches!(t, Trouble::Sever { .. })),
        count(|t| matches!(t, Trouble::ReadSlowly { .. })),
    ];
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
    assert_eq!(troubles().count(), counts.iter().sum::<usize>(), "and nothing else");
    // The end of a slow reader is a step of its own. A connection that broke stays broken, so it
    // has no such step.
    let steps: usize = plans.iter().map(|plan| plan.steps().len()).sum();
    assert_eq!(steps, troubles().count() + counts[2]);
}

#[test]
fn without_fault_targets_there_is_no_plan() {
    let nobody = Shape { nodes: Vec::new(), pairs: Vec::new(), ..shape() };
    assert_eq!(Plan::random(Seed(1), &nobody), Plan::default());
    let no_time = Shape { ends: at(1000), ..shape() };
    assert_eq!(Plan::random(Seed(1), &no_time), Plan::default());
}

/// Returns the node, or the pair with the lower number first.
fn concerned(trouble: &Trouble) -> Vec<usize> {
    let mut nodes = match *trouble {
        Trouble::Crash { node, .. }
        | Trouble::Stall { node }
        | Trouble::ReadSlowly { node, .. } => vec![node.index()],
        Trouble::Partition { a, b } | Trouble::Reset { a, b } => vec![a.index(), b.index()],
        Trouble::Impair { from, to, .. } | Trouble::Sever { from, to } => {
            vec![from.index(), to.index()]
        }
        Trouble::Resolver { .. } => unreachable!("it is never drawn"),
    };
    nodes.sort();
    nodes
}

proptest! {
    #[test]
    fn a_random_plan_keeps_its_shape(
        seed: u64,
        (room_ms, lasts_max_ms) in (1..100_000u64, 0..20_000u64),
        episodes_max in 0..40usize,
    ) {
        let shape = Shape {
            ends: at(1000 + room_ms),
            lasts_max: Duration::from_millis(lasts_max_ms),
            episodes_max,
            ..shape()
        };
        let plan = Plan::random(Seed(seed), &shape);
        prop_assert_eq!(&plan, &Plan::random(Seed(seed), &shape));
        prop_assert!(plan.episodes.len() <= episodes_max);
        let lasts_max = shape.lasts_max.max(Duration::from_millis(1));
        for (index, episode) in plan.episodes.iter().enumerate() {
            prop_assert!(episode.begins >= shape.begins);
            prop_assert!(episode.begins + episode.lasts <= shape.ends);
            prop_assert!(!episode.lasts.is_zero() && episode.lasts <= lasts_max);
            let about = concerned(&episode.trouble);
            for other in plan.episodes[..index].iter().filter(|e| concerned(&e.trouble) == about) {
                prop_assert!(other.begins + other.lasts < episode.begins, "{other:?} {episode:?}");
            }
        }
        prop_assert!(plan.episodes.is_sorted_by_key(|episode| episode.begins));
        // Every fault but a stall has an end: there are as many ends as starts.
        let stalls = plan.episodes.iter().filter(|e| matches!(e.trouble, Trouble::Stall { .. }));
        prop_assert_eq!(plan.steps().len(), 2 * plan.episodes.len() - stalls.count());
    }
}
