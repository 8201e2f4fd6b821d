//! The demonstration: two servers under the same load, one protected and one not.

pub mod plan;
mod stage;
pub(crate) mod story;
pub mod summary;
mod terminal;
mod view;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use plan::{DEADLINE, MULTIPLES, Plan, Side};
use stage::Stage;
use story::{Act, Story};
use summary::Summary;
pub use terminal::Screen;

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

/// Shows the demonstration on `screen`. Returns `None` if the user stopped it early.
///
/// # Errors
/// Returns an error when a server, a socket or the terminal fails.
pub fn run(options: &Options<'_>, screen: &mut Screen) -> io::Result<Option<Summary>> {
    let mut stages = Vec::new();
    for side in Side::BOTH {
        stages.push(Stage::start(side, options.program, options.seed)?);
    }
    let mut show = Show { story: Story::new(options.plan), stages, began: Instant::now() };
    let whole = show.play(options.seed, screen)?;
    let summary = whole.then(|| Summary::of(&show.story, options.seed));
    show.stages.into_iter().try_for_each(Stage::finish)?;
    Ok(summary)
}

/// The two servers, and the observations of each.
struct Show {
    story: Story,
    stages: Vec<Stage>,
    began: Instant,
}

impl Show {
    /// Offers all loads to both servers, one after the other. Returns `false` if the user stopped
    /// early.
    fn play(&mut self, seed: u64, screen: &mut Screen) -> io::Result<bool> {
        let plan = self.story.plan;
        for phase in 0..MULTIPLES.len() {
            self.story.act = Act::Load(phase);
            for stage in &mut self.stages {
                stage.call(&plan, phase, seed)?;
            }
            if !self.watch(plan.load + DEADLINE, screen)? {
                return Ok(false);
            }
            for (stage, seen) in self.stages.iter_mut().zip(&mut self.story.sides) {
                seen.phases.push(stage.hang_up(&plan, phase)?);
            }
            self.story.act = Act::Pause(phase);
            if phase + 1 < MULTIPLES.len() && !self.watch(plan.pause, screen)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Updates the display for `time`. Returns `false` if the user stopped early.
    fn watch(&mut self, time: Duration, screen: &mut Screen) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let now = Instant::now();
            self.story.elapsed = now - self.began;
            for (stage, seen) in self.stages.iter().zip(&mut self.story.sides) {
                stage.look(self.story.elapsed, seen)?;
            }
            screen.show(&self.story)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if !screen.wait(left.min(view::REFRESH))? {
                return Ok(false);
            }
        }
    }
}
