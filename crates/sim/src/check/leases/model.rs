//! The reference model of the leases. It derives the calls of one balancer from the packets that
//! pass through it.

mod call;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::Balancer;
use crate::check::recent::Recent;
use crate::check::seen::Seen;
use call::{Call, Name, Open, Phase, TRYING_MAX, dialog};

/// Timer C: the time to wait for a final response to an INVITE after a provisional response (RFC
/// 3261 §16.6 item 11).
const TIMER_C: Duration = Duration::from_secs(190);

/// The time after which a call whose 2xx gets no ACK has ended: the answerer sends a BYE after
/// 64·T1, and waits the same time for the response to the BYE (RFC 3261 §13.3.1.4).
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(64);

/// Maximum number of transactions of one call that a balancer distinguishes.
const TRANSACTIONS_MAX: usize = 4;

/// Maximum number of dialogs of one call that a balancer distinguishes. If a fork sets up further
/// dialogs, a request within one of them goes to the back end in its route token, and is not
/// counted.
const DIALOGS_MAX: usize = 2;

/// Weight of an INVITE, in hundredths of the weight of a BYE. The policy TLWL-1.75 of paper 003
/// (§IV; `docs/papers.md`) has this weight.
const INVITE_WORK: u64 = 175;
const OTHER_WORK: u64 = 100;

/// The last response that was delivered to the balancer. A response that the balancer sends at the
/// same moment is the forwarded copy of this one.
#[derive(Clone, Copy, Debug)]
struct Handed {
    at: Timestamp,
    from: Option<usize>,
    /// True if the balancer has sent the request of this response since its last start.
    is_own: bool,
    status: u16,
    vias_below: u64,
}

/// The counts that a balancer must have at one moment.
pub(super) struct Truth {
    /// Number of calls, and work, of each back end.
    pub(super) backends: Vec<(u64, u64)>,
    /// Number of open transactions of all calls, even if their requests went to no back end.
    pub(super) open: u64,
    /// False if a call has more transactions or dialogs than a balancer distinguishes, or if a
    /// timer that changes the counts may not have fired yet at the balancer.
    pub(super) is_sure: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    balancer: Balancer,
    /// Calls by Call-ID and by the tag of the calling end, because a Call-ID alone proves nothing.
    calls: BTreeMap<(u64, u64), Call>,
    /// Branches of the requests that the balancer has sent, and the back end that got each request,
    /// if any.
    sent: Recent<u64, Option<usize>>,
    handed: Option<Handed>,
    /// Latest time at which a timer that changes the counts was due, or `None` if there was none.
    expired: Option<Timestamp>,
}

impl Model {
    pub(super) fn new(balancer: Balancer) -> Self {
        let (calls, sent) = (BTreeMap::new(), Recent::default());
        Self { balancer, calls, sent, handed: None, expired: None }
    }

    /// Empties the model when the balancer crashes.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.balancer.clone());
    }

    pub(super) fn held(&mut self, now: Timestamp) -> Truth {
        let expired = &mut self.expired;
        self.calls.retain(|_, call| {
            *expired = (*expired).max(call.expire(now));
            call.until > now
        });
        let backends = vec![(0, 0); self.balancer.backends.len()];
        let slack = self.balancer.timer_slack;
        let is_sure = self.expired.is_none_or(|at| at + slack <= now);
        let mut truth = Truth { backends, open: 0, is_sure };
        for call in self.calls.values_mut() {
            truth.is_sure &= call.begun.len() <= TRANSACTIONS_MAX;
            truth.is_sure &= call.dialogs.len() <= DIALOGS_MAX;
            truth.backends[call.backend].0 += u64::from(call.is_held);
            for (&(_, method), open) in &call.open {
                truth.open += 1;
                if let Some(at) = open.at {
                    let is_invite = method == Method::Invite as u32;
                    truth.backends[at].1 += if is_invite { INVITE_WORK } else { OTHER_WORK };
                }
            }
        }
        truth
    }

    pub(super) fn on_sent(&mut self, seen: &Seen, to: SocketAddr) {
        let backend = self.backend_at(to);
        match seen.status() {
            // A request with one Via is the balancer's own: the ACK or CANCEL of one hop.
            None if seen.vias.len() < 2 => {}
            None => {
                if let Some(sent_to) = self.sent.entry(seen.now, seen.vias[0]) {
                    *sent_to = backend;
                }
                self.on_request(seen, backend);
            }
            Some(..200) => {}
            Some(status) => self.on_final(seen, status),
        }
    }

    pub(super) fn on_delivered(&mut self, seen: &Seen, from: SocketAddr) {
        let Some(status) = seen.status() else { return self.handed = None };
        let from = self.backend_at(from);
        let sent_to = self.sent.get(seen.now, seen.vias[0]).copied();
        let is_own = sent_to.is_some();
        let vias_below = seen.vias_from(1);
        self.handed = Some(Handed { at: seen.now, from, is_own, status, vias_below });
        if !is_own || seen.vias.len() < 2 {
            return;
        }
        // The caller has sent the balancer too many messages, so a balancer without transactions
        // may drop this response. It counts the end of the request even then. It drops a response
        // for no other reason: it has no queue that could be full, and back ends are not banned.
        if status >= 200 {
            if !seen.is_of_stateful() {
                let below = Seen { vias: seen.vias[1..].to_vec(), ..seen.clone() };
                self.on_final(&below, status);
            }
            return;
        }
        let forks = self.balancer.forks;
        let is_stateful = seen.is_of_stateful();
        let Some(call) = self.call(seen) else { return };
        let open = call.open.get_mut(&(seen.vias[1], seen.method as u32));
        // After the request has gone to another back end, the balancer does not wait for the
        // earlier one. The branch, and not the source of the response, tells which one was asked
        // (RFC 3261 §17.1.3).
        let is_of_present = |open: &Open| open.at.is_none() || Some(open.at) == sent_to;
        let counts = |open: &Open| !is_stateful || forks || is_of_present(open);
        match open {
            Some(open) if counts(open) => {
                call.is_answered |= from.is_some();
                // RFC 3261 §12.1: a 101 to 199 with a To-tag creates an early dialog.
                let creates =
                    seen.method == Method::Invite && status > 100 && seen.to_tag.is_some();
                if creates && call.dialogs.is_empty() {
                    call.dialogs.insert(dialog(seen));
                }
                // RFC 3261 §16.7 item 2: a provisional response resets Timer C.
                if seen.method == Method::Invite {
                    open.until = seen.now + TIMER_C;
                    call.until = call.until.max(seen.now + TRYING_MAX);
                }
            }
            Some(_) => {}
            None => call.is_answered |= !is_stateful && from.is_some(),
        }
    }

    fn backend_at(&self, address: SocketAddr) -> Option<usize> {
        self.balancer.backends.iter().position(|&backend| backend == address)
    }

    /// Returns the key of the call to which a packet belongs. Either end of the call may have sent
    /// the packet.
    fn key(&self, seen: &Seen) -> (u64, u64) {
        let [from, to] = [seen.from_tag, seen.to_tag].map(Option::unwrap_or_default);
        let is_from_callee = !self.calls.contains_key(&(seen.call, from))
            && self.calls.contains_key(&(seen.call, to));
        (seen.call, if is_from_callee { to } else { from })
    }

    /// Returns the call to which a packet belongs, or `None` if the model does not know it.
    fn call(&mut self, seen: &Seen) -> Option<&mut Call> {
        let key = self.key(seen);
        let Entry::Occupied(mut entry) = self.calls.entry(key) else { return None };
        self.expired = self.expired.max(entry.get_mut().expire(seen.now));
        // At the very moment at which the call ends, an event of its transactions may still prolong
        // it.
        if entry.get().until < seen.now {
            entry.remove();
            return None;
        }
        Some(entry.into_mut())
    }

    /// Handles a request that the balancer forwards to or from a back end. `backend` is the back
    /// end that receives it, if any.
    fn on_request(&mut self, seen: &Seen, backend: Option<usize>) {
        let Balancer { forks, idle_max, .. } = self.balancer;
        let is_within = seen.to_tag.is_some();
        let is_of_invite = matches!(seen.method, Method::Ack | Method::Cancel);
        if self.call(seen).is_none() {
            // A request within an unknown call is forwarded by its Route, and is not counted.
            let Some(backend) = backend.filter(|_| !is_within && !is_of_invite) else { return };
            self.calls.insert(self.key(seen), Call::new(backend, seen.now));
        }
        let Some(call) = self.call(seen) else { return };
        // A Call-ID proves nothing: a request within a dialog that no response has created is not
        // part of the call. The ACK to a rejection belongs to its INVITE, like a CANCEL.
        let invite = (seen.vias[1], Method::Invite as u32);
        let is_within = is_within && call.dialogs.contains(&dialog(seen));
        let is_of_known =
            is_of_invite && (call.open.contains_key(&invite) || call.over.contains(&invite));
        if !is_within && !is_of_known && (seen.to_tag.is_some() || seen.method == Method::Cancel) {
            return;
        }
        let name = (seen.vias[1], seen.method as u32);
        let mut is_known = call.open.contains_key(&name) || call.over.contains(&name);
        if let Some(backend) = backend.filter(|&backend| backend != call.backend) {
            let is_fork = forks && is_known;
            // The balancer itself repeats an INVITE to an earlier back end, which has not answered.
            let is_repeated = seen.is_of_stateful() && call.over.contains(&name);
            if is_within || is_of_invite || is_fork || is_repeated || call.is_established() {
                return;
            }
            call.move_to(backend, name);
            is_known = call.over.contains(&name);
        }
        // RFC 3261 §17.1.1.2, Timer A: this is a retransmission by the balancer itself.
        if is_known && seen.is_of_stateful() {
            return;
        }
        if !is_known && !is_of_invite {
            call.on_request(seen.now, name, backend, seen.is_of_stateful());
        }
        call.touch(seen.now, name, is_within.then(|| dialog(seen)), idle_max);
    }

    /// Handles a final response that the balancer forwards, or that ends a request at a balancer
    /// without transactions.
    fn on_final(&mut self, seen: &Seen, status: u16) {
        let idle_max = self.balancer.idle_max;
        let name = (seen.vias[0], seen.method as u32);
        let this =
            |handed: &Handed| handed.at == seen.now && handed.vias_below == seen.vias_from(0);
        let handed = self.handed.filter(this);
        // The response answers a request of an earlier process, which no longer counts.
        if handed.is_some_and(|handed| !handed.is_own) {
            return;
        }
        let Some(call) = self.call(seen) else { return };
        let is_success = (200..300).contains(&status);
        // RFC 3261 §16.9: a back end that the transport cannot reach counts as one that has
        // answered 503. By §16.7 item 6, the balancer replies 500 instead of a 503.
        let is_reply = handed.is_none_or(|handed| handed.status != status);
        let is_of_backend =
            handed.and_then(|handed| handed.from).is_none_or(|from| from == call.backend);
        if seen.method == Method::Invite && is_success && is_of_backend {
            call.confirm(dialog(seen));
        }
        // An INVITE may be answered after the balancer has stopped waiting for the response.
        let is_late = seen.method == Method::Invite && call.begun.contains(&name);
        if call.over.contains(&name) || !call.open.contains_key(&name) && !is_late {
            return;
        }
        // Without transactions, the balancer must still wait for the response, and from a back end.
        let is_awaited = |open: &Open| open.at.is_some();
        if let Some(from) = handed.and_then(|handed| handed.from)
            && (seen.is_of_stateful() || call.open.get(&name).is_some_and(is_awaited))
            && seen.method == Method::Invite
            && is_success
            && from != call.backend
            && !call.is_established()
        {
            // The call belongs to the back end that has answered.
            call.move_to(from, name);
            call.on_request(seen.now, name, Some(from), seen.is_of_stateful());
            call.confirm(dialog(seen));
        }
        call.is_answered |= handed.is_some_and(|handed| handed.from.is_some());
        let open = call.open.remove(&name);
        let left = open.and_then(|open| open.dialog);
        call.over.insert(name);
        // Without transactions, the balancer accepts the response to a BYE that it has sent to a
        // back end only from a back end.
        let is_by_peer = seen.is_of_stateful()
            || handed.is_some_and(|handed| handed.from.is_some())
            || open.is_some_and(|open| open.at.is_none());
        match (seen.method, call.phase) {
            (Method::Invite, Phase::Trying) if is_success => {
                (call.phase, call.is_acknowledged) = (Phase::Established, false);
                call.until = seen.now + UNACKNOWLEDGED_MAX;
            }
            (Method::Invite, Phase::Established) if is_success => {
                (call.is_acknowledged, call.until) = (true, seen.now + idle_max);
            }
            (Method::Invite, Phase::Trying) => {
                let is_invite = |&(_, method): &Name| method == Method::Invite as u32;
                if !call.open.keys().any(is_invite) {
                    call.end(seen.now);
                }
            }
            (Method::Bye, Phase::Leaving | Phase::Established)
                if is_success || matches!(status, 408 | 481) =>
            {
                call.end_dialog(seen.now, left);
            }
            // If the balancer itself has sent the response, or if it is a 5xx, the BYE counts as
            // unanswered.
            (Method::Bye, _) if is_reply || !is_by_peer || status > 500 && status < 600 => {}
            (Method::Bye, Phase::Leaving | Phase::Established) => {
                call.on_bye_rejected(seen.now, left, idle_max);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Role;
    use crate::check::seen::Kind;
    use crate::node_id::NodeId;

    /// RFC 3261 §13.2.2.4: "Multiple 2xx responses may arrive at the UAC for a single INVITE request
    /// due to a forking proxy." The call is at the first one.
    #[test]
    fn a_call_that_has_moved_counts_at_the_back_end_that_answers_first() {
        let now = Timestamp::ZERO + Duration::from_secs(1);
        let backends = [1, 2].map(|host| SocketAddr::from(([192, 0, 2, host], 5060)));
        let mut model = Model::new(Balancer {
            backends: backends.to_vec(),
            forks: false,
            idle_max: Duration::from_secs(3600),
            timer_slack: Duration::ZERO,
        });
        let invite = Seen {
            now,
            node: NodeId::new(0),
            role: Role::Proxy { stateful: false, bridges: false, sticky: true, roomy: true },
            kind: Kind::Request,
            method: Method::Invite,
            cseq: 1,
            call: 1,
            vias: vec![2, 1],
            hosts: vec![2, 1],
            from_tag: Some(1),
            to_tag: None,
            max_forwards: Some(70),
            uri: 1,
            body: 1,
            whole: 1,
        };
        for backend in backends {
            model.on_sent(&invite, backend);
        }
        assert_eq!(model.held(now).backends, [(0, 0), (1, INVITE_WORK)]);
        let ok = Seen { kind: Kind::Response(200), to_tag: Some(2), ..invite };
        model.on_delivered(&ok, backends[0]);
        let truth = model.held(now);
        assert_eq!((truth.backends, truth.open), (vec![(1, 0), (0, 0)], 0));
    }

    #[test]
    fn nothing_is_sure_while_a_timer_may_be_late() {
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let backends = vec![([192, 0, 2, 1], 5060).into()];
        let (idle_max, timer_slack) = (Duration::from_secs(3600), Duration::from_millis(10));
        let balancer = Balancer { backends, forks: false, idle_max, timer_slack };
        let mut model = Model::new(balancer);
        let mut call = Call::new(0, at(0));
        call.on_request(at(0), (1, Method::Invite as u32), Some(0), true);
        model.calls.insert((1, 2), call);
        let mut look = |ms| {
            let truth = model.held(at(ms));
            (truth.backends[0], truth.open, truth.is_sure)
        };
        assert_eq!(look(31_999), ((1, INVITE_WORK), 1, true));
        assert_eq!(look(32_000), ((0, 0), 0, false));
        assert_eq!(look(32_009), ((0, 0), 0, false));
        assert_eq!(look(32_010), ((0, 0), 0, true));
    }
}
