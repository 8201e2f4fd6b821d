//! Simulated time for sans-IO cores.
//!
//! A [`Network`] drives the same cores as real sockets, by the same contract and with real bytes.
//! All random numbers come from one seed. Packets travel over a [`Link`], and time jumps from one
//! event to the next. Events have a total order: by time, and then by the order in which they were
//! entered. So a seed always gives the same run. A [`Trace`], a hash over all packets, shows
//! whether two runs were the same.
//!
//! Messages on a stream travel in order, as segments over the same links ([`StreamSettings`]). The
//! network cuts the stream into messages, and opens and closes connections at the request of cores.
//!
//! Faults happen only when they are applied ([`Fault`]): nodes crash, restart, stall and drain,
//! links become worse, nodes are partitioned.
//!
//! Work takes no time in a network, unless a core is put on an emulated host, which charges every
//! message in model time. The same host can also be used behind real sockets.

mod channel;
pub mod check;
pub mod fault;
mod link;
mod micros;
mod network;
mod node_id;
mod process;
mod relay;
mod stream;
mod tap;
mod zone;

pub use fault::Fault;
pub use link::{Bandwidth, Link};
pub use network::{Network, STALL_BUFFER, Summary};
pub use node_id::{NodeId, Silence};
pub use process::Process;
pub use relay::{Carriage, Relay, RelayCounts, RelaySettings};
pub use stream::StreamSettings;
pub use tap::{Loss, Tap, Trace};
pub use zone::{Resolution, Zone};
