//! A dialog as the caller sees it: where its requests go (RFC 3261 §12).

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, Message, NameAddr, Scheme, Uri};

/// Record-Route entries of a response at the most; one with more is not understood.
const HOPS_MAX: usize = 32;

/// Bytes of a dialog's texts at the most, so that a request always fits into a datagram.
pub(crate) const TEXT_MAX: usize = 8192;

const OPEN: &[u8] = b"Route: <";
const CLOSE: &[u8] = b">\r\n";

/// What a request within a dialog needs: three texts in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dialog {
    text: Box<[u8]>,
    uri_end: usize,
    routes_end: usize,
    hop: Option<SocketAddr>,
}

impl Dialog {
    /// The dialog that a 2xx establishes. `None` if the response lacks what it needs.
    pub fn learn(answer: &Message<'_>) -> Option<Self> {
        let target = answer.contacts().next()?.ok()?.uri;
        // RFC 3261 §12.1.2: "The route set MUST be set to the list of URIs in the
        // Record-Route header field from the response, taken in reverse order and
        // preserving all URI parameters."
        let mut hops = ArrayVec::<NameAddr<'_>, HOPS_MAX>::new();
        for hop in answer.record_routes() {
            hops.try_push(hop.ok()?).ok()?;
        }
        hops.reverse();
        let mut routes: ArrayVec<&[u8], HOPS_MAX> = hops.iter().map(|hop| hop.uri).collect();
        let mut uri = target;
        let mut hop = routes.first().copied().unwrap_or(target);
        // RFC 3261 §12.2.1.1: "If the route set is not empty, and its first URI does not
        // contain the lr parameter, the UAC MUST place the first URI from the route set
        // into the Request-URI … The UAC MUST then place the remote target URI into the
        // Route header field as the last value."
        if let Some(first) = routes.first().copied()
            && !Uri::parse(first).ok()?.lr()
        {
            routes.remove(0);
            routes.push(target);
            uri = first;
            hop = first;
        }
        Self::compose(uri, &routes, remote(answer)?, address(hop))
    }

    /// A dialog with the server at `uri` itself, whatever the response says of routes.
    pub fn without_routes(answer: &Message<'_>, uri: &[u8]) -> Option<Self> {
        Self::compose(uri, &[], remote(answer)?, None)
    }

    fn compose(uri: &[u8], routes: &[&[u8]], to: &[u8], hop: Option<SocketAddr>) -> Option<Self> {
        let routes_len: usize = routes.iter().map(|r| OPEN.len() + r.len() + CLOSE.len()).sum();
        let uri_end = uri.len();
        let routes_end = uri_end + routes_len;
        let len = routes_end + to.len();
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
        text.extend_from_slice(to);
        Some(Self { text: text.into_boxed_slice(), uri_end, routes_end, hop })
    }

    /// Request-URI.
    pub fn uri(&self) -> &[u8] {
        &self.text[..self.uri_end]
    }

    /// Route header lines.
    pub fn routes(&self) -> &[u8] {
        &self.text[self.uri_end..self.routes_end]
    }

    /// Value of the To header.
    pub fn to(&self) -> &[u8] {
        &self.text[self.routes_end..]
    }

    /// The next hop, if its address is numeric: there is no DNS here.
    pub fn hop(&self) -> Option<SocketAddr> {
        self.hop
    }
}

fn remote<'a>(answer: &Message<'a>) -> Option<&'a [u8]> {
    answer.field(HeaderName::To).map(|to| to.value)
}

/// Where a URI leads over UDP without DNS.
fn address(uri: &[u8]) -> Option<SocketAddr> {
    let uri = Uri::parse(uri).ok()?;
    let ip = uri.host.filter(|_| uri.scheme == Scheme::Sip)?.ip()?;
    Some(SocketAddr::new(ip, uri.port_or_default()))
}
