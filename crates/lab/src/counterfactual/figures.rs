//! Summarises the outcomes of calls, as numbers and as a table.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::Values;
use tidegate_world::Timestamp;

use super::observer::Observer;
use crate::table::plain_table;

/// The outcomes of the calls whose deadline had passed when the observations ended. Other calls are
/// not counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Number of calls started.
    pub offered: u64,
    /// Number of calls set up within the deadline.
    pub in_time: u64,
    /// Number of calls that the proxy itself rejected.
    pub rejected: u64,
    /// Number of retransmitted INVITEs per call started.
    pub retransmission_ratio: f64,
    /// Median set-up delay of the calls that were set up, in ms, or `None` if no call was set up.
    pub setup_p50_ms: Option<f64>,
    /// Set-up delay that 1 % of the calls that were set up exceed, in ms, or `None` if no call was
    /// set up.
    pub setup_p99_ms: Option<f64>,
}

impl Figures {
    /// Returns the outcomes of the calls that `observer` observed until `end`. `deadline` is the
    /// maximum set-up delay of a call that counts as set up in time.
    pub fn of(observer: &Observer, deadline: Duration, end: Timestamp) -> Self {
        let judged: Vec<_> =
            observer.calls().iter().filter(|call| call.arrived + deadline <= end).collect();
        let count = |is: &dyn Fn(&super::Call) -> bool| {
            judged.iter().filter(|call| is(call)).count() as u64
        };
        let mut setups: Vec<_> = judged.iter().filter_map(|call| call.setup()).collect();
        setups.sort_unstable();
        let quantile = |q: f64| {
            let index = ((setups.len() as f64 * q).ceil() as usize).saturating_sub(1);
            setups.get(index).map(|setup| setup.as_secs_f64() * 1e3)
        };
        let repeated: u64 = judged.iter().map(|call| u64::from(call.repeated)).sum();
        Self {
            offered: judged.len() as u64,
            in_time: count(&|call| call.setup().is_some_and(|setup| setup <= deadline)),
            rejected: count(&|call| call.is_rejected()),
            retransmission_ratio: repeated as f64 / (judged.len() as f64).max(1.0),
            setup_p50_ms: quantile(0.5),
            setup_p99_ms: quantile(0.99),
        }
    }
}

/// The outcomes of the calls under one law: a row of the table of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the overload-control law, and its parameters that differ from their defaults.
    pub law: String,
    /// Origin of the outcomes: `as recorded` or `simulated`.
    pub how: &'static str,
    /// Outcomes of the calls.
    pub figures: Figures,
}

impl Row {
    /// Creates a row for `law`.
    pub fn new(how: &'static str, law: &Values, figures: Figures) -> Self {
        let mut name = law.entry().name.to_owned();
        for (param, value) in law.each().filter(|(param, value)| *value != param.default) {
            name += &format!(" {}={value}", param.name);
        }
        Self { law: name, how, figures }
    }
}

/// Formats the rows as a table.
pub fn render(rows: &[Row]) -> String {
    let header = ["law", "", "offered", "in time", "", "rejected", "resent", "p50 ms", "p99 ms"];
    let line = |Row { law, how, figures }: &Row| {
        let share = |part: u64| 100.0 * part as f64 / figures.offered.max(1) as f64;
        let ms = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1}"));
        vec![
            law.clone(),
            (*how).to_owned(),
            figures.offered.to_string(),
            figures.in_time.to_string(),
            format!("{:.1} %", share(figures.in_time)),
            format!("{:.1} %", share(figures.rejected)),
            format!("{:.3}", figures.retransmission_ratio),
            ms(figures.setup_p50_ms),
            ms(figures.setup_p99_ms),
        ]
    };
    plain_table(&header, rows.iter().map(line), 2.., 1)
}

#[cfg(test)]
mod tests {
    use tidegate_control::registry;
    use tidegate_world::{Entry, Flow, Input};

    use super::*;
    use crate::testing::at_ms as ms;

    /// Returns the observations of `calls`. Each has its start and, if it got a final response, the
    /// status and time of the response. The times are in ms.
    fn seen(calls: &[(u64, Option<(u16, u64)>)]) -> Observer {
        let flow = Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut observer = Observer::default();
        for (id, (at, decided)) in calls.iter().enumerate() {
            let message = |start: &str| {
                format!(
                    "{start}\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
                     To: <sip:b@h>\r\nCall-ID: {id}\r\nCSeq: 1 INVITE\r\n\r\n"
                )
            };
            let invite = message("INVITE sip:b@h SIP/2.0");
            // Every INVITE comes twice.
            for now in [ms(*at), ms(at + 500)] {
                let input = Input::Offer(now, flow, invite.as_bytes(), 0);
                observer.see(&Entry { now, input });
            }
            if let Some((status, at)) = decided {
                let response = message(&format!("SIP/2.0 {status} X"));
                observer.see_sent(ms(*at), flow, response.as_bytes());
            }
        }
        observer
    }

    #[test]
    fn only_calls_that_had_time_until_the_deadline_are_counted() {
        let observer = seen(&[
            (0, Some((200, 100))),
            (10, Some((200, 610))),
            (20, Some((503, 21))),
            (30, None),
            (600, Some((200, 601))),
        ]);
        let figures = Figures::of(&observer, Duration::from_millis(500), ms(1000));
        let expected = Figures {
            offered: 4,
            in_time: 1,
            rejected: 1,
            retransmission_ratio: 1.0,
            setup_p50_ms: Some(100.0),
            setup_p99_ms: Some(600.0),
        };
        assert_eq!(figures, expected);
        let later = Figures::of(&observer, Duration::from_millis(600), ms(1200));
        assert_eq!((later.offered, later.in_time), (5, 3));
        let none = Figures::of(&Observer::default(), Duration::ZERO, ms(1));
        assert_eq!((none.offered, none.setup_p50_ms), (0, None));
    }

    #[test]
    fn a_row_names_the_parameters_that_were_chosen() {
        let pi = registry::find("pi").unwrap();
        let figures = Figures::of(&seen(&[(0, Some((503, 1)))]), Duration::ZERO, ms(1));
        let rows = [
            Row::new("as recorded", &pi.defaults(), figures.clone()),
            Row::new("simulated", &pi.values(&[("t_q", 0.01)]).unwrap(), figures),
        ];
        assert_eq!((&*rows[0].law, &*rows[1].law), ("pi", "pi t_q=0.01"));
        let table = render(&rows);
        assert!(table.contains("as recorded        1        0  0.0 %   100.0 %"), "{table}");
    }
}
