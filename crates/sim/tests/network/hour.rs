//! Tests with calls of every outcome and packet loss: each call ends exactly once and leaves no
//! state behind. `make show-hour` shows this for an hour of simulated time. These tests run for at
//! most 20 s of it.

use std::time::Duration;

use tidegate_proxy::Mode;

use crate::traffic::{Outcome, Sizes, Traffic};

fn traffic(mode: Mode) -> Traffic {
    Traffic { seed: 1, mode, rate_cps: 500.0, lasts: Duration::from_secs(20), loss: 0.001 }
}

fn nothing_is_left(run: &Outcome) {
    assert!(run.conserved(), "{:?}\n{:?}", run.caller, run.answerers);
    assert_eq!(run.left, Sizes::default());
    assert!(run.is_settled());
    assert!(run.summary.lost > 0);
    let (caller, called) = (&run.caller, &run.answerers);
    assert_eq!(caller.unexpected + caller.malformed + called.unexpected + called.malformed, 0);
}

#[test]
fn every_call_ends_once_and_leaves_nothing_behind() {
    let run = traffic(Mode::Transaction).go();
    nothing_is_left(&run);
    let caller = &run.caller;
    let set_up = caller.set_up as f64 / caller.offered as f64;
    assert!((0.65..0.78).contains(&set_up), "{set_up}");
    // Calls of each kind occur: ended by either side, rejected, cancelled.
    assert!(caller.hung_up > 1000 && caller.completed - caller.hung_up > 1000, "{caller:?}");
    assert!(caller.failed.abandoned > 500, "{caller:?}");
    for status in [404, 480, 486, 500] {
        assert!(caller.failed.status[&status] > 50, "{status}: {caller:?}");
    }
    // By RFC 3261 §16.7 item 6, the proxy does not forward a 503: it tries another back end, or
    // sends a 500.
    assert_eq!(caller.failed.status.get(&503), None, "{caller:?}");
    // Silence and 503 make the proxy try another back end.
    let tried_again = run.answerers.calls - caller.begun;
    assert!(tried_again > run.answerers.silent / 2, "{tried_again}: {:?}", run.answerers);
    assert!(run.counters.cancels.get() > 500);
    assert!(run.peak.server_transactions > 5000 && run.peak.client_transactions > 5000);
}

#[test]
fn one_seed_gives_one_trace() {
    let brief = Traffic { lasts: Duration::from_secs(3), ..traffic(Mode::Transaction) };
    let first = brief.go();
    let again = brief.go();
    assert_eq!((again.summary, again.trace), (first.summary, first.trace));
    assert_ne!(Traffic { seed: 2, ..brief }.go().trace, first.trace);
}

#[test]
fn without_transactions_only_the_callers_retransmit() {
    let run = traffic(Mode::Stateless).go();
    nothing_is_left(&run);
    assert_eq!(run.peak.server_transactions + run.peak.client_transactions, 0);
    assert!(run.caller.failed.status[&503] > 0 && run.caller.failed.timeout > 50);
}
