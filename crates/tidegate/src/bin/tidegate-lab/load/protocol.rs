//! The messages of a leader and its followers, in the order in which they are sent:
//!
//! | leader | follower |
//! | --- | --- |
//! | | `hello` with its version |
//! | `hello` with its version, at once | |
//! | `plan`, when it is connected to all followers | `ready` |
//! | `ping`, several times | `clock`, each time |
//! | `start` | |
//! | `alive`, every second | `progress`, every second |
//! | `stop`, if the run is interrupted | `result` |
//!
//! Instead of any of its messages, a follower may send `rejected` and close the connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_agent::CallerResult;

use super::progress::Progress;
use super::wire::Message;

/// Version of these messages. It changes when a message changes.
const FORMAT: u32 = 2;

/// Maximum time that either side waits for the next message, except while a follower waits for the
/// other followers.
pub const ANSWER: Duration = Duration::from_secs(10);

/// Maximum time that a follower waits until the leader is connected to all followers, and then
/// until all followers are ready.
pub const PREPARATION: Duration = Duration::from_secs(60);

/// Maximum number of words in the command of a load plan.
const WORDS_MAX: usize = 256;

/// Maximum number of printed characters of a text that a peer sent.
const REASON_MAX: usize = 400;

/// Maximum sum of all counts in a result, so that sums of the results of all followers do not
/// overflow.
const COUNTS_MAX: u64 = 1 << 56;

/// The version of a program and of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Version {
    program: String,
    format: u32,
}

impl Version {
    /// Returns the version of this program.
    pub fn own() -> Self {
        Self { program: env!("CARGO_PKG_VERSION").to_owned(), format: FORMAT }
    }

    /// Returns an error if a leader and a follower of these versions cannot work together.
    pub fn check(leader: &Self, follower: &Self) -> Result<(), String> {
        if leader == follower {
            return Ok(());
        }
        let text = |version: &Self| {
            printable(&format!("{} (messages {})", version.program, version.format))
        };
        Err(format!(
            "the leader has version {}, the follower has version {}: install the same version of \
             tidegate-lab on all machines",
            text(leader),
            text(follower)
        ))
    }
}

/// A load plan: the load that all followers offer together, and the number of one part.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Plan {
    /// The command and its arguments, such as `uac 127.0.0.1:5070 --rate 10`.
    pub words: Vec<String>,
    /// Seed of the run. It is set even if `words` does not contain `--seed`.
    pub seed: u64,
    /// Number of this follower, from 0.
    pub index: u32,
    /// Number of followers.
    pub of: u32,
}

/// A message of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromLeader {
    /// The leader's first message, with its version.
    Hello(Version),
    /// The load plan.
    Plan(Plan),
    /// A request for the time.
    Ping,
    /// The instant of the start, on the clock of the follower.
    Start {
        /// Nanoseconds of the follower's clock.
        at_ns: u64,
    },
    /// A sign that the leader still exists. The leader sends it every second.
    Alive,
    /// The follower must stop the calls.
    Stop,
}

/// A message of a follower.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromFollower {
    /// The follower's first message, with its version.
    Hello(Version),
    /// The follower rejects the leader or gives up its load plan, for this reason.
    Rejected(String),
    /// The follower can begin.
    Ready,
    /// The time of the follower, in response to a [`Ping`](FromLeader::Ping).
    Clock {
        /// Nanoseconds of the follower's clock.
        at_ns: u64,
    },
    /// Counts of the calls so far.
    Progress(Progress),
    /// The calls have ended.
    Result {
        /// True if every call was offered and has ended, and nothing stopped the calls.
        is_complete: bool,
        /// Counts and resources.
        result: Box<CallerResult>,
    },
}

impl Message for FromLeader {
    const LENGTH_MAX: usize = 64 << 10;

    fn read(line: &[u8]) -> Result<Self, String> {
        let message = serde_json::from_slice(line)
            .map_err(|_| "it is not a message of `tidegate-lab load lead`".to_owned())?;
        match &message {
            Self::Plan(plan) if plan.words.len() > WORDS_MAX => {
                let count = plan.words.len();
                Err(format!(
                    "the command has {count} words, but the limit is {WORDS_MAX}; shorten the \
                     command after `--`"
                ))
            }
            _ => Ok(message),
        }
    }
}

impl Message for FromFollower {
    /// The longest message is a result. It has six histograms, each of at most 24,000 buckets of 20
    /// bytes.
    const LENGTH_MAX: usize = 4 << 20;

    fn read(line: &[u8]) -> Result<Self, String> {
        let read = || -> serde_json::Result<(u64, Self)> {
            let value: Value = serde_json::from_slice(line)?;
            Ok((counts(&value), serde_json::from_value(value)?))
        };
        match read() {
            Ok((counts, Self::Result { .. })) if counts > COUNTS_MAX => {
                Err("the counts of a result are too large".to_owned())
            }
            Ok((_, Self::Rejected(reason))) => Ok(Self::Rejected(printable(&reason))),
            Ok((_, message)) => Ok(message),
            Err(_) => Err("it is not a message of `tidegate-lab load follow`".to_owned()),
        }
    }
}

/// Returns the sum of all whole numbers in a value.
fn counts(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::Array(values) => values.iter().map(counts).fold(0, u64::saturating_add),
        Value::Object(fields) => fields.values().map(counts).fold(0, u64::saturating_add),
        Value::Null | Value::Bool(_) | Value::String(_) => 0,
    }
}

/// Returns the beginning of a peer's text, at most [`REASON_MAX`] characters, with spaces instead
/// of control characters. So the text is safe to print.
pub fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(REASON_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_agent::{CallerStats, Usage};

    use super::*;

    fn result(offered: u64) -> Vec<u8> {
        let stats = CallerStats { offered, ..CallerStats::default() };
        let result = Box::new(CallerResult::new(stats, Usage::default()));
        serde_json::to_vec(&FromFollower::Result { is_complete: true, result }).unwrap()
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let words = vec!["uac".to_owned(), "127.0.0.1".to_owned()];
        for message in [
            FromLeader::Hello(Version::own()),
            FromLeader::Plan(Plan { words, seed: u64::MAX, index: 1, of: 2 }),
            FromLeader::Ping,
            FromLeader::Start { at_ns: 5 },
        ] {
            let line = serde_json::to_vec(&message).unwrap();
            assert_eq!(FromLeader::read(&line), Ok(message));
        }
        let Ok(FromFollower::Result { is_complete, result }) = FromFollower::read(&result(7))
        else {
            panic!("not a result");
        };
        assert!(is_complete);
        assert_eq!(result.into_parts().0.offered, 7);
    }

    #[test]
    fn other_versions_do_not_work_together() {
        let own = Version::own();
        assert_eq!(Version::check(&own, &own), Ok(()));
        for other in [
            Version { program: "0.0.9".to_owned(), ..own.clone() },
            Version { format: FORMAT + 1, ..own.clone() },
        ] {
            let said = Version::check(&own, &other).unwrap_err();
            let leader = format!("the leader has version {} (messages {FORMAT})", own.program);
            let follower = format!("version {} (messages {})", other.program, other.format);
            assert!(said.contains(&leader) && said.contains(&follower), "{said}");
        }
    }

    #[test]
    fn lines_that_are_not_messages_are_rejected() {
        for line in ["", "null", "INVITE sip:a@b SIP/2.0\r\n", "\"pong\"", "{\"plan\":{}}"] {
            let said = FromLeader::read(line.as_bytes()).unwrap_err();
            assert_eq!(said, "it is not a message of `tidegate-lab load lead`", "{line}");
            assert!(FromFollower::read(line.as_bytes()).is_err(), "{line}");
        }
        let words = vec![String::new(); WORDS_MAX + 1];
        let plan = FromLeader::Plan(Plan { words, seed: 1, index: 0, of: 1 });
        let said = FromLeader::read(&serde_json::to_vec(&plan).unwrap()).unwrap_err();
        assert!(said.contains("257 words, but the limit is 256"), "{said}");
    }

    #[test]
    fn counts_that_could_overflow_a_sum_are_rejected() {
        assert!(FromFollower::read(&result(COUNTS_MAX)).is_ok());
        let said = FromFollower::read(&result(COUNTS_MAX + 1)).unwrap_err();
        assert_eq!(said, "the counts of a result are too large");
    }

    #[test]
    fn the_reason_of_a_peer_is_safe_to_print() {
        let rejected = FromFollower::Rejected(format!("\u{1b}[2J{}\n", "x".repeat(5000)));
        let line = serde_json::to_vec(&rejected).unwrap();
        let Ok(FromFollower::Rejected(reason)) = FromFollower::read(&line) else {
            panic!("not rejected");
        };
        assert!(reason.starts_with(" [2Jxx") && reason.len() == REASON_MAX, "{reason}");
    }
}
