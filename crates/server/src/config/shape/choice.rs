//! Keys whose value is one of a set of words, or the name of an entry in a registry.

use serde_json::{Value, json};
use tidegate_world::param::Entry;
use tidegate_world::{Kind, Registry};
use toml::de::DeValue;

use super::wrong_type;
use crate::config::diagnostic::{Report, alternatives, in_quotes, nearest, quoted, suggestion};
use crate::config::knob::{Shape, Written};

/// A value that is one of a set of words.
pub struct Choice<T: 'static> {
    /// Each word and its value.
    pub words: &'static [(&'static str, T)],
    /// Words that users might expect here, but that are not accepted, each with the reason.
    pub reserved: &'static [(&'static str, &'static str)],
}

impl<T: Copy + PartialEq> Choice<T> {
    /// Returns the word for `value`.
    pub fn word(&self, value: T) -> &'static str {
        let found = self.words.iter().find(|(_, known)| *known == value);
        found.expect("every value can be chosen").0
    }
}

impl<T: Copy + PartialEq> Shape for Choice<T> {
    type Value = T;

    fn describe(&self) -> String {
        one_of(self.words.iter().map(|(name, _)| *name))
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<T> {
        let names: Vec<_> = self.words.iter().map(|(name, _)| *name).collect();
        let index = chosen(self, &names, self.reserved, key, value, report)?;
        Some(self.words[index].1)
    }

    fn write(&self, value: &T) -> String {
        format!("\"{}\"", self.word(*value))
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.words.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
}

/// A value that is the name of an entry in this registry, such as the name of a law.
pub struct Named<K: Kind>(pub &'static Registry<K>);

impl<K: Kind> Shape for Named<K> {
    type Value = &'static Entry<K>;

    fn describe(&self) -> String {
        one_of(self.0.names())
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        let names: Vec<_> = self.0.names().collect();
        Some(self.0[chosen(self, &names, &[], key, value, report)?])
    }

    fn write(&self, value: &&'static Entry<K>) -> String {
        format!("\"{}\"", value.name)
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.0.names().collect::<Vec<_>>() })
    }
}

/// A value that is the name of an entry in this registry, or the word in the second field, which
/// selects no entry.
pub struct NamedOr<K: Kind>(pub &'static Registry<K>, pub &'static str);

impl<K: Kind> NamedOr<K> {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.names().chain([self.1])
    }
}

impl<K: Kind> Shape for NamedOr<K> {
    type Value = Option<&'static Entry<K>>;

    fn describe(&self) -> String {
        one_of(self.names())
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        let names: Vec<_> = self.names().collect();
        Some(self.0.get(chosen(self, &names, &[], key, value, report)?).copied())
    }

    fn write(&self, value: &Self::Value) -> String {
        format!("\"{}\"", value.map_or(self.1, |entry| entry.name))
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.names().collect::<Vec<_>>() })
    }
}

/// Joins `names` in quotes, as text that can follow "write" in an error message.
fn one_of(names: impl Iterator<Item = &'static str>) -> String {
    alternatives(names.map(in_quotes))
}

/// Returns the index in `names` of the word `value`. Reports any other value and returns `None`.
fn chosen<S: Shape>(
    shape: &S,
    names: &[&'static str],
    reserved: &[(&str, &str)],
    key: &str,
    value: &Written<'_>,
    report: &mut Report,
) -> Option<usize> {
    let DeValue::String(written) = value.get_ref() else {
        wrong_type(shape, key, value, report);
        return None;
    };
    if let Some(index) = names.iter().position(|name| name == written) {
        return Some(index);
    }
    let known_as = |(word, name): &(&str, &'static str)| {
        (names.contains(name) && *word == plain(written)).then_some(*name)
    };
    let elsewhere = ELSEWHERE.iter().find_map(known_as);
    let near = elsewhere.or_else(|| nearest(written, names.iter().copied()));
    let help = suggestion(near.map(in_quotes), names.iter().copied().map(in_quotes));
    let title = format!("`{key}` cannot be {}", quoted(written));
    match reserved.iter().find(|(word, _)| word == written) {
        Some((_, why)) => {
            report.error(value.span(), title, *why, format!("write {}", shape.describe()));
        }
        None => report.error(value.span(), title, "not one of the possible values", help),
    }
    None
}

/// Words of other load balancers in the form that [`plain`] returns, each with Tidegate's word for
/// the same policy or mode.
const ELSEWHERE: [(&str, &str); 21] = [
    ("roundrobin", "rr"),
    ("weightedroundrobin", "rr"),
    ("wrr", "rr"),
    ("serial", "rr"),
    ("leastconn", "cjsq"),
    ("leastconnections", "cjsq"),
    ("leastcalls", "cjsq"),
    ("calls", "cjsq"),
    ("leastrequest", "tjsq"),
    ("leastrequests", "tjsq"),
    ("leastload", "tlwl"),
    ("leastwork", "tlwl"),
    ("random", "p2c"),
    ("random2", "p2c"),
    ("poweroftwo", "p2c"),
    ("leasttime", "peak-ewma"),
    ("leastresponsetime", "peak-ewma"),
    ("ewma", "peak-ewma"),
    ("consistenthash", "rendezvous"),
    ("hashcallid", "hash"),
    ("stateful", "transaction"),
];

/// Returns a word in lower case, without hyphens, underscores, spaces and dots.
fn plain(written: &str) -> String {
    let letters = written.chars().filter(|c| !"-_ .".contains(*c));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_balance::registry::POLICIES;

    use super::{ELSEWHERE, plain};

    #[test]
    fn words_of_other_programs_lead_to_our_names() {
        let is_policy = |name: &str| POLICIES.iter().any(|policy| policy.name == name);
        for (word, name) in ELSEWHERE {
            assert_eq!(plain(word), word);
            assert!(is_policy(name) || name == "transaction", "{name}");
            assert!(!is_policy(word));
        }
        assert_eq!(plain("Round_Robin"), "roundrobin");
    }
}
