//! The beginning: a request becomes a context, and goes to its first targets.

use smallvec::SmallVec;
use std::time::Duration;

use tidegate_sip::{Message, Method, Reply, reply_target, write_reply};
use tidegate_transaction::{Client, Key, Server};
use tidegate_world::{Buffer, Flow, Received, Timestamp, Transmit};

use crate::amplification::Budget;
use crate::branch::BranchText;
use crate::calls::Transaction;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::onward::Onward;
use crate::rejection_reason::{ReplyReason, TRANSACTION_SHARE_USED, TRANSACTION_TABLE_FULL};
use crate::request::Request;
use crate::routing::Hop;
use crate::stateful::context::{At, Branch, Cancel, Context, Counted, Live, Pending};
use crate::transaction_branch::{TargetTag, TransactionBranch};

/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
pub(crate) const TIMER_C: Duration = Duration::from_secs(190);

/// Branches of one context at the most: their index has a byte in our branch.
pub(crate) const BRANCHES_MAX: usize = 64;

/// There is no room for another context.
pub(crate) const FULL: Instead = Instead::Reply(503, TRANSACTION_TABLE_FULL);

/// Nor is there for another one of this source.
pub(crate) const SHARE_FULL: Instead = Instead::Reply(503, TRANSACTION_SHARE_USED);

impl Endpoint {
    /// Forwards a request that no transaction is held of, and holds one from now on.
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
        hop: Hop,
    ) -> Result<(), Instead> {
        let ingress = self.addresses().listener_at(received.flow.local);
        let onward = self.onward(now, ingress, &hop)?;
        let breadth = self.breadth(request)?;
        let groups = self.fork_groups(now, &hop, breadth)?;

        let key = Key::new(request.identity, request.method);
        // RFC 3261 §12.2: a request within a dialog has a To-tag; what has none is new, whoever sent
        // it, and leaves the reserve alone.
        if request.essentials.to_tag.is_none() && self.transactions().is_full_for_new() {
            return Err(self.transactions_full());
        }
        let share = self.transactions().is_scarce().then(|| self.share_of(&received.flow));
        let share = share.flatten();
        let inserted = self.transactions_mut().insert(now, key, share);
        let context = inserted.map_err(|_| self.transactions_full())?;
        let at = At { now, context };
        let target = reply_target(&request.essentials.via, received.flow.remote);
        let is_invite = request.method == Method::Invite;
        let mut context = Box::new(Context {
            server: if is_invite { Server::invite() } else { Server::other() },
            identity: request.identity,
            method: request.method,
            back: Flow { remote: target, ..received.flow },
            call: hop.call,
            branches: SmallVec::new(),
            budget: Budget::default(),
            toward_backend: onward.toward_backend,
            last: None,
            live: None,
            share,
            loop_hash: self.loop_hash(received, request),
            counted: Counted::default(),
        });
        context.budget.on_request(received.bytes.len(), false);
        let mut live = Box::new(Live {
            request: request.message.bytes().into(),
            onward: Onward { max_breadth: Some(breadth), ..onward },
            pending: SmallVec::new(),
            choice: hop.choice,
            has_priority: request.has_priority,
            source: received.flow.remote.ip(),
            is_refused: false,
            trying: (!is_invite).then(|| now + self.transactions().timing.until_t2()),
            groups,
            best: None,
            is_cancelled: false,
            reason: None,
        });
        if is_invite {
            // RFC 3261 §17.2.1: "The server transaction MUST generate a 100 (Trying) response
            // unless it knows that the TU will generate a provisional or final response within
            // 200 ms".
            self.send_trying(now, &mut context, request.message);
        }
        let started = match live.groups.pop_front() {
            None => self.start(at, &mut context, &mut live, request, hop, breadth),
            Some(group) => self.start_group(at, &mut context, &mut live, request, &group),
        };
        if let Err(instead) = started {
            // Nothing has gone on; whoever sent it gets the reason without a transaction.
            self.transactions_mut().discard(at.context, share);
            return Err(instead);
        }
        context.live = Some(live);
        self.transactions_mut().settle(now, at.context, context);
        Ok(())
    }

    /// Sends the request to one more target, and a client transaction begins.
    pub(crate) fn start(
        &mut self,
        at: At,
        context: &mut Context,
        live: &mut Live,
        request: &Request<'_>,
        hop: Hop,
        breadth: u32,
    ) -> Result<(), Instead> {
        let timing = self.transactions().timing;
        let egress = self.egress(live.onward.ingress.into(), hop.egress, hop.target)?;
        let index = context.branches.len();
        let same = context.branches.iter().filter(|branch| branch.target == hop.target).count();
        context.branches.push(Branch {
            tag: TargetTag::of(self.keys(), context.identity, hop.target, same as u8),
            client: match request.method {
                Method::Invite => Client::invite(at.now, &timing),
                _ => Client::other(at.now, &timing),
            },
            target: hop.target,
            member: hop.member,
            egress,
            hop: None,
        });
        let others = hop.choice.and_then(|(pool, _)| self.failover_after(pool));
        live.pending.push(Pending {
            since: at.now,
            failover: others.map(|after| at.now + after),
            timer_c: (request.method == Method::Invite).then(|| at.now + TIMER_C),
            cancel: Cancel::No,
            breadth,
            is_unreachable: false,
            is_abandoned: false,
            may_teach: hop.choice.is_some(),
        });
        let bytes = match self.write_branch(context, live, request, index) {
            Ok(bytes) => bytes,
            Err(instead) => {
                context.branches.pop();
                live.pending.pop();
                return Err(instead);
            }
        };
        let transaction = Transaction { identity: context.identity, method: request.method };
        let target = hop.target;
        if let Some(member) = hop.member.filter(|_| hop.choice.is_some()) {
            self.note_given(at.now, member, live.source, request);
        }
        self.note_request(at.now, hop, transaction);
        self.counters.requests_forwarded.add(1);
        self.send_onward(egress, target, bytes);
        Ok(())
    }

    /// The request as the branch at `index` has it.
    fn write_branch(
        &self,
        context: &Context,
        live: &Live,
        request: &Request<'_>,
        index: usize,
    ) -> Result<Buffer, Instead> {
        let branch = &context.branches[index];
        let onward = Onward {
            target: branch.target,
            member: branch.member,
            egress: branch.egress,
            max_breadth: Some(live.pending[index].breadth),
            ..live.onward
        };
        let text = self.branch_of(context, index, live.onward.ingress);
        self.write_request(context.back.remote, request, &onward, text.as_bytes())
    }

    /// The request once more as the branch at `index` has sent it.
    pub(crate) fn write_again(
        &self,
        context: &Context,
        live: &Live,
        index: usize,
    ) -> Option<Buffer> {
        let message = Message::parse(&live.request).ok()?;
        let request = self.read_again(&message, context)?;
        self.write_branch(context, live, &request, index).ok()
    }

    /// A request that was read before.
    pub(crate) fn read_again<'a>(
        &self,
        message: &'a Message<'a>,
        context: &Context,
    ) -> Option<Request<'a>> {
        let mut request = Request::read(message).ok()?;
        request.identity = context.identity;
        self.restore(&mut request, context.back.local).ok()?;
        Some(request)
    }

    /// The text of the branch at `index` of a context, whose request came in at `listener`.
    pub(crate) fn branch_of(&self, context: &Context, index: usize, listener: u8) -> BranchText {
        let branch = TransactionBranch {
            listener,
            shard: self.shard() as u8,
            process: self.keys().process,
            identity: context.identity,
            tag: context.branches[index].tag,
            loop_hash: context.loop_hash,
        };
        branch.encode(self.keys(), context.back.remote)
    }

    /// Returns whether `text` is the branch of the context that it names.
    pub(crate) fn is_branch_of(&self, branch: &TransactionBranch, text: &[u8]) -> bool {
        let context = self.transactions().find(Key::cancelled(branch.identity));
        context.and_then(|context| self.transactions().get(context)).is_some_and(|context| {
            context.branch_at(branch.tag).is_some_and(|index| {
                self.branch_of(context, index, branch.listener).as_bytes() == text
            })
        })
    }

    /// Tells the caller that his INVITE has come.
    pub(crate) fn send_trying(
        &mut self,
        now: Timestamp,
        context: &mut Context,
        message: &Message<'_>,
    ) {
        let mut bytes = self.pool().take();
        let reply = Reply { source: Some(context.back.remote), ..Reply::new(100) };
        if write_reply(message, &reply, &mut bytes).is_ok()
            && self.may_respond(now, context, 100, bytes.len())
        {
            self.counters.count_reply(100, ReplyReason::None);
            self.transmit(Transmit { flow: context.back, bytes });
        }
    }
}
