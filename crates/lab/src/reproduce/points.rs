//! The runs of all set-ups (scenarios with the changes that claims need). A run is found by its
//! variant, its swept values and its repetition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::experiment::Experiment;
use crate::outcome::Outcome;
use crate::run_spec::RunSpec;

/// The runs of each set-up, by name of the set-up.
#[derive(Debug, Default)]
pub(super) struct Points(BTreeMap<String, Vec<Point>>);

/// A run with its outcome and its folder.
#[derive(Debug)]
pub(super) struct Point {
    pub run: RunSpec,
    pub outcome: Outcome,
    /// The folder with the files that the run has written.
    pub folder: PathBuf,
}

impl Points {
    /// Adds the runs in `experiment` under the id `setup`. `folder` is the folder with their
    /// results.
    pub(super) fn add(&mut self, setup: &str, experiment: Experiment, folder: &Path) {
        let Experiment { done, program, .. } = experiment;
        let point = |(run, outcome): (RunSpec, Outcome)| {
            let folder = folder.join("points").join(run.id(&program));
            Point { run, outcome, folder }
        };
        self.0.insert(setup.to_owned(), done.into_iter().map(point).collect());
    }

    /// Returns the runs of one set-up that have the given variant, swept values and repetition.
    /// `variant` is the label or the full name of the variant.
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

    /// Returns the number of seeds with which the set-up `setup` was run.
    pub(super) fn seeds(&self, setup: &str) -> u32 {
        let last = self.0.get(setup).into_iter().flatten().map(|point| point.run.repetition).max();
        last.map_or(0, |last| last + 1)
    }
}
