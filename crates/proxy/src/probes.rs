//! Probes: OPTIONS that ask a back end whether it is there.
//!
//! Each is a client transaction of our own (RFC 3261 §11.1, §17.1.2), one at a time for each back
//! end. One shard asks for all: that is the one which the back end's site falls to. What comes
//! of it all shards see.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tidegate_balance::{Backend, Duty, Site};
use tidegate_sip::Passage;
use tidegate_transaction::{Firing, OtherClient};
use tidegate_world::{Buffer, Received, Stream, Timers, Timestamp};

use crate::calls::Member;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::health::Probe;
use crate::probe_branch::ProbeBranch;

/// Back ends handled by one call, so that many that are due together do not hold up the packets
/// that wait.
const DUE_MAX: usize = 64;

/// Who a shard probes, and when.
pub(crate) struct Probes {
    targets: Vec<Target>,
    /// When something is next due of each target, perhaps; what is not in accord with
    /// [`Target::armed`] was left behind.
    due: Timers<u32>,
    stream: Stream,
    /// Of the last probe.
    number: u32,
}

/// A back end that is probed.
struct Target {
    member: Member,
    site: Site,
    /// When it is next asked.
    next: Timestamp,
    armed: Timestamp,
    flight: Option<Flight>,
}

/// A probe that has no answer yet.
#[derive(Clone, Copy)]
struct Flight {
    number: u32,
    address: SocketAddr,
    client: OtherClient,
    until: Timestamp,
    /// Drawn for it, for its Call-ID and its tag.
    drawn: [u64; 2],
}

impl Target {
    fn deadline(&self) -> Timestamp {
        match &self.flight {
            None => self.next,
            Some(Flight { client, until, .. }) => {
                client.deadline().map_or(*until, |deadline| deadline.min(*until))
            }
        }
    }
}

impl Probes {
    /// Nobody is probed yet; what is drawn is drawn from `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { targets: Vec::new(), due: Timers::new(), stream, number: 0 }
    }

    /// From now on these are probed, by the interval beside each. Who was is asked when it would
    /// have been; who is new, within its first interval: not all at once.
    pub(crate) fn enlist(&mut self, now: Timestamp, who: &[(Member, Site, Duration)]) {
        let before = std::mem::take(&mut self.targets);
        let before: HashMap<_, _> = before.into_iter().map(|t| (t.site, t.next)).collect();
        self.due = Timers::new();
        for (member, site, interval) in who {
            let (member, site, interval) = (*member, site.clone(), *interval);
            let first = now + interval.mul_f64(self.stream.unit());
            let next = before.get(&site).map_or(first, |&next| next.min(now + interval));
            self.due.push(next, self.targets.len() as u32);
            self.targets.push(Target { member, site, next, armed: next, flight: None });
        }
    }

    /// When something is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.due.next()
    }

    /// The place of a target that has something due.
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

    /// The interval until the next probe.
    fn interval(&mut self, probe: &Probe) -> Duration {
        let stretch = 1.0 + probe.jitter * (2.0 * self.stream.unit() - 1.0);
        probe.interval.mul_f64(stretch.max(0.0))
    }
}

impl Endpoint {
    /// Chooses anew who is probed.
    pub(crate) fn enlist_probed(&mut self, now: Timestamp) {
        let (mut who, mut seen) = (Vec::new(), HashSet::new());
        for (member, backend) in self.members() {
            let Some(probe) = &self.pool_settings(member.pool).health.probe else { continue };
            let site = backend.location().site();
            // A server in several pools is asked once, as the first of them says.
            if !seen.insert(Arc::as_ptr(backend)) {
                continue;
            }
            if backend.duty() != Duty::Removed && self.is_ours_to_probe(backend) {
                who.push((member, site, probe.interval));
            }
        }
        self.probes_mut().enlist(now, &who);
    }

    /// Sends the probes that are due, and gives up those that have had no answer.
    pub(crate) fn probes_due(&mut self, now: Timestamp) {
        for _ in 0..DUE_MAX {
            let Some(place) = self.probes_mut().next_due(now) else { return };
            self.probe_due(now, place);
            self.probes_mut().arm(place);
        }
    }

    /// Takes in the answer to a probe.
    pub(crate) fn serve_probe_answer(
        &mut self,
        now: Timestamp,
        received: &Received,
        passage: &Passage<'_>,
    ) -> Result<ProbeAnswer, DropReason> {
        let text = passage.branch.unwrap_or_default();
        let branch = ProbeBranch::decode(text, self.keys(), received.path.remote);
        let branch = branch.ok_or(DropReason::LostResponse)?;
        if u16::from(branch.shard) != self.shard() {
            return Ok(ProbeAnswer::Of(branch.shard));
        }
        let timing = self.transactions().timing;
        let place = branch.place as usize;
        let target = self.probes_mut().targets.get_mut(place).ok_or(DropReason::StrayResponse)?;
        let flight = target.flight.as_mut().filter(|flight| flight.number == branch.number);
        let flight = flight.ok_or(DropReason::StrayResponse)?;
        (flight.client, _) = flight.client.on_response(now, &timing, passage.status);
        if passage.status >= 200 {
            let (member, address) = (target.member, flight.address);
            target.flight = None;
            self.end_probe(now, member, address, Some(passage.status));
        }
        self.probes_mut().arm(place);
        Ok(ProbeAnswer::Taken)
    }

    /// The transport says that nobody is at `address`: a probe that waits for an answer from there
    /// has failed.
    pub(crate) fn probe_unreachable(&mut self, now: Timestamp, member: Member) {
        let mut targets = self.probes_mut().targets.iter_mut();
        let Some(target) = targets.find(|target| target.member == member) else { return };
        if let Some(flight) = target.flight.take() {
            self.end_probe(now, member, flight.address, None);
        }
    }

    fn probe_due(&mut self, now: Timestamp, place: usize) {
        let timing = self.transactions().timing;
        let Target { member, flight, .. } = &self.probes_mut().targets[place];
        let (member, flight) = (*member, *flight);
        let Some(mut flight) = flight else { return self.start_probe(now, place) };
        let firing;
        (flight.client, firing) = flight.client.on_timer(now, &timing);
        let is_over = flight.until <= now || firing == Firing::TimedOut;
        self.probes_mut().targets[place].flight = (!is_over).then_some(flight);
        if is_over {
            self.end_probe(now, member, flight.address, None);
            if self.probes_mut().targets[place].next <= now {
                self.start_probe(now, place);
            }
        } else if firing == Firing::Resend {
            self.counters.requests_resent.add(1);
            self.send_probe(place);
        }
    }

    fn start_probe(&mut self, now: Timestamp, place: usize) {
        let timing = self.transactions().timing;
        let Target { member, next, .. } = &self.probes_mut().targets[place];
        let (member, next) = (*member, *next);
        // A timer that was armed for something that has come sooner.
        if next > now {
            return;
        }
        let pools = self.pool_settings(member.pool);
        let Some(probe) = pools.health.probe.clone() else { return };
        let backend = self.backend(member);
        // A name that leads nowhere is not asked.
        let address = backend.address().filter(|_| backend.duty() != Duty::Maintenance);
        let probes = self.probes_mut();
        probes.number = probes.number.wrapping_add(1);
        let (number, drawn) = (probes.number, [probes.stream.next_u64(), probes.stream.next_u64()]);
        let flight = address.map(|address| Flight {
            number,
            address,
            client: OtherClient::start(now, &timing),
            until: now + probe.timeout,
            drawn,
        });
        let next = now + probes.interval(&probe);
        let target = &mut probes.targets[place];
        target.next = next;
        if flight.is_some() {
            target.flight = flight;
            self.counters.probes.add(1);
            self.send_probe(place);
        }
    }

    fn end_probe(
        &mut self,
        now: Timestamp,
        member: Member,
        address: SocketAddr,
        answer: Option<u16>,
    ) {
        let Some(probe) = &self.pool_settings(member.pool).health.probe else { return };
        let backend = self.backend(member);
        // Of one that has moved meanwhile it says nothing.
        if !backend.is_present_at(address) {
            return;
        }
        let was_clear = backend.is_clear(now);
        if answer.is_some_and(|status| probe.accept.holds(status)) {
            backend.on_probe_answered(now, probe.rise);
        } else {
            backend.on_probe_failed(now, probe.fall);
        }
        if backend.is_clear(now) != was_clear || backend.is_spared() {
            self.spare(now);
        }
    }

    fn send_probe(&mut self, place: usize) {
        let Target { member, flight: Some(flight), .. } = &self.probes_mut().targets[place] else {
            return;
        };
        let (member, flight) = (*member, *flight);
        let address = flight.address;
        // A back end that no listener reaches is refused with its configuration or its name.
        let Some(egress) = self.addresses().egress(0, None, address) else { return };
        let mut bytes = self.pool().take();
        if self.write_probe(place, member, &flight, egress, &mut bytes).is_ok() {
            self.send_onward(egress as u8, address, bytes);
        }
    }

    /// RFC 3261 §11.1: "An OPTIONS request is constructed using the standard rules for a SIP
    /// request as discussed in Section 8.1.1." Its Request-URI names the server itself.
    fn write_probe(
        &self,
        place: usize,
        member: Member,
        flight: &Flight,
        egress: usize,
        bytes: &mut Buffer,
    ) -> io::Result<()> {
        let own = self.addresses().listener(egress).ok_or(io::ErrorKind::NotFound)?;
        let branch =
            ProbeBranch { shard: self.shard() as u8, place: place as u32, number: flight.number };
        let address = flight.address;
        let branch = branch.encode(self.keys(), address);
        let [call, tag] = flight.drawn;
        let host = &own.advertised;
        write!(bytes, "OPTIONS sip:{address} SIP/2.0\r\n{}", own.via)?;
        bytes.write_all(branch.as_bytes())?;
        let probe = self.pool_settings(member.pool).health.probe.as_ref();
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
        if !self.name().is_empty() {
            write!(bytes, "User-Agent: {}\r\n", self.name())?;
        }
        bytes.write_all(b"Content-Length: 0\r\n\r\n")
    }

    /// Of the shards of a process exactly one says yes.
    fn is_ours_to_probe(&self, backend: &Backend) -> bool {
        let site = backend.location().to_string();
        let hash = self.keys().identity.hash(&[b"probe", site.as_bytes()]);
        hash % u64::from(self.shards()) == u64::from(self.shard())
    }
}

/// What became of an answer to a probe.
pub(crate) enum ProbeAnswer {
    Taken,
    /// Another shard has asked.
    Of(u8),
}
