//! Writes the messages that attackers send.

use std::fmt::Write as _;
use std::net::SocketAddr;

pub(super) type Text = Vec<u8>;

/// Via lines that violate the grammar of RFC 3261 §25.1. Attackers put them below a valid Via.
pub(super) const BROKEN_VIAS: [&str; 3] = [
    "Via: SIP/2.0/UDP ;branch=z9hG4bKbroken\r\n",
    "Via: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bKbroken,,SIP/2.0/UDP 10.9.9.8\r\n",
    "Via: SIP/2.0 10.9.9.9\r\n",
];

/// A request that an attacker makes up.
pub(super) struct Request<'a> {
    pub method: &'a str,
    /// The called number: the user part of the request URI.
    pub number: &'a str,
    pub source: SocketAddr,
    pub nonce: u64,
    /// First characters of the branch parameter, usually the magic cookie.
    pub cookie: &'a str,
    /// Via lines to put below the request's own Via.
    pub lower: &'a str,
    pub call: String,
    pub to_tag: Option<String>,
    pub cseq: u32,
    /// Length of the body, in bytes.
    pub body: usize,
    /// If set, the address of the proxy, for a request that the proxy must change as much as
    /// possible. The request has Routes and a URI parameter that the proxy must remove, and lacks
    /// header fields that the proxy must add.
    pub bare_for: Option<SocketAddr>,
}

impl<'a> Request<'a> {
    /// Creates a request. Different values of `nonce` give requests of different calls.
    pub fn new(method: &'a str, number: &'a str, source: SocketAddr, nonce: u64) -> Self {
        Self {
            method,
            number,
            source,
            nonce,
            cookie: "z9hG4bK",
            lower: "",
            call: format!("{nonce:016x}@stranger.example"),
            to_tag: None,
            cseq: 1,
            body: 0,
            bare_for: None,
        }
    }

    pub fn text(&self) -> Text {
        let Self { method, number, source, nonce, cookie, lower, call, cseq, body, .. } = self;
        let to_tag = self.to_tag.as_ref().map_or(String::new(), |tag| format!(";tag={tag}"));
        let (param, routes, hops, length) = match self.bare_for {
            Some(proxy) => {
                (";method=x", format!("Route: <sip:{proxy};lr>\r\n").repeat(4), "", String::new())
            }
            None => {
                let length = format!("Content-Length: {body}\r\n");
                ("", String::new(), "Max-Forwards: 70\r\n", length)
            }
        };
        let mut text = format!(
            "{method} sip:{number}@swarm.example{param} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {source};branch={cookie}{nonce:x};rport\r\n{lower}{routes}{hops}\
             From: <sip:stranger@stranger.example>;tag=s{nonce:x}\r\n\
             To: <sip:{number}@swarm.example>{to_tag}\r\n\
             Call-ID: {call}\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sip:stranger@{source}>\r\n{length}\r\n"
        );
        text.extend(std::iter::repeat_n('x', *body));
        text.into_bytes()
    }
}

/// If `response` is a 200 to an INVITE, returns an ACK for it, and a BYE for a dialog that the
/// answerer does not have. Returns nothing for any other response.
pub(super) fn bye_to_another_dialog(response: &str, local: SocketAddr, nonce: u64) -> Vec<Text> {
    let is_answer = response.starts_with("SIP/2.0 200") && response.contains(" INVITE\r\n");
    let part = |name| line(response, name);
    let (true, Some(from), Some(to), Some(call)) =
        (is_answer, part("From"), part("To"), part("Call-ID"))
    else {
        return Vec::new();
    };
    let contact = part("Contact").and_then(|value| value.split(['<', '>']).nth(1));
    let target = contact.unwrap_or("sip:service@swarm.example");
    let mut routes: Vec<_> = lines(response, "Record-Route").collect();
    routes.reverse();
    let wrong = to.split(";tag=").next().unwrap_or(to);
    let wrong = format!("{wrong};tag=w{nonce:x}");
    [("ACK", 1, to), ("BYE", 2, wrong.as_str())]
        .map(|(method, cseq, to)| {
            let mut text = format!(
                "{method} {target} SIP/2.0\r\n\
                 Via: SIP/2.0/UDP {local};branch=z9hG4bK{cseq}{nonce:x};rport\r\n"
            );
            for route in &routes {
                let _ = write!(text, "Route: {route}\r\n");
            }
            let _ = write!(
                text,
                "Max-Forwards: 70\r\nFrom: {from}\r\nTo: {to}\r\nCall-ID: {call}\r\n\
                 CSeq: {cseq} {method}\r\nContent-Length: 0\r\n\r\n"
            );
            text.into_bytes()
        })
        .to_vec()
}

/// Returns a CANCEL or a BYE for the call of the observed message `seen`. Without an observed
/// message, returns a BYE for an invented call.
pub(super) fn hang_up(seen: Option<&str>, source: SocketAddr, nonce: u64) -> Text {
    let invented = || Request::new("BYE", "service", source, nonce);
    let Some(seen) = seen else { return Request { to_tag: Some("1".into()), ..invented() }.text() };
    let part = |name| line(seen, name);
    let (Some(from), Some(to), Some(call)) = (part("From"), part("To"), part("Call-ID")) else {
        return invented().text();
    };
    let cseq = part("CSeq").and_then(|cseq| cseq.split(' ').next()).unwrap_or("1");
    let uri = seen.split(' ').nth(1).filter(|uri| uri.starts_with("sip:"));
    let uri = uri.unwrap_or("sip:service@swarm.example");
    let routes: String = lines(seen, "Route").map(|route| format!("Route: {route}\r\n")).collect();
    // If the seen request has the Via of a proxy on top, a CANCEL with this Via would loop.
    let is_of_crowd = lines(seen, "Via").count() == 1;
    let (method, via, to) = if seen.starts_with("INVITE") && is_of_crowd && nonce.is_multiple_of(2)
    {
        let via = part("Via").unwrap_or_default().to_owned();
        ("CANCEL", via, to.to_owned())
    } else {
        let via = format!("SIP/2.0/UDP {source};branch=z9hG4bK{nonce:x};rport");
        let to = to.split(";tag=").next().unwrap_or(to);
        ("BYE", via, format!("{to};tag=w{nonce:x}"))
    };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: {via}\r\n{routes}Max-Forwards: 70\r\nFrom: {from}\r\n\
         To: {to}\r\nCall-ID: {call}\r\nCSeq: {cseq} {method}\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Returns a response to the observed INVITE `seen`. Without an observed INVITE, returns a response
/// with a guessed branch.
pub(super) fn response(seen: Option<&str>, target: SocketAddr, nonce: u64) -> Text {
    let status = [
        "503 Service Unavailable\r\nRetry-After: 3600",
        "503 Service Unavailable\r\nRetry-After: 3600",
        "404 Not Found",
        "180 Ringing",
        "500 Server Internal Error",
    ][(nonce % 5) as usize];
    let seen = seen.filter(|seen| seen.starts_with("INVITE"));
    let (vias, from, to, call, cseq) = match seen {
        Some(seen) => {
            let vias = lines(seen, "Via").map(|via| format!("Via: {via}\r\n")).collect();
            let part = |name| line(seen, name).unwrap_or_default().to_owned();
            (vias, part("From"), part("To"), part("Call-ID"), part("CSeq"))
        }
        None => (
            format!(
                "Via: SIP/2.0/UDP {target};branch=z9hG4bK{nonce:x}\r\n\
                 Via: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bKguess\r\n"
            ),
            "<sip:a@swarm.example>;tag=1".to_owned(),
            "<sip:service@swarm.example>".to_owned(),
            format!("{nonce:x}"),
            "1 INVITE".to_owned(),
        ),
    };
    let to = to.split(";tag=").next().unwrap_or_default();
    format!(
        "SIP/2.0 {status}\r\n{vias}From: {from}\r\nTo: {to};tag=f{nonce:x}\r\nCall-ID: {call}\r\n\
         CSeq: {cseq}\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Returns a message that belongs to a call that does not exist.
pub(super) fn noise(source: SocketAddr, target: SocketAddr, nonce: u64) -> Text {
    let method = match nonce % 4 {
        0 => return response(None, target, nonce),
        1 => "BYE",
        2 => "ACK",
        _ => "INFO",
    };
    let to_tag = Some(format!("n{nonce:x}"));
    Request { to_tag, cseq: 2, ..Request::new(method, "service", source, nonce) }.text()
}

pub(super) fn call_id(message: &str) -> Option<&str> {
    line(message, "Call-ID")
}

/// Returns the value of the first header line with the name `name`.
fn line<'a>(message: &'a str, name: &'a str) -> Option<&'a str> {
    lines(message, name).next()
}

fn lines<'a>(message: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let value = move |line: &'a str| line.strip_prefix(name)?.strip_prefix(':').map(str::trim);
    message.split("\r\n").take_while(|line| !line.is_empty()).filter_map(value)
}
