//! `calls`: every call ends in exactly one way, and the books of both ends agree with the packets.
//!
//! The callers measure the goodput, the most important result of a run. So this checker verifies
//! their *books*: the counts that they report about themselves. It derives the ending of each call
//! again from the packets that leave and reach a group of callers, by the rules of RFC 3261
//! §13.2.2, §9.1 and §15.1.1 ([`ending`]), and compares the endings with the book. The checker
//! asserts
//!
//! - for callers: every offered call was started, or there was no room for it. Every started call
//!   ended in exactly one way. For each way, the book has the number that the packets show.
//! - for an answerer: every call counts either as answered or as not answered. Every answered call
//!   ended. The number of acknowledged calls is the number that the packets show.
//! - for both: a call that was set up was answered by an answerer, with the To-tag that the caller
//!   saw. No node between them invents answers.
//!
//! User agents follow these rules whatever happens to the proxies between them. So the assertions
//! hold after crashes of proxies too. The book of an answerer that has crashed covers only the time
//! since its last crash. If an answerer has crashed or was stalled, the checker only asserts that
//! its book adds up, and that it does not have more acknowledged calls than the packets show.
//!
//! A caller that loses patience before any provisional response cannot send a CANCEL (§9.1). When
//! the 2xx comes, it hangs up, so it sends the BYE at the time of the 2xx. The checker recognises
//! an abandoned call by these equal times, and expects that callers hold every other call for some
//! time. The checker does not know the patience of a caller. So it does not notice a caller that
//! hangs up at once although it has not lost patience.
//!
//! On a stream, a 2xx may wait for its connection. Then it is sent after the answerer has begun to
//! wait for the ACK. If the ACK comes within 64·T1 of the INVITE, the call must count as
//! acknowledged. If it comes later, but within 64·T1 of the time at which the 2xx was sent, the
//! answerer's book may count the call either way.

mod ending;

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::{Timestamp, Transport};

use super::books::{AnswererBook, Book, CallerBook, Endings};
use super::lives::Lives;
use super::recent::Recent;
use super::seen::{Kind, Seen};
use super::{Findings, Role};
use crate::node_id::NodeId;
use ending::{Call, Ending};

/// The checker's name.
pub const NAME: &str = "calls";

/// The time for which each end of a call waits for the other: 64·T1 (RFC 3261 §17.1.1.2,
/// §13.3.1.4).
const PATIENCE: Duration = Duration::from_secs(32);

/// Maximum number of calls of all callers that are watched at the same time.
const OPEN_MAX: usize = 1 << 20;

/// The counts of the calls of a caller, derived from the packets of the caller.
#[derive(Debug, Default)]
struct Crowd {
    begun: u64,
    set_up: u64,
    ended: Endings,
}

/// A call that an answerer answered, derived from the packets of the answerer.
#[derive(Debug, Default)]
struct Answered {
    /// Time at which the answerer sent the first 2xx, or `None` if it was not seen.
    since: Option<Timestamp>,
    /// True if the answerer sent the 2xx on a stream.
    is_on_stream: bool,
    acknowledged: bool,
    has_bye: bool,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Open calls, by caller and Call-ID.
    open: BTreeMap<(NodeId, u64), Call>,
    crowds: BTreeMap<NodeId, Crowd>,
    /// Calls that an answerer has answered, by Call-ID and To-tag.
    answered: Recent<(u64, u64), ()>,
    /// Calls that an answerer has answered, by answerer, Call-ID and To-tag.
    taken: Recent<(NodeId, u64, u64), Answered>,
    /// Time at which the first INVITE with a Call-ID came to an answerer.
    invited: Recent<(NodeId, u64), Timestamp>,
    acknowledged: BTreeMap<NodeId, u64>,
    /// The number of each answerer's calls that its book may or may not count as acknowledged,
    /// because their ACKs came late.
    uncertain: BTreeMap<NodeId, u64>,
    unwatched: u64,
}

impl Calls {
    pub(super) fn on_sent(&mut self, seen: &Seen, transport: Transport) {
        match (seen.role, seen.kind) {
            (Role::Caller, Kind::Request) => self.caller_sends(seen),
            (Role::Answerer { .. }, Kind::Response(200..300)) if seen.method == Method::Invite => {
                let tag = seen.to_tag.unwrap_or_default();
                let _ = self.answered.entry(seen.now, (seen.call, tag));
                if let Some(taken) = self.taken.entry(seen.now, (seen.node, seen.call, tag)) {
                    taken.since = taken.since.or(Some(seen.now));
                    taken.is_on_stream |= transport.is_reliable();
                }
            }
            _ => {}
        }
    }

    pub(super) fn on_delivered(&mut self, seen: &Seen, found: &mut Findings) {
        match seen.role {
            Role::Caller => self.caller_gets(seen, found),
            Role::Answerer { .. } if seen.is_request() => self.answerer_gets(seen),
            _ => {}
        }
    }

    fn caller_sends(&mut self, seen: &Seen) {
        let key = (seen.node, seen.call);
        let has_room = self.open.len() < OPEN_MAX;
        if let Some(call) = self.open.get_mut(&key) {
            if call.on_sent(seen, seen.method) {
                self.crowds.entry(seen.node).or_default().set_up -= 1;
            }
        } else if seen.method == Method::Invite && has_room {
            self.crowds.entry(seen.node).or_default().begun += 1;
            self.open.insert(key, Call::new(seen));
        } else if seen.method == Method::Invite {
            self.unwatched += 1;
        }
    }

    fn caller_gets(&mut self, seen: &Seen, found: &mut Findings) {
        let Some(call) = self.open.get_mut(&(seen.node, seen.call)) else { return };
        let sets_up = call.on_delivered(seen);
        if sets_up {
            self.crowds.entry(seen.node).or_default().set_up += 1;
            let tag = seen.to_tag.unwrap_or_default();
            if self.answered.get(seen.now, (seen.call, tag)).is_none() {
                let what = "a call is set up, but no answerer has answered it".to_owned();
                found.report(NAME, Some(seen.node), what);
            }
        }
        self.settle(seen);
    }

    /// Removes the call of this packet if it has ended, and counts its ending.
    fn settle(&mut self, seen: &Seen) {
        let key = (seen.node, seen.call);
        let Some(ending) = self.open.get(&key).and_then(Call::ending) else { return };
        self.open.remove(&key);
        self.crowds.entry(seen.node).or_default().count(ending);
    }

    fn answerer_gets(&mut self, seen: &Seen) {
        let call = (seen.node, seen.call);
        if seen.method == Method::Invite
            && let Some(invited) = self.invited.entry(seen.now, call)
            && *invited == Timestamp::ZERO
        {
            *invited = seen.now;
        }
        let tag = seen.to_tag.unwrap_or_default();
        let Some(taken) = self.taken.get(seen.now, (seen.node, seen.call, tag)) else { return };
        match seen.method {
            // RFC 3261 §15: a BYE ends the dialog, whether the ACK to the 2xx has arrived or not.
            Method::Bye => taken.has_bye = true,
            Method::Ack if !taken.acknowledged && !taken.has_bye => {
                let in_time = taken.since.is_some_and(|at| seen.now < at + PATIENCE);
                if in_time {
                    taken.acknowledged = true;
                    *self.acknowledged.entry(seen.node).or_default() += 1;
                    let invited = self.invited.get(seen.now, call);
                    let is_certain = invited.is_some_and(|at| seen.now < *at + PATIENCE);
                    if taken.is_on_stream && !is_certain {
                        *self.uncertain.entry(seen.node).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(&mut self, books: &[(NodeId, Book)], lives: &Lives, found: &mut Findings) {
        for ((node, _), call) in std::mem::take(&mut self.open) {
            self.crowds.entry(node).or_default().count(call.left());
        }
        for (node, book) in books {
            let wrong = match book {
                Book::Caller(book) => self.compare_crowd(*node, book),
                Book::Answerer(book) => self.compare_answerer(*node, book, lives),
                Book::Proxy(_) => Vec::new(),
            };
            for what in wrong {
                found.report(NAME, Some(*node), what);
            }
        }
    }

    fn compare_crowd(&mut self, node: NodeId, book: &CallerBook) -> Vec<String> {
        let CallerBook {
            offered, not_begun, begun, is_seen, open, set_up, malformed, ended, ..
        } = book;
        let mut wrong = Vec::new();
        if *offered != not_begun + begun || *begun != ended.total() + malformed + open {
            wrong.push(format!("its book does not add up: {book:?}"));
        }
        let crowd = self.crowds.entry(node).or_default();
        let shown = (crowd.begun, crowd.set_up, &crowd.ended);
        if *is_seen && shown != (*begun, *set_up, ended) {
            wrong.push(format!(
                "its book says {:?}, but the wire shows {shown:?} (begun, set up, ended)",
                (begun, set_up, ended)
            ));
        }
        wrong
    }

    fn compare_answerer(&self, node: NodeId, book: &AnswererBook, lives: &Lives) -> Vec<String> {
        let AnswererBook { calls, not_answered, answered, acknowledged, ended, open, .. } = *book;
        let mut wrong = Vec::new();
        if calls != not_answered + answered + open || answered != ended {
            wrong.push(format!("its book does not add up: {book:?}"));
        }
        let shown = self.acknowledged.get(&node).copied().unwrap_or_default();
        let exact = !lives.has_crashed(node) && !lives.is_disturbed(node);
        let uncertain = self.uncertain.get(&node).copied().unwrap_or_default();
        if acknowledged > shown || exact && acknowledged + uncertain < shown {
            wrong.push(format!(
                "its book says {acknowledged} acknowledged calls, but the wire shows {shown}"
            ));
        }
        wrong
    }

    pub(super) fn unwatched(&self) -> u64 {
        let Self { answered, taken, invited, unwatched, .. } = self;
        answered.unwatched() + taken.unwatched() + invited.unwatched() + unwatched
    }
}

impl Crowd {
    fn count(&mut self, ending: Ending) {
        let ended = &mut self.ended;
        *match ending {
            Ending::Left => &mut ended.left,
            Ending::HungUp => &mut ended.hung_up,
            Ending::Abandoned => &mut ended.abandoned,
            Ending::Unanswered => &mut ended.unanswered,
            Ending::Rejected(status) => ended.rejected.entry(status).or_default(),
            Ending::ByeUnanswered => &mut ended.bye_unanswered,
            Ending::ByeRejected(status) => ended.bye_rejected.entry(status).or_default(),
        } += 1;
    }
}
