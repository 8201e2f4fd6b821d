//! The leader's side of the connection to one follower.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use tidegate_agent::CallerResult;
use tidegate_io::Clock;
use tidegate_world::Timestamp;

use super::super::follow;
use super::super::progress::Progress;
use super::super::protocol::{ANSWER, FromFollower, FromLeader, Plan, Version};
use super::super::wire::{Broken, Wire};
use super::offset::{ClockOffset, RoundTrip};
use tidegate::trouble::Trouble;

/// Maximum time for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Number of round trips from which the leader estimates the clock of a follower.
const ROUND_TRIPS: usize = 8;

/// A follower to which the leader has connected.
pub struct Follower {
    name: String,
    wire: Wire<FromFollower>,
    progress: Progress,
    /// Arrival of the last message, on the clock of the leader. The silence of the follower counts
    /// from this time.
    heard: Timestamp,
    end: Option<End>,
}

/// The end of a follower's work.
#[derive(Debug)]
pub enum End {
    /// The follower sent its results.
    Done {
        /// True if every call was offered and has ended, and nothing stopped the calls.
        is_complete: bool,
        /// Counts and resources.
        result: Box<CallerResult>,
    },
    /// The leader has lost the follower.
    Lost {
        /// The reason.
        why: String,
        /// The counts that the follower sent last.
        progress: Progress,
    },
}

impl Follower {
    /// Connects to a follower, checks its version, and greets it. The follower waits for the
    /// greeting only for a short time.
    pub fn connect(name: &str) -> Result<Self, Trouble> {
        let wrong = |error: String| Trouble::usage(format!("follower {name}: {error}"));
        let address = resolve(name).map_err(wrong)?;
        let unreachable = |error: io::Error| {
            wrong(format!("cannot connect: {error}; start `tidegate-lab load follow` at {address}"))
        };
        let stream = TcpStream::connect_timeout(&address, CONNECT).map_err(unreachable)?;
        let wire = Wire::open(stream).map_err(|error| wrong(error.to_string()))?;
        let (name, progress) = (name.to_owned(), Progress::default());
        let follower = Self { name, wire, progress, heard: Timestamp::ZERO, end: None };
        match follower.next()? {
            FromFollower::Hello(version) => {
                let checked = Version::check(&Version::own(), &version);
                checked.map_err(|why| follower.trouble(why))?;
            }
            other => return Err(follower.unexpected(&other)),
        }
        follower.send(&FromLeader::Hello(Version::own()))?;
        Ok(follower)
    }

    /// Sends the load plan. Does not wait until the follower has prepared it.
    pub fn send_plan(&self, plan: Plan) -> Result<(), Trouble> {
        self.send(&FromLeader::Plan(plan))
    }

    /// Waits until the follower can begin.
    pub fn wait_until_ready(&self) -> Result<(), Trouble> {
        match self.next()? {
            FromFollower::Ready => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Estimates the difference between the follower's clock and `clock`, the clock of the leader.
    pub fn measure_clock(&self, clock: &Clock) -> Result<ClockOffset, Trouble> {
        let round_trip = |_| {
            let sent = clock.now();
            self.send(&FromLeader::Ping)?;
            match self.next()? {
                FromFollower::Clock { at_ns } => {
                    let remote = Timestamp::from_nanos(at_ns);
                    Ok(RoundTrip { sent, received: clock.now(), remote })
                }
                other => Err(self.unexpected(&other)),
            }
        };
        let trips = (0..ROUND_TRIPS).map(round_trip).collect::<Result<Vec<_>, Trouble>>()?;
        Ok(ClockOffset::estimate(&trips).expect("there are round trips"))
    }

    /// Sets the instant of the start, on the clock of the follower.
    pub fn start(&self, at: Timestamp) -> Result<(), Trouble> {
        self.send(&FromLeader::Start { at_ns: at.as_nanos() })
    }

    /// Sets the time from which the silence of the follower counts. It may be in the future.
    pub fn expect_from(&mut self, at: Timestamp) {
        self.heard = at;
    }

    /// Sends a message to a follower that makes calls. If that fails, the follower is lost.
    pub fn tell(&mut self, message: &FromLeader) {
        if self.end.is_none()
            && let Err(error) = self.wire.send(message)
        {
            // The follower may have sent the reason before it closed the connection.
            self.read(self.heard);
            self.lose(format!("the connection failed: {error}"));
        }
    }

    /// Handles the messages that have arrived at `now`. A follower that is silent for too long is
    /// lost.
    pub fn poll(&mut self, now: Timestamp) {
        self.read(now);
        if self.end.is_none() && now.since(self.heard) > ANSWER {
            self.lose(Broken::Silent(ANSWER).to_string());
        }
    }

    fn read(&mut self, now: Timestamp) {
        while self.end.is_none()
            && let Some(received) = self.wire.poll()
        {
            self.heard = now;
            match received {
                Ok(FromFollower::Progress(progress)) => self.progress = progress,
                Ok(FromFollower::Result { is_complete, result }) => {
                    self.end = Some(End::Done { is_complete, result });
                }
                Ok(FromFollower::Rejected(why)) => self.lose(why),
                Ok(other) => {
                    let why = format!(
                        "the follower sent the message `{}` at the wrong time",
                        name_of(&other)
                    );
                    self.lose(why);
                }
                Err(broken) => self.lose(broken.to_string()),
            }
        }
    }

    /// Gives up the follower for the reason `why`, unless it has ended.
    pub fn lose(&mut self, why: String) {
        if self.end.is_none() {
            self.end = Some(End::Lost { why, progress: self.progress });
        }
    }

    /// Returns the name of the follower, as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the last counts of the calls.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the end of the follower's work, or `None` if the follower is still making calls.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Ends the connection. Returns the name, and the end if there is one.
    pub fn into_end(self) -> (String, Option<End>) {
        (self.name, self.end)
    }

    fn send(&self, message: &FromLeader) -> Result<(), Trouble> {
        self.wire.send(message).map_err(|error| {
            // The follower may have sent the reason before it closed the connection.
            match self.wire.receive(ANSWER) {
                Ok(rejected @ FromFollower::Rejected(_)) => self.unexpected(&rejected),
                _ => self.trouble(format!("the connection failed: {error}")),
            }
        })
    }

    fn next(&self) -> Result<FromFollower, Trouble> {
        self.wire.receive(ANSWER).map_err(|broken| self.trouble(broken.to_string()))
    }

    fn unexpected(&self, message: &FromFollower) -> Trouble {
        match message {
            FromFollower::Rejected(why) => self.trouble(why.clone()),
            other => self.trouble(format!(
                "the follower sent the message `{}` at the wrong time",
                name_of(other)
            )),
        }
    }

    /// Returns the error for a follower that fails before the start.
    fn trouble(&self, why: String) -> Trouble {
        Trouble::usage(format!("follower {}: {why}", self.name))
    }
}

fn name_of(message: &FromFollower) -> &'static str {
    match message {
        FromFollower::Hello(_) => "hello",
        FromFollower::Rejected(_) => "rejected",
        FromFollower::Ready => "ready",
        FromFollower::Clock { .. } => "clock",
        FromFollower::Progress(_) => "progress",
        FromFollower::Result { .. } => "result",
    }
}

/// Returns the address of `HOST[:PORT]`.
fn resolve(name: &str) -> Result<SocketAddr, String> {
    let bare = name.trim_matches(['[', ']']);
    name.to_socket_addrs()
        .or_else(|_| (bare, follow::PORT).to_socket_addrs())
        .map_err(|error| format!("expected HOST[:PORT]: {error}"))?
        .next()
        .ok_or_else(|| "the name has no address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_follower_may_be_left_out() {
        for (name, address) in [
            ("127.0.0.1", "127.0.0.1:30045"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:30045"),
            ("::1", "[::1]:30045"),
        ] {
            assert_eq!(resolve(name), Ok(address.parse().unwrap()), "{name}");
        }
        for name in ["", "127.0.0.1:x", "a b"] {
            assert!(resolve(name).is_err(), "{name}");
        }
    }
}
