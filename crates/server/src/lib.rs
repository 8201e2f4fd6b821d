//! The process around the cores.

pub mod config;
