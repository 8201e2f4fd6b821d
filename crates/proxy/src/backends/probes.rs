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

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_balance::{AdminState, Backend, EndpointAddress};
use tidegate_sip::Passage;
use tidegate_transaction::{Firing, OtherClient, Timing};
use tidegate_world::{Buffer, Received, Stream, Timers, Timestamp};

use crate::backends::health::{cap_exclusions, pause_of, spare};
use crate::message::probe_branch::ProbeBranch;
use crate::output::Output;
use crate::pushback::next_hops::Obedience;
use crate::pushback::wire::OverloadOffer;
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
pub(crate) fn question_wait(timing: &Timing) -> Duration {
    timing.t1 * 2
}

/// Minimum interval between immediate probes of a back end by all shards together. Strangers can
/// cause immediate probes, so their rate is limited.
const QUESTION_INTERVAL: Duration = Duration::from_millis(250);

/// The back ends that a shard can probe, and the times of the next probes.
pub(crate) struct Probes {
    /// All configured back ends, ordered by [`BackendRef`].
    targets: Vec<Probed>,
    /// Timers, each with the index of a back end in `targets`. A timer whose time differs from
    /// [`Probed::armed`] is outdated and ignored.
    due: Timers<u32>,
    stream: Stream,
    /// Number of the probe that was sent last to any back end.
    number: u32,
}

/// A back end that is probed regularly or can be probed immediately.
struct Probed {
    backend_ref: BackendRef,
    endpoint_address: EndpointAddress,
    /// Time of the next regular probe of the back end, or `NEVER` if this shard does not probe it
    /// regularly.
    next: Timestamp,
    /// Time of the timer in [`Probes::due`] that is valid for this back end, or `NEVER` if none is.
    armed: Timestamp,
    question: Option<Question>,
    flight: Option<Flight>,
}

/// A requested immediate probe.
#[derive(Clone, Copy)]
struct Question {
    /// Time since which the back end is suspect. If the back end answers any request after this
    /// time, the probe is not needed.
    since: Timestamp,
    due: Timestamp,
}

/// A probe that was sent and has no final response yet.
#[derive(Clone, Copy)]
struct Flight {
    number: u32,
    address: SocketAddr,
    client: OtherClient,
    until: Timestamp,
    /// True if this is a regular probe, so that the status of the response decides whether the
    /// probe has succeeded. Any response to an immediate probe shows that the back end is alive.
    is_regular: bool,
    /// The time since which the back end is suspect. `None` for a regular probe, unless it also
    /// serves as an immediate probe.
    suspect_since: Option<Timestamp>,
    /// Random values for the Call-ID and the From-tag of the probe.
    drawn: [u64; 2],
}

impl Probed {
    fn deadline(&self) -> Timestamp {
        match &self.flight {
            None => self.question.map_or(self.next, |question| question.due.min(self.next)),
            Some(Flight { client, until, .. }) => {
                client.deadline().map_or(*until, |deadline| deadline.min(*until))
            }
        }
    }
}

impl Probes {
    /// Creates a schedule without back ends. Random values come from `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { targets: Vec::new(), due: Timers::new(), stream, number: 0 }
    }

    /// Replaces the list of back ends to probe. Each has the interval of its regular probes, or
    /// `None` if it is only probed when it is suspect. A back end that was listed before keeps the
    /// time of its next probe, but at most one interval from now. A new back end is first probed at
    /// a random time within one interval. Pending and requested probes are forgotten.
    pub(crate) fn enlist(
        &mut self,
        now: Timestamp,
        who: Vec<(BackendRef, EndpointAddress, Option<Duration>)>,
    ) {
        let before = std::mem::take(&mut self.targets).into_iter();
        let before = before.filter(|target| target.next != Timestamp::NEVER);
        let before: HashMap<_, _> = before.map(|t| (t.endpoint_address, t.next)).collect();
        self.due = Timers::new();
        for (backend_ref, endpoint_address, interval) in who {
            let next = interval.map_or(Timestamp::NEVER, |interval| {
                let first = now + interval.mul_f64(self.stream.unit());
                before.get(&endpoint_address).map_or(first, |&next| next.min(now + interval))
            });
            if next != Timestamp::NEVER {
                self.due.push(next, self.targets.len() as u32);
            }
            let (question, flight) = (None, None);
            self.targets.push(Probed {
                backend_ref,
                endpoint_address,
                next,
                armed: next,
                question,
                flight,
            });
        }
    }

    /// Requests an immediate probe of a back end that has been suspect since `since`. If a regular
    /// probe is pending, no other probe is sent, and the response to the pending probe is awaited
    /// for `wait` from now. If a probe is already pending because the back end was suspect, nothing
    /// changes.
    pub(crate) fn question(
        &mut self,
        now: Timestamp,
        backend_ref: BackendRef,
        since: Timestamp,
        wait: Duration,
    ) {
        // A removed back end is not in the list, and needs no probe: it gets no new requests.
        let Ok(place) =
            self.targets.binary_search_by_key(&backend_ref, |target| target.backend_ref)
        else {
            return;
        };
        let target = &mut self.targets[place];
        match &mut target.flight {
            Some(Flight { suspect_since: Some(_), .. }) => return,
            Some(flight) => {
                (flight.suspect_since, flight.until) = (Some(since), now + wait);
            }
            None => {
                target.question.get_or_insert(Question { since, due: now });
            }
        }
        self.arm(place);
    }

    /// Returns when [`fire`](Self::fire) is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.due.next()
    }

    /// Returns the index of a target that has something due: a probe, a retransmission or the end
    /// of a probe.
    fn next_due(&mut self, now: Timestamp) -> Option<usize> {
        while let Some((at, place)) = self.due.pop(now) {
            let target = &mut self.targets[place as usize];
            if target.armed == at {
                target.armed = Timestamp::NEVER;
                return Some(place as usize);
            }
        }
        None
    }

    fn arm(&mut self, place: usize) {
        let target = &mut self.targets[place];
        let deadline = target.deadline();
        if deadline < target.armed {
            target.armed = deadline;
            self.due.push(deadline, place as u32);
        }
    }

    /// Returns the time until the next regular probe: the configured interval, varied at random by
    /// the configured jitter.
    fn interval(&mut self, probe: &Probe) -> Duration {
        let stretch = 1.0 + probe.jitter * (2.0 * self.stream.unit() - 1.0);
        probe.interval.mul_f64(stretch.max(0.0))
    }
}

impl Probes {
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
        self.enlist(now, who);
    }

    /// Sends and retransmits due probes, and ends probes whose response did not come in time.
    pub(crate) fn fire(&mut self, now: Timestamp, snapshot: &Snapshot, output: &mut Output) {
        for _ in 0..DUE_MAX {
            let Some(place) = self.next_due(now) else { return };
            self.probe_due(now, snapshot, output, place);
            self.arm(place);
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
        let target = self.targets.get_mut(place).ok_or(DropReason::StrayResponse)?;
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
            end_probe(snapshot, now, backend_ref, &flight, Some(passage.status));
        }
        self.arm(place);
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
        let Some(target) = self.targets.get_mut(branch.place as usize) else { return false };
        let backend_ref = target.backend_ref;
        let flight = target.flight.take_if(|flight| flight.number == branch.number);
        let Some(mut flight) = flight else { return false };
        let is_still_suspect = flight.is_regular && flight.suspect_since.take().is_some();
        end_probe(snapshot, now, backend_ref, &flight, None);
        self.arm(branch.place as usize);
        is_still_suspect
    }

    fn probe_due(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        output: &mut Output,
        place: usize,
    ) {
        let Probed { backend_ref, flight, .. } = &self.targets[place];
        let (backend_ref, flight) = (*backend_ref, *flight);
        let timing = timing_of(snapshot, backend_ref);
        let Some(mut flight) = flight else {
            return self.start_probe(now, snapshot, output, place);
        };
        let firing;
        (flight.client, firing) = flight.client.on_timer(now, &timing);
        let is_over = flight.until <= now || firing == Firing::TimedOut;
        self.targets[place].flight = (!is_over).then_some(flight);
        if is_over {
            end_probe(snapshot, now, backend_ref, &flight, None);
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
        let Probed { backend_ref, next, question, .. } = &self.targets[place];
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
        probes.targets[place].next = now + probes.interval(&probe);
    }

    /// Returns the time since which the back end is suspect if an immediate probe is still needed
    /// and is allowed now. Otherwise returns `None`.
    fn may_question(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        place: usize,
    ) -> Option<Timestamp> {
        let Probed { backend_ref, question, .. } = &mut self.targets[place];
        let (backend_ref, Question { since, .. }) = (*backend_ref, question.take()?);
        let backend = snapshot.backend(backend_ref);
        if backend.has_answered(since) {
            return None;
        }
        match backend.question(now, QUESTION_INTERVAL) {
            Ok(()) => Some(since),
            Err(due) => {
                self.targets[place].question = Some(Question { since, due });
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
        let backend_ref = self.targets[place].backend_ref;
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
        self.targets[place].flight = Some(flight);
        output.counters.probes.add(1);
        output.counters.questions.add(u64::from(suspect_since.is_some()));
        self.send_probe(snapshot, output, place);
    }

    fn send_probe(&self, snapshot: &Snapshot, output: &mut Output, place: usize) {
        let Probed { backend_ref, flight: Some(flight), .. } = &self.targets[place] else {
            return;
        };
        let (backend_ref, flight) = (*backend_ref, *flight);
        let target = Target::new(snapshot.transport(backend_ref.pool), flight.address);
        // A back end that no listener can reach is rejected earlier: with its configuration, or
        // when its name is resolved.
        let Some(egress) = snapshot.addresses.egress(0, None, &target) else { return };
        let mut bytes = snapshot.buffers.take();
        if write_probe(snapshot, place, backend_ref, &flight, egress, &mut bytes).is_ok() {
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
            self.question(
                now,
                backend_ref,
                since,
                question_wait(&timing_of(snapshot, backend_ref)),
            );
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

/// Records the result of a probe in the health of the back end. `answer` is the status of the final
/// response, or `None` if there was none. A back end that is down gets no new calls, as RFC 7339
/// §5.9 asks "in the event of repeated timeouts or fatal transport errors". Requests within
/// existing calls still go to it.
fn end_probe(
    snapshot: &Snapshot,
    now: Timestamp,
    backend_ref: BackendRef,
    flight: &Flight,
    answer: Option<u16>,
) {
    let probe = snapshot.pool(backend_ref.pool).health.probe.as_ref();
    let backend = snapshot.backend(backend_ref);
    // If the address of the back end has changed since the probe, the result is meaningless.
    if !backend.is_present_at(flight.address) {
        return;
    }
    let was_clear = backend.is_clear(now);
    match (answer, flight.suspect_since, probe) {
        (Some(_), Some(_), _) if !flight.is_regular => backend.on_probe_answered(now, 1),
        (None, Some(since), _) if !backend.has_answered(since) => {
            let pause = pause_of(snapshot, backend_ref);
            backend.on_question_unanswered(now, pause, probe.is_some());
            cap_exclusions(now, snapshot, backend_ref);
        }
        (Some(status), _, Some(probe)) if probe.accept.holds(status) => {
            backend.on_probe_answered(now, probe.rise);
        }
        (Some(_), _, Some(probe)) | (None, None, Some(probe)) => {
            backend.on_probe_failed(now, probe.fall, answer);
        }
        (None, Some(_), _) | (_, _, None) => {}
    }
    if backend.is_clear(now) != was_clear || backend.is_spared() {
        spare(now, snapshot);
    }
}

/// Writes the OPTIONS request of a probe. RFC 3261 §11.1: "An OPTIONS request is constructed using
/// the standard rules for a SIP request as discussed in Section 8.1.1." The Request-URI of the
/// probe names the back end itself.
fn write_probe(
    snapshot: &Snapshot,
    place: usize,
    backend_ref: BackendRef,
    flight: &Flight,
    egress: usize,
    bytes: &mut Buffer,
) -> io::Result<()> {
    let own = snapshot.addresses.listener(egress).ok_or(io::ErrorKind::NotFound)?;
    let branch =
        ProbeBranch { shard: snapshot.shard as u8, place: place as u32, number: flight.number };
    let address = flight.address;
    let branch = branch.encode(&snapshot.keys, address);
    let [call, tag] = flight.drawn;
    let host = &own.advertised;
    write!(bytes, "OPTIONS sip:{address} SIP/2.0\r\n{}", own.via)?;
    bytes.write_all(branch.as_bytes())?;
    // RFC 7339 §5.1 asks for "the "oc" parameter without any value" and "the "oc-algo" parameter
    // with a list of algorithms it supports" at the first contact with a server.
    if snapshot.obedience_to(backend_ref) != Obedience::Never {
        bytes.write_all(&snapshot.next_hops.offer_text(OverloadOffer::Algorithms))?;
    }
    let probe = snapshot.pool(backend_ref.pool).health.probe.as_ref();
    match probe.and_then(|probe| probe.from.as_deref()) {
        Some(from) => write!(bytes, "\r\nMax-Forwards: 70\r\nFrom: <{from}>;tag={tag:016x}"),
        None => {
            write!(bytes, "\r\nMax-Forwards: 70\r\nFrom: <sip:tidegate@{host}>;tag={tag:016x}")
        }
    }?;
    write!(
        bytes,
        "\r\nTo: <sip:{address}>\r\nCall-ID: {call:016x}@{host}\r\nCSeq: 1 OPTIONS\r\n\
         Accept: application/sdp\r\n"
    )?;
    if !snapshot.name.is_empty() {
        write!(bytes, "User-Agent: {}\r\n", snapshot.name)?;
    }
    bytes.write_all(b"Content-Length: 0\r\n\r\n")
}

/// Returns true if this shard is the one that probes the back end regularly for all shards of the
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
