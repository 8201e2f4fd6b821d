//! Tests of the limit on calls that back ends have not answered yet.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use tidegate_world::{Core, Load};

/// Returns a proxy with two calls that no back end has answered, and a third one that waits for
/// this. Also returns the first of the two INVITEs as it was sent to its back end.
fn holding() -> (Script, Sent) {
    let mut script = under(SCHEMES[0], &[("unanswered", 2.0)]);
    let first = script.send(CALLER, &invite("a")).pop().unwrap();
    assert_eq!(script.send(CALLER, &invite("b")).len(), 1);
    assert_eq!(script.send(CALLER, &invite("c")).len(), 0);
    (script, first)
}

fn starts(sent: &[Sent]) -> Vec<&str> {
    sent.iter().map(|sent| sent.start().split(' ').next().unwrap()).collect()
}

#[test]
fn a_call_waits_until_another_one_is_answered() {
    let (mut script, first) = holding();
    let backend = first.to.to_string();
    let sent = script.send(&backend, &first.answer("180 Ringing"));
    assert_eq!(starts(&sent), ["SIP/2.0", "INVITE"], "{sent:?}");
}

#[test]
fn a_call_does_not_wait_for_a_silent_back_end() {
    let (mut script, _) = holding();
    script.pass(Duration::from_millis(600));
    let sent = script.serve();
    assert_eq!(starts(&sent), ["INVITE"], "{sent:?}");
}

// The law must learn of calls that pass the proxy twice, so that none of them waits for itself.
#[test]
fn the_law_learns_that_back_ends_call() {
    let (mut script, _) = holding();
    let own = request("INVITE", "sip:eve@203.0.113.9", "own", 1, "");
    let mut sent = script.send(BACKEND_A, &own);
    sent.extend(script.send(CALLER, &invite("d")));
    assert_eq!(starts(&sent), ["INVITE"; 3], "{sent:?}");
    let (mut script, _) = holding();
    script.send(CALLER, &own);
    assert_eq!(script.send(CALLER, &invite("d")).len(), 0, "a stranger is no back end");
}

/// A regression: the gauge showed a limit that has no effect if the law decides when a message is
/// served, or if all messages wait in one queue.
#[test]
fn the_limit_is_shown_only_where_it_applies() {
    for scheme in SCHEMES {
        let mut script = under(scheme, &[("unanswered", 2.0)]);
        for call in ["a", "b", "c"] {
            script.send(CALLER, &invite(call));
        }
        script.proxy.on_load(script.now, Load::default());
        let shown = script.counters.overload.unanswered_max.get();
        let is_effective = scheme == SCHEMES[0];
        assert_eq!(shown, if is_effective { 2_000 } else { 0 }, "{scheme:?}");
    }
}
