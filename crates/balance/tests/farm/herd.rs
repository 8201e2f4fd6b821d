//! Shows why calls take long if `rwma` selects by response times. The tests record the mean
//! response time that `rwma` knows for each server at each selection.
//!
//! `cargo test -p tidegate-balance --test farm herd -- --nocapture` prints the state at every other
//! second.

use tidegate_balance::Policy;

use super::EIGHT;
use super::servers::{Choice, Farm, Outcome};

/// Runs three servers at the load that paper 003 calls "moderate".
fn run(forget_s: f64) -> Outcome {
    let values = Policy::Rwma.entry().values(&[("forget_s", forget_s)]).unwrap();
    let farm = Farm { speeds: &[1.0; 3], weights: &[1; 3], load: 0.5, lasts_s: 30.0, ..EIGHT };
    let outcome = farm.run(values);
    println!("\nforget_s {forget_s}: mean response time of an INVITE {:.0} ms", outcome.mean_ms());
    outcome
}

fn print(outcome: &Outcome) {
    println!(
        "{:>4}{:>8}{:>30}{:>24}",
        "s", "chosen", "mean response times, ms", "open transactions"
    );
    let mut next_s = 1.0;
    for choice in &outcome.choices {
        if choice.at.as_secs_f64() >= next_s {
            let means: String =
                choice.means_ms.iter().map(|mean| format!("{mean:>10.1}")).collect();
            let open: String = choice.open.iter().map(|open| format!("{open:>8}")).collect();
            println!("{next_s:>4}{:>8}{means}{open}", choice.server);
            next_s += 2.0;
        }
    }
}

fn between(outcome: &Outcome, from_s: f64, to_s: f64) -> impl Iterator<Item = &Choice> {
    let within = move |choice: &&Choice| (from_s..to_s).contains(&choice.at.as_secs_f64());
    outcome.choices.iter().filter(within)
}

/// Returns the mean that the chosen server has to exceed before the load moves to another server.
fn to_exceed_ms(choice: &Choice) -> f64 {
    let others = choice.means_ms.iter().enumerate().filter(|&(i, _)| i != choice.server);
    others.map(|(_, &mean)| mean).fold(f64::INFINITY, f64::min)
}

// Each server could answer in 2 ms. At this load, queueing alone would lead to 3 ms.
#[test]
fn a_stale_mean_keeps_an_idle_server_idle() {
    let outcome = run(86_400.0);
    print(&outcome);
    let late: Vec<_> = between(&outcome, 20.0, 30.0).collect();
    let waiting_beside_idle = late
        .iter()
        .filter(|choice| choice.open[choice.server] >= 10 && choice.open.contains(&0))
        .count();
    assert!(waiting_beside_idle * 10 > late.len() * 8, "{waiting_beside_idle} of {}", late.len());

    let limits_ms = [1.0, 5.0, 25.0].map(|from_s| {
        let limits = between(&outcome, from_s, from_s + 4.0).map(to_exceed_ms);
        limits.fold(f64::INFINITY, f64::min)
    });
    assert!(
        limits_ms[1] > 1.5 * limits_ms[0] && limits_ms[2] > 2.0 * limits_ms[1],
        "{limits_ms:?}"
    );
}

#[test]
fn the_sooner_means_are_forgotten_the_shorter_calls_wait() {
    let mean_ms = [86_400.0, 3.0, 1.0, 0.3, 0.1].map(|forget_s| run(forget_s).mean_ms());
    assert!(mean_ms.is_sorted_by(|longer, shorter| longer > shorter), "{mean_ms:?}");
    assert!(mean_ms[0] > 10.0 * mean_ms[4], "{mean_ms:?}");
}
