//! Responses: back by our Via, RFC 3261 §16.7 and §16.11.

use std::net::{IpAddr, SocketAddr};

use tidegate_control::Tier;
use tidegate_sip::{Method, Passage, response_target};
use tidegate_transaction::Key;
use tidegate_world::{Buffer, Flow, Received, Timestamp, Transmit};

use crate::branch::Branch;
use crate::calls::{Member, Transaction};
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::probes::ProbeAnswer;
use crate::settings::canonical;
use crate::stateful::Context;
use crate::transaction_branch::TransactionBranch;
use crate::verification::Shown;

impl Endpoint {
    /// Brings a response back to where its request came from.
    pub(crate) fn serve_response(&mut self, now: Timestamp, received: Received) {
        self.tiering.begin();
        match self.try_response(now, &received) {
            Ok(()) => {}
            Err(Astray::Drop(why)) => {
                let is_ours =
                    matches!(why, DropReason::StrayResponse | DropReason::RepeatedResponse);
                if !is_ours && why != DropReason::TooLong {
                    self.shown = Shown::Stray;
                }
                self.drop_counted(why);
            }
            Err(Astray::Cross(shard)) => self.cross(shard, received),
        }
    }

    fn try_response(&mut self, now: Timestamp, received: &Received) -> Result<(), Astray> {
        let passage =
            Passage::parse(&received.bytes).map_err(|_| Astray::Drop(DropReason::Malformed))?;
        // RFC 3261 §18.1.2: "If the value of the "sent-by" parameter in that header field value does
        // not correspond to a value that the client transport is configured to insert into
        // requests, the response MUST be silently discarded."
        if !self.addresses().is_own_sent_by(passage.sent_by) {
            return Err(Astray::Drop(DropReason::ForeignResponse));
        }
        // RFC 3261 §16.7 item 3: "If no Via header field values remain in the response, the response was meant for
        // this element and MUST NOT be forwarded": the response to a CANCEL of ours, or a probe.
        if passage.next.is_none() && passage.cseq.method == Method::Cancel {
            return self.try_answer_to_cancel(now, received, &passage);
        }
        if passage.next.is_none() && passage.cseq.method == Method::Options {
            return match self.serve_probe_answer(now, received, &passage) {
                Ok(ProbeAnswer::Taken) => Ok(()),
                Ok(ProbeAnswer::Of(shard)) => self.check_shard(shard, received),
                Err(why) => Err(Astray::Drop(why)),
            };
        }
        let remote = passage.next.as_ref().and_then(response_target);
        let remote = remote.ok_or(Astray::Drop(DropReason::LostResponse))?;
        let asked = self.who_asked(&passage, remote);
        let asked = asked.ok_or(Astray::Drop(DropReason::ForeignResponse))?;
        self.check_shard(asked.shard(), received)?;
        let member = self.addresses().member(received.flow.remote);
        let is_present =
            |member: &Member| self.backend(*member).is_present_at(canonical(received.flow.remote));
        let present = member.filter(is_present);
        match asked {
            Asked::Transaction(branch) => {
                self.tiering.note(Tier::Stateful);
                let (method, remote) = (passage.cseq.method, received.flow.remote);
                let owner = self.owner(&branch, method, remote, present);
                // Nobody knows our branch but who has received the request, and whoever has may tell
                // others; back ends need no proof.
                let is_success = method == Method::Invite && (200..300).contains(&passage.status);
                if is_success && member.is_none() && self.was_sent_to(&branch, method, remote) {
                    self.shown = Shown::Receives;
                }
                self.note_alive(now, owner);
                self.serve_answer(now, received, &passage, &branch).map_err(Astray::Drop)
            }
            Asked::Before { listener, .. } => {
                // Its MAC says that one of us has sent the request, and its source who answers.
                self.note_alive(now, present);
                if !self.learn_lost(now, received, &passage) {
                    return Err(Astray::Drop(DropReason::RepeatedResponse));
                }
                self.pass_back(received, &passage, remote, listener, None)
            }
            Asked::Stateless(branch) => {
                self.tiering.note(Tier::Stateless);
                self.note_alive(now, present);
                let (method, status) = (passage.cseq.method, passage.status);
                let transaction = Transaction { identity: branch.identity, method };
                let fingerprint = self.keys().call.fingerprint(passage.call_id);
                let call = self.calls().find_of(fingerprint, transaction);
                if let Some(call) = call {
                    let answer = self.read_answer(call, &passage, member.is_some());
                    if status == 503
                        && let Some(member) = present
                        && let Some(sent) = self.calls().sent_at(call, transaction)
                    {
                        let parties = self.calls().parties(call, transaction);
                        let backend = self.backend(member);
                        let sources = self.pool_settings(member.pool).pool.watch(now);
                        let is_proved = backend.on_refused(now, parties, sources, None);
                        backend.on_not_taken(sent, is_proved);
                    }
                    if let Some(member) = member.filter(|_| status >= 200)
                        && !self.calls().has_ended(call, transaction)
                    {
                        self.backend(member).on_final(method == Method::Invite, status);
                    }
                    self.calls_mut().on_response(now, call, transaction, answer);
                } else if !self.learn_lost(now, received, &passage) {
                    return Err(Astray::Drop(DropReason::RepeatedResponse));
                }
                if let Some(call) = call.filter(|_| member.is_some()) {
                    let listener = self.addresses().listener(branch.listener.into());
                    let local = listener.map_or(received.flow.local, |listener| listener.local);
                    let flow = Flow { local, remote, ..received.flow };
                    let length = received.bytes.len();
                    if !self.may_pass_back(now, call, &flow, passage.status, length) {
                        return Ok(());
                    }
                }
                self.pass_back(received, &passage, remote, branch.listener, branch.asked)
            }
        }
    }

    /// The back end that a response to one of our transactions comes from: the one that is
    /// `present` at its source, if its branch went there or is over.
    fn owner(
        &self,
        branch: &TransactionBranch,
        method: Method,
        remote: SocketAddr,
        present: Option<Member>,
    ) -> Option<Member> {
        let Some(context) = self.find_asking(branch, method) else { return present };
        let Some(index) = context.branch_at(branch.tag) else { return present };
        present.filter(|_| self.has_sent(&context.branches[index], remote))
    }

    /// Returns whether a branch of one of our transactions went to this address.
    fn was_sent_to(&self, of: &TransactionBranch, method: Method, remote: SocketAddr) -> bool {
        self.find_asking(of, method).is_some_and(|context| {
            let index = context.branch_at(of.tag);
            index.is_some_and(|index| self.has_sent(&context.branches[index], remote))
        })
    }

    fn find_asking(&self, branch: &TransactionBranch, method: Method) -> Option<&Context> {
        let handle = self.transactions().find(Key::new(branch.identity, method))?;
        self.transactions().get(handle)
    }

    /// A back end has answered something that was ours.
    fn note_alive(&self, now: Timestamp, member: Option<Member>) {
        if let Some(member) = member {
            self.backend(member).on_answered(now);
        }
    }

    fn try_answer_to_cancel(
        &mut self,
        now: Timestamp,
        received: &Received,
        passage: &Passage<'_>,
    ) -> Result<(), Astray> {
        let text = passage.branch.unwrap_or_default();
        let claimed = TransactionBranch::claimed(text).filter(|branch| branch.is_own(self.keys()));
        let branch = claimed.ok_or(Astray::Drop(DropReason::LostResponse))?;
        self.check_shard(branch.shard, received)?;
        if !self.is_branch_of(&branch, text) {
            return Err(Astray::Drop(DropReason::ForeignResponse));
        }
        self.serve_answer(now, received, passage, &branch).map_err(Astray::Drop)
    }

    /// Whether a response that a shard can handle belongs to this one.
    fn check_shard(&self, shard: u8, received: &Received) -> Result<(), Astray> {
        let shard = u16::from(shard);
        if shard != self.shard() && shard < self.shards() && received.crossed == 0 {
            return Err(Astray::Cross(shard));
        }
        Ok(())
    }

    /// Who of us has sent the request of a response that goes to `remote`.
    ///
    /// RFC 3261 §16.11: "If that address matches the proxy, [...] the proxy MUST remove that header
    /// field value from the response and forward the result to the location indicated in the next
    /// Via header field value." The MAC in the branch says more than the address: that this very
    /// proxy sent the request, and for whom. So does the name of a branch that is waiting: a keyed
    /// hash of the received request, and another of that with the target. Its response goes where
    /// the transaction says.
    pub(crate) fn who_asked(&self, passage: &Passage<'_>, remote: SocketAddr) -> Option<Asked> {
        let text = passage.branch.unwrap_or_default();
        let Some(claimed) = TransactionBranch::claimed(text) else {
            return Branch::decode(text, self.keys(), remote).map(Asked::Stateless);
        };
        let is_own = claimed.is_own(self.keys());
        if is_own
            && let Some(context) = self.find_asking(&claimed, passage.cseq.method)
            && context.branch_at(claimed.tag).is_some()
        {
            return Some(Asked::Transaction(claimed));
        }
        let branch = TransactionBranch::decode(text, self.keys(), remote)?;
        let TransactionBranch { shard, listener, .. } = branch;
        Some(if is_own { Asked::Transaction(branch) } else { Asked::Before { shard, listener } })
    }

    /// Passes a response back to `remote`, by the Via alone.
    fn pass_back(
        &mut self,
        received: &Received,
        passage: &Passage<'_>,
        remote: SocketAddr,
        listener: u8,
        asked: Option<IpAddr>,
    ) -> Result<(), Astray> {
        let listener = self.addresses().listener(listener.into());
        let mut local = listener.ok_or(Astray::Drop(DropReason::ForeignResponse))?.local;
        if let Some(asked) = asked {
            local.set_ip(asked);
        }
        // RFC 3581 §4: "sent from the same address and port that the request was
        // received on".
        let flow = Flow { local, remote, ..received.flow };
        let bytes = self.write_upward(received, passage, &flow).map_err(Astray::Drop)?;
        self.counters.responses_forwarded.add(1);
        self.transmit(Transmit { flow, bytes });
        Ok(())
    }

    /// A response as it goes back on `flow`: without our Via, RFC 3261 §16.7 item 3.
    pub(crate) fn write_upward(
        &self,
        received: &Received,
        passage: &Passage<'_>,
        flow: &Flow,
    ) -> Result<Buffer, DropReason> {
        let mut bytes = self.pool().take();
        passage.write_to(&mut bytes).map_err(|_| DropReason::TooLong)?;
        if passage.has_private {
            bytes = self.filter_response(&received.flow, flow, bytes);
        }
        Ok(bytes)
    }
}

/// Who has sent the request that a response is for.
pub(crate) enum Asked {
    /// A transaction of this process.
    Transaction(TransactionBranch),
    /// A transaction of a process before this one, or of another instance. RFC 6026 §8.9 has a
    /// proxy drop what matches no transaction, for it cannot say whether it ever asked; the MAC
    /// says that it did. So a call that is being set up outlives a restart.
    Before { shard: u8, listener: u8 },
    /// This proxy, without keeping a transaction.
    Stateless(Branch),
}

impl Asked {
    /// The shard that knows of it.
    fn shard(&self) -> u8 {
        match self {
            Self::Transaction(branch) => branch.shard,
            Self::Before { shard, .. } => *shard,
            Self::Stateless(branch) => branch.shard,
        }
    }
}

/// A response that does not simply go back.
enum Astray {
    Drop(DropReason),
    Cross(u16),
}
