//! Back ends: probes, names, health, and the 503 to a request when no back end is available.

pub(crate) mod health;
pub(crate) mod names;
pub(crate) mod probes;
pub(crate) mod slots;
pub(crate) mod unavailable;
