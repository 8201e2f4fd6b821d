//! Tests the proxy core under arbitrary sequences of datagrams, time, failures and drains: see
//! `drive`. The fuzzer runs the same code for longer.

use crate::drive;
use proptest::prelude::*;

/// Delivers the torture messages from every source, in each setup that changes their handling.
#[test]
fn the_invariants_hold_for_the_torture_messages() {
    for entry in crate::verdicts::entries() {
        for setup in [0, 1, 2, 4, 8, 16, 32] {
            for source in 0..drive::SOURCES as u8 {
                let [high, low] = (entry.bytes.len() as u16).to_be_bytes();
                // The operation 0 delivers a datagram unchanged.
                let operation = [setup, 0, source, high, low];
                drive::run(&[&operation[..], &entry.bytes].concat());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_invariants_hold_for_any_inputs(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        drive::run(&bytes);
    }
}
