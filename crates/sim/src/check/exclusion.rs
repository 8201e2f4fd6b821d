//! `exclusion`: a back end that answers well-behaved callers is not excluded.
//!
//! Attackers can cause a back end to reject requests (a 503 with a Retry-After of an hour) or to
//! send no response. They can also forge packets in its name (ICMP, responses). This checker sees
//! in the packets how the back end treats callers and probes. There is *evidence* against a back
//! end in two cases:
//!
//! - A caller's request or a probe that the proxy has sent to the back end gets a 5xx, or no
//!   response for some time.
//! - A packet between the proxy and the back end is lost.
//!
//! The rules apply to a back end that has just answered callers' requests or probes, if there is no
//! evidence against it:
//!
//! - The proxy must not treat the back end as down or paused for longer than [`OUT_MAX`] in total.
//!   Shorter exclusions are allowed. A proxy may exclude up to half of a pool, so forgeries in the
//!   name of all back ends exclude one back end after another, each until its next probe.
//! - If the proxy learns rates, the learned rate of the back end must not be less than
//!   [`RATE_LEAST`] times the highest rate at which it has answered callers since the last
//!   evidence, because only rejections lower a learned rate. A comparison with the current rate of
//!   answers would not detect a slow fall, because a back end that gets fewer requests also answers
//!   fewer.
//!
//! Nothing is asserted about a back end that an operator has taken out of service, about a
//! restarted proxy until its back ends have answered, or about a proxy that was stalled or told to
//! drain.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::Findings;
use super::books::{ProxyBook, Standing};
use super::front::Front;
use super::lives::Lives;
use super::recent::Recent;
use super::seen::{Kind, Seen};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "exclusion";

/// Time for which evidence against a back end counts. It is longer than any exclusion that evidence
/// can cause, and longer than the recovery of a learned rate.
const EVIDENCE_HOLDS: Duration = Duration::from_secs(600);

/// Maximum age of answers that still prove that a back end works.
const PROOF_HOLDS: Duration = Duration::from_secs(5);

/// Minimum number of recent answers that prove that a back end works.
const PROOF: usize = 3;

/// Maximum total time for which a back end that answers may be excluded.
const OUT_MAX: Duration = Duration::from_secs(4);

/// The lowest allowed learned rate, as a share of the highest rate at which the back end answered.
const RATE_LEAST: f64 = 0.5;

/// The shortest time over which a rate is computed, because a few answers at nearly the same time
/// would give much too high a rate.
const RATE_SPAN: Duration = Duration::from_secs(1);

/// The recent behaviour of a back end towards one proxy.
#[derive(Debug, Default)]
struct Witness {
    /// Time of the last evidence against the back end, or `None` if there is none.
    evidence: Option<Timestamp>,
    /// Times of the back end's last answers to callers and probes.
    answers: VecDeque<Timestamp>,
    /// Start of the current exclusion of the back end, if the exclusion began right after the back
    /// end had proved that it works. Otherwise `None`.
    out_since: Option<Timestamp>,
    /// Total time of the earlier exclusions, since the last evidence, that began right after the
    /// back end had proved that it works.
    out_for: Duration,
    /// Requests of callers and probes to which the back end has not responded: branch, method, and
    /// time of sending.
    waits: VecDeque<(u64, u32, Timestamp)>,
    /// Times of the back end's last final responses to INVITEs of callers.
    served: VecDeque<Timestamp>,
    /// The highest rate of the responses in `served` since the last evidence, per second.
    served_cps: f64,
    is_reported: bool,
}

/// Maximum number of answers from which a rate is computed.
const ANSWERS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Exclusion {
    witnesses: BTreeMap<(NodeId, usize), Witness>,
    /// Requests to which a back end has responded, and whether a response was final.
    answered: Recent<(NodeId, u64, u32), bool>,
}

impl Exclusion {
    /// Records that a proxy sends a request of a caller, or a probe.
    pub(super) fn on_sent(&mut self, seen: &Seen, to: SocketAddr, front: &Front) {
        let is_asked = matches!(seen.method, Method::Invite | Method::Options | Method::Bye);
        let Some(backend) = front.backend_at(to).filter(|_| seen.is_request() && is_asked) else {
            return;
        };
        let witness = self.witnesses.entry((seen.node, backend)).or_default();
        let (branch, method) = (seen.vias[0], seen.method as u32);
        let is_known = witness.waits.iter().any(|wait| (wait.0, wait.1) == (branch, method));
        if !is_known && self.answered.get(seen.now, (seen.node, branch, method)).is_none() {
            witness.waits.push_back((branch, method, seen.now));
        }
    }

    /// Records that a proxy gets the response to a request of a caller or to a probe.
    pub(super) fn on_delivered(&mut self, seen: &Seen, from: SocketAddr, front: &Front) {
        let Kind::Response(status) = seen.kind else { return };
        let Some(backend) = front.backend_at(from) else { return };
        let witness = self.witnesses.entry((seen.node, backend)).or_default();
        witness.hear(seen.now, front.silent_after);
        let (branch, method) = (seen.vias[0], seen.method as u32);
        witness.waits.retain(|wait| (wait.0, wait.1) != (branch, method));
        let Some(is_over) = self.answered.entry(seen.now, (seen.node, branch, method)) else {
            return;
        };
        let was_over = std::mem::replace(is_over, *is_over || status >= 200);
        if (500..600).contains(&status) {
            witness.evidence = Some(seen.now);
        } else if status > 100 {
            keep(&mut witness.answers, seen.now);
            // A 2xx is retransmitted until its ACK has arrived (RFC 3261 §13.3.1.4).
            if status >= 200 && !was_over && seen.method == Method::Invite {
                keep(&mut witness.served, seen.now);
                let rate = proof(&witness.served, seen.now).unwrap_or_default();
                witness.served_cps = witness.served_cps.max(rate);
            }
        }
    }

    /// Records a packet that was lost between a proxy and a back end. It may have been an
    /// attacker's packet.
    pub(super) fn on_lost(&mut self, now: Timestamp, node: NodeId, backend: usize) {
        self.witnesses.entry((node, backend)).or_default().evidence = Some(now);
    }

    /// Compares the answers of a proxy's back ends with their state in the proxy.
    pub(super) fn look(
        &mut self,
        node: NodeId,
        book: &ProxyBook,
        front: &Front,
        lives: &Lives,
        found: &mut Findings,
    ) {
        let now = found.now;
        for (backend, held) in book.backends.iter().enumerate().take(front.backends.len()) {
            let Some(witness) = self.witnesses.get_mut(&(node, backend)) else { continue };
            witness.hear(now, front.silent_after);
            let is_excused = witness.evidence.is_some_and(|at| now < at + EVIDENCE_HOLDS)
                || lives.is_disturbed(node);
            if is_excused || held.standing == Standing::OutOfService {
                (witness.out_since, witness.is_reported) = (None, false);
                (witness.out_for, witness.served_cps) = (Duration::ZERO, 0.0);
                continue;
            }
            let name = &held.name;
            let what = match held.standing {
                Standing::Excluded => match witness.out_since {
                    Some(since) if now.since(since) + witness.out_for > OUT_MAX => Some(format!(
                        "{name} has been excluded since {since:?}, although it had just answered"
                    )),
                    None if proof(&witness.answers, now).is_some() => {
                        witness.out_since = Some(now);
                        None
                    }
                    _ => None,
                },
                _ => {
                    let out_since = witness.out_since.take();
                    witness.out_for += out_since.map_or(Duration::ZERO, |since| now.since(since));
                    let served_cps = witness.served_cps;
                    match held.learned_cps {
                        Some(cps) if cps < served_cps * RATE_LEAST => Some(format!(
                            "{name}: learned rate {cps:.1}/s, although it has answered {served_cps:.1}/s"
                        )),
                        _ => {
                            witness.is_reported = false;
                            None
                        }
                    }
                }
            };
            if let Some(what) = what.filter(|_| !witness.is_reported) {
                witness.is_reported = true;
                found.report(NAME, Some(node), what);
            }
        }
    }

    /// Forgets the back ends of a crashed proxy.
    pub(super) fn crashed(&mut self, node: NodeId) {
        self.witnesses.retain(|(at, _), _| *at != node);
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.answered.unwatched()
    }
}

impl Witness {
    /// Records evidence against the back end if a request has waited for a response for longer than
    /// `silent_after`.
    fn hear(&mut self, now: Timestamp, silent_after: Duration) {
        while let Some(&(.., since)) = self.waits.front()
            && now > since + silent_after
        {
            self.evidence = self.evidence.max(Some(since + silent_after));
            self.waits.pop_front();
        }
    }
}

/// Returns the rate of recent answers per second, or `None` if they are too old or too few to prove
/// that the back end works.
fn proof(answers: &VecDeque<Timestamp>, now: Timestamp) -> Option<f64> {
    let recent = || answers.iter().filter(|&&at| now < at + PROOF_HOLDS);
    let (&first, count) = (recent().next()?, recent().count());
    (count >= PROOF).then(|| count as f64 / now.since(first).max(RATE_SPAN).as_secs_f64())
}

fn keep(answers: &mut VecDeque<Timestamp>, now: Timestamp) {
    if answers.len() == ANSWERS_MAX {
        answers.pop_front();
    }
    answers.push_back(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Role;
    use crate::check::books::Held;

    const PROXY: &str = "10.0.1.1:5060";
    const BACKEND: &str = "10.0.2.1:5060";

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    fn front() -> Front {
        Front {
            address: PROXY.parse().unwrap(),
            backends: vec![BACKEND.parse().unwrap()],
            calls_max: None,
            cps_max: None,
            idle_max: Duration::from_secs(60),
            sees_evidence: true,
            at_once: true,
            silent_after: Duration::from_millis(400),
            keeps_accounts: true,
            transactions_max: 100,
        }
    }

    /// Returns the number of findings for a back end that answers a caller ten times, every half
    /// second. The last answer has the status `status`. For the next ten seconds, the book of the
    /// proxy contains `held`.
    fn found(status: u16, held: &Held) -> usize {
        found_of(500, |n| if n == 9 { status } else { 200 }, |_| held.clone())
    }

    /// Returns the number of findings for a back end that answers a caller ten times, `ms`
    /// milliseconds apart. In the next ten seconds, the report of the proxy is checked forty times.
    fn found_of(ms: u64, status: impl Fn(u64) -> u16, held: impl Fn(u64) -> Held) -> usize {
        let role = Role::Proxy { stateful: true, bridges: false, sticky: true, roomy: true };
        let node = NodeId::new(1);
        let (front, lives) = (front(), Lives::default());
        let (mut exclusion, mut found) = (Exclusion::default(), Findings::default());
        for n in 0..10 {
            let branch = format!("{PROXY};branch=z9hG4bK{n}");
            let rest = format!(
                "Via: SIP/2.0/UDP {branch}\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK\r\n\
                 From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\nCall-ID: {n}\r\n\
                 CSeq: 1 INVITE\r\n\r\n"
            );
            let response = format!("SIP/2.0 {} Word", status(n));
            let texts = ["INVITE sip:c@d SIP/2.0".to_owned(), response]
                .map(|line| format!("{line}\r\n{rest}"));
            let [request, response] =
                texts.map(|text| Seen::read(at(ms * n), node, role, text.as_bytes()).unwrap());
            exclusion.on_sent(&request, front.backends[0], &front);
            exclusion.on_delivered(&response, front.backends[0], &front);
        }
        for n in 0..40 {
            let book = ProxyBook { backends: vec![held(n)], ..ProxyBook::default() };
            found.now = at(10 * ms + 250 * n);
            exclusion.look(node, &book, &front, &lives, &mut found);
        }
        found.kept.len()
    }

    #[test]
    fn the_exclusion_of_a_back_end_that_has_just_answered_is_reported_once() {
        let out = Held { standing: Standing::Excluded, ..Held::default() };
        assert_eq!(found(200, &out), 1);
        assert_eq!(found(503, &out), 0, "a crowd has heard it reject");
        assert_eq!(found(200, &Held { standing: Standing::OutOfService, ..out.clone() }), 0);
        assert_eq!(found(200, &Held { standing: Standing::Available, ..out }), 0);
    }

    #[test]
    fn a_rate_far_below_the_answered_rate_is_reported_once() {
        let learned = |cps| Held { learned_cps: Some(cps), ..Held::default() };
        assert_eq!(found(200, &learned(0.1)), 1);
        assert_eq!(found(200, &learned(1.5)), 0);
        assert_eq!(found(503, &learned(0.1)), 0);
    }

    #[test]
    fn a_slowly_falling_rate_is_reported_once_it_is_too_low() {
        let falling = |n: u64| Held { learned_cps: Some(20.0 - 0.5 * n as f64), ..Held::default() };
        assert_eq!(found_of(100, |_| 200, falling), 1, "of ten a second a quarter is left");
        assert_eq!(found_of(400, |_| 200, falling), 1, "below a fortieth");
        let stays = |_| Held { learned_cps: Some(5.5), ..Held::default() };
        assert_eq!(found_of(100, |_| 200, stays), 0);
    }
}
