//! The laboratory: scenarios, their runs, and the results as tables and figures.

// `disallowed_methods` forbids the clock of the machine, but the laboratory measures real runs with
// it.
#![allow(clippy::disallowed_methods)]

pub mod balancing;
pub mod calibrate;
pub mod catalogue;
pub mod cost;
pub mod costs;
pub mod costs_file;
pub mod counterfactual;
pub mod demo;
pub mod disturbance;
pub mod experiment;
pub(crate) mod export;
pub mod figure;
pub mod list;
pub mod machine;
mod measure;
pub mod network;
pub mod outage;
pub mod outcome;
pub mod overhead;
mod plots;
pub(crate) mod prediction;
pub mod progress;
pub mod real;
pub mod recovery;
mod repetitions;
pub mod report;
pub mod reproduce;
pub mod run_spec;
pub mod runs;
pub mod scenario;
mod shares;
pub mod spread;
pub mod store;
pub mod summary;
pub mod swarm;
pub mod table;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod topology;
pub mod tournament;
pub mod tune;
pub mod verdict;
mod world_kind;
pub mod worlds;
