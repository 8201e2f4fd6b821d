//! Every policy with its parameters, for programs.

use serde_json::{Value, json};
use tidegate_balance::Entry;
use tidegate_balance::registry::POLICIES;

use crate::laws::params;

/// Returns all policies.
pub fn all() -> Value {
    POLICIES.iter().copied().map(policy).collect()
}

fn policy(policy: &'static Entry) -> Value {
    json!({
        "name": policy.name,
        "summary": policy.summary,
        "source": policy.source,
        "doc": policy.doc,
        "params": params(policy.params),
    })
}
