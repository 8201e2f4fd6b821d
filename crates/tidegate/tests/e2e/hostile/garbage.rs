//! Messages of a stranger, and damaged versions of them.

use std::net::SocketAddr;

use tidegate_world::Stream;

use crate::stage::{Message, Peer};

const METHODS: [&str; 9] =
    ["INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "REGISTER", "MESSAGE", "NOTIFY", "PRACK"];

const STATUSES: [&str; 6] =
    ["100 Trying", "180 Ringing", "200 OK", "302 Moved", "486 Busy Here", "503 Unavailable"];

/// Byte strings that are hard to parse.
const PIECES: [&[u8]; 28] = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b":",
    b";",
    b",",
    b"<",
    b">",
    b"\"",
    b"\\",
    b"%00",
    b"@",
    b"\xff\xfe",
    b"\xc3\x28",
    &[b' '; 300],
    b"Via: SIP/2.0/UDP a;branch=z9hG4bK\r\n",
    b";lr",
    b"[::1",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"v: x\r\n",
    b"i:\r\n",
    b"Max-Forwards: 0\r\n",
    b"Max-Forwards: 4294967296\r\n",
    b"CSeq: 4294967296 INVITE\r\n",
    b"Route: <sip:127.0.0.9:9;lr>\r\n",
    b"Record-Route: <sip:x;lr>,,<sip:\r\n",
];

/// The largest datagram of UDP over IPv4.
const DATAGRAM_MAX: usize = 65_507;

/// Generator of damaged messages, deterministic for a given random stream.
pub struct Garbage {
    draw: Stream,
    target: SocketAddr,
}

impl Garbage {
    /// Creates a generator of messages for `target`.
    pub fn new(draw: Stream, target: SocketAddr) -> Self {
        Self { draw, target }
    }

    /// Returns one datagram: random bytes, a message, or a damaged message.
    pub fn datagram(&mut self) -> Vec<u8> {
        if self.one_in(10) {
            return self.bytes(1500);
        }
        let whole = self.message();
        if self.one_in(10) { whole } else { self.damaged(whole) }
    }

    /// Returns the response of a back end that is as hostile as the strangers.
    pub fn answer(&mut self, backend: &Peer, request: &Message) -> Vec<u8> {
        let status = STATUSES[self.below(STATUSES.len())];
        let whole = backend.response(request, status).0.into_bytes();
        if self.one_in(2) { whole } else { self.damaged(whole) }
    }

    /// Returns a whole request or response.
    fn message(&mut self) -> Vec<u8> {
        let target = self.target;
        let number = self.draw.next_u64() >> 24;
        let method = METHODS[self.below(METHODS.len())];
        let tag = if self.one_in(2) { format!(";tag={number:x}") } else { String::new() };
        let (start, own_via) = if self.one_in(4) {
            let via = format!("Via: SIP/2.0/UDP {target};branch=z9hG4bK{number:x}\r\n");
            (format!("SIP/2.0 {}", STATUSES[self.below(STATUSES.len())]), via)
        } else {
            (format!("{method} sip:user{}@{target} SIP/2.0", number % 100), String::new())
        };
        format!(
            "{start}\r\n{own_via}\
             Via: SIP/2.0/UDP 127.0.0.88:9;rport;branch=z9hG4bK{number:x}\r\n\
             From: <sip:stranger@127.0.0.88>;tag={number:x}\r\n\
             To: <sip:user@{target}>{tag}\r\n\
             Call-ID: {number:x}@127.0.0.88\r\n\
             CSeq: {} {method}\r\n\
             Contact: <sip:stranger@127.0.0.88:9>\r\n\
             Max-Forwards: 70\r\n\
             Content-Length: 0\r\n\r\n",
            1 + number % 1000,
        )
        .into_bytes()
    }

    /// Damages a message in one to four places. Most of the changes are small.
    fn damaged(&mut self, mut data: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(4) {
            let at = self.below(data.len() + 1);
            let to = data.len().min(at + 1 + self.below(40));
            match self.below(7) {
                0 => {
                    let random = self.bytes(to - at);
                    data.splice(at..to, random);
                }
                1 => drop(data.drain(at..to)),
                2 => {
                    let piece = PIECES[self.below(PIECES.len())];
                    data.splice(at..at, piece.iter().copied());
                }
                3 => data.truncate(at),
                4 => data = self.shuffled(&data),
                5 => {
                    let times = [1, 2, 50][self.below(3)];
                    let copies = data[at..to].repeat(times);
                    data.splice(to..to, copies);
                }
                _ if self.one_in(50) => {
                    let times = 1 + self.below(2000);
                    let copies = PIECES[self.below(PIECES.len())].repeat(times);
                    data.splice(at..at, copies);
                }
                _ => {}
            }
        }
        data.truncate(DATAGRAM_MAX);
        data
    }

    /// Shuffles the lines of a message.
    fn shuffled(&mut self, data: &[u8]) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = data.split_inclusive(|&byte| byte == b'\n').collect();
        for i in (1..lines.len()).rev() {
            lines.swap(i, self.below(i + 1));
        }
        lines.concat()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.draw.next_u64() as u8).collect()
    }

    fn below(&mut self, n: usize) -> usize {
        self.draw.below(n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
