//! The CPU time that running threads have used.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Shortest interval over which the use of a processor core is computed. The kernel updates the CPU
/// time of a running thread only at each tick, so the time that is read may be up to 10 ms too low.
const PART_MIN: Duration = Duration::from_secs(1);

/// Returns the CPU time of the thread whose folder in `/proc` is `task`, read from `schedstat`.
///
/// # Errors
/// Returns an error when the thread has ended.
pub(super) fn of_thread(task: &Path) -> io::Result<Duration> {
    let text = fs::read_to_string(task.join("schedstat"))?;
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Ok(Duration::from_nanos(ns.unwrap_or(0)))
}

/// The largest fraction of a processor core that one of several threads used in any interval of a
/// run. The mean over the whole run would be too low, because a run begins and ends without load.
#[derive(Clone, Debug, Default)]
pub struct Busiest {
    /// Start of the current interval, and the CPU time of each thread at that time.
    since: Option<(Duration, Vec<Duration>)>,
    load: f64,
}

impl Busiest {
    /// Records the CPU time that each thread has used until the time `at`. Does nothing if
    /// the current interval is shorter than [`PART_MIN`].
    pub fn record(&mut self, at: Duration, cpu: Vec<Duration>) {
        if let Some((since, before)) = &self.since {
            let part = at.saturating_sub(*since);
            if part < PART_MIN {
                return;
            }
            let used = before.iter().zip(&cpu).map(|(before, now)| now.saturating_sub(*before));
            let most = used.max().unwrap_or_default();
            self.load = self.load.max(most.as_secs_f64() / part.as_secs_f64());
        }
        self.since = Some((at, cpu));
    }

    /// Returns the largest fraction of a processor core that a thread used in an interval, 0 to 1.
    pub fn load(&self) -> f64 {
        self.load
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Two threads, one of which is idle. The other one is busy half of the time, and from 2 s to
    /// 3 s all the time.
    #[test]
    fn the_busiest_part_of_the_busiest_thread_counts() {
        let mut busiest = Busiest::default();
        let cpu = |at: u64| at / 2 + (at.clamp(2000, 3000) - 2000) / 2;
        for at in (0..=5000).step_by(250) {
            busiest.record(ms(at), vec![ms(0), ms(cpu(at))]);
        }
        assert!((busiest.load() - 1.0).abs() < 1e-9, "{}", busiest.load());
    }

    /// Within the length of a tick, a thread would seem busy or idle by chance.
    #[test]
    fn a_short_part_is_not_judged() {
        let mut busiest = Busiest::default();
        for (at, cpu) in [(0, 0), (250, 250), (1000, 400), (1500, 900)] {
            busiest.record(ms(at), vec![ms(cpu)]);
        }
        assert!((busiest.load() - 0.4).abs() < 1e-9, "{}", busiest.load());
    }

    #[test]
    fn the_cpu_time_of_a_thread_grows_while_it_works() {
        let task = Path::new("/proc/thread-self");
        let (before, began) = (of_thread(task).unwrap(), Instant::now());
        while of_thread(task).unwrap() == before {
            assert!(began.elapsed() < ms(10_000), "it is still {before:?}");
        }
    }
}
