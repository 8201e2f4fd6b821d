//! The parts that the programs `tidegate` and `tidegate-lab` share.
//!
//! Every command of both ends with one of three exit statuses: 0 if it is done and every condition
//! held, 1 if a condition did not hold, 2 for an error of usage or configuration.

pub mod json;
pub mod manual;
pub mod programs;
pub mod replay;
pub mod trouble;

/// Exit status for an error of usage or configuration. clap uses the same.
pub const WRONG_USE: u8 = 2;
