//! The result of a demonstration: a table, a picture, and a check of the claim that the protected
//! server keeps its goodput.

use std::fmt;

use serde::Serialize;

use super::plan::{CAPACITY_CPS, MULTIPLES, Side, bound};
use super::story::{Phase, Story};
use crate::figure::highlight::Highlights;
use crate::figure::overload::{Facet, Heading, Series, goodput};
use crate::figure::{Figure, Point};

/// The load at which the goodput of the protected server is checked, as a multiple of the capacity.
pub(crate) const PROMISED_AT: f64 = 2.0;
/// Minimum goodput of the protected server at the load [`PROMISED_AT`], as a fraction of the
/// greatest possible goodput.
pub(crate) const PROMISED: f64 = 0.8;

/// The outcomes of every load at both servers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Seed of the calls' arrivals.
    pub seed: u64,
    /// The rate in calls/s that keeps the emulated processor fully busy.
    pub capacity_cps: f64,
    /// Outcomes without protection, one for each load.
    pub unprotected: Vec<Phase>,
    /// Outcomes with protection, one for each load.
    pub protected: Vec<Phase>,
}

impl Summary {
    /// Summarises a complete story.
    pub(super) fn of(story: &Story, seed: u64) -> Self {
        let phases = |side| story.side(side).phases.clone();
        Self {
            seed,
            capacity_cps: CAPACITY_CPS,
            unprotected: phases(Side::Unprotected),
            protected: phases(Side::Protected),
        }
    }

    /// Returns the goodput of the protected server at the load [`PROMISED_AT`], as a fraction of
    /// the greatest possible goodput. Returns `None` if the demonstration did not offer this load.
    pub fn kept(&self) -> Option<f64> {
        let phase = self.protected.iter().find(|phase| phase.multiple == PROMISED_AT)?;
        Some(phase.goodput_of_bound())
    }

    /// Returns a sentence that says why the goodput of the protected server is too low or unknown,
    /// or `None` if it is high enough.
    pub fn fault(&self) -> Option<String> {
        match self.kept() {
            Some(kept) if kept >= PROMISED => None,
            Some(kept) => Some(format!(
                "At {PROMISED_AT} x capacity the protected server kept {:.0} % of the bound, \
                 less than {:.0} %.",
                kept * 100.0,
                PROMISED * 100.0
            )),
            None => Some(format!(
                "The claim cannot be checked: a load of {PROMISED_AT} x capacity was never \
                 offered."
            )),
        }
    }

    /// Returns reasons to doubt the result. These are faults of the load generator, not of the
    /// servers.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for phase in self.unprotected.iter().chain(&self.protected) {
            let load = phase.multiple;
            if let Some(why) = &phase.too_slow {
                doubts.push(format!("At {load} x capacity the generator did not keep up: {why}."));
            }
            if phase.generator_drops > 0 {
                let drops = phase.generator_drops;
                doubts.push(format!("At {load} x capacity the generator lost {drops} datagrams."));
            }
        }
        doubts
    }

    /// Draws the goodput over the offered load, and the greatest possible goodput.
    pub fn figure(&self) -> Figure {
        let series = |name: &str, phases: &[Phase]| Series {
            name: name.to_owned(),
            points: phases
                .iter()
                .map(|phase| Point::exact(phase.multiple, phase.goodput_cps / CAPACITY_CPS))
                .collect(),
        };
        let heading = Heading {
            title: "The same calls to a server with and without protection".to_owned(),
            note: format!(
                "Calls set up within 500 ms; emulated capacity {CAPACITY_CPS:.0} calls/s; seed {}",
                self.seed
            ),
            highlights: Highlights::choose(&Side::ALL.map(|side| (side.name(), 0.0, 0.0)), &[]),
        };
        let facet = Facet {
            title: String::new(),
            series: vec![
                series(Side::Protected.name(), &self.protected),
                series(Side::Unprotected.name(), &self.unprotected),
            ],
        };
        goodput(heading, &[facet], |_, multiple| bound(multiple))
    }
}

/// Width of a bar for the capacity, in columns. The longest bar is 1.2 times as wide.
const BAR: usize = 24;

/// Returns a bar whose length shows a goodput. The length is exact to an eighth of a column. `part`
/// is the goodput, and `bound` is the greatest possible goodput, both as parts of the capacity. A
/// character marks `bound`, unless the bar covers its place.
fn bar(part: f64, bound: f64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (part.clamp(0.0, 1.2) * BAR as f64 * 8.0).round() as usize;
    let mut cells: Vec<char> = "█".repeat(eighths / 8).chars().collect();
    if !eighths.is_multiple_of(8) {
        cells.push(EIGHTHS[eighths % 8]);
    }
    let mark = (bound * BAR as f64).round() as usize;
    while cells.len() <= BAR + 1 {
        cells.push(if cells.len() == mark { '┊' } else { ' ' });
    }
    cells.into_iter().collect()
}

fn millis(ms: Option<f64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0} ms"))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Goodput as a part of the capacity, {CAPACITY_CPS:.0} calls/s; ┊ marks the greatest possible goodput.\n"
        )?;
        let (one, other) = (Side::Unprotected.name(), Side::Protected.name());
        writeln!(f, "  offered   {one:<width$}{other}", width = BAR + 10)?;
        for (unprotected, protected) in self.unprotected.iter().zip(&self.protected) {
            let multiple = unprotected.multiple;
            let part = |phase: &Phase| phase.goodput_cps / CAPACITY_CPS;
            let cell =
                |phase: &Phase| format!("{} {:.2}", bar(part(phase), bound(multiple)), part(phase));
            writeln!(f, "  {multiple:>5} x   {}   {}", cell(unprotected), cell(protected))?;
        }
        writeln!(
            f,
            "\n  {:<22}{:>9}{:>9}{:>7}{:>9}{:>9}{:>9}{:>10}",
            "", "offered", "goodput", "bound", "rejected", "p50", "p99", "repeated"
        )?;
        for (index, multiple) in MULTIPLES.into_iter().enumerate() {
            for (side, phases) in [(one, &self.unprotected), (other, &self.protected)] {
                let Some(phase) = phases.get(index) else { continue };
                writeln!(
                    f,
                    "  {multiple:>5} x {side:<14}{:>7.0}/s{:>7.0}/s{:>5.0} %{:>7.0} %{:>9}{:>9}\
                     {:>8.2}",
                    phase.offered_cps,
                    phase.goodput_cps,
                    phase.goodput_of_bound() * 100.0,
                    phase.rejected * 100.0,
                    millis(phase.set_up_p50_ms),
                    millis(phase.set_up_p99_ms),
                    phase.retransmission_ratio
                )?;
            }
        }
        writeln!(
            f,
            "\n  goodput: calls set up within 500 ms; bound: goodput as a part of the greatest \
             possible goodput;\n  p50, p99: set-up delay of the calls that were set up; repeated: INVITEs \
             retransmitted per INVITE first sent.\n  seed {}",
            self.seed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(protected_cps: f64) -> Summary {
        let phase = |multiple: f64, goodput_cps| Phase {
            multiple,
            offered_cps: multiple * CAPACITY_CPS,
            goodput_cps,
            ..Phase::default()
        };
        Summary {
            seed: 1,
            capacity_cps: CAPACITY_CPS,
            unprotected: MULTIPLES.map(|multiple| phase(multiple, 20.0)).to_vec(),
            protected: MULTIPLES.map(|multiple| phase(multiple, protected_cps)).to_vec(),
        }
    }

    #[test]
    fn the_promise_is_80_percent_of_the_bound_at_twice_the_capacity() {
        let bound_cps = bound(2.0) * CAPACITY_CPS;
        assert_eq!(summary(0.81 * bound_cps).fault(), None);
        assert_eq!(
            summary(0.79 * bound_cps).fault().unwrap(),
            "At 2 x capacity the protected server kept 79 % of the bound, less than 80 %."
        );
        let mut cut = summary(180.0);
        cut.protected.truncate(2);
        assert_eq!(
            cut.fault().unwrap(),
            "The claim cannot be checked: a load of 2 x capacity was never offered."
        );
    }

    #[test]
    fn a_failed_generator_is_named_as_a_doubt() {
        let mut summary = summary(180.0);
        summary.unprotected[3].generator_drops = 5;
        summary.protected[1].too_slow = Some("late".to_owned());
        assert_eq!(
            summary.doubts(),
            [
                "At 5 x capacity the generator lost 5 datagrams.",
                "At 1 x capacity the generator did not keep up: late."
            ]
        );
    }

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(1.0, 1.0).trim_end(), "█".repeat(BAR) + "┊");
        assert_eq!(bar(0.0, 0.5).trim_end(), " ".repeat(BAR / 2) + "┊");
        assert_eq!(bar(0.5 + 0.5 / BAR as f64, 0.0).trim_end(), "█".repeat(BAR / 2) + "▌");
    }

    #[test]
    fn the_table_has_a_row_for_each_load_and_side() {
        let shown = summary(180.0).to_string();
        assert_eq!(shown.matches(" x unprotected").count(), 4, "{shown}");
        assert_eq!(shown.matches(" x protected").count(), 4, "{shown}");
        assert!(shown.contains("0.90"), "{shown}");
        assert!(!shown.contains("  0 ms"), "no call was set up, so none took any time: {shown}");
    }

    /// The calls arrive at random, so fewer or more calls may be offered than requested.
    #[test]
    fn the_bound_is_that_of_the_calls_that_were_offered() {
        let mut summary = summary(80.0);
        summary.protected[0].offered_cps = 80.0;
        summary.protected[2].offered_cps = 1e3;
        let of_bound = summary.protected.iter().map(Phase::goodput_of_bound);
        let of_bound: Vec<String> = of_bound.map(|part| format!("{part:.2}")).collect();
        let of_five = format!("{:.2}", 80.0 / CAPACITY_CPS / bound(5.0));
        assert_eq!((&*of_bound[0], &*of_bound[2]), ("1.00", &*of_five));
    }
}
