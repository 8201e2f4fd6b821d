//! Observability of a shard: counters, gauges, a sample of rejections, calls in progress.

pub(crate) mod call_entry;
pub(crate) mod counters;
pub(crate) mod gauges;
pub(crate) mod in_force;
pub(crate) mod rejections;
pub(crate) mod sampler;
pub(crate) mod upstream;
pub(crate) mod views;
