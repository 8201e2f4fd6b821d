//! Simulated time for sans-IO cores.
//!
//! A [`Network`] drives the same cores that real sockets drive, by the same
//! contract, with real bytes, from one seed: packets travel over a [`Link`], time
//! jumps from one event to the next. Events are in a total order of (time,
//! sequence), so one seed always gives one trace, whose hash is kept.
//!
//! Work takes no time in a network, unless a core is put on a [`Host`], which charges
//! every message in model time and serves behind real sockets as well.

mod calendar;
pub mod host;
mod link;
mod network;
mod relay;

pub use calendar::Calendar;
pub use host::{Costs, Host, HostSettings};
pub use link::Link;
pub use network::{Network, Summary};
pub use relay::{Carriage, Relay, RelayCounts, RelaySettings};
