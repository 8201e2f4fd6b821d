//! Compares the fast functions that read a part of a message with the full parser.
#![no_main]

#[path = "../../crates/sip/tests/alike/mod.rs"]
mod alike;
#[path = "../../crates/sip/tests/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::readings(bytes));
