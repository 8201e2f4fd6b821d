//! Takes the next message from the queues. Decides on it now if the law decides at the service of a
//! message, or if it has waited for too long.

use std::ops::ControlFlow;

use tidegate_control::{Answers, Bucket, Decide, Release, Ticket};
use tidegate_world::Timestamp;

use super::Ingress;
use crate::admission::decision::{Decided, Decision, Read};
use crate::admission::fifo::Unsorted;
use crate::admission::large::bytes_of;
use crate::admission::reject::RejectedRequest;
use crate::admission::view::View;
use crate::admission::waiting::{QueueClass, Waiting};
use crate::message::admitted::Admitted;
use crate::rejection::reply_reason::ReplyReason;
use crate::settings::Queueing;

impl Ingress {
    /// Returns the next message to serve, or its rejection. `None` if no message is to be served
    /// now. `answers` counts the INVITEs that were sent to back ends, if new INVITEs wait.
    pub(crate) fn next(
        &mut self,
        now: Timestamp,
        answers: Option<Answers>,
        view: View<'_>,
    ) -> Option<Decided> {
        if let Some(answers) = answers {
            self.gate.on_answers(answers);
        }
        let may_release = self.gate.may_release();
        let control = &self.gate.control().queue;
        let next = match self.queueing {
            Queueing::Class => self.queues.next(now, control, may_release),
            Queueing::Fifo => self.queues.next_invite(control.order, may_release),
        };
        match next {
            Some(waiting) => {
                self.large.remove(&waiting.received);
                Some(self.take(now, waiting, view))
            }
            None => self.next_unsorted(now, view),
        }
    }

    fn next_unsorted(&mut self, now: Timestamp, view: View<'_>) -> Option<Decided> {
        let (waiting, read) = match self.fifo.pop()? {
            Unsorted::Read(waiting) => {
                self.large.remove(&waiting.received);
                (waiting, Read::NotNow)
            }
            Unsorted::Unread(received) => {
                self.large.remove(&received);
                let mut read = None;
                let room = |ingress: &Self, queue_class| ingress.queues.has_room(queue_class);
                let decided = self.admit(now, received, view, room, |_, waiting| {
                    read = Some(waiting);
                    Decision::Queued
                });
                match read {
                    Some(waiting) => (waiting, decided.read),
                    None => return Some(decided),
                }
            }
        };
        // If the law paces new sessions, their INVITEs move from the single queue to a queue of
        // their own, each with its CANCEL.
        let class = Some(waiting.class);
        let paced = self.gate.control().queue.release != Release::Open;
        if paced && waiting.queue_class == QueueClass::Invites {
            self.large.add(bytes_of(&waiting.received));
            self.queues.push(waiting);
            return Some(Decided { class, read, decision: Decision::Queued });
        }
        let large = bytes_of(&waiting.received);
        let waiting = match self.keep_with_invite(waiting) {
            ControlFlow::Continue(waiting) => waiting,
            ControlFlow::Break(decision) => {
                if matches!(decision, Decision::Queued) {
                    self.large.add(large);
                }
                return Some(Decided { class, read, decision });
            }
        };
        Some(Decided { read, ..self.take(now, waiting, view) })
    }

    /// Decides on a message whose turn has come. The message is rejected if the law decides at this
    /// time ([`Decide::Service`]) and does not admit it, or if it has waited for too long.
    /// Otherwise it is to be served.
    fn take(&mut self, now: Timestamp, waiting: Waiting, view: View<'_>) -> Decided {
        let Waiting { received, class, ticket, queue_class, hashes, .. } = waiting;
        if queue_class == QueueClass::Unverified {
            let admitted = Admitted { is_unverified: true, ..Admitted::default() };
            let decision = Decision::Serve(received, admitted);
            return Decided { class: Some(class), read: Read::NotNow, decision };
        }
        let sojourn = now.since(received.arrived);
        self.gate.on_backlog(self.backlog());
        self.gate.on_service(now, ticket.as_ref(), sojourn, self.new_sessions());
        let fingerprint = ticket.as_ref().and_then(Ticket::fingerprint);
        let has_priority = ticket.as_ref().map(Ticket::bucket) == Some(Bucket::Priority);
        let is_again = ticket.as_ref().is_some_and(Ticket::is_again);
        let decision = match ticket {
            Some(ticket) => match self.gate.on_taken(now, ticket) {
                None => Decision::Serve(
                    received,
                    Admitted { fingerprint, is_again, has_priority, hashes, ..Admitted::default() },
                ),
                Some(reason) => {
                    let rejected = RejectedRequest {
                        received: &received,
                        class,
                        fingerprint,
                        reason: Some(reason),
                    };
                    self.trace.note(now, &received, class, reason, &self.gate);
                    Decision::Reject(reason, self.shed_policy.reply(&rejected, None, view.snapshot))
                }
            },
            None if self.gate.decide() == Decide::Service
                && !self.gate.on_ongoing(now, class as u8) =>
            {
                let rejected =
                    RejectedRequest { received: &received, class, fingerprint, reason: None };
                self.trace.note(now, &received, class, ReplyReason::Shed, &self.gate);
                Decision::Shed(self.shed_policy.reply(&rejected, None, view.snapshot))
            }
            None => Decision::Serve(received, Admitted { hashes, ..Admitted::default() }),
        };
        Decided { class: Some(class), read: Read::NotNow, decision }
    }
}
