//! Responses to a transaction: RFC 3261 §16.7.

use tidegate_sip::{Method, Passage};
use tidegate_transaction::{Arrival, Key};
use tidegate_world::{Buffer, Received, Timestamp};

use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::stateful::begin::TIMER_C;
use crate::stateful::best::Best;
use crate::stateful::context::{At, Cancel, Context, Live};
use crate::stateful::reason::Reason;
use crate::transaction_branch::TransactionBranch;

/// A response on its way, and to what.
struct Answer<'a> {
    at: At,
    /// Which of the context's branches.
    index: usize,
    received: &'a Received,
    passage: &'a Passage<'a>,
}

impl Endpoint {
    /// Takes in a response to one of our transactions.
    pub(crate) fn serve_answer(
        &mut self,
        now: Timestamp,
        received: &Received,
        passage: &Passage<'_>,
        branch: &TransactionBranch,
    ) -> Result<(), DropReason> {
        // RFC 6026 §8.9 (for RFC 3261 §16.7 item 1): a response that matches no client
        // transaction is not forwarded.
        let method = match passage.cseq.method {
            Method::Cancel => Method::Invite,
            method => method,
        };
        let handle = self.transactions().find(Key::new(branch.identity, method));
        let handle = handle.ok_or(DropReason::StrayResponse)?;
        let at = At { now, context: handle };
        let context = self.transactions_mut().lend(at.context);
        let mut context = context.ok_or(DropReason::StrayResponse)?;
        let Some(index) = context.branch_at(branch.tag) else {
            self.transactions_mut().settle(now, at.context, context);
            return Err(DropReason::StrayResponse);
        };
        let answer = Answer { at, index, received, passage };
        let done = self.take(&answer, &mut context);
        self.transactions_mut().settle(now, at.context, context);
        done
    }

    fn take(&mut self, answer: &Answer<'_>, context: &mut Context) -> Result<(), DropReason> {
        let Answer { at: At { now, .. }, index, passage, .. } = *answer;
        let timing = self.transactions().timing;
        let branch = context.branches.get_mut(index).ok_or(DropReason::StrayResponse)?;
        // RFC 3261 §17.1.3: "If the method parameter in the CSeq header field matches the method
        // of the request that created the transaction. The method is needed since a CANCEL
        // request constitutes a different transaction, but shares the same value of the branch
        // parameter."
        match passage.cseq.method {
            method if method == context.method => {}
            Method::Cancel if context.method == Method::Invite => {
                return self.take_answer_to_cancel(answer, context);
            }
            _ => return Err(DropReason::StrayResponse),
        }
        let is_first = branch.client.is_pending() && passage.status >= 200;
        let (client, arrival) = branch.client.on_response(now, &timing, passage.status);
        branch.client = client;
        if let Some(member) = branch.member.filter(|_| is_first && context.toward_backend) {
            self.backend(member).on_final(context.method == Method::Invite, passage.status);
        }
        match arrival {
            Arrival::Absorb => return Err(DropReason::RepeatedResponse),
            Arrival::Acknowledge => {
                self.acknowledge_answer(answer, context);
                return Err(DropReason::RepeatedResponse);
            }
            Arrival::DeliverAndAcknowledge => {
                self.note_hop(context, index);
                self.acknowledge_answer(answer, context);
            }
            Arrival::Deliver => {}
        }
        let bytes = self.write_upward(answer.received, passage, &context.back)?;
        let Some(mut live) = context.live.take() else {
            // Of an INVITE that is answered only a 2xx is delivered.
            self.pass_success(now, context, index, passage, bytes);
            return Ok(());
        };
        self.deliver(answer, context, &mut live, bytes);
        context.live = Some(live);
        Ok(())
    }

    fn take_answer_to_cancel(
        &mut self,
        answer: &Answer<'_>,
        context: &mut Context,
    ) -> Result<(), DropReason> {
        let timing = self.transactions().timing;
        let pending = context.live.as_mut().and_then(|live| live.pending.get_mut(answer.index));
        let Some(Cancel::Sent { client, .. }) = pending.map(|pending| &mut pending.cancel) else {
            return Err(DropReason::StrayResponse);
        };
        let (next, arrival) = client.on_response(answer.at.now, &timing, answer.passage.status);
        *client = next;
        match arrival {
            Arrival::Absorb => Err(DropReason::RepeatedResponse),
            _ => Ok(()),
        }
    }

    /// Acknowledges a final response hop by hop.
    fn acknowledge_answer(&mut self, answer: &Answer<'_>, context: &Context) {
        let Answer { index, received, .. } = *answer;
        self.send_ack(context, index, &received.bytes);
    }

    fn deliver(
        &mut self,
        answer: &Answer<'_>,
        context: &mut Context,
        live: &mut Live,
        bytes: Buffer,
    ) {
        let Answer { at, index, passage, .. } = *answer;
        let now = at.now;
        let status = passage.status;
        let is_invite = context.method == Method::Invite;
        if status == 503 && self.has_sent(&context.branches[index], answer.received.flow.remote) {
            let parties = self.parties_of(context, live);
            let (branch, pending) = (&context.branches[index], &mut live.pending[index]);
            self.note_refused(now, branch, pending, parties, &answer.received.bytes);
        }
        match status {
            ..200 => self.deliver_provisional(answer, context, live, bytes),
            200..300 if is_invite => {
                self.pass_success(now, context, index, passage, bytes);
                // RFC 3261 §16.7 item 10: "If the forwarded response was a final response, the
                // proxy MUST generate a CANCEL request for all pending client transactions
                // associated with this response context."
                self.cancel_all(at, context, live, Reason::Answered(status));
            }
            200..300 => {
                let answer = self.read_answer(context.call, passage, true);
                self.pass_final(now, context, answer, status, bytes);
            }
            _ if live.pending[index].is_abandoned => {}
            _ => {
                if status == 503 && self.try_after_refusal(at, context, live) {
                    return;
                }
                // RFC 4320 §4.2: a 408 to any other request could not be sent on.
                if is_invite || status != 408 {
                    live.consider(Best::received(status, &bytes));
                }
                if status >= 600 {
                    // RFC 3261 §16.7 item 5: "If a 6xx response is received, it is not
                    // immediately forwarded, but the stateful proxy SHOULD cancel all client
                    // pending transactions as described in Section 10, and it MUST NOT create any
                    // new branches in this context."
                    self.cancel_all(at, context, live, Reason::Answered(status));
                }
                self.conclude(at, context, live);
            }
        }
    }

    fn deliver_provisional(
        &mut self,
        answer: &Answer<'_>,
        context: &mut Context,
        live: &mut Live,
        bytes: Buffer,
    ) {
        let Answer { at, index, passage, .. } = *answer;
        let now = at.now;
        let status = passage.status;
        let pending = &mut live.pending[index];
        pending.failover = None;
        // What the transport has said before does not count any more.
        pending.since = now;
        // RFC 3261 §16.7 item 2: "For an INVITE transaction, if the response is a provisional
        // response with status codes 101 to 199 inclusive (i.e., anything but 100), the proxy
        // MUST reset timer C for that client transaction."
        if status > 100 && pending.timer_c.is_some() {
            pending.timer_c = Some(now + TIMER_C);
        }
        let (is_abandoned, cancel) = (pending.is_abandoned, pending.cancel);
        if is_abandoned || matches!(cancel, Cancel::Wanted { .. }) {
            self.cancel_branch(at, context, live, index);
        }
        if is_abandoned {
            return;
        }
        let answer = self.read_answer(context.call, passage, true);
        self.note_answer(now, context, answer);
        // RFC 3261 §16.7 item 5: "Any provisional response other than 100 (Trying)". RFC 4320
        // §4.1: "An SIP element MUST NOT send any provisional response with a Status-Code other
        // than 100 to a non-INVITE request."
        if status > 100 && context.method == Method::Invite && context.server.is_pending() {
            self.pass_provisional(now, context, status, bytes);
        }
    }
}
