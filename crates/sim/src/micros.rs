//! Serializes times as whole microseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};
use tidegate_world::Timestamp;

pub(crate) fn serialize<T: Micros, S: Serializer>(time: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(time.micros())
}

pub(crate) fn deserialize<'de, T: Micros, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    u64::deserialize(from).map(T::of_micros)
}

/// A time that can be converted to and from whole microseconds.
pub(crate) trait Micros {
    fn micros(&self) -> u64;
    fn of_micros(us: u64) -> Self;
}

impl Micros for Duration {
    fn micros(&self) -> u64 {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
    }

    fn of_micros(us: u64) -> Self {
        Self::from_micros(us)
    }
}

impl Micros for Timestamp {
    fn micros(&self) -> u64 {
        self.as_nanos() / 1000
    }

    fn of_micros(us: u64) -> Self {
        Self::ZERO + Duration::from_micros(us)
    }
}
