//! The answering user agent (UAS).
//!
//! For each call, a random draw decides whether the agent answers, rejects, only rings or sends
//! nothing, and whether it hangs up or waits for the caller to hang up. A copy of an INVITE, a
//! CANCEL, and the ACK to a rejection find their call by a fingerprint (a hash) of the transaction
//! of the INVITE. All other messages find their call by its [`Mark`](crate::identity::Mark), which
//! the agent writes into its To-tags and into the branch of its BYE.

mod bye_sender;
mod call;
mod calls;
mod config;
mod intent;
mod mix;
mod rejected;
mod respond;
mod ringing;
mod stats;
mod tag;

use std::collections::VecDeque;

use tidegate_sip::{Message, Method, Scan, ScanStart};
use tidegate_world::{Core, Failure, Pool, Received, Seed, Timestamp, Transmit};

use crate::SESSION;
use crate::dialog::uri_parameter;
use crate::identity::Namer;
use crate::response;
use crate::table::Id;
use bye_sender::ByeSender;
use call::{Action, Bye, Call, Ended, Phase};
use calls::Calls;
use config::NAME_MAX;
use intent::{Intent, Intents};
use rejected::RejectedInvites;
use ringing::{ProvisionalSent, Ringing};
use tag::Tags;

pub use config::AnswererConfig;
pub use mix::{Behaviour, Mix, MixError};
pub use stats::AnswererStats;

/// Maximum number of alarms that one run of [`Core::handle_timeout`] fires.
const BURST: usize = 64;

// RFC 3261 §8.2.1: a 405 must have this header field.
const ALLOW: (&str, &[u8]) = ("Allow", b"INVITE, ACK, BYE, CANCEL, OPTIONS, MESSAGE, REGISTER");

/// A user agent that takes calls.
pub struct Answerer {
    config: AnswererConfig,
    intents: Intents,
    namer: Namer,
    tags: Tags,
    bye_sender: ByeSender,
    contact: Box<[u8]>,
    /// The end of a 200 to an INVITE: Content-Type, Content-Length and the SDP body.
    session: Box<[u8]>,
    calls: Calls,
    rejected: RejectedInvites,
    draining: bool,
    stats: AnswererStats,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Answerer {
    /// Creates an answerer. Answerers with the same `seed` but different `element` numbers draw
    /// different random numbers.
    pub fn new(mut config: AnswererConfig, seed: Seed, element: u32, pool: Pool) -> Self {
        config.timing.reliable |= !config.retransmissions || config.transport.is_reliable();
        let parameter = uri_parameter(config.transport);
        let known = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let name: String = config.name.chars().filter(known).take(NAME_MAX).collect();
        let body = SESSION.replace('\n', "\r\n");
        let session = format!(
            "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let namer = Namer::new(seed, element);
        Self {
            intents: Intents::new(seed, element),
            namer,
            tags: Tags::new(namer, &name),
            bye_sender: ByeSender::new(config.transport, config.local),
            contact: format!("<sip:{name}@{}{parameter}>", config.local).into_bytes().into(),
            session: session.into_bytes().into(),
            calls: Calls::new(config.calls_max),
            rejected: RejectedInvites::new(),
            draining: false,
            stats: AnswererStats::default(),
            pool,
            out: VecDeque::new(),
            config,
        }
    }

    /// Returns the counts of calls and messages up to now.
    pub fn stats(&self) -> AnswererStats {
        AnswererStats { open: self.calls.open() as u64, ..self.stats.clone() }
    }

    /// Returns the number of calls in memory. An ended call is kept until no retransmission of its
    /// messages can arrive.
    pub fn held(&self) -> usize {
        self.calls.len()
    }

    fn on_request(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>, method: Method) {
        if self.config.echo {
            return self.echo(received, scan, method);
        }
        // An answerer that never responds keeps no calls.
        if self.config.mix.is_silent() {
            self.stats.ignored += 1;
            return;
        }
        match method {
            Method::Invite => self.on_invite(now, received, scan),
            Method::Ack => self.on_ack(now, received, scan),
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
        if self.rejected.contains(key) || self.draining || self.calls.is_full() {
            return self.reject_new(received, scan, key);
        }
        let invite = Message::parse(&received.bytes).and_then(|m| m.check().map(|()| m));
        let Ok(invite) = invite else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.calls += 1;
        // RFC 3261 §12.2.2: 481 within a dialog that does not exist. §14.2: 488 for a session that
        // is not acceptable, which here means any session but the first.
        let within = scan.to_tag.map(|_| if self.dialog(scan).is_some() { 488 } else { 481 });
        let mut call = Call {
            key,
            dialog: self.namer.fingerprint(&[scan.call_id]),
            flow: received.flow,
            came: received.arrived,
            talk: None,
            cancelled: None,
            early_bye: None,
            phase: Phase::New,
        };
        if let Some(status) = within {
            let id = self.calls.insert(call);
            return self.decide(now, id, &invite, status);
        }
        let intent = self.intents.draw(&self.config);
        call.talk = intent.talk;
        let id = self.calls.insert(call);
        self.start_call(now, id, &invite, intent);
    }

    /// Starts a call that behaves as in `intent`, and sends the responses that are due at once.
    fn start_call(&mut self, now: Timestamp, id: Id, invite: &Message<'_>, intent: Intent) {
        if intent.behaviour == Behaviour::Silent {
            self.stats.silent += 1;
            self.stats.ignored += 1;
            let until = now + self.config.timing.patience();
            self.calls.change(id, |call| call.phase = Phase::Ignored(until));
            return;
        }
        if self.config.trying {
            self.say(id, invite, ProvisionalSent::Trying);
        }
        let rings = intent.behaviour.rings();
        let statuses = if rings { self.config.provisionals.len() } else { 0 };
        match intent.behaviour.status().filter(|_| intent.ring.is_zero() || !rings) {
            Some(status) => {
                for number in 0..statuses {
                    self.say(id, invite, ProvisionalSent::Progress(number));
                }
                self.decide(now, id, invite, status);
            }
            None => {
                let (trying, longest) = (self.config.trying, self.config.talk_max);
                let ringing = Ringing::new(now, invite.bytes(), intent, statuses, trying, longest);
                let said = ringing.said();
                self.calls.change(id, |call| call.phase = Phase::Ringing(Box::new(ringing)));
                if !(trying && said == ProvisionalSent::Trying) {
                    self.say(id, invite, said);
                }
            }
        }
    }

    fn on_invite_again(&mut self, id: Id, received: &Received) {
        let Some(call) = self.calls.get(id) else { return };
        match &call.phase {
            // RFC 3261 §17.2.1: "If a request retransmission is received while in the
            // "Proceeding" state, the most recent provisional response [...] MUST be passed to
            // the transport layer for retransmission", and in Completed the final one.
            Phase::Ringing(ringing) => {
                let said = ringing.said();
                if let Ok(invite) = Message::parse(&received.bytes) {
                    self.say(id, &invite, said);
                }
            }
            Phase::Rejected(..) => self.send_again(id),
            Phase::Ignored(_) => self.stats.ignored += 1,
            // RFC 6026 §7.1: in the Accepted state "any retransmissions of the INVITE
            // received will match this transaction state machine and will be absorbed".
            Phase::New
            | Phase::Answered(..)
            | Phase::Talking(..)
            | Phase::Leaving(..)
            | Phase::Over(..) => {}
        }
    }

    fn on_ack(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>) {
        let (talk_max, timing) = (self.config.talk_max, self.config.timing);
        // RFC 3261 §17.1.1.3: the ACK to a rejection is part of the INVITE's transaction.
        // §13.2.2.4: that to a 2xx belongs to the dialog only. If a proxy without transactions has
        // sent a retransmission of an INVITE elsewhere, the ACK to another server's rejection may
        // come here.
        let key = self.key(scan);
        let id = self.calls.find(key);
        let id = id.filter(|&id| self.calls.get(id).is_some_and(|call| call.is_rejected()));
        let id = id.or_else(|| self.dialog(scan));
        let acknowledged = id.and_then(|id| {
            self.calls.change(id, |call| Some((call.on_ack(now, talk_max, &timing)?, call.came)))?
        });
        match acknowledged {
            Some((true, came)) => {
                let in_time = received.arrived.since(came) <= self.config.deadline;
                self.stats.acknowledged += 1;
                self.stats.acknowledged_in_time += u64::from(in_time);
            }
            Some((false, _)) => {}
            None if self.rejected.contains(key) => {}
            None => self.stats.stray += 1,
        }
    }

    fn on_bye(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>) {
        let timing = self.config.timing;
        let bye = Ended { cseq: scan.cseq, key: self.key(scan) };
        let id = self.dialog(scan);
        let ended = id.and_then(|id| self.calls.change(id, |call| call.on_bye(now, bye, &timing)));
        let status = match ended {
            Some(Bye::Ends) => {
                self.stats.completed += 1;
                200
            }
            Some(Bye::EndsEarly) => 200,
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
        if let Some(id) = id.filter(|_| ended == Some(Bye::EndsEarly)) {
            self.cancel_ringing(now, id);
        }
    }

    fn on_cancel(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>) {
        let Some(id) = self.calls.find(self.key(scan)) else {
            self.stats.stray += 1;
            return self.reply_statelessly(received, scan, 481, &[]);
        };
        if self.calls.get(id).is_some_and(|call| matches!(call.phase, Phase::Ignored(_))) {
            self.stats.ignored += 1;
            return;
        }
        let Ok(cancel) = Message::parse(&received.bytes) else {
            self.stats.malformed += 1;
            return;
        };
        // RFC 3261 §9.2: "the To tag of the response to the CANCEL and the To tag in the
        // response to the original request SHOULD be the same."
        let tag = self.tags.of_call(id);
        let ok = response::to(&cancel, received.flow, 200, Some(&tag), &[], &self.pool);
        self.out.extend(ok);
        let timing = self.config.timing;
        self.calls.change(id, |call| call.on_cancel(now, &timing));
        self.cancel_ringing(now, id);
    }

    /// Handles a response. It is unexpected unless it belongs to a BYE, the only request of ours.
    fn on_response(&mut self, now: Timestamp, scan: &Scan<'_>, status: u16) {
        let timing = self.config.timing;
        let mark = scan
            .branch
            .and_then(bye_sender::mark_of)
            .and_then(|text| self.namer.recognise(text))
            .filter(|_| scan.cseq_method == Method::Bye);
        let Some(mark) = mark else {
            self.stats.unexpected += 1;
            return;
        };
        let answered =
            |call: &mut Call| call.is_leaving().then(|| call.on_bye_response(now, &timing, status));
        match self.calls.change(mark.id, answered).flatten() {
            Some(Some(ending)) => self.count(ending),
            Some(None) => {}
            None => self.stats.late += 1,
        }
    }

    fn on_timeout(&mut self, now: Timestamp, id: Id) {
        let timing = self.config.timing;
        match self.calls.change(id, |call| call.on_timeout(now, &timing)) {
            Some(Action::Wait) | None => {}
            Some(Action::Ring) => self.ring_on(id),
            Some(Action::Decide(ringing)) => match ringing.behaviour.status() {
                Some(status) => {
                    let invite = Message::parse(&ringing.invite).expect("it was parsed before");
                    self.decide(now, id, &invite, status);
                }
                None => {
                    self.stats.unanswered += 1;
                    self.calls.change(id, |call| call.finish(now, &timing, None));
                }
            },
            Some(Action::Again) => self.send_again(id),
            Some(Action::HangUp(answer, ending)) => self.hang_up(now, id, &answer, ending),
            Some(Action::End(ending)) => self.count(ending),
            Some(Action::EndUnanswered(ending)) => {
                self.stats.byes_unanswered += 1;
                self.count(ending);
            }
            Some(Action::Drop) => self.calls.remove(id),
        }
    }
}

impl Core for Answerer {
    fn offer(&mut self, now: Timestamp, received: Received) {
        match tidegate_sip::scan(&received.bytes) {
            Ok(scan) => match scan.start {
                ScanStart::Request { method, .. } => self.on_request(now, &received, &scan, method),
                ScanStart::Response { status } => self.on_response(now, &scan, status),
            },
            Err(_) => self.stats.malformed += 1,
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        for _ in 0..BURST {
            let Some(id) = self.calls.pop_due(now) else { break };
            self.on_timeout(now, id);
        }
    }

    fn on_failed(&mut self, _: Timestamp, _: Failure) {
        self.stats.undelivered += 1;
    }

    /// Rejects new calls with 503 from now on. Open calls continue to their end.
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
