use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tidegate_world::LookupKind;

use super::*;

/// More than the queries of any test.
const QUERIES_MAX: usize = 80;

/// Runs a name server on a thread of its own, which serves one query after the other. The first
/// label of the name determines its answer. Returns its address, and the number of queries.
fn name_server() -> (SocketAddr, Arc<AtomicU32>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, questions) = (socket.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&questions);
    // Ends with the process of the test.
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            count.fetch_add(1, SeqCst);
            if let Some(response) = response(&buffer[..len]) {
                socket.send_to(&response, from).unwrap();
            }
        }
    });
    (address, questions)
}

/// Returns a response by RFC 1035 §4: the header, the question as it came, and the records for its
/// first label.
fn response(request: &[u8]) -> Option<Vec<u8>> {
    let label = &request[13..13 + usize::from(request[12])];
    let end = 12 + request[12..].iter().position(|&byte| byte == 0)? + 5;
    let asked = u16::from_be_bytes([request[end - 4], request[end - 3]]);
    let a = |last: u8| vec![192, 0, 2, last];
    let (code, records): (u8, Vec<Vec<u8>>) = match (label, asked) {
        (b"two", A) => (0, vec![a(2), a(1)]),
        (b"many", A) => (0, (0..RECORDS_MAX as u8 + 3).map(a).collect()),
        (b"_sip", SRV) => (0, vec![srv_data(10, b"\x02s1"), srv_data(20, b"")]),
        (b"domain", NAPTR) => (0, vec![naptr_data(b"SIP+D2U"), naptr_data(b"\xff")]),
        (b"two" | b"many" | b"domain", _) => (0, Vec::new()),
        (b"broken", _) => (2, Vec::new()),
        (b"silent", _) => return None,
        _ => (3, Vec::new()),
    };
    let negative = label == b"gone";
    let mut bytes = request[..2].to_vec();
    bytes.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, negative.into(), 0, 0]);
    bytes.extend(&request[12..end]);
    for data in records {
        put_record(&mut bytes, asked, 77, &data);
    }
    if negative {
        // The SOA record has the root as primary server and as mailbox, then four numbers, and then
        // MINIMUM.
        let mut soa = vec![0; 2 + 4 * 4];
        soa.extend(33u32.to_be_bytes());
        put_record(&mut bytes, 6, 44, &soa);
    }
    Some(bytes)
}

const A: u16 = 1;
const SRV: u16 = 33;
const NAPTR: u16 = 35;

/// Writes a record: the name as in the question, type, IN, time to live, length, data.
fn put_record(bytes: &mut Vec<u8>, kind: u16, ttl: u32, data: &[u8]) {
    bytes.extend([0xc0, 12]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(ttl.to_be_bytes());
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
}

/// Returns SRV data (RFC 2782): priority, weight 5, port 5062, target.
fn srv_data(priority: u8, target: &[u8]) -> Vec<u8> {
    [&[0, priority, 0, 5, 0x13, 0xc6], target, &[0]].concat()
}

/// Returns NAPTR data (RFC 3403 §4.1): order 9, preference 8, flags, services, no regular
/// expression, replacement.
fn naptr_data(service: &[u8]) -> Vec<u8> {
    [&[0, 9, 0, 8, 1, b'S', service.len() as u8], service, b"\0\x01U\0"].concat()
}

fn query(id: u64, host: &str, record: RecordType) -> Query {
    Query { id: QueryId(id), question: Question::Resolve { name: host.into(), record } }
}

fn ask(resolver: &Resolver, host: &str, record: RecordType) -> QueryAnswer {
    let handle = resolver.join(Waker::new().unwrap());
    assert!(handle.ask(query(7, host, record)));
    let (id, answer) = handle.answers.recv_timeout(RESOLVE_MAX * 2).unwrap();
    assert_eq!(id, QueryId(7));
    assert!(handle.is_empty());
    answer
}

// RFC 2782: `_Service._Proto.Name`.
#[test]
fn a_name_in_the_hosts_file_has_no_srv_or_naptr_records() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    for (name, record) in
        [("_sip._udp.localhost", RecordType::Srv), ("localhost", RecordType::Naptr)]
    {
        assert_eq!(ask(&resolver, name, record), QueryAnswer::NotFound(None), "{name}");
    }
    assert_eq!(questions.load(SeqCst), 0);
    ask(&resolver, "_sip._udp.other", RecordType::Srv);
    assert_eq!(questions.load(SeqCst), 1);
}

#[test]
fn names_are_resolved_by_the_servers_given() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let QueryAnswer::Addresses(addresses, holds) = ask(&resolver, "two.example", RecordType::A)
    else {
        panic!("it has two");
    };
    assert_eq!(*addresses, ["192.0.2.2", "192.0.2.1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert!(holds > Duration::from_secs(60) && holds <= Duration::from_secs(77), "{holds:?}");
    assert_eq!(
        ask(&resolver, "two.example", RecordType::Aaaa),
        QueryAnswer::NotFound(None),
        "it has no such"
    );
    assert_eq!(ask(&resolver, "none.example", RecordType::A), QueryAnswer::NotFound(None));
    assert_eq!(ask(&resolver, "broken.example", RecordType::A), QueryAnswer::NoAnswer);
    let QueryAnswer::Addresses(addresses, _) = ask(&resolver, "many.example", RecordType::A) else {
        panic!("it has many");
    };
    assert!(addresses.len() <= RECORDS_MAX);
    let before = questions.load(SeqCst);
    ask(&resolver, "two.example", RecordType::A);
    assert!(questions.load(SeqCst) > before, "nothing is answered from a cache");
}

#[test]
fn servers_and_services_are_resolved() {
    let (server, _) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let QueryAnswer::Srv(records, holds) = ask(&resolver, "_sip._udp.example", RecordType::Srv)
    else {
        panic!("it has two");
    };
    let server = |priority, target: &str| SrvRecord {
        priority,
        weight: 5,
        port: 5062,
        target: target.into(),
    };
    assert_eq!(*records, [server(10, "s1."), server(20, ".")]);
    assert!(holds > Duration::from_secs(60) && holds <= Duration::from_secs(77), "{holds:?}");
    let QueryAnswer::Naptr(records, _) = ask(&resolver, "domain.example", RecordType::Naptr) else {
        panic!("it has one that can be read");
    };
    let [flags, service, replacement] = ["S", "SIP+D2U", "U."].map(Arc::from);
    assert_eq!(*records, [NaptrRecord { order: 9, preference: 8, flags, service, replacement }]);
    let none = ask(&resolver, "domain.example", RecordType::Srv);
    assert_eq!(none, QueryAnswer::NotFound(None));
}

// RFC 2308 §5: "its TTL is taken from the minimum of the SOA.MINIMUM field and SOA's TTL".
#[test]
fn a_negative_answer_has_a_time_to_live() {
    let (server, _) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let gone = ask(&resolver, "gone.example", RecordType::Naptr);
    assert_eq!(gone, QueryAnswer::NotFound(Some(Duration::from_secs(33))));
}

#[test]
fn a_look_up_of_a_user_gets_no_answer_from_the_dns() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let handle = resolver.join(Waker::new().unwrap());
    let question = Question::Lookup { kind: LookupKind::User, key: b"sip:a@b".as_slice().into() };
    assert!(handle.ask(Query { id: QueryId(1), question }));
    let answer = handle.answers.recv_timeout(RESOLVE_MAX).unwrap();
    assert_eq!(answer, (QueryId(1), QueryAnswer::NoAnswer));
    assert_eq!(questions.load(SeqCst), 0);
}

#[test]
fn a_look_up_is_answered_from_the_stores_with_a_resolver_and_without() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let stores = Stores::default();
    stores.replace(LookupKind::User, [("sip:a@b", "<sip:10.0.0.7>\n")]);
    let [mut alone, mut resolving] = [(); 2].map(|()| ResolverHandle::closed());
    alone.set_stores(&stores);
    resolving.set_stores(&stores);
    for handle in [alone, resolving.resolving(&resolver, Waker::new().unwrap())] {
        let key = b"sip:a@b".as_slice().into();
        let question = Question::Lookup { kind: LookupKind::User, key };
        assert!(handle.ask(Query { id: QueryId(1), question }));
        let value = b"<sip:10.0.0.7>\n".as_slice().into();
        assert_eq!(handle.take(), Some((QueryId(1), QueryAnswer::Found(value))), "at once");
    }
    assert_eq!(questions.load(SeqCst), 0);
}

#[test]
fn the_hosts_file_comes_before_the_servers() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let QueryAnswer::Addresses(addresses, _) = ask(&resolver, "localhost", RecordType::A) else {
        panic!("every machine has it");
    };
    assert_eq!(*addresses, [IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(questions.load(SeqCst), 0);
}

/// A core limits the number of its queries without an answer. So if these have places, a further
/// query is sent at once.
#[test]
fn a_query_does_not_wait_for_queries_without_an_answer() {
    let (server, _) = name_server();
    let resolver = Resolver::start(&[server], QUERIES_MAX).unwrap();
    let handle = resolver.join(Waker::new().unwrap());
    for id in 1..QUERIES_MAX as u64 {
        assert!(handle.ask(query(id, "silent.example.", RecordType::A)));
    }
    assert!(handle.ask(query(0, "two.example.", RecordType::A)));
    let (id, answer) = handle.answers.recv_timeout(RESOLVE_MAX / 2).unwrap();
    assert!(matches!((id, answer), (QueryId(0), QueryAnswer::Addresses(..))));
}

#[test]
fn an_answer_to_a_query_that_found_no_room_is_ignored() {
    let alone = ResolverHandle::closed();
    assert!(!alone.ask(query(1, "a.example", RecordType::A)));
    assert_eq!(alone.take(), Some((QueryId(1), QueryAnswer::NoAnswer)));
    assert!(alone.is_empty() && alone.take().is_none());

    let (questions, _kept) = mpsc::channel(1);
    let handle = Resolver(questions).join(Waker::new().unwrap());
    assert!(handle.ask(query(1, "a.example", RecordType::A)));
    assert!(!handle.ask(query(2, "a.example", RecordType::A)));
    assert_eq!(handle.take(), Some((QueryId(2), QueryAnswer::NoAnswer)));
}
