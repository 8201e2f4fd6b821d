//! Makes whole worlds from seeds. A world is drawn from a seed and run in simulated time. Every
//! checker watches the run. If a checker finds a violation, the world is made smaller.
//!
//! A [`World`] is a value: a topology of proxies, callers, answerers, links, and faults. It is
//! [drawn](draw::draw) from a seed, and can be written to a file that [`run`](run::run) runs again.
//! The proxies are the ones that `tidegate run` would start from the configuration that the world
//! [writes](configuration) for them.

pub mod attacker;
mod book;
mod commands;
pub mod configuration;
pub mod draw;
mod exchange;
pub mod hunt;
mod node;
mod out_of_service;
pub mod run;
pub mod shrink;
pub mod world;

pub use hunt::{Failed, Hunt, Progress, Tally, hunt};
pub use out_of_service::{Means, OutOfService};
pub use run::{Finding, Ran, run};
pub use shrink::{Shrunk, shrink};
pub use world::World;
