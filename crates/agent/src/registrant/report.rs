//! A registrant's figures as a table and as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::config::RegistrantConfig;
use super::stats::RegistrantStats;
use crate::usage::Usage;

/// The delay that 1 % of the registrations must exceed for the generator to count as too slow.
const LATENESS_MAX: Duration = Duration::from_millis(5);

/// The results of a run. [`Display`](fmt::Display) formats them as a table, and [`Serialize`] as
/// JSON.
#[derive(Clone, Debug, Serialize)]
pub struct RegistrantReport {
    /// Requested rate in registrations/s while the factor of the profile is 1.
    pub asked_per_s: f64,
    /// Rate in registrations/s at which registrations were started.
    pub begun_per_s: f64,
    /// Registrations/s answered in time.
    pub registered_in_time_per_s: f64,
    /// Number of users.
    pub users: u32,
    /// The deadline of a registration, in seconds.
    pub deadline_s: f64,
    /// Interval of keep-alives in seconds, or `None` without keep-alives.
    pub keep_alive_s: Option<f64>,
    /// Length of the warm-up, in seconds.
    pub warm_up_s: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Counts of the registrant.
    pub stats: RegistrantStats,
    /// Resources that the run used.
    pub usage: Usage,
    /// CPU time per started registration, in µs.
    pub cpu_us_each: f64,
    /// Whether the generator was too slow to offer the load: 1 % of the registrations began more
    /// than 5 ms late.
    pub too_slow: bool,
}

impl RegistrantReport {
    /// Creates the report on a run by `config`.
    pub fn new(config: &RegistrantConfig, seed: u64, stats: RegistrantStats, usage: Usage) -> Self {
        let per_second = |count: u64, until: Duration| {
            if until.is_zero() { 0.0 } else { count as f64 / until.as_secs_f64() }
        };
        Self {
            asked_per_s: config.load.rate_cps,
            begun_per_s: per_second(stats.begun, stats.last_begun.since(stats.start)),
            registered_in_time_per_s: per_second(
                stats.registered_in_time,
                stats.last_intended.since(stats.start),
            ),
            users: config.users,
            deadline_s: config.deadline.as_secs_f64(),
            keep_alive_s: config.keep_alive.map(|interval| interval.as_secs_f64()),
            warm_up_s: config.warm_up.as_secs_f64(),
            seed,
            cpu_us_each: usage.cpu_s * 1e6 / stats.begun.max(1) as f64,
            too_slow: stats.lateness.quantile(0.99) > LATENESS_MAX,
            stats,
            usage,
        }
    }

    /// Returns whether registrations were offered and all of them were answered with 2xx.
    pub fn is_perfect(&self) -> bool {
        self.stats.offered > 0 && self.stats.registered == self.stats.offered
    }
}

impl fmt::Display for RegistrantReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let Usage { cpu_s, wall_s, socket_drops, send_drops, streams } = self.usage;
        let mut row = |name: &str, value: fmt::Arguments<'_>| writeln!(f, "{name:<16}{value}");
        row(
            "offered",
            format_args!(
                "{} registrations of {} users (asked {:.1}/s), begun {} at {:.1}/s",
                stats.offered, self.users, self.asked_per_s, stats.begun, self.begun_per_s
            ),
        )?;
        if stats.not_begun > 0 {
            row(
                "not begun",
                format_args!(
                    "{}: the user's previous registration, or too many others, still waited",
                    stats.not_begun
                ),
            )?;
        }
        row(
            "registered",
            format_args!(
                "{}, {} within {:.3} s: {:.1}/s",
                stats.registered,
                stats.registered_in_time,
                self.deadline_s,
                self.registered_in_time_per_s
            ),
        )?;
        row("failed", format_args!("{} ({})", stats.failed.total(), stats.failed))?;
        row("sent again", format_args!("{}", stats.repeated))?;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let mut delays = vec![("response time", &stats.delay)];
        if self.warm_up_s > 0.0 {
            delays.push(("after warm-up", &stats.measured.delay));
        }
        for (name, delays) in delays.into_iter().chain([("lateness", &stats.lateness)]) {
            row(
                name,
                format_args!(
                    "mean {:.2} ms, p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
                    ms(delays.mean()),
                    ms(delays.quantile(0.5)),
                    ms(delays.quantile(0.9)),
                    ms(delays.quantile(0.99)),
                    ms(delays.max())
                ),
            )?;
        }
        match (stats.granted_s_min, stats.granted_s_max) {
            (Some(least), Some(most)) => row(
                "expiry",
                format_args!("{least} s to {most} s; not stated {}", stats.granted_unknown),
            )?,
            _ => row("expiry", format_args!("not stated {}", stats.granted_unknown))?,
        }
        row(
            "other messages",
            format_args!(
                "unexpected {}, late {}, malformed {}, undelivered {}",
                stats.unexpected, stats.late, stats.malformed, stats.undelivered
            ),
        )?;
        if let Some(interval) = self.keep_alive_s {
            row(
                "keep-alives",
                format_args!(
                    "{} every {interval} s; connections that ended {}",
                    stats.pings, stats.connections_ended
                ),
            )?;
        }
        if let Some(streams) = streams {
            write!(f, "{streams}")?;
        }
        let mut row = |name: &str, value: fmt::Arguments<'_>| writeln!(f, "{name:<16}{value}");
        row(
            "own cost",
            format_args!(
                "CPU {cpu_s:.2} s of {wall_s:.2} s, {:.1} µs a registration; dropped by our sockets \
                 {socket_drops}, unsent {send_drops}",
                self.cpu_us_each
            ),
        )?;
        let kept_up = match (self.too_slow, self.usage.has_own_losses()) {
            (true, _) => "too slow: 1 % of the registrations began more than 5 ms late",
            (false, true) => "lost messages itself, so failures may not be the fault of the server",
            (false, false) => "kept up",
        };
        row("generator", format_args!("{kept_up}"))?;
        row("seed", format_args!("{}", self.seed))
    }
}
