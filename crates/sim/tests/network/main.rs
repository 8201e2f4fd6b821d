//! Whole networks in simulated time.

mod choked;
mod frame;
mod hour;
mod names;
mod topology;
mod traffic;
