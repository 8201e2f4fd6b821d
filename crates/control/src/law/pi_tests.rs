use super::*;
use crate::QueueControl;

const MS: Duration = Duration::from_millis(1);

/// A bench: the law on a processor and a queue that are set by hand, ticking every 10 ms.
struct Bench {
    law: Box<dyn Law>,
    signals: Signals,
    control: Control,
    now: Timestamp,
    /// Occupancy of the processor, and the rates that arrive, enter and are taken, in calls/s.
    occupancy: f64,
    rates: [f64; 3],
    carried: [f64; 3],
}

impl Bench {
    fn new(given: &[(&str, f64)]) -> Self {
        Self {
            law: (ENTRY.build)(&ENTRY.values(given).unwrap()),
            signals: Signals::default(),
            control: Control::OPEN,
            now: Timestamp::ZERO,
            occupancy: 0.0,
            rates: [0.0; 3],
            carried: [0.0; 3],
        }
    }

    /// Creates the paper's law.
    fn paper(given: &[(&str, f64)]) -> Self {
        let paper = [("adaptive", 0.0), ("c_t", 0.8)];
        Self::new(&[&paper, given].concat())
    }

    /// Runs one tick after `passed`.
    fn tick_after(&mut self, passed: Duration) {
        self.now = self.now + passed;
        let Reading { occupied, .. } = self.signals.processor;
        let occupied = occupied + passed.mul_f64(self.occupancy);
        self.signals.processor = Reading { at: self.now, occupied };
        let flow = self.signals.flow_mut(Bucket::Session);
        for ((count, rate), carried) in [&mut flow.arrived, &mut flow.entered, &mut flow.taken]
            .into_iter()
            .zip(self.rates)
            .zip(&mut self.carried)
        {
            *carried += rate * passed.as_secs_f64();
            *count += *carried as u64;
            *carried = carried.fract();
        }
        self.law.on_tick(self.now, &self.signals, &mut self.control);
    }

    /// Runs ticks for the given time.
    fn run(&mut self, ms: u32) -> &mut Self {
        for _ in 0..ms / 10 {
            self.tick_after(SAMPLE);
        }
        self
    }

    fn occupied(&mut self, occupancy: f64) -> &mut Self {
        self.occupancy = occupancy;
        self
    }

    /// Returns the share α of calls that is rejected.
    fn rejected(&self) -> f64 {
        1.0 - self.control.admit(Bucket::Session).fraction(0.0)
    }

    /// Returns the release u of the queue, calls/s.
    fn release(&self) -> f64 {
        match self.control.queue.release {
            Release::Rate(rate) => rate,
            Release::Open => panic!("it is not paced"),
        }
    }
}

/// Computes paper 001 §3 in continuous time. Returns α at the time `t` after the occupancy of an
/// unloaded server rose from 0 to `occupancy`, as long as no upper limit is reached. C̃ = C·(1 −
/// e^(−t/τ)). The integral starts where C̃ crosses the target.
fn closed_form(occupancy: f64, target: f64, gains: (f64, f64), t: f64) -> f64 {
    let filtered = |t: f64| occupancy * (1.0 - (-t / PROCESSOR_FILTER_S).exp());
    let crossing = -PROCESSOR_FILTER_S * (1.0 - target / occupancy).ln();
    if t <= crossing {
        return 0.0;
    }
    let integral = (occupancy - target) * (t - crossing)
        - occupancy
            * PROCESSOR_FILTER_S
            * ((-crossing / PROCESSOR_FILTER_S).exp() - (-t / PROCESSOR_FILTER_S).exp());
    gains.0 * (filtered(t) - target) + gains.1 * integral
}

#[test]
fn the_processor_loop_answers_a_step_as_in_the_closed_form() {
    for (occupancy, gains) in [(0.85, (5.0, 5.0)), (0.95, (1.0, 2.0)), (0.9, (0.0, 5.0))] {
        let mut bench = Bench::paper(&[("k_pc", gains.0), ("k_ic", gains.1)]);
        bench.occupied(occupancy);
        let mut beyond = 0;
        for step in 1..60 {
            bench.run(20);
            let exact = closed_form(occupancy, 0.8, gains, f64::from(step) * 0.02);
            // The sum of steps of 20 ms is at most half a step ahead of the integral.
            let tolerance = 1e-9 + gains.1 * 0.02 * (occupancy - 0.8);
            let rejected = bench.rejected();
            assert!((rejected - exact).abs() <= tolerance, "step {step}: {rejected}, not {exact}");
            beyond += u32::from(rejected > 0.1);
        }
        assert!(beyond > 5, "it was not at 0 all the time");
    }
}

#[test]
fn the_share_rejected_rises_above_the_target_and_falls_below() {
    let mut bench = Bench::paper(&[]);
    let above = bench.occupied(0.9).run(500).rejected();
    assert!(bench.run(100).rejected() > above && above > 0.3);
    let before = bench.rejected();
    assert!(bench.occupied(0.75).run(100).rejected() < before);
    assert_eq!(bench.run(5000).rejected(), 0.0);
    assert_eq!(bench.control.admit(Bucket::Single), Allowance::Fraction(1.0));
}

#[test]
fn the_loops_are_closed_every_20_ms() {
    let mut bench = Bench::paper(&[("t_q", 0.05)]);
    bench.occupied(1.0).run(300);
    let mut values = Vec::new();
    for _ in 0..6 {
        bench.tick_after(SAMPLE);
        values.push(bench.rejected());
    }
    assert_eq!((values[0], values[2], values[4]), (values[0], values[1], values[3]));
    assert!(values[1] < values[3] && values[3] < values[5], "{values:?}");
}

// Whatever was rejected before, the share falls as soon as the occupancy falls.
#[test]
fn a_long_overload_does_not_wind_the_processor_loop_up() {
    for overload_ms in [1_000, 100_000] {
        let mut bench = Bench::paper(&[]);
        assert_eq!(bench.occupied(1.0).run(overload_ms).rejected(), 1.0);
        let mut ms = 0;
        bench.occupied(0.6);
        while bench.rejected() > 0.0 {
            ms += 20;
            bench.run(20);
        }
        // C̃ crosses the target after 70 ms, and 0.6 is 0.2 below: 5·0.2 balances the integral.
        assert!((100..=300).contains(&ms), "after {overload_ms} ms: {ms} ms");
    }
}

// If the integral of an overload were kept over a quiet time, the law would reject calls as soon as
// the load comes near the target.
#[test]
fn an_overload_is_forgotten_in_a_quiet_second() {
    let mut bench = Bench::paper(&[]);
    assert_eq!(bench.occupied(1.0).run(10_000).rejected(), 1.0);
    assert_eq!(bench.occupied(0.4).run(1_000).rejected(), 0.0);
    assert_eq!(bench.occupied(0.79).run(3_000).rejected(), 0.0);
}

// In the same way, a quiet time does not keep the loop from acting in an overload.
#[test]
fn a_quiet_time_does_not_wind_the_processor_loop_down() {
    let mut fresh = Bench::paper(&[]);
    let mut rested = Bench::paper(&[]);
    rested.occupied(0.1).run(60_000);
    let first = fresh.occupied(1.0).run(400).rejected();
    let later = rested.occupied(1.0).run(400).rejected();
    assert!(first > 0.9 && later >= first, "{later} after {first}");
}

// 001 §3: u = K_pq·e_q + K_iq·∫e_q. With e_q held at 30 calls that is 600 + 3900·t.
#[test]
fn a_queue_above_its_target_is_released_ever_faster() {
    let mut bench = Bench::paper(&[("t_q", 0.05)]);
    bench.signals.queue.waiting = 30;
    for step in 1..=20 {
        bench.run(20);
        let exact = 20.0 * 30.0 + 130.0 * 30.0 * 0.02 * f64::from(step);
        assert!((bench.release() - exact).abs() < 1e-6, "{} at {step}", bench.release());
    }
    assert_eq!(bench.control.queue.waiting_max, 800);
}

// q_T = T̄_q·r̃, where r̃ is the rate at which calls enter, filtered with 0.4 s.
#[test]
fn the_target_of_the_queue_follows_the_rate_at_which_calls_enter() {
    let mut bench = Bench::paper(&[("t_q", 0.05), ("k_iq", 0.0)]);
    bench.rates = [1000.0, 200.0, 0.0];
    bench.signals.queue.waiting = 100;
    for (ms, share) in [(400, 0.632), (400, 0.865), (4_000, 1.0)] {
        let target = 0.05 * 200.0 * share;
        let exact = 20.0 * (100.0 - target);
        assert!((bench.run(ms).release() - exact).abs() < 1.0, "{} at {share}", bench.release());
    }
    bench.signals.queue.waiting = 9;
    assert_eq!(bench.run(20).release(), 0.0, "below its target it is not released");
}

#[test]
fn a_short_queue_does_not_wind_the_queue_loop_down() {
    let mut bench = Bench::paper(&[("t_q", 0.05)]);
    bench.rates[1] = 1000.0;
    // Fifty may wait. None does.
    assert_eq!(bench.run(60_000).release(), 0.0);
    bench.signals.queue.waiting = 60;
    let first = bench.run(20).release();
    assert!(first > 200.0, "{first}");
}

// The integral stands still while the processor takes less than is released to it.
#[test]
fn a_slow_processor_does_not_wind_the_queue_loop_up() {
    let mut bench = Bench::paper(&[("t_q", 0.05)]);
    bench.signals.queue.waiting = 30;
    bench.signals.queue.credit = 1.0;
    assert_eq!(bench.run(10_000).release(), 600.0);
    bench.signals.queue.credit = 0.99;
    assert!((bench.run(20).release() - 678.0).abs() < 1e-6);
}

#[test]
fn a_call_that_waits_is_released_though_nothing_arrives() {
    let mut bench = Bench::paper(&[("t_q", 0.05), ("k_pq", 0.0)]);
    bench.rates[1] = 500.0;
    bench.run(5_000);
    bench.rates[1] = 0.0;
    bench.signals.queue.waiting = 1;
    let mut released = 0.0;
    for _ in 0..500 {
        released += bench.run(10).release() * 0.01;
    }
    assert!(released > 1.0, "{released} in 5 s");
}

#[test]
fn without_a_time_in_the_queue_its_release_is_left_open() {
    let mut bench = Bench::paper(&[]);
    bench.signals.queue.waiting = 30;
    bench.run(100);
    assert_eq!(bench.control.queue, QueueControl { waiting_max: 800, ..Control::OPEN.queue });
}

/// Creates the adaptive law at a full processor, with these rates of calls that arrive and that are
/// taken.
fn adaptive(arriving: f64, taken: f64, given: &[(&str, f64)]) -> Bench {
    let mut bench = Bench::new(&[&[("c_t", 0.8)], given].concat());
    bench.rates = [arriving, taken, taken];
    bench.occupied(1.0);
    bench
}

#[test]
fn the_gains_are_divided_by_the_load_as_a_multiple_of_the_capacity() {
    // 1000 arrive, and a quarter of them is taken and fills the processor: load 4.
    let mut bench = adaptive(1000.0, 250.0, &[("k_ic", 0.0)]);
    assert!((bench.run(10_000).rejected() - 5.0 / 4.0 * 0.2).abs() < 1e-3);
    // A load below 1 leaves the gains as they are.
    let mut bench = adaptive(100.0, 250.0, &[("k_ic", 0.0)]);
    assert!((bench.run(10_000).rejected() - 1.0).abs() < 1e-3);
    // If hardly any call is taken, the load is unknown and counts as 16.
    let mut bench = adaptive(10_000.0, 1.0, &[("k_ic", 0.0)]);
    assert!((bench.run(10_000).rejected() - 5.0 / 16.0 * 0.2).abs() < 1e-3);
    // The gain of the integral is divided too: 5/4·0.2 a second.
    let mut bench = adaptive(1000.0, 250.0, &[("k_pc", 0.0)]);
    let before = bench.run(2_000).rejected();
    assert!((bench.run(1_000).rejected() - before - 0.25).abs() < 2e-3);
}

#[test]
fn at_a_cold_start_nothing_is_known_of_the_load() {
    let mut bench = adaptive(1000.0, 0.0, &[]);
    let rejected = bench.run(10_000).rejected();
    assert_eq!(rejected, 1.0);
    let mut idle = adaptive(0.0, 0.0, &[]);
    assert_eq!(idle.occupied(0.0).run(1_000).rejected(), 0.0);
}

// 50 calls wait, and the processor takes 250 a second when it is full. To take them within half a
// second needs 0.4 of it.
#[test]
fn work_that_waits_counts_as_occupancy() {
    let mut bench = adaptive(250.0, 250.0, &[("k_pc", 1.0), ("k_ic", 0.0)]);
    bench.signals.queue.waiting = 50;
    assert!((bench.run(10_000).rejected() - 0.6).abs() < 2e-3);
    bench.signals.queue.waiting = 0;
    assert!((bench.run(20).rejected() - 0.2).abs() < 2e-3);
}

// If the queue is paced, only work that was released and not taken is late.
#[test]
fn work_that_is_held_back_does_not_count_as_occupancy() {
    let mut bench = adaptive(250.0, 250.0, &[("k_pc", 1.0), ("k_ic", 0.0), ("t_q", 0.05)]);
    bench.signals.queue.waiting = 50;
    for (credit, rejected) in [(0.0, 0.2), (1.0, 0.2), (26.0, 0.4), (500.0, 0.6), (-9.0, 0.2)] {
        bench.signals.queue.credit = credit;
        assert!((bench.run(10_000).rejected() - rejected).abs() < 2e-3, "{credit}");
    }
}

#[test]
fn no_signal_brings_a_share_beyond_its_bounds() {
    for adaptive in [0.0, 1.0] {
        for t_q in [0.0, 0.05] {
            let mut bench = Bench::new(&[("adaptive", adaptive), ("t_q", t_q), ("k_pc", 10_000.0)]);
            for k in 0..200u32 {
                bench.occupancy = f64::from(k % 2);
                bench.signals.queue.waiting = [0, 1_000_000, 3][k as usize % 3];
                bench.signals.queue.credit = [0.0, -1e9, 1e9][k as usize / 3 % 3];
                bench.rates = [[0.0, 1e7, 1.0][k as usize / 9 % 3]; 3];
                bench.tick_after(MS * [10, 20, 1, 0, 3_600_000][k as usize % 5]);
                let rejected = bench.rejected();
                assert!((0.0..=1.0).contains(&rejected), "{rejected}");
                if t_q > 0.0 && bench.control != Control::OPEN {
                    let release = bench.release();
                    assert!(release >= 0.0 && release.is_finite(), "{release}");
                }
            }
        }
    }
}

// An hour without ticks does not count as an hour of error.
#[test]
fn a_rest_is_not_integrated() {
    let mut bench = Bench::paper(&[("t_q", 0.05), ("k_pq", 0.0)]);
    bench.signals.queue.waiting = 10;
    bench.tick_after(Duration::from_secs(3600));
    assert!((bench.release() - 130.0 * 10.0 * 0.1).abs() < 1e-6, "{}", bench.release());
}

#[test]
fn it_rests_when_nothing_arrives_nothing_is_rejected_and_the_processor_is_idle() {
    let mut bench = Bench::paper(&[]);
    assert!(bench.law.is_at_rest());
    assert_eq!(bench.law.tick(), Some(SAMPLE));
    bench.rates[0] = 100.0;
    assert!(!bench.run(100).law.is_at_rest(), "calls arrive");
    bench.rates[0] = 0.0;
    assert!(bench.run(4_000).law.is_at_rest());
    bench.occupied(0.5).run(1_000);
    assert!(!bench.law.is_at_rest(), "the processor is at half the target or more");
    // Without a proportional part, a share is still rejected when the occupancy is low again.
    let mut bench = Bench::paper(&[("k_pc", 0.0)]);
    bench.occupied(0.9).run(1_000);
    bench.occupied(0.0).run(100);
    assert!(bench.rejected() > REST && !bench.law.is_at_rest(), "calls are rejected");
    assert!(bench.run(1_000).law.is_at_rest());
}

#[test]
fn settings_that_would_block_the_queue_are_rejected() {
    let wrong = |given: &[(&str, f64)]| ENTRY.values(given).unwrap_err().to_string();
    let held = [("t_q", 0.05), ("k_pq", 0.0), ("k_iq", 0.0)];
    assert!(wrong(&held).contains("the queue is never released"));
    for fine in [&held[1..], &held[..2], &[held[0], held[2]]] {
        assert!(ENTRY.values(fine).is_ok());
    }
}

/// Messages in a receive buffer cannot be counted. Their wait shows how many they are. They count
/// as the occupancy that is needed to process them within half a second.
#[test]
fn the_receive_buffer_counts_as_occupancy() {
    let share = |adaptive: f64, lag_ms: u32| {
        // Only the proportional part has an effect here: the share is the error.
        let mut bench =
            Bench::new(&[("adaptive", adaptive), ("c_t", 0.8), ("k_pc", 1.0), ("k_ic", 0.0)]);
        bench.rates = [100.0; 3];
        bench.signals.queue.lag = Some(MS * lag_ms);
        bench.occupied(1.0).run(10_000).rejected()
    };
    assert!((share(1.0, 0) - 0.2).abs() < 1e-3);
    assert!((share(1.0, 150) - 0.5).abs() < 1e-3);
    assert!((share(0.0, 150) - 0.2).abs() < 1e-3, "the paper knows nothing of it");
}
