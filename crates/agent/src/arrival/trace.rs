//! Recorded arrivals: the start times of the calls.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of calls in a trace.
const MOMENTS_MAX: usize = 10_000_000;

/// The start times of calls, in ascending order, counted from the start of the trace.
///
/// The text form has one time on each line, in seconds. Empty lines, and text after a `#`, are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace(Arc<[Duration]>);

impl Trace {
    /// Creates a trace from the start times of its calls.
    ///
    /// # Errors
    /// Returns an error if there are no times or too many, or if a time is earlier than the time
    /// before it. The line in the error is the position of that time in the list, from 1.
    pub fn new(moments: impl Into<Arc<[Duration]>>) -> Result<Self, TraceError> {
        let moments = moments.into();
        if moments.is_empty() {
            return Err(TraceError::Empty);
        }
        if moments.len() > MOMENTS_MAX {
            return Err(TraceError::TooLong);
        }
        match moments.windows(2).position(|pair| pair[1] < pair[0]) {
            Some(pair) => Err(TraceError::Order { line: pair + 2 }),
            None => Ok(Self(moments)),
        }
    }

    /// Returns the start times of the calls, counted from the start of the trace.
    pub fn moments(&self) -> &[Duration] {
        &self.0
    }

    /// Returns the mean number of calls per second from the start to the last call. If all calls
    /// are at the start, returns the number of calls.
    pub(crate) fn mean_cps(&self) -> f64 {
        let calls = self.0.len() as f64;
        match self.0.last() {
            Some(last) if !last.is_zero() => calls / last.as_secs_f64(),
            _ => calls,
        }
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut moments: Vec<Duration> = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            let content = content.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let moment = content.parse().map_err(|_| TraceError::Moment { line })?;
            let moment =
                Duration::try_from_secs_f64(moment).map_err(|_| TraceError::Moment { line })?;
            if moments.last().is_some_and(|&last| moment < last) {
                return Err(TraceError::Order { line });
            }
            if moments.len() == MOMENTS_MAX {
                return Err(TraceError::TooLong);
            }
            moments.push(moment);
        }
        Self::new(moments)
    }
}

/// An error in a [`Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// The trace contains no times.
    Empty,
    /// The trace has more than 10,000,000 calls.
    TooLong,
    /// A line is not a number of seconds of at least 0. Lines are counted from 1.
    Moment {
        /// Line number.
        line: usize,
    },
    /// The time in a line is earlier than the time before it. Lines are counted from 1.
    Order {
        /// Line number.
        line: usize,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the trace has no call"),
            Self::TooLong => write!(f, "the trace has more than {MOMENTS_MAX} calls"),
            Self::Moment { line } => {
                write!(f, "line {line}: not a number of seconds of at least 0")
            }
            Self::Order { line } => {
                write!(f, "line {line}: the call is earlier than the call before it")
            }
        }
    }
}

impl std::error::Error for TraceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_one_time_on_each_line() {
        let text = "# seconds\n0\n\n 0.25 # the second\n0.25\r\n1e1\n";
        let trace: Trace = text.parse().unwrap();
        let ms: Vec<_> = trace.moments().iter().map(Duration::as_millis).collect();
        assert_eq!(ms, [0, 250, 250, 10_000]);
        assert_eq!(trace.mean_cps(), 0.4);
        assert_eq!("0\n0\n".parse::<Trace>().unwrap().mean_cps(), 2.0);
    }

    #[test]
    fn invalid_traces_are_rejected_with_the_line() {
        let rejected = |text: &str| text.parse::<Trace>().unwrap_err();
        assert_eq!(rejected(""), TraceError::Empty);
        assert_eq!(rejected("# nothing\n"), TraceError::Empty);
        for moment in ["x", "-1", "inf", "1 2"] {
            let text = format!("0\n#\n{moment}\n");
            assert_eq!(rejected(&text), TraceError::Moment { line: 3 }, "{moment}");
        }
        assert_eq!(rejected("0\n#\n2\n1.5\n"), TraceError::Order { line: 4 });
        let said = TraceError::Order { line: 4 }.to_string();
        assert_eq!(said, "line 4: the call is earlier than the call before it");
        let s = Duration::from_secs;
        assert_eq!(Trace::new([s(1), s(2), s(1)]), Err(TraceError::Order { line: 3 }));
    }

    #[test]
    fn a_trace_is_bounded() {
        let moments = |n| vec![Duration::ZERO; n];
        assert_eq!(Trace::new(moments(MOMENTS_MAX + 1)), Err(TraceError::TooLong));
        assert!(Trace::new(moments(MOMENTS_MAX)).is_ok());
        assert_eq!("0\n".repeat(MOMENTS_MAX + 1).parse::<Trace>(), Err(TraceError::TooLong));
    }
}
