//! Reads an arriving message, decides on it if it requests new work, and queues it.
//!
//! The functions that [`admit`](Ingress::admit) calls for each message are always inlined. Without
//! inlining, their calls would cost up to 97 instructions a message.

use tidegate_control::feedback::{self, Category};
use tidegate_control::{Bucket, Decide, Headroom, Reason, Recalled, Sender, Ticket, Verdict};
use tidegate_sip::Outline;
use tidegate_world::{Received, Timestamp};

use super::Ingress;
use crate::admission::classify::{Reading, Unclassified, Wanted, read};
use crate::admission::decision::{Decided, Decision, Read};
use crate::admission::headroom::{headroom, record_reserve_kept};
use crate::admission::kernel_shed::is_droppable;
use crate::admission::reject::RejectedRequest;
use crate::admission::view::{Standing, View};
use crate::admission::waiting::{QueueClass, Waiting};
use crate::message::challenge::has_credentials;
use crate::message::class::Class;
use crate::message::priority::Claim;
use crate::rejection::DropReason;
use crate::rejection::reply_reason::ReplyReason;
use crate::settings::Queueing;
use crate::settings::sources::Excess;
use crate::transport::addresses::Origin;

/// An arriving message, with the facts that were read from it.
struct Arrival<'a> {
    now: Timestamp,
    received: &'a Received,
    reading: &'a Reading,
    /// The positions of the lines that a rejection of the message copies, if they were recorded.
    outline: Option<&'a Outline<'a>>,
    view: View<'a>,
}

/// Reason why a message is not admitted.
#[derive(Clone, Copy)]
enum Unadmitted {
    /// The message requires a resource priority that the proxy does not know. The reply is built
    /// from the whole message, so the message is kept.
    NotUnderstood,
    Because(RejectionCause),
}

/// A reason why a message is not admitted, except an unknown resource priority.
#[derive(Clone, Copy)]
enum RejectionCause {
    Banned,
    /// The message repeats a request that waits or was served, so it is dropped.
    Absorbed,
    /// The source exceeds a configured limit, and gets no response.
    Excess,
    /// The gate rejects the request for new work, for this reason.
    Rejected(Reason),
    /// The message belongs to an existing call or transaction, and the law also sheds such
    /// messages.
    Shed,
}

impl Ingress {
    /// Reads a message, and decides on it if it requests new work. If it is admitted, passes it to
    /// `push`, which queues it. `has_room` returns whether the queue for a class can take new work.
    pub(super) fn admit(
        &mut self,
        now: Timestamp,
        received: Received,
        view: View<'_>,
        has_room: impl Fn(&Self, QueueClass) -> bool,
        push: impl FnOnce(&mut Self, Waiting) -> Decision,
    ) -> Decided {
        let when = Read::of(&received);
        // Only a response needs an outline. Without responses, messages are dropped.
        let is_rejecting = self.is_full_behind || self.gate.is_rejecting();
        let wants_outline = is_rejecting && self.shed_policy.answers();
        let wanted = Wanted {
            outline: wants_outline,
            reinvites: self.reinvites,
            challenges: self.challenges.is_active(now),
        };
        let mut outline = None;
        let reading = match read(now, &received, view, wanted, &mut outline) {
            Ok(reading) => reading,
            Err(Unclassified::Dropped(class, why)) => {
                let why = self.on_dropped(now, &received, why, view);
                return Decided { class, read: when, decision: Decision::Drop(why) };
            }
            Err(Unclassified::Malformed(malformed)) => {
                self.count_droppable(now, &received, view, Recalled::default());
                if self.source_policy.on_message(now, &received.flow, &view.snapshot.addresses) {
                    let decision = Decision::Drop(DropReason::Banned);
                    return Decided { class: None, read: when, decision };
                }
                let decision = Decision::Malformed(Box::new(received), malformed);
                return Decided { class: None, read: when, decision };
            }
        };
        let Reading { class, queue_class, bucket, cancels, hashes, .. } = reading;
        let decided = |decision| Decided { class: Some(class), read: when, decision };
        let outline = outline.as_ref();
        let arrival = Arrival { now, received: &received, reading: &reading, outline, view };
        let mut is_new_droppable = false;
        let standing =
            if bucket.is_none() { self.early_standing(&arrival) } else { Standing::Known };
        if standing == Standing::Floods {
            let why = self.on_dropped(now, &received, DropReason::CallFlood, view);
            return decided(Decision::Drop(why));
        }
        let is_unverified = standing == Standing::Unknown;
        if is_unverified && self.on_stray(now, &received.flow, view) {
            return decided(Decision::Drop(DropReason::Banned));
        }
        let admitted = match bucket {
            None => {
                is_new_droppable = !is_unverified && self.count_ongoing(now, &received, view);
                let is_stray = is_unverified || self.is_sham(&arrival);
                match category_of_ongoing(class) {
                    Some(_) if is_stray => self.upstream.on_stray(now, &received, view.snapshot),
                    Some(category) => self.record_for_peer(now, &received, category, view),
                    None => {}
                }
                // The law does not decide on unverified messages.
                let admitted = if is_unverified { Ok(()) } else { self.admit_ongoing(now, class) };
                admitted.map(|()| None)
            }
            Some(bucket) => self.admit_new(&arrival, bucket, has_room).map(Some),
        };
        let ticket = match admitted {
            Ok(ticket) => ticket,
            Err(Unadmitted::NotUnderstood) => {
                return decided(Decision::NotUnderstood(Box::new(received)));
            }
            Err(Unadmitted::Because(cause)) => return decided(self.turn_away(&arrival, cause)),
        };
        if let Some(ticket) = &ticket {
            is_new_droppable = !ticket.is_again() && is_droppable(&received);
        }
        let queue_class = match &ticket {
            Some(ticket) if ticket.bucket() == Bucket::Priority => QueueClass::Priority,
            _ if is_unverified => QueueClass::Unverified,
            _ => queue_class,
        };
        let decision = push(
            self,
            Waiting { received: Box::new(received), class, ticket, cancels, queue_class, hashes },
        );
        if is_new_droppable && matches!(decision, Decision::Queued) {
            self.gate.on_droppable_served(now);
        }
        decided(decision)
    }

    /// Counts a message that is dropped without being queued, against its sender. Returns the
    /// reason to drop it, which is `why` or a ban of the sender.
    fn on_dropped(
        &mut self,
        now: Timestamp,
        received: &Received,
        why: DropReason,
        view: View<'_>,
    ) -> DropReason {
        match why {
            // The server that sends the ACK counts it as a request too (RFC 7415 §3.4).
            DropReason::OwnAck => self.record_for_peer(now, received, Category::Required, view),
            DropReason::CallFlood => {
                self.count_ongoing(now, received, view);
                let addresses = &view.snapshot.addresses;
                if self.source_policy.on_message(now, &received.flow, addresses) {
                    return DropReason::Banned;
                }
            }
            _ => {}
        }
        why
    }

    /// Counts a request of an existing call or transaction for its sender, if any peer takes part
    /// in overload feedback.
    #[inline(always)]
    fn record_for_peer(
        &mut self,
        now: Timestamp,
        received: &Received,
        category: Category,
        view: View<'_>,
    ) {
        if self.upstream.is_active() {
            let weight = self.source_policy.weight_of(received.flow.remote.ip());
            self.upstream.on_request(now, received, category, weight, view.snapshot);
        }
    }

    /// Returns whether a message is a BYE that belongs to no call, sent by a peer whose rate
    /// overload feedback may limit.
    ///
    /// A peer does not hold back requests within calls, so each of them raises the rate that it is
    /// allowed. A BYE must not raise the rate unless it belongs to a call. Any number of BYEs may
    /// belong to one call, up to the limit for a call. An ACK and a CANCEL are not verified: their
    /// call may have failed and have been forgotten. Any other request that belongs to no call is
    /// new work.
    ///
    /// Returns `false` without an overload, because then no rate is limited.
    #[inline(always)]
    fn is_sham(&self, arrival: &Arrival<'_>) -> bool {
        let Arrival { now, received, reading, view, .. } = *arrival;
        reading.class == Class::Bye
            && self.upstream.may_restrict(view.snapshot, &received.flow)
            && !self.verifies_early(now, reading)
            && !view.verifies(now, received)
    }

    /// Admits a message of an existing call or transaction, unless the law sheds such messages too.
    #[inline(always)]
    fn admit_ongoing(&mut self, now: Timestamp, class: Class) -> Result<(), Unadmitted> {
        let is_admitted =
            self.gate.decide() == Decide::Service || self.gate.on_ongoing(now, class as u8);
        if is_admitted { Ok(()) } else { Err(Unadmitted::Because(RejectionCause::Shed)) }
    }

    /// Decides on a request for new work. Returns its ticket if it is admitted. `has_room` returns
    /// whether the queue of a class can take new work.
    #[inline(always)]
    fn admit_new(
        &mut self,
        arrival: &Arrival<'_>,
        bucket: Bucket,
        has_room: impl Fn(&Self, QueueClass) -> bool,
    ) -> Result<Ticket, Unadmitted> {
        let Arrival { now, received, reading, view, .. } = *arrival;
        let Reading { class, queue_class, fingerprint, begins_call, .. } = *reading;
        let addresses = &view.snapshot.addresses;
        let recalled = self.gate.recall(now, fingerprint);
        let is_late = self.count_droppable(now, received, view, recalled) && class.is_droppable();
        if self.source_policy.on_message(now, &received.flow, addresses) {
            return Err(Unadmitted::Because(RejectionCause::Banned));
        }
        let (mut sender, claim) =
            self.source_policy.sender(received, class == Class::Invite, addresses);
        if claim == Claim::NotUnderstood {
            return Err(Unadmitted::NotUnderstood);
        }
        sender.is_late = is_late;
        // The INVITE may be the second passage of a call whose first INVITE this back end answers only
        // later. A forged one does no harm: the law then decides as if back ends were fast.
        if self.gate.control().queue.takes_turns
            && class == Class::Invite
            && !recalled.is_repetition()
            && matches!(addresses.origin(&received.flow), Origin::Backend(_))
        {
            self.gate.on_backend_call(now);
        }
        // A message from another shard has passed the gate there. But an INVITE with a To-tag and a
        // token belonged to a call there, so no gate has judged it. A retransmitted answer to a
        // challenge needs no check, because the gate remembers its decision on the first copy.
        sender.is_handed_off = received.handoffs > 0 && (begins_call || class != Class::Invite);
        sender.is_admitted =
            sender.is_handed_off || !recalled.is_repetition() && self.answers_challenge(arrival);
        sender.has_priority &=
            has_room(self, QueueClass::Priority) && self.large.has_room(received, true);
        sender.exceeds_limit = self.gate.exceeds_limit(now, &sender, recalled);
        // Requests above the limit of their source are rejected at any load, so overload feedback
        // need not reduce them.
        let is_load = !recalled.is_repetition() && !sender.exceeds_limit;
        if is_load && (reading.may_offer || self.upstream.is_active()) {
            sender.restricted = self.admit_peer(arrival, bucket, &sender)?;
        }
        if begins_call {
            sender.headroom = headroom(now, view.snapshot, &received.flow);
            self.is_full_behind = !matches!(sender.headroom, Headroom::Any | Headroom::Spare);
        }
        let has_room = has_room(self, queue_class) && self.large.has_room(received, true);
        let number = class as u8;
        match self.gate.judge(now, &sender, bucket, number, recalled, has_room) {
            Verdict::Admit(ticket) => Ok(ticket),
            Verdict::Reject(Reason::SourceLimit)
                if let Some(limit) = sender.limit
                    && self.source_policy.on_excess(now, &received.flow, addresses, limit)
                        != Excess::Reject =>
            {
                Err(Unadmitted::Because(RejectionCause::Excess))
            }
            Verdict::Absorb => Err(Unadmitted::Because(RejectionCause::Absorbed)),
            Verdict::Reject(reason) => {
                if reason == Reason::PoolShare {
                    record_reserve_kept(view.snapshot);
                }
                Err(Unadmitted::Because(RejectionCause::Rejected(reason)))
            }
        }
    }

    /// Returns whether a new request answers a challenge (401 or 407) of a back end. Records the
    /// answer, because each challenge may be answered only once.
    fn answers_challenge(&mut self, arrival: &Arrival<'_>) -> bool {
        let Arrival { now, received, reading, .. } = *arrival;
        let Some(challenge) = reading.challenge else { return false };
        self.challenges.waits(now, challenge)
            && has_credentials(&received.bytes)
            && self.challenges.on_answer(now, challenge)
    }

    /// Applies the share of requests that overload feedback grants to the sender of a new request.
    /// The request must not be a retransmission. Returns whether the sender has not used up its
    /// share. The law's share is then not applied again ([`Sender::restricted`]). Returns false if
    /// feedback does not decide about this request.
    ///
    /// # Errors
    /// Returns [`Reason::PeerShare`] if the peer takes no part in feedback or does not obey it, and
    /// has used up its share.
    ///
    /// RFC 7339 §5.10.2: "A SIP server that is in overload and has started to throttle incoming traffic
    /// MUST reject some requests from non-participating clients with a 503 (Service Unavailable) response
    /// without the Retry-After header."
    fn admit_peer(
        &mut self,
        arrival: &Arrival<'_>,
        bucket: Bucket,
        sender: &Sender,
    ) -> Result<bool, Unadmitted> {
        let Arrival { now, received, reading, view, .. } = *arrival;
        let category = match bucket {
            // The sender's share was already charged for the challenged request, or for this
            // request at another shard.
            _ if sender.is_admitted => Category::Ongoing,
            Bucket::Single => Category::Single,
            _ if sender.has_priority => Category::Priority,
            _ => Category::Session,
        };
        let weight = self.source_policy.weight_of(received.flow.remote.ip());
        match self.upstream.on_request(now, received, category, weight, view.snapshot) {
            feedback::Arrival::Judge => Ok(false),
            feedback::Arrival::Pass => Ok(true),
            feedback::Arrival::Reject => {
                if let Some(fingerprint) = reading.fingerprint {
                    self.gate.on_rejected(now, fingerprint);
                }
                Err(Unadmitted::Because(RejectionCause::Rejected(Reason::PeerShare)))
            }
        }
    }

    /// Rejects or drops a message that is not admitted, for `cause`.
    #[inline(always)]
    fn turn_away(&mut self, arrival: &Arrival<'_>, cause: RejectionCause) -> Decision {
        let Arrival { now, received, reading, outline, view } = *arrival;
        let Reading { class, fingerprint, .. } = *reading;
        match cause {
            RejectionCause::Banned => Decision::Drop(DropReason::Banned),
            RejectionCause::Absorbed => Decision::Drop(DropReason::Absorbed),
            RejectionCause::Excess => Decision::Reject(Reason::SourceLimit, None),
            RejectionCause::Rejected(reason) => {
                let rejected =
                    RejectedRequest { received, class, fingerprint, reason: Some(reason) };
                self.trace.note(now, received, class, reason, &self.gate);
                Decision::Reject(reason, self.shed_policy.reply(&rejected, outline, view.snapshot))
            }
            RejectionCause::Shed => {
                let rejected = RejectedRequest { received, class, fingerprint, reason: None };
                self.trace.note(now, received, class, ReplyReason::Shed, &self.gate);
                Decision::Shed(self.shed_policy.reply(&rejected, None, view.snapshot))
            }
        }
    }

    /// Returns the relation of a message to the call or transaction that it claims to belong to.
    /// The message is checked only during a flood of messages that belong to no call or
    /// transaction, and only if messages are queued by class. Otherwise the message counts as
    /// known.
    #[inline(always)]
    fn early_standing(&self, arrival: &Arrival<'_>) -> Standing {
        let Arrival { now, received, reading, view, .. } = *arrival;
        let waits_with_invite = |invite| self.queues.has_invite(invite);
        if self.verifies_early(now, reading) && !reading.cancels.is_some_and(waits_with_invite) {
            view.standing_of(now, received)
        } else {
            Standing::Known
        }
    }

    /// Returns whether messages of this class are verified at present before they are queued.
    #[inline(always)]
    fn verifies_early(&self, now: Timestamp, reading: &Reading) -> bool {
        let waiting = self.queues.finishing(reading.queue_class);
        reading.class != Class::InDialog
            && self.queueing != Queueing::Fifo
            && self.early_verification.is_on(now, waiting)
    }
}

/// Returns the category, for overload feedback, of a request of this class that belongs to an
/// existing call or transaction. Returns `None` for a response.
fn category_of_ongoing(class: Class) -> Option<Category> {
    match class {
        Class::Final | Class::Provisional => None,
        Class::Ack | Class::Cancel => Some(Category::Required),
        _ => Some(Category::Ongoing),
    }
}
