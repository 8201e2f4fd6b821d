//! Measures the error of the occupancy that a law sees, for each window and each resolution of the
//! clock.
//!
//! A thread serves packets that arrive by a Poisson process. Each packet takes the same CPU time.
//! At the end of every packet, the wall clock and the thread's CPU clock are read in ns. The
//! readings of a coarse clock are derived from these readings. Such a clock counts CPU time in
//! whole jiffies, like /proc/PID/stat, which the server of paper 000 used. The law computes the
//! occupancy over a window of its last `k` measurements, with `measure` packets between two of
//! them. So the window has (`k` − 1) · `measure` packets (paper 000 §4.1.1).

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_world::{Purpose, Seed};

use crate::measure::thread_ns;

/// CPU time of a packet. With [`INTERVAL`] as the mean interval between packets, the occupancy is
/// 0.7 at 3,333 packets/s. In a mean interval, a clock with jiffies of 10 ms counts either nothing
/// or a whole jiffy. So the occupancy that this clock shows is 0 or 3,333 %.
const PACKET: Duration = Duration::from_micros(210);
const INTERVAL: Duration = Duration::from_micros(300);

/// Resolutions of the clocks: a jiffy of a kernel with 100 jiffies a second, a jiffy of a kernel
/// with 250 jiffies a second, and an exact clock.
const GRAINS: [(&str, u64); 3] = [("10 ms", 10_000_000), ("4 ms", 4_000_000), ("1 ns", 1)];

/// The values of `k` and `measure` for each window. The first pair is that of the first attempt in
/// paper 000, and the last pair is that of the experiments in the paper.
const WINDOWS: [(usize, usize); 6] = [(2, 1), (2, 10), (2, 125), (25, 1), (25, 10), (25, 125)];

/// The parameters of [`measure`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Number of packets that the thread serves.
    pub packets: u32,
    /// Seed of the packets' arrivals.
    pub seed: u64,
}

/// The occupancy of a thread, as several clocks show it.
#[derive(Clone, Debug, Serialize)]
pub struct Readings {
    /// Occupancy of the thread during the whole measurement, 0 to 1, by clocks with a resolution of
    /// 1 ns.
    pub occupancy: f64,
    /// The intended occupancy: the CPU time of a packet divided by the mean interval between
    /// packets.
    pub intended: f64,
    /// Number of packets that the thread served.
    pub packets: usize,
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
    /// One row for each clock and each window that the packets fill.
    pub rows: Vec<Row>,
}

/// The occupancies that one clock shows in windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Resolution of the clock.
    pub clock: &'static str,
    /// Number of measurements in the window.
    pub k: usize,
    /// Number of packets between two measurements.
    pub measure: usize,
    /// Number of readings of the occupancy.
    pub readings: usize,
    /// Number of readings that are 0, divided by the number of all readings.
    pub zero: f64,
    /// Number of readings above 1.01, divided by the number of all readings. No thread can have
    /// such an occupancy.
    pub above_one: f64,
    /// The largest reading of the occupancy.
    pub max: f64,
    /// The mean of all readings of the occupancy.
    pub mean: f64,
    /// Root mean square of the differences between the readings and the occupancy of the whole
    /// measurement. The load itself varies during the measurement, so even a clock with a
    /// resolution of 1 ns has such an error.
    pub error: f64,
    /// Root mean square of the differences between the readings and those of a clock with a
    /// resolution of 1 ns in the same windows. This value shows the effect of the clock's
    /// resolution alone.
    pub of_grain: f64,
}

/// The readings of both clocks at the end of a packet, in ns since the start of the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    wall: u64,
    cpu: u64,
}

/// Runs the thread that serves packets, and returns the readings of its clocks.
///
/// # Errors
/// Returns an error when the thread cannot be created.
pub fn measure(parameters: &Parameters) -> Result<Readings, String> {
    let parameters = *parameters;
    let thread =
        thread::Builder::new().name("packets".to_owned()).spawn(move || serve(&parameters));
    let moments = thread.map_err(|error| error.to_string())?.join();
    let moments = moments.map_err(|_| "the thread of packets panicked".to_owned())?;
    Ok(of(&moments))
}

fn serve(parameters: &Parameters) -> Vec<Moment> {
    let mut arrivals = Seed(parameters.seed).stream(Purpose::Arrivals, 0);
    let mut moments = Vec::with_capacity(parameters.packets as usize + 1);
    let (began, from) = (Instant::now(), thread_ns());
    let mut due = Duration::ZERO;
    moments.push(Moment::default());
    for _ in 0..parameters.packets {
        due += INTERVAL.mul_f64(arrivals.exponential(1.0));
        if let Some(wait) = due.checked_sub(began.elapsed()) {
            thread::sleep(wait);
        }
        let until = thread_ns() + PACKET.as_nanos() as u64;
        let mut cpu = thread_ns();
        while cpu < until {
            cpu = thread_ns();
        }
        moments.push(Moment { wall: began.elapsed().as_nanos() as u64, cpu: cpu - from });
    }
    moments
}

fn of(moments: &[Moment]) -> Readings {
    let last = moments.last().copied().unwrap_or_default();
    let occupancy = last.cpu as f64 / last.wall.max(1) as f64;
    let rows = GRAINS.iter().flat_map(|&(clock, grain)| {
        WINDOWS.iter().filter_map(move |&(k, measure)| {
            let [seen, exact] = [grain, 1].map(|grain| readings(moments, grain, k, measure));
            (!seen.is_empty()).then(|| row(clock, (k, measure), &seen, &exact, occupancy))
        })
    });
    Readings {
        occupancy,
        intended: PACKET.as_secs_f64() / INTERVAL.as_secs_f64(),
        packets: moments.len() - 1,
        seconds: last.wall as f64 / 1e9,
        rows: rows.collect(),
    }
}

/// Returns the occupancy at each measurement (paper 000 §3.1, equation 1), according to a clock
/// that counts CPU time in units of `grain` ns.
fn readings(moments: &[Moment], grain: u64, k: usize, measure: usize) -> Vec<f64> {
    let window = (k - 1) * measure;
    let ends = (window..moments.len()).step_by(measure);
    let whole = |cpu: u64| cpu / grain * grain;
    let reading = |end: usize| {
        let (old, new) = (moments[end - window], moments[end]);
        (whole(new.cpu) - whole(old.cpu)) as f64 / (new.wall - old.wall).max(1) as f64
    };
    ends.map(reading).collect()
}

fn row(
    clock: &'static str,
    (k, measure): (usize, usize),
    seen: &[f64],
    exact: &[f64],
    truth: f64,
) -> Row {
    let count = seen.len() as f64;
    let part = |is: fn(&f64) -> bool| seen.iter().filter(|seen| is(seen)).count() as f64 / count;
    let root = |squares: f64| (squares / count).sqrt();
    Row {
        clock,
        k,
        measure,
        readings: seen.len(),
        zero: part(|seen| *seen == 0.0),
        // The CPU clock and the wall clock are not read at the same instant, so slightly more than
        // 1 is possible.
        above_one: part(|seen| *seen > 1.01),
        max: seen.iter().copied().fold(0.0, f64::max),
        mean: seen.iter().sum::<f64>() / count,
        error: root(seen.iter().map(|seen| (seen - truth).powi(2)).sum()),
        of_grain: root(seen.iter().zip(exact).map(|(seen, exact)| (seen - exact).powi(2)).sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the moments of packets that come every 300 µs and take 210 µs each.
    fn regular(packets: u64) -> Vec<Moment> {
        (0..=packets).map(|n| Moment { wall: n * 300_000, cpu: n * 210_000 }).collect()
    }

    fn find<'a>(of: &'a Readings, clock: &str, k: usize, measure: usize) -> &'a Row {
        let is = |row: &&Row| (row.clock, row.k, row.measure) == (clock, k, measure);
        of.rows.iter().find(is).unwrap()
    }

    // Paper 000 §4.1.1: "most processor occupancy readings were 0% and a few were in the 3000% to
    // 4000% range".
    #[test]
    fn a_jiffy_in_one_interval_is_thousands_of_percent() {
        let of = of(&regular(10_000));
        assert!((of.occupancy - 0.7).abs() < 1e-9);
        let coarse = find(&of, "10 ms", 2, 1);
        // In 210 of 10,000 intervals, the clock moves on by a jiffy.
        assert!((coarse.zero - 0.979).abs() < 1e-3 && (coarse.above_one - 0.021).abs() < 1e-3);
        assert!((coarse.max - 10.0 / 0.3).abs() < 1e-9 && (coarse.mean - 0.7).abs() < 1e-9);
        let finer = find(&of, "4 ms", 2, 1);
        assert!((finer.max - 4.0 / 0.3).abs() < 1e-9);
        let exact = find(&of, "1 ns", 2, 1);
        assert_eq!((exact.zero, exact.above_one), (0.0, 0.0));
        assert!(exact.error < 1e-9 && exact.of_grain == 0.0);
        // The load of this thread does not vary, so the whole error comes from the clock.
        assert!((coarse.of_grain - coarse.error).abs() < 1e-9);
    }

    #[test]
    fn the_error_falls_with_the_window() {
        let of = of(&regular(10_000));
        let error = |k, measure| find(&of, "10 ms", k, measure).error;
        assert!(error(2, 1) > error(2, 10) && error(2, 10) > error(2, 125));
        // 24 · 125 packets take 0.9 s, and a jiffy of 10 ms is a ninetieth of that time.
        assert!(error(25, 125) < 0.0112);
        assert_eq!(find(&of, "1 ns", 25, 125).readings, (10_000 - 3000) / 125 + 1);
    }

    #[test]
    fn windows_that_the_packets_do_not_fill_are_left_out() {
        let of = of(&regular(100));
        assert!(of.rows.iter().all(|row| (row.k - 1) * row.measure <= 100));
        assert_eq!(of.rows.len(), 3 * 3);
    }

    #[test]
    fn the_occupancy_of_a_thread_is_measured_beside_the_intended_one() {
        let of = measure(&Parameters { packets: 300, seed: 1 }).unwrap();
        assert_eq!(of.packets, 300);
        // Other processes can only reduce the occupancy. The random arrivals may increase it.
        assert!(of.occupancy > 0.0 && of.occupancy <= 1.0, "{}", of.occupancy);
        assert!((of.intended - 0.7).abs() < 1e-12);
    }
}
