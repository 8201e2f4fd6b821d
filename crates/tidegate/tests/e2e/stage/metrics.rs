//! Metrics of Tidegate.

/// One scrape of `/metrics`.
pub struct Metrics(pub String);

impl Metrics {
    /// Returns the sum of all samples of `name` (without its prefix) that have these labels.
    ///
    /// # Panics
    /// Panics if there is no such sample: the absence of a metric does not prove that it is zero.
    #[track_caller]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let wanted: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let values: Vec<u64> = self
            .0
            .lines()
            .filter_map(|line| {
                let (sample, value) = line.strip_prefix("tidegate_")?.rsplit_once(' ')?;
                let (found, labels) = sample.split_once('{').unwrap_or((sample, ""));
                let matches = found == name && wanted.iter().all(|label| labels.contains(label));
                matches.then(|| value.parse::<f64>().expect("a number") as u64)
            })
            .collect();
        assert!(!values.is_empty(), "no sample of {name} with {wanted:?} in\n{}", self.0);
        values.iter().sum()
    }

    /// Returns the value of the metric `name` for `backend`.
    #[track_caller]
    pub fn backend(&self, name: &str, backend: impl ToString) -> u64 {
        self.sum(name, &[("backend", &backend.to_string())])
    }

    /// Returns whether there is a back end of that name, and it takes calls.
    pub fn is_up(&self, backend: &str) -> bool {
        let name = format!("backend=\"{backend}\"");
        let is_it = |line: &&str| line.starts_with("tidegate_backend_up{") && line.contains(&name);
        self.0.lines().find(is_it).is_some_and(|line| line.ends_with(" 1"))
    }

    /// Checks that no message was lost.
    ///
    /// # Panics
    /// Panics if Tidegate or the kernel has lost a message.
    #[track_caller]
    pub fn assert_nothing_lost(&self) {
        for name in [
            "messages_dropped_total",
            "udp_overflow_total",
            "udp_unsent_total",
            "crossings_lost_total",
        ] {
            assert_eq!(self.sum(name, &[]), 0, "{name} in\n{}", self.0);
        }
    }

    /// Checks that no state of a call or of a transaction is left.
    ///
    /// # Panics
    /// Panics if a back end has a call or work, a transaction is open, or a message waits.
    #[track_caller]
    pub fn assert_nothing_held(&self) {
        for name in ["backend_calls", "backend_work", "transactions_open", "messages_queued"] {
            assert_eq!(self.sum(name, &[]), 0, "{name} in\n{}", self.0);
        }
    }
}
