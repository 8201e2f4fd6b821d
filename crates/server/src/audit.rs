//! What operators have a running process do, told one by one: who asked, for what, and what came of
//! it.
//!
//! Whoever carries an act out hands it on and goes on; the thread that runs the process tells it.
//! What it cannot follow is counted, not waited for.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::metrics::{Family, Metrics};

/// Acts that wait to be told at the most.
const WAITING_MAX: usize = 64;

/// Characters that are told of what came by the admin interface, and of what came of it.
const TOLD_MAX: usize = 200;

/// Something that was asked for, and what came of it.
///
/// `Display` gives it in a line, such as `drain app-1, by 127.0.0.1:40312: done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// What was asked for, and by whom.
    pub asked: AuditedRequest,
    /// What came of it.
    pub outcome: Outcome,
}

/// Something that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedRequest {
    /// By whom.
    pub by: Requester,
    /// In the words of `tidegate ctl`.
    pub what: String,
}

/// Who asks for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// Who has this address at the other end of a connection to the admin interface.
    Admin(SocketAddr),
    /// Who has sent SIGHUP.
    Hangup,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Done,
    /// It was ordered, and a shard has not heeded it yet.
    Pending,
    /// It was refused, or could not be done: why.
    Not(String),
}

impl AuditedRequest {
    /// By whoever is at `peer`.
    pub fn by_admin(peer: SocketAddr, what: impl Into<String>) -> Self {
        Self { by: Requester::Admin(peer), what: what.into() }
    }
}

impl Outcome {
    /// Of what could be done or not.
    pub fn of<T, E: fmt::Display>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
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
            (Outcome::Pending, _) => f.write_str("ordered, and not heeded by every shard yet"),
            // Who asked by HTTP has the rest; who sent a signal has no other place to read it.
            (Outcome::Not(why), Requester::Admin(_)) => write!(f, "not done: {}", in_a_line(why)),
            (Outcome::Not(why), Requester::Hangup) => write!(f, "not done: {why}"),
        }
    }
}

/// The first line of a text, cut when long; what could move a cursor, or begin a line of its own,
/// is escaped.
fn in_a_line(text: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.split('\n').next().unwrap_or_default().chars().take(TOLD_MAX).map(plain).collect()
}

/// Where acts are handed in to be told.
#[derive(Clone, Debug)]
pub struct AuditLog {
    sender: Sender<AuditEntry>,
    untold: Arc<AtomicU64>,
}

static UNTOLD: Family =
    Family::counter("acts_untold", "Acts of operators that were not logged, for want of room");

impl AuditLog {
    /// Where acts are handed in, and where they come out.
    pub fn channel() -> (Self, Receiver<AuditEntry>) {
        let (sender, receiver) = bounded(WAITING_MAX);
        (Self { sender, untold: Arc::default() }, receiver)
    }

    /// Has it told what came of what was asked for.
    pub fn tell(&self, asked: AuditedRequest, outcome: Outcome) {
        if self.sender.try_send(AuditEntry { asked, outcome }).is_err() {
            self.untold.fetch_add(1, Relaxed);
        }
    }

    /// Adds how many were not told.
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
    fn an_act_is_told_in_one_line_with_who_asked_and_what_came_of_it() {
        let told = |asked, outcome| AuditEntry { asked, outcome }.to_string();
        assert_eq!(
            told(asked("drain app-1"), Outcome::Done),
            "drain app-1, by 127.0.0.1:40312: done"
        );
        let made_up = asked("drain x\ntidegate: ready\u{1b}[31m");
        assert_eq!(
            told(made_up, Outcome::Not("error: no\n --> request:2".to_owned())),
            "drain x, by 127.0.0.1:40312: not done: error: no"
        );
        let long = told(asked(&"\u{1b}".repeat(9000)), Outcome::Pending);
        assert!(long.starts_with("\\u{1b}\\u{1b}") && long.len() < 7 * TOLD_MAX, "{}", long.len());
        let hangup = AuditedRequest { by: Requester::Hangup, what: "reload".to_owned() };
        assert_eq!(
            told(hangup, Outcome::Not("error: no\n --> f:2".to_owned())),
            "reload, by SIGHUP: not done: error: no\n --> f:2"
        );
    }

    #[test]
    fn what_nobody_tells_is_counted_and_holds_nobody_up() {
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
