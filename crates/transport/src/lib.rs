//! The transport layer of SIP over streams, RFC 3261 §18.
//!
//! A core sends messages on flows. A flow has a transport and two addresses. If a message has to
//! use a certain connection, the flow also has the id of that connection. [`Streams`] wraps a core
//! and keeps the connections of the core in a [`ConnectionTable`]: it opens missing connections,
//! queues messages for slow ones, answers pings, and reports unsent messages to the core. Proxies
//! and user agents use the same table.

mod connection;
mod connections;
mod limits;
mod recency;
mod remotes;
mod streams;
mod unsent;
mod waiting_bytes;

pub use connection::ConnectionState;
pub use connections::ConnectionTable;
pub use limits::{ConnectionCounters, ConnectionLimits};
pub use streams::Streams;
pub use unsent::{Unsent, WhyUnsent};
