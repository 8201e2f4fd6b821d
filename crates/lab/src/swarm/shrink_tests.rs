//! Tests of shrinking with invented failures. Everything that the failure needs remains, and all
//! other parts are removed.

use super::*;
use crate::swarm::draw::draw;

fn finding() -> Vec<Finding> {
    vec![Finding { checker: "made-up".to_owned(), what: "it fails".to_owned() }]
}

/// Shrinks the world of a seed with `fails` as the failure.
fn shrunk(seed: u64, fails: impl Fn(&World) -> bool) -> Shrunk {
    let world = draw(seed);
    assert!(fails(&world), "seed {seed} is no example");
    shrink(world, "made-up", 2000, |world| if fails(world) { finding() } else { Vec::new() })
}

/// Returns the first seed with a world for which `fails` returns true.
fn seed_of(fails: impl Fn(&World) -> bool) -> u64 {
    (1..1000).find(|&seed| fails(&draw(seed))).expect("an example among a thousand")
}

#[test]
fn a_failure_that_needs_nothing_shrinks_to_almost_nothing() {
    for seed in 1..20 {
        let Shrunk { world, .. } = shrunk(seed, |_| true);
        assert_eq!((world.callers.len(), world.proxies.len(), world.answerers.len()), (1, 1, 1));
        assert_eq!((world.callers[0].calls, world.faults.len()), (1, 0), "seed {seed}");
        let proxy = &world.proxies[0];
        let law = proxy.overload.is_empty() && proxy.params.is_empty();
        assert!(law && proxy.pool.is_empty() && proxy.server.is_empty(), "seed {seed}: {proxy:?}");
        assert!(proxy.emulate.is_empty() && world.link == Link::delaying(world.link.delay));
        assert_eq!(World::parse(&world.to_toml()).as_ref(), Ok(&world), "it is a world still");
    }
}

#[test]
fn the_files_that_a_failure_needs_stay() {
    let needs = |world: &World| {
        let layers = world.proxies.iter().any(|proxy| proxy.layer == 1);
        let crash = |trouble: &Trouble| match trouble {
            Trouble::Crash { node, .. } => {
                matches!(world.place(node.index()), Some(Place::Proxy(_)))
            }
            _ => false,
        };
        let calls: u32 = world.callers.iter().map(|crowd| crowd.calls).sum();
        layers && calls >= 7 && world.faults.iter().any(|fault| crash(&fault.trouble))
    };
    let Shrunk { world, finding, .. } = shrunk(seed_of(needs), needs);
    assert!(needs(&world));
    assert_eq!((world.proxies.len(), world.faults.len(), world.answerers.len()), (2, 1, 1));
    assert_eq!(world.callers.iter().map(|crowd| crowd.calls).sum::<u32>(), 7);
    assert_eq!(finding.checker, "made-up");
}

#[test]
fn a_finding_of_another_checker_does_not_count() {
    let other = Finding { checker: "other".to_owned(), what: "else".to_owned() };
    let world = draw(1);
    let shrunk = shrink(world.clone(), "made-up", 2000, |now| match *now == world {
        true => finding(),
        false => vec![other.clone()],
    });
    assert_eq!(shrunk.world, world);
}

#[test]
fn no_more_runs_are_made_than_allowed() {
    let count = std::cell::Cell::new(0);
    let shrunk = shrink(draw(1), "made-up", 10, |_| {
        count.set(count.get() + 1);
        finding()
    });
    assert_eq!((count.get(), shrunk.tries), (10, 10));
}
