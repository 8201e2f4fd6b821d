//! The results of all followers together.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_agent::{CallerConfig, CallerReport, CallerStats, TooSlow, Usage};

use super::super::progress::Progress;
use super::follower::End;
use super::followers::Precision;

/// The merged results. [`Display`](fmt::Display) formats them as the table of a single run, with a
/// line for each follower.
pub struct Merged {
    report: CallerReport,
    parts: Vec<Part>,
    precision: Precision,
}

/// A follower, and its part of the results.
struct Part {
    follower: String,
    outcome: Outcome,
}

enum Outcome {
    Done { is_complete: bool, report: Box<CallerReport> },
    Lost { why: String, progress: Progress },
}

impl Merged {
    /// Merges the results of followers with the given ends. `config` is the whole load, and `parts`
    /// are its parts.
    pub fn new(
        config: &CallerConfig,
        parts: &[CallerConfig],
        seed: u64,
        precision: Precision,
        ends: Vec<(String, End)>,
    ) -> Self {
        let (mut stats, mut usage) = (CallerStats::default(), Usage::default());
        let mut too_slow = None;
        let part = |((follower, end), config): ((String, End), &CallerConfig)| {
            let outcome = match end {
                End::Lost { why, progress } => Outcome::Lost { why, progress },
                End::Done { is_complete, result } => {
                    let (counts, used) = result.into_parts();
                    stats.merge(&counts);
                    usage.merge(&used);
                    let report = Box::new(CallerReport::new(config, seed, counts, used));
                    let name = Some(follower.clone());
                    let named = |figures: TooSlow| TooSlow { follower: name, ..figures };
                    too_slow = too_slow.take().or_else(|| report.too_slow.clone().map(named));
                    Outcome::Done { is_complete, report }
                }
            };
            Part { follower, outcome }
        };
        let parts = ends.into_iter().zip(parts).map(part).collect();
        let mut report = CallerReport::new(config, seed, stats, usage);
        // If one follower is too slow, the whole load is wrong, even if that follower makes few
        // calls. The figures then name the follower.
        report.too_slow = report.too_slow.or(too_slow);
        Self { report, parts, precision }
    }

    /// Returns whether the load succeeded: no follower was lost, and all offered calls (at least
    /// one) completed.
    pub fn is_perfect(&self) -> bool {
        let is_complete =
            |part: &Part| matches!(part.outcome, Outcome::Done { is_complete: true, .. });
        self.parts.iter().all(is_complete) && self.report.is_perfect()
    }

    /// Returns the report of a single run with the additional keys `followers` and
    /// `started_within_us`.
    pub fn to_json(&self) -> serde_json::Result<Value> {
        let mut all = serde_json::to_value(&self.report)?;
        let errors = self.precision.errors.iter().copied();
        let parts = self.parts.iter().zip(errors).map(|(part, error)| part.to_json(error));
        all["followers"] = parts.collect::<Result<Value, _>>()?;
        all["started_within_us"] = micros(self.precision.within()).into();
        Ok(all)
    }
}

impl Part {
    fn to_json(&self, start_error: Duration) -> serde_json::Result<Value> {
        let (follower, start_error_us) = (&self.follower, micros(start_error));
        Ok(match &self.outcome {
            Outcome::Done { is_complete, report } => json!({
                "follower": follower,
                "start_error_us": start_error_us,
                "complete": is_complete,
                "report": serde_json::to_value(report)?,
            }),
            Outcome::Lost { why, progress } => json!({
                "follower": follower,
                "start_error_us": start_error_us,
                "complete": false,
                "lost": why,
                "progress": serde_json::to_value(progress)?,
            }),
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        let within_ms = self.precision.within().as_secs_f64() * 1e3;
        if self.parts.len() > 1 {
            writeln!(f, "{:<16}all followers within {within_ms:.3} ms", "start")?;
        }
        self.parts.iter().try_for_each(|part| writeln!(f, "{:<16}{part}", "follower"))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        write!(f, "{}: ", self.follower)?;
        match &self.outcome {
            Outcome::Lost { why, progress } => write!(
                f,
                "LOST ({why}): the totals do not contain its calls ({} were offered)",
                progress.offered
            ),
            Outcome::Done { is_complete, report } => {
                let stats = &report.stats;
                write!(
                    f,
                    "{} calls, {:.1}/s, {} completed, {} failed; set-up p99 {:.2} ms, lateness p99 \
                     {:.2} ms; ",
                    stats.offered,
                    report.intended_cps,
                    stats.completed,
                    stats.failed.total(),
                    ms(stats.set_up_delay.quantile(0.99)),
                    ms(stats.lateness.quantile(0.99)),
                )?;
                if !is_complete {
                    f.write_str("stopped; ")?;
                }
                match &report.too_slow {
                    Some(too_slow) => write!(f, "{too_slow}"),
                    None if report.lost_datagrams => {
                        f.write_str("this generator lost messages itself")
                    }
                    None => f.write_str("kept up"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_agent::{CallerResult, Delays, Load, Share};
    use tidegate_world::Timestamp;

    use super::*;

    fn config() -> CallerConfig {
        let address = ([127, 0, 0, 1], 5060).into();
        let load = Load { rate_cps: 20.0, calls: 200, ..Load::default() };
        CallerConfig { load, ..CallerConfig::new(address, address) }
    }

    fn parts() -> Vec<CallerConfig> {
        (0..2).map(|index| config().part(Share::new(index, 2).unwrap()).unwrap()).collect()
    }

    /// Returns the end of a follower with 100 completed calls in 10 s, with this set-up delay and
    /// this lateness.
    fn done(set_up_ms: u64, lateness_ms: u64) -> End {
        done_calls(100, set_up_ms, lateness_ms)
    }

    fn done_calls(calls: u64, set_up_ms: u64, lateness_ms: u64) -> End {
        let delays = |ms| {
            let mut delays = Delays::new();
            (0..calls).for_each(|_| delays.record(Duration::from_millis(ms)));
            delays
        };
        let start = Timestamp::from_nanos(set_up_ms);
        let stats = CallerStats {
            offered: calls,
            begun: calls,
            set_up: calls,
            set_up_in_time: calls,
            completed: calls,
            set_up_delay: delays(set_up_ms),
            lateness: delays(lateness_ms),
            start,
            last_intended: start + Duration::from_secs(10),
            last_begun: start + Duration::from_secs(10),
            ..CallerStats::default()
        };
        let usage = Usage { cpu_s: 0.5, wall_s: 11.0, ..Usage::default() };
        End::Done { is_complete: true, result: Box::new(CallerResult::new(stats, usage)) }
    }

    fn lost() -> End {
        let progress = Progress { offered: 33, ..Progress::default() };
        End::Lost { why: "the peer closed the connection".to_owned(), progress }
    }

    fn merged(one: End, other: End) -> Merged {
        let errors = [100, 200].map(Duration::from_micros).to_vec();
        let ends = vec![("a:1".to_owned(), one), ("b:2".to_owned(), other)];
        Merged::new(&config(), &parts(), 7, Precision { errors }, ends)
    }

    #[test]
    fn results_of_two_followers_are_one_run() {
        let merged = merged(done(1, 0), done(9, 0));
        assert!(merged.is_perfect());
        let text = merged.to_string();
        for row in [
            "offered         200 calls, 19.9/s (asked 20.0/s), begun 200 at 19.9/s",
            "completed       200 calls",
            "set-up delay    p50 1.00 ms, p90 9.0",
            "generator       kept up",
            "start           all followers within 0.300 ms",
            "follower        a:1: 100 calls, 9.9/s, 100 completed, 0 failed; set-up p99 1.00 ms",
            "follower        b:2: 100 calls, 9.9/s, 100 completed, 0 failed; set-up p99 9.0",
        ] {
            assert!(text.contains(row), "{row} in\n{text}");
        }
        let json = merged.to_json().unwrap();
        assert_eq!(json["stats"]["completed"], 200);
        assert_eq!(json["usage"]["cpu_s"], 1.0);
        assert_eq!(json["started_within_us"], 300);
        assert_eq!(json["followers"][1]["follower"], "b:2");
        assert_eq!(json["followers"][1]["report"]["stats"]["completed"], 100);
        assert_eq!(json["followers"][1]["report"]["asked_cps"], 10.0);
    }

    #[test]
    fn a_lost_follower_is_named_and_missing_in_the_sums() {
        let merged = merged(lost(), done(9, 0));
        assert!(!merged.is_perfect());
        let text = merged.to_string();
        assert!(text.contains("offered         100 calls, 9.9/s (asked 20.0/s)"), "{text}");
        let line = "follower        a:1: LOST (the peer closed the connection): the totals do \
                    not contain its calls (33 were offered)";
        assert!(text.contains(line), "{text}");
        let json = merged.to_json().unwrap();
        assert_eq!(json["followers"][0]["lost"], "the peer closed the connection");
        assert_eq!(json["followers"][0]["progress"]["offered"], 33);
    }

    #[test]
    fn one_slow_follower_makes_the_generator_too_slow() {
        let merged = merged(done(1, 0), done(1, 50));
        let text = merged.to_string();
        assert!(text.contains("generator       too slow: "), "{text}");
        assert!(
            text.lines().any(|line| line.contains("b:2") && line.contains("too slow")),
            "{text}"
        );
        assert!(
            text.lines().any(|line| line.contains("a:1") && line.contains("kept up")),
            "{text}"
        );
    }

    /// A regression: the figures of a slow follower with few calls were shown as the figures of the
    /// whole load.
    #[test]
    fn the_figures_of_a_slow_follower_have_its_name() {
        let merged = merged(done_calls(10_000, 1, 0), done_calls(11, 1, 50));
        let text = merged.to_string();
        let row = "generator       follower b:2: too slow: began 1.0 instead of 1.0 calls/s, ";
        assert!(text.contains(row), "{text}");
        assert_eq!(merged.to_json().unwrap()["too_slow"]["follower"], "b:2");
    }

    #[test]
    fn a_stopped_follower_is_not_perfect() {
        let End::Done { result, .. } = done(1, 0) else { unreachable!("done") };
        let merged = merged(done(1, 0), End::Done { is_complete: false, result });
        assert!(!merged.is_perfect());
        assert!(merged.to_string().contains("; stopped; kept up"), "{merged}");
    }
}
