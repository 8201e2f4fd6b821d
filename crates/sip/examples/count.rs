//! Counts the instructions that common operations take on a 500-byte INVITE, under
//! valgrind (which must be installed):
//!
//! ```text
//! cargo run --release -p tidegate-sip --example count
//! ```
//!
//! The difference between two runs of different length is divided by the
//! difference in length, so start-up costs do not count. Exit status 1 if a budget
//! is exceeded.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};

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

fn refusal() -> Reply<'static> {
    Reply {
        to_tag: Some(b"0123456789abcdef"),
        source: Some(SOURCE),
        headers: &[("Retry-After", b"10")],
        ..Reply::new(503)
    }
}

/// An operation, by name; the most instructions it may take; what it does.
type Operation = (&'static str, u64, fn(&mut Vec<u8>));

const OPERATIONS: [Operation; 10] = [
    ("scan an INVITE", 2_500, |_| {
        black_box(scan(black_box(INVITE)).expect("well-formed"));
    }),
    ("scan a 180", 2_600, |_| {
        black_box(scan(black_box(RESPONSE)).expect("well-formed"));
    }),
    ("glance at an INVITE", 350, |_| {
        let _ = black_box(glance(black_box(INVITE)).expect("well-formed"));
    }),
    ("outline an INVITE", 4_000, |_| {
        black_box(&Outline::of(black_box(INVITE)).expect("well-formed"));
    }),
    ("refuse an INVITE", 5_500, |out| {
        let outline = Outline::of(black_box(INVITE)).expect("well-formed");
        black_box(outline.reply_target(SOURCE));
        outline.write_reply(&refusal(), out).expect("a Vec takes everything");
    }),
    ("scan the ACK of a refusal", 1_800, |_| {
        black_box(scan_ack(black_box(ACK)).expect("has a tag"));
    }),
    ("parse an INVITE", 3_000, |_| {
        black_box(&Message::parse(black_box(INVITE)).expect("well-formed"));
    }),
    ("parse, check and read it as a proxy does", 8_000, |_| {
        let m = Message::parse(black_box(INVITE)).expect("well-formed");
        m.check().expect("well-formed");
        black_box(m.request_uri().map(Uri::parse)).expect("a request").expect("a URI");
        black_box(m.routes().next().map(|r| r.and_then(|r| r.parse_uri())));
        black_box(m.max_forwards()).expect("a number");
        black_box(m.to().map(|to| to.tag())).expect("a To");
        black_box(m.from().map(|from| from.tag())).expect("a From");
        black_box(m.field(HeaderName::ResourcePriority));
    }),
    ("parse and forward it", 8_000, |out| {
        let m = Message::parse(black_box(INVITE)).expect("well-formed");
        let source = forward::Source::new("192.0.2.33:5060".parse().expect("an address"));
        let mut s = Splice::new(&m);
        s.insert(forward::top_of_headers(&m), b"Via: SIP/2.0/UDP 192.0.2.77;branch=z9hG4bK1\r\n");
        forward::note_source(&mut s, &m, &m.top_via().expect("a Via"), &source);
        forward::set_max_forwards(&mut s, &m, b"69");
        forward::remove_first_route(&mut s, &m, 1);
        s.write_to(out).expect("a Vec takes everything");
    }),
    ("parse it and reply 503", 8_000, |out| {
        let m = Message::parse(black_box(INVITE)).expect("well-formed");
        black_box(response_target(&m.top_via().expect("a Via")));
        write_reply(&m, &refusal(), out).expect("a Vec takes everything");
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, index, times] = &arguments[..] {
        let operation = OPERATIONS[index.parse::<usize>().expect("an index")].2;
        let mut out = Vec::with_capacity(2048);
        for _ in 0..times.parse().expect("a number") {
            out.clear();
            operation(&mut out);
            black_box(&out);
        }
        return ExitCode::SUCCESS;
    }
    println!("INVITE of {} bytes, 180 of {} bytes", INVITE.len(), RESPONSE.len());
    let mut status = ExitCode::SUCCESS;
    for (index, (name, budget, _)) in OPERATIONS.iter().enumerate() {
        let taken = (instructions(index, 1_100) - instructions(index, 100)) / 1_000;
        println!("{taken:>7} of {budget:>5} instructions  {name}");
        if taken > *budget {
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// Instructions of a process that does an operation so many times.
fn instructions(index: usize, times: u32) -> u64 {
    let valgrind = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args([index.to_string(), times.to_string()])
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&valgrind.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    collected.and_then(|(_, count)| count.trim().parse().ok()).expect("callgrind reports a count")
}
