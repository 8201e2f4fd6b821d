//! Measures the cost and the accuracy of the load measurements of an overload-control law. This
//! repeats paper 000 §6.2, §4.1.1 and §3.4 on this machine.
//!
//! [`packets`] measures the CPU time of a message for each interval between measurements.
//! [`readings`] measures the error of the occupancy that a law sees, for each window and each
//! resolution of the clock. [`droppers`] measures the deviation of two throttles from the share of
//! requests that they should admit.

pub mod droppers;
pub mod packets;
pub mod picture;
pub mod readings;

use serde::Serialize;

use crate::machine::Machine;

/// The parameters of [`measure`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Parameters for the CPU time that measurements of the load take.
    pub packets: packets::Parameters,
    /// Parameters for the accuracy of measurements of the load.
    pub readings: readings::Parameters,
    /// Parameters for the throttles.
    pub droppers: droppers::Parameters,
}

/// The measured cost and accuracy of load measurements, and the accuracy of throttles.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// The machine on which the overhead was measured.
    pub machine: Machine,
    /// One row for each law, interval between measurements, and way to read the load.
    pub packets: Vec<packets::Row>,
    /// The occupancy of a thread, and one row for each clock and window.
    pub readings: readings::Readings,
    /// One row for each throttle and each share of requests to admit.
    pub droppers: Vec<droppers::Row>,
}

/// Makes the measurements of [`packets`], [`readings`] and [`droppers`].
///
/// # Errors
/// Returns an error when a server rejects or loses messages of calls, or when a thread cannot be
/// created.
pub fn measure(parameters: &Parameters) -> Result<Overhead, String> {
    Ok(Overhead {
        machine: Machine::this(),
        packets: packets::measure(&parameters.packets)?,
        readings: readings::measure(&parameters.readings)?,
        droppers: droppers::measure(&parameters.droppers),
    })
}
