//! Runs nodes on real sockets, all on loopback: servers as child processes, callers and answerers
//! as threads of this process.

mod agents;
mod core_thread;
mod cpu;
mod tidegate;
mod watched;

pub use agents::{Answerers, Callers};
pub use core_thread::Done;
pub(crate) use core_thread::{CoreThread, Socket};
pub use cpu::Busiest;
pub use tidegate::{Status, Tidegate};
pub use watched::Watched;
