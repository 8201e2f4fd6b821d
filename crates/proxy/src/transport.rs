//! Listeners, the addresses behind them, how many bytes a peer may be sent, and connections.
//!
//! A flow over UDP has no connection. For streams the core hands each of `on_connected`, `on_closed`
//! and `on_writable` to the [`ConnectionTable`](connections::ConnectionTable), tells it of each
//! message that arrives on a stream, and gives it each message that goes out on one. Behind every
//! input it hands on what the table has for the driver, and takes what could not be sent.

pub(crate) mod addresses;
pub(crate) mod budget;
mod connection;
mod connections;
mod limits;
mod remotes;
mod unsent;
