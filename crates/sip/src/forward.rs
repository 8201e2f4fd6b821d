//! The edits that a proxy makes to a message (RFC 3261 §16.4, §16.6, §16.7, §18.2.1; RFC 3581).
//!
//! Each function adds edits to a [`Splice`] over the same message. No part of the message may be
//! edited twice. For example, if the calling code writes to a top Via that is also removed, the
//! message cannot be written.

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::element::split_element;
use crate::lexical::trim_start;
use crate::via::Answering;
use crate::{HeaderName, Message, Splice, Via};

/// Returns the position of the first header line, where a new Via or Record-Route line is inserted.
///
/// RFC 3261 §16.6(8) and (4): the Via and the Record-Route are each inserted before any other
/// header of their name.
pub fn top_of_headers(message: &Message<'_>) -> usize {
    message.headers_start()
}

/// Replaces the Request-URI with `uri` (RFC 3261 §16.6(2)).
///
/// # Panics
/// Panics if the message is a response.
pub fn set_request_uri<'a>(splice: &mut Splice<'a>, message: &Message<'a>, uri: &'a [u8]) {
    let old = message.request_uri().expect("only a request has a Request-URI");
    splice.replace(message.span(old), uri);
}

/// Replaces the Max-Forwards value with `value`, or inserts a line with it at the top of the
/// headers (RFC 3261 §16.6(3)).
pub fn set_max_forwards<'a>(splice: &mut Splice<'a>, message: &Message<'a>, value: &'a [u8]) {
    set_number(splice, message, HeaderName::MaxForwards, b"Max-Forwards: ", value);
}

/// Replaces the Content-Length value with `value`, or inserts a line with it at the top of the
/// headers (RFC 3261 §16.6(10)).
pub fn set_content_length<'a>(splice: &mut Splice<'a>, message: &Message<'a>, value: &'a [u8]) {
    set_number(splice, message, HeaderName::ContentLength, b"Content-Length: ", value);
}

fn set_number<'a>(
    splice: &mut Splice<'a>,
    message: &Message<'a>,
    name: HeaderName,
    begin: &'static [u8],
    value: &'a [u8],
) {
    match message.field(name) {
        Some(field) => splice.replace(message.span(field.value), value),
        None => {
            let at = top_of_headers(message);
            splice.insert(at, begin);
            splice.insert(at, value);
            splice.insert(at, b"\r\n");
        }
    }
}

/// Removes the first Via element (RFC 3261 §16.7(3)), or its whole line if the line has no other
/// element. Returns `false` if there is no Via or the first Via is malformed.
pub fn remove_top_via<'a>(splice: &mut Splice<'a>, message: &Message<'a>) -> bool {
    remove_first(splice, message, HeaderName::Via, 1) == 1
}

/// Removes the first `n` Route elements, whether they are on one line or several (RFC 3261 §16.4),
/// and returns the number of removed elements.
///
/// `n` is the number of elements that name this proxy: one, or two if the proxy record-routes
/// twice.
pub fn remove_first_route<'a>(splice: &mut Splice<'a>, message: &Message<'a>, n: usize) -> usize {
    remove_first(splice, message, HeaderName::Route, n)
}

/// Replaces all Route lines with `line`, which is a whole header line or empty.
pub fn replace_routes<'a>(splice: &mut Splice<'a>, message: &Message<'a>, line: &'a [u8]) {
    let mut line = Some(line);
    for field in message.fields_of(HeaderName::Route) {
        splice.replace(message.span(field.line), line.take().unwrap_or_default());
    }
    if let Some(line) = line {
        splice.insert(top_of_headers(message), line);
    }
}

/// Replaces the Max-Breadth value with `value`, or inserts a line with it at the top of the headers
/// (RFC 5393 §5.3.3).
pub fn set_max_breadth<'a>(splice: &mut Splice<'a>, message: &Message<'a>, value: &'a [u8]) {
    set_number(splice, message, HeaderName::MaxBreadth, b"Max-Breadth: ", value);
}

/// The source of a request, as parameters of its top Via.
#[derive(Clone, Debug)]
pub struct Source {
    address: SocketAddr,
    /// The text of the `received` parameter, formatted when it is first needed.
    received: OnceCell<ArrayVec<u8, 64>>,
    /// The text of the `rport` parameter, formatted when it is first needed.
    rport: OnceCell<ArrayVec<u8, 16>>,
}

impl Source {
    /// Creates the parameters for a request from `address`.
    pub fn new(address: SocketAddr) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { address, received: OnceCell::new(), rport: OnceCell::new() }
    }

    /// Returns the `received` parameter with its leading semicolon.
    fn received(&self) -> &[u8] {
        self.received.get_or_init(|| {
            let mut received = ArrayVec::new();
            extend(&mut received, b";received=");
            write_ip(&mut received, self.address.ip());
            received
        })
    }

    fn rport(&self) -> &[u8] {
        self.rport.get_or_init(|| {
            let mut rport = ArrayVec::new();
            extend(&mut rport, b"rport=");
            extend(&mut rport, itoa::Buffer::new().format(self.address.port()).as_bytes());
            rport
        })
    }
}

/// Records the source of the request in `via`, the first Via of the message: `received` as RFC 3261
/// §18.2.1 says, `rport` and `received` as RFC 3581 §4 says. Replaces values of these parameters
/// that the sender wrote itself, so that the sender cannot direct responses elsewhere.
pub fn record_source<'a>(
    splice: &mut Splice<'a>,
    message: &Message<'a>,
    via: &Via<'a>,
    source: &'a Source,
) {
    let noting = Noting::of(via, source.address.ip());
    noting.edit(splice, |part| message.span(part), via.element, source);
}

/// The changes that record the source of a request in its top Via.
pub(crate) struct Noting<'v> {
    /// The text of the `rport` parameter that the Via already has.
    rport: Option<&'v [u8]>,
    /// The text of the `received` parameter that the Via already has.
    received: Option<&'v [u8]>,
    is_sent_by: bool,
}

impl<'v> Noting<'v> {
    /// Returns the changes to the top Via of a request from `source`.
    #[inline]
    pub(crate) fn of(via: &Via<'v>, source: IpAddr) -> Self {
        let Answering { rport, received, .. } = via.answering;
        Self { rport, received, is_sent_by: came_from_sent_by(via, source) }
    }

    /// Returns whether the Via must be changed: it has an `rport` or a `received`, or its sent-by
    /// is not the source.
    pub(crate) fn changes(&self) -> bool {
        self.rport.is_some() || self.received.is_some() || !self.is_sent_by
    }

    /// Adds the edits for the Via element `element` to `splice`. `span` returns the position of a
    /// part of the message.
    #[inline]
    pub(crate) fn edit<'a>(
        &self,
        splice: &mut Splice<'a>,
        span: impl Fn(&[u8]) -> Range<usize>,
        element: &[u8],
        source: &'a Source,
    ) {
        if let Some(rport) = self.rport {
            // RFC 3581 §4: "it MUST set the value of the parameter to the source port of
            // the request".
            splice.replace(span(rport), source.rport());
        }
        if let Some(received) = self.received {
            splice.replace(span(received), &source.received()[1..]);
        // RFC 3581 §4: "In fact, the server MUST insert a "received" parameter containing the
        // source IP address that the request came from, even if it is identical to the value of the
        // "sent-by" component."
        } else if self.changes() {
            splice.insert(span(element).end, source.received());
        }
    }
}

/// Returns whether the sent-by of the Via is the IP address from which the packet came. Otherwise
/// the Via needs a `received` parameter.
///
/// RFC 3261 §18.2.1: "If the host portion of the "sent-by" parameter contains a domain
/// name, or if it contains an IP address that differs from the packet source address,
/// the server MUST add a "received" parameter".
///
/// RFC 3261 §18.2.1: "When the server transport receives a request over any transport, it MUST
/// examine the value of the "sent-by" parameter in the top Via header field value." "This parameter
/// MUST contain the source address from which the packet was received."
fn came_from_sent_by(via: &Via<'_>, source: IpAddr) -> bool {
    via.host.ip() == Some(source.to_canonical())
}

fn remove_first<'a>(
    splice: &mut Splice<'a>,
    message: &Message<'a>,
    name: HeaderName,
    n: usize,
) -> usize {
    let mut removed = 0;
    if n == 0 {
        return 0;
    }
    for field in message.fields_of(name) {
        let mut rest = Some(field.value);
        while removed < n
            && let Some((_, after)) = rest.and_then(split_element)
        {
            rest = after;
            removed += 1;
        }
        let Some(rest) = rest else {
            splice.remove(message.span(field.line));
            continue;
        };
        let stays = message.span(trim_start(rest)).start;
        let begin = message.span(field.value).start;
        splice.remove(begin..stays);
        break;
    }
    removed
}

fn write_ip(out: &mut ArrayVec<u8, 64>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            for (i, octet) in ip.octets().into_iter().enumerate() {
                extend(out, if i == 0 { b"" } else { b"." });
                extend(out, itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        IpAddr::V6(ip) => {
            use std::io::Write;
            write!(out, "{ip}").expect("an address has at most 45 characters");
        }
    }
}

fn extend<const N: usize>(out: &mut ArrayVec<u8, N>, text: &[u8]) {
    out.try_extend_from_slice(text).expect("room for the longest address or port");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message with the header lines `lines`, edited by `edit`, without its start line
    /// and its empty line.
    fn edited(lines: &str, edit: impl Fn(&mut Splice<'static>, &Message<'static>)) -> String {
        let start = "OPTIONS sip:a SIP/2.0\r\n";
        let bytes: &'static [u8] = format!("{start}{lines}\r\n").leak().as_bytes();
        let message = Message::parse(bytes).unwrap();
        let mut splice = Splice::new(&message);
        edit(&mut splice, &message);
        let mut out = Vec::new();
        splice.write_to(&mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        out.strip_prefix(start).unwrap().strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn max_forwards_is_replaced_or_inserted() {
        let set = |lines| edited(lines, |s, m| set_max_forwards(s, m, b"69"));
        assert_eq!(set("To: a\r\nMax-Forwards :\t 70 \r\n"), "To: a\r\nMax-Forwards :\t 69 \r\n");
        assert_eq!(set("To: a\r\n"), "Max-Forwards: 69\r\nTo: a\r\n");
        assert_eq!(set("MAX-FORWARDS:\r\n"), "MAX-FORWARDS:69\r\n");
    }

    #[test]
    fn max_breadth_is_replaced_or_inserted() {
        let set = |lines| edited(lines, |s, m| set_max_breadth(s, m, b"30"));
        assert_eq!(set("To: a\r\nmax-breadth: 60\r\n"), "To: a\r\nmax-breadth: 30\r\n");
        assert_eq!(set("To: a\r\n"), "Max-Breadth: 30\r\nTo: a\r\n");
    }

    #[test]
    fn all_routes_are_replaced_by_one_line() {
        let replace = |lines| edited(lines, |s, m| replace_routes(s, m, b"Route: <sip:n>\r\n"));
        assert_eq!(
            replace("Route: <sip:a>, <sip:b>\r\nTo: x\r\nroute: <sip:c>\r\n"),
            "Route: <sip:n>\r\nTo: x\r\n"
        );
        assert_eq!(replace("To: x\r\n"), "Route: <sip:n>\r\nTo: x\r\n");
    }

    #[test]
    fn the_request_uri_is_replaced_and_nothing_else() {
        let bytes = b"OPTIONS sip:a SIP/2.0\r\nTo: <sip:a>\r\n\r\n";
        let message = Message::parse(bytes).unwrap();
        let mut splice = Splice::new(&message);
        set_request_uri(&mut splice, &message, b"sip:b@c:5070");
        let mut out = Vec::new();
        splice.write_to(&mut out).unwrap();
        assert_eq!(out, b"OPTIONS sip:b@c:5070 SIP/2.0\r\nTo: <sip:a>\r\n\r\n");
    }

    #[test]
    fn the_top_via_goes_with_its_line_or_out_of_it() {
        let remove = |lines| {
            edited(lines, |s, m| {
                remove_top_via(s, m);
            })
        };
        assert_eq!(remove("Via: A/1/B a\r\nVia: A/1/B b\r\n"), "Via: A/1/B b\r\n");
        assert_eq!(remove("To: x\r\nv: A/1/B a\r\n ,\r\n  A/1/B b\r\n"), "To: x\r\nv: A/1/B b\r\n");
        assert_eq!(remove("v: A/1/B a;x=\",\",A/1/B b , c\r\n"), "v: A/1/B b , c\r\n");
        assert_eq!(remove("To: x\r\n"), "To: x\r\n");
        assert_eq!(remove("Via: ,\r\nVia: a\r\n"), "Via: ,\r\nVia: a\r\n");
    }

    #[test]
    fn routes_go_across_lines() {
        let remove = |n, lines| {
            edited(lines, |s, m| {
                remove_first_route(s, m, n);
            })
        };
        let lines =
            "Route: <sip:a>, <sip:b>\r\nTo: x\r\nRoute: <sip:c>,<sip:d>\r\nRoute: <sip:e>\r\n";
        assert_eq!(remove(0, lines), lines);
        assert_eq!(
            remove(1, lines),
            "Route: <sip:b>\r\nTo: x\r\nRoute: <sip:c>,<sip:d>\r\nRoute: <sip:e>\r\n"
        );
        assert_eq!(remove(2, lines), "To: x\r\nRoute: <sip:c>,<sip:d>\r\nRoute: <sip:e>\r\n");
        assert_eq!(remove(3, lines), "To: x\r\nRoute: <sip:d>\r\nRoute: <sip:e>\r\n");
        assert_eq!(remove(9, lines), "To: x\r\n");
        assert_eq!(
            remove(2, "Route: <sip:a>, , <sip:b>\r\nRoute: <sip:c>\r\n"),
            "Route: , <sip:b>\r\nRoute: <sip:c>\r\n"
        );
    }

    fn noted(via: &str, source: &'static str) -> String {
        let source: &'static Source = Box::leak(Box::new(Source::new(source.parse().unwrap())));
        edited(&format!("Via: {via}\r\n"), |s, m| {
            record_source(s, m, &m.top_via().unwrap(), source)
        })
    }

    /// RFC 3261 §18.2.1.
    ///
    /// RFC 3261 §18.2.1: "When the server transport receives a request over any transport, it MUST
    /// examine the value of the "sent-by" parameter in the top Via header field value." "If the
    /// host portion of the "sent-by" parameter contains a domain name, or if it contains an IP
    /// address that differs from the packet source address, the server MUST add a "received"
    /// parameter to that Via header field value." "This parameter MUST contain the source address
    /// from which the packet was received."
    #[test]
    fn received_is_added_if_sent_by_differs() {
        assert_eq!(
            noted("SIP/2.0/UDP bobspc.biloxi.com:5060", "192.0.2.4:5060"),
            "Via: SIP/2.0/UDP bobspc.biloxi.com:5060;received=192.0.2.4\r\n"
        );
        assert_eq!(
            noted("SIP/2.0/UDP 192.0.2.4", "192.0.2.4:999"),
            "Via: SIP/2.0/UDP 192.0.2.4\r\n"
        );
        assert_eq!(
            noted("SIP/2.0/UDP a;branch=x , SIP/2.0/UDP b", "[2001:db8::1]:5060"),
            "Via: SIP/2.0/UDP a;branch=x;received=2001:db8::1 , SIP/2.0/UDP b\r\n"
        );
        // A dual-stack socket shows IPv4 peers as mapped addresses.
        assert_eq!(
            noted("SIP/2.0/UDP 192.0.2.4", "[::ffff:192.0.2.4]:9"),
            "Via: SIP/2.0/UDP 192.0.2.4\r\n"
        );
    }

    /// RFC 3581 §4: the port is filled in, and received added "even if it is
    /// identical to the value of the "sent-by" component"; §6.1 has the example.
    ///
    /// RFC 3581 §4: "In fact, the server MUST insert a "received" parameter containing the source
    /// IP address that the request came from, even if it is identical to the value of the "sent-by"
    /// component."
    #[test]
    fn rport_is_filled_in() {
        assert_eq!(
            noted("SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bKkjshdyff", "192.0.2.1:9988"),
            "Via: SIP/2.0/UDP 10.1.1.1:4540;rport=9988;branch=z9hG4bKkjshdyff;received=192.0.2.1\r\n"
        );
        assert_eq!(
            noted("SIP/2.0/UDP 192.0.2.1;rport", "192.0.2.1:5060"),
            "Via: SIP/2.0/UDP 192.0.2.1;rport=5060;received=192.0.2.1\r\n"
        );
    }

    #[test]
    fn the_received_parameter_of_the_sender_is_replaced() {
        assert_eq!(
            noted("SIP/2.0/UDP a;received=203.0.113.9;rport=1;x", "192.0.2.1:9988"),
            "Via: SIP/2.0/UDP a;received=192.0.2.1;rport=9988;x\r\n"
        );
        assert_eq!(
            noted("SIP/2.0/UDP 192.0.2.1;Received = \"x\" ;x", "192.0.2.1:9988"),
            "Via: SIP/2.0/UDP 192.0.2.1;received=192.0.2.1 ;x\r\n"
        );
    }
}
