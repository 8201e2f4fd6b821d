//! The transport layer of SIP over streams, RFC 3261 §18.
//!
//! A core thinks in flows: a transport, two addresses and, if a message has to take a certain
//! connection, that one's name. [`Streams`] stands around such a core and keeps its connections in
//! a [`ConnectionTable`]: it opens those that are missing, has messages wait for those that are
//! slow, answers pings, and tells the core what could not be sent. Proxies and user agents stand on
//! the same table.

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
