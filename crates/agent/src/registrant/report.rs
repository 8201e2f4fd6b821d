//! A registrant's figures as a table and as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tidegate_world::Timestamp;

use super::config::RegistrantConfig;
use super::stats::RegistrantStats;
use crate::caller::rate_to_last;
use crate::usage::Usage;

/// The results of a registrant's run. [`Display`](fmt::Display) formats them as a table, and
/// [`Serialize`] as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct RegistrantReport {
    /// Requested rate in registrations/s while the factor of the profile is 1.
    pub asked_per_s: f64,
    /// Rate in registrations/s at which registrations were started.
    pub begun_per_s: f64,
    /// Rate in registrations/s of the registrations that were answered with 2xx within the
    /// deadline.
    pub registered_in_time_per_s: f64,
    /// Number of users.
    pub users: u32,
    /// Longest response time of a registration that counts as in time, in seconds.
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
    /// True if the load generator was too slow to offer the load: 1 % of the registrations began
    /// more than 5 ms late, more than 1 % did not begin because too many were open, or the last
    /// registrations began too late.
    pub too_slow: bool,
    /// True if the load generator itself lost messages. Then failures and delays may not be caused
    /// by the server.
    pub lost_datagrams: bool,
}

impl RegistrantReport {
    /// Creates the report on a run with the configuration `config`.
    pub fn new(config: &RegistrantConfig, seed: u64, stats: RegistrantStats, usage: Usage) -> Self {
        let per_second = |count: u64, last: Timestamp| {
            rate_to_last(count, stats.offered, last.since(stats.start))
        };
        Self {
            asked_per_s: config.load.rate_cps,
            begun_per_s: per_second(stats.begun, stats.last_begun.max(stats.last_intended)),
            registered_in_time_per_s: per_second(stats.registered_in_time, stats.last_intended),
            users: config.users,
            deadline_s: config.deadline.as_secs_f64(),
            keep_alive_s: config.keep_alive.map(|interval| interval.as_secs_f64()),
            warm_up_s: config.warm_up.as_secs_f64(),
            seed,
            cpu_us_each: usage.cpu_s * 1e6 / stats.begun.max(1) as f64,
            too_slow: stats.too_slow().is_some(),
            lost_datagrams: usage.has_own_losses(),
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
                    "{}: the user's previous registration was open, or too many others were",
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
            delays.push(("measured", &stats.measured.delay));
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
                "CPU {cpu_s:.2} s of {wall_s:.2} s, {:.1} µs a registration; datagrams lost at full \
                 receive buffers {socket_drops}, not sent {send_drops}",
                self.cpu_us_each
            ),
        )?;
        match (stats.too_slow(), self.lost_datagrams) {
            (Some(why), _) => row("generator", format_args!("too slow: {why}"))?,
            (None, true) => row(
                "generator",
                format_args!(
                    "lost messages itself, so failures may not be the fault of the server"
                ),
            )?,
            (None, false) => row("generator", format_args!("kept up"))?,
        }
        row("seed", format_args!("{}", self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stats: RegistrantStats, usage: Usage) -> RegistrantReport {
        let address = ([127, 0, 0, 1], 5060).into();
        RegistrantReport::new(&RegistrantConfig::new(address, address), 1, stats, usage)
    }

    /// The report once said that the generator kept up, although only a tenth of the registrations
    /// had begun.
    #[test]
    fn a_generator_without_room_is_too_slow() {
        let offered = RegistrantStats { offered: 100, not_begun: 90, ..RegistrantStats::default() };
        let full = RegistrantStats { overflowed: 90, ..offered.clone() };
        let full = report(full, Usage::default());
        assert!(full.too_slow && full.to_string().contains("generator       too slow: more"));
        // These registrations did not begin because their users still waited for a response, so the
        // generator is not too slow.
        let waiting = report(offered, Usage::default());
        assert!(!waiting.too_slow && waiting.to_string().contains("generator       kept up"));
    }

    /// The rates once counted N registrations over N - 1 times. The rate of begun registrations also
    /// ended with the last one that began, so it did not show that others were missing.
    #[test]
    fn the_rates_are_those_until_the_last_registration_was_due() {
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let stats = RegistrantStats {
            offered: 101,
            begun: 50,
            registered_in_time: 25,
            last_intended: at(10),
            last_begun: at(5),
            ..RegistrantStats::default()
        };
        let part = report(stats.clone(), Usage::default());
        assert!((part.begun_per_s - 4.95).abs() < 0.01, "{}", part.begun_per_s);
        let registered = part.registered_in_time_per_s;
        assert!((registered - 2.475).abs() < 0.01, "{registered}");
        let all = RegistrantStats { begun: 101, last_begun: at(10), ..stats };
        assert_eq!(report(all, Usage::default()).begun_per_s, 10.0);
    }

    #[test]
    fn a_generator_that_loses_messages_says_so() {
        let usage = Usage { send_drops: 1, ..Usage::default() };
        let lost = report(RegistrantStats::default(), usage);
        assert!(lost.lost_datagrams && !lost.too_slow);
        assert!(lost.to_string().contains("generator       lost messages itself"), "{lost}");
    }
}
