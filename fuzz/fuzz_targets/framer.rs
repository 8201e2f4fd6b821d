//! Cuts a stream into messages: read at once, byte by byte, and in pieces.
#![no_main]

#[path = "../../crates/sip/tests/streams/mod.rs"]
mod streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| streams::stream(bytes));
