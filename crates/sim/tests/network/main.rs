//! Whole networks in simulated time.

mod choked;
mod frame;
mod names;
mod topology;
