//! Timers of a response context: those of its transactions and its own.

use tidegate_world::Timestamp;

use super::branch::Branch;
use super::client::State;
use super::context::Context;
use super::message::response_to;
use super::surroundings::Surroundings;

impl Context {
    pub fn next(&self) -> Option<Timestamp> {
        let trying = self.trying_at.filter(|_| self.server.is_open());
        let own = self.server.next().into_iter().chain(trying);
        own.chain(self.branches.iter().filter_map(Branch::next)).min()
    }

    /// Fires expired timers.
    pub fn handle_timeout(&mut self, around: &mut Surroundings) {
        let now = around.now;
        if let Some(response) = self.server.repeats(now) {
            around.send(self.upstream, &response.clone());
        }
        // RFC 4320 §4.1: "an SIP element MUST respond to a non-INVITE request with a Status-Code
        // of 100 if it has not otherwise responded after the amount of time it takes a client
        // transaction's Timer E to be reset to T2."
        if self.trying_at.is_some_and(|at| at <= now) && self.server.is_open() {
            self.trying_at = None;
            let trying = response_to(&self.server.request, "100 Trying", None);
            self.respond(around, &trying);
        }
        for index in 0..self.branches.len() {
            self.handle_branch_timeout(around, index);
        }
        self.server.ends(now);
    }

    fn handle_branch_timeout(&mut self, around: &mut Surroundings, index: usize) {
        let now = around.now;
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let branch = &mut self.branches[index];
        if let Some(cancel) = &mut branch.cancel {
            if cancel.repeats(now) {
                around.send(cancel.to, &cancel.request);
            }
            cancel.times_out(now);
        }
        if branch.client.is_waiting() && due(branch.failover_at) {
            // RFC 3263 §4.3: silence is a failure when "the transaction layer times out". Requests
            // that may arrive twice do not wait for that.
            let may_arrive_twice = ["INVITE", "REGISTER", "OPTIONS", "BYE"];
            if may_arrive_twice.contains(&self.server.request.method())
                || !around.is_up(branch.client.to)
            {
                branch.failover_at = None;
                let pending = self.branches.iter().position(Branch::is_pending);
                if let Some(pending) = pending {
                    self.try_next(around, pending);
                }
            } else {
                branch.failover_at = Some(now + now.since(branch.sent_at));
            }
        }
        let branch = &mut self.branches[index];
        if branch.client.repeats(now) {
            let since = branch.heard_at.unwrap_or(branch.sent_at);
            if branch.is_pending()
                && !branch.progressed
                && around.has_failed(branch.client.to, since)
            {
                return self.fail(around, index);
            }
            around.send(branch.client.to, &branch.client.request);
        }
        let invite = branch.client.is_invite();
        let is_unanswered = branch.client.state == State::Calling;
        if branch.client.times_out(now) {
            // §16.6 item 7: "If the client transaction reports failure to send the request or a
            // timeout from its state machine, the proxy continues to the next address". RFC 3263
            // §4.3: only if it "times out without ever having received any response, provisional
            // or final".
            if is_unanswered && self.branches[index].is_pending() && self.try_next(around, index) {
                return;
            }
            // §16.7 item 6: "If there are no final responses in the context, the proxy MUST send
            // a 408 (Request Timeout) response to the server transaction."
            return self.give_up(around, index, invite.then_some("408 Request Timeout"));
        }
        if !branch.client.is_waiting() {
            return;
        }
        if due(branch.cancelled_until) {
            branch.client.terminate();
            return self.give_up(around, index, Some("487 Request Terminated"));
        }
        // §16.8: "the proxy MUST either reset the timer with any value it chooses, or terminate the
        // client transaction. If the client transaction has received a provisional response, the
        // proxy MUST generate a CANCEL request matching that transaction."
        if due(branch.timer_c) {
            branch.timer_c = None;
            branch.ask_to_cancel(around, &self.reasons);
            self.give_up(around, index, Some("408 Request Timeout"));
        }
    }

    /// §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
    /// request [...], the proxy MUST behave as if the forwarded request received a 503".
    fn fail(&mut self, around: &mut Surroundings, index: usize) {
        if !self.try_next(around, index) {
            self.branches[index].client.terminate();
            let unavailable = self.own("503 Service Unavailable");
            self.end_branch(around, index, unavailable);
        }
    }
}
