//! Lists the overload-control laws and the load-balancing policies.

use std::fmt::Write;

use serde_json::Value;
use tidegate_balance::registry::POLICIES;
use tidegate_control::registry::LAWS;
use tidegate_world::param::Entry;
use tidegate_world::{Kind, Registry};

/// Returns a list of all overload-control laws with their parameters, as readable text.
pub fn laws() -> String {
    listed(&LAWS)
}

/// Returns a list of all overload-control laws with their parameters, as JSON.
pub fn laws_json() -> Value {
    tidegate_server::laws::all(&LAWS)
}

/// Returns a list of all load-balancing policies with their parameters, as readable text.
pub fn policies() -> String {
    listed(&POLICIES)
}

/// Returns a list of all load-balancing policies with their parameters, as JSON.
pub fn policies_json() -> Value {
    tidegate_server::laws::all(&POLICIES)
}

fn listed<K: Kind>(registry: &Registry<K>) -> String {
    registry.iter().map(|entry| described(entry)).collect::<Vec<_>>().join("\n")
}

fn described<K: Kind>(entry: &Entry<K>) -> String {
    let Entry { name, summary, source, params, .. } = entry;
    let mut text = format!("{name:<19}{summary}\n{:19}source: {source}\n", "");
    for param in *params {
        let bounds = param.range.bounds();
        let bounds = format!("{} to {}", bounds.start(), bounds.end());
        let _ = writeln!(
            text,
            "{:19}{:<14} {:>8} {:<13} {bounds:<16} {}",
            "", param.name, param.default, param.unit, param.doc
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use tidegate_world::Param;

    use super::*;

    fn is_listed(text: &str, json: &Value, name: &str, params: &[&Param]) {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
        assert_eq!(json["name"], name);
        assert_eq!(json["params"].as_array().unwrap().len(), params.len());
        for param in params {
            let is_shown = |line: &str| {
                line.split_whitespace().next() == Some(param.name) && line.contains(param.unit)
            };
            assert!(text.lines().any(is_shown), "{name} {}", param.name);
        }
    }

    #[test]
    fn every_law_and_every_policy_is_listed_with_every_parameter() {
        let json = laws_json();
        assert_eq!(json.as_array().unwrap().len(), LAWS.len());
        for (law, json) in LAWS.iter().zip(json.as_array().unwrap()) {
            is_listed(&laws(), json, law.name, law.params);
        }
        let json = policies_json();
        assert_eq!(json.as_array().unwrap().len(), POLICIES.len());
        for (policy, json) in POLICIES.iter().zip(json.as_array().unwrap()) {
            is_listed(&policies(), json, policy.name, policy.params);
        }
    }
}
