//! The beginning: a request becomes a context, and goes to its first targets.

use smallvec::SmallVec;
use std::time::Duration;

use tidegate_sip::{Message, Method, Reply, reply_target, write_reply};
use tidegate_transaction::{Client, Handle, Key, Server};
use tidegate_world::{Buffer, Path, Received, Timestamp, Transmit};

use crate::branch::BranchText;
use crate::calls::Transaction;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::onward::Onward;
use crate::rejection_reason::{ReplyReason, TRANSACTION_TABLE_FULL};
use crate::request::Request;
use crate::routing::Hop;
use crate::stateful::context::{At, Branch, Cancel, Context, Counted, Live, Pending};
use crate::transaction_branch::TransactionBranch;

/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
pub(crate) const TIMER_C: Duration = Duration::from_secs(190);

/// Branches of one context at the most: their index has a byte in our branch.
pub(crate) const BRANCHES_MAX: usize = 64;

/// There is no room for another context.
pub(crate) const FULL: Instead = Instead::Reply(503, TRANSACTION_TABLE_FULL);

impl Endpoint {
    /// Forwards a request that no transaction is held of, and holds one from now on.
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
        hop: Hop,
    ) -> Result<(), Instead> {
        let ingress = self.addresses().listener_at(received.path.local);
        let onward = self.onward(ingress, &hop)?;
        let breadth = self.breadth(request)?;
        let groups = self.fork_groups(now, &hop, breadth)?;

        let key = Key::new(request.identity, request.method);
        let context = self.transactions_mut().insert(now, key).map_err(|_| FULL)?;
        let at = At { now, context };
        let target = reply_target(&request.essentials.via, received.path.remote);
        let is_invite = request.method == Method::Invite;
        let mut context = Box::new(Context {
            server: if is_invite { Server::invite() } else { Server::other() },
            identity: request.identity,
            method: request.method,
            back: Path { remote: target, ..received.path },
            call: hop.call,
            branches: SmallVec::new(),
            last: None,
            live: None,
            loop_hash: self.loop_hash(received, request),
            counted: Counted::default(),
        });
        let mut live = Box::new(Live {
            request: request.message.bytes().into(),
            onward: Onward { max_breadth: Some(breadth), ..onward },
            pending: SmallVec::new(),
            choice: hop.choice,
            has_priority: request.has_priority,
            trying: (!is_invite).then(|| now + self.transactions().timing.until_t2()),
            groups,
            best: None,
            is_cancelled: false,
        });
        if is_invite {
            // RFC 3261 §17.2.1: "The server transaction MUST generate a 100 (Trying) response
            // unless it knows that the TU will generate a provisional or final response within
            // 200 ms".
            self.send_trying(&context.back, request.message);
        }
        let started = match live.groups.pop_front() {
            None => self.start(at, &mut context, &mut live, request, hop, breadth),
            Some(group) => self.start_group(at, &mut context, &mut live, request, &group),
        };
        if let Err(instead) = started {
            // Nothing has gone on; whoever sent it gets the reason without a transaction.
            self.transactions_mut().discard(at.context);
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
        let egress = self.egress(live.onward.ingress.into(), &hop)?;
        let index = context.branches.len();
        context.branches.push(Branch {
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
            is_abandoned: false,
            may_teach: hop.choice.is_some(),
        });
        let bytes = match self.write_branch(at.context, context, live, request, index) {
            Ok(bytes) => bytes,
            Err(instead) => {
                context.branches.pop();
                live.pending.pop();
                return Err(instead);
            }
        };
        let transaction = Transaction { identity: context.identity, method: request.method };
        let target = hop.target;
        self.note_request(at.now, hop, transaction);
        self.counters.requests_forwarded.add(1);
        self.send_onward(egress, target, bytes);
        Ok(())
    }

    /// The request as the branch at `index` has it.
    fn write_branch(
        &self,
        handle: Handle,
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
        let text = self.branch_of(handle, context, index, live.onward.ingress);
        self.write_request(context.back.remote, request, &onward, text.as_bytes())
    }

    /// The request once more as the branch at `index` has sent it.
    pub(crate) fn write_again(
        &self,
        handle: Handle,
        context: &Context,
        live: &Live,
        index: usize,
    ) -> Option<Buffer> {
        let message = Message::parse(&live.request).ok()?;
        let request = self.read_again(&message, context)?;
        self.write_branch(handle, context, live, &request, index).ok()
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
    pub(crate) fn branch_of(
        &self,
        handle: Handle,
        context: &Context,
        index: usize,
        listener: u8,
    ) -> BranchText {
        let branch = TransactionBranch {
            listener,
            shard: self.shard() as u8,
            is_own: true,
            context: handle,
            index: index as u8,
            loop_hash: context.loop_hash,
        };
        branch.encode(self.keys(), context.back.remote)
    }

    /// Whether `text` is the branch that it says, by the context that it names.
    pub(crate) fn is_branch_of(&self, branch: &TransactionBranch, text: &[u8]) -> bool {
        self.transactions().get(branch.context).is_some_and(|context| {
            let index = branch.index.into();
            let ours = self.branch_of(branch.context, context, index, branch.listener);
            ours.as_bytes() == text
        })
    }

    /// Tells the caller that his INVITE has come.
    pub(crate) fn send_trying(&mut self, back: &Path, message: &Message<'_>) {
        let mut bytes = self.pool().take();
        let reply = Reply { source: Some(back.remote), ..Reply::new(100) };
        if write_reply(message, &reply, &mut bytes).is_ok() {
            self.counters.count_reply(100, ReplyReason::None);
            self.transmit(Transmit { path: *back, bytes });
        }
    }
}
