//! Makes messages of fragments that the bytes of an input select.

use tidegate_sip::{HeaderName, Message};

const METHODS: [&str; 14] = [
    "INVITE",
    "INVITE",
    "INVITE",
    "OPTIONS",
    "BYE",
    "CANCEL",
    "ACK",
    "REGISTER",
    "MESSAGE",
    "SUBSCRIBE",
    "NOTIFY",
    "REFER",
    "UPDATE",
    "X-y",
];
const URIS: [&str; 18] = [
    "sip:bob@192.0.2.1",
    "sip:bob@example.com",
    "sip:bob@192.0.2.1;method=REGISTER",
    "sip:bob@192.0.2.1;x=y;method=INVITE",
    "sip:192.0.2.1",
    "sip:bob@203.0.113.9",
    "sip:bob@10.0.0.2:5070",
    "sip:bob@192.0.2.1;maddr=203.0.113.9",
    "sip:bob@[2001:db8::10]",
    "sip:bob@[2001:db8::77]:5061;transport=udp",
    "sip:bob@203.0.113.9;transport=tcp",
    "sip:192.0.2.1:5060;lr",
    "sip:bob@192.0.2.1?Route=%3Csip:x%3E",
    "sips:bob@example.com",
    "tel:+12125551212",
    "urn:service:sos",
    "soap.beep://192.0.2.103:3002",
    "sip:bob@999.1.1.1",
];
const ROUTES: [&str; 11] = [
    "",
    "",
    "",
    "Route: <sip:192.0.2.1;lr>\r\n",
    "Route: <sip:192.0.2.1;lr>, <sip:203.0.113.9;lr>\r\n",
    "Route: <sip:203.0.113.9>\r\n",
    "Route: <sip:example.net;lr>\r\n",
    "Route: <sip:192.0.2.1;lr>,\r\n <sip:192.0.2.1;lr>\r\nRoute: <sip:10.0.0.1:5070;lr>\r\n",
    // The maximum number of values that name the proxy, each on its own line.
    "Route: <sip:192.0.2.1;lr>\r\nRoute: <sip:192.0.2.1;lr>\r\n\
     Route: <sip:192.0.2.1;lr>\r\nRoute: <sip:192.0.2.1;lr>\r\n",
    "Route: <sip:192.0.2.1;lr>\r\nRoute: <sip:192.0.2.1;lr>\r\nRoute: <sip:192.0.2.1;lr>\r\n\
     Route: <sip:192.0.2.1;lr>\r\nRoute: <sip:203.0.113.9>\r\nRoute: <sip:203.0.113.9>\r\n",
    "Route: <sip:192.0.2.1;lr>\r\nRoute: <sip:192.0.2.1;lr>\r\n\
     Route: <sip:192.0.2.1;lr>\r\nRoute: <sip:192.0.2.1;lr>\r\n",
];
const VIAS: [&str; 11] = [
    "SIP/2.0/UDP 198.51.100.7:5060;branch=",
    "SIP/2.0/UDP 198.51.100.9;rport;branch=",
    "SIP/2.0/UDP 198.51.100.7;rport;received=192.0.2.7;branch=",
    "SIP/2.0/UDP host.example.com:6000;rport=1;branch=",
    "SIP/2.0/TCP 198.51.100.7;received=203.0.113.66;branch=",
    "SIP/2.0/UDP 203.0.113.66:7000;maddr=203.0.113.67;branch=",
    "SIP / 2.0 / UDP 198.51.100.7 : 5060 ; ttl=1;branch = ",
    "SIP/2.0/UDP [2001:db8::7];branch=",
    "SIP/2.0/UDP 198.51.100.7:0;branch=",
    "SIP/2.0/UDP 198.51.100.7;branch=z9hG4bK;x=",
    "SIP/2.0/UDP 192.0.2.1:5060;branch=",
];
const EXTRAS: [&str; 14] = [
    "",
    "",
    "",
    "Via: SIP/2.0/UDP 203.0.113.66;branch=z9hG4bKbelow\r\n",
    "Max-Breadth: 1\r\n",
    "Max-Breadth: 2\r\n",
    "Max-Breadth: 0\r\n",
    "Proxy-Require: x, y\r\n",
    "Resource-Priority: esnet.0\r\n",
    "Record-Route: <sip:203.0.113.50;lr>\r\n",
    "Timestamp: 1\r\n",
    "Via: ,\r\n",
    "To: <sip:second@example.com>\r\n",
    "Contact: <sip:a@203.0.113.9>\r\n",
];
const MAX_FORWARDS: [&str; 8] = [
    "Max-Forwards: 70\r\n",
    "Max-Forwards: 70\r\n",
    "Max-Forwards: 70\r\n",
    "Max-Forwards: 1\r\n",
    "Max-Forwards: 0\r\n",
    "Max-Forwards: 256\r\n",
    "",
    "",
];
const LENGTHS: [&str; 2] = ["Content-Length: 0\r\n", ""];
/// Texts to insert into a message. Some are separators.
const SPLICES: [&str; 16] = [
    "\r\n",
    "\n",
    " ",
    ",",
    ";",
    "\"",
    "<",
    ">",
    ":",
    "\0",
    "=",
    "\r\n ",
    "\r\n\r\n",
    "\r\nVia: ",
    "z9hG4bK",
    "\u{ff}",
];
const STATUSES: [&str; 24] = [
    "100", "180", "180", "183", "199", "200", "200", "200", "202", "302", "400", "401", "404",
    "407", "408", "420", "480", "481", "486", "487", "500", "503", "503", "603",
];

/// The remaining bytes of an input, followed by endless zeros.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// Returns a number below `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// Returns `true` for one in `n` byte values. After the end of the input, returns `true` only
    /// if `n` is 1.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    pub fn share(&mut self) -> f64 {
        f64::from(self.byte()) / 255.0
    }

    /// Returns an element of a list. Byte 0 selects the last one.
    pub fn pick<'b, T>(&mut self, list: &'b [T]) -> Option<&'b T> {
        let back = self.byte();
        (!list.is_empty()).then(|| &list[list.len() - 1 - usize::from(back) % list.len()])
    }

    /// Returns a field preceded by its length in two bytes.
    pub fn field(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (field, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        field
    }

    /// Returns the bytes with at most three changes.
    pub fn mutated(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = (usize::from(self.byte()) << 8 | usize::from(self.byte())) % bytes.len();
            match self.byte() % 4 {
                0 => bytes[at] = self.byte(),
                1 => {
                    let text = SPLICES[self.below(SPLICES.len())];
                    bytes.splice(at..at, text.bytes());
                }
                2 => {
                    let end = (at + 1 + self.below(32)).min(bytes.len());
                    bytes.drain(at..end);
                }
                _ => bytes.truncate(at),
            }
        }
        bytes
    }

    fn of<'b>(&mut self, list: &[&'b str]) -> &'b str {
        list[self.below(list.len())]
    }
}

/// Makes a request with few different calls and branches, so that requests often relate to each
/// other.
pub fn request(input: &mut Input<'_>) -> Vec<u8> {
    let (method, uri) = (input.of(&METHODS), input.of(&URIS));
    let (via, route, extra) = (input.of(&VIAS), input.of(&ROUTES), input.of(&EXTRAS));
    let numbers = input.byte();
    let (branch, call, cseq) = (numbers & 7, numbers >> 3 & 3, 1 + (numbers >> 5 & 1));
    let tag = if numbers & 0x40 != 0 { ";tag=callee" } else { "" };
    let hops = input.of(&MAX_FORWARDS);
    let length = LENGTHS[usize::from(numbers >> 7)];
    format!(
        "{method} {uri} SIP/2.0\r\nVia: {via}z9hG4bKf{branch}\r\n{route}{extra}\
         From: <sip:alice@example.com>;tag=caller\r\nTo: <sip:bob@example.com>{tag}\r\n\
         Call-ID: call{call}\r\nCSeq: {cseq} {method}\r\n{hops}{length}\r\n"
    )
    .into_bytes()
}

/// Makes a response as the receiver of `request` would write it, or returns `None` if `request` is
/// not a well-formed request.
pub fn answer(input: &mut Input<'_>, request: &[u8]) -> Option<Vec<u8>> {
    let request = Message::parse(request).ok().filter(Message::is_request)?;
    let status = input.of(&STATUSES);
    let tag = if input.one_in(8) { ";tag=other" } else { ";tag=callee" };
    let mut text = format!("SIP/2.0 {status} Reason\r\n").into_bytes();
    for field in request.fields() {
        use HeaderName::{CSeq, CallId, From, RecordRoute, To, Via};
        let copied = matches!(field.name, Via | From | CallId | CSeq | To | RecordRoute);
        if !copied {
            continue;
        }
        if field.name == HeaderName::To && request.to().is_ok_and(|to| to.tag().is_none()) {
            text.extend_from_slice(b"To: ");
            text.extend_from_slice(field.value);
            text.extend_from_slice(tag.as_bytes());
            text.extend_from_slice(b"\r\n");
        } else {
            text.extend_from_slice(field.line);
        }
    }
    if matches!(status, "401" | "407") {
        text.extend_from_slice(b"WWW-Authenticate: Digest realm=\"a\", nonce=\"b\"\r\n");
    }
    text.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    Some(text)
}

/// Makes an ACK, a CANCEL or a later request after `request`. Its route is the one recorded in
/// `sent`, a message from the proxy.
pub fn within(input: &mut Input<'_>, request: &[u8], sent: Option<&[u8]>) -> Option<Vec<u8>> {
    let request = Message::parse(request).ok().filter(Message::is_request)?;
    let method = ["ACK", "CANCEL", "ACK", "BYE", "INVITE"][input.below(5)];
    let follows = matches!(method, "BYE" | "INVITE");
    let recorded = sent.and_then(|sent| Message::parse(sent).ok());
    let route = recorded.as_ref().and_then(|m| m.field(HeaderName::RecordRoute));
    let is_routed = input.byte() & 1 == 0;
    let mut text = format!("{method} ").into_bytes();
    text.extend_from_slice(request.request_uri()?);
    text.extend_from_slice(b" SIP/2.0\r\n");
    if let Some(route) = route.filter(|_| is_routed) {
        text.extend_from_slice(b"Route: ");
        text.extend_from_slice(route.value);
        text.extend_from_slice(b"\r\n");
    }
    for field in request.fields() {
        match field.name {
            HeaderName::Via if follows => {
                text.extend_from_slice(b"Via: SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bKf7\r\n");
            }
            HeaderName::To if follows || method == "ACK" => {
                text.extend_from_slice(b"To: ");
                let element = request.to().ok()?.element;
                text.extend_from_slice(element);
                if request.to().ok()?.tag().is_none() {
                    text.extend_from_slice(b";tag=callee");
                }
                text.extend_from_slice(b"\r\n");
            }
            HeaderName::CSeq => {
                let number = request.cseq().ok()?.number.saturating_add(u32::from(follows));
                text.extend_from_slice(format!("CSeq: {number} {method}\r\n").as_bytes());
            }
            HeaderName::Via | HeaderName::From | HeaderName::To | HeaderName::CallId => {
                text.extend_from_slice(field.line);
            }
            _ => {}
        }
    }
    text.extend_from_slice(b"Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n");
    Some(text)
}
