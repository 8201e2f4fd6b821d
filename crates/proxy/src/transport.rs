//! Listeners, the addresses behind them, and how many bytes a peer may be sent. Connections are
//! handled by `tidegate-transport`, which wraps the proxy.

pub(crate) mod addresses;
pub(crate) mod budget;
