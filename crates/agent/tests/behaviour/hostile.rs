//! Tests with arbitrary packets: no panic, no growth, every call accounted for.

use std::time::Duration;

use crate::script::{Script, uac, uas};
use proptest::prelude::*;
use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load, Process};
use tidegate_world::{Pool, Seed, Timestamp};

const OPEN_MAX: usize = 4;

fn caller() -> Script<Caller> {
    let load = Load { process: Process::Uniform, rate_cps: 2.0, calls: 8, ..Load::default() };
    let config = CallerConfig {
        load,
        open_max: OPEN_MAX,
        patience: Duration::from_secs(3).into(),
        hold: Duration::from_secs(1).into(),
        ..CallerConfig::new(uac(), uas())
    };
    Script::new(Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap(), uac())
}

fn answerer(ring_ms: u64) -> Script<Answerer> {
    let ring = Duration::from_millis(ring_ms).into();
    let config = AnswererConfig {
        ring,
        provisionals: vec![183, 180],
        hangs_up: 0.5,
        hold: Duration::from_millis(500).into(),
        calls_max: OPEN_MAX,
        ..AnswererConfig::new(uas())
    };
    Script::new(Answerer::new(config, Seed(1), 1, Pool::new()), uas())
}

/// A change to a packet in flight.
#[derive(Clone, Debug)]
enum Fault {
    None,
    Lost,
    Twice,
    /// The byte at this fraction of the length is replaced.
    Byte(f64, u8),
    Cut(f64),
    /// A header line is repeated this often.
    Line(f64, usize),
    /// A header line grows by this many bytes.
    Long(f64, usize),
    /// The status is replaced.
    Status(u16),
    /// The method in the start line is replaced.
    Method(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::None),
        1 => Just(Fault::Lost),
        1 => Just(Fault::Twice),
        3 => (0.0..1.0, any::<u8>()).prop_map(|(at, byte)| Fault::Byte(at, byte)),
        1 => (0.0..1.0).prop_map(Fault::Cut),
        1 => (0.0..1.0, 2usize..150).prop_map(|(at, n)| Fault::Line(at, n)),
        1 => (0.0..1.0, 1usize..60_000).prop_map(|(at, n)| Fault::Long(at, n)),
        2 => (0u16..1000).prop_map(Fault::Status),
        1 => (0usize..6).prop_map(Fault::Method),
    ]
}

/// Returns the packets that arrive instead of `text`.
fn suffer(text: &str, fault: &Fault) -> Vec<Vec<u8>> {
    let bytes = text.as_bytes().to_vec();
    let place = |at: f64| ((bytes.len() as f64 * at) as usize).min(bytes.len() - 1);
    let on_a_line = |at: f64, change: &dyn Fn(&str) -> String| {
        let mut lines: Vec<String> = text.split_inclusive("\r\n").map(str::to_owned).collect();
        let i = ((lines.len() as f64 * at) as usize).min(lines.len() - 1);
        lines[i] = change(&lines[i]);
        vec![lines.concat().into_bytes()]
    };
    match fault {
        Fault::None => vec![bytes],
        Fault::Lost => vec![],
        Fault::Twice => vec![bytes.clone(), bytes],
        Fault::Byte(at, byte) => {
            let mut changed = bytes.clone();
            changed[place(*at)] = *byte;
            vec![changed]
        }
        Fault::Cut(at) => vec![bytes[..place(*at)].to_vec()],
        Fault::Line(at, n) => on_a_line(*at, &|line| line.repeat(*n)),
        Fault::Long(at, n) => {
            on_a_line(*at, &|line| format!("{}{}\r\n", line.trim_end(), "x".repeat(*n)))
        }
        Fault::Status(status) => match text.strip_prefix("SIP/2.0 ") {
            Some(rest) => vec![format!("SIP/2.0 {status:03}{}", &rest[3..]).into_bytes()],
            None => vec![bytes],
        },
        Fault::Method(which) => {
            let method = ["INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "PRACK"][*which];
            let old = text.split(' ').next().unwrap_or_default();
            vec![text.replace(old, method).into_bytes()]
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_bytes_are_counted_and_dropped(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20)) {
        let (mut caller, mut answerer) = (caller(), answerer(0));
        caller.until(100);
        caller.sent();
        for packet in &packets {
            caller.tell_bytes(uas(), packet);
            answerer.tell_bytes(uac(), packet);
        }
        prop_assert!(caller.sent().is_empty() && answerer.sent().is_empty());
        prop_assert_eq!(caller.agent.stats().malformed, packets.len() as u64);
        prop_assert_eq!(answerer.agent.stats().malformed, packets.len() as u64);
        prop_assert_eq!(answerer.agent.held(), 0);
    }

    #[test]
    fn with_a_faulty_path_every_call_is_still_counted(ring_ms in prop_oneof![Just(0u64), 1u64..5000], faults in prop::collection::vec(fault(), 1..200)) {
        let (mut caller, mut answerer) = (caller(), answerer(ring_ms));
        let mut faults = faults.into_iter();
        for ms in (0..400_000).step_by(50) {
            caller.until(ms);
            answerer.until(ms);
            // The number of rounds is limited. If each answer caused another one, the agents would
            // flood each other.
            for round in 0.. {
                let there = caller.sent();
                for sent in &there {
                    for packet in suffer(&sent.text, &faults.next().unwrap_or(Fault::None)) {
                        answerer.tell_bytes(uac(), &packet);
                    }
                }
                let back = answerer.sent();
                for sent in &back {
                    for packet in suffer(&sent.text, &faults.next().unwrap_or(Fault::None)) {
                        caller.tell_bytes(uas(), &packet);
                    }
                }
                if there.is_empty() && back.is_empty() {
                    break;
                }
                prop_assert!(round < 20, "endless talk");
            }
            prop_assert!(answerer.agent.held() <= OPEN_MAX);
            let stats = caller.agent.stats();
            prop_assert!(stats.open <= OPEN_MAX as u64);
            prop_assert_eq!(stats.offered, stats.begun + stats.not_begun);
            prop_assert_eq!(stats.begun, stats.completed + stats.failed.total() + stats.open);
        }
        prop_assert!(caller.agent.is_done(), "every call ends");
        let stats = answerer.agent.stats();
        prop_assert_eq!(answerer.agent.held() as u64, stats.open);
        let begun = stats.overflowed + stats.unanswerable + stats.cancelled + stats.rejected;
        let ended = stats.completed + stats.hung_up + stats.not_acknowledged;
        prop_assert_eq!(stats.calls, begun + ended + stats.open);
    }
}
