//! A URI, a host, an address and a Via made of the same bytes.
#![no_main]

#[path = "../../crates/sip/tests/alike/mod.rs"]
mod alike;
#[path = "../../crates/sip/tests/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::parts(bytes));
