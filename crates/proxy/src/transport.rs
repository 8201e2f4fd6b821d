//! Listeners, the addresses behind them, and how many bytes a peer may be sent.

pub(crate) mod addresses;
pub(crate) mod budget;
