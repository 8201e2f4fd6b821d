//! Reads the claims of papers from files, one file for each paper.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use tidegate_world::unit_enum;
use toml::Table;

/// The claims of all papers.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// The papers, in the order of their file names.
    pub papers: Vec<Paper>,
}

/// The claims of one paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Name of the paper, such as `001`.
    pub paper: String,
    /// The set-ups: variations of scenarios that the claims use.
    #[serde(default, rename = "setup")]
    pub setups: Vec<Setup>,
    /// The claims that `tidegate-lab reproduce` judges from its own runs.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// The claims that other commands measure and judge.
    #[serde(default, rename = "measured")]
    pub measured: Vec<Measured>,
    /// The claims for which there is no experiment.
    #[serde(default, rename = "missing")]
    pub missing: Vec<Missing>,
}

/// A scenario with the changes that a claim needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Name of the set-up, unique among all papers.
    pub id: String,
    /// Name of the scenario file, without extension.
    pub scenario: String,
    /// Keys of the scenario with the values that they have in this set-up.
    #[serde(default)]
    pub change: Table,
    /// Further keys of the scenario with the values that they have in this set-up with `--quick`.
    #[serde(default)]
    pub quick: Table,
}

/// A claim of a paper, and the rule for the verdict on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the claim, unique among all papers.
    pub id: String,
    /// Section and figure of the paper that contain the claim.
    pub place: String,
    /// The claim, in the terms of the paper.
    pub says: String,
    /// The set-up for all measures in `values` that do not name a set-up.
    pub setup: String,
    /// Expressions of measures, by name. Each is evaluated for each seed.
    pub values: BTreeMap<String, String>,
    /// The condition on the values under which the claim is reproduced.
    pub reproduced: String,
    /// The condition on the values under which the claim is reproduced in part. Without a
    /// condition, the verdict is never "in part".
    pub partly: Option<String>,
    /// The result in words, with `{{ name }}` for each value.
    pub shows: String,
    /// The expected verdict. Any other verdict is an error.
    pub verdict: Grade,
    /// A reason why the verdict is weak evidence, if there is one.
    pub label: Option<Label>,
    /// The reason why the claim is not reproduced, or only in part, with evidence.
    pub because: Option<String>,
    /// The values in the paper. The rule must give the verdict "reproduced" for these values.
    pub paper: BTreeMap<String, f64>,
    /// Sets of wrong values. Each set replaces some of the paper's values. The rule must not give
    /// the verdict "reproduced" for any set. In the file, a single set can be given without a list.
    #[serde(deserialize_with = "one_or_several")]
    pub planted: Vec<BTreeMap<String, f64>>,
    /// True if `--quick` runs the claim. This is possible if a short run with one seed gives the
    /// same verdict.
    #[serde(default)]
    pub quick: bool,
}

/// Reads one set of values, or a list of sets.
fn one_or_several<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<BTreeMap<String, f64>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Sets {
        One(BTreeMap<String, f64>),
        Several(Vec<BTreeMap<String, f64>>),
    }
    Ok(match Sets::deserialize(deserializer)? {
        Sets::One(set) => vec![set],
        Sets::Several(sets) => sets,
    })
}

/// A claim about real processor time, which a command other than `tidegate-lab reproduce` measures
/// and judges.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Name of the claim, unique among all papers. A claim has a name only if its command reads the
    /// claim from this file.
    pub id: Option<String>,
    /// Section and figure of the paper that contain the claim.
    pub place: String,
    /// The claim, in the terms of the paper.
    pub says: String,
    /// The verdict that the command gives.
    pub verdict: Grade,
    /// The result in words.
    pub shows: String,
    /// The command that measures and judges the claim.
    pub command: String,
    /// Commit of the program that was measured, if the commit is known.
    pub commit: Option<String>,
}

/// A claim for which there is no experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Section and figure of the paper that contain the claim.
    pub place: String,
    /// The claim, in the terms of the paper.
    pub says: String,
    /// The features or data that an experiment for the claim would need.
    pub lacks: String,
}

unit_enum! {
    /// The verdict on a claim.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Grade {
        /// The claim is not reproduced.
        Not = "not",
        /// The claim is reproduced in part, or under other conditions.
        Partly = "partly",
        /// The claim is reproduced.
        Reproduced = "reproduced",
    }
}

unit_enum! {
    /// A reason why the verdict on a claim is weak evidence.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    pub enum Label {
        /// A condition that the paper does not give was chosen so that the claim holds.
        #[serde(rename = "fitted")]
        Fitted = "fitted",
        /// The emulated servers are made so that the claim must hold.
        #[serde(rename = "by construction")]
        ByConstruction = "by construction",
    }
}

impl Claims {
    /// Reads all files `*.toml` in `folder`.
    ///
    /// # Errors
    /// Returns a sentence that names the faulty file.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let wrong =
            |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let entries = fs::read_dir(folder).map_err(|error| wrong(folder, &error))?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(folder, &error))?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        paths.sort();
        let mut claims = Self::default();
        for path in &paths {
            let text = fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
            claims.papers.push(toml::from_str(&text).map_err(|error| wrong(path, &error))?);
        }
        claims.check().map_err(|error| wrong(folder, &error))?;
        Ok(claims)
    }

    /// Returns all claims that are judged by a rule.
    pub fn all(&self) -> impl Iterator<Item = &Claim> {
        self.papers.iter().flat_map(|paper| &paper.claims)
    }

    /// Returns the commits of the programs that other commands measured, each with the number of
    /// claims that were measured with its program.
    pub fn measured_commits(&self) -> BTreeMap<String, usize> {
        let mut commits = BTreeMap::new();
        let rows = self.papers.iter().flat_map(|paper| &paper.measured);
        for commit in rows.filter_map(|row| row.commit.clone()) {
            *commits.entry(commit).or_default() += 1;
        }
        commits
    }

    /// Returns the set-ups of all papers.
    pub fn setups(&self) -> impl Iterator<Item = &Setup> {
        self.papers.iter().flat_map(|paper| &paper.setups)
    }

    /// Returns an error if two claims or two set-ups have the same name.
    fn check(&self) -> Result<(), String> {
        let measured = self.papers.iter().flat_map(|paper| &paper.measured);
        let measured = measured.filter_map(|row| row.id.as_deref());
        for mut names in [
            self.all().map(|claim| &*claim.id).chain(measured).collect::<Vec<_>>(),
            self.setups().map(|setup| &*setup.id).collect(),
        ] {
            names.sort_unstable();
            if let Some(twin) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("two claims or two set-ups are called `{}`", twin[0]));
            }
        }
        Ok(())
    }
}

/// Replaces the values in `table` by those in `change`. Tables are merged key by key, and arrays of
/// tables element by element, for as many elements as `change` has. Any other value, also an empty
/// list, replaces the old value.
///
/// # Errors
/// Returns an error if an array in `change` has more tables than the array in `table`.
pub(super) fn merge(table: &mut Table, change: &Table) -> Result<(), String> {
    for (key, new) in change {
        match table.get_mut(key) {
            Some(old) => merge_value(key, old, new)?,
            None => {
                table.insert(key.clone(), new.clone());
            }
        }
    }
    Ok(())
}

fn merge_value(key: &str, old: &mut toml::Value, new: &toml::Value) -> Result<(), String> {
    use toml::Value::{Array, Table};
    match (old, new) {
        (Table(old), Table(new)) => merge(old, new)?,
        // An empty list is a value like any other, not a list of no changes.
        (Array(old), Array(new)) if !new.is_empty() && new.iter().all(toml::Value::is_table) => {
            if new.len() > old.len() {
                let (changed, known) = (new.len(), old.len());
                return Err(format!(
                    "the set-up changes {changed} tables `{key}`, but the scenario has only {known}"
                ));
            }
            for (old, new) in old.iter_mut().zip(new) {
                merge_value(key, old, new)?;
            }
        }
        (old, new) => *old = new.clone(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_merged_by_key_and_arrays_of_tables_by_place() {
        let mut table: Table =
            "a = 1\n[t]\nb = [1, 2]\nc = 3\n[[n]]\nx = 1\ny = 2\n[[n]]\nx = 5\n".parse().unwrap();
        let change = "d = 4\nn = [{ y = 9 }]\n[t]\nb = [7]\n".parse().unwrap();
        merge(&mut table, &change).unwrap();
        let expected: Table =
            "a = 1\nd = 4\n[t]\nb = [7]\nc = 3\n[[n]]\nx = 1\ny = 9\n[[n]]\nx = 5\n"
                .parse()
                .unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn an_empty_list_replaces_the_old_one() {
        let mut table: Table = "[s]\nload = [1, 2]\n[[fault]]\nat_s = 1\n".parse().unwrap();
        let change = "fault = []\n[s]\nload = []\n".parse().unwrap();
        merge(&mut table, &change).unwrap();
        let expected: Table = "fault = []\n[s]\nload = []\n".parse().unwrap();
        assert_eq!(table, expected);
    }

    /// The second table of the change must not be ignored.
    #[test]
    fn a_change_of_a_table_that_the_scenario_lacks_is_an_error() {
        let mut table: Table = "[t]\n[[t.n]]\nx = 1\n".parse().unwrap();
        let change = "[t]\nn = [{ x = 2 }, { x = 3 }]\n".parse().unwrap();
        let error = merge(&mut table, &change).unwrap_err();
        assert_eq!(error, "the set-up changes 2 tables `n`, but the scenario has only 1");
    }
}
