//! The edits of a proxy (RFC 3261 §16.4, §16.6, §16.7, §18.2.1; RFC 3581).
//!
//! Each function adds edits to a [`Splice`] over the same message. A piece of the
//! message must not be edited twice: to write a top Via that is to be removed, say,
//! is a bug and panics.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;

use crate::element::split_element;
use crate::lexical::trim_start;
use crate::{HeaderName, Malformed, Message, Splice, Via};

/// Where the first header line begins: the place for a new Via or Record-Route line.
///
/// §16.6(8) and (4): both stand before any other of their name.
pub fn top_of_headers(message: &Message<'_>) -> usize {
    message.headers_start()
}

/// Puts `uri` in the place of the Request-URI (§16.6(2)).
///
/// # Panics
/// If the message is a response.
pub fn set_request_uri<'a>(splice: &mut Splice<'a>, message: &Message<'a>, uri: &'a [u8]) {
    let old = message.request_uri().expect("only a request has a Request-URI");
    splice.replace(message.span(old), uri);
}

/// Puts `value` in the place of the Max-Forwards value, or inserts a line with it at
/// the top of the headers (§16.6(3)).
pub fn set_max_forwards<'a>(splice: &mut Splice<'a>, message: &Message<'a>, value: &'a [u8]) {
    match message.field(HeaderName::MaxForwards) {
        Some(field) => splice.replace(message.span(field.value), value),
        None => {
            let at = top_of_headers(message);
            splice.insert(at, b"Max-Forwards: ");
            splice.insert(at, value);
            splice.insert(at, b"\r\n");
        }
    }
}

/// Removes the first Via element, with its line if it stands there alone (§16.7(3)).
/// `false` if there is none, or it is broken.
pub fn remove_top_via<'a>(splice: &mut Splice<'a>, message: &Message<'a>) -> bool {
    remove_first(splice, message, HeaderName::Via, 1) == 1
}

/// Removes the first `n` Route elements, on whatever lines they stand (§16.4), and
/// returns how many there were to remove.
///
/// `n` is the number of elements known to name this proxy: one, or two when it
/// record-routes twice. Each line touched takes one of the splice's edits.
pub fn remove_first_route<'a>(splice: &mut Splice<'a>, message: &Message<'a>, n: usize) -> usize {
    remove_first(splice, message, HeaderName::Route, n)
}

/// Inserts `text`, which begins with a semicolon, after the last parameter of the
/// first Via.
///
/// # Errors
/// [`Malformed`] if there is no such Via; no edit is made.
pub fn append_to_top_via<'a>(
    splice: &mut Splice<'a>,
    message: &Message<'a>,
    text: &'a [u8],
) -> Result<(), Malformed> {
    splice.insert(message.span(message.top_via()?.element).end, text);
    Ok(())
}

/// Where a request came from, as parameters of its top Via.
#[derive(Clone, Debug)]
pub struct Source {
    address: SocketAddr,
    received: ArrayVec<u8, 64>,
    rport: ArrayVec<u8, 16>,
}

impl Source {
    /// Spells out the parameters for requests from `address`.
    pub fn new(address: SocketAddr) -> Self {
        let mut received = ArrayVec::new();
        extend(&mut received, b";received=");
        let ip = address.ip().to_canonical();
        write_ip(&mut received, ip);
        let mut rport = ArrayVec::new();
        extend(&mut rport, b"rport=");
        extend(&mut rport, itoa::Buffer::new().format(address.port()).as_bytes());
        Self { address: SocketAddr::new(ip, address.port()), received, rport }
    }
}

/// Notes in the first Via where the request came from: `received` as RFC 3261
/// §18.2.1 says, `rport` and `received` as RFC 3581 §4 says. Values that the sender
/// wrote there himself are replaced, so that he cannot direct responses elsewhere.
///
/// # Errors
/// [`Malformed`] if there is no such Via; no edit is made.
pub fn note_source<'a>(
    splice: &mut Splice<'a>,
    message: &Message<'a>,
    source: &'a Source,
) -> Result<(), Malformed> {
    let via = message.top_via()?;
    let rport = via.params.param("rport");
    if let Some(rport) = rport {
        // RFC 3581 §4: "it MUST set the value of the parameter to the source port of
        // the request".
        splice.replace(message.span(rport.text), &source.rport);
    }
    if let Some(received) = via.params.param("received") {
        splice.replace(message.span(received.text), &source.received[1..]);
    } else if rport.is_some() || !came_from_sent_by(&via, source) {
        splice.insert(message.span(via.element).end, &source.received);
    }
    Ok(())
}

/// RFC 3261 §18.2.1: "If the host portion of the sent-by parameter contains a domain
/// name, or if it contains an IP address that differs from the packet source address,
/// the server MUST add a received parameter".
fn came_from_sent_by(via: &Via<'_>, source: &Source) -> bool {
    via.host.ip() == Some(source.address.ip())
}

fn remove_first<'a>(
    splice: &mut Splice<'a>,
    message: &Message<'a>,
    name: HeaderName,
    n: usize,
) -> usize {
    let mut removed = 0;
    for field in message.fields().filter(|field| field.name == name) {
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
        if begin < stays {
            splice.remove(begin..stays);
        }
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
            write!(out, "{ip}").expect("an address has 45 characters at the most");
        }
    }
}

fn extend<const N: usize>(out: &mut ArrayVec<u8, N>, text: &[u8]) {
    out.try_extend_from_slice(text).expect("room for the longest address or port");
}
