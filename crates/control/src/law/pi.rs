//! Two PI controllers: one releases the queue of new calls so that each call waits a set time. The
//! other rejects a share of the calls to keep the processor at a set occupancy.
//!
//! Signals: length q of the queue of new calls, rates of the calls that arrive and that enter
//! the queue, occupancy C.
//!
//! *Queue loop*, every T_c: the queue is released at u = K_pq·e_q + K_iq·∫e_q ≥ 0 calls/s, where
//! e_q = q − q_T and q_T = T̄_q·r̃ is the queue length at which each call waits T̄_q. Here r̃ is
//! the rate at which calls enter the queue, through a low-pass filter of 0.4 s. (The paper prints
//! e_q = q_T − q. For a release rate this would be positive feedback. With the sign used here the
//! characteristic polynomial of the loop is s² + 20s + 130, so it is damped with ζ = 0.88.) If
//! calls are judged on arrival, the rejected share α does not enter the queue. If calls are judged
//! when they leave the queue, all of them enter it.
//!
//! *Processor loop*: the share α = K_pc·e_c + K_ic·∫e_c of the calls, within [0, 1], is rejected.
//! Here e_c = C̃ − C_T, and C̃ is the occupancy, sampled every T_m, through a filter of 0.1 s.
//!
//! Neither integral grows while its output is saturated. The integral of the queue loop stops while
//! the release is below 0, and while the processor takes less than is released. The integral of the
//! processor loop stops while α is above 1. While α is below 0, it continues down to 0. If it
//! stopped there too, it would keep the value that an overload left in it, and later reject calls
//! at a load below the target.
//!
//! With `adaptive = 1` the processor loop differs from the paper in two ways. First, in the paper
//! the gain of the loop is the change of C with α, which equals the offered load divided by the
//! capacity. So with cheap rejections the loop oscillates above about twice the capacity. Here the
//! gains are divided by this quotient, which is estimated as C̃·(arriving rate)/(rate taken from
//! the queue). Second, C cannot exceed 1. So all overloads look like the smallest one, and the
//! queue grows for seconds. Here the calls that may leave the queue but have not been taken yet
//! count as occupancy too: as the occupancy that is needed to serve them within half a second. With
//! `t_q = 0`, all calls in the queue may leave it. Messages in the receive buffer count in the same
//! way, according to their wait.
//!
//! The law trips when C̃ exceeds C_T. The law recovers by the same loop as soon as C̃ is below C_T.
//! Cold start: α and the integrals are 0, everything is admitted.
//!
//! Known bias: the paced release delays every call by T̄_q, also at low load. With `t_q = 0`, the
//! default, the queue is released whenever the processor has nothing more urgent. Near the target,
//! the law rejects a few calls that could have been served, because the occupancy fluctuates within
//! 0.1 s. It fluctuates more if the capacity is small.
//!
//! If rejections alone fill the processor (load times r/s above 1, see [`bound`](crate::bound)), C
//! stays above C_T for any α. Then α goes to 1 and no call completes.
//!
//! Source: paper 001 §3, §4.2.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::filter::LowPass;
use crate::signals::Reading;
use crate::{Allowance, Bucket, Control, Entry, Flow, Law, Param, Release, Signals, Values};

static CPU_TARGET: Param = Param::real("c_t", "fraction", 0.95, 0.05, 1.0)
    .doc("Target occupancy C_T. Paper 001 uses 0.8 and 0.9.");

static QUEUE_TIME: Param = Param::real("t_q", "s", 0.0, 0.0, 2.0).doc(
    "Target time T̄_q of a call in the queue. Paper 001 uses 0.05. 0: calls leave the queue \
     without pacing.",
);

static QUEUE_MAX: Param = Param::whole("queue_max", "calls", 800.0, 1, 1_000_000)
    .doc("The number of calls that may wait. Further calls are rejected.");

static K_PQ: Param = Param::real("k_pq", "1/s", 20.0, 0.0, 10_000.0)
    .doc("Proportional gain of the queue-time controller.");

static K_IQ: Param = Param::real("k_iq", "1/s²", 130.0, 0.0, 10_000.0)
    .doc("Integral gain of the queue-time controller.");

static K_PC: Param = Param::real("k_pc", "1", 5.0, 0.0, 10_000.0)
    .doc("Proportional gain of the occupancy controller.");

static K_IC: Param = Param::real("k_ic", "1/s", 5.0, 0.0, 10_000.0)
    .doc("Integral gain of the occupancy controller.");

static ADAPTIVE: Param = Param::whole("adaptive", "0 or 1", 1.0, 0, 1).doc(
    "1: the law divides `k_pc` and `k_ic` by the relative load (offered load divided by capacity). \
     It also counts work that waits for the processor as occupancy. 0: the law does neither, as in \
     paper 001.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "pi",
    summary: "controls the time in the queue and the occupancy of the processor, each by a PI \
              controller",
    source: "paper 001 §3",
    doc: "The first controller releases new calls from the queue so that each call waits for \
          `t_q`. The second controller rejects new work so that the occupancy of the processor \
          stays at `c_t`.",
    params: &[&CPU_TARGET, &QUEUE_TIME, &QUEUE_MAX, &K_PQ, &K_IQ, &K_PC, &K_IC, &ADAPTIVE],
    check: |values| {
        let released = values.of(&QUEUE_TIME) == 0.0 || values.of(&K_PQ) + values.of(&K_IQ) > 0.0;
        if released {
            Ok(())
        } else {
            Err("k_pq > 0 or k_iq > 0, or else t_q = 0: the queue is never released")
        }
    },
    build: |values| Box::new(Pi::new(values)),
};

/// T_m: the time between two samples of the occupancy.
const SAMPLE: Duration = Duration::from_millis(10);
/// T_c: the time between two steps of the control loops.
const CONTROL: Duration = Duration::from_millis(20);
/// τ: the time constant of the filter of rates, in seconds.
const RATE_FILTER_S: f64 = 0.4;
/// τ_c: the time constant of the filter of the occupancy, in seconds.
const PROCESSOR_FILTER_S: f64 = 0.1;
/// Maximum length of one step of the control loops. After a longer pause, this length counts.
const STEP_MAX: Duration = Duration::from_millis(100);
/// Maximum load, as a multiple of the capacity, to which the gains are adapted. Beyond this load
/// hardly any call is admitted, so the rate at which calls are taken from the queue is not a
/// measure of the load.
const LOAD_MAX: f64 = 16.0;
/// Time in seconds within which the server should serve the calls that may leave the queue but have
/// not been taken yet, and the messages in the receive buffer.
const BACKLOG_TIME_S: f64 = 0.5;
/// The law is at rest if fewer than [`REST_CPS`] calls/s arrive, less than the share [`REST`] is
/// rejected, and the occupancy is below half of its target.
const REST_CPS: f64 = 0.5;
const REST: f64 = 0.001;

#[derive(Debug)]
struct Pi {
    cpu_target: f64,
    queue_time_s: f64,
    queue_max: usize,
    queue_gains: (f64, f64),
    processor_gains: (f64, f64),
    adaptive: bool,

    /// Time of the last step of the control loops.
    stepped: Timestamp,
    counted: Counted,
    read: Reading,
    /// Smoothed rate of the calls that arrive, calls/s.
    arriving: LowPass,
    /// Smoothed rate of the calls that enter the queue, calls/s.
    entering: LowPass,
    /// Smoothed rate of the calls that are taken from the queue, calls/s.
    taken: LowPass,
    occupancy: LowPass,
    queue_integral: f64,
    processor_integral: f64,
    rejected: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    arrived: u64,
    entered: u64,
    taken: u64,
}

impl Counted {
    fn of(signals: &Signals) -> Self {
        let Flow { arrived, entered, taken, .. } = *signals.flow(Bucket::Session);
        Self { arrived, entered, taken }
    }
}

impl Pi {
    fn new(values: &Values) -> Self {
        Self {
            cpu_target: values.of(&CPU_TARGET),
            queue_time_s: values.of(&QUEUE_TIME),
            queue_max: values.of(&QUEUE_MAX) as usize,
            queue_gains: (values.of(&K_PQ), values.of(&K_IQ)),
            processor_gains: (values.of(&K_PC), values.of(&K_IC)),
            adaptive: values.of(&ADAPTIVE) == 1.0,
            stepped: Timestamp::ZERO,
            counted: Counted::default(),
            read: Reading::default(),
            arriving: LowPass::new(RATE_FILTER_S),
            entering: LowPass::new(RATE_FILTER_S),
            taken: LowPass::new(RATE_FILTER_S),
            occupancy: LowPass::new(PROCESSOR_FILTER_S),
            queue_integral: 0.0,
            processor_integral: 0.0,
            rejected: 0.0,
        }
    }

    fn sample_processor(&mut self, signals: &Signals) {
        let newest = signals.processor;
        if let Some(occupancy) = newest.occupancy_since(self.read) {
            self.occupancy.update(occupancy, newest.at.since(self.read.at));
            self.read = newest;
        }
    }

    fn measure_rates(&mut self, signals: &Signals, passed: Duration) {
        let flow = signals.flow(Bucket::Session);
        let then = self.counted;
        let rate = |now: u64, then: u64| (now - then) as f64 / passed.as_secs_f64();
        self.arriving.update(rate(flow.arrived, then.arrived), passed);
        self.entering.update(rate(flow.entered, then.entered), passed);
        self.taken.update(rate(flow.taken, then.taken), passed);
        self.counted = Counted::of(signals);
    }

    /// Returns the rate at which calls may leave the queue, in calls a second.
    fn release(&mut self, signals: &Signals, step_s: f64) -> f64 {
        let target = self.queue_time_s * self.entering.value();
        let error = signals.queue.waiting as f64 - target;
        let (proportional, integral) = self.queue_gains;
        let output = |sum: f64| proportional * error + integral * sum;
        let sum = self.queue_integral + error * step_s;
        let too_slow = error > 0.0 && signals.queue.credit >= 1.0;
        if !(too_slow || error < 0.0 && output(sum) < 0.0) {
            self.queue_integral = sum;
        }
        output(self.queue_integral).max(0.0)
    }

    /// Returns the share of calls to reject, 0 to 1.
    fn rejection(&mut self, signals: &Signals, step_s: f64) -> f64 {
        let mut error = self.occupancy.value() - self.cpu_target;
        let mut scale = 1.0;
        if self.adaptive {
            error += self.backlog(signals);
            scale = self.load();
        }
        let (proportional, integral) = self.processor_gains;
        // The integral is kept as a share, so that a change of scale does not move it.
        let share = self.processor_integral + integral / scale * error * step_s;
        let output = |share: f64| proportional / scale * error + share;
        if !(error > 0.0 && output(share) > 1.0) {
            self.processor_integral = share.max(0.0);
        }
        output(self.processor_integral).clamp(0.0, 1.0)
    }

    /// Returns the rate of arriving calls as a multiple of the capacity, at least 1. The capacity
    /// is the rate at which calls are taken from the queue, divided by the occupancy.
    fn load(&self) -> f64 {
        let load = self.occupancy.value() * self.arriving.value() / self.taken.value();
        if load.is_finite() { load.clamp(1.0, LOAD_MAX) } else { 1.0 }
    }

    /// Returns the additional occupancy that is needed to serve, within [`BACKLOG_TIME_S`], the
    /// calls that may leave the queue but have not been taken yet, and the messages in the receive
    /// buffer.
    fn backlog(&self, signals: &Signals) -> f64 {
        let left = match self.queue_time_s {
            0.0 => signals.queue.waiting as f64,
            // The pacer carries over a fraction of less than one piece.
            _ => (signals.queue.credit - 1.0).max(0.0).min(signals.queue.waiting as f64),
        };
        let service_s = self.occupancy.value() / self.taken.value();
        // Messages in the receive buffer cannot be counted, but the time that they waited shows
        // their number.
        let time_s = left * service_s + signals.queue.lag.unwrap_or_default().as_secs_f64();
        let occupancy = time_s / BACKLOG_TIME_S;
        if occupancy.is_finite() { occupancy.min(LOAD_MAX) } else { 0.0 }
    }
}

impl Law for Pi {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        self.stepped = now;
        self.read = signals.processor;
        self.counted = Counted::of(signals);
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.sample_processor(signals);
        let passed = now.since(self.stepped);
        if passed < CONTROL {
            return;
        }
        self.stepped = now;
        self.measure_rates(signals, passed);
        let step_s = passed.min(STEP_MAX).as_secs_f64();
        self.rejected = self.rejection(signals, step_s);
        control.admit_of_all(Allowance::Fraction(1.0 - self.rejected));
        control.queue.waiting_max = self.queue_max;
        if self.queue_time_s > 0.0 {
            control.queue.release = Release::Rate(self.release(signals, step_s));
        }
    }

    fn tick(&self) -> Option<Duration> {
        Some(SAMPLE)
    }

    fn occupancy_aimed_at(&self) -> Option<f64> {
        Some(self.cpu_target)
    }

    fn is_at_rest(&self) -> bool {
        self.rejected < REST
            && self.arriving.value() < REST_CPS
            && self.occupancy.value() < self.cpu_target / 2.0
    }
}

#[cfg(test)]
#[path = "pi_tests.rs"]
mod tests;
