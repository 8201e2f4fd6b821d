use std::collections::VecDeque;
use std::io;

use proptest::prelude::*;
use tidegate_world::Pool;

use super::delivery::TRIES;
use super::*;

const NO_WAIT: Duration = Duration::ZERO;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 2048];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    (bytes[..len].to_vec(), from)
}

fn refuse_nothing(_: usize, _: Option<IpAddr>, to: SocketAddr, cause: Cause) {
    panic!("{to} refused: {cause:?}");
}

#[test]
fn each_datagram_leaves_by_its_socket_for_its_destination_in_order() {
    let pool = Pool::new();
    let senders = [socket(), socket()];
    let receivers = [socket(), socket(), socket()];
    let mut outbox = Outbox::new(true, 0);
    let mut expected = [const { VecDeque::new() }; 3];
    for i in 0..BATCH {
        let (sender, receiver) = (i % 2, i % 3);
        let to = receivers[receiver].local_addr().unwrap();
        outbox.push(sender, None, to, pool.copy(&[i as u8]), Batching::default());
        expected[receiver].push_back((sender, vec![i as u8]));
    }
    assert!(outbox.is_full());
    let flushed = outbox.flush(|i| &senders[i], NO_WAIT, refuse_nothing);
    // Each of the two senders sends one batch to each of the three receivers.
    let expected_of =
        Flushed { sent: 64, gso_batches: 6, in_gso_batches: 64, ..Flushed::default() };
    assert_eq!(flushed, expected_of);
    assert!(outbox.is_empty());
    for (receiver, expected) in receivers.iter().zip(&expected) {
        // Only the datagrams from one sender to one receiver keep their order.
        let mut got: [Vec<_>; 2] = Default::default();
        for _ in expected {
            let (bytes, from) = received(receiver);
            let sender = senders.iter().position(|s| s.local_addr().unwrap() == from).unwrap();
            got[sender].push(bytes);
        }
        for (sender, got) in got.iter().enumerate() {
            let wanted = expected.iter().filter(|(s, _)| *s == sender).map(|(_, b)| b);
            assert!(got.iter().eq(wanted));
        }
    }
}

#[test]
fn one_datagram_refused_does_not_hold_up_the_others() {
    let pool = Pool::new();
    let sender = socket();
    let receiver = socket();
    let to = receiver.local_addr().unwrap();
    let mut outbox = Outbox::new(true, 0);
    let mut push = |to, bytes: &[u8]| {
        outbox.push(0, None, to, pool.copy(bytes), Batching::default());
    };
    push(to, b"before");
    // The longest UDP payload over IPv4 is 65,507 bytes.
    push(to, &[0; 65_508]);
    push(to, b"after");
    // Port 0 is invalid.
    push("127.0.0.1:0".parse().unwrap(), b"nowhere");
    push(to, b"last");
    let mut causes = Vec::new();
    let flushed =
        outbox.flush(|_| &sender, NO_WAIT, |_, _, to, cause| causes.push((to.port(), cause)));
    assert_eq!((flushed.sent, flushed.full), (3, 0));
    assert_eq!(causes, [(to.port(), Cause::TooLarge), (0, Cause::Other)]);
    for text in ["before", "after", "last"] {
        assert_eq!(received(&receiver).0, text.as_bytes());
    }
}

#[test]
fn a_pending_icmp_report_loses_no_datagram() {
    let pool = Pool::new();
    let sender = socket();
    crate::sockopt::set(sender.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1).unwrap();
    let receiver = socket();
    let closed = UdpSocket::bind("127.0.3.4:0").unwrap().local_addr().unwrap();
    let mut outbox = Outbox::new(true, 0);
    for i in 0..BATCH {
        let to = if i % 2 == 0 { closed } else { receiver.local_addr().unwrap() };
        outbox.push(0, None, to, pool.copy(&[i as u8]), Batching::default());
    }
    let flushed = outbox.flush(|_| &sender, NO_WAIT, refuse_nothing);
    assert_eq!(flushed.sent, BATCH as u64);
    assert!(flushed.saw_report);
    for i in (1..BATCH).step_by(2) {
        assert_eq!(received(&receiver).0, [i as u8]);
    }
}

/// Sends datagrams of these lengths, each filled with its index, from one socket to another.
/// Returns the result of the flush, the received datagrams, and their source addresses.
fn sent_over(
    outbox: &mut Outbox,
    sender: &UdpSocket,
    receiver: &UdpSocket,
    source: Option<IpAddr>,
    lengths: &[usize],
) -> (Flushed, Vec<Vec<u8>>, Vec<SocketAddr>) {
    let pool = Pool::new();
    let to = receiver.local_addr().unwrap();
    for (i, &len) in lengths.iter().enumerate() {
        outbox.push(0, source, to, pool.copy(&vec![i as u8; len]), Batching::default());
    }
    let flushed = outbox.flush(|_| sender, NO_WAIT, refuse_nothing);
    let (got, from) = lengths.iter().map(|_| received(receiver)).unzip();
    (flushed, got, from)
}

/// The address to which a peer has sent may have moved to another machine. The error of a batch
/// from this address does not mean that the kernel refuses batches.
#[test]
fn a_datagram_whose_source_the_machine_has_lost_leaves_from_another_address() {
    let (sender, receiver) = (UdpSocket::bind("0.0.0.0:0").unwrap(), socket());
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    // RFC 5737: an address for documentation.
    let lost = "192.0.2.1".parse().ok();
    for source in [lost, Some(here)] {
        let mut outbox = Outbox::new(true, 0);
        let lengths = [500; 8];
        let (flushed, got, from) = sent_over(&mut outbox, &sender, &receiver, source, &lengths);
        assert_eq!(flushed.sent, 8);
        assert_eq!(got, numbered(&lengths));
        assert!(from.iter().all(|from| from.ip() == here), "{from:?}");
    }
    let mut outbox = Outbox::new(true, 0);
    sent_over(&mut outbox, &sender, &receiver, lost, &[500; 8]);
    let (flushed, ..) = sent_over(&mut outbox, &sender, &receiver, None, &[500; 8]);
    assert_eq!(flushed.gso_batches, 1);
}

/// A regression: a datagram that the kernel refused for another reason left from another address.
/// The peer may not expect a datagram from that address, and a NAT drops it.
#[test]
fn a_datagram_whose_source_the_machine_has_keeps_it() {
    let (pool, sender) = (Pool::new(), UdpSocket::bind("0.0.0.0:0").unwrap());
    let here: Option<IpAddr> = "127.0.0.2".parse().ok();
    // Linux returns EINVAL for port 0.
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let mut outbox = Outbox::new(true, 0);
    outbox.push(0, here, nowhere, pool.copy(b"nowhere"), Batching::default());
    let mut refused = Vec::new();
    outbox.flush(|_| &sender, NO_WAIT, |_, source, to, _| refused.push((source, to)));
    assert_eq!(refused, [(here, nowhere)]);
}

/// Returns the datagrams that `sent_over` must have read.
fn numbered(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().enumerate().map(|(i, &len)| vec![i as u8; len]).collect()
}

#[test]
fn a_batch_arrives_as_separate_datagrams() {
    for (lengths, gso_batches, in_gso_batches) in [
        (&[500; BATCH][..], 1, 64),
        (&[500, 500, 7, 500, 500, 500, 501, 1, 1][..], 3, 8),
        // Together, these are more bytes than a datagram over IPv4 holds.
        (&[1452; BATCH], 2, 64),
        (&[1453; 3], 0, 0),
        (&[10, 20, 30], 0, 0),
    ] {
        let mut outbox = Outbox::new(true, 0);
        let (flushed, got, _) = sent_over(&mut outbox, &socket(), &socket(), None, lengths);
        assert_eq!(
            (flushed.gso_batches, flushed.in_gso_batches),
            (gso_batches, in_gso_batches),
            "{lengths:?}"
        );
        assert_eq!(flushed.sent, lengths.len() as u64);
        assert_eq!(got, numbered(lengths));
    }
}

/// RFC 3261 §7.3.1: "The formal grammar for a message-header [...] allows for an arbitrary amount
/// of whitespace on either side of the colon".
#[test]
fn messages_of_different_calls_are_padded_to_one_length() {
    let (sender, receiver, pool) = (socket(), socket(), Pool::new());
    let to = receiver.local_addr().unwrap();
    let invite = |call: &str| {
        format!(
            "INVITE sip:b SIP/2.0\r\nVia: {call}\r\nCSeq: 1 INVITE\r\nSubject: an INVITE is longer\r\n\r\n"
        )
    };
    let ack = |call: &str| format!("ACK sip:b SIP/2.0\r\nVia: {call}\r\n\r\n");
    // The INVITE and the ACK of two calls, and an INVITE that is much longer.
    let long = "long".repeat(20);
    let texts = [invite("one"), ack("one"), invite("second"), ack("second"), invite(&long)];
    let mut outbox = Outbox::new(true, 32);
    for (text, sequence) in texts.iter().zip([1, 1, 2, 2, 3]) {
        let pad_at = text.find("Via:").unwrap() as u16 + 4;
        let batching = Batching { sequence, pad_at };
        outbox.push(0, None, to, pool.copy(text.as_bytes()), batching);
    }
    let flushed = outbox.flush(|_| &sender, NO_WAIT, refuse_nothing);
    assert_eq!((flushed.sent, flushed.gso_batches, flushed.in_gso_batches), (5, 2, 4));
    // "second" has three letters more than "one".
    assert_eq!(flushed.padding, 2 * 3);
    let got: Vec<_> =
        texts.iter().map(|_| String::from_utf8(received(&receiver).0).unwrap()).collect();
    let padded = |text: &str| text.replacen("Via:", "Via:   ", 1);
    assert_eq!(
        got,
        [
            padded(&texts[0]),
            texts[2].clone(),
            padded(&texts[1]),
            texts[3].clone(),
            texts[4].clone()
        ]
    );
}

#[test]
fn a_batch_leaves_a_wildcard_socket_from_the_given_source_address() {
    let any = |address: &str| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    for (wildcard, receiver, source) in
        [("0.0.0.0:0", "127.0.0.1:0", "127.0.9.8"), ("[::]:0", "[::1]:0", "::1")]
    {
        let (sender, receiver) = (any(wildcard), any(receiver));
        let ip: IpAddr = source.parse().unwrap();
        let lengths = [300; 5];
        let (flushed, got, from) =
            sent_over(&mut Outbox::new(true, 0), &sender, &receiver, Some(ip), &lengths);
        assert_eq!((flushed.gso_batches, flushed.in_gso_batches), (1, 5));
        assert_eq!(got, numbered(&lengths));
        assert!(from.iter().all(|from| from.ip() == ip), "{from:?}");
    }
}

#[test]
fn a_socket_whose_batches_to_two_addresses_are_refused_forms_none_for_a_minute() {
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (sender, receiver) = (socket(), socket());
    // The kernel does not segment batches whose checksums it does not compute.
    crate::sockopt::set(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let mut outbox = Outbox::new(true, 0);
    // A datagram between two batches must neither overtake others nor be overtaken.
    let lengths = [8, 8, 8, 9, 10, 10, 4];
    let send = |outbox: &mut Outbox, to: &UdpSocket| {
        let (flushed, got, _) = sent_over(outbox, &sender, to, None, &lengths);
        assert_eq!((flushed.sent, flushed.gso_batches, flushed.in_gso_batches), (7, 0, 0));
        assert_eq!(got, numbered(&lengths));
        outbox.forming[0].expect("the socket was used")
    };
    let ip = receiver.local_addr().unwrap().ip();
    // The path to this peer may be the reason for the refusal.
    assert_eq!(send(&mut outbox, &receiver), Forming::RefusedTo(ip));
    assert_eq!(send(&mut outbox, &receiver), Forming::RefusedTo(ip));
    let now = Instant::now();
    let suspended = send(&mut outbox, &other);
    match suspended {
        Forming::SuspendedUntil(until) => assert!(until >= now + SUSPENDED_FOR),
        forming => panic!("{forming:?}"),
    }
    assert_eq!(send(&mut outbox, &receiver), suspended);
    // The minute is over. Two peers with a small path MTU must not prevent batches to all others.
    outbox.forming[0] = Some(Forming::SuspendedUntil(now));
    assert_eq!(send(&mut outbox, &receiver), Forming::RefusedTo(ip));
}

#[test]
fn without_batches_each_datagram_leaves_alone() {
    let mut outbox = Outbox::new(false, 32);
    let (flushed, got, _) = sent_over(&mut outbox, &socket(), &socket(), None, &[9; 3]);
    assert_eq!(flushed, Flushed { sent: 3, ..Flushed::default() });
    assert_eq!(got, numbered(&[9; 3]));
}

#[test]
fn a_refused_batch_is_reported_for_each_of_its_datagrams_and_ends_no_other() {
    let pool = Pool::new();
    let (sender, receiver) = (socket(), socket());
    let to = receiver.local_addr().unwrap();
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let mut outbox = Outbox::new(true, 0);
    for i in 0..6 {
        let to = if i % 2 == 0 { nowhere } else { to };
        outbox.push(0, None, to, pool.copy(&[i; 40]), Batching::default());
    }
    let mut refused = Vec::new();
    let flushed = outbox.flush(|_| &sender, NO_WAIT, |_, _, to, cause| refused.push((to, cause)));
    assert_eq!(refused, [(nowhere, Cause::Other); 3]);
    assert_eq!((flushed.sent, flushed.gso_batches, flushed.in_gso_batches), (3, 1, 3));
    for i in [1, 3, 5] {
        assert_eq!(received(&receiver).0, [i; 40]);
    }
    assert_eq!(outbox.forming, [Some(Forming::Allowed)]);
}

/// Runs `deliver` over scripted results, each `Ok(sent)` or an error code. After the script,
/// everything is sent.
fn run(count: usize, script: &[Result<usize, i32>], waits: usize) -> (Vec<SendOutcome>, usize) {
    let mut script = script.iter();
    let mut waits = 0..waits;
    let mut outcomes = vec![None; count];
    let mut calls = 0;
    deliver(
        count,
        |next| {
            calls += 1;
            match script.next() {
                Some(&Ok(sent)) => Ok(sent.min(count - next)),
                Some(&Err(code)) => Err(io::Error::from_raw_os_error(code)),
                None => Ok(count - next),
            }
        },
        || waits.next().is_some(),
        |k, outcome| {
            assert_eq!(outcomes[k].replace(outcome), None, "{k} settled twice");
            ControlFlow::Continue(())
        },
    );
    (
        outcomes
            .into_iter()
            .map(|outcome| outcome.expect("every datagram has an outcome"))
            .collect(),
        calls,
    )
}

#[test]
fn a_partial_send_goes_on_where_it_ended() {
    assert_eq!(run(5, &[Ok(2), Ok(1)], 0), (vec![SendOutcome::Sent; 5], 3));
}

#[test]
fn a_flush_waits_for_a_full_buffer_and_then_gives_up() {
    let (outcomes, _) = run(3, &[Ok(1), Err(libc::EAGAIN), Err(libc::EAGAIN)], 2);
    assert_eq!(outcomes, [SendOutcome::Sent; 3]);
    let (outcomes, calls) = run(3, &[Ok(1), Err(libc::EAGAIN), Err(libc::EAGAIN)], 1);
    assert_eq!(outcomes, [SendOutcome::Sent, SendOutcome::Full, SendOutcome::Full]);
    assert_eq!(calls, 3);
}

#[test]
fn an_error_of_one_datagram_affects_only_this_datagram() {
    let (outcomes, calls) = run(2, &[Err(libc::EPERM)], 0);
    assert_eq!(outcomes, [SendOutcome::Refused(Cause::Other, libc::EPERM), SendOutcome::Sent]);
    assert_eq!(calls, 2);
    let unreachable = [Err(libc::ENETUNREACH); TRIES];
    let (outcomes, _) = run(2, &unreachable, 0);
    assert_eq!(
        outcomes,
        [SendOutcome::Refused(Cause::Unreachable, libc::ENETUNREACH), SendOutcome::Sent]
    );
    let (outcomes, _) = run(2, &[Err(libc::ENOBUFS)], 0);
    assert_eq!(outcomes, [SendOutcome::Full, SendOutcome::Sent]);
}

#[test]
fn reports_about_earlier_datagrams_are_ignored() {
    let script = [Err(libc::ECONNREFUSED), Ok(1), Err(libc::EHOSTUNREACH), Err(libc::EINTR)];
    assert_eq!(run(2, &script, 0).0, [SendOutcome::Sent; 2]);
    // Even if there is a report at each try, the reports do not show that a port of this peer is
    // closed.
    let (outcomes, _) = run(2, &[Err(libc::ECONNREFUSED); TRIES], 0);
    assert_eq!(
        outcomes,
        [SendOutcome::Refused(Cause::Other, libc::ECONNREFUSED), SendOutcome::Sent]
    );
}

#[test]
fn a_lack_of_resources_does_not_show_that_the_machine_has_lost_an_address() {
    let is_about_address = |code| is_about_address(&io::Error::from_raw_os_error(code));
    for code in [libc::EADDRNOTAVAIL, libc::EINVAL, libc::ENETUNREACH, libc::EHOSTUNREACH] {
        assert!(is_about_address(code), "{code}");
    }
    for code in [libc::EMFILE, libc::ENFILE, libc::EADDRINUSE, libc::ENOBUFS, libc::EPERM] {
        assert!(!is_about_address(code), "{code}");
    }
    // RFC 5737: an address for documentation.
    assert!(is_here("127.0.0.1".parse().unwrap()) && !is_here("192.0.2.1".parse().unwrap()));
}

proptest! {
    /// For any results of the kernel, the flush ends and each datagram has one outcome.
    #[test]
    fn every_datagram_has_one_outcome(
        count in 1..20usize,
        waits in 0..4usize,
        script in prop::collection::vec(prop_oneof![
            (0..4usize).prop_map(Ok),
            prop::sample::select(vec![
                libc::EAGAIN, libc::EINTR, libc::EPERM, libc::ECONNREFUSED, libc::ENOBUFS,
            ]).prop_map(Err),
        ], 0..60),
    ) {
        let (outcomes, calls) = run(count, &script, waits);
        prop_assert_eq!(outcomes.len(), count);
        prop_assert!(calls <= TRIES * count + waits + 1);
    }
}
