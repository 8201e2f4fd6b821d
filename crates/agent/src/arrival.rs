//! Start times of calls, drawn independently of any answer.
//!
//! The start times form an open loop: they depend on the load and the seed, but not on the answers.
//! So a slow or silent peer is offered exactly as many calls as a fast peer.

mod curve;
mod mmpp;
mod profile;
mod trace;

use std::fmt;
use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream, Timestamp};

use crate::share::Share;
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
    /// Equal gaps while the rate is constant. If the profile changes the rate, the gaps follow the
    /// rate.
    Uniform,
    /// Bursts: a Poisson process whose rate changes at random.
    Mmpp(Mmpp),
    /// Recorded start times. The rate of the [`Load`] has no effect, and its profile must be
    /// constant.
    Trace(Trace),
}

/// Formats as `poisson`, `uniform`, `mmpp:F=S,F=S,…` (factor F and mean sojourn S in seconds of
/// each state), or `trace of N calls`.
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

/// The offered calls: their number, rate and duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Arrival process.
    pub process: Process,
    /// Change of the rate over time.
    pub profile: Profile,
    /// Mean rate in calls/s while the factor of the profile is 1.
    pub rate_cps: f64,
    /// Maximum number of calls.
    pub calls: u32,
    /// Time after the start at which the last call may begin.
    pub duration: Duration,
    /// The number of this part and of all parts, if several callers divide a larger load. The calls
    /// of all parts together come at the times of the larger load. Default: this load is not a
    /// part.
    pub share: Share,
}

/// The reason why a load is invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadError {
    /// The rate is not a number above 0.
    Rate(f64),
    /// The profile has an invalid value.
    Profile(ProfileError),
    /// A profile was given for a trace, which contains all times itself.
    TraceProfile,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "a rate of {rate} a second: it must be above zero"),
            Self::Profile(why) => write!(f, "the profile: {why}"),
            Self::TraceProfile => f.write_str(
                "a trace cannot have a profile, because the trace itself contains the start times",
            ),
        }
    }
}

impl Default for Load {
    /// Returns a Poisson load of 10 calls at 10 calls/s.
    fn default() -> Self {
        Self {
            process: Process::Poisson,
            profile: Profile::Constant,
            rate_cps: 10.0,
            calls: 10,
            duration: Duration::MAX,
            share: Share::WHOLE,
        }
    }
}

impl Load {
    /// Returns an error if this load is invalid.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        if !(self.rate_cps.is_finite() && self.rate_cps > 0.0) {
            return Err(LoadError::Rate(self.rate_cps));
        }
        self.profile.check().map_err(LoadError::Profile)?;
        if matches!(self.process, Process::Trace(_)) && self.profile != Profile::Constant {
            return Err(LoadError::TraceProfile);
        }
        Ok(())
    }

    /// Returns a load with all calls of a trace. The rate is the mean rate of the trace.
    pub fn of_trace(trace: Trace) -> Self {
        Self {
            rate_cps: trace.mean_cps(),
            process: Process::Trace(trace),
            calls: u32::MAX,
            ..Self::default()
        }
    }

    /// Returns the expected rate in calls/s at the time `after`, counted from the start. For a
    /// trace, returns the mean rate of the trace.
    pub fn rate_at(&self, after: Duration) -> f64 {
        Curve::new(&self.profile, self.rate_cps).rate_cps(after.as_secs_f64())
    }

    /// Returns the expected number of calls from the start to the time `after`. For a trace, returns
    /// the number of its calls until then. Ignores the limits [`calls`](Self::calls) and
    /// [`duration`](Self::duration).
    pub fn calls_until(&self, after: Duration) -> f64 {
        if let Process::Trace(trace) = &self.process {
            return trace.moments().partition_point(|moment| *moment <= after) as f64;
        }
        Curve::new(&self.profile, self.rate_cps).calls_until(after.as_secs_f64())
    }

    /// Returns whether the load has no end: it is not a trace, has no limit on the number of calls
    /// or the duration, and its rate does not end at zero.
    pub fn is_endless(&self) -> bool {
        self.calls == u32::MAX
            && self.duration == Duration::MAX
            && !matches!(self.process, Process::Trace(_))
            && Curve::new(&self.profile, self.rate_cps).total().is_infinite()
    }
}

/// The intended times of a run's calls, in order.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    source: Source,
    curve: Curve,
    stream: Stream,
    share: Share,
    /// Number of calls of all parts of the load, counted from the previous call of this part (or
    /// from the start) up to its next call.
    ahead: u32,
    start: Timestamp,
    duration: Duration,
    /// Number of calls that may still be drawn.
    left: u32,
    /// Intended time of the previous call, counted from `start`.
    offset: Duration,
}

/// An arrival process, with its state after the previous call.
#[derive(Clone, Debug)]
enum Source {
    /// Number of calls that the [`Curve`] expects from the start to the previous call.
    Poisson(f64),
    /// Number of calls that were drawn so far.
    Uniform(u32),
    /// Number of calls that the [`Curve`] expects from the start to the previous call, and the
    /// current state of the MMPP.
    Mmpp(f64, Box<Modulation>),
    /// Index of the next call in the trace.
    Trace(usize, Trace),
}

impl Arrivals {
    pub fn new(load: &Load, start: Timestamp, seed: Seed, element: u32) -> Self {
        // Each part draws the calls of all parts and begins only its own ones. For the same draws,
        // all parts use the same element.
        let element = if load.share.is_whole() { element } else { 0 };
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
            share: load.share,
            ahead: load.share.index() + 1,
            start,
            duration: load.duration,
            left: load.calls,
            offset: Duration::ZERO,
        }
    }

    /// Returns the time of the next call, counted from the start of the run, or `None` if there are
    /// no more calls.
    fn draw(&mut self) -> Option<Duration> {
        let calls = match &mut self.source {
            Source::Poisson(calls) => {
                *calls += gap(&mut self.stream, self.ahead, self.share);
                *calls
            }
            // The time comes from the number of calls, not from the time of the previous call, so
            // that rounding errors do not accumulate.
            Source::Uniform(drawn) => {
                let calls = f64::from(*drawn) + self.share.phase();
                *drawn += 1;
                calls
            }
            Source::Mmpp(calls, modulation) => {
                let gap = gap(&mut self.stream, self.ahead, self.share);
                *calls = modulated(*calls, gap, modulation, &self.curve, self.duration)?;
                *calls
            }
            Source::Trace(next, trace) => {
                let moment = trace.moments().get(*next).copied();
                *next += 1;
                return moment;
            }
        };
        self.ahead = self.share.parts();
        let offset_s = self.curve.time_of(calls)?;
        // The conversion saturates at the end of time.
        let offset = Duration::from_nanos((offset_s * 1e9) as u64);
        // The curve is rounded, but times must not go back.
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

/// Draws the gap before the next call of one part. All parts together have `ahead` calls of a
/// Poisson process in this gap. Returns the gap as the number of calls that the [`Curve`] of the
/// part expects in it.
fn gap(stream: &mut Stream, ahead: u32, share: Share) -> f64 {
    let gaps: f64 = (0..ahead).map(|_| stream.exponential(1.0)).sum();
    gaps / f64::from(share.parts())
}

/// Returns the position on the curve of the next call of an MMPP. A position is the number of calls
/// that the curve expects from the start until then. `calls` is the position of the previous call.
/// In each state of the MMPP, the rate is that of the curve times the factor of the state. The next
/// call comes when this rate has produced `gap` calls. Returns `None` if the load ends before.
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
