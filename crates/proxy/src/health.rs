//! How the health of back ends is learnt: by what becomes of requests, and by probes.
//!
//! What requests bring to light costs nothing and takes a request each time; a probe finds a back
//! end that is gone before a caller does, and one that has returned. The state itself is
//! [`tidegate_balance::State`].

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_balance::{Parties, UNTIL_PROBED};
use tidegate_sip::{Host, Message, Uri};
use tidegate_world::Timestamp;

use crate::calls::Member;
use crate::endpoint::Endpoint;
use crate::request::Request;
use crate::settings::canonical;
use crate::stateful::{Branch, Context, Live, Pending};

/// How the health of a pool's back ends is learnt, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// If they are asked.
    pub probe: Option<Probe>,
    /// Requests in a row that a back end leaves unanswered until it is asked out of turn whether it
    /// is there, 1 to [`COUNT_MAX`](tidegate_balance::COUNT_MAX).
    pub error_limit: u32,
    /// The share of a pool's back ends that requests alone (503s, silence, ICMP) exclude at the
    /// most, 0 to 1. Probes that fail may exclude all.
    pub eject_max: f64,
    /// The longest Retry-After of a 503 that is honoured; what asks for more gets this. Zero: none.
    pub retry_after_max: Duration,
    /// For how long the weight of a back end that has returned grows; zero: it is whole at once.
    pub slow_start: Duration,
}

/// How back ends are asked whether they are there: by OPTIONS (RFC 3261 §11).
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// From one to the next.
    pub interval: Duration,
    /// For how long an answer is awaited.
    pub timeout: Duration,
    /// By which share of itself an interval may be shorter or longer, 0 to 1.
    pub jitter: f64,
    /// Unanswered probes in a row until a back end is down, from 1 as above.
    pub fall: u32,
    /// Answered ones in a row until it is up again, likewise.
    pub rise: u32,
    /// Which answers count.
    pub accept: Accept,
    /// The URI that stands in From; `None`: `sip:tidegate@` and our own address.
    pub from: Option<String>,
}

/// Which final answers to a probe say that a back end can take calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Any but 503: a server that knows no OPTIONS (405, 501) or no such user (404) is there.
    Any,
    /// These.
    Only(Vec<u16>),
}

impl Accept {
    pub(crate) fn holds(&self, status: u16) -> bool {
        match self {
            Self::Any => status != 503,
            Self::Only(list) => list.contains(&status),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            probe: None,
            error_limit: 1,
            eject_max: 0.5,
            retry_after_max: Duration::from_secs(60),
            slow_start: Duration::ZERO,
        }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            jitter: 0.1,
            fall: 3,
            rise: 2,
            accept: Accept::Any,
            from: None,
        }
    }
}

impl Endpoint {
    /// How long a back end of this pool gets no new calls when it has failed, unless it answers.
    pub(crate) fn pause_of(&self, pool: u16) -> Duration {
        let is_probed = self.pool_settings(pool).health.probe.is_some();
        if is_probed { UNTIL_PROBED } else { self.failure_pause() }
    }

    /// Returns whether the target of a branch has sent a response that came from `remote`. Another
    /// party that has seen our Via, such as the phone behind it, may answer as well: that says
    /// nothing of it.
    pub(crate) fn has_sent(&self, branch: &Branch, remote: SocketAddr) -> bool {
        branch.target == canonical(remote)
            || branch.member.is_some() && branch.member == self.addresses().member(remote)
    }

    /// The target of a branch has refused its request for overload, by the 503 in `answer`.
    pub(crate) fn note_refused(
        &self,
        now: Timestamp,
        branch: &Branch,
        pending: &mut Pending,
        parties: Option<Parties>,
        answer: &[u8],
    ) {
        let Some(member) = self.target_of(branch) else { return };
        let max = self.pool_settings(member.pool).health.retry_after_max;
        // RFC 3261 §21.5.4: "It SHOULD NOT forward any other requests to that server for the
        // duration specified in the Retry-After header field, if present." The server that asks for
        // it may be any behind this one, such as the phone of one callee: so it is honoured once
        // several callers are refused for several callees.
        let asked = || Message::parse(answer).ok()?.retry_after().ok()?;
        let wait = if max.is_zero() { None } else { asked() };
        let wait = wait.map(|seconds| Duration::from_secs(seconds.into()).min(max));
        let backend = self.backend(member);
        let sources = self.pool_settings(member.pool).pool.watch(now);
        let teaches = backend.on_refused(now, parties, sources, wait);
        self.cap_exclusions(now, member);
        if mem::take(&mut pending.may_teach) {
            backend.on_not_taken(pending.since, teaches);
        }
    }

    /// The target of a branch has been silent since that was sent. That is so at the end of
    /// `failover_after_ms`, and again at Timer B, if there was nobody else; but it teaches once.
    pub(crate) fn note_silent(
        &mut self,
        now: Timestamp,
        branch: &Branch,
        pending: &mut Pending,
        parties: Option<Parties>,
    ) {
        let Some(member) = self.target_of(branch) else { return };
        let (backend, since) = (self.backend(member), pending.since);
        let silences = backend.on_silent(now, since);
        if silences == 0 {
            return;
        }
        if mem::take(&mut pending.may_teach) {
            let sources = self.pool_settings(member.pool).pool.watch(now);
            let is_proved = backend.on_unserved(now, parties, sources);
            backend.on_not_taken(since, is_proved);
        }
        if silences >= self.pool_settings(member.pool).health.error_limit {
            self.suspect(now, member, since);
        }
    }

    /// Returns the caller and the callee of a request, for the [evidence](Parties) of overload.
    ///
    /// The callee is the user of the Request-URI, by which whoever is behind us finds him: a To may
    /// be anything. Of an IPv6 source the /64 counts, which is one subscriber's.
    pub(crate) fn parties(&self, source: IpAddr, request: &Request<'_>) -> Parties {
        let Uri { user, host, text, .. } = request.uri;
        let user = user.map(|user| user.split(|&b| b == b';').next().unwrap_or(user));
        let destination = match (user, host) {
            (Some(user), _) => self.keys().call.hash(&[user]),
            (None, Some(Host::Name(name))) => self.keys().call.hash(&[b"", name]),
            (None, _) => self.keys().call.hash(&[b"", text]),
        };
        let source = match source.to_canonical() {
            IpAddr::V4(ip) => self.keys().call.hash(&[&ip.octets()]),
            IpAddr::V6(ip) => self.keys().call.hash(&[&ip.octets()[..8]]),
        };
        Parties::of(source, destination)
    }

    /// A new request goes to a back end: who it is from and for, if that matters there.
    pub(crate) fn note_given(
        &self,
        now: Timestamp,
        member: Member,
        source: IpAddr,
        request: &Request<'_>,
    ) -> Option<Parties> {
        let backend = self.backend(member);
        if !backend.is_watched(now) {
            return None;
        }
        let parties = self.parties(source, request);
        backend.on_given(now, parties);
        Some(parties)
    }

    /// The parties of a request that is held.
    pub(crate) fn parties_of(&self, context: &Context, live: &Live) -> Option<Parties> {
        let message = Message::parse(&live.request).ok()?;
        Some(self.parties(live.source, &self.read_again(&message, context)?))
    }

    /// Requests may just have excluded a back end: if that is too many of its pool, some are
    /// spared.
    pub(crate) fn cap_exclusions(&self, now: Timestamp, member: Member) {
        let backend = self.backend(member);
        if !backend.is_clear(now) {
            backend.note_excluded(now);
            self.spare(now);
        }
    }

    /// Decides anew in each pool who takes calls although requests have shown what excludes it.
    /// Nobody does where a pool stands in that has somebody up. Returns whether anybody does who
    /// did not.
    pub(crate) fn spare(&self, now: Timestamp) -> bool {
        let mut is_any_new = false;
        for (pool, settings) in (0..).zip(self.pools()) {
            let mut backups = self.and_backups(pool).skip(1);
            let has_other = backups.any(|pool| self.pool_settings(pool).pool.is_up(now));
            is_any_new |= settings.pool.spare(now, settings.health.eject_max, !has_other);
        }
        is_any_new
    }

    /// The back end that a branch goes to. A request that comes from one goes elsewhere.
    fn target_of(&self, branch: &Branch) -> Option<Member> {
        branch.member.filter(|&member| self.backend(member).address() == Some(branch.target))
    }
}
