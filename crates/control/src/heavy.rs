//! Finds the sources that cause an overload, if messages must be dropped before they are read.
//!
//! If dropping the messages of these *heavy* sources is enough, the messages of the other sources
//! should not be dropped. A [gate](crate::Gate) sees only the new work that it judges. But dropping
//! a share of the messages, or a receive buffer that overflows, hits every message that begins like
//! new work: also malformed ones, repetitions, work above a limit, and work in progress. So all
//! these messages are counted by their source, separately from the [fair shares](crate::Fairness).
//! They are counted only while messages are dropped or lost, or will probably be soon.
//!
//! - A message that is read represents others that were not read ([`Arrived`]). So the rate of a
//!   source includes its messages that were lost in a full buffer, or dropped on purpose. A message
//!   on a stream represents no others. The rate is an estimate. A source is heavy only if the
//!   estimate exceeds a limit by more than two standard deviations, and so not by chance.
//! - The *total* is the rate of messages that could be served: the messages that get a place in the
//!   queue, and those that would get a place if buffers did not overflow. But it is at most the
//!   rate at which messages are read.
//! - If the total were divided fairly ([max-min](MaxMin)), each source would get at most a certain
//!   level. Sources that send more than eight times this level are heavy. If the other sources
//!   together still send much more than the total, the limit is four times, twice, or once the
//!   level. So the messages of a source that is a little above the level are not dropped like those
//!   of a source that floods.
//! - Repetitions of messages on which the gate has decided do not count for this limit. There is a
//!   second limit, for which all messages of a source count: twelve times the level, where the
//!   level is at most the total. So a source below the level that repeats each message up to ten
//!   times, because it gets no answer, is not heavy. A source that floods with repetitions is
//!   heavy.
//! - A source is not heavy if its rate is below half a percent of the highest rate of any source in
//!   the last seconds. Dropping its messages would not end the overload. So the messages of a small
//!   source are not dropped even if a flood prevents all service.
//! - A source stays heavy for two seconds after its rate was last too high.
//! - A heavy source *floods with emergency calls* if it sends more than fifty INVITEs to an
//!   emergency service a second over UDP, copies included, and also more than a quarter of the
//!   messages that are read. Other emergency calls are not dropped, even if they come from a heavy
//!   source. But the calls of such a flood would prevent all service, also for other emergency
//!   calls. The limit must be exceeded by more than chance, even if the calls arrive at random. It
//!   depends on the messages that are read. If it depended on all messages that arrive, a flood of
//!   other messages would raise it. A few datagrams with a forged address are no flood. Calls on
//!   streams do not count and are not dropped, because nobody can open a connection from the
//!   address of another.
//!
//! A source with a weight counts as that many sources. All sources for which the table has no room
//! count as one source. If this joint source is heavy, or if there are too many heavy sources, no
//! source is listed as heavy. Floods with emergency calls are listed nevertheless.
//!
//! **Cold start.** The count begins with nothing known. **Known bias.** A source that forges the
//! address of another makes that source heavy.

use std::mem;
use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::MaxMin;
use crate::fading::{Observation, faded};
use crate::recent_weight::RecentWeight;
use crate::source_table::SourceTable;

/// Time for which a source stays heavy after its rate was last above the limit for heavy sources.
const HEAVY_FOR: Duration = Duration::from_secs(2);

/// Maximum rate of emergency calls from a source of weight 1, in messages a second, that is no
/// flood. Copies count: a caller without an answer sends an INVITE seven times (RFC 3261
/// §17.1.1.2). So seven new callers a second may reach this rate.
const EMERGENCY_MAX_CPS: f64 = 50.0;

/// The emergency calls of a source are no flood if they are at most this part of all messages that
/// are read, because they leave room for other messages.
const EMERGENCY_MAX_PART: f64 = 0.25;

/// If no buffer overflows, and the server could serve at least this part of all first messages that
/// arrive, no source is heavy because of its first messages. The remaining messages are only an
/// estimate, and may come from a flood that has ended. A source that floods with copies
/// ([`COPIES_MAX`]) is heavy nevertheless.
const ENOUGH: f64 = 0.9;

/// Replaces [`ENOUGH`] if receive buffers overflow ([`LOST`]).
const ENOUGH_IF_LOST: f64 = 0.99;

/// Receive buffers count as overflowing if they lose more than this number of messages for each one
/// that is read.
const LOST: f64 = 0.01;

/// Maximum number of messages of a correct sender, with all repetitions, for each first message.
/// The sender sends an INVITE at most seven times (RFC 3261 §17.1.1.2), and a REGISTER at most
/// eleven times (§17.1.2.2).
const COPIES_MAX: f64 = 12.0;

/// Multiples of the fair rate of a source, tried in this order. The first multiple at which
/// dropping the messages of all sources above it ends the overload becomes the limit for heavy
/// sources.
const MULTIPLES: [f64; 4] = [8.0, 4.0, 2.0, 1.0];

/// The sources that are not heavy may together send this many times the rate of messages that can
/// be served. The excess can be rejected.
const REST_MAX: f64 = 1.25;

/// A source is heavy only if it sends at least this part of the rate of the heaviest source.
const LIGHT: f64 = 0.005;

/// Number of periods after which the remembered highest rate of a heavy source counts half: two
/// seconds.
const PEAK_HALVES: f64 = 20.0;

/// The number of standard deviations by which an estimated rate must exceed the limit for heavy
/// sources.
const DEVIATIONS: f64 = 2.0;

/// A source is forgotten when its count of messages, which fades with time, has fallen to this
/// value.
const FORGOTTEN: f64 = 0.05;

/// A source that causes the overload, because it sends more messages than its fair share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeavySource {
    /// The number of the source, for example its address.
    pub source: u128,
    /// Estimated rate at which the source sends messages that may be dropped before they are read,
    /// in messages a second. It includes messages that are dropped or lost.
    pub rate_cps: f64,
}

/// The number of sent messages that one read message represents, because other messages were lost
/// or dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// Number of messages that reached a receive buffer for each message that found room in it, at
    /// least 1.
    pub per_read: f64,
    /// Number of messages that were sent for each message that was not dropped on purpose. It is at
    /// least 1, but 0 for a message that arrived before messages like it were dropped: the later
    /// messages that are not dropped already represent it.
    pub per_passing: f64,
    /// True if messages of all sources are dropped alike. Then `per_passing` does not count when
    /// sources are compared with each other: if few messages are read, chance would decide which
    /// sources seem to send much.
    pub drops_all: bool,
}

impl Arrived {
    /// A message that represents only itself.
    pub const ONE: Self = Self { per_read: 1.0, per_passing: 1.0, drops_all: false };

    fn count(self) -> f64 {
        self.per_read * self.per_passing
    }

    /// Returns the numbers for comparing sources with each other. They leave out drops that hit the
    /// messages of all sources alike.
    fn compared(self) -> Self {
        if self.drops_all { Self { per_passing: 1.0, ..self } } else { self }
    }
}

/// The counts of the messages of each source, from which the heavy sources are determined.
#[derive(Debug)]
pub(crate) struct Heavy {
    sources: SourceTable<Account>,
    /// The observation time, or `None` while nothing is counted.
    observation: Option<Observation>,
    sums: Sums,
    max_min: MaxMin,
    /// A buffer for the demands, kept to reuse its memory.
    demands: Vec<Demand>,
    /// The heavy sources that flood with emergency calls, as of the last [list](Self::list).
    emergency_floods: Vec<HeavySource>,
}

/// Sums over all sources. Older messages count less.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Messages that were read.
    read: f64,
    /// The estimated number of messages that arrived: each message that was read represents one or
    /// more.
    arrived: f64,
    /// The estimated number of the messages in `arrived` that were not lost in a full buffer.
    kept: f64,
    /// Messages that got a place in the queue.
    placed: f64,
}

/// An estimated number of messages. Each one counts less with its age.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    sum: f64,
    variance: f64,
}

impl Estimate {
    /// Adds the `count` messages that one read message represents. Chance decides which of them is
    /// read, so the variance grows.
    fn add(&mut self, count: f64) {
        self.sum += count;
        self.variance += count * (count - 1.0).max(0.0);
    }

    fn fade(&mut self, kept: f64) {
        self.sum *= kept;
        self.variance *= kept * kept;
    }

    /// Returns a lower limit for the true number of messages: the estimate less [`DEVIATIONS`]
    /// standard deviations.
    fn certain(&self) -> f64 {
        self.sum - DEVIATIONS * self.variance.sqrt()
    }

    /// Returns a lower limit for the expected number of messages. The true number varies by chance
    /// around the expected number, like that of a Poisson process.
    fn certain_mean(&self) -> f64 {
        self.sum - DEVIATIONS * (self.variance + self.sum).sqrt()
    }
}

#[derive(Debug, Default)]
struct Account {
    /// Number of sources that this source counts as.
    weight: RecentWeight,
    /// All messages of the source.
    all: Estimate,
    /// The messages of the source without repetitions of messages on which the gate has decided.
    firsts: Estimate,
    /// The datagrams of the source that call an emergency service, copies included. Datagrams that
    /// a share for all sources drops count too.
    emergencies: Estimate,
    /// The number of the period up to which the estimates have decayed.
    period: u64,
    /// The source is heavy before this time.
    heavy_until: Timestamp,
    /// The source floods with emergency calls before this time, as long as it is heavy.
    floods_until: Timestamp,
    /// The highest rate that the source exceeded with some certainty since it became heavy, in
    /// messages a second. It fades. In the comparison with the heaviest source ([`LIGHT`]), it
    /// replaces a lower estimate: if nearly all messages of the source are dropped, the estimate
    /// falls although the source sends as much as before.
    peak: f64,
}

impl Account {
    fn fade(&mut self, period: u64) {
        let kept = faded(period - self.period);
        self.all.fade(kept);
        self.firsts.fade(kept);
        self.emergencies.fade(kept);
        self.peak *= 0.5f64.powf((period - self.period) as f64 / PEAK_HALVES);
        self.period = period;
    }
}

/// The rates at which a source sends, in messages a second.
#[derive(Clone, Copy, Debug)]
struct Demand {
    all: f64,
    firsts: f64,
    /// Lower limits for the true rates `all` and `firsts` ([`Estimate::certain`]).
    certain_all: f64,
    certain_firsts: f64,
    weight: f64,
    /// True if the source is already heavy.
    is_heavy: bool,
    /// The highest rate since the source became heavy, in messages a second. It falls with time.
    peak: f64,
}

/// The rates of a source of weight 1 above which it is heavy.
#[derive(Clone, Copy, Debug)]
struct HeavyLimits {
    all: f64,
    firsts: f64,
}

impl HeavyLimits {
    fn are_exceeded(&self, demand: &Demand) -> bool {
        let Demand { certain_all, certain_firsts, weight, .. } = *demand;
        certain_all > self.all * weight || certain_firsts > self.firsts * weight
    }
}

impl Heavy {
    /// Creates a table for up to `sources_max` distinct sources. The key of its hash is drawn from
    /// `stream`.
    pub(crate) fn new(sources_max: usize, stream: &mut Stream) -> Self {
        Self {
            sources: SourceTable::new(sources_max, stream),
            observation: None,
            sums: Sums::default(),
            max_min: MaxMin::default(),
            demands: Vec::new(),
            emergency_floods: Vec::new(),
        }
    }

    /// Returns the number of messages from sources for which the table had no room.
    pub(crate) fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.observation.is_some()
    }

    /// Starts or stops counting messages. A start discards all earlier counts. Returns whether
    /// counting starts now.
    pub(crate) fn set_counting(&mut self, now: Timestamp, counts: bool) -> bool {
        let begins = counts && !self.is_counting();
        if begins {
            self.sources.sweep(|account| {
                *account = Account::default();
                false
            });
            self.sums = Sums::default();
            self.observation = Some(Observation::starting_at(now));
        } else if !counts {
            self.observation = None;
        }
        begins
    }

    /// Counts a message that was read. `arrived` is the number of messages that it represents.
    /// `repeats` is true if it repeats a message on which the gate has decided, and `is_emergency`
    /// if it is a datagram that calls an emergency service. The source counts as `weight` sources,
    /// at least 1. Returns whether the source is heavy.
    pub(crate) fn on_read(
        &mut self,
        now: Timestamp,
        source: u128,
        weight: u32,
        arrived: Arrived,
        repeats: bool,
        is_emergency: bool,
    ) -> bool {
        let Some(period) = self.advance(now) else { return false };
        let compared = arrived.compared();
        let count = compared.count();
        self.sums.read += 1.0;
        self.sums.arrived += count;
        self.sums.kept += compared.per_passing;
        let slot = self.sources.slot(source);
        let account = self.sources.get_mut(slot);
        if slot != SourceTable::<Account>::SHARED {
            account.weight.record(period, weight);
        }
        account.fade(period);
        account.all.add(count);
        if !repeats {
            account.firsts.add(count);
        }
        if is_emergency {
            // Unread calls count too: the limit does not depend on unread messages of others.
            account.emergencies.add(arrived.count());
        }
        account.heavy_until > now
    }

    /// Counts a message that gets a place in the queue.
    pub(crate) fn on_placed(&mut self, now: Timestamp) {
        if self.advance(now).is_some() {
            self.sums.placed += 1.0;
        }
    }

    /// Writes the heavy sources to `heavy`, in ascending order. Sources for which `is_spared`
    /// returns true do not become heavy. If there are more than `max` heavy sources, or if some of
    /// them have no entry in the table, `heavy` gets no source.
    pub(crate) fn list(
        &mut self,
        now: Timestamp,
        max: usize,
        is_spared: impl Fn(u128) -> bool,
        heavy: &mut Vec<HeavySource>,
    ) {
        heavy.clear();
        self.emergency_floods.clear();
        let Some(period) = self.advance(now) else { return };
        let seconds = self.observation.as_ref().map_or(1.0, |observation| observation.seconds(now));
        self.sources.sweep(|account| {
            account.fade(period);
            account.all.sum > FORGOTTEN || account.heavy_until > now
        });
        let mut demands = mem::take(&mut self.demands);
        demands.extend(self.sources.iter().map(|(_, account)| Demand {
            all: account.all.sum / seconds,
            firsts: account.firsts.sum / seconds,
            certain_all: account.all.certain() / seconds,
            certain_firsts: account.firsts.certain() / seconds,
            weight: account.weight.get().into(),
            is_heavy: account.heavy_until > now,
            peak: (account.all.certain() / seconds).max(account.peak),
        }));
        let limits = self.limits(&demands, seconds);
        let read_cps = self.sums.read / seconds;
        let mut are_all_known = true;
        for ((source, account), demand) in self.sources.iter_mut().zip(demands.drain(..)) {
            if limits.are_exceeded(&demand) && !source.is_some_and(&is_spared) {
                account.heavy_until = now + HEAVY_FOR;
            }
            account.peak = if account.heavy_until > now { demand.peak } else { 0.0 };
            if account.heavy_until > now {
                are_all_known &= source.is_some();
                let emergencies = &account.emergencies;
                let max_cps =
                    (EMERGENCY_MAX_CPS * demand.weight).max(EMERGENCY_MAX_PART * read_cps);
                if emergencies.certain_mean() / seconds > max_cps {
                    account.floods_until = now + HEAVY_FOR;
                }
                if account.floods_until > now {
                    let rate_cps = emergencies.sum / seconds;
                    let flood = source.map(|source| HeavySource { source, rate_cps });
                    self.emergency_floods.extend(flood);
                }
                heavy.extend(source.map(|source| HeavySource { source, rate_cps: demand.all }));
            }
        }
        self.demands = demands;
        if heavy.len() > max || !are_all_known {
            heavy.clear();
        }
        heavy.sort_unstable_by_key(|heavy| heavy.source);
        self.emergency_floods.sort_unstable_by(|a, b| b.rate_cps.total_cmp(&a.rate_cps));
    }

    /// Returns the heavy sources that flood with emergency calls, as they were last
    /// [listed](Self::list), with the rates of these calls. The highest rate comes first.
    pub(crate) fn emergency_floods(&self) -> &[HeavySource] {
        &self.emergency_floods
    }

    /// Returns the limits above which a source is heavy. `seconds` is the observation time.
    fn limits(&mut self, demands: &[Demand], seconds: f64) -> HeavyLimits {
        let Sums { read, arrived, kept, placed } = self.sums;
        // Assume that lost messages would have got a place as often as the messages that were read.
        let arrived_per_kept = if kept > 0.0 { arrived / kept } else { 1.0 };
        let total = read.min(placed * arrived_per_kept) / seconds;
        self.max_min.set(demands.iter().map(|demand| (demand.firsts, demand.weight)));
        let enough = if arrived_per_kept > 1.0 + LOST { ENOUGH_IF_LOST } else { ENOUGH };
        let is_enough = total >= enough * self.max_min.sum();
        let level = if is_enough { f64::INFINITY } else { self.max_min.level(total) };
        let each = demands.iter().map(|demand| demand.all.max(demand.peak) / demand.weight);
        let lowest = LIGHT * each.fold(0.0, f64::max);
        let all = (COPIES_MAX * level.min(total)).max(lowest);
        let limits = |multiple: f64| HeavyLimits { all, firsts: (multiple * level).max(lowest) };
        let leave_little = |limits: &HeavyLimits| {
            let is_heavy = |demand: &&Demand| demand.is_heavy || limits.are_exceeded(demand);
            let others = demands.iter().filter(|demand| !is_heavy(demand));
            let rest: f64 = others.map(|demand| demand.firsts).sum();
            rest <= REST_MAX * total && demands.iter().any(|demand| is_heavy(&demand))
        };
        MULTIPLES.map(limits).into_iter().find(leave_little).unwrap_or(limits(1.0))
    }

    /// Advances the observation to `now`. Returns the number of the current period, or `None` if
    /// nothing is counted.
    fn advance(&mut self, now: Timestamp) -> Option<u64> {
        let observation = self.observation.as_mut()?;
        let faded = observation.advance(now);
        if faded < 1.0 {
            let Sums { read, arrived, kept, placed } = &mut self.sums;
            for sum in [read, arrived, kept, placed] {
                *sum *= faded;
            }
        }
        Some(observation.period())
    }
}

#[cfg(test)]
#[path = "heavy_tests.rs"]
mod tests;
