//! Responses: back by our Via, RFC 3261 §16.7 and §16.11.

use tidegate_sip::{Passage, response_target};
use tidegate_world::{Path, Received, Timestamp, Transmit};

use crate::branch::Branch;
use crate::calls::Transaction;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::transaction_branch::TransactionBranch;

impl Endpoint {
    /// Brings a response back to where its request came from.
    pub(crate) fn serve_response(&mut self, now: Timestamp, received: Received) {
        match self.try_response(now, &received) {
            Ok(()) => {}
            Err(Astray::Drop(why)) => self.drop_counted(why),
            Err(Astray::Cross(shard)) => self.cross(shard, received),
        }
    }

    fn try_response(&mut self, now: Timestamp, received: &Received) -> Result<(), Astray> {
        let passage =
            Passage::parse(&received.bytes).map_err(|_| Astray::Drop(DropReason::Malformed))?;
        let top = passage.branch.unwrap_or_default();
        if let Some(branch) = TransactionBranch::decode(top, self.keys()) {
            self.check_shard(branch.shard, received)?;
            if let Some(member) = self.addresses().member(received.path.remote) {
                self.backend(member).on_answered(now);
            }
            return self.serve_answer(now, received, &passage, &branch).map_err(Astray::Drop);
        }
        // RFC 3261 §16.7 item 3: with no Via left it would be a response to us.
        let remote = passage.next.as_ref().and_then(response_target);
        let remote = remote.ok_or(Astray::Drop(DropReason::LostResponse))?;
        // RFC 3261 §16.11: "If that address matches the proxy, [...] the proxy MUST remove
        // that header field value from the response and forward the result to the
        // location indicated in the next Via header field value." The MAC in the branch
        // says more than the address: that this very proxy sent the request, and for whom.
        let branch = Branch::decode(top, self.keys(), remote)
            .ok_or(Astray::Drop(DropReason::ForeignResponse))?;
        self.check_shard(branch.shard, received)?;
        let listener = self.addresses().listener(branch.listener.into());
        let mut local = listener.ok_or(Astray::Drop(DropReason::ForeignResponse))?.local;
        if let Some(asked) = branch.asked {
            local.set_ip(asked);
        }

        let mut bytes = self.pool().take();
        passage.write_to(&mut bytes).map_err(|_| Astray::Drop(DropReason::TooLong))?;

        let member = self.addresses().member(received.path.remote);
        if let Some(member) = member {
            self.backend(member).on_answered(now);
        }
        let Passage { cseq, status, call_id, .. } = passage;
        if let Some(call) = self.calls().find(self.keys().call.fingerprint(call_id)) {
            let transaction = Transaction { identity: branch.identity, method: cseq.method };
            let from_backend = member.is_some();
            self.calls_mut().on_response(now, call, transaction, status, from_backend);
        }
        self.counters.responses_forwarded.add(1);
        // RFC 3581 §4: "sent from the same address and port that the request was
        // received on".
        self.transmit(Transmit { path: Path { local, remote, ..received.path }, bytes });
        Ok(())
    }
}

impl Endpoint {
    /// Whether a response belongs here.
    fn check_shard(&self, shard: u8, received: &Received) -> Result<(), Astray> {
        let shard = u16::from(shard);
        if shard != self.shard() && shard < self.shards() && received.crossed == 0 {
            return Err(Astray::Cross(shard));
        }
        Ok(())
    }
}

/// A response that does not simply go back.
enum Astray {
    Drop(DropReason),
    Cross(u16),
}
