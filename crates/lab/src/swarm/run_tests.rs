//! Tests of the comparison of a world with the same world without noise.

use super::*;

/// Returns a run that completes so many calls, with findings of these checkers.
fn ran(completed: u64, checkers: &[&str]) -> Ran {
    let finding =
        |checker: &&str| Finding { checker: (*checker).to_owned(), what: "it is wrong".to_owned() };
    Ran {
        findings: checkers.iter().map(finding).collect(),
        unwatched: 0,
        summary: Summary::default(),
        trace: 0,
        calls: [100, 100, completed],
        lasted: Timestamp::ZERO,
    }
}

fn found(noisy: Ran, calm: Ran) -> Vec<String> {
    compared(noisy, calm).findings.into_iter().map(|finding| finding.checker).collect()
}

#[test]
fn calls_that_noise_costs_are_found() {
    assert_eq!(found(ran(60, &[]), ran(100, &[])), [""; 0]);
    assert_eq!(found(ran(50, &[]), ran(100, &[])), [GOODPUT]);
}

/// If the world without noise panics, it completes no calls, so the noise seems to cost none.
#[test]
fn findings_in_the_world_without_noise_count() {
    assert_eq!(found(ran(0, &[]), ran(0, &[PANIC])), [PANIC]);
    assert_eq!(found(ran(100, &["finals"]), ran(100, &["leases"])), ["finals", "leases"]);
    let whole = compared(ran(0, &[]), ran(0, &[PANIC]));
    assert_eq!(whole.findings[0].what, "without the noise: it is wrong");
}

/// The world without noise may have been watched only in part. Then it only seems to have no
/// violations.
#[test]
fn messages_that_were_not_watched_without_the_noise_count() {
    let noisy = Ran { unwatched: 2, ..ran(100, &[]) };
    let calm = Ran { unwatched: 3, ..ran(100, &[]) };
    assert_eq!(compared(noisy, calm).unwatched, 5);
}
