//! Tests of the selection of the socket of a group that gets a datagram.

mod cores;

use std::net::{SocketAddr, UdpSocket};

use cores::{group, peer, waiting};
use tidegate_io::*;

/// Returns the texts at a shard's ordinary socket, at its socket for INVITEs and REGISTERs, and at
/// its socket for responses.
fn shard(group: &Group, shard: u16) -> [Vec<String>; 3] {
    let listener = group.listener(shard);
    let own = [listener.invite(), listener.response()].map(|socket| waiting(socket.unwrap()));
    let [invites, responses] = own;
    [waiting(listener.ordinary()), invites, responses]
}

fn new_work_goes_apart(ip: &str) {
    let group = group(ip, 1, true);
    let peer = peer(ip);
    let ordinary = [
        "ACK sip:a",
        "INV",
        "\r\n\r\n",
        "",
        "invite sip:a",
        "SIP",
        "sip/2.0 200 OK",
        " INVITE",
        "OPTIONS sip:a",
        "REGS",
    ];
    let invites = ["INVITE sip:a", "INVI", "REGISTER sip:a", "REGI"];
    let responses = ["SIP/2.0 200 OK", "SIP/", "SIP/3.0"];
    for text in ordinary.iter().chain(&invites).chain(&responses) {
        peer.send_to(text.as_bytes(), group.local()).unwrap();
    }
    let large = format!("INVITE {}", "x".repeat(60_000));
    peer.send_to(large.as_bytes(), group.local()).unwrap();
    let [got_ordinary, got_invites, got_responses] = shard(&group, 0);
    assert_eq!(got_ordinary, ordinary);
    assert_eq!(got_responses, responses);
    assert_eq!(got_invites[..4], invites);
    assert_eq!(got_invites[4..], [large]);
}

#[test]
fn new_work_and_responses_go_to_sockets_of_their_own_and_nothing_else_does() {
    new_work_goes_apart("127.0.0.1");
    new_work_goes_apart("::1");
}

fn sources_keep_their_shard(ip: &str, peers: usize) -> [usize; 3] {
    let group = group(ip, 3, true);
    let texts = ["INVITE", "ACK", "", "BYE", "SIP/2.0 200", "INVITE again", "\r\n"];
    let mut share = [0; 3];
    for _ in 0..peers {
        let peer = peer(ip);
        for text in texts {
            peer.send_to(text.as_bytes(), group.local()).unwrap();
        }
        let shards: Vec<_> = (0..3).map(|i| shard(&group, i)).collect();
        let found = shards.iter().position(|[ordinary, ..]| !ordinary.is_empty()).unwrap();
        for (i, [ordinary, invites, responses]) in shards.iter().enumerate() {
            if i == found {
                assert_eq!(ordinary[..], ["ACK", "", "BYE", "\r\n"]);
                assert_eq!(invites[..], ["INVITE", "INVITE again"]);
                assert_eq!(responses[..], ["SIP/2.0 200"]);
            } else {
                assert!(ordinary.is_empty() && invites.is_empty() && responses.is_empty());
            }
        }
        share[found] += 1;
    }
    share
}

#[test]
fn one_source_always_finds_the_same_shard_and_many_find_all() {
    for ip in ["127.0.0.1", "::1"] {
        let share = sources_keep_their_shard(ip, 60);
        // Twenty each are expected. Fewer than five in one have a chance below 10^-5.
        assert!(share.iter().all(|&n| n >= 5), "{ip}: {share:?}");
    }
}

#[test]
fn sources_that_differ_by_their_address_alone_find_all_shards() {
    let group = group("127.0.0.1", 2, false);
    let port = peer("127.0.0.1").local_addr().unwrap().port();
    for host in 1..=40 {
        let peer = UdpSocket::bind((format!("127.0.1.{host}"), port)).unwrap();
        peer.send_to(b"INVITE", group.local()).unwrap();
    }
    let share: Vec<_> = (0..2).map(|i| waiting(group.listener(i).ordinary()).len()).collect();
    assert_eq!(share.iter().sum::<usize>(), 40);
    assert!(share.iter().all(|&n| n >= 5), "{share:?}");
}

#[test]
fn without_a_split_each_shard_has_one_socket() {
    let group = group("127.0.0.1", 1, false);
    let peer = peer("127.0.0.1");
    for text in ["INVITE", "ACK"] {
        peer.send_to(text.as_bytes(), group.local()).unwrap();
    }
    let listener = group.listener(0);
    assert!(listener.invite().is_none() && listener.response().is_none());
    assert_eq!(waiting(group.listener(0).ordinary()), ["INVITE", "ACK"]);
}

#[test]
fn an_address_in_use_is_refused_with_its_name_even_if_a_group_has_it() {
    let group = group("127.0.0.1", 2, true);
    let again = Listen { shards: 2, ..Listen::new(group.local()) };
    let error = open(&again).unwrap_err();
    assert_eq!(error.error.kind(), std::io::ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("cannot listen on {}: bind failed: ", group.local())),
        "{text}"
    );
}

#[test]
fn an_invalid_address_or_number_of_shards_is_rejected() {
    let elsewhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
    assert_eq!(open(&Listen::new(elsewhere)).unwrap_err().call, "bind");
    for shards in [0, 257] {
        let listen = Listen { shards, ..Listen::new("127.0.0.1:0".parse().unwrap()) };
        assert_eq!(open(&listen).unwrap_err().error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn the_granted_receive_buffer_is_reported() {
    let address = "127.0.0.1:0".parse().unwrap();
    let listen = Listen { receive_buffer: 100_000, ..Listen::new(address) };
    assert_eq!(open(&listen).unwrap().receive_buffer(), 100_000);
}
