//! Back ends: probes, names and health, and the 503 response if no back end is available.

pub(crate) mod health;
pub(crate) mod names;
pub(crate) mod probes;
pub(crate) mod slots;
pub(crate) mod unavailable;
