//! The laboratory: scenarios, the runs they ask for, and what comes of them as tables and
//! figures.

// The laboratory runs real sockets against the clock.
#![allow(clippy::disallowed_methods)]

pub mod cost;
pub mod figure;
pub mod real;
pub mod scenario;
