//! The destination of a response, from the topmost Via of its request (RFC 3261 §18.2.2, RFC 3581 §4).

use std::net::{SocketAddr, SocketAddrV6};

use crate::host::address;
use crate::via::{Rport, Via, ViaTransport};

/// Returns the destination of a response with this top Via over an unreliable transport (RFC 3261
/// §18.2.2, RFC 3581 §4). Returns `None` if the address has to be found by resolving a name
/// (§18.2.2, RFC 3263 §5), or if the Via contains no usable address.
///
/// `maddr` is ignored: it is meant for multicast, which is not supported here. Over unicast it
/// would let a request direct its responses at a third party.
///
/// RFC 3261 §18.2.2: "It MUST follow the following process:" "Otherwise (for unreliable unicast
/// transports), if the top Via has a "received" parameter, the response MUST be sent to the address
/// in the "received" parameter, using the port indicated in the "sent-by" value, or using port 5060
/// if none is specified explicitly." "Otherwise, if it is not receiver-tagged, the response MUST be
/// sent to the address indicated by the "sent-by" value, using the procedures in Section 5 of
/// \[4\]."
///
/// RFC 3581 §4: "If the "sent-protocol" component indicates an unreliable unicast transport
/// protocol, such as UDP, and there is no "maddr" parameter, but there is both a "received"
/// parameter and an "rport" parameter, the response MUST be sent to the IP address listed in the
/// "received" parameter, and the port in the "rport" parameter."
pub fn response_target(via: &Via<'_>) -> Option<SocketAddr> {
    let sent_by_port = sent_by_port(via);
    let (ip, port) = match via.received() {
        // RFC 3581 §4: if both are present, to the address in received and the port in rport.
        Some(received) => match via.rport() {
            Some(Rport::Port(port)) => (address(received)?, port),
            _ => (address(received)?, sent_by_port),
        },
        None => (via.host.ip()?, sent_by_port),
    };
    (port != 0).then(|| SocketAddr::new(ip, port))
}

/// Returns the address to connect to for a response with this top Via, if the request's connection
/// is gone. Returns `None` if the Via contains no usable address.
///
/// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to
/// the IP address in the "received" parameter, if present, using the port in the "sent-by" value,
/// or the default port for that transport, if no port is specified." The `rport` is not used: it is
/// the source port of a connection, at which nothing listens. Nothing listens at port 0 either, so
/// port 0 counts as no port.
pub fn connection_target(via: &Via<'_>) -> Option<SocketAddr> {
    let ip = match via.received() {
        Some(received) => address(received)?,
        None => via.host.ip()?,
    };
    Some(SocketAddr::new(ip, listening_port(via)))
}

/// Returns the address to connect to for a response to a request from `source` with this top Via.
/// [`connection_target`] returns the same address after the source has been recorded in the Via,
/// but without the scope of a link-local address.
pub fn listener_target(via: &Via<'_>, source: SocketAddr) -> SocketAddr {
    at_port(source, listening_port(via))
}

/// Returns the destination of the response to a request from `source` with this top Via.
/// [`response_target`] returns the same destination after the source has been recorded in the Via,
/// but without the scope of a link-local address. The destination always has the IP address of
/// `source`. But its port may be 0.
#[inline]
pub fn reply_target(via: &Via<'_>, source: SocketAddr) -> SocketAddr {
    // RFC 3581 §4: the source port, for clients that ask for it. Any value that they write into the
    // parameter is replaced.
    let port = if via.answering.rport.is_some() { source.port() } else { sent_by_port(via) };
    at_port(source, port)
}

/// Returns the address of `source` with another port.
///
/// RFC 4007 §6: "Because the same non-global address may be in use in more than one zone of the
/// same scope [...], a node requires an internal means to identify to which zone a non-global
/// address belongs." Without the scope, the kernel selects any link for a link-local address. A Via
/// cannot contain the scope.
fn at_port(source: SocketAddr, port: u16) -> SocketAddr {
    match source {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), port, 0, v6.scope_id()).into()
        }
        _ => SocketAddr::new(source.ip().to_canonical(), port),
    }
}

fn sent_by_port(via: &Via<'_>) -> u16 {
    via.port.unwrap_or(default_port(via))
}

/// Returns the port at which the sender of a request with this Via may accept connections.
fn listening_port(via: &Via<'_>) -> u16 {
    via.port.filter(|&port| port != 0).unwrap_or(default_port(via))
}

fn default_port(via: &Via<'_>) -> u16 {
    match via.transport {
        ViaTransport::Tls => 5061,
        _ => 5060,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(text: &str) -> Via<'_> {
        Via::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?}"))
    }

    /// RFC 3261 §18.2.2: "It MUST follow the following process:" "Otherwise (for unreliable unicast
    /// transports), if the top Via has a "received" parameter, the response MUST be sent to the
    /// address in the "received" parameter, using the port indicated in the "sent-by" value, or
    /// using port 5060 if none is specified explicitly." "Otherwise, if it is not receiver-tagged,
    /// the response MUST be sent to the address indicated by the "sent-by" value, using the
    /// procedures in Section 5 of [4]."
    #[test]
    fn responses_go_where_the_request_came_from() {
        let target = |t: &'static str| response_target(&via(t)).map(|a| a.to_string());
        let to = |t: &str| Some(t.to_owned());
        // RFC 3261 §18.2.2.
        assert_eq!(target("SIP/2.0/UDP 192.0.2.1"), to("192.0.2.1:5060"));
        assert_eq!(target("SIP/2.0/UDP 192.0.2.1:5070"), to("192.0.2.1:5070"));
        assert_eq!(target("SIP/2.0/TLS 192.0.2.1"), to("192.0.2.1:5061"));
        assert_eq!(target("SIP/2.0/UDP a.example;received=192.0.2.9"), to("192.0.2.9:5060"));
        assert_eq!(target("SIP/2.0/UDP a.example:70;received=192.0.2.9"), to("192.0.2.9:70"));
        assert_eq!(target("SIP/2.0/UDP a.example"), None);
        // RFC 3581 §4: the example of §6.1.
        assert_eq!(
            target(
                "SIP/2.0/UDP 10.1.1.1:4540;received=192.0.2.1;rport=9988;branch=z9hG4bKkjshdyff"
            ),
            to("192.0.2.1:9988")
        );
        assert_eq!(target("SIP/2.0/UDP 192.0.2.1;rport=9988"), to("192.0.2.1:5060"));
        assert_eq!(target("SIP/2.0/UDP 10.1.1.1;received=192.0.2.1;rport"), to("192.0.2.1:5060"));
        // RFC 5118 §4.5: with brackets and without.
        assert_eq!(target("SIP/2.0/UDP [::1];received=2001:db8::9"), to("[2001:db8::9]:5060"));
        assert_eq!(target("SIP/2.0/UDP [::1];received=[2001:db8::9]"), to("[2001:db8::9]:5060"));
        // maddr is ignored. Nothing can be sent to port 0.
        assert_eq!(target("SIP/2.0/UDP 192.0.2.1;maddr=192.0.2.99"), to("192.0.2.1:5060"));
        assert_eq!(target("SIP/2.0/UDP 192.0.2.1:0"), None);
        assert_eq!(target("SIP/2.0/UDP 192.0.2.1;received=elsewhere.example"), None);
    }

    /// Found by fuzzing: the target of a reply and the target of a forwarded response must be the
    /// same.
    #[test]
    fn an_rport_that_is_no_port_asks_too() {
        let source = "192.0.2.9:4000".parse().unwrap();
        let target = |text: &'static str| reply_target(&via(text), source).port();
        assert_eq!(target("SIP/2.0/UDP a;rport=x"), 4000);
        assert_eq!(target("SIP/2.0/UDP a;rport=65536"), 4000);
        assert_eq!(target("SIP/2.0/UDP a;rport"), 4000);
        assert_eq!(target("SIP/2.0/UDP a;report"), 5060);
    }

    /// A regression: the target had no scope, so the kernel selected any link.
    ///
    /// RFC 4007 §6: "Because the same non-global address may be in use in more than one zone of the
    /// same scope [...], a node requires an internal means to identify to which zone a non-global
    /// address belongs."
    #[test]
    fn the_target_of_a_reply_keeps_the_scope_of_a_link_local_source() {
        let target = |text: &'static str, source: &str| {
            let (via, source) = (via(text), source.parse().unwrap());
            [reply_target(&via, source), listener_target(&via, source)].map(|at| at.to_string())
        };
        let link_local = "[fe80::7%3]:4000";
        let asked = target("SIP/2.0/UDP a:5070;rport", link_local);
        assert_eq!(asked, ["[fe80::7%3]:4000", "[fe80::7%3]:5070"]);
        assert_eq!(target("SIP/2.0/UDP a", link_local), ["[fe80::7%3]:5060"; 2]);
        assert_eq!(target("SIP/2.0/UDP a", "[2001:db8::7]:4000"), ["[2001:db8::7]:5060"; 2]);
        assert_eq!(target("SIP/2.0/UDP a", "[::ffff:192.0.2.9]:4000"), ["192.0.2.9:5060"; 2]);
    }

    #[test]
    fn a_connection_is_opened_to_the_port_in_sent_by() {
        let target = |text| connection_target(&via(text)).map(|at| at.to_string());
        let noted = "SIP/2.0/TCP 10.1.1.1:5070;received=192.0.2.9;rport=4000";
        assert_eq!(target(noted).as_deref(), Some("192.0.2.9:5070"));
        assert_eq!(target("SIP/2.0/TLS 192.0.2.9").as_deref(), Some("192.0.2.9:5061"));
        assert_eq!(target("SIP/2.0/TCP phone.example"), None);
        assert_eq!(target("SIP/2.0/TCP 192.0.2.9:0").as_deref(), Some("192.0.2.9:5060"));
        assert_eq!(target("SIP/2.0/TLS 192.0.2.9:0").as_deref(), Some("192.0.2.9:5061"));
        let came = via("SIP/2.0/TCP 10.1.1.1:5070;rport");
        let listener = listener_target(&came, "192.0.2.9:4000".parse().unwrap());
        assert_eq!(listener.to_string(), "192.0.2.9:5070", "as above");
        let zero = via("SIP/2.0/TCP 10.1.1.1:0;rport");
        let listener = listener_target(&zero, "192.0.2.9:4000".parse().unwrap());
        assert_eq!(listener.to_string(), "192.0.2.9:5060");
    }
}
