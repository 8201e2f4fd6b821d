//! Forking, and how far: RFC 3261 §16.6, RFC 5393 §5.

use std::cmp::Reverse;
use std::collections::VecDeque;

use tidegate_world::Timestamp;

use crate::calls::Member;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::request::Request;
use crate::routing::Hop;
use crate::settings::Choice;
use crate::stateful::begin::BRANCHES_MAX;
use crate::stateful::context::{At, Context, Live};

/// RFC 5393 §5.3.3: "If a SIP proxy receives a request with no Max-Breadth header field value,
/// it MUST add one, with a value that is RECOMMENDED to be 60. Proxies MUST have a maximum
/// allowable Incoming Max-Breadth value, which is RECOMMENDED to be 60."
const BREADTH_MAX: u32 = 60;

impl Endpoint {
    /// The Incoming Max-Breadth of a request.
    pub(crate) fn breadth(&self, request: &Request<'_>) -> Result<u32, Instead> {
        match request.message.max_breadth()? {
            Some(0) => Err(EXCEEDED),
            // "If this maximum is exceeded in a received request, the proxy MUST overwrite it".
            Some(breadth) => Ok(breadth.min(BREADTH_MAX)),
            None => Ok(BREADTH_MAX),
        }
    }

    /// The back ends that a request forks to, in groups of which one comes after the other; none
    /// if it goes to one target.
    ///
    /// RFC 3261 §16.6: "Targets are processed from highest qvalue to lowest. Targets with equal
    /// qvalues may be processed in parallel."
    pub(crate) fn fork_groups(
        &self,
        now: Timestamp,
        hop: &Hop,
        breadth: u32,
    ) -> Result<VecDeque<Vec<u16>>, Instead> {
        let Some((pool, _)) = hop.choice else { return Ok(VecDeque::new()) };
        let groups = self.groups(now, pool);
        let widest = groups.iter().map(Vec::len).max().unwrap_or_default();
        // RFC 5393 §5.3.3: "If a SIP proxy determines a response context has insufficient Incoming
        // Max-Breadth to carry out a desired parallel fork, and the proxy is unwilling/unable to
        // compensate by forking serially [...], that proxy MUST return a 440".
        if widest as u64 > u64::from(breadth) { Err(EXCEEDED) } else { Ok(groups) }
    }

    /// The back ends of a pool that are up, by their q; none if the pool's requests go to one.
    pub(crate) fn groups(&self, now: Timestamp, pool: u16) -> VecDeque<Vec<u16>> {
        let mut groups = VecDeque::<Vec<u16>>::new();
        let Choice::All(qs) = &self.pool_settings(pool).choice else { return groups };
        let is_up = |&i: &u16| self.backend(Member { pool, backend: i }).is_up(now);
        let mut backends: Vec<u16> = (0..qs.len() as u16).filter(is_up).collect();
        backends.sort_by_key(|&i| Reverse(qs[usize::from(i)]));
        for backend in backends.into_iter().take(BRANCHES_MAX) {
            let q = |i: u16| qs[usize::from(i)];
            match groups.back_mut() {
                Some(group) if q(group[0]) == q(backend) => group.push(backend),
                _ => groups.push_back(vec![backend]),
            }
        }
        groups
    }

    /// Sends the request to all of a group at once.
    ///
    /// # Errors
    /// If none of them could be sent to.
    pub(crate) fn start_group(
        &mut self,
        at: At,
        context: &mut Context,
        live: &mut Live,
        request: &Request<'_>,
        group: &[u16],
    ) -> Result<(), Instead> {
        let Some((pool, _)) = live.choice else { return Ok(()) };
        // RFC 5393 §5.3.3: "SIP proxies MUST NOT allow the Outgoing Max-Breadth to exceed the
        // Incoming Max-Breadth". Those of earlier groups have their final response.
        let incoming = live.onward.max_breadth.unwrap_or(BREADTH_MAX);
        let count = group.len() as u32;
        let mut outcome = Err(self.nobody(at.now, pool, None));
        for (i, &backend) in (0u32..).zip(group) {
            let member = Member { pool, backend };
            // Its turn may have come long after the groups were made.
            if !self.backend(member).is_up(at.now) {
                continue;
            }
            let hop = Hop { choice: None, ..self.toward(member, context.call, 0) };
            let share = incoming / count + u32::from(i < incoming % count);
            let started = self.start(at, context, live, request, hop, share);
            outcome = outcome.or(started);
        }
        outcome
    }
}

const EXCEEDED: Instead = Instead::Reply(440, "max breadth exceeded");
