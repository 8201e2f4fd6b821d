//! Runs the proxy core with any sequence of datagrams, time steps, failed deliveries and drains.
#![no_main]

#[path = "../../crates/proxy/tests/behaviour/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drive::run(bytes));
