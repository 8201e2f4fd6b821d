//! Writes the tables of reproduced claims into a documentation page, between two marks, and stores
//! the findings in a record (a JSON file).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::claims::{Claim, Claims, Grade, Paper};
use super::judge::{self, Finding};
use super::origin::Origin;

/// The lines in the page between which the tables are written.
const MARKS: [&str; 2] =
    ["<!-- begin: tidegate-lab reproduce -->", "<!-- end: tidegate-lab reproduce -->"];

/// The latest finding for each claim, by name of the claim.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Record(BTreeMap<String, Recorded>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Recorded {
    /// Commit of the program with which the finding was made.
    commit: String,
    #[serde(flatten)]
    finding: Finding,
}

/// A claim that must be run again, because its finding is out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Name of the claim.
    pub id: String,
    /// The reason why the finding is out of date, in one line.
    pub reason: String,
}

/// The files with the verdicts on the claims: a page for readers, and a record for the program.
#[derive(Clone, Debug)]
pub struct Page {
    /// Path of the page (`reproduction.md`).
    pub page: PathBuf,
    /// Path of the record of findings (`reproduction.json`).
    pub record: PathBuf,
}

impl Page {
    /// Returns the paths of the page and the record in the folder `docs`.
    pub fn within(docs: &Path) -> Self {
        Self { page: docs.join("reproduction.md"), record: docs.join("reproduction.json") }
    }

    /// Adds `findings` to the record, judges all recorded values by the current rules, and writes
    /// the tables of the page again. `commit` is the commit of the program that made `findings`. If
    /// a claim no longer exists, or has a value that the finding lacks, its finding is removed from
    /// the record.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written, or if the rule of a claim is invalid.
    pub fn update(
        &self,
        claims: &Claims,
        findings: &[Finding],
        commit: &str,
    ) -> Result<(), String> {
        let mut record = match self.record.exists() {
            true => self.read()?,
            false => Record::default(),
        };
        for finding in findings {
            let (commit, finding) = (commit.to_owned(), finding.clone());
            record.0.insert(finding.id.clone(), Recorded { commit, finding });
        }
        // If such findings stayed in the record, no row could be written while another row waits to
        // be run again.
        record.0.retain(|id, recorded| {
            let claim = claims.all().find(|claim| claim.id == *id);
            claim.is_some_and(|claim| has_values(claim, &recorded.finding))
        });
        for claim in claims.all() {
            if let Some(Recorded { finding, .. }) = record.0.get_mut(&claim.id) {
                finding.verdict = judge::grade(claim, &finding.values)?;
            }
        }
        let json = serde_json::to_string_pretty(&record).map_err(|error| error.to_string())?;
        write(&self.record, &(json + "\n"))?;
        write(&self.page, &self.rendered(claims, &record)?)
    }

    /// Checks that the page agrees with the claims and with the record, and that each recorded
    /// verdict is the one that the claim expects and that its rule still gives.
    ///
    /// # Errors
    /// Returns a sentence that describes the difference.
    pub fn check(&self, claims: &Claims) -> Result<(), String> {
        let record = self.read()?;
        for claim in claims.all() {
            judge::check(claim)?;
            let recorded = record.0.get(&claim.id);
            let finding = recorded.map(|recorded| &recorded.finding);
            let Some(finding) = finding.filter(|finding| has_values(claim, finding)) else {
                return Err(format!(
                    "{}: the record has no values of this claim; run `tidegate-lab reproduce \
                     --row {0}`",
                    claim.id
                ));
            };
            let verdict = judge::grade(claim, &finding.values)?;
            if verdict != claim.verdict || finding.verdict != claim.verdict {
                return Err(format!(
                    "{}: the claim expects the verdict `{}`, the record has `{}`, and the rule \
                     gives `{}`",
                    claim.id,
                    claim.verdict.name(),
                    finding.verdict.name(),
                    verdict.name()
                ));
            }
        }
        if self.rendered(claims, &record)? != read(&self.page)? {
            let page = self.page.display();
            return Err(format!(
                "{page} differs from what `tidegate-lab reproduce` writes; run that command"
            ));
        }
        Ok(())
    }

    /// Returns the claims whose findings are stale. A finding is stale if the claim's scenarios or
    /// rule have changed since it was recorded, if it has no origin, or if its commit is not in the
    /// history. `has_commit` returns whether a commit is in the history. `scenarios` is the folder
    /// of the scenario files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if a claim is invalid.
    pub fn stale(
        &self,
        claims: &Claims,
        scenarios: &Path,
        has_commit: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Stale>, String> {
        let record = self.read()?;
        let mut stale = Vec::new();
        for claim in claims.all() {
            let Some(Recorded { commit, finding }) = record.0.get(&claim.id) else { continue };
            let present = Origin::of(claim, claims, scenarios)?;
            let mut reasons = Vec::new();
            match &finding.origin {
                None => {
                    reasons.push("the record does not name its scenario and its rule".to_owned())
                }
                Some(origin) => {
                    if origin.scenarios != present.scenarios {
                        reasons.push("its scenario has changed".to_owned());
                    }
                    if origin.rule != present.rule {
                        reasons.push("its rule has changed".to_owned());
                    }
                }
            }
            if !has_commit(commit) {
                reasons.push(format!("its commit {commit} is not in the history"));
            }
            if !reasons.is_empty() {
                stale.push(Stale { id: claim.id.clone(), reason: reasons.join(", and ") });
            }
        }
        Ok(stale)
    }

    /// Returns the commits with which the recorded findings were made, each with its number of
    /// findings.
    ///
    /// # Errors
    /// Returns an error if the record cannot be read.
    pub fn commits(&self) -> Result<BTreeMap<String, usize>, String> {
        let mut commits = BTreeMap::new();
        for recorded in self.read()?.0.into_values() {
            *commits.entry(recorded.commit).or_default() += 1;
        }
        Ok(commits)
    }

    fn read(&self) -> Result<Record, String> {
        let wrong = |error| format!("{}: {error}", self.record.display());
        serde_json::from_str(&read(&self.record)?).map_err(wrong)
    }

    /// Returns the text of the page with its tables replaced.
    fn rendered(&self, claims: &Claims, record: &Record) -> Result<String, String> {
        let text = read(&self.page)?;
        let [begin, end] = MARKS;
        let parts = text
            .split_once(begin)
            .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
        let Some((before, after)) = parts else {
            return Err(format!(
                "{}: the page lacks the lines `{begin}` and `{end}`",
                self.page.display()
            ));
        };
        let mut tables = summary(claims, record);
        for paper in &claims.papers {
            section(paper, record, &mut tables)?;
        }
        Ok(format!("{before}{begin}\n{tables}\n{end}{after}"))
    }
}

/// Returns whether `finding` has all values that `claim` currently defines.
fn has_values(claim: &Claim, finding: &Finding) -> bool {
    claim.values.keys().all(|name| finding.values.contains_key(name))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns a paragraph with the number of claims for each verdict.
fn summary(claims: &Claims, record: &Record) -> String {
    let verdicts =
        claims.all().filter_map(|claim| record.0.get(&claim.id).map(|r| r.finding.verdict));
    let measured = claims.papers.iter().flat_map(|paper| &paper.measured);
    let all: Vec<Grade> = verdicts.chain(measured.map(|row| row.verdict)).collect();
    let count = |grade| all.iter().filter(|verdict| **verdict == grade).count();
    let labelled = claims.all().filter(|claim| claim.label.is_some()).count();
    let missing: usize = claims.papers.iter().map(|paper| paper.missing.len()).sum();
    format!(
        "\nThere are experiments for {} claims: {} are reproduced, {} partly, and {} not. {labelled} \
         of these verdicts are labelled *by construction* or *fitted*. There are no experiments \
         for {missing} claims.\n",
        all.len(),
        count(Grade::Reproduced),
        count(Grade::Partly),
        count(Grade::Not),
    )
}

/// Appends a table with the claims of one paper to `out`.
fn section(paper: &Paper, record: &Record, out: &mut String) -> Result<(), String> {
    let _ = writeln!(out, "\n## {}\n", paper.paper);
    out.push_str("| claim | verdict | result | rule | runs |\n| --- | --- | --- | --- | --- |\n");
    for claim in &paper.claims {
        let recorded = record.0.get(&claim.id);
        let (verdict, result, runs) = match recorded {
            Some(Recorded { commit, finding }) => (
                finding.verdict.name(),
                judge::shown(claim, &finding.values)?,
                format!("{} of `{}`, {commit}", finding.seeds, claim.id),
            ),
            None => ("-", "not run yet".to_owned(), format!("`{}`", claim.id)),
        };
        let label = claim.label.map_or_else(String::new, |label| format!(", {}", label.name()));
        let because = claim.because.as_ref().map_or_else(String::new, |why| format!(". {why}"));
        let cells = [
            format!("{}: {}", claim.place, claim.says),
            format!("{verdict}{label}"),
            result + &because,
            format!("`{}`", rule(claim)),
            runs,
        ];
        out.push_str(&row(&cells));
    }
    for other in &paper.measured {
        let commit = other.commit.iter().map(|commit| format!(", {commit}")).collect::<String>();
        let cells = [
            format!("{}: {}", other.place, other.says),
            other.verdict.name().to_owned(),
            other.shows.clone(),
            String::new(),
            format!("`{}`{commit}", other.command),
        ];
        out.push_str(&row(&cells));
    }
    for other in &paper.missing {
        let claim = format!("{}: {}", other.place, other.says);
        out.push_str(&row(&[
            claim,
            "not built".to_owned(),
            other.lacks.clone(),
            String::new(),
            String::new(),
        ]));
    }
    Ok(())
}

/// Returns the condition under which `claim` is reproduced, in one line.
fn rule(claim: &Claim) -> String {
    claim.reproduced.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn row(cells: &[String; 5]) -> String {
    let cells = cells.each_ref().map(|cell| cell.trim().replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}
