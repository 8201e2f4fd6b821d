//! Simulated time for sans-IO cores.
//!
//! A [`Network`] drives the same cores that real sockets drive, by the same
//! contract, with real bytes, from one seed: packets travel over a [`Link`], time
//! jumps from one event to the next. Events are in a total order of (time,
//! sequence), so one seed always gives one trace, whose hash is kept.

mod calendar;
mod link;
mod network;

pub use calendar::Calendar;
pub use link::Link;
pub use network::{Network, Summary};
