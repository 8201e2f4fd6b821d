//! Sends the responses of an answerer, and finds the call to which a request belongs.

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, Message, Method, Scan};
use tidegate_transaction::{Backoff, InviteServer, OtherClient, Timing};
use tidegate_world::{Received, Timestamp, Transmit};

use super::Answerer;
use super::bye_sender::Answer;
use super::call::{Call, Ending, Phase};
use super::ringing::ProvisionalSent;
use crate::dialog::HOPS_MAX;
use crate::response;
use crate::table::Id;

impl Answerer {
    /// Answers or rejects a call with the final response `status`.
    pub(super) fn decide(&mut self, now: Timestamp, id: Id, invite: &Message<'_>, status: u16) {
        if self.send_final(now, id, invite, status) {
            *if status < 300 { &mut self.stats.answered } else { &mut self.stats.rejected } += 1;
        }
    }

    /// Rejects an INVITE with 503, without creating a call, because the table is full or the
    /// answerer is draining. A copy of the INVITE gets the same response.
    // RFC 3261 §17.2.1: a copy is part of the same transaction, so it gets the same final response.
    pub(super) fn reject_new(&mut self, received: &Received, scan: &Scan<'_>, key: u128) {
        if self.rejected.contains(key) {
            self.stats.invites_again += 1;
        } else {
            self.stats.calls += 1;
            self.stats.overflowed += 1;
            self.rejected.insert(key);
        }
        self.reply_statelessly(received, scan, 503, &[]);
    }

    /// Rejects a ringing call with 487, because its caller has ended it. Does nothing if the call
    /// does not ring.
    // RFC 3261 §9.2: "the UAS [...] SHOULD immediately respond to the INVITE with a 487 (Request
    // Terminated)." §15.1.2 recommends the same after a BYE.
    pub(super) fn cancel_ringing(&mut self, now: Timestamp, id: Id) {
        if let Some(ringing) = self.calls.change(id, Call::stop_ringing).flatten() {
            let invite = Message::parse(&ringing.invite).expect("it was parsed before");
            let cancelled = self.send_final(now, id, &invite, 487);
            self.stats.cancelled += u64::from(cancelled);
        }
    }

    /// Sends the provisional response that is due for a call.
    pub(super) fn ring_on(&mut self, id: Id) {
        let Some(call) = self.calls.get(id) else { return };
        let Phase::Ringing(ringing) = &call.phase else { return };
        let (said, invite) = (ringing.said(), ringing.invite.clone());
        if let Ok(invite) = Message::parse(&invite) {
            self.say(id, &invite, said);
        }
    }

    pub(super) fn say(&mut self, id: Id, invite: &Message<'_>, said: ProvisionalSent) {
        let status = match said {
            ProvisionalSent::Nothing => return,
            ProvisionalSent::Trying => 100,
            ProvisionalSent::Progress(number) => self.config.provisionals[number],
        };
        let provisional = self.response(id, invite, status);
        self.out.extend(provisional);
    }

    /// Sends the final response and keeps it for retransmissions until the ACK arrives. If the
    /// response cannot be written, removes the call and returns `false`.
    #[must_use]
    pub(super) fn send_final(
        &mut self,
        now: Timestamp,
        id: Id,
        invite: &Message<'_>,
        status: u16,
    ) -> bool {
        let Some(response) = self.response(id, invite, status) else {
            self.stats.unanswerable += 1;
            self.calls.remove(id);
            return false;
        };
        let timing = self.config.timing;
        // RFC 3261 §13.3.1.4: "Response retransmissions cease when an ACK request for the response
        // is received. This is independent of whatever transport protocols are used to send the
        // response."
        let of_success = Timing { reliable: !self.config.retransmissions, ..timing };
        self.calls.change(id, |call| {
            call.flow = response.flow;
            call.phase = match status {
                // RFC 3261 §13.3.1.4: "it is necessary to periodically pass the response directly
                // to the transport until the ACK arrives", for at most 64·T1.
                200..300 => Phase::Answered(
                    Backoff::start(now, &of_success),
                    now + timing.patience(),
                    Answer::new(&response.bytes, invite),
                ),
                _ => {
                    let (server, _) = InviteServer::start().on_sending(now, &timing, status);
                    Phase::Rejected(server, response.bytes[..].into())
                }
            };
        });
        self.out.push_back(response);
        true
    }

    /// Retransmits the message of a call that waits for an ACK or a response.
    pub(super) fn send_again(&mut self, id: Id) {
        let Some(call) = self.calls.get(id) else { return };
        let Some((flow, bytes)) = call.repeated() else { return };
        let transmit = Transmit::new(flow, self.pool.copy(bytes));
        self.out.push_back(transmit);
        self.stats.repeated += 1;
    }

    /// Sends the BYE of a call. If no BYE can be written, ends the call without one.
    pub(super) fn hang_up(&mut self, now: Timestamp, id: Id, answer: &Answer, ending: Ending) {
        let timing = self.config.timing;
        let Some(flow) = self.calls.get(id).map(|call| call.flow) else { return };
        match self.bye_sender.write(answer, &self.namer.mark(id), flow, &self.pool) {
            Some(pending_bye) => {
                let bytes = self.pool.copy(&pending_bye.bytes);
                self.out.push_back(Transmit::new(pending_bye.flow, bytes));
                let bye = OtherClient::start(now, &timing);
                self.calls.change(id, |call| call.phase = Phase::Leaving(bye, pending_bye, ending));
            }
            None => {
                self.calls.change(id, |call| call.finish(now, &timing, None));
                self.count(ending);
            }
        }
    }

    /// Counts the end of an answered call.
    pub(super) fn count(&mut self, ending: Ending) {
        *match ending {
            Ending::HungUp => &mut self.stats.hung_up,
            Ending::NotAcknowledged => &mut self.stats.not_acknowledged,
            Ending::Forgotten => &mut self.stats.forgotten,
        } += 1;
    }

    /// Returns the response `status` to the INVITE of a call, or `None` if the response cannot be
    /// written.
    fn response(&mut self, id: Id, invite: &Message<'_>, status: u16) -> Option<Transmit> {
        let flow = self.calls.get(id)?.flow;
        let tag = self.tags.of_call(id);
        let mut headers = ArrayVec::<(&str, &[u8]), { HOPS_MAX + 1 }>::new();
        if matches!(status, 101..300) {
            // RFC 3261 §12.1.1: "the UAS MUST copy all Record-Route header field values from
            // the request into the response [...] and MUST maintain the order of those values.
            // The UAS MUST add a Contact header field to the response."
            headers.push(("Contact", &self.contact));
            for field in invite.fields().filter(|f| f.name == HeaderName::RecordRoute) {
                headers.try_push(("Record-Route", field.value)).ok()?;
            }
        }
        let tag = (status > 100).then_some(&tag[..]);
        let mut response = response::to(invite, flow, status, tag, &headers, &self.pool)?;
        let fits = status != 200 || response::add_body(&mut response, &self.session);
        fits.then_some(response)
    }

    /// Answers any request except ACK with 200. The response to an INVITE contains everything that
    /// a dialog needs, but no session description, so there is no media.
    pub(super) fn echo(&mut self, received: &Received, scan: &Scan<'_>, method: Method) {
        if method == Method::Ack {
            return;
        }
        self.stats.others += 1;
        if method != Method::Invite {
            return self.reply_statelessly(received, scan, 200, &[]);
        }
        let routes = Message::parse(&received.bytes).ok().map(|invite| {
            let routes = invite.fields().filter(|field| field.name == HeaderName::RecordRoute);
            routes.map(|field| ("Record-Route", field.value)).take(HOPS_MAX).collect()
        });
        let contact = self.contact.clone();
        let mut headers: ArrayVec<(&str, &[u8]), { HOPS_MAX + 1 }> = routes.unwrap_or_default();
        headers.push(("Contact", &contact[..]));
        self.reply_statelessly(received, scan, 200, &headers);
    }

    /// Replies to a request without keeping state. A copy of the request gets the same reply.
    pub(super) fn reply_statelessly(
        &mut self,
        received: &Received,
        scan: &Scan<'_>,
        status: u16,
        headers: &[(&str, &[u8])],
    ) {
        let tag = self.tags.of_request(self.key(scan));
        let reply = Message::parse(&received.bytes).ok().and_then(|request| {
            response::to(&request, received.flow, status, Some(&tag), headers, &self.pool)
        });
        match reply {
            Some(reply) => self.out.push_back(reply),
            None => self.stats.malformed += 1,
        }
    }

    /// Returns the fingerprint of the transaction of a request. An INVITE, its CANCEL, and the ACK
    /// to its rejection have the same fingerprint.
    // RFC 3261 §17.2.3: branch and sent-by identify a transaction. Call-ID and CSeq number are
    // needed for clients of RFC 2543, whose branches are not unique.
    pub(super) fn key(&self, scan: &Scan<'_>) -> u128 {
        let branch = scan.branch.unwrap_or_default();
        self.namer.fingerprint(&[branch, scan.sent_by, scan.call_id, &scan.cseq.to_ne_bytes()])
    }

    /// Returns the call to whose dialog a request belongs, or `None` if it belongs to none.
    pub(super) fn dialog(&mut self, scan: &Scan<'_>) -> Option<Id> {
        let id = self.tags.call(scan.to_tag?)?;
        let dialog = self.namer.fingerprint(&[scan.call_id]);
        (self.calls.get(id)?.dialog == dialog).then_some(id)
    }
}
