//! Everything that can be asked of a message, and the edits of a proxy.
#![no_main]

#[path = "../../crates/sip/tests/alike/mod.rs"]
mod alike;
#[path = "../../crates/sip/tests/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::message(bytes));
