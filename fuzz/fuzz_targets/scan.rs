//! The short ways of reading a message against the long one.
#![no_main]

#[path = "../../crates/sip/tests/alike/mod.rs"]
mod alike;
#[path = "../../crates/sip/tests/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::readings(bytes));
