//! The resources of a run: processor time and memory.

/// Returns the time that this process, which has one thread, has been on a processor.
pub fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}

/// Returns the peak memory of this process, proxies and agents together.
pub fn rss_peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
