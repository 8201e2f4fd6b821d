//! What overload control sees and decides, for those who watch.

use std::time::Duration;

use tidegate_control::{Bucket, Flow, Gate, Ladder, Order, Release, SojournWindow, Tier, Tiers};
use tidegate_world::{Counter, Timestamp};

use crate::message::class::Class;

/// A copy of a gate's signals and its law's decisions, published every few milliseconds while
/// there is anything to do. At rest it is as old as [`published`](Self::published) says, but for
/// the counts of new work.
#[derive(Debug, Default)]
pub struct Gauges {
    /// When it was published, in ns since the driver's start.
    pub published: Counter,
    /// Occupied time of the processor since the start, in ns.
    pub occupied: Counter,
    /// Fill of the fullest receive buffer, in millionths.
    pub socket_fill: Counter,
    /// Share of new work that is refused, in millionths, by bucket: a gauge that nobody has set
    /// yet says that nothing is.
    pub refusing: [Counter; Bucket::ALL.len()],
    /// Share of the messages of a class that is refused, in millionths.
    pub refusing_of_class: [Counter; Class::ALL.len()],
    /// Rate at which the queue of new calls is released, in thousandths of calls/s; zero when
    /// it is not paced.
    pub release: Counter,
    /// 1 while the newest of the new calls is taken first, else 0.
    pub newest_first: Counter,
    /// What has waited longer is refused when its turn comes, in ns; zero when nothing is.
    pub wait_max: Counter,
    /// The rank below which new calls are refused, in millionths.
    pub rank_floor: Counter,
    /// New work, by bucket.
    pub flows: [FlowCounters; Bucket::ALL.len()],
    /// Sojourn of new work, in the last second.
    pub sojourn_of_new: SojournGauges,
    /// Sojourn of all else, in the last second.
    pub sojourn_of_ongoing: SojournGauges,
    /// Mean service time by class, in ns; zero before the first.
    pub costs: [Counter; Class::ALL.len()],
    /// Sessions that are served, in thousandths a second, as estimated.
    pub session_rate: Counter,
    /// Messages of a session, in thousandths, as estimated.
    pub session_length: Counter,
    /// Sessions in what waits, in thousandths, as estimated.
    pub sessions_waiting: Counter,
    /// What all messages of a call take to serve, in ns; zero while that is not known.
    pub call_cost: Counter,
    /// What it takes to dispose of a call that is not admitted, in ns; zero while that is not
    /// known.
    pub refusal_cost: Counter,
    /// The part of the capacity that no goodput can exceed at the load that is offered, in
    /// millionths; zero while that is not known.
    pub bound: Counter,
    /// Share of new INVITEs that the kernel is to drop, in millionths.
    pub thinned: Counter,
    /// Part of the processor that refusing takes, in millionths; zero unless it is bounded.
    pub refusing_load: Counter,
    /// Share of new calls that is served without transactions where the pool's mode leaves the
    /// choice, in millionths.
    pub stateless: Counter,
    /// Occupancy up to which none is, in millionths; zero where no pool's mode leaves the choice.
    pub stateful_occupancy: Counter,
    /// What all messages of a call take to serve in a tier, in ns, where the choice is left; zero
    /// while that is not known.
    pub tier_costs: [Counter; Tier::ALL.len()],
    /// Decisions remembered.
    pub remembered: Counter,
    /// Decisions for which there was no room.
    pub forgotten: Counter,
    /// Sources of new work among which it is shared, by bucket.
    pub sources: [Counter; Bucket::ALL.len()],
    /// The most that a source may have admitted, in thousandths of pieces a second, by bucket;
    /// zero while each may have all.
    pub source_level: [Counter; Bucket::ALL.len()],
    /// Times that a source was not told apart from others, for want of room.
    pub sources_overflowed: Counter,
}

/// A [`Flow`], published.
#[derive(Debug, Default)]
pub struct FlowCounters {
    /// [`Flow::arrived`].
    pub arrived: Counter,
    /// [`Flow::offered`].
    pub offered: Counter,
    /// [`Flow::admitted`].
    pub admitted: Counter,
    /// [`Flow::refused`].
    pub refused: Counter,
    /// [`Flow::repeated`].
    pub repeated: Counter,
}

/// A [`SojournWindow`], published; times in ns.
#[derive(Debug, Default)]
pub struct SojournGauges {
    /// Messages.
    pub count: Counter,
    /// The least.
    pub min: Counter,
    /// The mean.
    pub mean: Counter,
    /// The value that one in a hundred exceeds.
    pub p99: Counter,
}

impl Gauges {
    pub(crate) fn publish(&self, now: Timestamp, gate: &Gate) {
        let (signals, control) = (gate.signals(), gate.control());
        self.published.set(now.as_nanos());
        self.occupied.set(nanos(signals.processor.occupied));
        self.socket_fill.set(millionths(signals.socket_fill));
        self.release.set(match control.queue.release {
            Release::Open => 0,
            Release::Rate(rate) => (rate * 1e3) as u64,
        });
        self.newest_first.set(u64::from(control.queue.order == Order::Lifo));
        self.wait_max.set(nanos(control.queue.wait_max.unwrap_or_default()));
        self.rank_floor.set(millionths(control.rank_floor));
        for bucket in Bucket::ALL {
            self.refusing[bucket as usize].set(millionths(1.0 - gate.share(bucket)));
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
            self.refusing_of_class[class as usize].set(millionths(1.0 - share));
            let cost = signals.costs.of(class as u8).unwrap_or_default();
            self.costs[class as usize].set(nanos(cost));
        }
        let thousandths = |number: f64| (number * 1e3).round() as u64;
        self.session_rate.set(thousandths(signals.sessions.rate_cps()));
        self.session_length.set(thousandths(signals.sessions.length()));
        self.sessions_waiting.set(thousandths(signals.sessions_waiting()));
        self.call_cost.set(nanos(signals.sessions.cost().unwrap_or_default()));
        self.refusal_cost.set(nanos(gate.refusal_cost().unwrap_or_default()));
        self.bound.set(millionths(gate.bound().unwrap_or_default()));
        self.remembered.set(gate.memory().len() as u64);
        self.forgotten.set(gate.memory().overflowed());
    }

    pub(crate) fn publish_ladder(&self, ladder: &Ladder) {
        self.thinned.set(millionths(ladder.share()));
        self.refusing_load.set(millionths(ladder.load()));
    }

    pub(crate) fn publish_tiers(&self, tiers: Option<&Tiers>) {
        let Some(tiers) = tiers else { return };
        self.stateful_occupancy.set(millionths(tiers.target()));
        self.stateless.set(millionths(1.0 - tiers.stateful_share()));
        for tier in Tier::ALL {
            self.tier_costs[tier as usize].set(nanos(tiers.call_cost(tier).unwrap_or_default()));
        }
    }

    /// The counts alone: what has come to rest must not be one short for ever.
    pub(crate) fn publish_flows(&self, gate: &Gate) {
        for bucket in Bucket::ALL {
            self.flows[bucket as usize].publish(gate.signals().flow(bucket));
        }
    }
}

impl FlowCounters {
    fn publish(&self, flow: &Flow) {
        let Flow { arrived, offered, admitted, refused, repeated, .. } = *flow;
        for (counter, count) in [
            (&self.arrived, arrived),
            (&self.offered, offered),
            (&self.admitted, admitted),
            (&self.refused, refused),
            (&self.repeated, repeated),
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
