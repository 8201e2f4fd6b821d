//! Measures the additional CPU time of a message under an overload-control law that measures the
//! load at intervals and admits everything (f = 1).
//!
//! Calls of six messages alternately pass through two servers, one without overload control and one
//! under the law. Each pair of batches gives one difference, so changes of the machine's speed
//! affect both servers in the same way. Only the core is timed, as in [`costs`](crate::costs).
//!
//! The server of paper 000 reads the load of the processor at each measurement. In Tidegate the
//! driver reads the load every 2 ms, under any law. Both cases are measured:
//! [`Reading::AtMeasurement`] and [`Reading::ByDriver`].

use serde::Serialize;
use tidegate_proxy::Mode;
use tidegate_world::unit_enum;

use crate::measure::alone::Alone;
use crate::measure::messages::Parties;
use crate::measure::script::Script;
use crate::measure::subject::{Law, State};
use crate::spread::Spread;

/// Numbers of messages between two measurements of the law, as in paper 000 §6.2.
pub const EVERY: [u32; 8] = [1, 10, 100, 125, 250, 375, 500, 1000];

/// Number of messages between two readings of the load by the driver: 2 ms at 50,000 messages/s.
const READ_EVERY: u32 = 100;

/// The laws of paper 000, with the parameters that make them admit everything. With its default
/// `alpha_targ`, `aro` would treat complete acceptance as an overload.
const LAWS: [(&str, &str); 3] = [("occupancy", ""), ("aro", "alpha_targ = 1"), ("sired", "")];

/// The parameters of [`measure`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Mode of the server: with transactions, without, or adaptive.
    pub mode: Mode,
    /// Number of pairs of batches for each law and each number in [`EVERY`].
    pub rounds: u32,
    /// Number of calls in a batch.
    pub calls: u32,
}

unit_enum! {
    /// The times at which the load of the processor and of the sockets is read. Reports use these
    /// names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Reading {
        /// The law reads the load at each of its measurements.
        AtMeasurement = "at each measurement",
        /// The driver reads the load every 2 ms, with a law and without one.
        ByDriver = "every 2 ms",
    }
}

/// The CPU time that the measurements of a law add to each message.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the law.
    pub law: &'static str,
    /// Number of messages between two measurements of the law.
    pub measure: u32,
    /// The times at which the load of the processor and of the sockets is read.
    pub reading: Reading,
    /// CPU time of a message without overload control, in ns.
    pub none_ns: Spread,
    /// Additional CPU time of a message under the law, in ns. Each pair of batches gives one value.
    pub more_ns: Spread,
}

impl Row {
    /// Returns the median of the additional CPU time, divided by the median of the CPU time without
    /// overload control.
    pub fn part(&self) -> f64 {
        self.more_ns.median / self.none_ns.median
    }
}

/// A server and the generator of its messages.
struct Bench {
    server: Alone,
    script: Script,
}

impl Bench {
    fn new(parameters: &Parameters, law: Option<Law>, reads_every: u32) -> Result<Self, String> {
        let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let parties = Parties { server: at(5060), caller: at(5080), backend: at(5070) };
        let state = State { mode: parameters.mode, law, reads_every, rejects: None };
        let script = Script::new(parties, parameters.calls as usize);
        Ok(Self { server: Alone::new(&state, parties)?, script })
    }

    /// Passes one batch of calls through the server. Returns the CPU time of a message, in ns.
    fn play(&mut self) -> Result<f64, String> {
        self.script.calls(&mut self.server)?;
        let timed = self.script.take_timed();
        if timed.iter().any(|batch| batch.rejected > 0) {
            return Err("a law rejected a message that it should admit".to_owned());
        }
        let messages: usize = timed.iter().map(|batch| batch.messages).sum();
        Ok(timed.iter().map(|batch| batch.ns).sum::<f64>() / messages as f64)
    }
}

/// Measures the CPU time of a message under every law and without a law.
///
/// # Errors
/// Returns an error when a server rejects or loses messages of calls.
pub fn measure(parameters: &Parameters) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for reading in Reading::ALL {
        let reads_every = |measure| match reading {
            Reading::AtMeasurement => measure,
            Reading::ByDriver => READ_EVERY,
        };
        let mut none = Bench::new(
            parameters,
            None,
            if reading == Reading::ByDriver { READ_EVERY } else { 0 },
        )?;
        let settings = LAWS.iter().flat_map(|law| EVERY.map(|measure| (*law, measure)));
        let settings: Vec<_> = settings.collect();
        let under = settings.iter().map(|&((name, params), measure)| {
            let law = Law { name, measure, params };
            Bench::new(parameters, Some(law), reads_every(measure))
        });
        let mut under = under.collect::<Result<Vec<_>, String>>()?;
        let mut pairs = vec![Vec::new(); settings.len()];
        // The first pair of batches warms up the caches and is not counted.
        for round in 0..=parameters.rounds {
            for (bench, pairs) in under.iter_mut().zip(&mut pairs) {
                // The server that runs first finds colder caches, so the two servers take turns.
                let (without, with) = if round % 2 == 0 {
                    let without = none.play()?;
                    (without, bench.play()?)
                } else {
                    let with = bench.play()?;
                    (none.play()?, with)
                };
                if round > 0 {
                    pairs.push((without, with));
                }
            }
        }
        rows.extend(settings.iter().zip(&pairs).filter_map(|(((law, _), measure), pairs)| {
            let none_ns = Spread::of(pairs.iter().map(|(without, _)| *without))?;
            let more_ns = Spread::of(pairs.iter().map(|(without, with)| with - without))?;
            Some(Row { law, measure: *measure, reading, none_ns, more_ns })
        }));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_law_is_compared_with_none_under_both_ways_of_reading() {
        let parameters = Parameters { mode: Mode::Transaction, rounds: 2, calls: 5 };
        let rows = measure(&parameters).unwrap();
        let settings: Vec<_> = rows.iter().map(|row| (row.reading, row.law, row.measure)).collect();
        let mut expected = Vec::new();
        for reading in Reading::ALL {
            for law in ["occupancy", "aro", "sired"] {
                expected.extend(EVERY.map(|measure| (reading, law, measure)));
            }
        }
        assert_eq!(settings, expected);
        assert!(rows.iter().all(|row| row.none_ns.median > 0.0 && row.part().is_finite()));
    }
}
