//! The audit log of operators' requests to a running process: requester, request and outcome.
//!
//! The thread that executes a request sends an entry to the main thread, and continues. The main
//! thread adds the entry to the log. If too many entries or log lines wait to be written, further
//! entries are only counted.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::metrics::{Family, Metrics};

/// Maximum number of entries that wait to be written.
const WAITING_MAX: usize = 64;

/// Maximum number of characters logged for a request from the admin interface, and for its outcome.
const TOLD_MAX: usize = 200;

/// A request and its outcome.
///
/// `Display` formats the entry as a log line, such as `drain app-1, by 127.0.0.1:40312: done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The request, with its requester.
    pub asked: AuditedRequest,
    /// The outcome of the request.
    pub outcome: Outcome,
}

/// A request of an operator to a running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedRequest {
    /// The origin of the request: the admin interface or a signal.
    pub by: Requester,
    /// The request, in the words of `tidegate ctl`.
    pub what: String,
}

/// The origin of a request: the admin interface or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A client of the admin interface, with the address of the client.
    Admin(SocketAddr),
    /// A SIGHUP, which asks for a reload.
    Hangup,
}

/// The outcome of a request of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was applied.
    Done,
    /// The command was sent, but a shard has not applied it yet.
    Pending,
    /// The request was rejected or failed, for this reason.
    Not(String),
}

impl AuditedRequest {
    /// Creates a request from the client of the admin interface that has the address `peer`.
    pub(crate) fn by_admin(peer: SocketAddr, what: impl Into<String>) -> Self {
        Self { by: Requester::Admin(peer), what: what.into() }
    }
}

impl Outcome {
    /// Returns [`Done`](Self::Done) if `result` is `Ok`. Otherwise the error is the reason for the
    /// failure.
    pub fn of<T, E: fmt::Display>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(why) => Self::Not(why.to_string()),
        }
    }

    /// Returns the outcome of a command to the shards. `applied` is whether every shard has applied
    /// the command.
    pub(crate) fn of_command<E: fmt::Display>(applied: &Result<bool, E>) -> Self {
        match applied {
            Ok(true) => Self::Done,
            Ok(false) => Self::Pending,
            Err(why) => Self::Not(why.to_string()),
        }
    }
}

impl fmt::Display for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked: AuditedRequest { by, what }, outcome } = self;
        match by {
            Requester::Admin(peer) => write!(f, "{}, by {peer}: ", in_a_line(what))?,
            Requester::Hangup => write!(f, "{what}, by SIGHUP: ")?,
        }
        match (outcome, by) {
            (Outcome::Done, _) => f.write_str("done"),
            (Outcome::Pending, _) => {
                f.write_str("the command was sent, but not every shard has applied it yet")
            }
            // An HTTP client gets the whole reason in its response. After a signal, only the log
            // can contain the whole reason.
            (Outcome::Not(why), Requester::Admin(_)) => write!(f, "failed: {}", in_a_line(why)),
            (Outcome::Not(why), Requester::Hangup) => write!(f, "failed: {why}"),
        }
    }
}

/// Returns the first line of a text, with control characters escaped. Only the first [`TOLD_MAX`]
/// characters are included.
fn in_a_line(text: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.split('\n').next().unwrap_or_default().chars().take(TOLD_MAX).map(plain).collect()
}

/// The sending end of the audit log.
#[derive(Clone, Debug)]
pub struct AuditLog {
    sender: Sender<AuditEntry>,
    untold: Arc<AtomicU64>,
}

static UNTOLD: Family = Family::counter(
    "acts_untold",
    "Operators' commands that were not logged because too many log lines waited to be written",
);

impl AuditLog {
    /// Creates an audit log. Returns its sending end, and the receiver of the entries to write.
    pub fn channel() -> (Self, Receiver<AuditEntry>) {
        let (sender, receiver) = bounded(WAITING_MAX);
        (Self { sender, untold: Arc::default() }, receiver)
    }

    /// Sends a request and its outcome to the audit log. If the queue of the log is full, only
    /// counts the entry.
    pub fn tell(&self, asked: AuditedRequest, outcome: Outcome) {
        if self.sender.try_send(AuditEntry { asked, outcome }).is_err() {
            self.record_untold();
        }
    }

    /// Counts an entry that could not be logged.
    pub(crate) fn record_untold(&self) {
        self.untold.fetch_add(1, Relaxed);
    }

    /// Adds a metric with the number of entries that were not logged.
    pub(crate) fn add(&self, metrics: &mut Metrics) {
        let untold = Arc::clone(&self.untold);
        metrics.add(move |samples| samples.push(&UNTOLD, &[], untold.load(Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(what: &str) -> AuditedRequest {
        AuditedRequest::by_admin(([127, 0, 0, 1], 40312).into(), what)
    }

    #[test]
    fn an_audit_line_has_requester_and_result() {
        let told = |asked, outcome| AuditEntry { asked, outcome }.to_string();
        assert_eq!(
            told(asked("drain app-1"), Outcome::Done),
            "drain app-1, by 127.0.0.1:40312: done"
        );
        let made_up = asked("drain x\ntidegate: ready\u{1b}[31m");
        assert_eq!(
            told(made_up, Outcome::Not("error: no\n --> request:2".to_owned())),
            "drain x, by 127.0.0.1:40312: failed: error: no"
        );
        let long = told(asked(&"\u{1b}".repeat(9000)), Outcome::Pending);
        assert!(long.starts_with("\\u{1b}\\u{1b}") && long.len() < 7 * TOLD_MAX, "{}", long.len());
        let hangup = AuditedRequest { by: Requester::Hangup, what: "reload".to_owned() };
        assert_eq!(
            told(hangup, Outcome::Not("error: no\n --> f:2".to_owned())),
            "reload, by SIGHUP: failed: error: no\n --> f:2"
        );
    }

    #[test]
    fn unwritten_audit_entries_are_counted_and_block_nothing() {
        let (audit_log, told) = AuditLog::channel();
        for number in 0..WAITING_MAX + 3 {
            audit_log.tell(asked(&number.to_string()), Outcome::Done);
        }
        let mut metrics = Metrics::new();
        audit_log.add(&mut metrics);
        assert!(metrics.render().contains("\ntidegate_acts_untold_total 3\n"));
        let told: Vec<_> = told.try_iter().map(|act| act.asked.what).collect();
        assert_eq!((told.len(), &*told[0]), (WAITING_MAX, "0"));
    }
}
