//! Listeners, the addresses behind them, and how many bytes a peer may be sent. Connections are the
//! matter of `tidegate-transport`, which stands around the proxy.

pub(crate) mod addresses;
pub(crate) mod budget;
