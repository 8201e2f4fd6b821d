//! Metrics for operators, whose values are read at each scrape.
//!
//! Each shard counts events in its own atomic counters, and nothing on the packet path uses this
//! module. A *source* is a function that reads some of those counters and adds each value to a
//! [`Family`]. The names of metrics follow the conventions of Prometheus: `tidegate_NAME_UNIT`, and
//! `_total` at the end for counters.

pub(crate) mod collect;

use std::collections::HashSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Registry};
use tidegate_world::Histogram;

/// The media type of [`Metrics::render_plain`].
pub(crate) const PLAIN_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of [`Metrics::render`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A metric family: all values with one metric name, distinguished by their labels. A family is
/// declared once, as a `static`, beside the code that reads its values.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Family {
    /// Creates a family of values that only grow. A prefix such as `tidegate_` and a suffix such as
    /// `_total` are added to `name`. `help` is a phrase without a full stop.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: None, kind: Kind::Counter }
    }

    /// Creates a family of values that can rise and fall.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: None, kind: Kind::Gauge }
    }

    /// Creates a family of histograms of durations, with fixed buckets.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: None, kind: Kind::Histogram }
    }

    /// Returns the family with this unit, which becomes a suffix of the metric name.
    pub(crate) const fn in_unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }
}

/// The unit of a metric that is not a count. Only base units are used, as Prometheus recommends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A fraction, 0 to 1.
    Ratio,
}

impl Unit {
    fn to_registry(self) -> registry::Unit {
        match self {
            Self::Seconds => registry::Unit::Seconds,
            Self::Bytes => registry::Unit::Bytes,
            // Prometheus uses the singular. The variant `Ratios` would write the plural.
            Self::Ratio => registry::Unit::Other("ratio".to_owned()),
        }
    }
}

/// The value of a metric.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer, such as a count.
    Whole(u64),
    /// A number that is not a count, such as a fraction.
    Real(f64),
    /// A histogram: the upper bound and count of each bucket, and the sum of all values in the
    /// buckets.
    Buckets(Vec<(f64, u64)>, f64),
}

impl Value {
    /// Returns the current buckets and the current sum of a histogram.
    pub fn of(histogram: &Histogram) -> Self {
        Self::Buckets(histogram.buckets().collect(), histogram.sum())
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for Value {
    fn from(n: f64) -> Self {
        Self::Real(n)
    }
}

/// A metric family, and the function that reads its value from a `T`.
pub(crate) struct Number<T> {
    family: Family,
    read: fn(&T) -> Value,
}

impl<T> Number<T> {
    /// Creates a [`Family::counter`] with the function that reads its value.
    const fn counter(name: &'static str, help: &'static str, read: fn(&T) -> Value) -> Self {
        Self { family: Family::counter(name, help), read }
    }

    /// Creates a [`Family::gauge`] with the function that reads its value.
    const fn gauge(name: &'static str, help: &'static str, read: fn(&T) -> Value) -> Self {
        Self { family: Family::gauge(name, help), read }
    }

    /// Returns the number with this unit, which becomes a suffix of the metric name.
    const fn in_unit(self, unit: Unit) -> Self {
        let Self { family, read } = self;
        Self { family: family.in_unit(unit), read }
    }
}

/// The values that are read at one scrape.
#[derive(Debug, Default)]
pub struct Samples {
    /// The families in the order of first use.
    families: Vec<(&'static Family, Vec<Sample>)>,
}

#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

impl Samples {
    /// Adds a value of the metric `family`. No two values of a family may have the same `labels`.
    pub fn push(
        &mut self,
        family: &'static Family,
        labels: &[(&'static str, &str)],
        value: impl Into<Value>,
    ) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let sample = Sample { labels, value: value.into() };
        match self.families.iter_mut().find(|(known, _)| std::ptr::eq(*known, family)) {
            Some((_, samples)) => samples.push(sample),
            None => {
                debug_assert!(
                    self.families.iter().all(|(known, _)| known.name != family.name),
                    "two families of one name: {}",
                    family.name
                );
                self.families.push((family, vec![sample]));
            }
        }
    }

    /// Adds a value of each metric in `numbers`, which the function of the metric reads from `of`.
    /// All values have these `labels`.
    pub(crate) fn push_each<T>(
        &mut self,
        numbers: &'static [Number<T>],
        labels: &[(&'static str, &str)],
        of: &T,
    ) {
        for Number { family, read } in numbers {
            self.push(family, labels, read(of));
        }
    }
}

type Source = Box<dyn Fn(&mut Samples) + Send + Sync>;

/// The metrics of a process, as functions that read their values.
pub struct Metrics {
    sources: Vec<Source>,
    /// The functions for metrics whose names begin with `process_` instead of `tidegate_`.
    process: Vec<Source>,
}

/// The line with which an OpenMetrics text ends.
const EOF: &str = "# EOF\n";

static BUILD_INFO: Family = Family::gauge("build_info", "Always 1; the version is in the label");

impl Metrics {
    /// Creates a set with one metric: the version of Tidegate.
    pub fn new() -> Self {
        let mut metrics = Self { sources: Vec::new(), process: Vec::new() };
        metrics.add(|samples| {
            samples.push(&BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1);
        });
        metrics
    }

    /// Adds a function that reads values of metrics. The function is called at each scrape, so it
    /// must never wait.
    pub fn add(&mut self, source: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.sources.push(Box::new(source));
    }

    /// Adds a function, like [`add`](Self::add), for metrics whose names begin with `process_`.
    /// Every process has these metrics, whatever its program.
    pub(crate) fn add_process(&mut self, source: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.process.push(Box::new(source));
    }

    /// Renders the current values as OpenMetrics text.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (prefix, sources) in [("tidegate", &self.sources), ("process", &self.process)] {
            let mut samples = Samples::default();
            for source in sources {
                source(&mut samples);
            }
            let mut registry = Registry::with_prefix(prefix);
            registry.register_collector(Box::new(samples));
            out.truncate(out.len() - if out.ends_with(EOF) { EOF.len() } else { 0 });
            text::encode(&mut out, &registry).expect("writing to a String does not fail");
        }
        out
    }

    /// Renders the current values in the text format 0.0.4 of Prometheus. This format has no units
    /// and no end mark, and the name of a counter's family contains `_total`.
    pub(crate) fn render_plain(&self) -> String {
        let (text, mut out) = (self.render(), String::new());
        let counters: HashSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
            .collect();
        for line in text.lines() {
            if line.starts_with("# UNIT ") || line == EOF.trim_end() {
                continue;
            }
            let mut words = line.splitn(4, ' ');
            let described = (words.next(), words.next(), words.next(), words.next());
            match described {
                (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                    out += &format!("# {what} {name}_total {rest}\n");
                }
                _ => out.extend([line, "\n"]),
            }
        }
        out
    }

    /// Renders all metrics in the format that `accept`, the value of an HTTP Accept header, asks
    /// for. Returns the media type and the text.
    pub(crate) fn render_for(&self, accept: &str) -> (&'static str, String) {
        let names = |format: &str| accept.to_ascii_lowercase().contains(format);
        if names("text/plain") && !names("application/openmetrics-text") {
            (PLAIN_MEDIA_TYPE, self.render_plain())
        } else {
            (MEDIA_TYPE, self.render())
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metrics({} sources)", self.sources.len())
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (family, samples) in &self.families {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let unit = family.unit.map(Unit::to_registry);
            let mut encoder =
                encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
            for sample in samples {
                if sample.labels.is_empty() {
                    encode(family.kind, &sample.value, &mut encoder)?;
                } else {
                    encode(
                        family.kind,
                        &sample.value,
                        &mut encoder.encode_family(&sample.labels)?,
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn encode(kind: Kind, value: &Value, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(n, None),
        (Kind::Counter, Value::Real(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(n, None),
        (Kind::Gauge, Value::Whole(n)) => encoder.encode_gauge(n),
        (Kind::Gauge, Value::Real(n)) => encoder.encode_gauge(n),
        (Kind::Histogram, Value::Buckets(buckets, sum)) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
        (Kind::Histogram, _) | (_, Value::Buckets(..)) => {
            unreachable!("a histogram has buckets, and no other kind has them")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static RECEIVED: Family = Family::counter("datagrams_received", "Datagrams received");
    static BUSY: Family = Family::counter("busy", "Time not spent waiting").in_unit(Unit::Seconds);
    static OPEN: Family = Family::gauge("calls_open", "Calls open now");

    #[test]
    fn a_metric_family_is_written_once_for_all_sources() {
        let mut metrics = Metrics::new();
        let counts: [Arc<AtomicU64>; 2] = Default::default();
        for (shard, count) in counts.iter().enumerate() {
            let (shard, count) = (shard.to_string(), Arc::clone(count));
            metrics.add(move |samples| {
                let labels = [("shard", &*shard)];
                samples.push(&RECEIVED, &labels, count.load(Ordering::Relaxed));
                samples.push(&BUSY, &labels, 0.25);
            });
        }
        metrics.add(|samples| samples.push(&OPEN, &[], 7));
        counts[1].store(1 << 60, Ordering::Relaxed);
        let expected = concat!(
            "# HELP tidegate_build_info Always 1; the version is in the label\n",
            "# TYPE tidegate_build_info gauge\n",
            "tidegate_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1\n",
            "# HELP tidegate_datagrams_received Datagrams received\n",
            "# TYPE tidegate_datagrams_received counter\n",
            "tidegate_datagrams_received_total{shard=\"0\"} 0\n",
            "tidegate_datagrams_received_total{shard=\"1\"} 1152921504606846976\n",
            "# HELP tidegate_busy_seconds Time not spent waiting\n",
            "# TYPE tidegate_busy_seconds counter\n",
            "# UNIT tidegate_busy_seconds seconds\n",
            "tidegate_busy_seconds_total{shard=\"0\"} 0.25\n",
            "tidegate_busy_seconds_total{shard=\"1\"} 0.25\n",
            "# HELP tidegate_calls_open Calls open now\n",
            "# TYPE tidegate_calls_open gauge\n",
            "tidegate_calls_open 7\n",
            "# EOF\n",
        );
        assert_eq!(metrics.render(), expected);

        counts[0].store(3, Ordering::Relaxed);
        assert!(metrics.render().contains("{shard=\"0\"} 3\n"), "read again at each scrape");
    }

    #[test]
    fn the_plain_format_has_the_suffix_in_the_name_and_no_units() {
        static WAITED: Family = Family::histogram("waited", "Waited").in_unit(Unit::Seconds);
        let mut metrics = Metrics::new();
        metrics.add(|samples| {
            let histogram = Histogram::default();
            histogram.observe(std::time::Duration::from_micros(300));
            samples.push(&BUSY, &[("a", "b # TYPE c")], 0.25);
            samples.push(&WAITED, &[("kind", "new")], Value::of(&histogram));
        });
        let text = metrics.render_plain();
        let expected = "# HELP tidegate_busy_seconds_total Time not spent waiting\n\
                        # TYPE tidegate_busy_seconds_total counter\n\
                        tidegate_busy_seconds_total{a=\"b # TYPE c\"} 0.25\n\
                        # HELP tidegate_waited_seconds Waited\n\
                        # TYPE tidegate_waited_seconds histogram\n";
        assert!(text.contains(expected), "{text}");
        for line in [
            "tidegate_waited_seconds_sum{kind=\"new\"} 0.0003\n",
            "tidegate_waited_seconds_count{kind=\"new\"} 1\n",
            "tidegate_waited_seconds_bucket{le=\"0.0001\",kind=\"new\"} 0\n",
            "tidegate_waited_seconds_bucket{le=\"0.0005\",kind=\"new\"} 1\n",
            "tidegate_waited_seconds_bucket{le=\"+Inf\",kind=\"new\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
        for (accept, media_type) in [
            ("", MEDIA_TYPE),
            ("*/*", MEDIA_TYPE),
            ("text/plain", PLAIN_MEDIA_TYPE),
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", PLAIN_MEDIA_TYPE),
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", MEDIA_TYPE),
        ] {
            assert_eq!(metrics.render_for(accept).0, media_type, "{accept}");
        }
    }

    #[test]
    fn labels_cannot_break_out_of_their_quotes() {
        let mut metrics = Metrics::new();
        metrics.add(|samples| samples.push(&OPEN, &[("name", "a\"b\\c\nd")], 1));
        assert!(metrics.render().contains(r#"{name="a\"b\\c\nd"} 1"#), "{}", metrics.render());
    }
}
