//! Responses: back by our Via, RFC 3261 §16.7 and §16.11.

use std::net::{IpAddr, SocketAddr};

use tidegate_control::Tier;
use tidegate_sip::{Method, Passage, response_target};
use tidegate_world::{Path, Received, Timestamp, Transmit};

use crate::branch::Branch;
use crate::calls::{Member, Transaction};
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::probes::ProbeAnswer;
use crate::settings::canonical;
use crate::transaction_branch::TransactionBranch;

impl Endpoint {
    /// Brings a response back to where its request came from.
    pub(crate) fn serve_response(&mut self, now: Timestamp, received: Received) {
        self.tiering.begin();
        match self.try_response(now, &received) {
            Ok(()) => {}
            Err(Astray::Drop(why)) => self.drop_counted(why),
            Err(Astray::Cross(shard)) => self.cross(shard, received),
        }
    }

    fn try_response(&mut self, now: Timestamp, received: &Received) -> Result<(), Astray> {
        let passage =
            Passage::parse(&received.bytes).map_err(|_| Astray::Drop(DropReason::Malformed))?;
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
        let member = self.addresses().member(received.path.remote);
        let is_present =
            |member: &Member| self.backend(*member).is_present_at(canonical(received.path.remote));
        let present = member.filter(is_present);
        if let Some(member) = present {
            self.backend(member).on_answered(now);
        }
        match asked {
            Asked::Transaction(branch) => {
                self.tiering.note(Tier::Stateful);
                self.serve_answer(now, received, &passage, &branch).map_err(Astray::Drop)
            }
            Asked::Before { listener, .. } => {
                self.pass_back(received, &passage, remote, listener, None)
            }
            Asked::Stateless(branch) => {
                self.tiering.note(Tier::Stateless);
                let (method, status) = (passage.cseq.method, passage.status);
                let transaction = Transaction { identity: branch.identity, method };
                let fingerprint = self.keys().call.fingerprint(passage.call_id);
                if let Some(call) = self.calls().find_of(fingerprint, transaction) {
                    let bytes = &received.bytes;
                    let answer = self.read_answer(call, method, status, bytes, member.is_some());
                    if status == 503
                        && let Some(member) = present
                        && let Some(sent) = self.calls().sent_at(call, transaction)
                    {
                        let backend = self.backend(member);
                        backend.on_refused(now, None);
                        backend.on_not_taken(sent);
                    }
                    self.calls_mut().on_response(now, call, transaction, answer);
                }
                self.pass_back(received, &passage, remote, branch.listener, branch.asked)
            }
        }
    }

    fn try_answer_to_cancel(
        &mut self,
        now: Timestamp,
        received: &Received,
        passage: &Passage<'_>,
    ) -> Result<(), Astray> {
        let text = passage.branch.unwrap_or_default();
        let claimed = TransactionBranch::claimed(text, self.keys()).filter(|branch| branch.is_own);
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
    /// RFC 3261 §16.11: "If that address matches the proxy, [...] the proxy MUST remove that
    /// header field value from the response and forward the result to the location indicated in
    /// the next Via header field value." The MAC in the branch says more than the address: that
    /// this very proxy sent the request, and for whom.
    fn who_asked(&self, passage: &Passage<'_>, remote: SocketAddr) -> Option<Asked> {
        let text = passage.branch.unwrap_or_default();
        match TransactionBranch::decode(text, self.keys(), remote) {
            Some(branch) if branch.is_own => Some(Asked::Transaction(branch)),
            Some(TransactionBranch { shard, listener, .. }) => {
                Some(Asked::Before { shard, listener })
            }
            None => Branch::decode(text, self.keys(), remote).map(Asked::Stateless),
        }
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
        let mut bytes = self.pool().take();
        passage.write_to(&mut bytes).map_err(|_| Astray::Drop(DropReason::TooLong))?;
        self.counters.responses_forwarded.add(1);
        // RFC 3581 §4: "sent from the same address and port that the request was
        // received on".
        self.transmit(Transmit { path: Path { local, remote, ..received.path }, bytes });
        Ok(())
    }
}

/// Who has sent the request that a response is for.
enum Asked {
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
