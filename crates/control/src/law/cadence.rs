//! The schedule of measurements, for laws that measure after a number of messages.
//!
//! Paper 000 §6.3: measuring takes time, but if the law measures too rarely, the queue overflows
//! before the law notices the overload. A law declares overload when its smoothed signal exceeds a
//! threshold `min`, such as the target occupancy ρ_targ. An average with weight w lags by 1/w
//! measurements, and these must take place while the signal rises from `min` to 1. To act before a
//! queue of Q messages overflows, the law must measure at least every Q·(1−min)·w messages
//! (equation 12, or 11 with w = 1). To notice an overload within t seconds at R messages a second,
//! it must measure at least every t·R·(1−min)·w messages (equation 13). `measure = 0` uses the
//! smaller of the two numbers, computed from the observed rate and the size of the queue.
//!
//! If few messages arrive, this number of messages takes long. So a measurement is also due after a
//! second. A law with this cadence asks for a tick of [`PATIENCE`], because without messages
//! nothing else triggers a measurement.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::arrival_rate::ArrivalRate;
use crate::{Control, Param, Signals, Values};

pub(crate) static MEASURE: Param = Param::whole("measure", "messages", 125.0, 0, 100_000).doc(
    "Messages from one measurement to the next. The law also measures a second after the last \
     measurement, even if fewer messages have arrived. 0: the law computes the number from the \
     arrival rate, from `notice_s`, from the size of the queue (`[server] queue_max`), and from \
     its own threshold and weight.",
);

pub(crate) static NOTICE: Param = Param::real("notice_s", "s", 1.0, 0.01, 60.0).doc(
    "With `measure = 0`: the time within which the law must notice an overload. The shorter this \
     time is, the more often the law measures.",
);

pub(crate) static ACCEPT: Param = Param::whole("accept_measured", "0 or 1", 0.0, 0, 1).doc(
    "1: the message at which the law measures is always admitted, as in paper 000 §6.3. 0: this \
     message is treated like any other.",
);

/// The longest time between two measurements, however few messages arrive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The schedule of measurements of a law.
#[derive(Clone, Debug)]
pub(crate) struct Cadence {
    every: Every,
    accepts: bool,
    /// Number of messages that have arrived.
    seen: u64,
    /// True if the last call of [`is_due`](Self::is_due) was at an arrival, not at a tick.
    at_arrival: bool,
    /// Time of the last measurement, and number of messages that had arrived by then.
    taken: (Timestamp, u64),
}

#[derive(Clone, Debug)]
enum Every {
    Messages(u64),
    /// Measures so often that the law acts before the queue overflows and within `notice_s`
    /// seconds. `step` is the factor (1−min)·w of equations 12 and 13.
    InTime {
        step: f64,
        notice_s: f64,
        rate: ArrivalRate,
    },
}

impl Cadence {
    /// Creates the cadence with the values of [`MEASURE`], [`NOTICE`] and [`ACCEPT`]. The law
    /// declares overload above `threshold`, and smooths its signal with `weight`. A weight of 1
    /// means no smoothing.
    pub(crate) fn new(values: &Values, threshold: f64, weight: f64) -> Self {
        let every = match values.of(&MEASURE) as u64 {
            0 => Every::InTime {
                step: (1.0 - threshold) * weight,
                notice_s: values.of(&NOTICE),
                rate: ArrivalRate::default(),
            },
            count => Every::Messages(count),
        };
        let accepts = values.of(&ACCEPT) == 1.0;
        Self { every, accepts, seen: 0, at_arrival: false, taken: (Timestamp::ZERO, 0) }
    }

    /// Starts to count at `now`. The server may already have been running for some time.
    pub(crate) fn start(&mut self, now: Timestamp, signals: &Signals) {
        (self.seen, self.taken) = (signals.messages, (now, signals.messages));
    }

    /// Returns whether a measurement is due. Must be called at each arrival and each tick.
    pub(crate) fn is_due(&mut self, now: Timestamp, signals: &Signals) -> bool {
        let before = std::mem::replace(&mut self.seen, signals.messages);
        self.at_arrival = signals.messages > before;
        let every = match &mut self.every {
            Every::Messages(count) => *count,
            Every::InTime { step, notice_s, rate } => {
                if self.at_arrival {
                    rate.on_arrival(now);
                }
                let noticed = (*notice_s * rate.rate()).min(signals.queue.room as f64);
                (noticed * *step) as u64
            }
        };
        let (then, messages) = self.taken;
        signals.messages - messages >= every.max(1) || now.since(then) >= PATIENCE
    }

    /// Records a measurement. Returns the number of messages since the previous one.
    pub(crate) fn on_taken(
        &mut self,
        now: Timestamp,
        signals: &Signals,
        control: &mut Control,
    ) -> u64 {
        control.admit_next |= self.accepts && self.at_arrival;
        let (_, before) = std::mem::replace(&mut self.taken, (now, signals.messages));
        signals.messages - before
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use crate::Entry;

    static ENTRY: Entry = Entry {
        name: "measured",
        summary: "",
        source: "",
        doc: "",
        params: &[&MEASURE, &NOTICE, &ACCEPT],
        check: |_| Ok(()),
        build: |_| unreachable!("only its parameters are wanted"),
    };

    fn cadence(given: &[(&str, f64)], threshold: f64, weight: f64) -> Cadence {
        Cadence::new(&ENTRY.values(given).unwrap(), threshold, weight)
    }

    /// Returns the number of messages between the last two measurements of a long run at a constant
    /// rate.
    fn interval(cadence: &mut Cadence, room: usize, per_second: u64) -> u64 {
        let mut signals = Signals::default();
        signals.queue.room = room;
        let mut control = Control::OPEN;
        let (mut last, mut interval) = (0, 0);
        for i in 1..=20 * per_second {
            let now = Timestamp::from_nanos(i * 1_000_000_000 / per_second);
            signals.messages = i;
            if cadence.is_due(now, &signals) {
                interval = cadence.on_taken(now, &signals, &mut control);
                assert_eq!(interval, i - std::mem::replace(&mut last, i));
            }
        }
        interval
    }

    #[test]
    fn a_fixed_count_is_kept_but_not_for_longer_than_a_second() {
        for (rate, expected) in [(1000, 125), (200, 125), (50, 50), (3, 3)] {
            assert_eq!(interval(&mut cadence(&[], 0.05, 0.1), 4096, rate), expected, "{rate}/s");
        }
    }

    // 000 §6.3: "let t = 1. In later experiments, min = .7, and w = .1. Later experiments also
    // determine that PP_r ≥ 4000 […]. These values give measure = 120."
    #[test]
    fn the_worked_example_of_the_paper_gives_120() {
        let interval = interval(&mut cadence(&[("measure", 0.0)], 0.7, 0.1), 100_000, 4000);
        assert!(interval.abs_diff(120) <= 1, "{interval}");
    }

    // 000 §6.3, equations 11 to 13, with min 0.7: 0.03 of the arrivals in a second, or of the queue.
    #[test]
    fn an_automatic_cadence_notices_in_time_and_before_the_queue_overflows() {
        let auto =
            |given: &[(&str, f64)]| cadence(&[&[("measure", 0.0)], given].concat(), 0.7, 0.1);
        for (room, rate, expected) in [(4096, 1000, 30), (4096, 200, 6), (1000, 10_000, 30)] {
            let interval = interval(&mut auto(&[]), room, rate);
            assert!(interval.abs_diff(expected) <= 1, "{room}, {rate}/s: {interval}");
        }
        let quick = interval(&mut auto(&[("notice_s", 0.5)]), 4096, 1000);
        assert!(quick.abs_diff(15) <= 1, "{quick}");
        // Equation 11: no smoothing.
        let plain = interval(&mut cadence(&[("measure", 0.0)], 0.7, 1.0), 500, 10_000);
        assert!(plain.abs_diff(150) <= 1, "{plain}");
        assert_eq!(interval(&mut auto(&[]), 0, 100), 1, "at least every one");
    }

    // 000 §3.1-3.3: overload is declared above ρ_thresh, above α_targ and above Q_min, not at f_min.
    #[test]
    fn each_law_measures_by_its_own_threshold_of_overload() {
        use super::super::{acceptance, aro, occupancy, sired};
        let one = [("w", 1.0), ("measure", 0.0), ("accept_measured", 1.0)];
        for (entry, given, expected) in [
            (&sired::ENTRY, [&one[..], &[("q_min", 0.7), ("f_min", 0.5)]].concat(), 300),
            (&occupancy::ENTRY, [&one[..], &[("rho_targ", 0.6), ("f_min", 0.1)]].concat(), 400),
            (&acceptance::ENTRY, [&one[1..], &[("alpha_targ", 0.8), ("f_min", 0.1)]].concat(), 200),
            (
                &aro::ENTRY,
                [&one[..], &[("rho_targ", 0.6), ("alpha_targ", 0.8), ("f_min", 0.1)]].concat(),
                400,
            ),
        ] {
            let mut bench = Bench::of(entry, &given);
            bench.signals.queue.room = 1000;
            // At 100,000 messages a second, the size of the queue determines the cadence.
            let taken: Vec<u64> = (1..=20_000)
                .filter(|_| {
                    bench.pass(Duration::from_micros(10), 0.5);
                    bench.signals.messages += 1;
                    bench.control.admit_next = false;
                    bench.arrival();
                    bench.control.admit_next
                })
                .collect();
            let interval = taken[taken.len() - 1] - taken[taken.len() - 2];
            assert!(interval.abs_diff(expected) <= 1, "{}: {interval}", entry.name);
        }
    }

    #[test]
    fn without_messages_one_is_due_after_a_second() {
        for given in [[].as_slice(), &[("measure", 0.0)]] {
            let mut cadence = cadence(given, 0.05, 0.1);
            let (signals, mut control) = (Signals::default(), Control::OPEN);
            let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
            assert!(!cadence.is_due(at(999), &signals) && cadence.is_due(at(1000), &signals));
            assert_eq!(cadence.on_taken(at(1000), &signals, &mut control), 0);
            assert!(!cadence.is_due(at(1999), &signals) && cadence.is_due(at(2000), &signals));
        }
    }

    #[test]
    fn the_measured_message_is_admitted_if_configured() {
        for (accepts, messages, admits) in [(0.0, 1, false), (1.0, 1, true), (1.0, 0, false)] {
            let mut cadence = cadence(&[("accept_measured", accepts)], 0.05, 0.1);
            let (signals, mut control) =
                (Signals { messages, ..Signals::default() }, Control::OPEN);
            cadence.is_due(Timestamp::ZERO, &signals);
            cadence.on_taken(Timestamp::ZERO, &signals, &mut control);
            assert_eq!(control.admit_next, admits, "{accepts}, {messages} messages");
        }
        assert!(ENTRY.values(&[("accept_measured", 0.5)]).is_err());
    }
}
