//! Records the origin of a finding: hashes of the scenarios and of the rule that determine its
//! values and its verdict. The origin does not include the program. A finding is stale if its
//! origin has changed.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::claims::{Claim, Claims};
use super::expression;
use crate::run_spec::{FORMAT, fingerprint};

/// The keys of a scenario that have no effect on its runs.
const WITHOUT_EFFECT: [&str; 2] = ["title", "expect"];

/// The origin of the verdict on a claim, as hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Hash of the scenarios that the claim uses, including the changes of its set-ups.
    pub scenarios: String,
    /// Hash of the claim's expressions and of the conditions for its verdict.
    pub rule: String,
}

impl Origin {
    /// Returns the current origin of a finding on `claim`. `scenarios` is the folder of the
    /// scenario files.
    pub(super) fn of(claim: &Claim, claims: &Claims, scenarios: &Path) -> Result<Self, String> {
        let needs = expression::needs(claim)?;
        let ids: BTreeSet<&str> = needs.iter().map(|need| &*need.setup).collect();
        let mut setups = Vec::new();
        for setup in claims.setups().filter(|setup| ids.contains(&*setup.id)) {
            let mut table = super::merged(scenarios, setup, false)?;
            for key in WITHOUT_EFFECT {
                table.remove(key);
            }
            setups.push((&setup.id, table));
        }
        setups.sort_by_key(|(id, _)| *id);
        let in_one_line = |rule: &String| rule.split_whitespace().collect::<Vec<_>>().join(" ");
        let rule = json!({
            "partly": claim.partly.as_ref().map(in_one_line),
            "reproduced": in_one_line(&claim.reproduced),
            "values": claim.values,
        });
        // The keys above are in alphabetical order. So the text is the same whether the JSON crate
        // sorts keys or keeps their order.
        let hash = |value: serde_json::Value| fingerprint(value.to_string().as_bytes());
        Ok(Self {
            scenarios: hash(json!({ "format": FORMAT, "setups": setups })),
            rule: hash(rule),
        })
    }
}
