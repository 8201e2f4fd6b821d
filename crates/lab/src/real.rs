//! Nodes on real sockets: servers as child processes, callers and answerers as threads of this
//! one, all on loopback.

mod agents;
mod tidegate;
mod watched;

pub use agents::{Answerers, Callers, Done, Gauges};
pub use tidegate::{Status, Tidegate};
pub use watched::Watched;
