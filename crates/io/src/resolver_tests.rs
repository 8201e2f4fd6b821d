use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tidegate_world::{Family, Question};

use super::*;

/// A name server on a thread of its own, for one question after the other: it answers by the first
/// label of the name. Returns its address, and how many questions came.
fn name_server() -> (SocketAddr, Arc<AtomicU32>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, questions) = (socket.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&questions);
    // It ends with the process of the test.
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

/// RFC 1035 §4: the header, the question as it came, and the records for its first label.
fn response(request: &[u8]) -> Option<Vec<u8>> {
    let label = &request[13..13 + usize::from(request[12])];
    let end = 12 + request[12..].iter().position(|&byte| byte == 0)? + 5;
    let is_a = request[end - 3] == 1;
    let (code, records): (u8, Vec<[u8; 4]>) = match label {
        b"two" if is_a => (0, vec![[192, 0, 2, 2], [192, 0, 2, 1]]),
        b"many" if is_a => (0, (0..ADDRESSES_MAX as u8 + 3).map(|i| [192, 0, 2, i]).collect()),
        b"two" | b"many" => (0, Vec::new()),
        b"broken" => (2, Vec::new()),
        b"silent" => return None,
        _ => (3, Vec::new()),
    };
    let mut bytes = request[..2].to_vec();
    bytes.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    bytes.extend(&request[12..end]);
    for record in records {
        // The name as in the question, A, IN, 77 seconds, four bytes.
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 77, 0, 4]);
        bytes.extend(record);
    }
    Some(bytes)
}

fn query(id: u64, host: &str, family: Family) -> Query {
    Query { id: QueryId(id), question: Question::Resolve(host.into(), family) }
}

fn ask(resolver: &Resolver, host: &str, family: Family) -> Answer {
    let desk = resolver.join(Waker::new().unwrap());
    assert!(desk.ask(query(7, host, family)));
    let (id, answer) = desk.answers.recv_timeout(PATIENCE * 2).unwrap();
    assert_eq!(id, QueryId(7));
    assert!(desk.is_empty());
    answer
}

#[test]
fn names_are_resolved_by_the_servers_given() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server]).unwrap();
    let Answer::Addresses(addresses, holds) = ask(&resolver, "two.example", Family::V4) else {
        panic!("it has two");
    };
    assert_eq!(*addresses, ["192.0.2.2", "192.0.2.1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert!(holds > Duration::from_secs(60) && holds <= Duration::from_secs(77), "{holds:?}");
    assert_eq!(ask(&resolver, "two.example", Family::V6), Answer::NotFound, "it has no such");
    assert_eq!(ask(&resolver, "none.example", Family::V4), Answer::NotFound);
    assert_eq!(ask(&resolver, "broken.example", Family::V4), Answer::NoAnswer);
    let Answer::Addresses(addresses, _) = ask(&resolver, "many.example", Family::V4) else {
        panic!("it has many");
    };
    assert!(addresses.len() <= ADDRESSES_MAX);
    let before = questions.load(SeqCst);
    ask(&resolver, "two.example", Family::V4);
    assert!(questions.load(SeqCst) > before, "nothing is answered from a cache");
}

#[test]
fn the_hosts_file_comes_before_the_servers() {
    let (server, questions) = name_server();
    let resolver = Resolver::start(&[server]).unwrap();
    let Answer::Addresses(addresses, _) = ask(&resolver, "localhost", Family::V4) else {
        panic!("every machine has it");
    };
    assert_eq!(*addresses, [IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(questions.load(SeqCst), 0);
}

#[test]
fn a_question_for_which_there_is_no_room_is_answered_in_vain() {
    let alone = Desk::closed();
    assert!(!alone.ask(query(1, "a.example", Family::V4)));
    assert_eq!(alone.take(), Some((QueryId(1), Answer::NoAnswer)));
    assert!(alone.is_empty() && alone.take().is_none());

    let (questions, _kept) = mpsc::channel(1);
    let desk = Resolver(questions).join(Waker::new().unwrap());
    assert!(desk.ask(query(1, "a.example", Family::V4)));
    assert!(!desk.ask(query(2, "a.example", Family::V4)));
    assert_eq!(desk.take(), Some((QueryId(2), Answer::NoAnswer)));
}
