//! Nodes on real sockets: servers as child processes, callers and answerers as threads of this
//! one, all on loopback.

mod agents;
mod seat;
mod tidegate;
mod watched;

pub use agents::{Answerers, Callers, Gauges};
pub use seat::Done;
pub(crate) use seat::{Seat, Socket};
pub use tidegate::{Status, Tidegate};
pub use watched::Watched;
