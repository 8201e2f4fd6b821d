//! All followers that carry out one load plan.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use crossbeam_channel::Receiver;
use tidegate_io::Clock;
use tidegate_world::Timestamp;

use super::super::progress::Progress;
use super::super::protocol::{FromLeader, Plan};
use super::follower::{End, Follower};
use super::offset::ClockOffset;
use tidegate::trouble::Trouble;

/// Time from the estimate of the last clock to the start. In this time the message `start` must
/// reach each follower.
const START_AFTER: Duration = Duration::from_secs(1);

/// Interval at which the leader handles the messages of followers.
const TICK: Duration = Duration::from_millis(50);

/// Interval of progress reports, and of the message `alive` to the followers.
const SECOND: Duration = Duration::from_secs(1);

/// Maximum time from the message `stop` to the results of a follower. A follower gives its open
/// calls 5 s to end.
const STOP: Duration = Duration::from_secs(15);

/// The followers in the order of the command line, and the clock of the leader.
pub struct Followers {
    all: Vec<Follower>,
    clock: Clock,
    start: Timestamp,
}

/// The accuracy of the common start.
#[derive(Clone, Debug)]
pub struct Precision {
    /// Maximum error of the start of each follower.
    pub errors: Vec<Duration>,
}

impl Precision {
    /// Returns the maximum time between the starts of any two followers.
    pub fn within(&self) -> Duration {
        let mut errors = self.errors.clone();
        errors.sort_unstable();
        errors.iter().rev().take(2).sum()
    }
}

impl Followers {
    /// Connects to the followers with these names.
    pub fn connect(names: &[String]) -> Result<Self, Trouble> {
        if let Some(name) = twice(names) {
            return Err(Trouble::usage(format!("follower {name} is named twice")));
        }
        let all = names.iter().map(|name| Follower::connect(name)).collect::<Result<_, _>>()?;
        Ok(Self { all, clock: Clock::start(), start: Timestamp::ZERO })
    }

    /// Sends the load plan to all followers, and waits until they can begin.
    pub fn prepare(&self, words: &[String], seed: u64) -> Result<(), Trouble> {
        let of = self.all.len() as u32;
        for (index, follower) in (0..).zip(&self.all) {
            follower.send_plan(Plan { words: words.to_vec(), seed, index, of })?;
        }
        self.all.iter().try_for_each(Follower::wait_until_ready)
    }

    /// Estimates the clocks of all followers, and lets all begin at the same instant.
    pub fn start(&mut self) -> Result<Precision, Trouble> {
        let measure = |follower: &Follower| follower.measure_clock(&self.clock);
        let clocks = self.all.iter().map(measure).collect::<Result<Vec<ClockOffset>, _>>()?;
        self.start = self.clock.now() + START_AFTER;
        for (follower, clock) in self.all.iter().zip(&clocks) {
            follower.start(clock.remote(self.start))?;
        }
        let errors = clocks.iter().map(|clock| clock.error(self.start)).collect();
        Ok(Precision { errors })
    }

    /// Waits until each follower has ended. At the first message of `stops`, the followers stop
    /// their calls. At the second, the leader gives up all followers. Calls `tell` every second
    /// with the sums of all counts. Returns the name and the end of each follower.
    pub fn watch(
        mut self,
        stops: &Receiver<()>,
        mut tell: impl FnMut(&Progress),
    ) -> Vec<(String, End)> {
        let (mut stopped, mut told, mut named) = (None, self.clock.now(), BTreeSet::new());
        self.all.iter_mut().for_each(|follower| follower.expect_from(self.start));
        while self.all.iter().any(|follower| follower.end().is_none()) {
            let signal = stops.recv_timeout(TICK).is_ok();
            let now = self.clock.now();
            self.all.iter_mut().for_each(|follower| follower.poll(now));
            match stopped {
                None if signal => {
                    stopped = Some(now);
                    self.tell_all(&FromLeader::Stop);
                }
                Some(_) if signal => self.lose_all("the leader was interrupted twice"),
                Some(at) if now.since(at) > STOP => {
                    self.lose_all("the follower sent no results after the stop")
                }
                _ => {}
            }
            if now.since(told) >= SECOND {
                told = now;
                self.tell_all(&FromLeader::Alive);
                tell(&self.progress());
            }
            self.name_lost(&mut named, now);
        }
        let end = |follower: Follower| {
            let (name, end) = follower.into_end();
            (name, end.expect("all followers have ended"))
        };
        self.all.into_iter().map(end).collect()
    }

    fn progress(&self) -> Progress {
        self.all.iter().fold(Progress::default(), |mut sum, follower| {
            sum.add(follower.progress());
            sum
        })
    }

    fn lose_all(&mut self, why: &str) {
        self.all.iter_mut().for_each(|follower| follower.lose(why.to_owned()));
    }

    fn tell_all(&mut self, message: &FromLeader) {
        self.all.iter_mut().for_each(|follower| follower.tell(message));
    }

    /// Prints a line for each lost follower. `named` contains the indices of those that have been
    /// printed.
    fn name_lost(&self, named: &mut BTreeSet<usize>, now: Timestamp) {
        for (number, follower) in self.all.iter().enumerate() {
            if let Some(End::Lost { why, .. }) = follower.end()
                && named.insert(number)
            {
                let (name, after_s) = (follower.name(), now.since(self.start).as_secs_f64());
                let _ = writeln!(
                    anstream::stderr(),
                    "tidegate-lab load: lost follower {name} after {after_s:.1} s: {why}"
                );
            }
        }
    }
}

/// Returns a name that occurs twice, or `None` if all names are different.
fn twice(names: &[String]) -> Option<&String> {
    let mut seen = BTreeSet::new();
    names.iter().find(|name| !seen.insert(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starts_of_two_followers_differ_by_at_most_both_errors() {
        let within = |us: &[u64]| {
            let errors = us.iter().map(|&us| Duration::from_micros(us)).collect();
            Precision { errors }.within().as_micros()
        };
        assert_eq!(within(&[10, 300, 20, 40]), 340);
        assert_eq!(within(&[7]), 7);
    }

    #[test]
    fn a_follower_is_named_once() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(twice(&names(&["a", "b"])), None);
        assert_eq!(twice(&names(&["a", "b", "a"])), Some(&"a".to_owned()));
    }
}
