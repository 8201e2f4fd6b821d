//! Reads `verdicts.toml`: the torture messages and their expected outcomes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

const TABLE: &str = include_str!("verdicts.toml");

/// The treatment of a message by the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Forwarded,
    Ignored,
    Answered(u16),
}

/// One message and its expected outcome.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    /// The section with the message, such as `RFC 4475 §3.1.1.1`.
    pub section: String,
    pub bytes: Vec<u8>,
    verdicts: Vec<Verdict>,
    stranger: Option<Verdict>,
    has: Vec<String>,
    lacks: Vec<String>,
}

impl Entry {
    /// Returns the outcome that is expected for a trusted source: the first of the allowed
    /// outcomes.
    pub fn verdict(&self) -> Verdict {
        self.verdicts[0]
    }

    /// Returns the expected outcome for a stranger.
    pub fn stranger(&self) -> Verdict {
        self.stranger.unwrap_or(self.verdicts[0])
    }

    /// Checks that a sent message has the required texts and lacks the forbidden ones.
    pub fn assert_holds(&self, context: &str, sent: &[u8]) {
        let stands = |text: &str| sent.windows(text.len()).any(|part| part == text.as_bytes());
        for text in &self.has {
            assert!(stands(text), "{context}: {text:?} is missing");
        }
        for text in &self.lacks {
            assert!(!stands(text), "{context}: {text:?} is there");
        }
    }
}

/// Returns the table.
pub fn entries() -> Vec<Entry> {
    let table = DeTable::parse(TABLE).expect("TOML").into_inner();
    let messages = table.get("message").and_then(|value| value.get_ref().as_array());
    let messages = messages.expect("an array of messages");
    messages.iter().map(|value| entry(value.get_ref())).collect()
}

/// Returns the names of all message files, sorted.
pub fn corpus() -> Vec<String> {
    let mut names = BTreeSet::new();
    for folder in ["rfc4475", "rfc5118"] {
        for file in fs::read_dir(messages().join(folder)).expect("a folder of messages") {
            let path = file.expect("a file").path();
            if path.extension().is_some_and(|extension| extension == "dat") {
                let stem = path.file_stem().expect("a name").to_string_lossy();
                assert!(names.insert(stem.into_owned()), "two messages of one name");
            }
        }
    }
    names.into_iter().collect()
}

fn messages() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sip/tests")
}

fn entry(value: &DeValue<'_>) -> Entry {
    let text = |key: &str| value.get(key).and_then(|v| v.get_ref().as_str()).map(str::to_owned);
    let texts = |key: &str| -> Vec<String> {
        let list = value.get(key).and_then(|v| v.get_ref().as_array());
        let strings = list.into_iter().flat_map(|list| list.iter());
        strings.map(|v| v.get_ref().as_str().expect("a string").to_owned()).collect()
    };
    let name = text("name").expect("a name");
    let section = text("section").expect("a section");
    assert!(text("says").is_some_and(|says| !says.is_empty()), "{name} has no reason");
    assert_eq!(text("stranger").is_some(), text("because").is_some(), "{name}");
    let folder = if section.starts_with("RFC 4475 ") { "rfc4475" } else { "rfc5118" };
    let path = messages().join(folder).join(format!("{name}.dat"));
    Entry {
        bytes: fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}")),
        verdicts: texts("verdict").iter().map(|text| verdict(text)).collect(),
        stranger: text("stranger").map(|text| verdict(&text)),
        has: texts("has"),
        lacks: texts("lacks"),
        name,
        section,
    }
}

fn verdict(text: &str) -> Verdict {
    match text {
        "forwarded" => Verdict::Forwarded,
        "ignored" => Verdict::Ignored,
        status => Verdict::Answered(status.parse().expect("a status")),
    }
}
