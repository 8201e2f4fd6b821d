//! Tests of a core on a processor of a given speed.

mod driver;
mod echo;

mod network;
mod overload;
mod processor;
mod properties;
mod script;
mod shedding;

use std::time::Duration;

use tidegate_emulate::{Costs, HostSettings};
use tidegate_world::{Timestamp, Work};

fn at(us: u64) -> Timestamp {
    Timestamp::ZERO + span(us)
}

fn span(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns the settings of a host with one FIFO, and with these costs of offering, serving and
/// rejecting in every class, in µs.
fn fifo(offer: u64, serve: u64, reject: u64) -> HostSettings {
    let costs = Costs::uniform(span(offer), span(serve), span(reject));
    HostSettings { split: false, ..HostSettings::new(costs) }
}

/// Returns the settings of a host with one FIFO, and with these costs of service in µs, one for
/// each class from 0 on. Nothing else costs time.
fn serving(serve: &[u64]) -> HostSettings {
    let mut settings = fifo(0, 0, 0);
    for (class, &cost) in (0..Work::CLASSES_MAX).zip(serve) {
        settings.costs.serve[class] = span(cost);
    }
    settings
}
