//! A caller's figures as a table and as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::caller::config::CallerConfig;
use crate::caller::rates::TooSlow;
use crate::caller::stats::CallerStats;
use crate::usage::Usage;

/// The results of a caller's run. [`Display`](fmt::Display) formats them as a table, and
/// [`Serialize`] as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct CallerReport {
    /// Requested rate in calls/s, while the factor of the profile is 1.
    pub asked_cps: f64,
    /// Arrival process, such as `poisson`.
    pub arrivals: String,
    /// Profile of the rate, such as `constant`.
    pub profile: String,
    /// Rate in calls/s at which calls were due.
    pub intended_cps: f64,
    /// Rate in calls/s at which calls were started.
    pub begun_cps: f64,
    /// Goodput in calls/s: calls set up within the deadline.
    pub goodput_cps: f64,
    /// Goodput in calls/s, counting only the measured time.
    pub measured_goodput_cps: f64,
    /// Length of the warm-up, in seconds.
    pub warm_up_s: f64,
    /// Time from the start to the end of the measured time, in seconds. `None` if all calls after
    /// the warm-up are measured.
    pub measured_until_s: Option<f64>,
    /// Longest set-up delay of a call that counts as set up in time, in seconds.
    pub deadline_s: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Counts of the caller.
    pub stats: CallerStats,
    /// Resources that the run used.
    pub usage: Usage,
    /// CPU time per started call, in µs.
    pub cpu_us_per_call: f64,
    /// The rates and the lateness of a load generator that was too slow to offer the load, or
    /// `None` if it was fast enough.
    pub too_slow: Option<TooSlow>,
    /// True if the load generator itself lost messages. Then failures and delays may not be caused
    /// by the server.
    pub lost_datagrams: bool,
}

impl CallerReport {
    /// Creates the report on a run with the configuration `config`.
    pub fn new(config: &CallerConfig, seed: u64, stats: CallerStats, usage: Usage) -> Self {
        Self {
            asked_cps: config.load.rate_cps,
            arrivals: config.load.process.to_string(),
            profile: config.load.profile.to_string(),
            intended_cps: stats.intended_cps(),
            begun_cps: stats.begun_cps(),
            goodput_cps: stats.goodput_cps(),
            measured_goodput_cps: stats.measured_goodput_cps(config.warm_up, config.measured_until),
            warm_up_s: config.warm_up.as_secs_f64(),
            measured_until_s: (config.measured_until < Duration::MAX)
                .then_some(config.measured_until.as_secs_f64()),
            deadline_s: config.deadline.as_secs_f64(),
            seed,
            cpu_us_per_call: usage.cpu_s * 1e6 / stats.begun.max(1) as f64,
            too_slow: stats.too_slow(),
            lost_datagrams: usage.has_own_losses(),
            stats,
            usage,
        }
    }

    /// Returns whether some of the calls are not measured.
    fn measures_a_part(&self) -> bool {
        self.warm_up_s > 0.0 || self.measured_until_s.is_some()
    }

    /// Returns whether calls were offered and all of them completed.
    pub fn is_perfect(&self) -> bool {
        self.stats.offered > 0 && self.stats.completed == self.stats.offered
    }
}

impl fmt::Display for CallerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallerStats {
            offered,
            begun,
            not_begun,
            expired,
            held_back,
            set_up,
            set_up_in_time,
            completed,
            hung_up,
            failed,
            repeated,
            ..
        } = &self.stats;
        let Usage { cpu_s, wall_s, socket_drops, send_drops, streams } = self.usage;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: fmt::Arguments<'_>| {
            writeln!(f, "{name:<16}{value}")
        };
        row(
            f,
            "offered",
            format_args!(
                "{offered} calls, {:.1}/s (asked {:.1}/s), begun {begun} at {:.1}/s",
                self.intended_cps, self.asked_cps, self.begun_cps
            ),
        )?;
        if *not_begun > 0 {
            row(f, "not begun", format_args!("{not_begun} calls: too many were open or waiting"))?;
        }
        if *held_back > 0 {
            row(f, "held back", format_args!("{held_back} calls, {expired} of them never begun"))?;
        }
        row(
            f,
            "set up",
            format_args!(
                "{set_up} calls, {set_up_in_time} within {:.3} s: {:.1}/s",
                self.deadline_s, self.goodput_cps
            ),
        )?;
        if self.measures_a_part() {
            let measured = &self.stats.measured;
            row(
                f,
                "measured",
                format_args!(
                    "{} offered, {} set up in time: {:.1}/s; INVITE sent again {}, rejected {}",
                    measured.offered,
                    measured.set_up_in_time,
                    self.measured_goodput_cps,
                    measured.repeated_invites,
                    measured.rejected
                ),
            )?;
        }
        row(
            f,
            "completed",
            format_args!("{completed} calls, {hung_up} hung up by the other side"),
        )?;
        row(f, "failed", format_args!("{} calls ({failed})", failed.total()))?;
        row(
            f,
            "sent again",
            format_args!(
                "INVITE {}, ACK {}, CANCEL {}, BYE {}",
                repeated.invite, repeated.ack, repeated.cancel, repeated.bye
            ),
        )?;
        let mut delays = vec![("set-up delay", &self.stats.set_up_delay)];
        if self.measures_a_part() {
            delays.push(("measured", &self.stats.measured.set_up_delay));
        }
        for (name, delays) in delays.into_iter().chain([("lateness", &self.stats.lateness)]) {
            row(
                f,
                name,
                format_args!(
                    "p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
                    ms(delays.quantile(0.5)),
                    ms(delays.quantile(0.9)),
                    ms(delays.quantile(0.99)),
                    ms(delays.max())
                ),
            )?;
        }
        row(
            f,
            "other messages",
            format_args!(
                "unexpected {}, late {}, malformed {}, undelivered {}",
                self.stats.unexpected,
                self.stats.late,
                self.stats.malformed,
                self.stats.undelivered
            ),
        )?;
        if let Some(streams) = streams {
            write!(f, "{streams}")?;
        }
        row(
            f,
            "own cost",
            format_args!(
                "CPU {cpu_s:.2} s of {wall_s:.2} s, {:.1} µs a call; datagrams lost at full \
                 receive buffers {socket_drops}, not sent {send_drops}",
                self.cpu_us_per_call
            ),
        )?;
        match &self.too_slow {
            Some(too_slow) => row(f, "generator", format_args!("{too_slow}")),
            None if self.lost_datagrams => row(
                f,
                "generator",
                format_args!(
                    "lost datagrams itself, so failures may not be the fault of the server"
                ),
            ),
            None => row(f, "generator", format_args!("kept up")),
        }?;
        row(f, "seed", format_args!("{}", self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table once showed only the set-up delay of all calls, which includes the handshakes of
    /// the warm-up.
    #[test]
    fn the_set_up_delay_is_also_shown_without_the_warm_up() {
        let address = ([127, 0, 0, 1], 5060).into();
        let mut stats = CallerStats::default();
        stats.set_up_delay.record(Duration::from_secs(1));
        stats.set_up_delay.record(Duration::from_millis(1));
        stats.measured.set_up_delay.record(Duration::from_millis(1));
        let text = |warm_up| {
            let config = CallerConfig { warm_up, ..CallerConfig::new(address, address) };
            CallerReport::new(&config, 1, stats.clone(), Usage::default()).to_string()
        };
        let measured = |line: &str| line.starts_with("measured        p50 1.00 ms");
        let with = text(Duration::from_secs(1));
        assert!(with.lines().any(measured), "{with}");
        assert!(with.lines().any(|line| line.starts_with("set-up delay ")), "{with}");
        let without = text(Duration::ZERO);
        assert!(!without.lines().any(|line| line.starts_with("measured")), "{without}");
    }
}
