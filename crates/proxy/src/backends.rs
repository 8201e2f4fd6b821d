//! Back ends: probes, names, health, and the response when none is available.

pub(crate) mod health;
pub(crate) mod names;
pub(crate) mod probes;
pub(crate) mod slots;
pub(crate) mod unavailable;
