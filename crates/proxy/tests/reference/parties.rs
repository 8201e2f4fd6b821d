//! The messages of callers and back ends: requests, and responses to what they receive.

use std::net::SocketAddr;

use super::message::{COOKIE, Message, parameter};
use super::script::PROXY;
use super::step::{Ack, Domain, Method, Oddity};

/// The target of calls from back ends.
pub const CALLED: &str = "203.0.113.9:5060";

pub fn caller(number: u8) -> SocketAddr {
    format!("198.51.100.{}:5060", 7 + number).parse().expect("an address")
}

/// Returns a request from a caller, and its apparent source.
pub fn new(
    number: usize,
    caller: SocketAddr,
    method: Method,
    domain: Domain,
    oddity: Oddity,
) -> (SocketAddr, Message) {
    let mut source = caller;
    let uri = format!("sip:bob@{}", domain.name());
    let mut request = beginning(number, method, &uri, caller);
    match oddity {
        Oddity::None => {}
        Oddity::Translated => {
            source = SocketAddr::new(caller.ip(), 40_000 + caller.port());
            let via = format!("SIP/2.0/UDP 192.168.0.9:5062;rport;branch={COOKIE}{number}");
            request.set("Via", &via);
        }
        Oddity::OldBranch => request.set("Via", &format!("SIP/2.0/UDP {caller};branch=1")),
        Oddity::Body => request.body = format!("body of {number}"),
        Oddity::WithoutMaxForwards => request.remove_first("Max-Forwards"),
        Oddity::MaxForwards(left) => request.set("Max-Forwards", &left.to_string()),
        Oddity::MaxBreadth(breadth) => request.set("Max-Breadth", &breadth.to_string()),
        Oddity::ProxyRequire => request.set("Proxy-Require", "privacy"),
    }
    (source, request)
}

/// Returns a request that starts a call from a back end.
pub fn call_out(number: usize, backend: SocketAddr, method: Method) -> Message {
    beginning(number, method, &format!("sip:carol@{CALLED}"), backend)
}

fn beginning(number: usize, method: Method, uri: &str, from: SocketAddr) -> Message {
    let name = method.name();
    let headers = [
        ("Via", format!("SIP/2.0/UDP {from};branch={COOKIE}{number}")),
        ("Max-Forwards", "70".to_owned()),
        ("From", format!("<sip:alice@example.com>;tag=caller{number}")),
        ("To", "<sip:bob@example.com>".to_owned()),
        ("Call-ID", format!("call{number}")),
        ("CSeq", format!("1 {name}")),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).into();
    Message { start: format!("{name} {uri} SIP/2.0"), headers, body: String::new() }
}

pub fn cancel(request: &Message, stray: bool) -> Message {
    let mut cancel = request.sibling("CANCEL");
    cancel.headers.push(("Reason".to_owned(), "SIP;cause=487;text=\"hung up\"".to_owned()));
    if stray {
        cancel.set("Via", &format!("{}stray", request.first("Via")));
    }
    cancel
}

/// Returns the ACK to a response to this INVITE.
pub fn ack(number: usize, invite: &Message, response: &Message, which: Ack) -> Message {
    let mut ack = invite.sibling("ACK");
    ack.set("To", response.first("To"));
    let success = response.status().is_some_and(|status| status < 300);
    if success {
        route(&mut ack, response);
    }
    // RFC 3261 §13.2.2.4: the ACK to a 2xx is a transaction of its own. In RFC 2543 it has the
    // branch of its INVITE.
    let old = !invite.branch().is_some_and(|branch| branch.starts_with(COOKIE));
    if which == Ack::WrongBranch || (success && !old) {
        rebranch(&mut ack, number);
    }
    ack
}

/// Returns an in-dialog request from the receiver of a response.
pub fn follow(number: usize, request: &Message, response: &Message, method: Method) -> Message {
    let mut next = request.sibling(method.name());
    next.set("To", response.first("To"));
    next.set("CSeq", &format!("{} {}", number + 2, method.name()));
    route(&mut next, response);
    rebranch(&mut next, number);
    next
}

/// Returns an in-dialog request from the receiver of an INVITE, at `at`, to its sender.
pub fn back(
    number: usize,
    invite: &Message,
    at: SocketAddr,
    to: SocketAddr,
    method: Method,
) -> Message {
    let name = method.name();
    let mut headers = vec![("Via".to_owned(), format!("SIP/2.0/UDP {at};branch={COOKIE}{number}"))];
    // RFC 3261 §12.1.1: "The route set MUST be set to the list of URIs in the Record-Route header
    // field from the request, taken in order".
    for value in invite.all("Record-Route") {
        headers.push(("Route".to_owned(), value.to_owned()));
    }
    let tag = match invite.tag("To") {
        Some(_) => String::new(),
        None => format!(";tag=callee-{}-0", at.ip()),
    };
    for (name, value) in [
        ("From", format!("{}{tag}", invite.first("To"))),
        ("To", invite.first("From").to_owned()),
        ("Call-ID", invite.first("Call-ID").to_owned()),
        ("CSeq", format!("{} {name}", number + 2)),
        ("Max-Forwards", "70".to_owned()),
    ] {
        headers.push((name.to_owned(), value));
    }
    Message { start: format!("{name} sip:alice@{to} SIP/2.0"), headers, body: String::new() }
}

/// Returns a request that the proxy at `at` has received and forwards. It has the same target as
/// before, or another target if `spiral` is true.
pub fn send_on(number: usize, request: &Message, at: SocketAddr, spiral: bool) -> Message {
    let mut on = request.clone();
    on.push_first("Via", &format!("SIP/2.0/UDP {at};branch={COOKIE}{number}"));
    let left = on.first("Max-Forwards").parse::<u32>().expect("a number");
    on.set("Max-Forwards", &left.saturating_sub(1).to_string());
    if spiral {
        on.start = format!("{} sip:carol@{CALLED} SIP/2.0", request.method());
    }
    on
}

/// Returns a response as a callee behind the address `at` writes it.
pub fn answer(request: &Message, at: SocketAddr, status: u16, callee: u8, stray: bool) -> Message {
    let mut headers = Vec::new();
    for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
        for value in request.all(name) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let start = format!("SIP/2.0 {status} Reason of {status}");
    let mut response = Message { start, headers, body: String::new() };
    if request.tag("To").is_none() && status != 100 {
        let tag = format!("callee-{}-{callee}", at.ip());
        response.set("To", &format!("{};tag={tag}", request.first("To")));
    }
    let realm = format!("Digest realm=\"{at}-{callee}\"");
    match status {
        401 => response.set("WWW-Authenticate", &realm),
        407 => response.set("Proxy-Authenticate", &realm),
        302 => response.set("Contact", "<sip:bob@203.0.113.77>"),
        183 | 200 => response.body = format!("answer of {at}"),
        _ => {}
    }
    if stray {
        let via = response.first("Via").to_owned();
        let branch = parameter(&via, "branch").expect("the proxy's Via has a branch");
        response.set("Via", &via.replace(branch, &format!("{branch}x")));
    }
    response
}

/// Sets the route set. RFC 3261 §12.1.2: "The route set MUST be set to the list of URIs in the
/// Record-Route header field from the response, taken in reverse order".
fn route(request: &mut Message, response: &Message) {
    request.headers.retain(|(name, _)| name != "Route");
    for value in response.all("Record-Route").into_iter().rev() {
        request.headers.push(("Route".to_owned(), value.to_owned()));
    }
}

fn rebranch(request: &mut Message, number: usize) {
    let via = request.first("Via");
    let (head, _) = via.split_once(";branch=").expect("the parties' Vias end in a branch");
    request.set("Via", &format!("{head};branch={COOKIE}{number}"));
}

/// Returns the proxy's address as the parties know it.
pub fn proxy() -> SocketAddr {
    PROXY.parse().expect("an address")
}
