//! What there is to choose from: laws and policies.

use std::fmt::Write;

use serde_json::{Value, json};
use tidegate_balance::Policy;
use tidegate_control::registry::LAWS;

/// Every law with its parameters, for people.
pub fn laws() -> String {
    let mut text = String::new();
    for law in LAWS {
        let _ = writeln!(text, "{:<19}{}", law.name, law.summary);
        let _ = writeln!(text, "{:19}source: {}", "", law.source);
        for param in law.params {
            let bounds = format!("{} to {}", param.min, param.max);
            let _ = writeln!(
                text,
                "{:19}{:<14} {:>8} {:<13} {bounds:<16} {}",
                "", param.name, param.default, param.unit, param.doc
            );
        }
        text.push('\n');
    }
    text.pop();
    text
}

/// The same for programs.
pub fn laws_json() -> Value {
    tidegate_server::laws::all()
}

/// Every policy, for people.
pub fn policies() -> String {
    Policy::ALL.iter().fold(String::new(), |mut text, policy| {
        let _ = writeln!(text, "{:<12}{}", policy.name(), summary(*policy));
        text
    })
}

/// The same for programs.
pub fn policies_json() -> Value {
    let policy = |policy: &Policy| json!({ "name": policy.name(), "summary": summary(*policy) });
    Policy::ALL.iter().map(policy).collect()
}

fn summary(policy: Policy) -> &'static str {
    match policy {
        Policy::Rr => "each in turn, in proportion to the weights",
        Policy::Hash => "by the Call-ID: every balancer makes the same choice",
        Policy::Cjsq => "the one with the fewest open calls (003 §IV)",
        Policy::Tlwl => {
            "the one with the least work in open transactions, an INVITE weighing 1.75 of a BYE \
             (003 §IV)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_is_listed_with_every_parameter() {
        let (text, json) = (laws(), laws_json());
        for (law, listed) in LAWS.iter().zip(json.as_array().unwrap()) {
            assert!(text.lines().any(|line| line.starts_with(law.name)), "{}", law.name);
            assert_eq!(listed["name"], law.name);
            assert_eq!(listed["params"].as_array().unwrap().len(), law.params.len());
            for param in law.params {
                let is_shown = |line: &str| {
                    line.split_whitespace().next() == Some(param.name) && line.contains(param.unit)
                };
                assert!(text.lines().any(is_shown), "{} {}", law.name, param.name);
            }
        }
    }

    #[test]
    fn every_policy_is_listed() {
        assert_eq!(policies().lines().count(), Policy::ALL.len());
        assert_eq!(policies_json()[0]["name"], "rr");
    }
}
