//! The claims as they stand in their files: a file for each paper.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Table;

/// The claims of all papers.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// The papers, by name.
    pub papers: Vec<Paper>,
}

/// The claims of one paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Name of the paper, such as `001`.
    pub paper: String,
    /// Scenarios, as the claims use them.
    #[serde(default, rename = "setup")]
    pub setups: Vec<Setup>,
    /// Claims.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Claims that another command measures.
    #[serde(default, rename = "measured")]
    pub measured: Vec<Measured>,
    /// Claims that nothing here can show.
    #[serde(default, rename = "missing")]
    pub missing: Vec<Missing>,
}

/// A scenario, with changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Name, unique among all papers.
    pub id: String,
    /// Name of the scenario's file, without extension.
    pub scenario: String,
    /// Keys of the scenario with other values.
    #[serde(default)]
    pub change: Table,
    /// Further changes with `--quick`.
    #[serde(default)]
    pub quick: Table,
}

/// A claim, and the rule for its verdict.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name, unique among all papers.
    pub id: String,
    /// Section and figure of the paper.
    pub place: String,
    /// The claim, in the terms of the paper.
    pub says: String,
    /// Set-up of all measures that name none.
    pub setup: String,
    /// Expressions of measures, evaluated for each seed.
    pub values: BTreeMap<String, String>,
    /// The condition on the values under which the claim is reproduced.
    pub reproduced: String,
    /// The condition under which it is reproduced in part; never, if absent.
    pub partly: Option<String>,
    /// The result in words, with `{{ name }}` for each value.
    pub shows: String,
    /// The known verdict; another one is an error.
    pub verdict: Grade,
    /// `fitted` or `by construction`, if conditions were chosen so that the claim holds.
    pub label: Option<Label>,
    /// Why it is not reproduced, or only in part, and what shows that.
    pub because: Option<String>,
    /// Values of the paper, by which the claim must be reproduced.
    pub paper: BTreeMap<String, f64>,
    /// Wrong values in place of some of the paper's, by which the claim must not be reproduced.
    pub planted: BTreeMap<String, f64>,
    /// Whether `--quick` runs it: a short run with one seed has the same verdict.
    #[serde(default)]
    pub quick: bool,
}

/// A claim about real processor time, which another command measures and judges.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Section and figure of the paper.
    pub place: String,
    /// The claim.
    pub says: String,
    /// The verdict of the command.
    pub verdict: Grade,
    /// The result in words.
    pub shows: String,
    /// The command.
    pub command: String,
}

/// A claim without an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Section and figure of the paper.
    pub place: String,
    /// The claim.
    pub says: String,
    /// The parts that an experiment would need.
    pub lacks: String,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Not reproduced.
    Not,
    /// Reproduced in part, or under other conditions.
    Partly,
    /// Reproduced.
    Reproduced,
}

/// A reason for which the verdict on a claim says little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Label {
    /// A condition that the paper does not give was chosen so that the claim holds.
    #[serde(rename = "fitted")]
    Fitted,
    /// The emulated servers cannot but show it.
    #[serde(rename = "by construction")]
    ByConstruction,
}

impl Claims {
    /// Reads every file `*.toml` in `folder`.
    ///
    /// # Errors
    /// With a sentence that names the file.
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

    /// Returns all claims with a rule.
    pub fn all(&self) -> impl Iterator<Item = &Claim> {
        self.papers.iter().flat_map(|paper| &paper.claims)
    }

    /// Returns all set-ups.
    pub fn setups(&self) -> impl Iterator<Item = &Setup> {
        self.papers.iter().flat_map(|paper| &paper.setups)
    }

    /// Returns an error if two claims or two set-ups have one name.
    fn check(&self) -> Result<(), String> {
        for mut names in [
            self.all().map(|claim| &*claim.id).collect::<Vec<_>>(),
            self.setups().map(|setup| &*setup.id).collect(),
        ] {
            names.sort_unstable();
            if let Some(twin) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("two are called `{}`", twin[0]));
            }
        }
        Ok(())
    }
}

impl Grade {
    /// Returns the word for the page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Not => "not",
            Self::Partly => "partly",
            Self::Reproduced => "reproduced",
        }
    }
}

impl Label {
    /// Returns the words for the page.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::ByConstruction => "by construction",
        }
    }
}

/// Sets the keys of `table` that `change` has. Tables are merged key by key, and arrays of tables
/// element by element; any other value replaces the old one.
pub(super) fn merge(table: &mut Table, change: &Table) {
    for (key, new) in change {
        match table.get_mut(key) {
            Some(old) => merge_value(old, new),
            None => {
                table.insert(key.clone(), new.clone());
            }
        }
    }
}

fn merge_value(old: &mut toml::Value, new: &toml::Value) {
    use toml::Value::{Array, Table};
    match (old, new) {
        (Table(old), Table(new)) => merge(old, new),
        (Array(old), Array(new)) if new.iter().all(toml::Value::is_table) => {
            for (old, new) in old.iter_mut().zip(new) {
                merge_value(old, new);
            }
        }
        (old, new) => *old = new.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_merged_by_key_and_arrays_of_tables_by_place() {
        let mut table: Table =
            "a = 1\n[t]\nb = [1, 2]\nc = 3\n[[n]]\nx = 1\ny = 2\n[[n]]\nx = 5\n".parse().unwrap();
        let change = "d = 4\nn = [{ y = 9 }]\n[t]\nb = [7]\n".parse().unwrap();
        merge(&mut table, &change);
        let expected: Table =
            "a = 1\nd = 4\n[t]\nb = [7]\nc = 3\n[[n]]\nx = 1\ny = 9\n[[n]]\nx = 5\n"
                .parse()
                .unwrap();
        assert_eq!(table, expected);
    }
}
