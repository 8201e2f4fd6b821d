//! The output of a shard: packets, handoffs to other shards, counters, and back ends to probe.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_sip::{Malformed, Message};
use tidegate_world::{
    Batching, Buffer, Flow, Handoff, HandoffInput, Received, Timestamp, Transmit,
};

use crate::message::batching::{pad_at, sequence_of};
use crate::message::reply::{rejection, reply};
use crate::observe::counters::Counters;
use crate::observe::sampler::{Rejected, Sampler};
use crate::rejection::reply_reason::ReplyReason;
use crate::rejection::{DropReason, Hints, ReplyHeaders, status_of};
use crate::settings::{BackendRef, TraceSettings};
use crate::snapshot::Snapshot;
use crate::target::Target;
use crate::transport::stun::answer;

/// The packets, handoffs and counts that the stages of a shard produce.
pub(crate) struct Output {
    transmits: VecDeque<Transmit>,
    /// Number of the call of the message in service, which keeps its packets in order (see
    /// [`Batching`]).
    sequence: u32,
    handoffs: VecDeque<Handoff>,
    suspects: VecDeque<Suspect>,
    rejections: Sampler,
    pub(crate) counters: Arc<Counters>,
}

/// A back end that may be dead. The evidence against it began at `since`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub(crate) backend_ref: BackendRef,
    pub(crate) since: Timestamp,
}

/// The cause of a rejection, for operators.
pub(crate) struct Cause {
    pub(crate) reason: ReplyReason,
    /// Reason for the rejection, in words.
    pub(crate) text: &'static str,
    /// Pool to which the request was routed, or `None` if it was not routed.
    pub(crate) pool: Option<u16>,
}

impl Output {
    pub(crate) fn new(settings: TraceSettings, counters: Arc<Counters>) -> Self {
        Self {
            transmits: VecDeque::new(),
            sequence: 0,
            handoffs: VecDeque::new(),
            suspects: VecDeque::new(),
            rejections: Sampler::new(settings, Arc::clone(&counters)),
            counters,
        }
    }

    /// Prepares for the packets of another message. Until [`send_for`](Self::send_for) names the
    /// call of this message, its packets keep their order relative to all other packets.
    pub(crate) fn begin(&mut self) {
        self.sequence = 0;
    }

    /// Attributes the following packets to the call with this Call-ID.
    pub(crate) fn send_for(&mut self, call_id: &[u8]) {
        self.sequence = sequence_of(call_id);
    }

    /// Queues a packet to be sent.
    pub(crate) fn send(&mut self, mut transmit: Transmit) {
        let sequence = match transmit.batching.sequence {
            0 => self.sequence,
            sequence => sequence,
        };
        transmit.batching = Batching { sequence, pad_at: pad_at(&transmit.bytes) };
        self.transmits.push_back(transmit);
    }

    /// Sends a request that was written for the listener with the index `egress`. Sends nothing if
    /// there is no such listener.
    ///
    /// RFC 3581 §3: "When the client sends the request, if the request is sent using UDP, the
    /// client MUST be prepared to receive the response on the same IP address and port it used to
    /// populate the source IP address and source port of the request." "For backwards
    /// compatibility, the client MUST still be prepared to receive a response on the port indicated
    /// in the sent-by field of the topmost Via header field value, as specified in Section 18.1.1
    /// of SIP \[1\]."
    ///
    /// RFC 3261 §18.1.1: "For unreliable unicast transports, the client transport MUST be prepared
    /// to receive responses on the source IP address from which the request is sent (as responses
    /// are sent back to the source address) and the port number in the "sent-by" field."
    pub(crate) fn send_from(
        &mut self,
        snapshot: &Snapshot,
        egress: u8,
        target: &Target,
        bytes: Buffer,
    ) {
        self.send_request(snapshot, egress, target, bytes, false);
    }

    /// Sends a request as [`send_from`](Self::send_from) does. If `is_new_work` is true, and the
    /// target reads its connection too slowly, the transport reports a failure instead of queueing
    /// the request.
    pub(crate) fn send_request(
        &mut self,
        snapshot: &Snapshot,
        egress: u8,
        target: &Target,
        bytes: Buffer,
        is_new_work: bool,
    ) {
        let Some(own) = snapshot.addresses.listener(egress.into()) else { return };
        let transmit = Transmit::new(target.flow_from(own.local), bytes);
        let may_reconnect = target.may_reconnect;
        let connection = transmit.flow.connection.filter(|_| !may_reconnect);
        let flow = Flow { connection, ..transmit.flow };
        let is_to_stranger = snapshot.addresses.leads_to_stranger(&flow);
        self.send(Transmit { is_new_work, is_to_stranger, may_reconnect, ..transmit });
    }

    /// Returns the number of packets that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.transmits.len()
    }

    /// Discards the packets that wait to be sent, except the first `kept`.
    pub(crate) fn withdraw(&mut self, kept: usize) {
        self.transmits.truncate(kept);
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub(crate) fn hand_off(&mut self, shard: u16, input: HandoffInput) {
        self.handoffs.push_back(Handoff { shard, input });
    }

    pub(crate) fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoffs.pop_front()
    }

    /// Requests an immediate probe of a back end that has been suspect since `since`.
    pub(crate) fn suspect(&mut self, backend_ref: BackendRef, since: Timestamp) {
        self.suspects.push_back(Suspect { backend_ref, since });
    }

    /// Returns the next back end to probe immediately.
    pub(crate) fn next_suspect(&mut self) -> Option<Suspect> {
        self.suspects.pop_front()
    }

    pub(crate) fn drop_counted(&self, reason: DropReason) {
        self.counters.dropped(reason).add(1);
    }

    /// Sends a response to `message`, which was received as `received`. Counts the message as
    /// dropped if it cannot be answered.
    pub(crate) fn reply(
        &mut self,
        snapshot: &Snapshot,
        received: &Received,
        message: &Message<'_>,
        status: u16,
        cause: &Cause,
        headers: &ReplyHeaders<'_>,
    ) {
        let Snapshot { keys, name, buffers, .. } = snapshot;
        match reply(keys, name, buffers, received, message, status, headers) {
            Some(transmit) => {
                self.counters.count_reply(status, cause.reason);
                self.send(transmit);
                let (at, source) = (received.arrived, received.flow.remote);
                self.record_rejection(snapshot, at, source, &received.bytes, status, cause);
            }
            None => self.drop_counted(DropReason::Malformed),
        }
    }

    /// Sends the response with this status to a rejected request again, because a retransmission of
    /// the request (`message`) has arrived.
    pub(crate) fn reply_again(
        &mut self,
        snapshot: &Snapshot,
        received: &Received,
        message: &Message<'_>,
        status: u16,
    ) {
        let Snapshot { keys, name, buffers, .. } = snapshot;
        match reply(keys, name, buffers, received, message, status, &ReplyHeaders::new()) {
            Some(transmit) => {
                self.counters.responses_resent.add(1);
                self.send(transmit);
            }
            None => self.drop_counted(DropReason::Malformed),
        }
    }

    /// Answers a STUN message. Counts the message as dropped if it needs no answer, or if nothing
    /// can be sent to its source port. The limit on responses to unverified addresses does not
    /// apply, because an answer is at most two and a half times as long as its request.
    ///
    /// RFC 5626 §5.4: "All edge proxies compliant with this specification MUST implement support for STUN
    /// NAT keep-alives on their SIP UDP ports as described in Section 8."
    pub(crate) fn answer_stun(&mut self, snapshot: &Snapshot, received: &Received) {
        let Received { bytes, flow, .. } = received;
        match answer(bytes, flow.remote).filter(|_| flow.remote.port() != 0) {
            Some(response) => {
                self.counters.bindings_answered.add(1);
                // Bypass `send`, because a STUN message has no place for padding.
                self.transmits.push_back(Transmit::new(*flow, snapshot.buffers.copy(&response)));
            }
            None => self.drop_counted(DropReason::Stun),
        }
    }

    /// Rejects a malformed request. The response copies the header fields that can be parsed.
    pub(crate) fn reject_malformed(
        &mut self,
        snapshot: &Snapshot,
        received: &Received,
        malformed: Malformed,
    ) {
        self.reject_unread(snapshot, received, status_of(malformed));
    }

    /// Rejects a request without parsing it in full. If the header fields that a response needs
    /// cannot be parsed, counts the request as dropped.
    pub(crate) fn reject_unread(&mut self, snapshot: &Snapshot, received: &Received, status: u16) {
        let Snapshot { keys, name, buffers, .. } = snapshot;
        match rejection(keys, name, buffers, received, status, &Hints::default()) {
            Some(transmit) => {
                let reason = ReplyReason::usual(status);
                self.counters.count_reply(status, reason);
                self.send(transmit);
                let (at, source) = (received.arrived, received.flow.remote);
                let cause = Cause { reason, text: reason.doc(), pool: None };
                self.record_rejection(snapshot, at, source, &received.bytes, status, &cause);
            }
            None => self.drop_counted(DropReason::Malformed),
        }
    }

    /// Records a rejection for operators, if the sampler selects it.
    pub(crate) fn record_rejection(
        &mut self,
        snapshot: &Snapshot,
        at: Timestamp,
        source: SocketAddr,
        bytes: &[u8],
        status: u16,
        cause: &Cause,
    ) {
        let &Cause { reason, text, pool } = cause;
        if reason == ReplyReason::None {
            return;
        }
        let (status, pool) = (Some(status), snapshot.pool_name(pool));
        let rejected = Rejected { at, source, bytes, status, reason, cause: text, pool };
        self.rejections.note(&rejected, || None);
    }
}
