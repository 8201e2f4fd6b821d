//! Reports the progress of runs: on a terminal as a bar, elsewhere as one line for each run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::outcome::Outcome;
use crate::prediction;
use crate::run_spec::RunSpec;
use crate::runs::Observer;
use crate::worlds::Kind;

/// A progress bar with the predicted time of the runs that are still to be made.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    total: AtomicUsize,
    done: AtomicUsize,
}

impl Bar {
    /// Creates a bar on standard error.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:32} {prefix}, {eta} left  {wide_msg}");
        bar.set_style(style.expect("a template of known keys").progress_chars("━╸─"));
        Self { bar, total: AtomicUsize::new(0), done: AtomicUsize::new(0) }
    }

    fn count(&self, done: usize) {
        self.bar.set_prefix(format!("{done}/{} runs", self.total.load(SeqCst)));
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Bar {
    fn on_start(&self, missing: &[&RunSpec], found: usize) {
        self.total.store(missing.len(), SeqCst);
        self.done.store(0, SeqCst);
        self.bar.set_length(missing.iter().map(|run| weight(run)).sum());
        self.count(0);
        self.bar.println(head(missing, found));
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn ended(&self, run: &RunSpec, result: &Result<Outcome, String>) {
        self.count(self.done.fetch_add(1, SeqCst) + 1);
        self.bar.inc(weight(run));
        match result {
            Ok(_) => self.bar.set_message(line(run, result)),
            Err(_) => self.bar.println(line(run, result)),
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the predicted duration of a run in ms, at least 1.
fn weight(run: &RunSpec) -> u64 {
    1 + (prediction::seconds(run) * 1e3) as u64
}

/// Returns a sentence with the number of runs and the predicted CPU time of the `missing` ones.
fn head(missing: &[&RunSpec], found: usize) -> String {
    let mut head = format!("{} runs, of which {found} were made before", found + missing.len());
    let simulated = || missing.iter().filter(|run| run.world == Kind::Sim);
    if simulated().next().is_some() {
        let deliveries: f64 = simulated().map(|run| prediction::deliveries(run)).sum();
        let cpu: Duration = simulated().map(|run| prediction::simulated(run)).sum();
        head += &format!(
            "; {:.1} million deliveries expected, about {:.0} s of CPU time",
            deliveries / 1e6,
            cpu.as_secs_f64().ceil()
        );
    }
    head
}

/// Progress output for anything but a terminal: one line for each run.
pub struct Lines<W> {
    out: Mutex<W>,
    total: AtomicUsize,
    done: AtomicUsize,
}

impl<W: std::io::Write> Lines<W> {
    /// Creates a progress output that writes its lines to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Mutex::new(out), total: AtomicUsize::new(0), done: AtomicUsize::new(0) }
    }

    fn write(&self, line: &str) {
        // A failure to write does not matter: the reader of the output has ended.
        let _ = writeln!(self.out.lock().expect("no thread panics while it holds it"), "{line}");
    }
}

impl<W: std::io::Write + Send> Observer for Lines<W> {
    fn on_start(&self, missing: &[&RunSpec], found: usize) {
        self.total.store(missing.len(), SeqCst);
        self.done.store(0, SeqCst);
        self.write(&head(missing, found));
    }

    fn ended(&self, run: &RunSpec, result: &Result<Outcome, String>) {
        let done = self.done.fetch_add(1, SeqCst) + 1;
        let total = self.total.load(SeqCst);
        self.write(&format!("{done}/{total}  {}", line(run, result)));
    }

    fn end(&self) {}
}

fn line(run: &RunSpec, result: &Result<Outcome, String>) -> String {
    let capacity = run.capacity_cps();
    let came = match result {
        Ok(outcome) => format!("goodput {:.2} of the capacity", outcome.goodput_cps() / capacity),
        Err(what) => format!("failed: {what}"),
    };
    format!("{}, {}: {came}", run.variant.name(), run.place())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;

    #[test]
    fn the_duration_of_a_simulation_is_estimated_first() {
        let text = "[emulate]\nserve_us = 1000\n[schedule]\nwarm_up_s = 0\n\
                    measured_s = 600\n[[variant]]\noverload = {}\n";
        let run = planned(text, Kind::Sim).remove(0);
        let expected = "2 runs, of which 1 were made before; 1.2 million deliveries expected, \
                        about 5 s of CPU time";
        assert_eq!(head(&[&run], 1), expected);
    }

    #[test]
    fn lines_report_the_result_of_each_run() {
        let text = "[emulate]\nserve_us = 1000\n[[variant]]\noverload = {}\n";
        let run = planned(text, Kind::Real).remove(0);
        let mut out = Vec::new();
        let lines = Lines::new(&mut out);
        lines.on_start(&[&run, &run], 3);
        let outcome = Outcome { good: 250, measured_s: 3.0, ..Outcome::default() };
        lines.ended(&run, &Ok(outcome));
        lines.ended(&run, &Err("no port".to_owned()));
        let expected = "5 runs, of which 3 were made before\n\
                        1/2  tide (arrival, class), run 1: goodput 0.50 of the capacity\n\
                        2/2  tide (arrival, class), run 1: failed: no port\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
