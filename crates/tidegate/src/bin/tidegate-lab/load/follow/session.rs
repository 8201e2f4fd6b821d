//! The work of a follower for one leader.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, select};
use tidegate_agent::{CallerResult, Share};
use tidegate_io::Stop;
use tidegate_world::Timestamp;

use super::super::LEAD;
use super::super::calls::{Calls, Ended};
use super::super::plan;
use super::super::protocol::{ANSWER, FromFollower, FromLeader, PREPARATION, Plan, Version};
use super::super::streams::TlsArgs;
use super::super::wire::{Broken, Wire};
use super::entrance::Busy;
use super::tell;
use tidegate::trouble::Trouble;

/// Maximum time until a leader sends its first message. It is short, because silent peers may be
/// ahead of a leader in the queue. A leader at the end of a full queue is still greeted within
/// [`ANSWER`].
const GREETING: Duration = Duration::from_secs(1);

/// Maximum time from the message `start` to the start of the calls.
const START_MAX: Duration = Duration::from_secs(60);

/// The options that this machine's own command line sets.
pub struct Local {
    /// Local address of the traffic.
    pub bind: Option<SocketAddr>,
    /// Certificates of this machine.
    pub tls: TlsArgs,
}

/// The end of a session.
pub enum Outcome {
    /// The follower sent its results.
    Done {
        /// True if the load plan was carried out to its end.
        is_complete: bool,
    },
    /// The follower had a load plan, but did not carry it out to its end.
    Failed(String),
    /// The peer sent no valid load plan.
    NoPlan(String),
    /// A signal stopped the follower before the calls began.
    Stopped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { is_complete: true } => f.write_str("the load plan was carried out"),
            Self::Done { is_complete: false } => f.write_str("the load plan was stopped"),
            Self::Failed(why) => write!(f, "the load plan failed: {why}"),
            Self::NoPlan(why) => write!(f, "no load plan: {why}"),
            Self::Stopped => f.write_str("stopped by a signal"),
        }
    }
}

/// The reason why a session ends early.
enum Quit {
    /// The follower rejects the leader, and sends it this reason.
    Reject(String),
    /// The leader cannot be reached, or does not need the follower any more.
    Leave(String),
    /// A signal stops the follower.
    Stop,
}

impl From<Broken> for Quit {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Invalid(_) | Broken::TooLong(_) | Broken::Silent(_) => {
                Self::Reject(broken.to_string())
            }
            Broken::Closed | Broken::Failed(_) => Self::Leave(broken.to_string()),
        }
    }
}

impl From<io::Error> for Quit {
    fn from(error: io::Error) -> Self {
        Self::Leave(error.to_string())
    }
}

impl From<Trouble> for Quit {
    fn from(trouble: Trouble) -> Self {
        Self::Reject(trouble.to_string())
    }
}

/// The connection to one leader.
pub struct Session<'a> {
    wire: Wire<FromLeader>,
    peer: SocketAddr,
    local: &'a Local,
    busy: &'a Busy,
    stops: &'a Receiver<()>,
}

impl<'a> Session<'a> {
    /// Begins a session on a new connection.
    pub fn new(
        stream: TcpStream,
        local: &'a Local,
        busy: &'a Busy,
        stops: &'a Receiver<()>,
    ) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        Ok(Self { wire: Wire::open(stream)?, peer, local, busy, stops })
    }

    /// Carries out the load plan of the leader.
    pub fn run(self) -> Outcome {
        let mut has_plan = false;
        let outcome = self.serve(&mut has_plan);
        self.busy.set(false);
        let why = match outcome {
            Ok(is_complete) => return Outcome::Done { is_complete },
            Err(Quit::Leave(why)) => format!("{}: {why}", self.peer),
            Err(Quit::Reject(why)) => {
                let said = format!("{}: {why}", self.peer);
                self.wire.close_with(&FromFollower::Rejected(why));
                said
            }
            Err(Quit::Stop) => {
                let why = "it was stopped by a signal".to_owned();
                self.wire.close_with(&FromFollower::Rejected(why));
                return Outcome::Stopped;
            }
        };
        if has_plan { Outcome::Failed(why) } else { Outcome::NoPlan(why) }
    }

    /// Carries out the load plan of the leader. Sets `has_plan` when the load plan has arrived.
    /// Returns whether the load plan was carried out to its end: every call was offered and has
    /// ended, and nothing stopped the calls.
    fn serve(&self, has_plan: &mut bool) -> Result<bool, Quit> {
        self.wire.send(&FromFollower::Hello(Version::own()))?;
        let plan = self.plan()?;
        *has_plan = true;
        let calls = self.prepare(&plan)?;
        self.wire.send(&FromFollower::Ready)?;
        let start = self.start(&calls)?;
        self.wait(&calls, start)?;
        let (ended, was_stopped) = self.call(calls, start)?;
        let is_complete = ended.is_complete && !was_stopped;
        let result = CallerResult::new(ended.report.stats, ended.report.usage);
        // The leader may send its next load plan as soon as it has the result. So the flag is
        // cleared before the result is sent.
        self.busy.set(false);
        self.wire.send(&FromFollower::Result { is_complete, result: Box::new(result) })?;
        Ok(is_complete)
    }

    /// Waits for the greeting of the leader, and then for its load plan. After the greeting, the
    /// follower rejects other leaders.
    fn plan(&self) -> Result<Plan, Quit> {
        match self.next(GREETING)? {
            FromLeader::Hello(version) => {
                Version::check(&version, &Version::own()).map_err(Quit::Reject)?;
            }
            other => return Err(unexpected(&other)),
        }
        self.busy.set(true);
        // The leader may first connect to further followers, so this wait may be long.
        match self.next(PREPARATION)? {
            FromLeader::Plan(plan) => Ok(plan),
            other => Err(unexpected(&other)),
        }
    }

    fn prepare(&self, plan: &Plan) -> Result<Calls, Quit> {
        let Plan { words, seed, index, of } = plan;
        let share = Share::new(*index, *of).ok_or_else(|| {
            let max = Share::PARTS_MAX;
            Quit::Reject(format!("part {index} of {of}: a load plan has at most {max} parts"))
        })?;
        let mut args = plan::parse(words).map_err(|error| Quit::Reject(error.to_string()))?;
        args.set_local(self.local.bind, &self.local.tls);
        let calls = args.open(share, *seed)?;
        // The debug format escapes control characters, so the text of a peer cannot control the
        // terminal.
        let text = format!("{:?}", words.join(" "));
        tell(format_args!("load plan of {}, part {} of {of}: {text}", self.peer, index + 1));
        Ok(calls)
    }

    /// Tells the leader the current time each time that the leader asks for it, until the leader
    /// sets the start. Returns the start.
    fn start(&self, calls: &Calls) -> Result<Timestamp, Quit> {
        let deadline = calls.now() + PREPARATION;
        let at_ns = loop {
            match self.next(deadline.since(calls.now()))? {
                FromLeader::Ping => {
                    self.wire.send(&FromFollower::Clock { at_ns: calls.now().as_nanos() })?;
                }
                FromLeader::Start { at_ns } => break at_ns,
                other => return Err(unexpected(&other)),
            }
        };
        let (start, now) = (Timestamp::from_nanos(at_ns), calls.now());
        if start < now + LEAD {
            let lead = LEAD.as_millis();
            return Err(Quit::Reject(format!(
                "the leader's message `start` came too late: it must come at least {lead} ms \
                 before the first call; run `load lead` again"
            )));
        }
        if start > now + START_MAX {
            let max = START_MAX.as_secs();
            return Err(Quit::Reject(format!(
                "the leader asks for a start in more than {max} s; the limit is {max} s"
            )));
        }
        Ok(start)
    }

    /// Waits until [`LEAD`] before the start.
    fn wait(&self, calls: &Calls, start: Timestamp) -> Result<(), Quit> {
        loop {
            let left = (start - LEAD).since(calls.now());
            if left.is_zero() {
                return Ok(());
            }
            match self.poll(left)? {
                None | Some(FromLeader::Alive) => {}
                Some(other) => return Err(unexpected(&other)),
            }
        }
    }

    /// Makes the calls. Returns the results, and whether the leader stopped the calls or was lost.
    fn call(&self, calls: Calls, start: Timestamp) -> Result<(Ended, bool), Quit> {
        let (over, is_over) = bounded::<()>(0);
        let watch = thread::Builder::new().name("leader".to_owned()).spawn({
            let (incoming, stop) = (self.wire.incoming().clone(), calls.stop());
            move || watch(&incoming, &is_over, &stop)
        })?;
        let (sender, gauges) = (self.wire.sender()?, calls.gauges());
        let mut is_reached = true;
        let ended = calls.run(start, move || {
            // After an error no more progress is sent. The connection is broken, and `watch` stops
            // the calls.
            is_reached =
                is_reached && sender.send(&FromFollower::Progress(gauges.progress())).is_ok();
        });
        drop(over);
        let was_stopped = watch.join().unwrap_or(true);
        Ok((ended?, was_stopped))
    }

    /// Returns the next message, which must come within this time.
    fn next(&self, wait: Duration) -> Result<FromLeader, Quit> {
        self.poll(wait)?.ok_or_else(|| Broken::Silent(wait).into())
    }

    /// Returns the next message, or `None` if none comes within this time.
    fn poll(&self, wait: Duration) -> Result<Option<FromLeader>, Quit> {
        select! {
            recv(self.wire.incoming()) -> received => match received {
                Ok(Ok(FromLeader::Stop)) => {
                    Err(Quit::Leave("the leader has stopped the load".to_owned()))
                }
                Ok(received) => Ok(Some(received?)),
                Err(_) => Err(Broken::Closed.into()),
            },
            recv(self.stops) -> _ => Err(Quit::Stop),
            default(wait) => Ok(None),
        }
    }
}

/// Stops the calls if the leader sends `stop` or is lost. Returns whether this happened before the
/// calls were over.
fn watch(
    leader: &Receiver<Result<FromLeader, Broken>>,
    is_over: &Receiver<()>,
    stop: &Stop,
) -> bool {
    loop {
        select! {
            recv(is_over) -> _ => return false,
            recv(leader) -> received => if let Ok(Ok(FromLeader::Alive)) = received {
                continue;
            },
            default(ANSWER) => {}
        }
        stop.request();
        return true;
    }
}

fn unexpected(message: &FromLeader) -> Quit {
    let name = match message {
        FromLeader::Hello(_) => "hello",
        FromLeader::Plan(_) => "plan",
        FromLeader::Ping => "ping",
        FromLeader::Start { .. } => "start",
        FromLeader::Alive => "alive",
        FromLeader::Stop => "stop",
    };
    Quit::Reject(format!("the leader sent the message `{name}` at the wrong time"))
}
