//! Probes: OPTIONS requests that check whether a back end is alive.
//!
//! Each probe is a client transaction of this proxy (RFC 3261 §11.1, §17.1.2). A back end gets one
//! probe at a time. A hash of the back end's address selects the shard that probes the back end
//! regularly, and all shards see the result.
//!
//! A back end that becomes suspect is probed at once by the shard that suspects it, even in pools
//! without probes. Such a probe alone does not prove that the back end gives feedback (RFC 7339),
//! because no regular probe would renew the proof. `failure` and `transaction::teach` decide when a
//! back end becomes suspect.

mod flight;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use tidegate_balance::{AdminState, Backend};
use tidegate_sip::Passage;
use tidegate_transaction::{Firing, OtherClient, Timing};
use tidegate_world::{Received, Stream, Timestamp};

use self::flight::Flight;
use self::schedule::{Probed, Question, Schedule};
use crate::message::probe_branch::ProbeBranch;
use crate::output::Output;
use crate::rejection::DropReason;
use crate::settings::BackendRef;
use crate::settings::health::Probe;
use crate::snapshot::Snapshot;
use crate::target::Target;

/// Maximum number of back ends that one call of [`Probes::fire`] handles, so that many due probes
/// do not delay waiting packets.
const DUE_MAX: usize = 64;

/// Returns the time to wait for the response to an immediate probe. In this time the probe is sent
/// twice over UDP (RFC 3261 §17.1.2.2, Timer E), so that the loss of one datagram does not make the
/// back end count as dead.
fn question_wait(timing: &Timing) -> Duration {
    timing.t1 * 2
}

/// Minimum interval between immediate probes of a back end by all shards together. Strangers can
/// cause immediate probes, so their rate is limited.
const QUESTION_INTERVAL: Duration = Duration::from_millis(250);

/// The probes of a shard.
pub(crate) struct Probes {
    schedule: Schedule,
    stream: Stream,
    /// Number of the probe that was sent last to any back end.
    number: u32,
}

impl Probes {
    /// Creates a shard's probes without back ends. Random values come from `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { schedule: Schedule::new(), stream, number: 0 }
    }

    /// Replaces the list of back ends to probe by the back ends of the snapshot.
    pub(crate) fn enlist_backends(&mut self, now: Timestamp, snapshot: &Snapshot) {
        let mut who = Vec::new();
        for (backend_ref, backend) in snapshot.each_backend() {
            if backend.admin_state() == AdminState::Removed {
                continue;
            }
            let probe = snapshot.pool(backend_ref.pool).health.probe.as_ref();
            let probe = probe.filter(|_| is_ours_to_probe(snapshot, backend));
            who.push((
                backend_ref,
                backend.endpoint().endpoint_address(),
                probe.map(|probe| probe.interval),
            ));
        }
        self.schedule.enlist(now, who, &mut self.stream);
    }

    /// Returns when [`fire`](Self::fire) is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.schedule.poll_timeout()
    }

    /// Sends and retransmits due probes, and ends probes whose response did not come in time.
    pub(crate) fn fire(&mut self, now: Timestamp, snapshot: &Snapshot, output: &mut Output) {
        for _ in 0..DUE_MAX {
            let Some(place) = self.schedule.next_due(now) else { return };
            self.probe_due(now, snapshot, output, place);
            self.schedule.arm(place);
        }
    }

    /// Handles the response to a probe, or returns the shard that sent the probe.
    pub(crate) fn on_response(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        received: &Received,
        passage: &Passage<'_>,
    ) -> Result<ProbeAnswer, DropReason> {
        let text = passage.branch.unwrap_or_default();
        let branch = ProbeBranch::decode(text, &snapshot.keys, received.flow.remote);
        let branch = branch.ok_or(DropReason::LostResponse)?;
        if u16::from(branch.shard) != snapshot.shard {
            return Ok(ProbeAnswer::Of(branch.shard));
        }
        let place = branch.place as usize;
        let target = self.schedule.targets.get_mut(place).ok_or(DropReason::StrayResponse)?;
        let timing = timing_of(snapshot, target.backend_ref);
        let flight = target.flight.as_mut().filter(|flight| flight.number == branch.number);
        let flight = flight.ok_or(DropReason::StrayResponse)?;
        (flight.client, _) = flight.client.on_response(now, &timing, passage.status);
        if passage.status >= 200 {
            let (backend_ref, flight) = (target.backend_ref, *flight);
            target.flight = None;
            let obedience = snapshot.obedience_to(backend_ref);
            let own = passage.overload_control();
            snapshot.next_hops.on_probe_answered(now, obedience, flight.address, own);
            flight.end(snapshot, now, backend_ref, Some(passage.status));
        }
        self.schedule.arm(place);
        Ok(ProbeAnswer::Taken)
    }

    /// Handles the report that a probe could not be delivered. If the probe is still pending, it
    /// has failed. Returns whether the back end became suspect while this regular probe was
    /// pending. Such a probe does not serve as an immediate probe: it may have waited for the same
    /// connection as the message that made the back end suspect.
    pub(crate) fn on_unreachable(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        branch: ProbeBranch,
    ) -> bool {
        if u16::from(branch.shard) != snapshot.shard {
            return false;
        }
        let Some(target) = self.schedule.targets.get_mut(branch.place as usize) else {
            return false;
        };
        let backend_ref = target.backend_ref;
        let flight = target.flight.take_if(|flight| flight.number == branch.number);
        let Some(mut flight) = flight else { return false };
        let is_still_suspect = flight.is_regular && flight.suspect_since.take().is_some();
        flight.end(snapshot, now, backend_ref, None);
        self.schedule.arm(branch.place as usize);
        is_still_suspect
    }

    fn probe_due(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        output: &mut Output,
        place: usize,
    ) {
        let Probed { backend_ref, flight, .. } = &self.schedule.targets[place];
        let (backend_ref, flight) = (*backend_ref, *flight);
        let timing = timing_of(snapshot, backend_ref);
        let Some(mut flight) = flight else {
            return self.start_probe(now, snapshot, output, place);
        };
        let firing;
        (flight.client, firing) = flight.client.on_timer(now, &timing);
        let is_over = flight.until <= now || firing == Firing::TimedOut;
        self.schedule.targets[place].flight = (!is_over).then_some(flight);
        if is_over {
            flight.end(snapshot, now, backend_ref, None);
            self.start_probe(now, snapshot, output, place);
        } else if firing == Firing::Resend {
            output.counters.requests_resent.add(1);
            self.send_probe(snapshot, output, place);
        }
    }

    /// Sends the probe of a target, if one is due.
    // RFC 7339 §5.9: "The SIP client SHOULD periodically probe if the downstream server is alive
    // using any mechanism at its disposal."
    fn start_probe(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        output: &mut Output,
        place: usize,
    ) {
        let Probed { backend_ref, next, question, .. } = &self.schedule.targets[place];
        let (backend_ref, next, question) = (*backend_ref, *next, *question);
        let timing = timing_of(snapshot, backend_ref);
        if question.is_some_and(|question| question.due <= now) {
            let since = self.may_question(now, snapshot, place);
            let until = now + question_wait(&timing);
            return if since.is_some() {
                self.send_new_probe(now, snapshot, output, place, until, since)
            };
        }
        // The action for which this timer was armed has already been done.
        if next > now {
            return;
        }
        let pools = snapshot.pool(backend_ref.pool);
        let Some(probe) = pools.health.probe.clone() else { return };
        self.send_new_probe(now, snapshot, output, place, now + probe.timeout, None);
        let probes = self;
        probes.schedule.targets[place].next = now + probes.interval(&probe);
    }

    /// Returns the time until the next regular probe: the configured interval, varied at random by
    /// the configured jitter.
    fn interval(&mut self, probe: &Probe) -> Duration {
        let stretch = 1.0 + probe.jitter * (2.0 * self.stream.unit() - 1.0);
        probe.interval.mul_f64(stretch.max(0.0))
    }

    /// Returns the time since which the back end is suspect if an immediate probe is still needed
    /// and is allowed now. Otherwise returns `None`.
    fn may_question(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        place: usize,
    ) -> Option<Timestamp> {
        let Probed { backend_ref, question, .. } = &mut self.schedule.targets[place];
        let (backend_ref, Question { since, .. }) = (*backend_ref, question.take()?);
        let backend = snapshot.backend(backend_ref);
        if backend.has_answered(since) {
            return None;
        }
        match backend.question(now, QUESTION_INTERVAL) {
            Ok(()) => Some(since),
            Err(due) => {
                self.schedule.targets[place].question = Some(Question { since, due });
                None
            }
        }
    }

    fn send_new_probe(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        output: &mut Output,
        place: usize,
        until: Timestamp,
        suspect_since: Option<Timestamp>,
    ) {
        let backend_ref = self.schedule.targets[place].backend_ref;
        let (backend, timing) = (snapshot.backend(backend_ref), timing_of(snapshot, backend_ref));
        // A back end without an address or in maintenance is not probed.
        let address =
            backend.address().filter(|_| backend.admin_state() != AdminState::Maintenance);
        self.number = self.number.wrapping_add(1);
        let (number, drawn) = (self.number, [self.stream.next_u64(), self.stream.next_u64()]);
        let Some(address) = address else { return };
        let client = OtherClient::start(now, &timing);
        let is_regular = suspect_since.is_none();
        let flight = Flight { number, address, client, until, is_regular, suspect_since, drawn };
        self.schedule.targets[place].flight = Some(flight);
        output.counters.probes.add(1);
        output.counters.questions.add(u64::from(suspect_since.is_some()));
        self.send_probe(snapshot, output, place);
    }

    fn send_probe(&self, snapshot: &Snapshot, output: &mut Output, place: usize) {
        let Probed { backend_ref, flight: Some(flight), .. } = &self.schedule.targets[place] else {
            return;
        };
        let (backend_ref, flight) = (*backend_ref, *flight);
        let target = Target::new(snapshot.transport(backend_ref.pool), flight.address);
        // A back end that no listener can reach is rejected earlier: with its configuration, or
        // when its name is resolved.
        let Some(egress) = snapshot.addresses.egress(0, None, &target) else { return };
        let mut bytes = snapshot.buffers.take();
        if flight.write(snapshot, place, backend_ref, egress, &mut bytes).is_ok() {
            output.send_from(snapshot, egress as u8, &target, bytes);
        }
    }

    /// Requests an immediate probe of a back end that has been suspect since `since`. Does nothing
    /// if the back end is down, because it then gets only its regular probes.
    pub(crate) fn suspect(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        backend_ref: BackendRef,
        since: Timestamp,
    ) {
        // The back end may have become suspect because of a request to another of its pools.
        let backend_ref = snapshot.first(backend_ref);
        if snapshot.backend(backend_ref).is_alive(now) {
            let wait = question_wait(&timing_of(snapshot, backend_ref));
            self.schedule.question(now, backend_ref, since, wait);
        }
    }
}

/// Returns the back ends that any shard of the process probes regularly.
pub(crate) fn probed(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Backend>> {
    let is_probed =
        |(backend_ref, _): &(BackendRef, _)| snapshot.pool(backend_ref.pool).health.probe.is_some();
    snapshot.each_backend().filter(is_probed).map(|(_, backend)| backend)
}

/// Returns the transaction timers for the probes of a back end.
fn timing_of(snapshot: &Snapshot, backend_ref: BackendRef) -> Timing {
    snapshot.timing(snapshot.transport(backend_ref.pool))
}

/// Returns whether this shard is the one that probes the back end regularly for all shards of the
/// process.
fn is_ours_to_probe(snapshot: &Snapshot, backend: &Backend) -> bool {
    let endpoint_address = backend.endpoint().to_string();
    let hash = snapshot.keys.identity.hash(&[b"probe", endpoint_address.as_bytes()]);
    hash % u64::from(snapshot.shards) == u64::from(snapshot.shard)
}

/// Result of matching a response to a probe.
pub(crate) enum ProbeAnswer {
    /// The response belongs to a probe of this shard, and was handled.
    Taken,
    /// The response belongs to a probe of another shard, which has this number.
    Of(u8),
}
