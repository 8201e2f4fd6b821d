//! Calls with every kind of outcome through the proxy: one group of callers, three back ends, and a
//! network that loses a packet now and then.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{
    Answerer, AnswererConfig, AnswererStats, Caller, CallerConfig, CallerStats, Load, Span,
};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Counters, Mode, PoolSettings, Proxy};
use tidegate_sim::{Link, Network, Summary, Trace};
use tidegate_world::{Core, Pool, Seed, Timestamp};

use super::topology::{BACKENDS, CALLER, PROXY, address, backends, settings};

/// The behaviour of the called parties. About 70 % of the calls are set up, because some callers do
/// not wait for the answer. A 503 is rare, because it means that the server is overloaded: for a
/// second, the proxy sends this server no request that another back end has rejected.
const OUTCOMES: &str = "answer=76,busy=9,ring=8,404=2,480=2,500=1.9,503=0.1,silent=1";

/// Interval at which the proxy's tables are checked.
const LOOK: Duration = Duration::from_millis(100);

const CALLS_MAX: usize = 2_000_000;

/// The parameters of a run.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub seed: u64,
    pub mode: Mode,
    pub rate_cps: f64,
    /// Time in which calls start.
    pub lasts: Duration,
    /// Fraction of packets lost, 0..1.
    pub loss: f64,
}

/// Entries in the proxy's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub calls: u64,
    pub server_transactions: u64,
    pub client_transactions: u64,
}

impl Sizes {
    fn of(counters: &Counters) -> Self {
        Self {
            calls: counters.calls.get(),
            server_transactions: counters.server_transactions.get(),
            client_transactions: counters.client_transactions.get(),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            calls: self.calls.max(other.calls),
            server_transactions: self.server_transactions.max(other.server_transactions),
            client_transactions: self.client_transactions.max(other.client_transactions),
        }
    }
}

/// The result of a run.
pub struct Outcome {
    pub summary: Summary,
    pub trace: u128,
    /// Time of the last event.
    pub lasted: Timestamp,
    pub caller: CallerStats,
    /// Counts of all three answerers together.
    pub answerers: AnswererStats,
    /// Calls left in the answerers' tables.
    pub held: usize,
    pub counters: Arc<Counters>,
    /// The proxy's tables at their largest, and at the end.
    pub peak: Sizes,
    pub left: Sizes,
    pub backends: balance::Pool,
}

impl Outcome {
    /// Returns whether every call ended in one way, at either end, and left nothing behind.
    pub fn conserved(&self) -> bool {
        let caller = &self.caller;
        let a = &self.answerers;
        let begun =
            a.overflowed + a.silent + a.unanswerable + a.unanswered + a.cancelled + a.rejected;
        let ended = a.completed + a.hung_up + a.not_acknowledged + a.forgotten;
        caller.offered == caller.begun
            && caller.begun == caller.completed + caller.failed.total()
            && a.calls == begun + a.answered
            && a.answered == ended
            && caller.open + a.open == 0
            && self.held == 0
    }

    /// Returns whether no back end counts as having work.
    pub fn is_settled(&self) -> bool {
        self.backends.backends().iter().all(|backend| backend.calls() == 0 && backend.work() == 0)
    }
}

impl Traffic {
    /// Returns the configuration of a group of callers at `local` that call `target`.
    pub fn callers(&self, local: SocketAddr, target: SocketAddr) -> CallerConfig {
        CallerConfig {
            load: Load {
                rate_cps: self.rate_cps,
                calls: u32::MAX,
                duration: self.lasts,
                ..Load::default()
            },
            hold: Span::Exponential(Duration::from_secs(60)),
            patience: Span::Exponential(Duration::from_secs(60)),
            open_max: CALLS_MAX,
            ..CallerConfig::new(local, target)
        }
    }

    /// Returns the configuration of the callees at an address.
    pub fn called(&self, at: SocketAddr) -> AnswererConfig {
        AnswererConfig {
            mix: OUTCOMES.parse().unwrap(),
            provisionals: vec![183, 180],
            ring: Span::Exponential(Duration::from_secs(5)),
            hangs_up: 0.4,
            hold: Span::Exponential(Duration::from_secs(60)),
            calls_max: CALLS_MAX,
            ..AnswererConfig::new(at)
        }
    }

    /// Runs until no event is left.
    pub fn go(self) -> Outcome {
        let seed = Seed(self.seed);
        let callers = self.callers(address(CALLER), address(PROXY));
        let mut caller = Caller::new(callers, seed, 0, Timestamp::ZERO, Pool::new()).unwrap();
        let backends = backends();
        let pool =
            PoolSettings { mode: self.mode, ..PoolSettings::new(backends.clone(), Policy::Tlwl) };
        let counters = Arc::new(Counters::default());
        let mut proxy = Proxy::new(settings(pool), Arc::clone(&counters), Pool::new());
        let mut answerers: Vec<_> = (1..)
            .zip(BACKENDS)
            .map(|(element, at)| {
                Answerer::new(self.called(address(at)), seed, element, Pool::new())
            })
            .collect();

        let link = Link { loss: self.loss, ..Link::delaying(Duration::from_millis(1)) };
        let mut network = Network::<&mut dyn Core, _>::new(seed, link, Trace::new());
        network.add(&[address(CALLER)], &mut caller);
        network.add(&[address(PROXY)], &mut proxy);
        for (at, answerer) in BACKENDS.iter().zip(&mut answerers) {
            network.add(&[address(at)], answerer);
        }
        let mut peak = Sizes::default();
        let mut look = Timestamp::ZERO;
        let mut summary = network.run_until(look);
        while !network.is_over() {
            look = look + LOOK;
            summary = network.run_until(look);
            peak = peak.max(Sizes::of(&counters));
        }
        let lasted = network.now();
        let trace = network.into_parts().1.digest();
        let mut sum = AnswererStats::default();
        for answerer in &answerers {
            sum.merge(&answerer.stats());
        }
        Outcome {
            summary,
            trace,
            lasted,
            caller: caller.stats().clone(),
            answerers: sum,
            held: answerers.iter().map(Answerer::held).sum(),
            left: Sizes::of(&counters),
            counters,
            peak,
            backends,
        }
    }
}
