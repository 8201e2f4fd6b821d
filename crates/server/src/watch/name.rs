//! Reports for the log on the resolution of host names and domains by the DNS.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_balance::Lookups;
use tidegate_world::{Timestamp, unit_enum};

use super::follow::Followed;

unit_enum! {
    /// The outcome of the last DNS queries for a name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Outcome {
        Found,
        NotFound,
        Unanswered,
        Unusable,
    }
}

/// The results of DNS queries for a name up to the last check.
pub(super) struct NameSeen {
    outcome: Followed<Outcome>,
    lookups: [u64; 5],
}

/// A change in the resolution of a name that gets a line in the log.
pub(super) enum News {
    /// The outcome of the DNS queries for the name has changed. Contains the new outcome, and the
    /// number of changes since the last log line.
    Outcome(Outcome, u64),
    /// The name resolves to another address now.
    Moved,
}

impl Default for NameSeen {
    fn default() -> Self {
        Self { outcome: Followed::new(Outcome::Found), lookups: [0; 5] }
    }
}

impl NameSeen {
    /// Compares the counts of query outcomes with those at the last check. Returns the change to
    /// report, if a log line is due.
    pub(super) fn look(&mut self, now: Timestamp, lookups: &Lookups) -> Option<News> {
        let Lookups { found, not_found, unanswered, unusable, moved } = lookups;
        let lookups =
            [found, not_found, unanswered, unusable, moved].map(|count| count.load(Relaxed));
        let before = std::mem::replace(&mut self.lookups, lookups);
        let grew = |index: usize| lookups[index] > before[index];
        let outcome = (0..4).rev().find(|&index| grew(index)).map(|index| Outcome::ALL[index]);
        let outcome = outcome.unwrap_or(self.outcome.last());
        match self.outcome.see(now, outcome, 0) {
            Some(changes) => Some(News::Outcome(outcome, changes)),
            None => grew(4).then_some(News::Moved),
        }
    }
}

impl Outcome {
    /// Returns the text of the log line for a host name.
    pub(super) fn of_host(self, host: &str) -> String {
        match self {
            Self::Found => format!("{host} can be resolved again"),
            Self::NotFound => format!("{host} has no address"),
            Self::Unanswered => format!("no name server answers for {host}"),
            Self::Unusable => format!("{host} has no address that can be used"),
        }
    }

    /// Returns the text of the log line for a domain.
    pub(super) fn of_domain(self, domain: &str) -> String {
        match self {
            Self::Found => format!("domain {domain} can be resolved again"),
            Self::NotFound => {
                format!(
                    "domain {domain} has no SRV records any more; its servers stay as they were"
                )
            }
            Self::Unanswered | Self::Unusable => {
                format!("no name server answers for domain {domain}")
            }
        }
    }
}
