//! The ending of a call, derived from the packets of its caller.

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::PATIENCE;
use crate::check::seen::{Kind, Seen};

/// The way in which a call has ended. [`Endings`](crate::check::books::Endings) explains the ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Left,
    HungUp,
    Abandoned,
    Unanswered,
    Rejected(u16),
    ByeUnanswered,
    ByeRejected(u16),
}

/// A call that a caller has started.
#[derive(Debug)]
pub(super) struct Call {
    state: State,
    /// The To-tag of the 2xx that set up the call, as a hash.
    remote: Option<u64>,
    /// True if the caller had lost patience before the call was answered.
    is_abandoned: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The caller waits for a response to the INVITE, which it sent at this time. After a
    /// provisional response, the time is `None`.
    Inviting(Option<Timestamp>),
    /// The CANCEL was sent at this time.
    Cancelling(Timestamp),
    /// The call is set up. Contains the time at which the 2xx came, if it was the first response to
    /// the INVITE.
    Held(Option<Timestamp>),
    /// The BYE was sent at this time, with this hash of its branch.
    Leaving(Timestamp, u64),
    Over(Ending),
}

impl Call {
    /// Creates a call whose INVITE is sent.
    pub(super) fn new(seen: &Seen) -> Self {
        Self { state: State::Inviting(Some(seen.now)), remote: None, is_abandoned: false }
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        match self.state {
            State::Over(ending) => Some(ending),
            _ => None,
        }
    }

    /// Returns the ending of the call if no further packet comes.
    pub(super) fn left(&self) -> Ending {
        match self.state {
            State::Inviting(_) => Ending::Unanswered,
            State::Cancelling(_) => Ending::Abandoned,
            // Neither side has hung up. The caller's book still counts the call as open, so the
            // comparison reports a violation.
            State::Held(_) => Ending::Left,
            State::Leaving(..) if self.is_abandoned => Ending::Abandoned,
            State::Leaving(..) => Ending::ByeUnanswered,
            State::Over(ending) => ending,
        }
    }

    /// Handles a packet that the caller sends. Returns whether the packet is a BYE that is sent at
    /// the very moment at which the 2xx came. Such a BYE shows that the caller had lost patience
    /// before the 2xx, so that the call was not set up.
    ///
    /// Without a provisional response, a caller that loses patience may not send a CANCEL (RFC 3261
    /// §9.1). It hangs up when the 2xx comes.
    pub(super) fn on_sent(&mut self, seen: &Seen, method: Method) -> bool {
        let (next, was_too_late) = match (self.state, method) {
            (State::Inviting(_), Method::Cancel) => (State::Cancelling(seen.now), false),
            // A BYE to another To-tag ends a dialog that the call does not keep.
            (State::Held(at), Method::Bye) if seen.to_tag == self.remote => {
                (State::Leaving(seen.now, seen.vias[0]), at == Some(seen.now))
            }
            (State::Cancelling(_), Method::Bye) if seen.to_tag == self.remote => {
                (State::Leaving(seen.now, seen.vias[0]), false)
            }
            (state, _) => (state, false),
        };
        self.state = next;
        self.is_abandoned |= was_too_late;
        was_too_late
    }

    /// Handles a packet that was delivered to the caller. Returns whether the packet sets up the
    /// call.
    pub(super) fn on_delivered(&mut self, seen: &Seen) -> bool {
        let Kind::Response(status) = seen.kind else {
            self.on_request(seen);
            return false;
        };
        self.expire(seen.now);
        let (next, sets_up) = match (self.state, seen.method, status) {
            // RFC 3261 §17.1.1.2: after a provisional response there is no Timer B.
            (State::Inviting(_), Method::Invite, ..200) => (State::Inviting(None), false),
            (State::Inviting(silent_since), Method::Invite, 200..300) => {
                self.remote = seen.to_tag;
                (State::Held(silent_since.map(|_| seen.now)), true)
            }
            (State::Inviting(_), Method::Invite, _) => {
                (State::Over(Ending::Rejected(status)), false)
            }
            (State::Cancelling(since), Method::Invite, 200..300) => {
                // The caller acknowledges the 2xx and hangs up: RFC 3261 §9.1, §15.
                (self.remote, self.is_abandoned) = (seen.to_tag, true);
                (State::Cancelling(since), false)
            }
            (State::Cancelling(_), Method::Invite, 300..) => {
                (State::Over(Ending::Abandoned), false)
            }
            (State::Leaving(_, branch), Method::Bye, 200..) if branch == seen.vias[0] => {
                let ending = match status {
                    _ if self.is_abandoned => Ending::Abandoned,
                    ..300 => Ending::Left,
                    _ => Ending::ByeRejected(status),
                };
                (State::Over(ending), false)
            }
            (state, ..) => (state, false),
        };
        self.state = next;
        sets_up
    }

    /// Handles a request of the other side. A BYE ends the call if its From-tag is the To-tag of
    /// the 2xx (RFC 3261 §12.2.2).
    fn on_request(&mut self, seen: &Seen) {
        if seen.method != Method::Bye || seen.from_tag != self.remote {
            return;
        }
        self.expire(seen.now);
        self.state = match self.state {
            State::Held(_) => State::Over(Ending::HungUp),
            State::Leaving(..) if self.is_abandoned => State::Over(Ending::Abandoned),
            State::Leaving(..) => State::Over(Ending::Left),
            state => state,
        };
    }

    /// Ends a call that has waited too long: RFC 3261 §17.1.1.2 Timer B, §17.1.2.2 Timer F, §9.1.
    fn expire(&mut self, now: Timestamp) {
        let ending = match self.state {
            State::Inviting(Some(since)) if since + PATIENCE <= now => Ending::Unanswered,
            State::Cancelling(since) if since + PATIENCE <= now => Ending::Abandoned,
            State::Leaving(since, _) if since + PATIENCE <= now => match self.is_abandoned {
                true => Ending::Abandoned,
                false => Ending::ByeUnanswered,
            },
            _ => return,
        };
        self.state = State::Over(ending);
    }
}
