//! The runs of all set-ups, that is, of the scenarios as the claims change them. A run is found by
//! its variant, its swept values and its repetition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::experiment::Experiment;
use crate::outcome::Outcome;
use crate::run_spec::RunSpec;

/// The runs of each set-up.
#[derive(Debug, Default)]
pub(super) struct Points(BTreeMap<String, Vec<Point>>);

/// A run, with its outcome and its files.
#[derive(Debug)]
pub(super) struct Point {
    /// Specification of the run.
    pub run: RunSpec,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Folder of the run's files.
    pub folder: PathBuf,
}

impl Points {
    /// Adds the runs of a set-up. Their results are in `folder`.
    pub(super) fn add(&mut self, setup: &str, experiment: Experiment, folder: &Path) {
        let Experiment { done, program, .. } = experiment;
        let point = |(run, outcome): (RunSpec, Outcome)| {
            let folder = folder.join("points").join(run.id(&program));
            Point { run, outcome, folder }
        };
        self.0.insert(setup.to_owned(), done.into_iter().map(point).collect());
    }

    /// Returns the runs of a variant with these swept values and this repetition. The variant is
    /// given by its label or by its full name.
    pub(super) fn of(
        &self,
        setup: &str,
        variant: &str,
        swept: &BTreeMap<String, f64>,
        repetition: u32,
    ) -> Vec<&Point> {
        let wanted = |point: &&Point| {
            let of = &point.run.variant;
            (of.label == variant || of.name() == variant)
                && point.run.repetition == repetition
                && swept.iter().all(|(name, value)| {
                    let has = |(axis, at): &(crate::scenario::Axis, f64)| {
                        axis.name() == name && at == value
                    };
                    point.run.swept.iter().any(has)
                })
        };
        self.0.get(setup).into_iter().flatten().filter(wanted).collect()
    }

    /// Returns the number of seeds of a set-up.
    pub(super) fn seeds(&self, setup: &str) -> u32 {
        let last = self.0.get(setup).into_iter().flatten().map(|point| point.run.repetition).max();
        last.map_or(0, |last| last + 1)
    }
}
