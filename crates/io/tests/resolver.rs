//! Tests of the queries of a core to a real DNS server.

mod cores;
mod dns;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use dns::{NameServer, TTL_S};
use tidegate_io::*;
use tidegate_world::*;

/// Maximum time for which a test waits for each answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A core that sends queries and passes the answers to the test.
struct Asking {
    queries: VecDeque<Query>,
    answers: Sender<(QueryId, QueryAnswer)>,
}

impl Core for Asking {
    fn offer(&mut self, _: Timestamp, _: Received) {}

    fn handle_timeout(&mut self, _: Timestamp) {}

    fn on_answer(&mut self, _: Timestamp, id: QueryId, answer: QueryAnswer) {
        self.answers.send((id, answer)).expect("the test listens");
    }

    fn on_drain(&mut self, _: Timestamp) {}

    fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }

    fn poll_query(&mut self) -> Option<Query> {
        self.queries.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    fn is_drained(&self) -> bool {
        true
    }
}

/// Sends all queries to `server`, by a shard, and returns their answers in the same order.
fn ask(server: &NameServer, questions: &[(&str, RecordType)]) -> Vec<QueryAnswer> {
    let query = |(id, &(name, record)): (u64, &(&str, RecordType))| Query {
        id: QueryId(id),
        question: Question::Resolve { name: name.into(), record },
    };
    let queries: VecDeque<_> = (0..).zip(questions).map(query).collect();
    let (answers, told) = channel();
    let group = cores::group("127.0.0.1", 1, true);
    let (stop, counters) = (Stop::new(), Arc::new(Counters::default()));
    let resolver = Resolver::start(&[server.address()], questions.len()).unwrap();
    let running = (stop.clone(), Arc::clone(&counters));
    let thread = thread::spawn(move || {
        let (stop, counters) = running;
        let shard = Shard {
            clock: Clock::start(),
            limits: Limits::default(),
            listeners: vec![group.listener(0)],
            handoffs: Handoffs::alone().unwrap(),
            counters,
            stop,
            pool: Pool::new(),
        };
        let mut core = Asking { queries, answers };
        Drive::new(shard).unwrap().with_resolver(&resolver).run(&mut core).unwrap()
    });
    let answers = questions.iter().map(|_| told.recv_timeout(PATIENCE).expect("it is answered"));
    let mut answers: Vec<_> = answers.collect();
    stop.request();
    thread.join().unwrap();
    assert_eq!((counters.queries.get(), counters.queries_lost.get()), (answers.len() as u64, 0));
    answers.sort_by_key(|(id, _)| *id);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Checks the time for which an answer is valid, and returns the answer with zero instead of this
/// time.
fn held(answer: QueryAnswer) -> QueryAnswer {
    let check = |ttl: Duration| {
        let most = Duration::from_secs(TTL_S);
        assert!(ttl <= most && ttl > most / 2, "{ttl:?}");
        Duration::ZERO
    };
    match answer {
        QueryAnswer::Addresses(ips, ttl) => QueryAnswer::Addresses(ips, check(ttl)),
        QueryAnswer::Srv(records, ttl) => QueryAnswer::Srv(records, check(ttl)),
        QueryAnswer::Naptr(records, ttl) => QueryAnswer::Naptr(records, check(ttl)),
        other => other,
    }
}

#[test]
fn a_real_server_answers_for_each_type_of_record() {
    let many: Vec<_> = (0..RECORDS_MAX + 6)
        .map(|i| format!("--srv-host=_sip._tcp.many.test,server-{i}.many.test,5060,1,{i}"))
        .collect();
    let mut records = vec![
        "--host-record=a.test,192.0.2.1,2001:db8::1",
        "--cname=alias.test,a.test",
        "--srv-host=_sip._udp.a.test,s1.test,5070,10,60",
        "--srv-host=_sip._udp.none.test",
        "--naptr-record=a.test,50,51,s,SIP+D2U,,_sip._udp.a.test",
    ];
    records.extend(many.iter().map(String::as_str));
    let server = NameServer::start("127.0.0.53".parse().unwrap(), &records);
    let answers = ask(
        &server,
        &[
            ("a.test", RecordType::A),
            ("A.test.", RecordType::Aaaa),
            ("alias.test", RecordType::A),
            ("_sip._udp.a.test", RecordType::Srv),
            ("_sip._udp.none.test", RecordType::Srv),
            ("a.test", RecordType::Naptr),
            ("missing.test", RecordType::A),
            ("a.test", RecordType::Srv),
            ("_sip._tcp.many.test", RecordType::Srv),
        ],
    );
    let [a, aaaa, alias, srv, none, naptr, missing, no_srv, many] =
        answers.try_into().expect("there are nine");
    let v4: IpAddr = "192.0.2.1".parse().unwrap();
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(held(a), QueryAnswer::Addresses([v4].into(), Duration::ZERO));
    assert_eq!(held(aaaa), QueryAnswer::Addresses([v6].into(), Duration::ZERO));
    assert_eq!(held(alias), QueryAnswer::Addresses([v4].into(), Duration::ZERO));
    let server = |priority, weight, port, target: &str| {
        let target = target.into();
        QueryAnswer::Srv([SrvRecord { priority, weight, port, target }].into(), Duration::ZERO)
    };
    assert_eq!(held(srv), server(10, 60, 5070, "s1.test."));
    // RFC 2782: "A Target of "." means that the service is decidedly not available".
    assert_eq!(held(none), server(0, 0, 1, "."));
    let [flags, service, replacement] = ["s", "SIP+D2U", "_sip._udp.a.test."].map(Arc::from);
    let record = NaptrRecord { order: 50, preference: 51, flags, service, replacement };
    assert_eq!(held(naptr), QueryAnswer::Naptr([record].into(), Duration::ZERO));
    assert_eq!(missing, QueryAnswer::NotFound(None));
    assert_eq!(no_srv, QueryAnswer::NotFound(None));
    // These records do not fit into a datagram, so the server is asked again over TCP.
    let QueryAnswer::Srv(many, _) = held(many) else { panic!("it has many") };
    assert_eq!(many.len(), RECORDS_MAX);
}
