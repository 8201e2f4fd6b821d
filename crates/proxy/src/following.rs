//! The way of a request whose dialog or call is known: to the back end that has it.

use tidegate_world::{Received, Timestamp};

use crate::calls::{Answer, CallRef, Member, Phase, Transaction};
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::picking::demand_of;
use crate::request::Request;
use crate::routing::{Hop, Routes};

impl Endpoint {
    /// The way of a request whose dialog or call is known.
    pub(crate) fn follow(
        &mut self,
        now: Timestamp,
        request: &Request<'_>,
        routes: &Routes,
        call: Option<(CallRef, u128)>,
        is_new: bool,
    ) -> Result<Option<Hop>, Instead> {
        if let Some(token) = routes.token {
            // Only configured back ends are honoured; one that was taken out of the
            // configuration is reached no more.
            if let Some(member) = self.addresses().member(token.backend) {
                let call = call.map_or(CallRef::NONE, |(call, _)| call);
                // Whoever has that address by now, after a reload, the call is counted where it began.
                let held = self.calls().get(call).map(|entry| (entry.member, entry.place));
                let is_there = |&(member, place): &(Member, _)| {
                    self.backend(member).address_at(place) == Some(token.backend)
                };
                let member = held.filter(is_there).map_or(member, |(member, _)| member);
                let hop = self.toward(member, call, routes.own);
                // A name may lead elsewhere by now; the dialog is where it was.
                let target = match self.backend(member).named() {
                    Some(_) => token.backend,
                    None => hop.target,
                };
                return Ok(Some(Hop { target, ..hop }));
            }
            // A process that has just started knows no names yet. A 481 would end the dialog (RFC
            // 3261 §12.2.1.2), and any refusal would be contradicted by what becomes of the
            // repetition, which comes when there is no answer.
            if self.names().has_unknown() {
                return Err(Instead::Drop(DropReason::Unresolved));
            }
        }
        let Some((call, fingerprint)) = call else { return Ok(None) };
        let Some(entry) = self.calls().get(call) else { return Ok(None) };
        let (mut member, answered, phase) = (entry.member, entry.answered, entry.phase);
        let begins_anew = answered && matches!(phase, Phase::Finished | Phase::Single);
        let stays = if begins_anew {
            self.backend(member).is_up(now)
        } else {
            // Who is drained or has asked for a pause finishes what it has.
            answered || self.backend(member).is_alive(now)
        };
        let demand = demand_of(request.method, request.has_priority);
        let begins = is_new
            && matches!(phase, Phase::Finished | Phase::Single)
            && !self.calls().is_repeated(call, request.identity);
        let mut held = None;
        let stays = stays
            && (!begins || {
                let index = member.backend.into();
                let assigned = self.picker(member.pool).assign_to(now, index, demand);
                assigned.is_ok_and(|assigned| {
                    held = assigned.call;
                    true
                })
            });
        if is_new && !stays {
            // The client repeats its request because nobody answers, or begins anew:
            // nothing ties it to a back end that is down, or has no headroom.
            match self.assign(now, member.pool, Some(call), request, fingerprint, Some(demand)) {
                Ok(chosen) => (member, held) = (chosen.member, chosen.call),
                Err(why) => {
                    // What we answer ourselves is over, wherever it was sent before.
                    let Request { identity, method, .. } = *request;
                    let transaction = Transaction { identity, method };
                    self.calls_mut().on_response(now, call, transaction, Answer::new(503, false));
                    return Err(why);
                }
            }
            self.move_call(call, request.identity, member);
        }
        Ok(Some(Hop { held, ..self.toward(member, call, routes.own) }))
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
        }
    }

    /// A request within a dialog that nobody here knows. With several shards the
    /// others are asked in turn: a client that ignores Record-Route and changes its
    /// port between requests is found again that way.
    pub(crate) fn unknown(&self, received: &Received) -> Instead {
        if u16::from(received.crossed) + 1 < self.shards() {
            return Instead::Cross((self.shard() + 1) % self.shards());
        }
        // RFC 3261 §21.4.19.
        Instead::Reply(481, "no such call")
    }
}
