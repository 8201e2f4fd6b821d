//! Telling how far the runs are: a bar on a terminal, a line for each point elsewhere.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::outcome::Outcome;
use crate::point::Point;
use crate::runs::Observer;

/// A bar with the time left.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar on standard error.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{bar:32} {pos}/{len} runs, {eta} left  {wide_msg}");
        bar.set_style(style.expect("a template of known keys").progress_chars("━╸─"));
        Self(bar)
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Bar {
    fn begin(&self, total: usize, found: usize) {
        self.0.set_length((total - found) as u64);
        self.0.enable_steady_tick(Duration::from_millis(500));
    }

    fn point(&self, point: &Point, result: &Result<Outcome, String>) {
        self.0.inc(1);
        match result {
            Ok(_) => self.0.set_message(line(point, result)),
            Err(_) => self.0.println(line(point, result)),
        }
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// A line for each point, for what is no terminal.
pub struct Lines<W> {
    out: Mutex<W>,
    total: AtomicUsize,
    done: AtomicUsize,
}

impl<W: std::io::Write> Lines<W> {
    /// Lines written to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Mutex::new(out), total: AtomicUsize::new(0), done: AtomicUsize::new(0) }
    }

    fn write(&self, line: &str) {
        // Whoever no longer reads does not want to know.
        let _ = writeln!(self.out.lock().expect("no thread panics while it holds it"), "{line}");
    }
}

impl<W: std::io::Write + Send> Observer for Lines<W> {
    fn begin(&self, total: usize, found: usize) {
        self.total.store(total - found, SeqCst);
        self.write(&format!("{total} runs, of which {found} were made before"));
    }

    fn point(&self, point: &Point, result: &Result<Outcome, String>) {
        let done = self.done.fetch_add(1, SeqCst) + 1;
        let total = self.total.load(SeqCst);
        self.write(&format!("{done}/{total}  {}", line(point, result)));
    }

    fn end(&self) {}
}

fn line(point: &Point, result: &Result<Outcome, String>) -> String {
    let capacity = point.capacity_cps();
    let came = match result {
        Ok(outcome) => format!("goodput {:.2} of the capacity", outcome.goodput_cps() / capacity),
        Err(what) => format!("failed: {what}"),
    };
    format!("{}, {}: {came}", point.variant.name(), point.place())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::Scenario;
    use crate::worlds::Kind;

    #[test]
    fn lines_tell_what_came_of_each_point() {
        let text = "title = \"t\"\n[emulate]\nserve_us = 1000\n[[variant]]\noverload = {}\n";
        let scenario = Scenario::parse(Path::new("s"), text.as_bytes()).unwrap();
        let point = crate::point::points(&scenario, Kind::Real).remove(0);
        let mut out = Vec::new();
        let lines = Lines::new(&mut out);
        lines.begin(5, 3);
        let outcome = Outcome { good: 250, measured_s: 3.0, ..Outcome::default() };
        lines.point(&point, &Ok(outcome));
        lines.point(&point, &Err("no port".to_owned()));
        let expected = "5 runs, of which 3 were made before\n\
                        1/2  none (arrival, class), run 1: goodput 0.50 of the capacity\n\
                        2/2  none (arrival, class), run 1: failed: no port\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
