//! Calls every accessor of a message, and then forwards and answers the message.
#![no_main]

#[path = "../../crates/sip/tests/alike/mod.rs"]
mod alike;
#[path = "../../crates/sip/tests/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::message(bytes));
