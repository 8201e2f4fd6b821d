//! Tests of addresses that groups share.

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use super::*;

/// Opens an address as another process would.
fn shared(address: SocketAddr) -> Group {
    open(&Listen { shared: true, gate: true, ..Listen::new(address) }).unwrap()
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Sends a datagram from each of many clients.
fn send(clients: &[UdpSocket], to: &Group) {
    for client in clients {
        client.send_to(b"INVITE", to.local()).unwrap();
    }
}

/// Returns the number of datagrams that wait at a group.
fn arrived(group: &Group) -> usize {
    let listener = group.listener(0);
    assert!(listener.invite().is_none() && group.gate().is_none());
    let mut count = 0;
    loop {
        match listener.ordinary().recv(&mut [0; 16]) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn datagrams_are_divided_among_processes_that_share_an_address() {
    let clients: Vec<_> = (0..64).map(|_| UdpSocket::bind(anywhere()).unwrap()).collect();
    let first = shared(anywhere());
    let second = shared(first.local());
    send(&clients, &first);
    let counts = [&first, &second].map(arrived);
    assert!(counts.iter().sum::<usize>() == 64 && counts.iter().all(|&n| n > 8), "{counts:?}");

    let third = shared(first.local());
    drop(second);
    send(&clients, &first);
    let counts = [&first, &third].map(arrived);
    assert!(counts.iter().sum::<usize>() == 64 && counts.iter().all(|&n| n > 8), "{counts:?}");
}

#[test]
fn a_process_that_leaves_an_address_keeps_received_datagrams_and_can_send() {
    let clients: Vec<_> = (0..64).map(|_| UdpSocket::bind(anywhere()).unwrap()).collect();
    let [first, second] = {
        let first = shared(anywhere());
        let second = shared(first.local());
        [first, second]
    };
    send(&clients, &first);
    let before = arrived(&second);
    assert!(first.listener(0).leave().unwrap());
    send(&clients, &first);
    assert_eq!([&first, &second].map(arrived), [64 - before, 64]);

    let to = clients[0].local_addr().unwrap();
    first.listener(0).ordinary().send_to(b"answer", to).unwrap();
    let (_, from) = clients[0].recv_from(&mut [0; 16]).unwrap();
    assert_eq!(from, first.local());
    let alone = open(&Listen::new(anywhere())).unwrap();
    assert!(!alone.listener(0).leave().unwrap(), "nobody else is there");
}

#[test]
fn an_address_is_shared_only_if_both_processes_allow_it() {
    let group = shared(anywhere());
    let refused = open(&Listen::new(group.local())).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::AddrInUse);
}
