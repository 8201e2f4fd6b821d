//! Tests proxies in random worlds. A world is drawn from a seed and run in simulated time, while
//! checkers look for violations. If a checker finds a violation, the world is reduced to a smaller
//! one with the same violation.
//!
//! A [`World`] is a description of proxies, callers, answerers, links, and faults. It is
//! [drawn](draw::draw) from a seed, and can be saved to a file and [`run`](run::run) again. Its
//! proxies are the same as those that `tidegate run` starts from the files that [`configuration`]
//! writes.

pub(crate) mod attacker;
mod book;
mod commands;
pub mod configuration;
pub mod draw;
mod exchange;
pub mod hunt;
mod node;
mod out_of_service;
pub mod run;
pub(crate) mod shrink;
pub mod world;

pub use hunt::{Failed, Hunt, Progress, Tally, hunt};
pub use out_of_service::{Means, OutOfService};
pub use run::{Finding, Ran, run};
pub use shrink::{Shrunk, shrink};
pub use world::World;
