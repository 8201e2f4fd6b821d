//! Tests with calls of every outcome between both agents in simulated time, with losses.

use std::time::Duration;

use crate::net::{Net, answering, calling};
use tidegate_agent::{AnswererConfig, AnswererStats, CallerConfig, CallerStats, Span};

const CALLS: u32 = 20_000;

fn seconds(mean: u64) -> Span {
    Span::Exponential(Duration::from_secs(mean))
}

fn callers() -> CallerConfig {
    CallerConfig { hold: seconds(20), patience: seconds(30), ..calling(500.0, CALLS) }
}

fn called() -> AnswererConfig {
    AnswererConfig {
        mix: "answer=70,busy=12,603=2,503=3,404=3,ring=8,silent=2".parse().unwrap(),
        provisionals: vec![183, 180],
        ring: seconds(5),
        hangs_up: 0.4,
        hold: seconds(20),
        ..answering()
    }
}

fn run(callers: CallerConfig, called: AnswererConfig, loss: f64) -> (CallerStats, AnswererStats) {
    let mut net = Net::new(callers, called, 21);
    net.loss = loss;
    net.run_out()
}

/// Checks that every call has ended in one way, at either end.
fn conserved(caller: &CallerStats, answerer: &AnswererStats) {
    assert_eq!(caller.offered, caller.begun + caller.not_begun);
    assert_eq!(caller.begun, caller.completed + caller.failed.total());
    assert_eq!((caller.open, answerer.open), (0, 0));
    let AnswererStats { overflowed, silent, unanswerable, unanswered, cancelled, rejected, .. } =
        answerer;
    assert_eq!(
        answerer.calls,
        overflowed + silent + unanswerable + unanswered + cancelled + rejected + answerer.answered
    );
    let AnswererStats { completed, hung_up, not_acknowledged, forgotten, .. } = answerer;
    assert_eq!(answerer.answered, completed + hung_up + not_acknowledged + forgotten);
}

/// Checks that `count` of `n` is within five standard deviations of the share `p`.
fn near(count: u64, n: u64, p: f64) {
    let (count, n) = (count as f64, n as f64);
    assert!((count - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt(), "{count} of {n}, not {p}");
}

#[test]
fn without_losses_both_ends_report_the_same_outcomes() {
    let (caller, answerer) = run(callers(), called(), 0.0);
    conserved(&caller, &answerer);
    let calls = u64::from(CALLS);
    assert_eq!((caller.begun, answerer.calls), (calls, calls));
    let status = |status| caller.failed.status.get(&status).copied().unwrap_or(0);
    let rejected: u64 = caller.failed.status.values().sum();
    // A CANCEL and a final response cross if they are sent within 5 ms of each other.
    assert!(answerer.rejected.abs_diff(rejected) < 20, "{caller:?} {answerer:?}");
    assert_eq!((answerer.silent, answerer.not_acknowledged), (caller.failed.timeout, 0));
    assert!(answerer.completed + answerer.hung_up - caller.completed < 20);
    assert!(answerer.hung_up.abs_diff(caller.hung_up) < 20);
    assert_eq!(caller.repeated.total() - caller.repeated.invite, 0);
    assert_eq!(answerer.stray + answerer.unexpected + caller.unexpected + caller.malformed, 0);
    // Ringing (5 s) and patience (30 s) are exponential. This is the probability that ringing ends
    // first.
    let in_time = (1.0 / 5.0) / (1.0 / 5.0 + 1.0 / 30.0);
    near(caller.set_up, calls, 0.70 * in_time);
    near(status(486), calls, 0.12 * in_time);
    near(status(603), calls, 0.02 * in_time);
    near(status(503), calls, 0.03);
    near(caller.failed.timeout, calls, 0.02);
    near(caller.failed.abandoned, calls, 0.08 + 0.87 * (1.0 - in_time));
    // The called party intends to end 40 % of the calls. In half of them the caller ends the call
    // first.
    near(caller.hung_up, caller.completed, 0.4 / 2.0);
}

#[test]
fn with_losses_every_call_still_ends_once() {
    for loss in [0.001, 0.1] {
        let (caller, answerer) = run(callers(), called(), loss);
        conserved(&caller, &answerer);
        assert!(caller.completed > u64::from(CALLS) / 2);
        assert!(answerer.repeated > 0 && caller.repeated.invite > 0);
        assert_eq!(caller.unexpected + caller.malformed + answerer.malformed, 0);
        // The answerer has no unexpected messages: a copy of an ACK or a BYE still finds its call.
        assert_eq!(answerer.unexpected, 0);
    }
}

#[test]
fn a_draw_of_one_kind_disturbs_no_other() {
    let (caller, answerer) = run(callers(), called(), 0.0);
    let silent = answerer.silent;
    let (_, hangs_never) = run(callers(), AnswererConfig { hangs_up: 0.0, ..called() }, 0.0);
    let fixed = Duration::from_secs(5).into();
    let (_, rings_alike) = run(callers(), AnswererConfig { ring: fixed, ..called() }, 0.0);
    assert_eq!((hangs_never.silent, rings_alike.silent), (silent, silent));
    let (waits, _) = run(CallerConfig { hold: fixed, ..callers() }, called(), 0.0);
    assert_eq!(waits.failed.abandoned, caller.failed.abandoned, "patience is another stream");
    assert_eq!(waits.failed.status, caller.failed.status);
    let other = run(CallerConfig { patience: seconds(10), ..callers() }, called(), 0.0).0;
    assert_ne!(other.failed.abandoned, caller.failed.abandoned, "the comparison can fail");
}
