//! Tests of requests to names in simulated time: a DNS that is late, then dead, then slow, then
//! normal again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_proxy::resolution::{
    Located, Resolution, ResolutionCounters, ResolutionSettings, Ticket, Transports, Wanted,
};
use tidegate_sim::{Resolution as Behaviour, Zone};
use tidegate_sip::Uri;
use tidegate_world::{
    NaptrRecord, QueryAnswer, QueryId, RecordType, Seed, SrvRecord, Timestamp, Transport,
};

const TTL: Duration = Duration::from_secs(20);
const QUESTIONS_MAX: usize = 64;
/// Maximum number of queries without an answer. Most of them wait to be sent.
const OUTSTANDING_MAX: usize = 16 * QUESTIONS_MAX;
/// Time between two requests: 500 requests a second.
const SPACING: Duration = Duration::from_millis(2);
/// Number of other names, half of which exist. Every second request is for one of them.
const STRANGERS: u64 = 3000;

/// Requests to a domain in use and to other names, in turn.
struct Stage {
    resolution: Resolution,
    counters: Arc<ResolutionCounters>,
    zone: Zone,
    now: Timestamp,
    requests: u64,
    /// Answers in flight.
    answers: BTreeMap<(Timestamp, QueryId), QueryAnswer>,
    /// Arrival time and number of each parked request, by the ticket of its query.
    parked: BTreeMap<Ticket, Vec<(Timestamp, u64)>>,
    parked_max: usize,
}

/// The outcome of some requests.
#[derive(Debug, Default, PartialEq)]
struct Ended {
    found: u64,
    not_found: u64,
    unavailable: u64,
    delay_max: Duration,
}

/// The outcomes of a phase, for the domain in use and for other names.
type Phase = [Ended; 2];

impl Stage {
    fn new() -> Self {
        let mut zone = Zone::new(Seed(3));
        let naptr = NaptrRecord {
            order: 1,
            preference: 1,
            flags: "s".into(),
            service: "SIP+D2U".into(),
            replacement: "_sip._udp.known.example.".into(),
        };
        zone.set_naptr("known.example", &[naptr], TTL);
        let server = |priority, target: &str| SrvRecord {
            priority,
            weight: 1,
            port: 5070,
            target: target.into(),
        };
        let servers = [server(1, "s1.known.example."), server(1, "s2.known.example.")];
        zone.set_srv("_sip._udp.known.example", &servers, TTL);
        for (host, ip) in [("s1.known.example", [10, 0, 0, 1]), ("s2.known.example", [10, 0, 0, 2])]
        {
            zone.set(host, &[ip.into()], TTL);
        }
        for i in (0..STRANGERS).step_by(2) {
            zone.set(&format!("stranger-{i}.example"), &[[10, 1, 0, 1].into()], TTL);
        }
        zone.set_negative_ttl(Some(TTL));
        let counters = Arc::<ResolutionCounters>::default();
        let settings = ResolutionSettings {
            transports: Transports::new([Transport::Udp]),
            address_records: &[RecordType::A],
            answers_max: 1000,
            questions_max: QUESTIONS_MAX,
        };
        let resolution = Resolution::new(settings, Arc::clone(&counters));
        let (answers, parked) = Default::default();
        let (now, requests, parked_max) = (Timestamp::ZERO, 0, 0);
        Self { resolution, counters, zone, now, requests, answers, parked, parked_max }
    }

    /// Sends requests for `s` seconds to a DNS with this behaviour.
    fn run(&mut self, s: u64, behaviour: Behaviour) -> Phase {
        self.zone.resolve_by(behaviour);
        let mut phase = Phase::default();
        let end = self.now + Duration::from_secs(s);
        let mut next = self.now;
        loop {
            let due = self.answers.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.resolution.poll_timeout();
            let at = [due, timeout].into_iter().flatten().fold(next, Timestamp::min);
            if at >= end {
                self.now = end;
                return phase;
            }
            self.now = at.max(self.now);
            if due == Some(at) {
                let ((_, id), answer) = self.answers.pop_first().unwrap();
                let ticket = self.resolution.on_answer(self.now, id, &answer);
                self.go_on(ticket, &mut phase);
            } else if timeout == Some(at) {
                let tickets = self.resolution.handle_timeout(self.now);
                self.go_on(tickets, &mut phase);
            } else {
                self.request(self.now, self.requests, &mut phase);
                self.requests += 1;
                next = next + SPACING;
            }
            while let Some(query) = self.resolution.poll_query() {
                if let Some((after, answer)) = self.zone.answer(&query.question) {
                    self.answers.insert((self.now + after, query.id), answer);
                }
            }
            let parked = self.parked.values().map(Vec::len).sum();
            self.parked_max = self.parked_max.max(parked);
            assert!(self.counters.outstanding.get() <= OUTSTANDING_MAX as u64);
            assert!(self.counters.answers.get() <= 1000);
            assert!(self.parked.len() <= OUTSTANDING_MAX, "each ticket is that of a question");
        }
    }

    fn go_on(&mut self, tickets: impl IntoIterator<Item = Ticket>, phase: &mut Phase) {
        for ticket in tickets {
            for (came, number) in self.parked.remove(&ticket).unwrap_or_default() {
                self.request(came, number, phase);
            }
        }
    }

    fn request(&mut self, came: Timestamp, number: u64, phase: &mut Phase) {
        let text = match number % 2 {
            0 => "sip:a@known.example".to_owned(),
            _ => format!("sip:a@stranger-{}.example:5060", number / 2 * 7919 % STRANGERS),
        };
        let uri = Uri::parse(text.as_bytes()).unwrap();
        let wanted = Wanted::of(&uri).unwrap();
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let ended = &mut phase[(number % 2) as usize];
        match self.resolution.locate(self.now, &wanted, hash, |_| true) {
            Located::Targets(targets) => {
                let servers = if number.is_multiple_of(2) { 2 } else { 1 };
                assert!((1..=servers).contains(&targets.len()));
                ended.found += 1;
            }
            // The test ends a request that has to wait again after 8 s. In the proxy, a request
            // waits for at most 10 s.
            Located::Pending(_) if self.now.since(came) >= seconds(8.0) => ended.unavailable += 1,
            Located::Pending(ticket) => {
                self.parked.entry(ticket).or_default().push((came, number));
                return;
            }
            Located::NotFound => ended.not_found += 1,
            Located::Unavailable => ended.unavailable += 1,
        }
        ended.delay_max = ended.delay_max.max(self.now.since(came));
    }
}

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

#[test]
fn requests_to_a_known_domain_are_never_delayed_by_the_dns() {
    let mut stage = Stage::new();
    let [delay, jitter] = [20, 10].map(Duration::from_millis);
    let usual = Behaviour { delay, jitter, ..Behaviour::default() };

    let [known, strangers] = stage.run(10, usual);
    // Only the first requests to the known domain wait: for three answers, one after the other.
    assert_eq!((known.found, known.not_found, known.unavailable), (2500, 0, 0));
    assert!(known.delay_max > 2 * delay && known.delay_max <= 3 * (delay + jitter), "{known:?}");
    assert!(strangers.found > 1000 && strangers.not_found > 1000, "{strangers:?}");
    assert_eq!(strangers.unavailable, 0);
    assert!(strangers.delay_max <= delay + jitter);

    // Answers are refreshed before they expire, so no request waits.
    let [known, _] = stage.run(60, usual);
    assert_eq!(known, Ended { found: 15_000, ..Ended::default() });

    let asked = stage.counters.asked.get();
    let dead = Behaviour { lost: 1.0, ..Behaviour::default() };
    let [known, strangers] = stage.run(120, dead);
    assert_eq!(known, Ended { found: 30_000, ..Ended::default() });
    assert!(
        strangers.unavailable > 10_000 && strangers.delay_max <= seconds(12.0),
        "{strangers:?}"
    );
    let asked = stage.counters.asked.get() - asked;
    // A query without an answer occupies its place for at least 4 s.
    let most = QUESTIONS_MAX as u64 * 120 / 4 + QUESTIONS_MAX as u64;
    assert!(asked <= most, "the DNS is not hammered: {asked}");
    assert!(stage.counters.rejected.get() > 0 && stage.counters.stale.get() > 0);

    // An answer takes 3 to 4 s, 30 % of the answers are failures, and 10 % of the queries get none.
    let slow = Behaviour { delay: seconds(3.0), jitter: seconds(1.0), fails: 0.3, lost: 0.1 };
    let [known, strangers] = stage.run(120, slow);
    // A request whose answer has expired waits at most half a second for a newer one.
    assert!(known.delay_max <= seconds(0.5), "{known:?}");
    assert_eq!(
        Ended { delay_max: Duration::ZERO, ..known },
        Ended { found: 30_000, ..Ended::default() }
    );
    assert!(strangers.delay_max <= seconds(12.0) && strangers.found > 0, "{strangers:?}");

    stage.run(60, usual);
    let before = stage.counters.stale.get();
    let [known, strangers] = stage.run(20, usual);
    assert_eq!(known, Ended { found: 5_000, ..Ended::default() });
    assert_eq!((strangers.unavailable, stage.counters.stale.get() - before), (0, 0), "as before");
    // Only the requests of the last 8 s wait, and most of the earlier ones found no room for their
    // query.
    assert!(stage.parked_max < 2000, "{}", stage.parked_max);
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let run = || {
        let mut stage = Stage::new();
        let [delay, jitter] = [50, 900].map(Duration::from_millis);
        stage.run(20, Behaviour { delay, jitter, fails: 0.2, lost: 0.2 })
    };
    assert_eq!(run(), run());
}
