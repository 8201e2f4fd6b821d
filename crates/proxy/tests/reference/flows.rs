//! Tests of the reference: message flows as the RFCs describe them.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::message::{Message, Packet, response_to};
use super::proxy::Proxy;
use super::script::{PROXY, address};
use super::surroundings::{Kind, Pool};

const ALICE: &str = "198.51.100.7:5060";
const BOB: [&str; 4] = ["10.0.0.1:5070", "10.0.0.2:5070", "10.0.0.3:5070", "10.0.0.4:5070"];

/// A proxy for biloxi.com with some of Bob's phones, which all ring at once.
struct Flow {
    proxy: Proxy,
    now: Timestamp,
}

impl Flow {
    fn new(phones: usize) -> Self {
        let phones: Vec<_> = BOB[..phones].iter().map(|at| (address(at), 1000)).collect();
        let pools = vec![Pool::new("biloxi.com", Kind::Fork, &phones)];
        let now = Timestamp::ZERO;
        Self { proxy: Proxy::new(address(PROXY), pools), now }
    }

    fn send(&mut self, from: &str, message: &Message) -> Vec<Packet> {
        self.proxy.receive(self.now, address(from), &message.to_string());
        self.proxy.take_sent()
    }

    /// Passes this time. Returns the packets sent, with their times in ms.
    fn pass(&mut self, seconds: u64) -> Vec<(u64, String)> {
        let end = self.now + Duration::from_secs(seconds);
        let mut sent = Vec::new();
        while let Some(at) = self.proxy.poll_timeout().filter(|&at| at <= end) {
            self.proxy.handle_timeout(at);
            let ms = at.as_nanos() / 1_000_000;
            sent.extend(starts(&self.proxy.take_sent()).into_iter().map(|start| (ms, start)));
        }
        self.now = end;
        sent
    }
}

/// Returns a request like F1 of RFC 3261 §24.2.
fn request(method: &str) -> Message {
    Message::parse(&format!(
        "{method} sip:bob@biloxi.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP {ALICE};branch=z9hG4bKnashds8\r\n\
         Max-Forwards: 70\r\n\
         To: Bob <sip:bob@biloxi.com>\r\n\
         From: Alice <sip:alice@atlanta.com>;tag=1928301774\r\n\
         Call-ID: a84b4c76e66710\r\n\
         CSeq: 314159 {method}\r\n\r\n"
    ))
}

/// Returns a phone's response to a packet.
fn answer(packet: &Packet, status: &str) -> Message {
    let tag = format!("callee-{}", packet.to);
    response_to(&packet.message, status, Some(&tag))
}

fn starts(sent: &[Packet]) -> Vec<String> {
    sent.iter().map(|p| format!("{} > {}", p.message.start, p.to)).collect()
}

fn statuses(sent: &[Packet]) -> Vec<u16> {
    sent.iter().filter_map(|p| p.message.status()).collect()
}

/// Returns the times, in ms, of packets that begin with `start`.
fn times(sent: &[(u64, String)], start: &str) -> Vec<u64> {
    sent.iter().filter(|(_, s)| s.starts_with(start)).map(|&(ms, _)| ms).collect()
}

// §24.2, F2 to F13, seen from the second proxy.
#[test]
fn a_session_is_set_up_and_ends() {
    let mut flow = Flow::new(1);
    let sent = flow.send(ALICE, &request("INVITE"));
    assert_eq!(statuses(&sent), [100]);
    let invite = sent[1].clone();
    assert_eq!(invite.message.all("Via").len(), 2);
    assert_eq!(invite.message.first("Max-Forwards"), "69");
    let ringing = flow.send(BOB[0], &answer(&invite, "180 Ringing"));
    assert_eq!(starts(&ringing), [format!("SIP/2.0 180 Ringing > {ALICE}")]);
    assert_eq!(ringing[0].message.all("Via").len(), 1);
    // §17.2.1: a repeated INVITE gets the latest provisional response again.
    assert_eq!(flow.send(ALICE, &request("INVITE")), ringing);
    let ok = flow.send(BOB[0], &answer(&invite, "200 OK"));
    assert_eq!(starts(&ok), [format!("SIP/2.0 200 OK > {ALICE}")]);
    // RFC 6026 §7.1: a repeated INVITE is absorbed, a repeated 200 is forwarded.
    assert_eq!(flow.send(ALICE, &request("INVITE")), []);
    assert_eq!(flow.send(BOB[0], &answer(&invite, "200 OK")), ok);
    // RFC 6026 §8.9: a response without a request is discarded.
    flow.pass(32);
    assert_eq!(flow.send(BOB[0], &answer(&invite, "200 OK")), []);
    assert_eq!((flow.proxy.live(), flow.proxy.poll_timeout()), ((0, 0), None));
}

// §17.1.1.2: "the request is retransmitted with intervals that double"; timer B at 64·T1; §16.7
// item 6: 408 "If there are no final responses in the context". Then timer G repeats the 408, with
// intervals that double up to T2, until timer H.
#[test]
fn an_invite_that_nobody_hears_ends_with_408() {
    let mut flow = Flow::new(1);
    flow.send(ALICE, &request("INVITE"));
    let sent = flow.pass(100);
    assert_eq!(times(&sent, "INVITE"), [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    let again = [32_000, 32_500, 33_500, 35_500, 39_500, 43_500, 47_500, 51_500, 55_500, 59_500];
    assert_eq!(times(&sent, "SIP/2.0 408"), [&again[..], &[63_500]].concat());
    assert_eq!((flow.proxy.live(), sent.len()), ((0, 0), 17));
}

// §17.1.2.2: "this results in intervals of 500 ms, 1 s, 2 s, 4 s, 4 s, 4 s, etc." RFC 4320: 100
// once timer E is T2, and no 408.
#[test]
fn a_request_other_than_invite_that_nobody_hears_ends_in_silence() {
    let mut flow = Flow::new(1);
    assert_eq!(flow.send(ALICE, &request("OPTIONS")).len(), 1);
    let sent = flow.pass(100);
    let seconds = [500, 1_500, 3_500, 7_500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500];
    assert_eq!(times(&sent, "OPTIONS"), seconds);
    assert_eq!((times(&sent, "SIP/2.0"), flow.proxy.live()), (vec![3_500], (0, 0)));
}

// §17.1.2.2: "If Timer E fires while in the "Proceeding" state, [...] Timer E MUST be reset with a
// value of T2 seconds."
#[test]
fn a_provisional_response_slows_a_request_other_than_invite() {
    let mut flow = Flow::new(1);
    let sent = flow.send(ALICE, &request("OPTIONS"));
    assert_eq!(flow.send(BOB[0], &answer(&sent[0], "100 Trying")), []);
    assert_eq!(times(&flow.pass(10), "OPTIONS"), [500, 4_500, 8_500]);
    assert_eq!(statuses(&flow.send(BOB[0], &answer(&sent[0], "200 OK"))), [200]);
    assert_eq!(flow.send(BOB[0], &answer(&sent[0], "404 Not Found")), []);
    assert_eq!(statuses(&flow.send(ALICE, &request("OPTIONS"))), [200], "§17.2.2: Completed");
}

// §17.1.1.3, its example. §17.2.1: the response is repeated until the ACK comes.
#[test]
fn a_rejection_is_acknowledged_hop_by_hop() {
    let mut flow = Flow::new(1);
    let invite = flow.send(ALICE, &request("INVITE")).remove(1);
    let sent = flow.send(BOB[0], &answer(&invite, "486 Busy Here"));
    let both = [
        format!("ACK sip:bob@biloxi.com SIP/2.0 > {}", BOB[0]),
        format!("SIP/2.0 486 Busy Here > {ALICE}"),
    ];
    assert_eq!(starts(&sent), both);
    let ack = &sent[0].message;
    assert_eq!(ack.all("Via"), [invite.message.first("Via")]);
    assert_eq!(ack.first("To"), sent[1].message.first("To"));
    assert_eq!(ack.first("CSeq"), "314159 ACK");
    assert_eq!(starts(&flow.send(BOB[0], &answer(&invite, "486 Busy Here"))), both[..1]);
    assert_eq!(times(&flow.pass(2), "SIP/2.0 486"), [500, 1_500]);
    let mut mine = request("ACK");
    mine.set("To", sent[1].message.first("To"));
    assert_eq!(flow.send(ALICE, &mine), []);
    assert_eq!(flow.send(ALICE, &mine), [], "§17.2.1: Confirmed absorbs it");
    assert_eq!((flow.pass(100), flow.proxy.live()), (vec![], (0, 0)));
}

// §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be sent".
// §16.10: 200 at once.
#[test]
fn a_cancel_waits_for_a_provisional_response() {
    let mut flow = Flow::new(1);
    let invite = flow.send(ALICE, &request("INVITE")).remove(1);
    assert_eq!(statuses(&flow.send(ALICE, &request("CANCEL"))), [200]);
    let sent = flow.send(BOB[0], &answer(&invite, "180 Ringing"));
    assert_eq!(sent[0].message.start, "CANCEL sip:bob@biloxi.com SIP/2.0");
    assert_eq!(sent[0].message.all("Via"), [invite.message.first("Via")]);
    assert_eq!(sent[0].message.first("To"), request("INVITE").first("To"));
    assert_eq!(flow.send(BOB[0], &answer(&sent[0], "200 OK")), [], "§16.7 item 3: its own");
    let sent = flow.send(BOB[0], &answer(&invite, "487 Request Terminated"));
    assert_eq!(statuses(&sent), [487]);
}

// §9.1: "If there is no final response for the original request in 64*T1 seconds".
#[test]
fn a_cancelled_call_that_never_ends_is_ended() {
    let mut flow = Flow::new(1);
    let invite = flow.send(ALICE, &request("INVITE")).remove(1);
    flow.send(BOB[0], &answer(&invite, "180 Ringing"));
    assert_eq!(flow.send(ALICE, &request("CANCEL")).len(), 2);
    assert_eq!(times(&flow.pass(33), "SIP/2.0 487"), [32_000, 32_500]);
}

// §16.7 item 6: "if a proxy forwarded a request to 4 locations, and received 503, 407, 501, and
// 404 responses, it may choose to forward the 407". Item 7: with all challenges.
#[test]
fn the_best_of_four_responses_is_forwarded() {
    let mut flow = Flow::new(4);
    let sent = flow.send(ALICE, &request("INVITE"));
    let challenge = |mut response: Message, name: &str| {
        response.set(name, &format!("Digest of {}", response.first("To")));
        response
    };
    let answers = [
        answer(&sent[1], "503 Service Unavailable"),
        challenge(answer(&sent[2], "407 Proxy Authentication Required"), "Proxy-Authenticate"),
        answer(&sent[3], "501 Not Implemented"),
        challenge(answer(&sent[4], "401 Unauthorized"), "WWW-Authenticate"),
    ];
    let mut last = Vec::new();
    for (from, answer) in BOB.iter().zip(&answers) {
        last = flow.send(from, answer);
    }
    let best = &last.iter().find(|p| p.message.status().is_some()).unwrap().message;
    assert_eq!(best.status(), Some(407));
    assert_eq!(best.all("Proxy-Authenticate").len(), 1);
    assert_eq!(best.all("WWW-Authenticate").len(), 1);
}

// §16.7 item 6: "If the only response that was received is a 503, the proxy SHOULD generate a 500".
#[test]
fn a_503_does_not_go_upstream() {
    let mut flow = Flow::new(1);
    let invite = flow.send(ALICE, &request("INVITE")).remove(1);
    let sent = flow.send(BOB[0], &answer(&invite, "503 Service Unavailable"));
    assert_eq!(statuses(&sent), [500]);
}

// §16.7 items 5 and 10: each 2xx is forwarded at once, also a second one. The others are cancelled.
#[test]
fn the_first_to_answer_gets_the_call() {
    let mut flow = Flow::new(3);
    let sent = flow.send(ALICE, &request("INVITE"));
    flow.send(BOB[1], &answer(&sent[2], "180 Ringing"));
    let won = flow.send(BOB[0], &answer(&sent[1], "200 OK"));
    assert_eq!(
        starts(&won),
        [
            format!("SIP/2.0 200 OK > {ALICE}"),
            format!("CANCEL sip:bob@biloxi.com SIP/2.0 > {}", BOB[1])
        ]
    );
    assert_eq!(statuses(&flow.send(BOB[1], &answer(&sent[2], "200 OK"))), [200]);
    let late = flow.send(BOB[2], &answer(&sent[3], "486 Busy Here"));
    assert_eq!((late.len(), statuses(&late)), (1, vec![]), "only acknowledged");
}

// §16.7 item 5: "If a 6xx response is received, it is not immediately forwarded".
#[test]
fn a_6xx_waits_for_the_others_to_be_cancelled() {
    let mut flow = Flow::new(2);
    let sent = flow.send(ALICE, &request("INVITE"));
    flow.send(BOB[1], &answer(&sent[2], "180 Ringing"));
    let declined = flow.send(BOB[0], &answer(&sent[1], "603 Decline"));
    let methods = |sent: &[Packet]| -> Vec<String> {
        sent.iter().map(|p| p.message.start.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(methods(&declined), ["ACK", "CANCEL"]);
    let ended = flow.send(BOB[1], &answer(&sent[2], "487 Request Terminated"));
    assert_eq!(
        (methods(&ended), statuses(&ended)),
        (vec!["ACK".into(), "SIP/2.0".into()], vec![603])
    );
}

// §16.8: timer C, which 180 resets and 100 does not.
#[test]
fn a_phone_that_rings_for_ever_is_cancelled() {
    let mut flow = Flow::new(1);
    let invite = flow.send(ALICE, &request("INVITE")).remove(1);
    flow.send(BOB[0], &answer(&invite, "180 Ringing"));
    flow.pass(100);
    flow.send(BOB[0], &answer(&invite, "180 Ringing"));
    flow.pass(60);
    flow.send(BOB[0], &answer(&invite, "100 Trying"));
    let sent = flow.pass(131);
    assert_eq!(times(&sent, "CANCEL"), [290_000, 290_500]);
    assert_eq!(times(&sent, "SIP/2.0 408"), [290_000, 290_500]);
}
