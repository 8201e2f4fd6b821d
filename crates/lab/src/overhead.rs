//! Measures the cost and the accuracy of a law's measurements: paper 000 §6.2, §4.1.1 and §3.4 on
//! this machine.
//!
//! [`packets`] measures the CPU time of a message for each interval of measurements. [`readings`]
//! measures the error of the occupancy that a law sees, for each window and each resolution of the
//! clock. [`droppers`] measures how far two throttles deviate from the share that they should
//! admit.

pub mod droppers;
pub mod packets;
pub mod picture;
pub mod readings;

use serde::Serialize;

use crate::machine::Machine;

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The cost of measuring.
    pub packets: packets::Parameters,
    /// The accuracy of measurements.
    pub readings: readings::Parameters,
    /// The throttles.
    pub droppers: droppers::Parameters,
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// The machine on which the overhead was measured.
    pub machine: Machine,
    /// One row for each law, interval of measurements, and way to read.
    pub packets: Vec<packets::Row>,
    /// The occupancy of a thread, and one row for each clock and window.
    pub readings: readings::Readings,
    /// One row for each throttle and share.
    pub droppers: Vec<droppers::Row>,
}

/// Makes all three measurements.
///
/// # Errors
/// Returns an error when a server does not pass the calls, or when a thread cannot be created.
pub fn measure(parameters: &Parameters) -> Result<Overhead, String> {
    Ok(Overhead {
        machine: Machine::this(),
        packets: packets::measure(&parameters.packets)?,
        readings: readings::measure(&parameters.readings)?,
        droppers: droppers::measure(&parameters.droppers),
    })
}
