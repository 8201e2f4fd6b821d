//! The answering user agent (UAS).
//!
//! Rings, then answers, refuses or stays silent. An INVITE, and what must match it, finds
//! its call by a fingerprint of the transaction; ACK and BYE by the mark in our tag.

mod call;
mod calls;
mod config;
mod stats;
mod tag;

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, Message, Method, Scan, ScanStart};
use tidegate_world::{Core, Failure, Pool, Received, Seed, Timestamp, Transmit};

use crate::SESSION;
use crate::identity::Namer;
use crate::response;
use crate::table::Id;
use crate::timer::Repeat;
use call::{Act, Bye, Call, Phase};
use calls::Calls;
use config::NAME_MAX;
use tag::Tags;

pub use config::{AnswererConfig, Behaviour};
pub use stats::AnswererStats;

/// Alarms fired by one `handle_timeout` at the most.
const BURST: usize = 64;

/// Record-Route header lines of an INVITE at the most; one with more is not understood.
const ROUTES_MAX: usize = 32;

/// An answerer that will not respond within this time says 100 at once.
const TRYING: Duration = Duration::from_millis(200);

// RFC 3261 §8.2.1: a 405 must bear it.
const ALLOW: (&str, &[u8]) = ("Allow", b"INVITE, ACK, BYE, CANCEL, OPTIONS, MESSAGE, REGISTER");

/// A user agent that takes calls.
pub struct Answerer {
    config: AnswererConfig,
    namer: Namer,
    tags: Tags,
    contact: Box<[u8]>,
    /// The end of a 200 to an INVITE.
    session: Box<[u8]>,
    calls: Calls,
    draining: bool,
    stats: AnswererStats,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Answerer {
    /// The answerer numbered `element`.
    pub fn new(config: AnswererConfig, seed: Seed, element: u32, pool: Pool) -> Self {
        let known = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let name: String = config.name.chars().filter(known).take(NAME_MAX).collect();
        let body = SESSION.replace('\n', "\r\n");
        let session = format!(
            "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let namer = Namer::new(seed, element);
        Self {
            namer,
            tags: Tags::new(namer, &name),
            contact: format!("<sip:{name}@{}>", config.local).into_bytes().into(),
            session: session.into_bytes().into(),
            calls: Calls::new(config.calls_max),
            draining: false,
            stats: AnswererStats::default(),
            pool,
            out: VecDeque::new(),
            config,
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> AnswererStats {
        AnswererStats { open: self.calls.open() as u64, ..self.stats.clone() }
    }

    /// Calls in the table, with those that are over but still absorb late copies.
    pub fn held(&self) -> usize {
        self.calls.len()
    }

    fn on_request(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>, method: Method) {
        if self.config.behaviour == Behaviour::Silent {
            self.stats.ignored += 1;
            return;
        }
        match method {
            Method::Invite => self.on_invite(now, received, scan),
            Method::Ack => self.on_ack(now, scan),
            Method::Bye => self.on_bye(now, received, scan),
            Method::Cancel => self.on_cancel(now, received, scan),
            Method::Options | Method::Message | Method::Register => {
                self.stats.others += 1;
                self.reply_statelessly(received, scan, 200, &[]);
            }
            _ => {
                self.stats.not_allowed += 1;
                self.reply_statelessly(received, scan, 405, &[ALLOW]);
            }
        }
    }

    fn on_invite(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>) {
        let key = self.key(scan);
        if let Some(id) = self.calls.find(key) {
            self.stats.invites_again += 1;
            return self.on_invite_again(id, received);
        }
        self.stats.calls += 1;
        if self.draining || self.calls.is_full() {
            self.stats.overflowed += 1;
            return self.reply_statelessly(received, scan, 503, &[]);
        }
        let invite = Message::parse(&received.bytes).and_then(|m| m.check().map(|()| m));
        let Ok(invite) = invite else {
            self.stats.malformed += 1;
            return;
        };
        // RFC 3261 §12.2.2: 481 within a dialog that does not exist; §14.2: 488 for a session
        // that is not acceptable, which any but the first is here.
        let within = scan.to_tag.map(|_| if self.dialog(scan).is_some() { 488 } else { 481 });
        let call = Call {
            key,
            dialog: self.namer.fingerprint(&[scan.call_id]),
            path: received.path,
            phase: Phase::Ringing(now + self.config.ring, Box::default()),
        };
        let id = self.calls.insert(call);
        if let Some(status) = within {
            self.stats.refused += 1;
            return self.send_final(now, id, &invite, status);
        }
        self.send_provisional(id, &invite);
        if self.config.ring.is_zero() {
            return self.decide(now, id, &invite);
        }
        self.calls.change(id, |call| {
            call.phase = Phase::Ringing(now + self.config.ring, received.bytes[..].into());
        });
    }

    fn on_invite_again(&mut self, id: Id, received: &Received) {
        let Some(call) = self.calls.get(id) else { return };
        match &call.phase {
            // RFC 3261 §17.2.1: "If a request retransmission is received while in the
            // 'Proceeding' state, the most recent provisional response … MUST be passed to
            // the transport layer for retransmission", and in Completed the final one.
            Phase::Ringing(..) => {
                if let Ok(invite) = Message::parse(&received.bytes) {
                    self.send_provisional(id, &invite);
                }
            }
            Phase::Refused(..) => self.send_again(id),
            // RFC 6026 §7.1: in the Accepted state "any retransmissions of the INVITE
            // received will match this transaction state machine and will be absorbed".
            Phase::Answered(..) | Phase::Talking(_) | Phase::Over(..) => {}
        }
    }

    fn on_ack(&mut self, now: Timestamp, scan: &Scan<'_>) {
        let timers = self.config.timers;
        let until = now + self.config.talk_max;
        // RFC 3261 §17.1.1.3: the ACK to a refusal is part of the INVITE's transaction;
        // §13.2.2.4: that to a 2xx belongs to the dialog only.
        let id = self.calls.find(self.key(scan)).or_else(|| self.dialog(scan));
        let acknowledged =
            id.and_then(|id| self.calls.change(id, |call| call.on_ack(now, until, &timers))?);
        match acknowledged {
            Some(true) => self.stats.acknowledged += 1,
            Some(false) => {}
            None => self.stats.stray += 1,
        }
    }

    fn on_bye(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>) {
        let timers = self.config.timers;
        let ended = self
            .dialog(scan)
            .and_then(|id| self.calls.change(id, |call| call.on_bye(now, scan.cseq, &timers)));
        let status = match ended {
            Some(Bye::Ends) => {
                self.stats.completed += 1;
                200
            }
            Some(Bye::Again) => {
                self.stats.byes_again += 1;
                200
            }
            Some(Bye::Unknown) | None => {
                self.stats.stray += 1;
                481
            }
        };
        self.reply_statelessly(received, scan, status, &[]);
    }

    fn on_cancel(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>) {
        let Some(id) = self.calls.find(self.key(scan)) else {
            self.stats.stray += 1;
            return self.reply_statelessly(received, scan, 481, &[]);
        };
        let Ok(cancel) = Message::parse(&received.bytes) else {
            self.stats.malformed += 1;
            return;
        };
        // RFC 3261 §9.2: "the To tag of the response to the CANCEL and the To tag in the
        // response to the original request SHOULD be the same."
        let tag = self.tags.of_call(id);
        let ok = response::to(&cancel, received.path, 200, Some(&tag), &[], &self.pool);
        self.out.extend(ok);
        let Some(Phase::Ringing(_, invite)) = self.calls.get(id).map(|call| &mut call.phase) else {
            return;
        };
        let invite = std::mem::take(invite);
        self.stats.cancelled += 1;
        match Message::parse(&invite) {
            Ok(invite) => self.send_final(now, id, &invite, 487),
            Err(_) => self.calls.remove(id),
        }
    }

    fn on_timeout(&mut self, now: Timestamp, id: Id) {
        let timers = self.config.timers;
        match self.calls.change(id, |call| call.on_timeout(now, &timers)) {
            Some(Act::Decide(invite)) => match Message::parse(&invite) {
                Ok(invite) => self.decide(now, id, &invite),
                Err(_) => self.calls.remove(id),
            },
            Some(Act::Again) => self.send_again(id),
            Some(Act::NotAcknowledged) => self.stats.not_acknowledged += 1,
            Some(Act::Forgotten) => self.stats.forgotten += 1,
            Some(Act::Drop) => self.calls.remove(id),
            None => {}
        }
    }

    /// Answers or refuses a call, as configured.
    fn decide(&mut self, now: Timestamp, id: Id, invite: &Message<'_>) {
        let status = match self.config.behaviour {
            Behaviour::Refuse(status) => status,
            Behaviour::Answer | Behaviour::Silent => 200,
        };
        *if status < 300 { &mut self.stats.answered } else { &mut self.stats.refused } += 1;
        self.send_final(now, id, invite, status);
    }

    fn send_provisional(&mut self, id: Id, invite: &Message<'_>) {
        let status = match self.config.ringing {
            true => 180,
            // RFC 3261 §17.2.1: "MUST generate a 100 (Trying) response unless it knows that
            // the TU will generate a provisional or final response within 200 ms".
            false if self.config.ring > TRYING => 100,
            false => return,
        };
        let provisional = self.response(id, invite, status);
        self.out.extend(provisional);
    }

    /// Sends the final response and keeps it until it is acknowledged.
    fn send_final(&mut self, now: Timestamp, id: Id, invite: &Message<'_>, status: u16) {
        let Some(response) = self.response(id, invite, status) else {
            self.stats.malformed += 1;
            return self.calls.remove(id);
        };
        let repeat = Repeat::capped(now, &self.config.timers);
        self.calls.change(id, |call| {
            let kept = response.bytes[..].into();
            call.path = response.path;
            call.phase = match status {
                200..300 => Phase::Answered(repeat, kept),
                _ => Phase::Refused(repeat, kept),
            };
        });
        self.out.push_back(response);
    }

    fn send_again(&mut self, id: Id) {
        let Some(call) = self.calls.get(id) else { return };
        let Some(response) = call.response() else { return };
        let transmit = Transmit { path: call.path, bytes: self.pool.copy(response) };
        self.out.push_back(transmit);
        self.stats.repeated += 1;
    }

    /// A response to the INVITE of a call. `None` if it cannot be answered.
    fn response(&mut self, id: Id, invite: &Message<'_>, status: u16) -> Option<Transmit> {
        let path = self.calls.get(id)?.path;
        let tag = self.tags.of_call(id);
        let mut headers = ArrayVec::<(&str, &[u8]), { ROUTES_MAX + 1 }>::new();
        if matches!(status, 101..300) {
            // RFC 3261 §12.1.1: "the UAS MUST copy all Record-Route header field values from
            // the request into the response … and MUST maintain the order of those values.
            // The UAS MUST add a Contact header field to the response."
            headers.push(("Contact", &self.contact));
            for field in invite.fields().filter(|f| f.name == HeaderName::RecordRoute) {
                headers.try_push(("Record-Route", field.value)).ok()?;
            }
        }
        let tag = (status > 100).then_some(&tag[..]);
        let mut response = response::to(invite, path, status, tag, &headers, &self.pool)?;
        let fits = status != 200 || response::add_body(&mut response, &self.session);
        fits.then_some(response)
    }

    /// Replies to a request of which nothing is kept. A copy of it gets the same reply.
    fn reply_statelessly(
        &mut self,
        received: &Received,
        scan: &Scan<'_>,
        status: u16,
        headers: &[(&str, &[u8])],
    ) {
        let tag = self.tags.of_request(self.key(scan));
        let reply = Message::parse(&received.bytes).ok().and_then(|request| {
            response::to(&request, received.path, status, Some(&tag), headers, &self.pool)
        });
        match reply {
            Some(reply) => self.out.push_back(reply),
            None => self.stats.malformed += 1,
        }
    }

    /// The transaction of an INVITE, the same for its ACK to a refusal and its CANCEL.
    // RFC 3261 §17.2.3: branch and sent-by. With Call-ID and CSeq number it serves clients
    // of RFC 2543 too, whose branch is not unique.
    fn key(&self, scan: &Scan<'_>) -> u128 {
        let branch = scan.branch.unwrap_or_default();
        self.namer.fingerprint(&[branch, scan.sent_by, scan.call_id, &scan.cseq.to_ne_bytes()])
    }

    /// The call whose dialog a request belongs to.
    fn dialog(&mut self, scan: &Scan<'_>) -> Option<Id> {
        let id = self.tags.call(scan.to_tag?)?;
        let dialog = self.namer.fingerprint(&[scan.call_id]);
        (self.calls.get(id)?.dialog == dialog).then_some(id)
    }
}

impl Core for Answerer {
    fn offer(&mut self, now: Timestamp, received: Received) {
        match tidegate_sip::scan(&received.bytes) {
            Ok(scan) => match scan.start {
                ScanStart::Request { method, .. } => self.on_request(now, &received, &scan, method),
                ScanStart::Response { .. } => self.stats.unexpected += 1,
            },
            Err(_) => self.stats.malformed += 1,
        }
        self.calls.settle();
    }

    /// Nothing ever waits: a request is handled as it arrives.
    fn serve(&mut self, _: Timestamp) -> bool {
        false
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        for _ in 0..BURST {
            let Some(id) = self.calls.pop_due(now) else { break };
            self.on_timeout(now, id);
        }
        self.calls.settle();
    }

    fn on_failed(&mut self, _: Timestamp, _: Failure) {
        self.stats.undelivered += 1;
    }

    /// New calls get 503; those that are open go on to their end.
    fn on_drain(&mut self, _: Timestamp) {
        self.draining = true;
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.calls.next_due()
    }

    fn is_drained(&self) -> bool {
        self.calls.open() == 0
    }
}
