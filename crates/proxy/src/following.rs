//! The way of a request whose dialog or call is known: to the back end that has it.
//!
//! Some of these requests belong to no dialog all the same, and are more work for that back end:
//! then they are new for its limits ([`Endpoint::begins`]).

use tidegate_balance::{Assigned, Lease};
use tidegate_sip::Method;
use tidegate_world::{Received, Timestamp};

use crate::calls::{Answer, Call, CallRef, Evidence, Member, Transaction};
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::evidence::Known;
use crate::instead::Instead;
use crate::picking::{Chosen, demand_of};
use crate::request::Request;
use crate::routing::{Hop, Routes};

impl Endpoint {
    /// The way of a request whose dialog or call is known. One that `is_new` belongs to no dialog.
    ///
    /// A call that goes on stays where it is, however little headroom its back end has: what is new
    /// and has its Call-ID is refused then. It goes elsewhere only from a back end that is down and
    /// has not answered.
    pub(crate) fn follow(
        &mut self,
        now: Timestamp,
        request: &Request<'_>,
        routes: &Routes,
        known: &Known,
    ) -> Result<Option<Hop>, Instead> {
        let Known { fingerprint, call, evidence, is_new, is_invented, .. } = *known;
        let is_judged = is_new && (call.is_none() || request.method != Method::Invite);
        let is_known = call.is_some() || routes.token.is_some();
        if is_known && !is_judged && !self.may_pass(now, request, known) {
            return Err(Instead::Drop(DropReason::CallFlood));
        }
        if let Some(token) = routes.token {
            // Only back ends are honoured that are configured, or were a while ago.
            if let Some(owner) = self.addresses().member(token.backend) {
                // Whoever has that address by now, after a reload, the call is counted where it began.
                let is_there = |entry: &&Call| {
                    self.backend(entry.member).address_at(entry.place) == Some(token.backend)
                };
                let entry = call.and_then(|call| self.calls().get(call)).filter(is_there);
                let member = entry.map_or(owner, |entry| entry.member);
                let is_invite = is_invented || is_new && request.method == Method::Invite;
                let begins = is_invite && self.begins(call, request, evidence, member);
                let (member, call, held) = if begins {
                    let (call, held) = self.begin_at(now, owner, call, request, fingerprint)?;
                    (owner, call, held)
                } else {
                    (member, call.unwrap_or(CallRef::NONE), None)
                };
                let hop = self.toward(member, call, routes.own);
                // A name may lead elsewhere by now; the dialog is where it was.
                let target = match self.backend(member).named() {
                    Some(_) => token.backend,
                    None => hop.target,
                };
                return Ok(Some(Hop { target, held, evidence, ..hop }));
            }
            if self.addresses().was_removed(token.backend) {
                return Ok(Some(Hop {
                    target: token.backend,
                    member: None,
                    call: CallRef::NONE,
                    toward_backend: false,
                    own_routes: routes.own,
                    is_strict: false,
                    tier: self.tier_elsewhere(),
                    choice: None,
                    held: None,
                    egress: None,
                    evidence,
                }));
            }
            // A process that has just started knows no names yet. A 481 would end the dialog (RFC
            // 3261 §12.2.1.2), and any refusal would be contradicted by what becomes of the
            // repetition, which comes when there is no answer.
            if self.names().has_unknown() {
                return Err(Instead::Drop(DropReason::Unresolved));
            }
        }
        let Some(call) = call else { return Ok(None) };
        let Some(entry) = self.calls().get(call) else { return Ok(None) };
        let Call { member, answered, phase, has_priority: had_priority, .. } = *entry;
        let goes_on = phase.goes_on();
        let stays = Hop { evidence, ..self.toward(member, call, routes.own) };
        if !is_new {
            return Ok(Some(stays));
        }
        // What begins something again may, as the first time, go to another.
        let key = self.choice_key(member.pool, request, fingerprint);
        let stays = Hop { choice: Some((member.pool, key)), ..stays };
        let Request { method, identity, .. } = *request;
        let begins = self.begins(Some(call), request, evidence, member);
        // A repetition is not judged at the door, and not given priority there.
        let demand = demand_of(method, request.has_priority || !begins && had_priority);
        if begins {
            self.check_room(member.pool, Some(call), request)?;
            match self.picker(member.pool).assign_to(now, member.backend.into(), demand) {
                Ok(Assigned { call: held, .. }) => {
                    let choice = stays.choice.filter(|_| !goes_on);
                    return Ok(Some(Hop { choice, held, ..stays }));
                }
                Err(why) if goes_on => return Err(self.unassigned(now, member.pool, why)),
                Err(_) => {}
            }
        } else {
            // Who is drained or has asked for a pause finishes what it has.
            let is_kept = goes_on && (answered || method != Method::Invite);
            if is_kept || self.backend(member).is_alive(now) {
                return Ok(Some(stays));
            }
            // What is over takes no call along that goes on.
            if goes_on && self.calls().has_ended(call, Transaction { identity, method }) {
                return Err(self.nobody(now, member.pool, None));
            }
        }
        // The client repeats its request because nobody answers, or begins anew: nothing ties it to
        // a back end that is down, or has no headroom.
        match self.assign(now, member.pool, Some(call), request, fingerprint, Some(demand)) {
            Ok(Chosen { member, key, call: held }) => {
                self.move_call(call, identity, member);
                let choice = Some((member.pool, key));
                Ok(Some(Hop { choice, held, evidence, ..self.toward(member, call, routes.own) }))
            }
            Err(why) => {
                // What we answer ourselves is over, wherever it was sent before.
                let transaction = Transaction { identity, method };
                self.calls_mut().on_response(now, call, transaction, Answer::new(503, false));
                Err(why)
            }
        }
    }

    /// Whether a request that belongs to no dialog, and goes to `member`, is new for the limits
    /// there: it has to find headroom.
    ///
    /// It is not if it repeats what the entry of its `call` has on record. Nor is another copy of
    /// the INVITE that the call is counted for at that very back end (RFC 3261 §8.2.2.2), and
    /// nothing more is counted for it. Any other INVITE would be counted as one call more: its call
    /// is over, or not known, or is counted nowhere, for a back end has made it itself and it leads
    /// back to one.
    fn begins(
        &self,
        call: Option<CallRef>,
        request: &Request<'_>,
        evidence: Evidence,
        member: Member,
    ) -> bool {
        let Some(entry) = call.and_then(|call| self.calls().get(call)) else {
            return true;
        };
        let Request { identity, method, .. } = *request;
        let is_copy = || entry.is_counted() && entry.is_copied_by(evidence.copy);
        !entry.is_repetition(Transaction { identity, method }, evidence.copy)
            && (entry.member != member || !is_copy())
    }

    /// Returns whether the rate of the call lets a request within it, or another copy of its
    /// INVITE, pass: one call is no way around the limits for new work. A repetition does not
    /// count; with transactions it is absorbed before.
    fn may_pass(&mut self, now: Timestamp, request: &Request<'_>, known: &Known) -> bool {
        // Nobody uses up what a call may send who has nothing but its Call-ID.
        let call = known.call.filter(|_| !known.is_stray).unwrap_or(CallRef::NONE);
        let Request { identity, method, .. } = *request;
        let is_repeated = method != Method::Ack
            && self.calls().is_repeated(call, Transaction { identity, method });
        is_repeated || self.calls_mut().take_rate(now, call, known.fingerprint)
    }

    /// An INVITE begins a call at this back end, which is named in its Route: nobody stands in for
    /// it there. Its entry, and what it holds.
    fn begin_at(
        &mut self,
        now: Timestamp,
        member: Member,
        call: Option<CallRef>,
        request: &Request<'_>,
        fingerprint: u128,
    ) -> Result<(CallRef, Option<Lease>), Instead> {
        if call.is_none() && !self.calls().has_room() {
            return Err(self.full());
        }
        self.check_room(member.pool, call, request)?;
        let demand = demand_of(request.method, request.has_priority);
        let assigned = self.picker(member.pool).assign_to(now, member.backend.into(), demand);
        let held = assigned.map_err(|why| self.unassigned(now, member.pool, why))?.call;
        let entry = call.and_then(|call| self.calls().get(call));
        let call = match call.filter(|_| entry.is_some_and(|entry| entry.phase.goes_on())) {
            Some(call) => call,
            None => {
                let held = self.hold(now, call, fingerprint, request.identity, member)?;
                if call.is_none() {
                    self.choose_tier(member.pool, held, !request.has_its_share);
                }
                held
            }
        };
        Ok((call, held))
    }

    pub(crate) fn toward(&self, member: Member, call: CallRef, own_routes: usize) -> Hop {
        let backend = self.backend(member);
        let target = match backend.named() {
            None => backend.address(),
            Some(_) => {
                let held = self.calls().get(call).filter(|entry| entry.member == member);
                backend.address_at(held.map_or_else(|| backend.place(), |entry| entry.place))
            }
        };
        let target = target.expect("who was chosen was up, and has an address ever since");
        Hop {
            target,
            member: Some(member),
            call,
            toward_backend: true,
            own_routes,
            is_strict: false,
            tier: self.tier(member.pool, call),
            choice: None,
            held: None,
            egress: None,
            evidence: Evidence::default(),
        }
    }

    /// A request within a dialog that nobody here knows. With several shards the
    /// others are asked in turn: a client that ignores Record-Route and changes its
    /// port between requests is found again that way.
    ///
    /// A CANCEL or ACK comes home in the end: its INVITE was sent by the shard where it arrived.
    pub(crate) fn unknown(&self, received: &Received, method: Method) -> Instead {
        let comes_home = matches!(method, Method::Ack | Method::Cancel)
            && (2..u16::from(u8::MAX)).contains(&self.shards());
        let turns = self.shards() + u16::from(comes_home);
        if u16::from(received.crossed) + 1 < turns {
            return Instead::Cross((self.shard() + 1) % self.shards());
        }
        // RFC 3261 §21.4.19.
        Instead::Reply(481, "no such call")
    }
}
