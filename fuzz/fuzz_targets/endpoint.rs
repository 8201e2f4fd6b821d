//! The proxy core under any sequence of datagrams, time, failures and drains.
#![no_main]

#[path = "../../crates/proxy/tests/behaviour/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drive::run(bytes));
