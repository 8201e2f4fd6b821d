//! When calls begin: drawn in advance of any answer.
//!
//! An open loop: the moments depend on the seed alone, so a peer that is slow or
//! silent is offered exactly as much as one that is fast.

mod curve;
mod mmpp;
mod profile;
mod trace;

use std::fmt;
use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream, Timestamp};

use curve::Curve;
use mmpp::Modulation;

pub use mmpp::{Mmpp, MmppError};
pub use profile::{Profile, ProfileError};
pub use trace::{Trace, TraceError};

/// The process by which calls arrive.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Process {
    /// Independent arrivals: exponentially distributed gaps.
    #[default]
    Poisson,
    /// Equal gaps, as far as the profile lets them be equal.
    Uniform,
    /// Bursts: a Poisson process whose rate changes at random.
    Mmpp(Mmpp),
    /// At moments given, whatever the rate; without a profile.
    Trace(Trace),
}

/// `poisson`, `uniform`, `mmpp:F=S,F=S,…`, or `trace` and the number of its calls.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Uniform => f.write_str("uniform"),
            Self::Mmpp(mmpp) => write!(f, "mmpp:{mmpp}"),
            Self::Trace(trace) => write!(f, "trace of {} calls", trace.moments().len()),
        }
    }
}

/// How many calls are offered, how fast and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The process by which they arrive.
    pub process: Process,
    /// How their rate changes over time.
    pub profile: Profile,
    /// Mean rate where the profile is 1, calls/s.
    pub rate_cps: f64,
    /// At most so many calls.
    pub calls: u32,
    /// None later than this after the start.
    pub duration: Duration,
}

impl Default for Load {
    /// 10 calls at 10 calls/s, Poisson.
    fn default() -> Self {
        Self {
            process: Process::Poisson,
            profile: Profile::Constant,
            rate_cps: 10.0,
            calls: 10,
            duration: Duration::MAX,
        }
    }
}

impl Load {
    /// All the calls of a trace. Its rate is the trace's mean.
    pub fn of_trace(trace: Trace) -> Self {
        Self {
            rate_cps: trace.mean_cps(),
            process: Process::Trace(trace),
            calls: u32::MAX,
            ..Self::default()
        }
    }

    /// The rate at a time after the start, in calls/s: what the profile makes of it, in the mean of
    /// all that a process may draw. That of a trace is its mean.
    pub fn rate_at(&self, after: Duration) -> f64 {
        Curve::new(&self.profile, self.rate_cps).rate_cps(after.as_secs_f64())
    }

    /// Calls expected until a time after the start, in the same mean; neither
    /// [`calls`](Self::calls) nor [`duration`](Self::duration) bounds them.
    pub fn calls_until(&self, after: Duration) -> f64 {
        Curve::new(&self.profile, self.rate_cps).calls_until(after.as_secs_f64())
    }

    /// Whether calls go on until somebody ends them: no number of calls, no duration, and neither
    /// process nor profile come to an end.
    pub fn is_endless(&self) -> bool {
        self.calls == u32::MAX
            && self.duration == Duration::MAX
            && !matches!(self.process, Process::Trace(_))
            && Curve::new(&self.profile, self.rate_cps).total().is_infinite()
    }
}

/// The intended moments of a run's calls, in order.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    source: Source,
    curve: Curve,
    stream: Stream,
    start: Timestamp,
    duration: Duration,
    /// Calls that may still be drawn.
    left: u32,
    /// The last moment.
    offset: Duration,
}

/// Where the next call lies on the curve.
#[derive(Clone, Debug)]
enum Source {
    /// Calls expected until the last call.
    Poisson(f64),
    /// Calls before the next one.
    Uniform(u32),
    /// As `Poisson`.
    Mmpp(f64, Box<Modulation>),
    /// The next one's place.
    Trace(usize, Trace),
}

impl Arrivals {
    pub fn new(load: &Load, start: Timestamp, seed: Seed, element: u32) -> Self {
        let source = match &load.process {
            Process::Poisson => Source::Poisson(0.0),
            Process::Uniform => Source::Uniform(0),
            Process::Mmpp(mmpp) => {
                Source::Mmpp(0.0, Box::new(Modulation::new(mmpp, seed, element)))
            }
            Process::Trace(trace) => Source::Trace(0, trace.clone()),
        };
        Self {
            source,
            curve: Curve::new(&load.profile, load.rate_cps),
            stream: seed.stream(Purpose::Arrivals, element),
            start,
            duration: load.duration,
            left: load.calls,
            offset: Duration::ZERO,
        }
    }

    /// When the next call is to begin, after the start.
    fn draw(&mut self) -> Option<Duration> {
        let calls = match &mut self.source {
            Source::Poisson(calls) => {
                *calls += self.stream.exponential(1.0);
                *calls
            }
            // From the count, not from the last one: rounding does not add up.
            Source::Uniform(drawn) => {
                let calls = f64::from(*drawn);
                *drawn += 1;
                calls
            }
            Source::Mmpp(calls, modulation) => {
                let gap = self.stream.exponential(1.0);
                *calls = modulated(*calls, gap, modulation, &self.curve, self.duration)?;
                *calls
            }
            Source::Trace(next, trace) => {
                let moment = trace.moments().get(*next).copied();
                *next += 1;
                return moment;
            }
        };
        let offset_s = self.curve.time_of(calls)?;
        // Saturates at the end of time.
        let offset = Duration::from_nanos((offset_s * 1e9) as u64);
        // Rounding of the curve must not turn back time.
        Some(offset.max(self.offset))
    }
}

impl Iterator for Arrivals {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        self.left = self.left.checked_sub(1)?;
        match self.draw().filter(|&offset| offset <= self.duration) {
            Some(offset) => {
                self.offset = offset;
                Some(self.start + offset)
            }
            None => {
                self.left = 0;
                None
            }
        }
    }
}

/// Where on the curve the next call lies, after one at `calls`: in each state the curve is as many
/// times as steep as its factor says, and the call comes when `gap` is used up. `None` if that is
/// after the end.
fn modulated(
    mut calls: f64,
    mut gap: f64,
    modulation: &mut Modulation,
    curve: &Curve,
    duration: Duration,
) -> Option<f64> {
    loop {
        let factor = modulation.factor();
        let change = curve.calls_until(modulation.until_s());
        let ahead = factor * (change - calls);
        if gap < ahead {
            return Some(calls + gap / factor);
        }
        if modulation.until_s() > duration.as_secs_f64() || change >= curve.total() {
            return None;
        }
        gap -= ahead;
        calls = change;
        modulation.change();
    }
}

#[cfg(test)]
#[path = "arrival/arrival_tests.rs"]
mod tests;
