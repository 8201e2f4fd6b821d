mod chance;
mod procedure;
mod waiting;

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_sip::Uri;
use tidegate_world::Transport::{Tcp, Udp};
use tidegate_world::{Question, SrvRecord, Transport};

use super::records::tests::{naptr, srv};
use super::*;

const TTL: Duration = Duration::from_secs(60);

const V4: &[RecordType] = &[RecordType::A];
const V6: &[RecordType] = &[RecordType::Aaaa];
const V4_V6: &[RecordType] = &[RecordType::A, RecordType::Aaaa];
const V6_V4: &[RecordType] = &[RecordType::Aaaa, RecordType::A];

/// A resolution with a DNS that answers at once.
struct Scene {
    resolution: Resolution,
    counters: Arc<ResolutionCounters>,
    answers: BTreeMap<(RecordType, String), QueryAnswer>,
    /// The queries so far, in order.
    asked: Vec<(RecordType, String)>,
    now: Timestamp,
}

impl Scene {
    fn new(transports: &[Transport]) -> Self {
        Self::with(transports, V4, 8)
    }

    fn with(
        transports: &[Transport],
        address_records: &'static [RecordType],
        questions_max: usize,
    ) -> Self {
        let counters = Arc::<ResolutionCounters>::default();
        let transports = Transports::new(transports.iter().copied());
        let settings =
            ResolutionSettings { transports, address_records, answers_max: 0, questions_max };
        let resolution = Resolution::new(settings, Arc::clone(&counters));
        let (answers, asked) = Default::default();
        Self { resolution, counters, answers, asked, now: Timestamp::ZERO }
    }

    fn a(mut self, name: &str, ips: &[&str]) -> Self {
        for record in [RecordType::A, RecordType::Aaaa] {
            let ips = ips.iter().map(|ip| ip.parse().unwrap());
            let ips: Arc<[_]> = ips.filter(|ip| RecordType::of(*ip) == record).collect();
            if !ips.is_empty() {
                let answer = QueryAnswer::Addresses(ips, TTL);
                self.answers.insert((record, name.to_owned()), answer);
            }
        }
        self
    }

    fn srv(mut self, name: &str, records: &[SrvRecord]) -> Self {
        let answer = QueryAnswer::Srv(records.into(), TTL);
        self.answers.insert((RecordType::Srv, name.to_owned()), answer);
        self
    }

    fn naptr(mut self, name: &str, records: &[tidegate_world::NaptrRecord]) -> Self {
        let answer = QueryAnswer::Naptr(records.into(), TTL);
        self.answers.insert((RecordType::Naptr, name.to_owned()), answer);
        self
    }

    /// Adds a name for which the DNS fails.
    fn broken(mut self, record: RecordType, name: &str) -> Self {
        self.answers.insert((record, name.to_owned()), QueryAnswer::NoAnswer);
        self
    }

    /// Runs one walk, and does not answer its queries.
    fn try_locate(&mut self, uri: &str, hash: u64) -> Located {
        let uri = Uri::parse(uri.as_bytes()).unwrap();
        let wanted = Wanted::of(&uri).unwrap();
        self.resolution.locate(self.now, &wanted, hash, |_| true)
    }

    /// Answers all queries. Returns the tickets whose requests may continue.
    fn answer(&mut self) -> Vec<Ticket> {
        let queries: Vec<_> = std::iter::from_fn(|| self.resolution.poll_query()).collect();
        let answer = |Query { id, question }| {
            let Question::Resolve { name, record } = question else { panic!("it is of the DNS") };
            let key = (record, name.to_string());
            let answer = self.answers.get(&key).unwrap_or(&QueryAnswer::NotFound(None));
            self.asked.push(key);
            self.resolution.on_answer(self.now, id, answer)
        };
        queries.into_iter().filter_map(answer).collect()
    }

    /// Runs walks and answers their queries until there is a result.
    fn locate_for(&mut self, uri: &str, hash: u64) -> Located {
        for _ in 0..5 {
            let located = self.try_locate(uri, hash);
            let Located::Pending(ticket) = located else { return located };
            assert!(self.answer().contains(&ticket), "its answer lets it go on");
        }
        panic!("{uri} needs too many answers")
    }

    fn locate(&mut self, uri: &str) -> Located {
        self.locate_for(uri, 0)
    }

    /// Returns the queries since the last call of this function, as text.
    fn asked(&mut self) -> Vec<String> {
        let asked = std::mem::take(&mut self.asked);
        asked.into_iter().map(|(record, name)| format!("{record:?} {name}")).collect()
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    /// Discards the queries that are ready to be sent, without an answer.
    fn lose(&mut self) {
        while self.resolution.poll_query().is_some() {}
    }
}

fn at(targets: &[(Transport, &str)]) -> Located {
    let target =
        |&(transport, address): &(_, &str)| Target { transport, address: address.parse().unwrap() };
    Located::Targets(targets.iter().map(target).collect())
}

/// The records of the example in RFC 3263 §4.1.
fn example() -> Scene {
    Scene::new(&[Udp, Tcp])
        .naptr(
            "example.com.",
            &[
                naptr(50, "s", "SIPS+D2T", "_sips._tcp.example.com."),
                naptr(90, "s", "SIP+D2T", "_sip._tcp.example.com."),
                naptr(100, "s", "SIP+D2U", "_sip._udp.example.com."),
            ],
        )
        .srv(
            "_sip._tcp.example.com.",
            &[srv(0, 1, 5060, "server1.example.com."), srv(0, 2, 5060, "server2.example.com.")],
        )
        .a("server1.example.com.", &["192.0.2.1"])
        .a("server2.example.com.", &["192.0.2.2"])
}
