//! Another target for a request whose present one does not serve it.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_sip::Message;

use crate::calls::Member;
use crate::endpoint::Endpoint;
use crate::picking::{Chosen, demand_of};
use crate::routing::Hop;
use crate::settings::{Choice, Mode};
use crate::stateful::context::{At, Context, Live};

/// A back end that has answered 503 within this time gets no request that another has refused: a
/// rejected call is not carried from one saturated server to the next. For a request that another
/// has left unanswered that counts only if it was for overload, and not for one number.
const SATURATED: Duration = Duration::from_secs(1);

impl Endpoint {
    /// How long a target of this pool may be silent before another is tried.
    pub(crate) fn failover_after(&self, pool: u16) -> Option<Duration> {
        let settings = self.pool_settings(pool);
        matches!(settings.choice, Choice::One(_)).then_some(settings.failover_after)
    }

    /// As [`try_next`](Self::try_next), because a target has answered 503. That may be about the
    /// callee and not about the target: so a request is carried on once, and then as far as the
    /// budget of its pool has something left.
    pub(crate) fn try_after_refusal(
        &mut self,
        at: At,
        context: &mut Context,
        live: &mut Live,
    ) -> bool {
        let is_first = !std::mem::replace(&mut live.is_refused, true);
        if is_first {
            return self.try_next(at, context, live);
        }
        let Some((pool, _)) = live.choice else { return false };
        if !self.may_try(context, live, pool) {
            return false;
        }
        if !self.picker_mut(pool).retries().take() {
            self.counters.failovers_denied.add(1);
            return false;
        }
        self.try_next(at, context, live)
    }

    /// Returns whether a request may go to a target that it has not gone to.
    fn may_try(&self, context: &Context, live: &Live, pool: u16) -> bool {
        let settings = self.pool_settings(pool);
        matches!(settings.choice, Choice::One(_))
            && context.branches.len() < usize::from(settings.tries_max)
            && context.server.is_pending()
            && !live.is_cancelled
            // Once it rings somewhere it stays there.
            && context.last.is_none()
    }

    /// Sends the request to another back end of its pool, if there is one that may have it and has
    /// headroom for it. Those that had it are abandoned.
    pub(crate) fn try_next(&mut self, at: At, context: &mut Context, live: &mut Live) -> bool {
        let Some((pool, _)) = live.choice else { return false };
        if !self.may_try(context, live, pool) {
            return false;
        }
        let had = |pool: u16, i: usize| {
            let member = Some(Member { pool, backend: i as u16 });
            context.branches.iter().any(|branch| branch.member == member)
        };
        let pools = self.and_backups(pool).filter(|&pool| self.stands_in(pool));
        let pools: SmallVec<[u16; 4]> = pools.collect();
        let is_refused = live.is_refused;
        let demand = Some(demand_of(context.method, live.has_priority));
        let other = pools.into_iter().find_map(|pool| {
            let key = self.key_in(pool, context, live)?;
            let chosen = self.choose(at.now, pool, key, demand, |i, backend| {
                let is_saturated = match is_refused {
                    true => backend.has_refused(at.now, SATURATED),
                    false => backend.was_overloaded(at.now, SATURATED),
                };
                !had(pool, i) && !is_saturated
            });
            chosen.ok()
        });
        let Some(Chosen { member, call: held, .. }) = other else { return false };
        // A copy of its INVITE does not take the call along.
        if !self.calls().is_counted_for_another(context.call, context.identity) {
            self.move_call(context.call, context.identity, member);
        }
        let hop = Hop { choice: live.choice, held, ..self.toward(member, context.call, 0) };
        let before = context.branches.len();
        if !self.start_again(at, context, live, hop) {
            return false;
        }
        for (branch, pending) in context.branches.iter_mut().zip(&mut live.pending).take(before) {
            pending.is_abandoned = true;
            pending.failover = None;
            branch.client = branch.client.hush();
        }
        true
    }

    /// What the policy of a pool chooses by of the request of a context.
    fn key_in(&self, pool: u16, context: &Context, live: &Live) -> Option<u64> {
        let (first, key) = live.choice?;
        if self.picker(pool).key() == self.picker(first).key() {
            return Some(key);
        }
        let message = Message::parse(&live.request).ok()?;
        let request = self.read_again(&message, context)?;
        let fingerprint = self.keys().call.fingerprint(request.essentials.call_id);
        Some(self.choice_key(pool, &request, fingerprint))
    }

    /// Whether a pool takes a request of which there are transactions, and sends it to one.
    fn stands_in(&self, pool: u16) -> bool {
        let settings = self.pool_settings(pool);
        settings.mode != Mode::Stateless && matches!(settings.choice, Choice::One(_))
    }

    /// Sends the request of a context to the next group of its fork; `false` if to none of it.
    pub(crate) fn start_next_group(
        &mut self,
        at: At,
        context: &mut Context,
        live: &mut Live,
        group: &[u16],
    ) -> bool {
        let bytes = std::mem::take(&mut live.request);
        let started = Message::parse(&bytes).ok().and_then(|message| {
            let request = self.read_again(&message, context)?;
            self.start_group(at, context, live, &request, group).ok()
        });
        live.request = bytes;
        started.is_some()
    }

    fn start_again(&mut self, at: At, context: &mut Context, live: &mut Live, hop: Hop) -> bool {
        let bytes = std::mem::take(&mut live.request);
        let started = Message::parse(&bytes).ok().and_then(|message| {
            let request = self.read_again(&message, context)?;
            let breadth = live.onward.max_breadth.unwrap_or_default();
            self.start(at, context, live, &request, hop, breadth).ok()
        });
        live.request = bytes;
        started.is_some()
    }
}
