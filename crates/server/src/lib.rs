//! Everything around the cores: the configuration, the secret keys, the interfaces for operators,
//! and the shutdown of the process.

pub mod admin;
pub mod assembly;
pub mod audit;
pub mod bans;
pub mod config;
mod descriptors;
mod environment;
mod error;
mod heavy;
pub mod key;
pub mod laws;
mod memory;
pub mod metrics;
pub mod phase;
mod pools;
mod predecessor;
mod prepared;
pub(crate) mod reconfigurable;
pub mod recording;
pub mod rejections;
mod removed;
pub mod replay;
mod run;
pub mod runtime_control;
pub mod signal;
mod state_file;
mod status;
#[cfg(test)]
mod testing;
mod tls;
mod users;
mod wall;
mod watch;
mod wiring;
mod worker;

pub use error::{RAISE_LIMITS, StartError};
pub use metrics::collect::{RecentWork, ShardCounters};
pub use run::{Ending, Event, Finish, RunError, Started, run};
pub use status::Instruments;
pub use watch::Observation;
pub use worker::Worker;
