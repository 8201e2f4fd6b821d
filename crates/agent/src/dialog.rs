//! A dialog as one of its ends knows it, with the route of its requests (RFC 3261 §12).

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, Message, NameAddr, Scheme, Uri};
use tidegate_world::Transport;

/// Maximum number of entries of a route set. A message with more Record-Route entries creates no
/// dialog.
pub(crate) const HOPS_MAX: usize = 32;

/// Maximum length in bytes of the texts that a dialog adds to a request, so that the request always
/// fits into a datagram.
pub(crate) const TEXT_MAX: usize = 8192;

const OPEN: &[u8] = b"Route: <";
const CLOSE: &[u8] = b">\r\n";

/// The parts of a dialog that its requests need: Request-URI, Route lines and To, in one
/// allocation, and the address of the next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dialog {
    text: Box<[u8]>,
    uri_end: usize,
    routes_end: usize,
    hop: Option<SocketAddr>,
}

impl Dialog {
    /// Returns the caller's dialog from a 2xx, or `None` if the response lacks a necessary part.
    /// The requests of the dialog use `transport`.
    pub(crate) fn of_caller(answer: &Message<'_>, transport: Transport) -> Option<Self> {
        let target = answer.contacts().next()?.ok()?.uri;
        // RFC 3261 §12.1.2: "The route set MUST be set to the list of URIs in the
        // Record-Route header field from the response, taken in reverse order and
        // preserving all URI parameters."
        let mut routes = recorded(answer)?;
        routes.reverse();
        let to = answer.field(HeaderName::To)?.value;
        Self::along(target, routes, to, transport)
    }

    /// Returns the called party's dialog from our own 2xx. `target` is the URI in the Contact of
    /// the INVITE. The requests of the dialog use `transport`. Returns `None` if no dialog can be
    /// created.
    pub(crate) fn of_callee(
        target: &[u8],
        answer: &Message<'_>,
        transport: Transport,
    ) -> Option<Self> {
        // RFC 3261 §12.1.1: "The route set MUST be set to the list of URIs in the Record-Route
        // header field from the request, taken in order and preserving all URI parameters."
        // The response has them all, in the same order.
        let from = answer.field(HeaderName::From)?.value;
        Self::along(target, recorded(answer)?, from, transport)
    }

    /// Returns a dialog whose requests have the Request-URI `uri` and no Route. Ignores the
    /// Record-Route and the Contact of `answer`.
    pub(crate) fn without_routes(answer: &Message<'_>, uri: &[u8]) -> Option<Self> {
        Self::compose(uri, &[], answer.field(HeaderName::To)?.value, None)
    }

    fn along<'a>(
        target: &'a [u8],
        mut routes: Routes<'a>,
        remote: &[u8],
        transport: Transport,
    ) -> Option<Self> {
        let mut uri = target;
        let mut hop = routes.first().copied().unwrap_or(target);
        // RFC 3261 §12.2.1.1: "If the route set is not empty, and its first URI does not
        // contain the lr parameter, the UAC MUST place the first URI from the route set
        // into the Request-URI [...] The UAC MUST then place the remote target URI into the
        // Route header field as the last value."
        if let Some(first) = routes.first().copied()
            && !Uri::parse(first).ok()?.lr()
        {
            routes.remove(0);
            routes.push(target);
            uri = first;
            hop = first;
        }
        Self::compose(uri, &routes, remote, address(hop, transport))
    }

    fn compose(
        uri: &[u8],
        routes: &[&[u8]],
        remote: &[u8],
        hop: Option<SocketAddr>,
    ) -> Option<Self> {
        let routes_len: usize = routes.iter().map(|r| OPEN.len() + r.len() + CLOSE.len()).sum();
        let uri_end = uri.len();
        let routes_end = uri_end + routes_len;
        let len = routes_end + remote.len();
        if len > TEXT_MAX {
            return None;
        }
        let mut text = Vec::with_capacity(len);
        text.extend_from_slice(uri);
        for route in routes {
            text.extend_from_slice(OPEN);
            text.extend_from_slice(route);
            text.extend_from_slice(CLOSE);
        }
        text.extend_from_slice(remote);
        Some(Self { text: text.into_boxed_slice(), uri_end, routes_end, hop })
    }

    /// Returns the Request-URI of requests in the dialog.
    pub fn uri(&self) -> &[u8] {
        &self.text[..self.uri_end]
    }

    /// Returns the Route header lines of requests in the dialog.
    pub fn routes(&self) -> &[u8] {
        &self.text[self.uri_end..self.routes_end]
    }

    /// Returns the value of the To header of our requests: the address of the other end, with its
    /// tag.
    pub fn remote(&self) -> &[u8] {
        &self.text[self.routes_end..]
    }

    /// Returns the tag of the other end.
    pub(crate) fn remote_tag(&self) -> Option<&[u8]> {
        NameAddr::parse(self.remote())?.tag()
    }

    /// Returns the address of the next hop, or `None` if its host is a name, because agents do not
    /// use DNS.
    pub fn hop(&self) -> Option<SocketAddr> {
        self.hop
    }
}

type Routes<'a> = ArrayVec<&'a [u8], HOPS_MAX>;

/// Returns the URIs of all Record-Route header fields, in their order.
fn recorded<'a>(message: &Message<'a>) -> Option<Routes<'a>> {
    let mut routes = Routes::new();
    for hop in message.record_routes() {
        let hop: NameAddr<'a> = hop.ok()?;
        routes.try_push(hop.uri).ok()?;
    }
    Some(routes)
}

/// Returns the URI parameter for `transport` (RFC 3261 §19.1.1).
///
/// RFC 7118 §5.2: "This document defines the value "ws" as the transport parameter value for a SIP
/// URI". It defines no other value for WebSockets over TLS.
pub(crate) fn uri_parameter(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "",
        Transport::Tcp => ";transport=tcp",
        Transport::Tls => ";transport=tls",
        Transport::Ws | Transport::Wss => ";transport=ws",
    }
}

/// Returns the IP address and port of a `sip:` URI. A URI without a port has the default port of
/// `transport`. Returns `None` if the host is a name, or if the URI is not a valid `sip:` URI.
fn address(uri: &[u8], transport: Transport) -> Option<SocketAddr> {
    let uri = Uri::parse(uri).ok()?;
    let ip = uri.host.filter(|_| uri.scheme == Scheme::Sip)?.ip()?;
    // RFC 3261 §19.1.2: "The default port value is transport and scheme dependent. The default is
    // 5060 for sip: using UDP, TCP, or SCTP. The default is 5061 for sip: using TLS over TCP".
    let default = if transport == Transport::Tls { 5061 } else { 5060 };
    Some(SocketAddr::new(ip, uri.port.unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a port, ACK and BYE over TLS once went to port 5060, where no server listens for
    /// TLS.
    #[test]
    fn without_a_port_the_next_hop_has_the_default_port_of_the_transport() {
        let response = |headers: &str| {
            format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/TLS 192.0.2.1;branch=z9hG4bK1\r\n\
                 From: <sip:alice@192.0.2.1>;tag=a\r\nTo: <sip:bob@192.0.2.2>;tag=b\r\n\
                 Call-ID: one@192.0.2.1\r\nCSeq: 1 INVITE\r\n{headers}Content-Length: 0\r\n\r\n"
            )
        };
        let route = "Record-Route: <sip:192.0.2.9;transport=tls;lr>\r\n";
        for (transport, headers, hop) in [
            (Transport::Tls, "Contact: <sip:bob@192.0.2.2;transport=tls>\r\n", "192.0.2.2:5061"),
            (Transport::Tls, "Contact: <sip:bob@192.0.2.2:5070>\r\n", "192.0.2.2:5070"),
            (Transport::Tcp, "Contact: <sip:bob@192.0.2.2>\r\n", "192.0.2.2:5060"),
            (Transport::Udp, "Contact: <sip:bob@192.0.2.2>\r\n", "192.0.2.2:5060"),
        ] {
            let hop = Some(hop.parse::<SocketAddr>().expect("an address"));
            let text = response(headers);
            let answer = Message::parse(text.as_bytes()).expect("a response");
            let dialog = Dialog::of_caller(&answer, transport).expect("a dialog");
            assert_eq!(dialog.hop(), hop, "{transport:?} {headers}");
            let target = answer.contacts().next().expect("a Contact").expect("a URI").uri;
            let dialog = Dialog::of_callee(target, &answer, transport).expect("a dialog");
            assert_eq!(dialog.hop(), hop, "{transport:?} {headers}");
        }
        let text = response(&format!("{route}Contact: <sip:bob@192.0.2.2>\r\n"));
        let answer = Message::parse(text.as_bytes()).expect("a response");
        let dialog = Dialog::of_caller(&answer, Transport::Tls).expect("a dialog");
        assert_eq!(dialog.hop(), Some(([192, 0, 2, 9], 5061).into()));
    }
}
