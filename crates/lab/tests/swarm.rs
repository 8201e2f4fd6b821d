//! Tests of worlds drawn from seeds, and of worlds that once showed a fault.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tidegate_lab::swarm::draw::{draw, draw_with_streams};
use tidegate_lab::swarm::hunt::replay;
use tidegate_lab::swarm::{Hunt, Progress, World, hunt};

#[test]
fn everything_holds_in_the_worlds_of_twenty_seeds() {
    everything_holds(Hunt { from: 1, seeds: Some(20), jobs: 2, tries_max: 50, has_streams: false });
}

#[test]
fn everything_holds_in_the_worlds_of_twenty_seeds_with_streams() {
    everything_holds(Hunt { from: 1, seeds: Some(20), jobs: 2, tries_max: 50, has_streams: true });
}

fn everything_holds(plan: Hunt) {
    let mut failed = Vec::new();
    let tally = hunt(plan, &AtomicBool::new(false), |progress| match progress {
        Progress::Ran(_) => {}
        other => failed.push(format!("{other:#?}")),
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!((tally.worlds, tally.failed, tally.unwatched), (20, 0, 0));
    // Without calls, lost packets and faults, the worlds would test nothing.
    assert!(tally.completed > 100 && tally.missing > 500 && tally.faults > 10, "{tally:?}");
}

#[test]
fn nothing_is_found_in_the_worlds_that_once_showed_a_fault() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/swarm");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let (_, ran) = replay(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(ran.findings, [], "{}", file.display());
        assert!(ran.calls[0] > 0, "{} has no call", file.display());
    }
}

#[test]
fn a_written_world_reads_back_unchanged() {
    for world in (1..100).flat_map(|seed| [draw(seed), draw_with_streams(seed)]) {
        let seed = world.seed;
        assert_eq!(World::parse(&world.to_toml()).as_ref(), Ok(&world), "seed {seed}");
    }
}

#[test]
fn invalid_worlds_are_rejected() {
    let good = draw(1).to_toml();
    for (from, to) in [
        ("seed = 1", "sead = 1"),
        ("to = 0", "to = 9"),
        ("layer = 0", "layer = 7"),
        ("calls = ", "calls = 4000000000 #"),
    ] {
        assert!(good.contains(from), "{good}");
        assert!(World::parse(&good.replacen(from, to, 1)).is_err(), "{to}");
    }
}
