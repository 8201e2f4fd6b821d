//! Listeners, and the limit on the bytes sent to a peer. `tidegate-transport`, which wraps the
//! proxy, handles connections.

pub(crate) mod addresses;
pub(crate) mod budget;
pub(crate) mod stun;
