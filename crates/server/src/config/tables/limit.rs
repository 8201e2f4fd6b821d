//! `[pool.limit]`.

use tidegate_balance::{Learning, RateLaw, RateLearning, WindowLaw, WindowLearning};
use toml::Spanned;

use crate::config::keys::{Only, keys};
use crate::config::shape::{Choice, Real, millis};

/// The signs of overload from which limits are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearningSigns {
    /// None: no limit is learned.
    Off,
    /// Rejections by the back end.
    Rejections,
    /// The delay of first responses.
    Delay,
    /// Both rejections and delay.
    Both,
}

/// The values of `[pool.limit]`.
pub struct Limit {
    /// The signs of overload from which limits are learned.
    pub learn: Spanned<LearningSigns>,
    /// The parameters for learning a rate.
    pub rate: RateLearning,
    /// The parameters for learning a window.
    pub window: WindowLearning,
}

impl LearningSigns {
    fn learns_rate(self) -> bool {
        matches!(self, Self::Rejections | Self::Both)
    }

    fn learns_window(self) -> bool {
        matches!(self, Self::Delay | Self::Both)
    }
}

impl Limit {
    /// Returns the limits that are learned.
    pub fn learning(&self) -> Learning {
        let learn = *self.learn.get_ref();
        Learning {
            rate: learn.learns_rate().then_some(self.rate),
            window: learn.learns_window().then_some(self.window),
        }
    }
}

impl From<&Learning> for Limit {
    fn from(learning: &Learning) -> Self {
        let learn = match learning {
            Learning { rate: None, window: None } => LearningSigns::Off,
            Learning { window: None, .. } => LearningSigns::Rejections,
            Learning { rate: None, .. } => LearningSigns::Delay,
            Learning { .. } => LearningSigns::Both,
        };
        Self {
            learn: Spanned::new(0..0, learn),
            rate: learning.rate.unwrap_or_default(),
            window: learning.window.unwrap_or_default(),
        }
    }
}

static LEARNS_RATE: Only<Limit> = Only {
    by: "learn",
    when: |limit| limit.learn.get_ref().learns_rate(),
    why: "no rate is learned",
    instead: "write `learn = \"rejections\"`",
};

static USES_AIMD: Only<Limit> = Only {
    by: "learn",
    when: |limit| limit.learn.get_ref().learns_rate() && limit.rate.law == RateLaw::Aimd,
    why: "no rate is learned by `aimd`",
    instead: "write `learn = \"rejections\"` with `rate_law = \"aimd\"`",
};

static USES_DELAY: Only<Limit> = Only {
    by: "learn",
    when: |limit| limit.learn.get_ref().learns_window() && limit.window.law == WindowLaw::Delay,
    why: "no limit is learned by the law `delay`",
    instead: "write `learn = \"delay\"` with `window_law = \"delay\"`",
};

static LEARNS_WINDOW: Only<Limit> = Only {
    by: "learn",
    when: |limit| limit.learn.get_ref().learns_window(),
    why: "nothing is learned from delay",
    instead: "write `learn = \"delay\"`",
};

keys! {
    /// Tidegate learns how many requests each back end of the preceding pool can serve. The limits
    /// `calls_max` and `cps_max` of a back end apply as well.
    pub static POOL_LIMIT: "[pool.limit]" 0..=1, NewCalls, [] => Limit;

    /// `rejections`: Tidegate learns the rate of requests from rejections. A rejection is a request
    /// that the back end answers with 503 or leaves without a response. After a rejection the limit
    /// falls toward the rate that the back end accepted (see `decrease`). The limit grows while
    /// requests use it up and the back end rejects none. Before the first rejection there is no
    /// limit. With this setting a 503 of the back end causes no pause in any pool, unless
    /// `retry_after_max_s` is set.
    ///
    /// `delay`: Tidegate learns how many INVITEs and REGISTERs may wait for their first response at
    /// the same time. A 100 is a first response too. If, for a tenth of a second, even the quickest
    /// response takes much longer than usual, requests are waiting in the back end. Tidegate then
    /// lowers the limit, so that a request waits there for only about `delay_ms`. Tidegate also
    /// lowers the limit if many requests get no response within half a second. The back end need
    /// not report overload. But it must send the first response itself, as a proxy with
    /// transactions does with 100. `window_law` selects other laws. `both`: Tidegate learns both
    /// limits.
    key "learn" {
        |limit| Some(*limit.learn.get_ref()),
        |limit, learn| limit.learn = learn
    } = Choice {
        words: &[
            ("off", LearningSigns::Off),
            ("rejections", LearningSigns::Rejections),
            ("delay", LearningSigns::Delay),
            ("both", LearningSigns::Both),
        ],
        reserved: &[],
    }, Default("\"off\"");
    /// The law that computes the rate from rejections.
    ///
    /// `aimd`: after a rejection the rate falls toward the rate that the back end accepted. Without
    /// rejections it grows, faster and faster.
    ///
    /// `sre`: the back end gets at most twice as many requests as it accepted in the last 30
    /// seconds. This is the client-side throttling of Google's book Site Reliability Engineering.
    /// Use it only if rejections cost the back end almost nothing, because up to half of the
    /// requests are rejected there.
    key "rate_law" (rate.law) = Choice { words: &RateLaw::NAMED, reserved: &[] },
        Default("\"aimd\""), only(&LEARNS_RATE);
    /// Milliseconds from one adjustment of the rate to the next. If fewer than ten requests arrive
    /// in that time, the interval grows to at most two seconds.
    key "interval_ms" (rate.interval) = millis(20..=10_000), Default("200"), only(&LEARNS_RATE);
    /// The fraction by which the rate grows each second while requests use at least nine tenths of
    /// it. After every four such seconds without a rejection the fraction doubles, up to 1.
    key "increase" (rate.increase) = Real(0.001..=1.0), Default("0.05"), only(&USES_AIMD);
    /// The limit after a rejection, as a fraction of the rate that the back end accepted. A
    /// decrease also has a lower bound, which is a part of the rate that was used: four fifths for
    /// the first decrease after the limit has grown, and half for each further decrease. So on the
    /// first decrease, a value below 0.8 has no effect.
    key "decrease" (rate.decrease) = Real(0.5..=0.99), Default("0.95"), only(&USES_AIMD);
    /// The lowest learned rate, in requests a second.
    key "rate_min_cps" (rate.rate_min_cps) = Real(0.1..=100_000.0), Default("1"), only(&LEARNS_RATE);
    /// The law that computes how many requests may wait for their first response.
    ///
    /// `delay`: see `learn`.
    ///
    /// `gradient`: the limit shrinks while even the quickest responses are slower than their average
    /// of the last six seconds. This is `Gradient2Limit` of Netflix concurrency-limits. The law has
    /// no target for the delay, and it does not notice lost requests.
    ///
    /// `retransmissions`: a controller adjusts the limit so that a tenth of the requests are
    /// retransmitted while they wait in the back end. So requests wait for about half a second. The
    /// law does not notice lost requests.
    key "window_law" (window.law) = Choice { words: &WindowLaw::NAMED, reserved: &[] },
        Default("\"delay\""), only(&LEARNS_WINDOW);
    /// Milliseconds for which a request may wait in an overloaded back end, in addition to the
    /// usual time to the first response.
    key "delay_ms" (window.delay) = millis(5..=1_000), Default("50"), only(&USES_DELAY);
}
