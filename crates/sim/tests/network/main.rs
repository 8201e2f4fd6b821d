//! Whole networks in simulated time.

mod choked;
mod frame;
mod health;
mod hour;
mod names;
mod resolution;
mod topology;
mod traffic;
mod users;
