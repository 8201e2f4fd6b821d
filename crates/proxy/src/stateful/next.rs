//! Another target for a request whose present one does not serve it.

use std::time::Duration;

use tidegate_sip::Message;
use tidegate_world::Timestamp;

use crate::calls::Member;
use crate::endpoint::Endpoint;
use crate::routing::Hop;
use crate::settings::Choice;
use crate::stateful::context::{At, Context, Live};

/// A back end that has answered 503 within this time gets no request that another has refused: a
/// rejected call is not carried from one saturated server to the next.
const SATURATED: Duration = Duration::from_secs(1);

impl Endpoint {
    /// How long a target of this pool may be silent before another is tried.
    pub(crate) fn failover_after(&self, pool: u16) -> Option<Duration> {
        let settings = self.pool_settings(pool);
        matches!(settings.choice, Choice::One(_)).then_some(settings.failover_after)
    }

    /// A back end has refused a request for overload.
    pub(crate) fn note_refused(&mut self, now: Timestamp, member: Option<Member>) {
        if let Some(member) = member {
            self.backend(member).on_refused(now);
        }
    }

    /// A back end has been silent since `since`. If it has answered nobody else either it is
    /// taken for down: one request that it does not like is not enough.
    pub(crate) fn note_silent(&mut self, now: Timestamp, member: Option<Member>, since: Timestamp) {
        let Some(member) = member else { return };
        if !self.backend(member).has_answered(since) {
            let pause = self.failure_pause();
            self.backend(member).on_failed(now, pause);
        }
    }

    /// Sends the request to another back end of its pool, if there is one that may have it. Those
    /// that had it are abandoned.
    pub(crate) fn try_next(&mut self, at: At, context: &mut Context, live: &mut Live) -> bool {
        let Some((pool, fingerprint)) = live.choice else { return false };
        let settings = self.pool_settings(pool);
        let may_try = matches!(settings.choice, Choice::One(_))
            && context.branches.len() < usize::from(settings.tries_max)
            && context.server.is_pending()
            && !live.is_cancelled
            // Once it rings somewhere it stays there.
            && context.last.is_none();
        if !may_try {
            return false;
        }
        let had = |i: usize| {
            let member = Some(Member { pool, backend: i as u16 });
            context.branches.iter().any(|branch| branch.member == member)
        };
        let Some(backend) = self.pick_another(at.now, pool, fingerprint, |i, backend| {
            !had(i) && !backend.has_refused(at.now, SATURATED)
        }) else {
            return false;
        };
        let member = Member { pool, backend };
        self.move_call(context.call, member);
        let hop = Hop { choice: live.choice, ..self.toward(member, context.call, 0) };
        let before = context.branches.len();
        if !self.start_again(at, context, live, &hop) {
            return false;
        }
        for (branch, pending) in context.branches.iter_mut().zip(&mut live.pending).take(before) {
            pending.is_abandoned = true;
            branch.client = branch.client.hush();
        }
        true
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

    fn start_again(&mut self, at: At, context: &mut Context, live: &mut Live, hop: &Hop) -> bool {
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
