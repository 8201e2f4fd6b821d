//! What happens to a context as time passes: RFC 3261 §16.8, §16.9, §17.

use tidegate_sip::{Message, Method};
use tidegate_transaction::{Client, Firing};
use tidegate_world::Timestamp;

use crate::endpoint::Endpoint;
use crate::stateful::best::Best;
use crate::stateful::context::{At, Cancel, Context, Live};

/// Contexts handled by one call, so that many that are due together do not hold up the packets
/// that wait.
const DUE_MAX: usize = 256;

/// Packets that wait to be sent while one call goes on.
const TRANSMITS_MAX: usize = 256;

impl Endpoint {
    /// Lets happen what is due.
    pub(crate) fn handle_due(&mut self, now: Timestamp) {
        for _ in 0..DUE_MAX {
            if self.waiting_transmits() >= TRANSMITS_MAX {
                return;
            }
            let Some(context) = self.transactions_mut().next_due(now) else { return };
            let at = At { now, context };
            let Some(mut context) = self.transactions_mut().lend(at.context) else { continue };
            self.server_due(now, &mut context);
            match context.live.take() {
                Some(mut live) => {
                    self.trying_due(now, &mut context, &mut live);
                    for index in 0..context.branches.len() {
                        self.branch_due(at, &mut context, &mut live, index);
                    }
                    self.conclude(at, &mut context, &mut live);
                    context.live = Some(live);
                }
                None => {
                    let timing = self.transactions().timing;
                    for branch in &mut context.branches {
                        // It only absorbs; there is nothing to be sent again.
                        (branch.client, _) = branch.client.on_timer(now, &timing);
                    }
                }
            }
            self.transactions_mut().settle(now, at.context, context);
        }
    }

    fn server_due(&mut self, now: Timestamp, context: &mut Context) {
        let timing = self.transactions().timing;
        let (server, firing) = context.server.on_timer(now, &timing);
        context.server = server;
        match firing {
            Firing::Resend => self.send_last(now, context),
            Firing::TimedOut => self.counters.timeouts.add(1),
            Firing::Silent => {}
        }
    }

    /// RFC 4320 §4.1: "Without regard to transport, an SIP element MUST respond to a non-INVITE
    /// request with a Status-Code of 100 if it has not otherwise responded after the amount of
    /// time it takes a client transaction's Timer E to be reset to T2."
    fn trying_due(&mut self, now: Timestamp, context: &mut Context, live: &mut Live) {
        let is_due = live.trying.take_if(|due| *due <= now).is_some();
        if !is_due || !context.server.is_pending() {
            return;
        }
        let timing = self.transactions().timing;
        (context.server, _) = context.server.on_sending(now, &timing, 100);
        if let Ok(message) = Message::parse(&live.request) {
            self.send_trying(now, context, &message);
        }
    }

    fn branch_due(&mut self, at: At, context: &mut Context, live: &mut Live, index: usize) {
        let timing = self.transactions().timing;
        let branch = &mut context.branches[index];
        let target = branch.target;
        let (client, firing) = branch.client.on_timer(at.now, &timing);
        branch.client = client;
        match firing {
            Firing::Silent => {}
            Firing::Resend
                if live.pending[index].is_unreachable
                    || self.is_unreachable(target, live.pending[index].since) =>
            {
                self.branch_unreachable(at, context, live, index);
            }
            Firing::Resend => self.resend(at, context, live, index),
            Firing::TimedOut => self.branch_timed_out(at, context, live, index),
        }
        self.cancel_due(at, context, live, index);
        if context.branches[index].client.is_pending() {
            self.limits_due(at, context, live, index);
        }
    }

    fn resend(&mut self, at: At, context: &Context, live: &Live, index: usize) {
        let branch = &context.branches[index];
        let (egress, target, since) = (branch.egress, branch.target, live.pending[index].since);
        if !context.toward_backend && !self.may_repeat(at.now, since, context.call, egress, target)
        {
            return;
        }
        let Some(bytes) = self.write_again(context, live, index) else { return };
        self.counters.requests_resent.add(1);
        self.send_onward(egress, target, bytes);
    }

    /// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to
    /// forward a request (see Section 18.4), the proxy MUST behave as if the forwarded request
    /// received a 503 (Service Unavailable) response."
    fn branch_unreachable(&mut self, at: At, context: &mut Context, live: &mut Live, index: usize) {
        if self.try_next(at, context, live) {
            return;
        }
        let client = &mut context.branches[index].client;
        *client = client.end();
        live.consider(Best::own(503));
    }

    /// RFC 3261 §16.8, and the time-outs of the client transaction itself.
    fn branch_timed_out(&mut self, at: At, context: &mut Context, live: &mut Live, index: usize) {
        if live.pending[index].is_abandoned {
            return;
        }
        self.counters.timeouts.add(1);
        let parties = self.parties_of(context, live);
        self.note_silent(at.now, &context.branches[index], &mut live.pending[index], parties);
        if !self.try_next(at, context, live) && context.method == Method::Invite {
            live.consider(Best::own(408));
        }
    }

    fn cancel_due(&mut self, at: At, context: &Context, live: &mut Live, index: usize) {
        let timing = self.transactions().timing;
        let Cancel::Sent { client, until, has_reason } = live.pending[index].cancel else { return };
        let (client, firing) = client.on_timer(at.now, &timing);
        live.pending[index].cancel = Cancel::Sent { client, until, has_reason };
        if firing == Firing::Resend {
            self.counters.requests_resent.add(1);
            self.send_cancel(context, live, index);
        }
    }

    /// What limits a branch beyond its client transaction.
    fn limits_due(&mut self, at: At, context: &mut Context, live: &mut Live, index: usize) {
        let client: Client = context.branches[index].client;
        let pending = &mut live.pending[index];
        if pending.failover.take_if(|due| *due <= at.now).is_some() && client.is_unanswered() {
            let parties = self.parties_of(context, live);
            self.note_silent(at.now, &context.branches[index], &mut live.pending[index], parties);
            self.try_next(at, context, live);
        }
        let pending = &mut live.pending[index];
        if pending.timer_c.take_if(|due| *due <= at.now).is_some() {
            // RFC 3261 §16.8: "If the client transaction has received a provisional response, the
            // proxy MUST generate a CANCEL request matching that transaction. If the client
            // transaction has not received a provisional response, the proxy MUST behave as if
            // the transaction received a 408 (Request Timeout) response."
            let was_abandoned = std::mem::replace(&mut pending.is_abandoned, true);
            self.counters.timeouts.add(1);
            self.cancel_branch(at, context, live, index);
            if !was_abandoned {
                live.consider(Best::own(408));
            }
        }
        let pending = &live.pending[index];
        if pending.cancel.until().is_some_and(|until| until <= at.now) {
            let is_abandoned = pending.is_abandoned;
            let client = &mut context.branches[index].client;
            *client = client.end();
            if !is_abandoned {
                live.consider(Best::own(487));
            }
        }
    }
}
