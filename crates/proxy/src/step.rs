//! One step of the pipeline: the service of a message or of a timer.

use std::net::SocketAddr;

use tidegate_sip::Passage;
use tidegate_world::Timestamp;

use crate::message::challenge::{challenge_of, is_challenge};
use crate::observe::counters::Counters;
use crate::output::Output;
use crate::peers::Peers;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;

/// The arguments of a stage that serves a message, and the facts that the stage finds.
pub(crate) struct Step<'a> {
    pub(crate) now: Timestamp,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) routing: &'a mut RoutingState,
    pub(crate) peers: &'a mut Peers,
    pub(crate) output: &'a mut Output,
    /// Evidence about the sender of the message.
    pub(crate) shown: SourceEvidence,
    /// Pool to which the message was routed, or `None` if it was not routed yet.
    pub(crate) pool: Option<u16>,
    /// If the message is a 401 or 407 by which a back end asks the sender of a request for
    /// credentials, the keyed hash of that request.
    pub(crate) challenged: Option<u64>,
}

impl<'a> Step<'a> {
    /// Creates a step for which no facts have been found yet.
    pub(crate) fn new(
        now: Timestamp,
        snapshot: &'a Snapshot,
        routing: &'a mut RoutingState,
        peers: &'a mut Peers,
        output: &'a mut Output,
    ) -> Self {
        output.begin();
        let shown = SourceEvidence::Nothing;
        Self { now, snapshot, routing, peers, output, shown, pool: None, challenged: None }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.output.counters
    }

    /// Records a challenge: a response by which a back end asks the sender of the request, at
    /// `remote`, for credentials. Other responses are ignored. `is_outside` returns whether the
    /// request has no To-tag and is in a table of this proxy. If it returns false, the challenge is
    /// not recorded: the gate does not decide on such requests, so their challenges must not let
    /// new work pass.
    ///
    /// RFC 3261 §12.2.1.1: "The tag in the To header field of the request MUST be set to the remote
    /// tag of the dialog ID."
    pub(crate) fn record_challenge(
        &mut self,
        backend_ref: Option<BackendRef>,
        is_outside: impl FnOnce() -> bool,
        passage: &Passage<'_>,
        remote: SocketAddr,
    ) {
        if backend_ref.is_some() && is_challenge(passage.status) && is_outside() {
            let (keys, method) = (&self.snapshot.keys, passage.cseq.method_name);
            self.challenged = Some(challenge_of(keys, method, passage.call_id, remote.ip()));
        }
    }
}

/// Evidence about the sender of a message, found while serving it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceEvidence {
    #[default]
    Nothing,
    /// The message claimed to belong to a call or transaction that does not exist.
    Stray,
    /// The message exceeds the rate of its call, or the number of copies of a request.
    Floods,
    /// The sender receives the messages sent to its address, because its message contains a value
    /// that was only in such a message.
    Receives,
}
