//! Responses on their way up: RFC 3261 §16.7 items 5 to 9.

use tidegate_sip::{Message, Method, Passage, Reply, reason, write_reply};
use tidegate_transaction::Dispatch;
use tidegate_world::{Buffer, Flow, Timestamp, Transmit};

use crate::calls::{Answer, Evidence, Member, Transaction};
use crate::endpoint::Endpoint;
use crate::rejection_reason::ReplyReason;
use crate::reply::{server, transaction_tag};
use crate::stateful::best::Best;
use crate::stateful::context::{At, Branch, Context, Live};

/// Statuses of responses that are sent again, by class: that it is one is all that counts.
const PROVISIONAL: u16 = 199;
const FINAL: u16 = 200;

impl Live {
    /// Another final response that may be the one that is sent.
    pub(crate) fn consider(&mut self, response: Best) {
        self.best = Some(Box::new(match self.best.take() {
            Some(best) => best.or(response),
            None => response,
        }));
    }

    /// Whether a branch may still bring the final response.
    fn waits(&self, branches: &[Branch]) -> bool {
        let mut branches = branches.iter().zip(&self.pending);
        branches.any(|(branch, pending)| branch.client.is_pending() && !pending.is_abandoned)
    }
}

impl Endpoint {
    /// Sends the last response once more, if there was one.
    pub(crate) fn send_last(&mut self, now: Timestamp, context: &mut Context) {
        let Some(last) = &context.last else { return };
        // What is answered has not got a final response by a provisional one.
        let status = if context.server.is_pending() { PROVISIONAL } else { FINAL };
        let bytes = self.pool().copy(last);
        if self.may_respond(now, context, status, bytes.len()) {
            self.counters.responses_resent.add(1);
            self.transmit(Transmit { flow: context.back, bytes });
        }
    }

    /// Passes on a provisional response, and keeps it for repetitions of the request.
    pub(crate) fn pass_provisional(
        &mut self,
        now: Timestamp,
        context: &mut Context,
        status: u16,
        bytes: Buffer,
    ) {
        let timing = self.transactions().timing;
        let (server, dispatch) = context.server.on_sending(now, &timing, status);
        context.server = server;
        if dispatch == Dispatch::Send {
            context.last = Some(bytes[..].into());
            if !self.may_respond(now, context, status, bytes.len()) {
                return;
            }
            self.counters.responses_forwarded.add(1);
            self.transmit(Transmit { flow: context.back, bytes });
        }
    }

    /// Passes on a 2xx to an INVITE, whatever has been sent before.
    ///
    /// RFC 3261 §16.7 item 5: "After a final response has been sent on the server transaction,
    /// the following responses MUST be forwarded immediately: [...] Any 2xx response to an
    /// INVITE request".
    pub(crate) fn pass_success(
        &mut self,
        now: Timestamp,
        context: &mut Context,
        index: usize,
        passage: &Passage<'_>,
        bytes: Buffer,
    ) {
        let timing = self.transactions().timing;
        let status = passage.status;
        let is_first = context.server.is_pending();
        (context.server, _) = context.server.on_sending(now, &timing, status);
        if is_first {
            self.settle_call(now, context, context.branches[index].member);
            let answer = self.read_answer(context.call, passage, true);
            self.note_answer(now, context, answer);
        } else if self.calls().get(context.call).map(|call| call.member)
            == context.branches[index].member
        {
            // Somebody behind it has forked the INVITE, and several have taken it.
            let answer = self.read_answer(context.call, passage, true);
            self.note_answer(now, context, Answer { session: None, ..answer });
        }
        if !self.may_respond(now, context, status, bytes.len()) {
            return;
        }
        self.counters.responses_forwarded.add(1);
        self.transmit(Transmit { flow: context.back, bytes });
    }

    /// Sends the final response of a request, but for a 2xx to an INVITE. It has this status, and the
    /// call table is told this `answer`.
    pub(crate) fn pass_final(
        &mut self,
        now: Timestamp,
        context: &mut Context,
        answer: Answer,
        status: u16,
        bytes: Buffer,
    ) {
        let timing = self.transactions().timing;
        if context.server.is_pending() {
            self.note_answer(now, context, answer);
        }
        let (server, dispatch) = context.server.on_sending(now, &timing, status);
        context.server = server;
        if dispatch == Dispatch::Discard {
            return;
        }
        if answer.from_backend {
            self.counters.responses_forwarded.add(1);
        }
        context.last = Some(bytes[..].into());
        // The first one is owed, whatever it is.
        context.budget.on_sent(status, bytes.len());
        self.transmit(Transmit { flow: context.back, bytes });
    }

    /// Once no branch is left that could bring something better, the next group of a fork has
    /// its turn, or the best response is sent.
    pub(crate) fn conclude(&mut self, at: At, context: &mut Context, live: &mut Live) {
        if !context.server.is_pending() || live.waits(&context.branches) {
            return;
        }
        while let Some(group) = live.groups.pop_front() {
            if self.start_next_group(at, context, live, &group) {
                return;
            }
        }
        match live.best.take().map(|best| *best) {
            // RFC 3261 §16.7 item 6: "A proxy which receives a 503 (Service Unavailable) response
            // SHOULD NOT forward it upstream unless it can determine that any subsequent requests
            // it might proxy will also generate a 503. [...] If the only response that was
            // received is a 503, the proxy SHOULD generate a 500 response and forward that
            // upstream."
            Some(Best { status: 503, .. }) => self.respond(at.now, context, live, 500),
            Some(best) if best.bytes.is_empty() => self.respond(at.now, context, live, best.status),
            Some(best) => {
                let status = best.status;
                let bytes = self.pool().copy(&best.into_bytes());
                self.pass_final(at.now, context, Answer::new(status, true), status, bytes);
            }
            // RFC 4320 §4.2: "A transaction-stateful SIP element MUST NOT send a response with
            // Status-Code of 408 to a non-INVITE request. As a consequence, an element that cannot
            // respond before the transaction expires will not send a final response at all."
            None if context.method != Method::Invite => {
                self.end_unanswered(at.now, context, 408);
            }
            None => self.respond(at.now, context, live, 408),
        }
    }

    /// Answers the request ourselves.
    fn respond(&mut self, now: Timestamp, context: &mut Context, live: &Live, status: u16) {
        let message = Message::parse(&live.request).ok();
        let write = |message| self.write_own(&message, &context.back, context.identity, status);
        match message.and_then(write) {
            Some(bytes) => {
                let reason = ReplyReason::usual(status);
                self.counters.count_reply(status, reason);
                let member = context.branches.last().and_then(|branch| branch.member);
                self.routed_to = member.map(|member| member.pool);
                let (source, request) = (context.back.remote, &live.request);
                self.note_rejection(now, source, request, status, reason, reason.doc());
                // It says nothing of the other end but that it serves nobody now.
                let answer = Answer::new(status.max(503), false);
                self.pass_final(now, context, answer, status, bytes);
            }
            // The lines that it would repeat have no room in a datagram.
            None => self.end_unanswered(now, context, status),
        }
    }

    /// Ends a request that gets no final response; `status` is what it would have been.
    fn end_unanswered(&mut self, now: Timestamp, context: &mut Context, status: u16) {
        self.note_answer(now, context, Answer::new(status, false));
        context.server = context.server.end();
    }

    /// A response of our own in the transaction with this identity.
    pub(crate) fn write_own(
        &self,
        message: &Message<'_>,
        back: &Flow,
        identity: u64,
        status: u16,
    ) -> Option<Buffer> {
        let tag = transaction_tag(self.keys(), identity);
        let server = server(self.name());
        let reply = Reply {
            status,
            reason: reason(status),
            to_tag: Some(&tag),
            source: Some(back.remote),
            headers: server.as_slice(),
        };
        let mut bytes = self.pool().take();
        write_reply(message, &reply, &mut bytes).ok()?;
        Some(bytes)
    }

    /// The call is its back end's who has answered.
    fn settle_call(&mut self, now: Timestamp, context: &Context, member: Option<Member>) {
        let Some(member) = member else { return };
        let Some(call) = self.calls().get(context.call) else { return };
        if call.member != member {
            let Context { identity, method, .. } = *context;
            self.calls_mut().move_to(context.call, identity, member);
            self.note_place(context.call, member);
            let (transaction, evidence) = (Transaction { identity, method }, Evidence::default());
            self.count_request(now, context.call, member, transaction, evidence, None);
        }
    }

    /// Tells the call table of a response.
    pub(crate) fn note_answer(&mut self, now: Timestamp, context: &Context, answer: Answer) {
        let Context { identity, method, call, .. } = *context;
        self.calls_mut().on_response(now, call, Transaction { identity, method }, answer);
    }
}
