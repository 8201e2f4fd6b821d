//! Gauges that publish the signals and decisions of overload control.

use std::time::Duration;

use tidegate_control::{
    Allowance, Bucket, Flow, Gate, Ladder, QueueOrder, Release, SojournWindow, Tier, Tiers,
};
use tidegate_world::{Counter, DroppableMethod, Timestamp};

use crate::message::class::Class;

/// A copy of a gate's signals and its law's decisions, published every few milliseconds under load.
/// An idle shard publishes only the counts of new work. [`published`](Self::published) shows the
/// age of the other values.
#[derive(Debug, Default)]
pub struct Gauges {
    /// The time of publication, in ns since the start of the driver.
    pub published: Counter,
    /// Time since the start of the driver for which the processor was occupied, in ns. The
    /// configuration of the gate selects the clock: busy time or CPU time.
    pub occupied: Counter,
    /// Fill level of the fullest receive buffer, in millionths.
    pub socket_fill: Counter,
    /// Share of new work that the law rejects, in millionths, by bucket. The initial value, zero,
    /// means that the law rejects nothing.
    pub rejecting: [Counter; Bucket::ALL.len()],
    /// Share of the messages of a class that the law sheds, in millionths.
    pub rejecting_of_class: [Counter; Class::ALL.len()],
    /// The law's limit on new work, by bucket.
    pub limits: [LimitGauges; Bucket::ALL.len()],
    /// The number of new calls that the law allows to wait, plus one, or zero if the law sets no
    /// such limit.
    pub waiting_limit: Counter,
    /// Rate at which the gate releases new calls from their queue, in thousandths of calls/s, or
    /// zero if it does not pace them.
    pub release: Counter,
    /// Calls that back ends have not answered yet, of the last half second ([`Answers`]).
    ///
    /// [`Answers`]: tidegate_control::Answers
    pub unanswered: Counter,
    /// The number of unanswered calls from which new calls wait in their queue, in thousandths, or
    /// zero if there is no such limit.
    pub unanswered_max: Counter,
    /// 1 while the newest new call is served first, otherwise 0.
    pub newest_first: Counter,
    /// Maximum wait, in ns. A message that has waited longer is rejected when its turn comes. Zero
    /// if there is no limit.
    pub wait_max: Counter,
    /// The rank below which the law rejects new calls, in millionths. Each call has a random rank,
    /// so the floor is also the rejected share of the calls.
    pub rank_floor: Counter,
    /// Counts of new work, by bucket.
    pub flows: [FlowCounters; Bucket::ALL.len()],
    /// Sojourn (time from arrival to service) of new work in the last completed second.
    pub sojourn_of_new: SojournGauges,
    /// Sojourn of all other messages in the last completed second.
    pub sojourn_of_ongoing: SojournGauges,
    /// Mean service time by class, in ns, or zero before the first measurement.
    pub costs: [Counter; Class::ALL.len()],
    /// Estimated rate of served sessions, in thousandths per second.
    pub session_rate: Counter,
    /// Estimated number of messages per session, in thousandths.
    pub session_length: Counter,
    /// Estimated number of sessions in the queues, in thousandths.
    pub sessions_waiting: Counter,
    /// Time to serve all messages of a call, in ns, or zero while it is not known.
    pub call_cost: Counter,
    /// Time to reject a call that is not admitted, in ns, or zero while it is not known.
    pub rejection_cost: Counter,
    /// The maximum goodput that any law could reach at the current offered load, in millionths of
    /// the capacity, or zero while it is not known.
    pub bound: Counter,
    /// Share of the INVITEs that the kernel drops, in millionths.
    pub drop_share: Counter,
    /// Share of the REGISTERs that the kernel drops, in millionths.
    pub drop_share_of_registers: Counter,
    /// Part of the processor time spent on rejections, in millionths, or zero if this part is not
    /// limited.
    pub rejecting_load: Counter,
    /// Share of the new calls of pools with the mode `adaptive` that are served without
    /// transactions, in millionths.
    pub stateless: Counter,
    /// Occupancy up to which every call gets transactions, in millionths, or zero if no pool has
    /// the mode `adaptive`.
    pub stateful_occupancy: Counter,
    /// Time to serve all messages of a call in a tier, in ns, for pools with the mode `adaptive`.
    /// Zero while the time is not known.
    pub tier_costs: [Counter; Tier::ALL.len()],
    /// Number of requests whose decision the gate remembers, to repeat it for retransmissions.
    pub remembered: Counter,
    /// Decisions that the gate did not remember because its memory was full.
    pub forgotten: Counter,
    /// Challenges of back ends that were not remembered because their memory was full.
    pub challenges_forgotten: Counter,
    /// Number of sources that share the admitted new work, by bucket.
    pub sources: [Counter; Bucket::ALL.len()],
    /// The rate up to which the work of a source of weight 1 is admitted, in thousandths of
    /// requests per second, by bucket. Zero while there is no limit, while the law admits nothing,
    /// and with a law that sets neither a share nor a rate.
    pub source_level: [Counter; Bucket::ALL.len()],
    /// Number of times that a source was merged with others because the table of sources was
    /// full.
    pub sources_overflowed: Counter,
}

/// The gauges that publish an [`Allowance`].
#[derive(Debug, Default)]
pub struct LimitGauges {
    /// The kind of the allowance: 0 open, 1 fraction, 2 rate, 3 window, 4 closed.
    kind: Counter,
    /// The value of the allowance, in millionths.
    value: Counter,
}

/// The counters that publish the [own flow](Gate::own_flow) of a gate.
#[derive(Debug, Default)]
pub struct FlowCounters {
    /// Published value of [`Flow::arrived`].
    pub arrived: Counter,
    /// Published value of [`Flow::offered`].
    pub offered: Counter,
    /// Published value of [`Flow::admitted`].
    pub admitted: Counter,
    /// Published value of [`Flow::rejected`].
    pub rejected: Counter,
    /// Published value of [`Flow::repeated`].
    pub repeated: Counter,
    /// Published value of [`Flow::early`].
    pub early: Counter,
    /// Published value of [`Flow::stale`].
    pub stale: Counter,
}

/// A published [`SojournWindow`]. Times are in ns.
#[derive(Debug, Default)]
pub struct SojournGauges {
    /// The number of messages whose sojourn was measured.
    pub count: Counter,
    /// The shortest sojourn.
    pub min: Counter,
    /// The mean sojourn.
    pub mean: Counter,
    /// The 99th percentile of the sojourn.
    pub p99: Counter,
}

impl Gauges {
    /// Publishes the signals and decisions of a gate. `unanswered_max` is the number of unanswered
    /// calls from which new calls wait, if there is such a limit.
    pub(crate) fn publish(&self, now: Timestamp, gate: &Gate, unanswered_max: Option<f64>) {
        let (signals, control) = (gate.signals(), gate.control());
        self.published.set(now.as_nanos());
        self.occupied.set(nanos(signals.processor.occupied));
        self.socket_fill.set(millionths(signals.socket_fill));
        self.release.set(match control.queue.release {
            Release::Open => 0,
            Release::Rate(rate) => (rate * 1e3) as u64,
        });
        self.unanswered.set(signals.answers.waiting);
        self.unanswered_max.set((unanswered_max.unwrap_or_default() * 1e3) as u64);
        self.newest_first.set(u64::from(control.queue.order == QueueOrder::Lifo));
        self.wait_max.set(nanos(control.queue.wait_max.unwrap_or_default()));
        self.rank_floor.set(millionths(control.rank_floor));
        self.waiting_limit.set((control.queue.waiting_max as u64).wrapping_add(1));
        for bucket in Bucket::ALL {
            self.limits[bucket as usize].publish(control.admit(bucket));
            self.rejecting[bucket as usize].set(millionths(1.0 - gate.share(bucket)));
            let Some(fair) = gate.fairness(bucket) else { continue };
            self.sources[bucket as usize].set(fair.sources() as u64);
            let level = Some(fair.level(gate.share(bucket))).filter(|level| level.is_finite());
            self.source_level[bucket as usize].set((level.unwrap_or_default() * 1e3) as u64);
        }
        self.publish_flows(gate);
        self.sojourn_of_new.publish(signals.sojourn.of_new());
        self.sojourn_of_ongoing.publish(signals.sojourn.of_ongoing());
        for class in Class::ALL {
            let share = gate.share_of_class(class.bucket(), class as u8);
            self.rejecting_of_class[class as usize].set(millionths(1.0 - share));
            let cost = signals.costs.of(class as u8).unwrap_or_default();
            self.costs[class as usize].set(nanos(cost));
        }
        let thousandths = |number: f64| (number * 1e3).round() as u64;
        self.session_rate.set(thousandths(signals.sessions.rate_cps()));
        self.session_length.set(thousandths(signals.sessions.length()));
        self.sessions_waiting.set(thousandths(signals.sessions_waiting()));
        self.call_cost.set(nanos(signals.sessions.cost().unwrap_or_default()));
        self.rejection_cost.set(nanos(gate.rejection_cost().unwrap_or_default()));
        self.bound.set(millionths(gate.bound(now).unwrap_or_default()));
        self.remembered.set(gate.memory().len() as u64);
        self.forgotten.set(gate.memory().overflowed());
    }

    pub(crate) fn publish_ladder(&self, ladder: &Ladder) {
        self.drop_share.set(millionths(ladder.share(DroppableMethod::Invite)));
        self.drop_share_of_registers.set(millionths(ladder.share(DroppableMethod::Register)));
        self.rejecting_load.set(millionths(ladder.load()));
    }

    pub(crate) fn publish_tiers(&self, tiers: Option<&Tiers>) {
        let Some(tiers) = tiers else { return };
        self.stateful_occupancy.set(millionths(tiers.target()));
        self.stateless.set(millionths(1.0 - tiers.stateful_share()));
        for tier in Tier::ALL {
            self.tier_costs[tier as usize].set(nanos(tiers.call_cost(tier).unwrap_or_default()));
        }
    }

    /// Publishes only the counts of new work, so that an idle shard shows no outdated counts.
    pub(crate) fn publish_flows(&self, gate: &Gate) {
        for bucket in Bucket::ALL {
            self.flows[bucket as usize].publish(&gate.own_flow(bucket));
        }
    }
}

impl LimitGauges {
    fn publish(&self, allowance: Allowance) {
        let (kind, value) = match allowance {
            Allowance::Open => (0, 0.0),
            Allowance::Fraction(fraction) => (1, fraction),
            Allowance::Rate(rate) => (2, rate),
            Allowance::Window(window) => (3, window),
            Allowance::Closed => (4, 0.0),
        };
        self.kind.set(kind);
        self.value.set(millionths(value));
    }

    /// Returns the last published limit, or [`Allowance::Open`] before the first publication.
    pub fn get(&self) -> Allowance {
        let value = self.value.get() as f64 / 1e6;
        match self.kind.get() {
            0 => Allowance::Open,
            1 => Allowance::Fraction(value),
            2 => Allowance::Rate(value),
            3 => Allowance::Window(value),
            _ => Allowance::Closed,
        }
    }
}

impl FlowCounters {
    fn publish(&self, flow: &Flow) {
        let Flow { arrived, offered, admitted, rejected, repeated, early, stale, .. } = *flow;
        for (counter, count) in [
            (&self.arrived, arrived),
            (&self.offered, offered),
            (&self.admitted, admitted),
            (&self.rejected, rejected),
            (&self.repeated, repeated),
            (&self.early, early),
            (&self.stale, stale),
        ] {
            counter.set(count);
        }
    }
}

impl SojournGauges {
    fn publish(&self, window: &SojournWindow) {
        self.count.set(window.count);
        self.min.set(nanos(window.min));
        self.mean.set(nanos(window.mean));
        self.p99.set(nanos(window.p99));
    }
}

fn millionths(share: f64) -> u64 {
    (share * 1e6).round() as u64
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
