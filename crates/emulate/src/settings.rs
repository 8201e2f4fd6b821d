//! The settings of an emulated host, such as its costs and its buffers.

use std::time::Duration;

use tidegate_world::{Timestamp, Work};

use super::quota::Quota;
use super::variation::Variation;

/// The processor time that work costs, indexed by the class that the core reports for the work
/// ([`Work`]). All costs are 0 by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Additional cost of a datagram that reaches an idle processor: to wake the process, and to
    /// put it to sleep again.
    pub wake: Duration,
    /// Cost of taking a datagram from its buffer. Every datagram has this cost.
    pub receive: Duration,
    /// Cost of examining a message to decide on its admission, by class.
    pub offer: [Duration; Work::CLASSES_MAX],
    /// Cost of serving a message, by class.
    pub serve: [Duration; Work::CLASSES_MAX],
    /// Cost of serving a message without keeping state ([`Work::stateless`]), by class, or `None`
    /// if it is the same as [`serve`](Self::serve).
    pub serve_stateless: Option<[Duration; Work::CLASSES_MAX]>,
    /// Cost of rejecting a message, by class.
    pub reject: [Duration; Work::CLASSES_MAX],
}

impl Costs {
    /// Returns the same costs for all classes, without a cost for reception or for waking.
    pub fn uniform(offer: Duration, serve: Duration, reject: Duration) -> Self {
        let all = |cost| [cost; Work::CLASSES_MAX];
        Self {
            wake: Duration::ZERO,
            receive: Duration::ZERO,
            offer: all(offer),
            serve: all(serve),
            serve_stateless: None,
            reject: all(reject),
        }
    }

    /// Returns the cost of an input that caused this `work`, without the costs of waking and of
    /// reception.
    ///
    /// # Panics
    /// Panics if a class of `work` is not below [`Work::CLASSES_MAX`].
    pub fn of(&self, work: Work) -> Duration {
        let Work { offered, served, rejected, stateless } = work;
        let serve = self.serve_stateless.as_ref().filter(|_| stateless).unwrap_or(&self.serve);
        [(&self.offer, offered), (serve, served), (&self.reject, rejected)]
            .into_iter()
            .filter_map(|(costs, class)| class.map(|class| costs[usize::from(class)]))
            .fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// Disturbances of a processor: conditions for which overload control is not prepared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// Time that other programs take from every core, or `None`. The first value is the length of a
    /// period. The second, shorter value is the time at the end of each period for which other
    /// programs use every core. While they interrupt work, the core of the processor counts as
    /// busy.
    pub stolen: Option<(Duration, Duration)>,
    /// An increase of all costs, or `None`. The first value is a time after the start. From this
    /// time on, every cost is multiplied by the second value.
    pub dearer: Option<(Duration, f64)>,
    /// Factor by which the busy time and the CPU time are multiplied before they are reported to
    /// the hosted [`Core`](tidegate_world::Core). 1 means that the report is correct.
    pub misread: f64,
}

impl Disturbance {
    /// No disturbance.
    pub const NONE: Self = Self { stolen: None, dearer: None, misread: 1.0 };

    /// Returns the factor by which costs are multiplied at the time `at` after the start.
    pub fn cost_factor(&self, at: Duration) -> f64 {
        self.dearer.filter(|(from, _)| at >= *from).map_or(1.0, |(_, factor)| factor)
    }

    /// Returns the fraction of a processor core's time that other programs leave on average
    /// ([`stolen`](Self::stolen)). It is above 0 and at most 1.
    pub fn own_part(&self) -> f64 {
        self.stolen.map_or(1.0, |(period, stolen)| (period - stolen).div_duration_f64(period))
    }

    /// Returns the completion time of work that begins at `begins` and takes `work` of the time
    /// that other programs leave.
    pub(super) fn completion(&self, begins: Timestamp, work: Duration) -> Timestamp {
        let Some((period, stolen)) = self.stolen else { return begins + work };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let [period, own, work] = [period, period - stolen, work].map(nanos);
        let begins = begins.as_nanos();
        // The processor's own time at the completion, counted from the start.
        let done = (begins / period * own + (begins % period).min(own)).saturating_add(work);
        let (periods, rest) = (done / own, done % own);
        // Work that ends exactly when the other programs begin does not wait for the next period.
        let (periods, rest) =
            if rest == 0 && periods > 0 { (periods - 1, own) } else { (periods, rest) };
        Timestamp::from_nanos(periods.saturating_mul(period).saturating_add(rest).max(begins))
    }
}

/// The settings of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSettings {
    /// Costs of the core's work.
    pub costs: Costs,
    /// True if INVITEs and REGISTERs have a buffer of their own, as with the real driver's sockets.
    /// The default is true. The buffer of all other datagrams is read first. But after 256
    /// datagrams from it, up to 64 INVITEs and REGISTERs are taken. If false, there is a single
    /// FIFO buffer.
    pub split: bool,
    /// Number of datagrams that fit in a buffer. The value is at least 1, and the default is 2048.
    pub buffer_max: usize,
    /// Bytes that fit in a buffer, as Linux charges them: a datagram of 500 bytes counts for 1,280.
    /// This is the value of `SO_RCVBUF` that `getsockopt(2)` returns: twice the value that was set.
    /// With `None`, the default, only the number of datagrams is limited.
    pub buffer_bytes: Option<usize>,
    /// Factor on every cost. The default is 1. A host with factor 2 has half the speed.
    pub cost_factor: f64,
    /// Number of cores of the processor. The value is at least 1, and the default is 1. The
    /// processor can run this number of steps at the same time. All cores share the buffers and the
    /// queue of the hosted [`Core`](tidegate_world::Core).
    pub cores: u16,
    /// The part of every core that other processes use, at least 0 and below 1. The default is 0.
    /// This is *d* in the model of a server's load
    ///
    /// ```text
    /// C(t) = (1 - α(t)) r(t) + α(t) r(t) / β + d(t)
    /// ```
    ///
    /// where the part α of the rate *r* is rejected, and a rejection costs 1/β of an admitted
    /// request. A step takes cost / (1 - d). The busy time that is reported to the hosted core
    /// includes d, so the reported load is 1 when the processor has no time left. The reported CPU
    /// time is that of the steps alone.
    pub background: f64,
    /// Number of datagrams that the server reads before it serves, or `None`, the default, for the
    /// order that the [module](crate) describes. With a number the server works in turns: it reads
    /// up to this number of datagrams, and then serves until nothing waits. It serves for at most
    /// 500 µs, or for as long as it has read if that was longer. If requests for new work have a
    /// buffer of their own ([`split`](Self::split)), this number is for them, and the server reads
    /// up to 256 other datagrams before them. For a server that handles each datagram before it
    /// reads the next one, set 1 here and `split` to false.
    pub batch: Option<usize>,
    /// Quota of processor time, or `None`, the default. It requires one core. The setting `stolen`
    /// of the disturbance has no effect with a quota.
    pub quota: Option<Quota>,
    /// Random variation of the costs. The default is none.
    pub variation: Variation,
    /// Conditions for which overload control is not prepared. The default is none.
    pub disturbance: Disturbance,
    /// True if the model catches up with a late driver, as a host behind real sockets must. The
    /// default is true. If false, no step begins in a time for which the driver does not call the
    /// host. This stalls a host in simulated time, where drivers are never late otherwise. A step
    /// that has begun is still complete on time.
    pub catches_up: bool,
}

impl HostSettings {
    /// Returns settings with these costs, and with the defaults of all other settings.
    pub fn new(costs: Costs) -> Self {
        Self {
            costs,
            split: true,
            buffer_max: 2048,
            buffer_bytes: None,
            cost_factor: 1.0,
            cores: 1,
            background: 0.0,
            batch: None,
            quota: None,
            variation: Variation::NONE,
            disturbance: Disturbance::NONE,
            catches_up: true,
        }
    }

    /// Returns the costs multiplied by `cost_factor`, rounded to nanoseconds.
    pub(super) fn charged(&self) -> Costs {
        let factor = self.cost_factor;
        assert!(factor.is_finite() && factor >= 0.0, "a cost factor of {factor}");
        let charged = |cost: Duration| {
            Duration::try_from_secs_f64(cost.as_secs_f64() * factor).unwrap_or(Duration::MAX)
        };
        Costs {
            wake: charged(self.costs.wake),
            receive: charged(self.costs.receive),
            offer: self.costs.offer.map(charged),
            serve: self.costs.serve.map(charged),
            serve_stateless: self.costs.serve_stateless.map(|costs| costs.map(charged)),
            reject: self.costs.reject.map(charged),
        }
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self::new(Costs::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn costs() -> Costs {
        let mut costs = Costs::uniform(US, 10 * US, 100 * US);
        costs.serve[3] = 1000 * US;
        costs
    }

    #[test]
    fn an_input_costs_the_work_that_it_caused() {
        let cost = |offered, served, rejected| {
            costs().of(Work { offered, served, rejected, stateless: false })
        };
        assert_eq!(cost(None, None, None), Duration::ZERO);
        assert_eq!(cost(Some(0), None, Some(1)), 101 * US);
        assert_eq!(cost(None, Some(2), None), 10 * US);
        assert_eq!(cost(None, Some(3), Some(15)), 1100 * US);
    }

    #[test]
    fn stateless_service_may_have_its_own_price() {
        let served = Work { served: Some(3), stateless: true, ..Work::default() };
        assert_eq!(costs().of(served), 1000 * US, "as with state");
        let mut serve_stateless = [4 * US; Work::CLASSES_MAX];
        serve_stateless[3] = 600 * US;
        let costs = Costs { serve_stateless: Some(serve_stateless), ..costs() };
        assert_eq!(costs.of(served), 600 * US);
        assert_eq!(costs.of(Work { stateless: false, ..served }), 1000 * US);
        assert_eq!(
            costs.of(Work { rejected: Some(1), stateless: true, ..Work::default() }),
            100 * US
        );
        let slow = HostSettings { cost_factor: 2.5, ..HostSettings::new(costs) }.charged();
        assert_eq!(slow.of(served), 1500 * US);
    }

    #[test]
    fn the_factor_scales_every_cost_and_one_changes_nothing() {
        let odd = Costs::uniform(Duration::from_nanos(1), Duration::from_nanos(1_234_567_891), US);
        let odd = Costs { receive: Duration::from_nanos(7), ..odd };
        assert_eq!(HostSettings::new(odd.clone()).charged(), odd);
        let received = Costs { receive: 2 * US, wake: 4 * US, ..costs() };
        let slow = HostSettings { cost_factor: 2.5, ..HostSettings::new(received) }.charged();
        assert_eq!((slow.receive, slow.wake), (5 * US, 10 * US));
        assert_eq!((slow.offer[0], slow.serve[1], slow.reject[2]), (US * 5 / 2, 25 * US, 250 * US));
        assert_eq!(slow.serve[3], 2500 * US);
    }

    #[test]
    fn work_is_done_in_the_time_that_others_leave_in_each_period() {
        let stolen = Some((10 * US, 8 * US));
        let disturbance = Disturbance { stolen, ..Disturbance::NONE };
        assert_eq!(disturbance.own_part(), 0.2);
        for (begins, work, completion) in
            [(0, 1, 1), (0, 2, 2), (1, 2, 11), (5, 1, 11), (5, 0, 5), (11, 5, 32), (1, 21, 102)]
        {
            let done = disturbance.completion(Timestamp::from_nanos(begins * 1000), work * US);
            assert_eq!(done.as_nanos(), completion * 1000, "{work} from {begins} on");
        }
        let done = Disturbance::NONE.completion(Timestamp::from_nanos(7), US);
        assert_eq!((done.as_nanos(), Disturbance::NONE.own_part()), (1007, 1.0));
    }

    #[test]
    fn costs_change_at_the_given_time() {
        let disturbance = Disturbance { dearer: Some((5 * US, 3.0)), ..Disturbance::NONE };
        assert_eq!([4, 5, 6].map(|us| disturbance.cost_factor(us * US)), [1.0, 3.0, 3.0]);
        assert_eq!(Disturbance::NONE.cost_factor(US), 1.0);
    }

    #[test]
    #[should_panic(expected = "a cost factor of -1")]
    fn a_factor_below_zero_is_a_bug() {
        HostSettings { cost_factor: -1.0, ..HostSettings::default() }.charged();
    }
}
