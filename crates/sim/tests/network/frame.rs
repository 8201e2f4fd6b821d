//! Tests of the real proxy with the real user agents in simulated time, without sockets.

use std::time::Duration;

use tidegate_balance::Policy;
use tidegate_sim::Link;
use tidegate_world::{Core, Entry, Pool, Timestamp, replay};

use crate::topology::{Run, backends, proxy};

#[test]
fn ten_thousand_calls_go_through_to_three_answerers() {
    for policy in Policy::ALL {
        let run = Run { policy, ..Run::default() }.go();
        let stats = run.caller.stats();
        assert_eq!((stats.offered, stats.completed), (10_000, 10_000), "{policy:?}");
        assert_eq!(run.answered.iter().sum::<u64>(), 10_000, "{policy:?}");
        match policy {
            // All call the same callee.
            Policy::HashTo => assert!(run.answered.contains(&10_000), "{:?}", run.answered),
            // RWMA depends on response times, which differ only by the jitter of the links.
            Policy::Rwma => assert!(run.answered.iter().all(|&n| n > 20), "{:?}", run.answered),
            // Each back end gets a third of the calls. Under the hash policies the number is random
            // with a standard deviation of 47. Under the other policies it is nearly exact.
            _ => {
                let even = run.answered.iter().all(|answered| answered.abs_diff(3333) < 300);
                assert!(even, "{policy:?}: {:?}", run.answered);
            }
        }
        for (&answered, backend) in run.answered.iter().zip(run.backends.backends()) {
            assert_eq!(backend.assigned(), answered);
            assert_eq!((backend.calls(), backend.work()), (0, 0), "every count came back");
        }
    }
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_another() {
    let first = Run::default().go();
    let again = Run::default().go();
    assert_eq!((again.summary, again.trace), (first.summary, first.trace));
    assert_ne!(Run { seed: 2, ..Run::default() }.go().trace, first.trace);
}

#[test]
fn an_hour_of_calls_passes_in_seconds() {
    let run = Run { calls: 36_000, rate_cps: 10.0, ..Run::default() }.go();
    assert!(run.lasted >= Timestamp::ZERO + Duration::from_secs(3500), "{:?}", run.lasted);
    assert_eq!(run.caller.stats().completed, 36_000);
}

#[test]
fn agents_retransmit_lost_packets() {
    let link = Link { loss: 0.05, ..Run::default().link };
    let run = Run { link, calls: 2000, ..Run::default() }.go();
    let stats = run.caller.stats();
    assert!(run.summary.lost > 500, "{:?}", run.summary);
    // Each message crosses two links. In this mode the proxy itself retransmits nothing. So a call
    // fails only if the network loses all seven transmissions of its INVITE, all eleven of its BYE,
    // or the responses to them.
    assert!(stats.completed >= 1998, "{} of 2000, {:?}", stats.completed, stats.failed);
    for backend in run.backends.backends() {
        assert_eq!((backend.calls(), backend.work()), (0, 0), "every count came back");
    }
}

#[test]
fn the_replay_of_a_proxys_log_sends_the_same_bytes() {
    let played = |log: &[Entry]| {
        let mut sent = Vec::new();
        let mut proxy = proxy(Policy::Tlwl, backends());
        replay(log.to_vec(), &mut proxy, &Pool::new(), |now, t| {
            sent.push((now, t.flow, t.bytes.to_vec()))
        });
        assert!(proxy.poll_transmit().is_none());
        sent
    };
    let log = Run { calls: 500, ..Run::default() }.go().log;
    let sent = played(&log);
    assert_eq!(sent.len(), 500 * 6, "INVITE, 180, 200, ACK, BYE, 200");
    assert_eq!(played(&log), sent);
    assert_ne!(played(&log[1..]), sent, "the comparison can fail");
}
