//! The response context of a stateful proxy: RFC 3261 §16.6 to §16.10.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tidegate_world::Timestamp;

use super::best::best;
use super::branch::{Branch, FAILOVER_AFTER};
use super::client::Passed;
use super::forward::{self, Way};
use super::message::{Message, response_to};
use super::server::{Server, State};
use super::surroundings::Surroundings;
use super::timer::{TIMER_C, TRYING_AFTER};

/// The most back ends that are tried for one request.
const TRIES_MAX: usize = 3;

#[derive(Clone, Debug)]
pub struct Context {
    pub server: Server,
    pub branches: Vec<Branch>,
    /// The source of the request.
    source: SocketAddr,
    /// The target of its responses.
    pub upstream: SocketAddr,
    pub way: Way,
    /// Groups of targets that wait until the earlier groups have ended.
    groups: VecDeque<Vec<(SocketAddr, u32)>>,
    /// Final responses that may be the best, in order of arrival.
    candidates: Vec<Message>,
    /// True if the caller has cancelled the request.
    cancelled: bool,
    /// The Reason values of the CANCELs, once one was requested.
    pub reasons: Vec<String>,
    has_reasons: bool,
    /// True if a target has answered 503.
    is_rejected: bool,
    /// The time of the 100 for a request other than INVITE.
    pub trying_at: Option<Timestamp>,
}

impl Context {
    /// Makes the context of a request with this way, which has at least one target.
    pub fn new(around: &mut Surroundings, request: Message, source: SocketAddr, way: Way) -> Self {
        let upstream = forward::reply_address(&request);
        let call = request.first("Call-ID").to_owned();
        let mut context = Self {
            server: Server::new(around.now, request),
            branches: Vec::new(),
            source,
            upstream,
            groups: VecDeque::new(),
            way,
            candidates: Vec::new(),
            cancelled: false,
            reasons: Vec::new(),
            has_reasons: false,
            is_rejected: false,
            trying_at: None,
        };
        // §17.2.1: "The server transaction MUST generate a 100 (Trying) response unless it knows
        // that the TU will generate a provisional or final response within 200 ms".
        if context.server.is_invite() {
            let trying = response_to(&context.server.request, "100 Trying", None);
            context.respond(around, &trying);
        } else {
            context.trying_at = Some(around.now + TRYING_AFTER);
        }
        for group in context.way.groups(around, &call) {
            let shares = forward::shares_of_breadth(&context.server.request, group.len());
            context.groups.push_back(group.into_iter().zip(shares).collect());
        }
        context.begin_group(around);
        context
    }

    pub fn is_over(&self) -> bool {
        self.next().is_none() && !self.server.is_open()
    }

    pub fn has_server(&self) -> bool {
        self.server.state != State::Terminated
    }

    /// Returns the number of live client transactions.
    pub fn clients(&self) -> usize {
        let of = |branch: &Branch| usize::from(branch.client.is_live());
        self.branches.iter().map(of).sum()
    }

    pub fn on_repeated(&self, around: &mut Surroundings) {
        if let Some(response) = self.server.on_repeated() {
            around.send(self.upstream, response);
        }
    }

    /// Returns the branch whose request or CANCEL a response answers.
    pub fn matching(&self, response: &Message) -> Option<usize> {
        self.branches.iter().position(|branch| {
            let cancel = branch.cancel.as_ref();
            branch.client.matches(response) || cancel.is_some_and(|c| c.matches(response))
        })
    }

    pub fn on_response(&mut self, around: &mut Surroundings, index: usize, response: &Message) {
        let (now, branch) = (around.now, &mut self.branches[index]);
        // §16.7 item 3: "This will happen, for instance, when the element generates CANCEL
        // requests": they are the proxy's own.
        if response.method() == "CANCEL" {
            let cancel = branch.cancel.as_mut().expect("it matches");
            cancel.on_response(now, response);
            return;
        }
        let status = response.status().expect("a response has a status");
        match branch.client.on_response(now, response) {
            Passed::Absorbed => return,
            Passed::Acknowledged(ack) => return around.send(branch.client.to, &ack),
            Passed::UpAcknowledged(ack) => around.send(branch.client.to, &ack),
            Passed::Up => {}
        }
        if status == 503 && !self.way.is_between_backends() {
            around.on_rejected(branch.client.to);
        }
        // §16.7 item 3: "The proxy removes the topmost Via header field value from the
        // response."
        let mut upward = response.clone();
        upward.remove_first("Via");
        match status {
            ..200 => self.on_provisional(around, index, &upward),
            200..300 if self.server.is_invite() => self.on_success(around, index, &upward),
            _ => self.on_final(around, index, upward),
        }
    }

    fn on_provisional(&mut self, around: &mut Surroundings, index: usize, response: &Message) {
        let branch = &mut self.branches[index];
        branch.heard_at = Some(around.now);
        branch.failover_at = None;
        let is_trying = response.status() == Some(100);
        if !is_trying && self.server.is_invite() {
            branch.progressed = true;
            // §16.7 item 2: "if the response is a provisional response with status codes 101 to
            // 199 inclusive (i.e., anything but 100), the proxy MUST reset timer C".
            branch.timer_c = branch.timer_c.map(|_| around.now + TIMER_C);
        }
        if branch.abandoned {
            // Cancel an abandoned branch as soon as it responds.
            branch.ask_to_cancel(around, &self.reasons);
        }
        branch.cancel_if_heard(around, &self.reasons);
        // §16.8: "terminate the client transaction", when timer C has fired.
        if branch.abandoned || branch.ended {
            return;
        }
        // §16.7 item 5: "Until a final response has been sent on the server transaction, the
        // following responses MUST be forwarded immediately: [...] Any provisional response other
        // than 100 (Trying)". RFC 4320 §4.1: "An SIP element MUST NOT send any provisional response
        // with a Status-Code other than 100 to a non-INVITE request."
        if !is_trying && self.server.is_invite() && self.server.is_open() {
            self.respond(around, response);
        }
    }

    /// §16.7 item 5: "Any 2xx response", also "After a final response has been sent on the server
    /// transaction".
    fn on_success(&mut self, around: &mut Surroundings, index: usize, response: &Message) {
        self.branches[index].ended = true;
        self.respond(around, response);
        // RFC 3326 §3.1: "A proxy forks an INVITE request and one of the branches returns a 200
        // (OK). The forking proxy includes this status code in a Reason header field in the CANCEL
        // request that it sends to the rest of the branches."
        self.cancel_pending(
            around,
            &["SIP;cause=200;text=\"Call completed elsewhere\"".to_owned()],
        );
    }

    fn on_final(&mut self, around: &mut Surroundings, index: usize, response: Message) {
        let status = response.status();
        let branch = &mut self.branches[index];
        // §16.7 item 5: "Any 2xx response", even of an abandoned attempt.
        let is_success = status.is_some_and(|status| status < 300);
        if branch.ended || (branch.abandoned && !is_success) {
            return;
        }
        // §16.6 item 7, for a target that another one replaces: "The proxy does not need to place
        // anything in the response context".
        let has_progressed = branch.progressed;
        self.is_rejected |= status == Some(503);
        if status == Some(503) && !has_progressed && self.try_next(around, index) {
            return;
        }
        // RFC 4320 §4.2: "A transaction-stateful SIP element MUST NOT send a response with
        // Status-Code of 408 to a non-INVITE request."
        if status == Some(408) && !self.server.is_invite() {
            return self.give_up(around, index, None);
        }
        self.end_branch(around, index, response);
    }

    /// Ends a branch with a final response from downstream or, if there is none, from us.
    pub fn end_branch(&mut self, around: &mut Surroundings, index: usize, response: Message) {
        self.branches[index].ended = true;
        let status = response.status().expect("a response has a status");
        self.candidates.push(response);
        // §16.7 item 5: "If a 6xx response is received, it is not immediately forwarded, but the
        // stateful proxy SHOULD cancel all client pending transactions as described in Section
        // 10, and it MUST NOT create any new branches in this context."
        if status >= 600 {
            let text = if status == 603 { "Decline" } else { "Busy Everywhere" };
            let reason = format!("SIP;cause={status};text=\"{text}\"");
            self.cancel_pending(around, &[reason]);
        }
        // For methods other than INVITE a 2xx is as final as any response.
        if status < 300 {
            self.groups.clear();
            return self.finish(around);
        }
        self.settle(around);
    }

    /// Ends a branch without a final response from downstream. `status` is the status of the reply
    /// that we generate instead, or `None` for no reply.
    pub fn give_up(&mut self, around: &mut Surroundings, index: usize, status: Option<&str>) {
        if !self.branches[index].is_pending() {
            return;
        }
        match status {
            Some(status) => {
                let response = self.own(status);
                self.end_branch(around, index, response);
            }
            None => {
                self.branches[index].ended = true;
                self.settle(around);
            }
        }
    }

    /// Continues when no branch is pending: with the next group or the final response.
    pub fn settle(&mut self, around: &mut Surroundings) {
        if !self.server.is_open() || self.branches.iter().any(Branch::is_pending) {
            return;
        }
        self.drop_absent(around);
        if self.groups.is_empty() { self.finish(around) } else { self.begin_group(around) }
    }

    /// §16.7 item 6: "A stateful proxy MUST send a final response to a response context's server
    /// transaction if no final responses have been immediately forwarded by the above rules and
    /// all client transactions in this response context have been terminated."
    fn finish(&mut self, around: &mut Surroundings) {
        if !self.server.is_open() {
            return;
        }
        let success = self.candidates.iter().find(|c| c.status().is_some_and(|s| s < 300));
        let Some(mut chosen) = success.cloned().or_else(|| best(&self.candidates)) else {
            // RFC 4320 §4.2: "A transaction-stateful SIP element MUST NOT send a response with
            // Status-Code of 408 to a non-INVITE request."
            return self.server.expire(around.now);
        };
        // "If the only response that was received is a 503, the proxy SHOULD generate a 500
        // response and forward that upstream."
        if chosen.status() == Some(503) {
            chosen = self.own("500 Server Internal Error");
        }
        // Only abandoned attempts are pending. They are cancelled when they respond.
        self.respond(around, &chosen);
    }

    /// §16.7 item 10: "If the forwarded response was a final response, the proxy MUST generate a
    /// CANCEL request for all pending client transactions associated with this response context."
    fn cancel_pending(&mut self, around: &mut Surroundings, reasons: &[String]) {
        self.groups.clear();
        if !self.has_reasons {
            (self.has_reasons, self.reasons) = (true, reasons.to_vec());
        }
        for branch in &mut self.branches {
            branch.ask_to_cancel(around, &self.reasons);
        }
    }

    /// §16.10: "the element MUST generate CANCEL requests for all pending client transactions in
    /// the context".
    pub fn on_cancel(&mut self, around: &mut Surroundings, cancel: &Message) {
        // §9.2: "A CANCEL request has no impact on the processing of transactions with any other
        // method defined in this specification." It has no effect after a final response either.
        if self.server.is_invite() && self.server.is_open() {
            self.cancelled = true;
            let reasons: Vec<_> = cancel.all("Reason").into_iter().map(str::to_owned).collect();
            self.cancel_pending(around, &reasons);
        }
    }

    /// Tries another back end instead of a branch. Returns whether there is one.
    pub fn try_next(&mut self, around: &mut Surroundings, index: usize) -> bool {
        // A request from a back end to a pool stays at one back end of the pool.
        let Way::Pool { pool, fork: false, sender: None } = self.way else { return false };
        let tried: Vec<_> = self.branches.iter().map(|b| b.client.to).collect();
        let in_dialog = self.server.request.tag("To").is_some();
        if self.cancelled || in_dialog || tried.len() >= TRIES_MAX || !self.server.is_open() {
            return false;
        }
        let left = around.alternatives(pool, &tried, self.is_rejected);
        let call = self.server.request.first("Call-ID");
        let Some(next) = around.choose(call, &left) else { return false };
        let branch = &mut self.branches[index];
        branch.abandoned = true;
        branch.failover_at = None;
        branch.timer_c = None;
        branch.client.stop_repeating();
        let whole = forward::incoming_breadth(&self.server.request);
        self.begin_branch(around, next, whole);
        true
    }

    fn begin_group(&mut self, around: &mut Surroundings) {
        let mut group = self.groups.pop_front().expect("a group is left");
        if !super::lenience::BREADTH_FOR_THE_ABSENT {
            let shares = forward::shares_of_breadth(&self.server.request, group.len());
            group.iter_mut().zip(shares).for_each(|((_, share), anew)| *share = anew);
        }
        for (target, share) in group {
            self.begin_branch(around, target, share);
        }
    }

    /// Removes targets that are down by now.
    fn drop_absent(&mut self, around: &Surroundings) {
        if !matches!(self.way, Way::Pool { .. }) {
            return;
        }
        while let Some(next) = self.groups.front_mut() {
            next.retain(|&(at, _)| around.is_up(at));
            if !next.is_empty() {
                return;
            }
            self.groups.pop_front();
        }
    }

    fn begin_branch(&mut self, around: &mut Surroundings, target: SocketAddr, breadth: u32) {
        let same = self.branches.iter().filter(|branch| branch.client.to == target).count();
        let name = around.new_branch(&forward::identity(&self.server.request), target, same);
        around.record_branch(&name, &self.server.request, self.source);
        let mut copy = forward::copy(around, &self.server.request, &self.way, target, &name);
        copy.set("Max-Breadth", &breadth.to_string());
        let mut branch = Branch::new(around, copy, target);
        let may_fail_over = matches!(self.way, Way::Pool { fork: false, sender: None, .. });
        branch.failover_at = may_fail_over.then(|| around.now + FAILOVER_AFTER);
        self.branches.push(branch);
    }

    pub fn respond(&mut self, around: &mut Surroundings, response: &Message) {
        if self.server.send(around.now, response) {
            around.send(self.upstream, response);
        }
    }

    pub fn own(&self, status: &str) -> Message {
        let request = &self.server.request;
        response_to(request, status, Some(&forward::transaction_tag(request)))
    }
}
