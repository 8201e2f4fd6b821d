//! Metrics of the process as the kernel sees it, with the usual names of Prometheus.

use std::fs;

use crate::metrics::{Family, Samples, Unit};

/// USER_HZ, the number of clock ticks in a second in proc(5): 100 on every architecture that Linux
/// runs on today.
const TICKS: f64 = 100.0;

static CPU: Family =
    Family::counter("cpu", "CPU time used by the process, user and system").in_unit(Unit::Seconds);
static RESIDENT: Family =
    Family::gauge("resident_memory", "Resident memory of the process").in_unit(Unit::Bytes);
static OPEN_FDS: Family = Family::gauge("open_fds", "Open file descriptors");
static MAX_FDS: Family = Family::gauge("max_fds", "Limit of open file descriptors");
static START: Family =
    Family::gauge("start_time", "Start time of the process, since the Unix epoch")
        .in_unit(Unit::Seconds);

/// Adds the metrics of the process that can be read.
pub(crate) fn add(samples: &mut Samples) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some((cpu, started)) = times_of(&stat) {
        samples.push(&CPU, &[], cpu);
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_of(&text));
        if let Some(boot) = boot {
            samples.push(&START, &[], boot + started);
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(kib) = number_after(&status, "VmRSS:") {
        samples.push(&RESIDENT, &[], kib * 1024);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        samples.push(&OPEN_FDS, &[], open.count() as u64);
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(most) = number_after(&limits, "Max open files") {
        samples.push(&MAX_FDS, &[], most);
    }
}

/// Returns the seconds of processor time, and the start in seconds after the boot, from
/// `/proc/self/stat`.
fn times_of(stat: &str) -> Option<(f64, f64)> {
    // The second field is a name in brackets, which may itself contain spaces and brackets.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks = |field: usize| rest.split(' ').nth(field - 3)?.parse::<f64>().ok();
    Some(((ticks(14)? + ticks(15)?) / TICKS, ticks(22)? / TICKS))
}

/// Returns the time of the boot in seconds since the epoch, from `/proc/stat`.
fn boot_of(stat: &str) -> Option<f64> {
    number_after(stat, "btime").map(|seconds| seconds as f64)
}

/// Returns the first number in the line with this name.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_after_a_process_name_with_brackets() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 1 2 3 4 150 50 6 7 20 0 1 0 12345 8 9\n";
        assert_eq!(times_of(stat), Some((2.0, 123.45)));
        assert_eq!(times_of("7 (a"), None);
        assert_eq!(boot_of("cpu 1\nbtime 1700000000\n"), Some(1.7e9));
        assert_eq!(
            number_after("Max open files            1024    4096  files\n", "Max open files"),
            Some(1024)
        );
    }

    #[test]
    fn this_process_can_be_read() {
        let mut metrics = crate::metrics::Metrics::new();
        metrics.add_process(add);
        let text = metrics.render();
        for name in [
            "cpu_seconds_total",
            "resident_memory_bytes",
            "open_fds",
            "max_fds",
            "start_time_seconds",
        ] {
            let line = text.lines().find(|line| line.starts_with(&format!("process_{name} ")));
            assert!(line.is_some(), "{name} in\n{text}");
        }
        assert_eq!(text.matches("# EOF").count(), 1);
    }
}
