//! `[pool.limit]`.

use tidegate_balance::Learning;
use toml::Spanned;

use crate::config::keys::{Only, keys};
use crate::config::shape::{Choice, Real, millis};

/// The values of the table.
pub struct Limit {
    /// Whether rates are learned.
    pub learn: Spanned<bool>,
    /// The parameters for learning them.
    pub learning: Learning,
}

impl From<&Learning> for Limit {
    fn from(learning: &Learning) -> Self {
        Self { learn: Spanned::new(0..0, true), learning: *learning }
    }
}

static LEARNS: Only<Limit> = Only {
    by: "learn",
    when: |limit| *limit.learn.get_ref(),
    why: "no rate is learned",
    instead: "write `learn = \"refusals\"`",
};

keys! {
    /// Learns the rate that each back end of the preceding pool can take. `calls_max`
    /// and `cps_max` of a back end apply as well.
    pub static POOL_LIMIT: "[pool.limit]" 0..=1, NewCalls, [] => Limit;

    /// `refusals`: Tidegate learns the rate from requests that the back end rejects with 503 or
    /// leaves without a response. The rate falls to the rate that the back end accepted. It grows
    /// while it is used up, or more is demanded, and nothing is rejected. Before the first
    /// rejection there is no limit. A 503 then causes no pause, unless `retry_after_max_s` is set.
    key "learn" {
        |limit| Some(*limit.learn.get_ref()),
        |limit, learn| limit.learn = learn
    } = Choice { words: &[("off", false), ("refusals", true)], reserved: &[] },
        Default("\"off\"");
    /// Milliseconds from one adjustment to the next; up to two seconds if fewer than ten requests
    /// arrive in that time.
    key "interval_ms" (learning.interval) = millis(20..=10_000), Default("200"), only(&LEARNS);
    /// The fraction by which the rate grows in a second while nine tenths of it are used, or more
    /// is demanded. It doubles after each four such seconds without a rejection, up to 1.
    key "increase" (learning.increase) = Real(0.001..=1.0), Default("0.05"), only(&LEARNS);
    /// The fraction of the accepted rate that remains the limit after a rejection.
    key "decrease" (learning.decrease) = Real(0.5..=0.99), Default("0.95"), only(&LEARNS);
    /// The lowest learned rate, in requests a second.
    key "rate_min_cps" (learning.rate_min_cps) = Real(0.1..=100_000.0), Default("1"), only(&LEARNS);
}
