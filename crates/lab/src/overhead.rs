//! What measuring costs, and what it is worth: 000 §6.2, §4.1.1 and §3.4 on the machine at hand.
//!
//! [`packets`]: CPU time of a message by how often the law measures. [`readings`]: the error of
//! the occupancy that a law sees, by its window and by the grain of the clock. [`droppers`]: how
//! far the two ways to pick what is refused stray from the share they are to admit.

pub mod droppers;
pub mod packets;
pub mod picture;
pub mod readings;

use serde::Serialize;

use crate::machine::Machine;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// What measuring costs.
    pub packets: packets::Parameters,
    /// What it shows.
    pub readings: readings::Parameters,
    /// What is done with it.
    pub droppers: droppers::Parameters,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// The machine it was measured on.
    pub machine: Machine,
    /// A row for each law, number of messages between measurements, and way to read.
    pub packets: Vec<packets::Row>,
    /// The occupancy of a thread, and a row for each clock and window.
    pub readings: readings::Readings,
    /// A row for each dropper and share.
    pub droppers: Vec<droppers::Row>,
}

/// Measures all of it.
///
/// # Errors
/// When a server does not do what it is measured for, or there is no thread.
pub fn measure(parameters: &Parameters) -> Result<Overhead, String> {
    Ok(Overhead {
        machine: Machine::this(),
        packets: packets::measure(&parameters.packets)?,
        readings: readings::measure(&parameters.readings)?,
        droppers: droppers::measure(&parameters.droppers),
    })
}
