//! Counts the instructions of common operations on a 500-byte INVITE and related messages.
//!
//! `bench/instructions` runs this and compares the counts with their targets. Each operation runs
//! once before it is counted, to exclude one-time costs of the first call.
#![allow(missing_docs)] // The macros make public items.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_sip::{
    HeaderName, Message, Outline, Reply, Splice, Uri, forward, glance, response_target, scan,
    scan_ack, write_reply,
};

const INVITE: &[u8] = b"INVITE sip:bob@biloxi.example.com;transport=udp SIP/2.0\r\n\
    Via: SIP/2.0/UDP 192.0.2.33:5060;branch=z9hG4bK776asdhds8f7;rport\r\n\
    Max-Forwards: 70\r\n\
    Route: <sip:192.0.2.77:5060;lr>\r\n\
    To: Bob <sip:bob@biloxi.example.com>\r\n\
    From: Alice <sip:alice@atlanta.example.com>;tag=1928301774\r\n\
    Call-ID: a84b4c76e66710@pc33.atlanta.example.com\r\n\
    CSeq: 314159 INVITE\r\n\
    Contact: <sip:alice@192.0.2.33:5060>\r\n\
    Content-Type: application/sdp\r\n\
    Content-Length: 85\r\n\
    \r\n\
    v=0\r\no=- 1 1 IN IP4 192.0.2.33\r\ns=-\r\nc=IN IP4 192.0.2.33\r\nt=0 0\r\n\
    m=audio 4000 RTP/AVP\r\n";

const RESPONSE: &[u8] = b"SIP/2.0 180 Ringing\r\n\
    Via: SIP/2.0/UDP 192.0.2.77:5060;branch=z9hG4bK4b43c2ff8.1\r\n\
    Via: SIP/2.0/UDP 192.0.2.33:5060;branch=z9hG4bK776asdhds8f7;received=192.0.2.33;rport=5060\r\n\
    To: Bob <sip:bob@biloxi.example.com>;tag=a6c85cf\r\n\
    From: Alice <sip:alice@atlanta.example.com>;tag=1928301774\r\n\
    Call-ID: a84b4c76e66710@pc33.atlanta.example.com\r\n\
    CSeq: 314159 INVITE\r\n\
    Contact: <sip:bob@192.0.2.4>\r\n\
    Content-Length: 0\r\n\r\n";

const ACK: &[u8] = b"ACK sip:bob@biloxi.example.com;transport=udp SIP/2.0\r\n\
    Via: SIP/2.0/UDP 192.0.2.33:5060;branch=z9hG4bK776asdhds8f7;rport\r\n\
    Max-Forwards: 70\r\n\
    To: Bob <sip:bob@biloxi.example.com>;tag=0123456789abcdef\r\n\
    From: Alice <sip:alice@atlanta.example.com>;tag=1928301774\r\n\
    Call-ID: a84b4c76e66710@pc33.atlanta.example.com\r\n\
    CSeq: 314159 ACK\r\n\
    Content-Length: 0\r\n\r\n";

const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 33)), 5060);

fn rejection() -> Reply<'static> {
    Reply {
        to_tag: Some(b"0123456789abcdef"),
        source: Some(SOURCE),
        headers: &[("Retry-After", b"10")],
        ..Reply::new(503)
    }
}

type Operation = fn(&mut Vec<u8>);

fn warm(operation: Operation) -> (Operation, Vec<u8>) {
    let mut out = Vec::with_capacity(2048);
    operation(&mut out);
    out.clear();
    (operation, out)
}

#[library_benchmark(setup = warm)]
#[bench::scan_invite(scan_invite)]
#[bench::scan_180(scan_180)]
#[bench::glance_invite(glance_invite)]
#[bench::outline_invite(outline_invite)]
#[bench::reject_invite(reject_invite)]
#[bench::scan_ack_of_rejection(scan_ack_of_rejection)]
#[bench::parse_invite(parse_invite)]
#[bench::parse_check_read_invite(parse_check_read_invite)]
#[bench::parse_forward_invite(parse_forward_invite)]
#[bench::parse_reply_503(parse_reply_503)]
fn sip((operation, mut out): (Operation, Vec<u8>)) -> Vec<u8> {
    operation(&mut out);
    out
}

library_benchmark_group!(name = messages, benchmarks = sip);
main!(library_benchmark_groups = messages);

fn scan_invite(_: &mut Vec<u8>) {
    black_box(scan(black_box(INVITE)).expect("well-formed"));
}

fn scan_180(_: &mut Vec<u8>) {
    black_box(scan(black_box(RESPONSE)).expect("well-formed"));
}

fn glance_invite(_: &mut Vec<u8>) {
    let _ = black_box(glance(black_box(INVITE)).expect("well-formed"));
}

fn outline_invite(_: &mut Vec<u8>) {
    black_box(&Outline::of(black_box(INVITE)).expect("well-formed"));
}

fn reject_invite(out: &mut Vec<u8>) {
    let outline = Outline::of(black_box(INVITE)).expect("well-formed");
    black_box(outline.reply_target(SOURCE));
    outline.write_reply(&rejection(), out).expect("a Vec takes everything");
}

fn scan_ack_of_rejection(_: &mut Vec<u8>) {
    black_box(scan_ack(black_box(ACK)).expect("has a tag"));
}

fn parse_invite(_: &mut Vec<u8>) {
    black_box(&Message::parse(black_box(INVITE)).expect("well-formed"));
}

/// Reads the fields that a proxy reads.
fn parse_check_read_invite(_: &mut Vec<u8>) {
    let m = Message::parse(black_box(INVITE)).expect("well-formed");
    m.check().expect("well-formed");
    black_box(m.request_uri().map(Uri::parse)).expect("a request").expect("a URI");
    black_box(m.routes().next().map(|r| r.and_then(|r| r.parse_uri())));
    black_box(m.max_forwards()).expect("a number");
    black_box(m.to().map(|to| to.tag())).expect("a To");
    black_box(m.from().map(|from| from.tag())).expect("a From");
    black_box(m.field(HeaderName::ResourcePriority));
}

fn parse_forward_invite(out: &mut Vec<u8>) {
    let m = Message::parse(black_box(INVITE)).expect("well-formed");
    let source = forward::Source::new(SOURCE);
    let mut s = Splice::new(&m);
    s.insert(forward::top_of_headers(&m), b"Via: SIP/2.0/UDP 192.0.2.77;branch=z9hG4bK1\r\n");
    forward::record_source(&mut s, &m, &m.top_via().expect("a Via"), &source);
    forward::set_max_forwards(&mut s, &m, b"69");
    forward::remove_first_route(&mut s, &m, 1);
    s.write_to(out).expect("a Vec takes everything");
}

fn parse_reply_503(out: &mut Vec<u8>) {
    let m = Message::parse(black_box(INVITE)).expect("well-formed");
    black_box(response_target(&m.top_via().expect("a Via")));
    write_reply(&m, &rejection(), out).expect("a Vec takes everything");
}
