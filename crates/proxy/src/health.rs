//! How the health of back ends is learnt: by what becomes of requests, and by probes.
//!
//! What requests bring to light costs nothing and takes a request each time; a probe finds a back
//! end that is gone before a caller does, and one that has returned. The state itself is
//! [`tidegate_balance::State`].

use std::mem;
use std::time::Duration;

use tidegate_balance::UNTIL_PROBED;
use tidegate_sip::Message;
use tidegate_world::Timestamp;

use crate::calls::Member;
use crate::endpoint::Endpoint;
use crate::stateful::{Branch, Pending};

/// How the health of a pool's back ends is learnt, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// If they are asked.
    pub probe: Option<Probe>,
    /// Requests in a row that a back end leaves unanswered until it is asked out of turn whether it
    /// is there, 1 to [`COUNT_MAX`](tidegate_balance::COUNT_MAX).
    pub error_limit: u32,
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

    /// The target of a branch has refused its request for overload, by the 503 in `answer`.
    pub(crate) fn note_refused(
        &self,
        now: Timestamp,
        branch: &Branch,
        pending: &mut Pending,
        answer: &[u8],
    ) {
        let Some(member) = self.target_of(branch) else { return };
        let max = self.pool_settings(member.pool).health.retry_after_max;
        // RFC 3261 §21.5.4: "It SHOULD NOT forward any other requests to that server for the
        // duration specified in the Retry-After header field, if present."
        let asked = || Message::parse(answer).ok()?.retry_after().ok()?;
        let wait = if max.is_zero() { None } else { asked() };
        let wait = wait.map(|seconds| Duration::from_secs(seconds.into()).min(max));
        let backend = self.backend(member);
        backend.on_refused(now, wait);
        if mem::take(&mut pending.may_teach) {
            backend.on_not_taken(pending.since);
        }
    }

    /// The target of a branch has been silent since that was sent. That is so at the end of
    /// `failover_after_ms`, and again at Timer B, if there was nobody else; but it teaches once.
    pub(crate) fn note_silent(&mut self, now: Timestamp, branch: &Branch, pending: &mut Pending) {
        let Some(member) = self.target_of(branch) else { return };
        let (backend, since) = (self.backend(member), pending.since);
        let silences = backend.on_silent(now, since);
        if silences > 0 && mem::take(&mut pending.may_teach) {
            backend.on_not_taken(since);
        }
        if silences >= self.pool_settings(member.pool).health.error_limit {
            self.suspect(now, member, since);
        }
    }

    /// The back end that a branch goes to. A request that comes from one goes elsewhere.
    fn target_of(&self, branch: &Branch) -> Option<Member> {
        branch.member.filter(|&member| self.backend(member).address() == Some(branch.target))
    }
}
