//! The demonstration: two servers under the same load, one with overload control and one without.

pub mod plan;
mod stage;
pub(crate) mod story;
pub mod summary;
mod view;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use plan::{DEADLINE, MULTIPLES, Plan, Side};
use ratatui::Frame;
use stage::Stage;
use story::{Act, Story};
use summary::Summary;

/// Interval between two lines of plain output.
const LINE: Duration = Duration::from_secs(1);

/// The parameters of a demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The server program.
    pub program: &'a Path,
    /// The schedule of the loads.
    pub plan: Plan,
    /// Seed of the calls' arrivals.
    pub seed: u64,
}

/// The output of the demonstration.
pub trait Output {
    /// Draws a picture with `draw`, or prints the line that `line` returns. Prints nothing if
    /// `line` returns `None`.
    ///
    /// # Errors
    /// Returns an error if the output fails.
    fn show(
        &mut self,
        draw: &mut dyn FnMut(&mut Frame<'_>),
        line: &mut dyn FnMut() -> Option<String>,
    ) -> io::Result<()>;

    /// Waits until `end`, or until the user stops. Returns `false` if the user stops.
    ///
    /// # Errors
    /// Returns an error if the keyboard cannot be read.
    fn wait(&mut self, end: Instant) -> io::Result<bool>;
}

/// Shows the demonstration on `output`. Returns `None` if the user stopped it early.
///
/// # Errors
/// Returns an error when a server, a socket or the output fails.
pub fn run(options: &Options<'_>, output: &mut dyn Output) -> io::Result<Option<Summary>> {
    let mut stages = Vec::new();
    for side in Side::ALL {
        stages.push(Stage::start(side, options.program, options.seed)?);
    }
    let (story, began) = (Story::new(options.plan), Instant::now());
    let mut show = Show { story, stages, began, next_line: Duration::ZERO };
    let whole = show.play(options.seed, output)?;
    let summary = whole.then(|| Summary::of(&show.story, options.seed));
    show.stages.into_iter().try_for_each(Stage::finish)?;
    Ok(summary)
}

/// The two servers, and the observations of each.
struct Show {
    story: Story,
    stages: Vec<Stage>,
    began: Instant,
    /// Time of the next line of plain output.
    next_line: Duration,
}

impl Show {
    /// Offers all loads to both servers, one after the other. Returns `false` if the user stopped
    /// early.
    fn play(&mut self, seed: u64, output: &mut dyn Output) -> io::Result<bool> {
        let plan = self.story.plan;
        for phase in 0..MULTIPLES.len() {
            self.story.act = Act::Load(phase);
            for stage in &mut self.stages {
                stage.call(&plan, phase, seed)?;
            }
            if !self.watch(plan.load + DEADLINE, output)? {
                return Ok(false);
            }
            for (stage, seen) in self.stages.iter_mut().zip(&mut self.story.sides) {
                seen.phases.push(stage.hang_up(&plan, phase)?);
            }
            self.story.act = Act::Pause(phase);
            if phase + 1 < MULTIPLES.len() && !self.watch(plan.pause, output)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Updates the display for `time`. Returns `false` if the user stopped early.
    fn watch(&mut self, time: Duration, output: &mut dyn Output) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let now = Instant::now();
            self.story.elapsed = now - self.began;
            for (stage, seen) in self.stages.iter().zip(&mut self.story.sides) {
                stage.look(self.story.elapsed, seen)?;
            }
            let (story, next_line) = (&self.story, &mut self.next_line);
            let mut draw = |frame: &mut Frame<'_>| view::draw(story, frame);
            let mut line = || {
                (story.elapsed >= *next_line).then(|| {
                    *next_line = story.elapsed + LINE;
                    view::line(story)
                })
            };
            output.show(&mut draw, &mut line)?;
            let now = Instant::now();
            if now >= until {
                return Ok(true);
            }
            if !output.wait(until.min(now + view::REFRESH))? {
                return Ok(false);
            }
        }
    }
}
