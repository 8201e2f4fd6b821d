use super::*;
use crate::{Listen, open};
use tidegate_world::Pool;

#[test]
fn reports_beyond_the_limit_of_a_turn_are_read_in_later_turns() {
    const SENT: usize = 20;
    // With the gate there is a sink, which gets some of the reports too.
    let listen = Listen { gate: true, ..Listen::new("127.0.0.1:0".parse().unwrap()) };
    let group = open(&listen).unwrap();
    let listeners: Rc<[Listener]> = Rc::new([group.listener(0)]);
    for _ in 0..SENT {
        // Each datagram goes to another port, so that all sockets of the group get some reports.
        let closed = UdpSocket::bind("127.0.3.5:0").unwrap().local_addr().unwrap();
        while listeners[0].ordinary().send_to(b"BYE", closed).is_err() {}
    }
    let inbox = Inbox::new(&Pool::new());
    let mut reception = Reception::new(listeners, inbox, Arc::default());
    let mut turns = 0;
    let mut failures = Vec::new();
    let mut ready = Ready::UNKNOWN.and_reports();
    while reception.reports(ready, 3, |failure| failures.push(failure)).unwrap() {
        turns += 1;
        assert_eq!(failures.len(), 3 * turns);
        // From now on, only the remaining entries show that there are more reports.
        ready = Ready::NONE;
        reception.rotate();
    }
    assert_eq!((failures.len(), reception.counters.icmp_reports.get()), (SENT, SENT as u64));
}

#[test]
fn reading_the_drop_counters_finds_the_reports_of_a_sink() {
    let listen = Listen { gate: true, split: false, ..Listen::new("127.0.0.1:0".parse().unwrap()) };
    let group = open(&listen).unwrap();
    let listeners: Rc<[Listener]> = Rc::new([group.listener(0)]);
    let mut reception =
        Reception::new(Rc::clone(&listeners), Inbox::new(&Pool::new()), Arc::default());
    let sink = group.gate().unwrap().sink(0);
    while sockopt::receive_buffer(sink.as_fd()).unwrap().fill == 0.0 {
        let closed = UdpSocket::bind("127.0.3.6:0").unwrap().local_addr().unwrap();
        let _ = listeners[0].ordinary().send_to(b"BYE", closed);
    }
    let mut told = 0;
    assert!(!reception.reports(Ready::UNKNOWN, 64, |_| told += 1).unwrap() && told == 0);
    // The content of a sink does not count as the fill of a buffer.
    let ordinary = sockopt::receive_buffer(listeners[0].ordinary().as_fd()).unwrap();
    assert_eq!(reception.read_drop_counters().fill, ordinary.fill);
    reception.reports(Ready::UNKNOWN, 64, |_| told += 1).unwrap();
    assert!(told > 0);
}

#[test]
fn drops_are_counted_across_the_end_of_32_bits_and_never_twice() {
    let counters = Counters::default();
    let mut watched =
        Watched { drops: u32::MAX - 1, ..Watched::new(0, Role::Reads(Kind::Ordinary), true) };
    for (drops, total) in [(u32::MAX, 1), (2, 4), (0, 4), (u32::MAX, 4), (2, 4), (3, 5)] {
        watched.count_drops(drops, &counters);
        assert_eq!(counters.overflow.get(), total, "at {drops}");
    }
}

#[test]
fn a_drop_at_a_buffer_with_room_is_no_overflow() {
    let group = open(&Listen::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let listeners: Rc<[Listener]> = Rc::new([group.listener(0)]);
    let inbox = Inbox::new(&Pool::new());
    let mut reception = Reception::new(Rc::clone(&listeners), inbox, Arc::default());
    // The filter stands for wrong checksums: the kernel counts the datagrams that it drops for
    // either reason in the same place.
    let invites = listeners[0].invite().unwrap();
    sockopt::attach_filter(invites.as_fd(), &crate::steer::DROP_ALL).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..10 {
        peer.send_to(b"INVITE", group.local()).unwrap();
    }
    let buffers = reception.read_drop_counters();
    assert_eq!((buffers.overflow, reception.counters.overflow.get()), (0, 10));
}

#[test]
fn a_flood_at_one_address_leaves_another_its_share() {
    let groups = [(); 2].map(|()| open(&Listen::new("127.0.0.1:0".parse().unwrap())).unwrap());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for group in &groups {
        for _ in 0..60 {
            peer.send_to(b"BYE", group.local()).unwrap();
        }
    }
    let listeners = groups.iter().map(|group| group.listener(0)).collect();
    let mut reception = Reception::new(listeners, Inbox::new(&Pool::new()), Arc::default());
    let clock = Clock::start();
    let mut shares = [0; 2];
    // Each of the six sockets is read first in one of these turns.
    for _ in 0..6 {
        reception.rotate();
        let offer = |_, received: Received| {
            shares[usize::from(received.flow.local == groups[1].local())] += 1;
        };
        let taken = reception.receive(&clock, Kind::Ordinary, Ready::UNKNOWN, 10, offer);
        assert_eq!(taken.unwrap(), 10);
    }
    assert_eq!(shares, [30, 30]);
    assert!(in_turn(1, 3).eq([1, 2, 0]));
}
