//! A listener of this proxy: its names in messages, and the targets that it reaches.

use std::net::{IpAddr, SocketAddr};

use tidegate_sip::{Host, Uri};
use tidegate_world::{Flow, Transport};

use crate::resolution::default_port;
use crate::settings::Listener;
use crate::target::Target;

/// A listener of this proxy, with values that are computed once because each message needs them.
pub(crate) struct Own {
    pub(crate) transport: Transport,
    pub(crate) local: SocketAddr,
    /// The beginning of our Via, such as `Via: SIP/2.0/UDP host:port;rport;branch=`.
    pub(crate) via: Box<str>,
    /// The end of our Record-Route, after the token: `@host:port;lr>` and CRLF.
    pub(crate) record_route: Box<str>,
    /// The end of our Record-Route in a SIPS URI, for a listener with TLS.
    pub(crate) record_route_sips: Box<str>,
    pub(crate) advertised: Box<str>,
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) ip: Option<IpAddr>,
    /// The host names in [`Listener::names`], without a final dot.
    names: Box<[Box<str>]>,
    /// The IP addresses in [`Listener::names`].
    ips: Box<[IpAddr]>,
    pub(super) listener: Listener,
}

impl Own {
    pub(super) fn new(listener: &Listener) -> Self {
        let advertised = listener.advertised.as_str();
        let transport = listener.transport;
        let (ips, names) = hosts(&listener.names);
        let usual = default_port(transport);
        let (host, port) = match advertised.parse::<SocketAddr>() {
            Ok(address) => (address.ip().to_string(), address.port()),
            Err(_) => match advertised.rsplit_once(':') {
                Some((host, port)) => (host.to_owned(), port.parse().unwrap_or(usual)),
                None => (advertised.to_owned(), usual),
            },
        };
        // RFC 3261 §19.1.1: "The transport parameter determines the transport mechanism to be
        // used"; UDP needs none.
        let parameter = match transport {
            Transport::Udp => String::new(),
            // RFC 7118 §5.2: "This document defines the value "ws" as the transport parameter value
            // for a SIP URI [RFC3986] to be contacted using the SIP WebSocket subprotocol as
            // transport." There is no separate value for WebSockets over TLS.
            Transport::Ws | Transport::Wss => ";transport=ws".to_owned(),
            _ => format!(";transport={}", transport.name().to_ascii_lowercase()),
        };
        Self {
            transport,
            local: listener.local,
            // RFC 3581 §3: a client that wants the response at its source port puts an rport into
            // its Via. We want this because we may be behind address translation.
            // RFC 3261 §18.1.1: "Before a request is sent, the client transport MUST insert a value
            // of the "sent-by" field into the Via header field."
            // RFC 3581 §3: "This parameter MUST have no value; it serves as a flag to indicate to
            // the server that this extension is supported and requested for the transaction."
            via: format!("Via: SIP/2.0/{transport} {advertised};rport;branch=").into(),
            // RFC 3261 §16.6: "The URI placed in the Record-Route header field value MUST be a SIP
            // or SIPS URI." "This URI MUST contain an lr parameter (see Section 19.1.1)." "The URI
            // SHOULD NOT contain the transport parameter unless the proxy has knowledge (such as in
            // a private network) that the next downstream element that will be in the path of
            // subsequent requests supports that transport." "The URI placed in the Record-Route
            // header field MUST resolve to the element inserting it (or a suitable stand-in) when
            // the server location procedures of [4] are applied to it, so that subsequent requests
            // reach the same SIP element."
            record_route: format!("@{advertised}{parameter};lr>\r\n").into(),
            // RFC 5630 §3.1.4 deprecates `transport=tls`. A SIPS URI needs none.
            record_route_sips: match transport {
                Transport::Tls => format!("@{advertised};lr>\r\n").into(),
                _ => format!("@{advertised};transport=ws;lr>\r\n").into(),
            },
            ip: host.parse().ok(),
            advertised: advertised.into(),
            host: host.into(),
            port,
            names,
            ips,
            listener: listener.clone(),
        }
    }

    /// Returns whether the host of `uri` is the advertised host or an IP address of this listener.
    pub(super) fn is_host(&self, uri: &Uri<'_>) -> bool {
        let Some(host) = uri.host else { return false };
        match host.ip() {
            Some(ip) => self.is_ip(ip),
            None => super::is_host(&host, &self.host),
        }
    }

    /// Returns whether the host of `uri` is one of the further [names](Listener::names) of this
    /// listener.
    pub(super) fn is_listed(&self, uri: &Uri<'_>) -> bool {
        uri.host.is_some_and(|host| self.has_name(&host))
    }

    /// Returns whether `host` is one of the further [names](Listener::names) of this listener, in
    /// any case, with or without a final dot. Returns false for an IP address.
    pub(super) fn has_name(&self, host: &Host<'_>) -> bool {
        let Host::Name(text) = *host else { return false };
        let text = text.strip_suffix(b".").unwrap_or(text);
        self.names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(text))
    }

    /// Returns whether packets to this IP address may arrive at this listener.
    pub(super) fn is_here(&self, ip: IpAddr) -> bool {
        self.is_ip(ip) || self.local.ip().is_unspecified() && ip.is_loopback()
    }

    pub(super) fn is_ip(&self, ip: IpAddr) -> bool {
        self.ip == Some(ip) || self.local.ip() == ip || self.ips.contains(&ip)
    }

    /// Returns the local address to which a message on `flow` was sent, if the listener has the
    /// wildcard address.
    pub(crate) fn asked(&self, flow: &Flow) -> Option<IpAddr> {
        self.local.ip().is_unspecified().then(|| flow.local.ip())
    }

    /// Returns whether other instances of the proxy listen at the same address.
    pub(crate) fn is_shared(&self) -> bool {
        self.listener.shared
    }

    /// Returns whether a message to `target` may leave from this listener. The transport must be
    /// the same.
    pub(super) fn reaches(&self, target: &Target) -> bool {
        self.transport == target.transport && self.reaches_address(target.address)
    }

    /// Returns whether a message to `target` may leave from this listener, over any transport. A
    /// socket that is bound to a loopback address reaches only this machine.
    pub(super) fn reaches_address(&self, target: SocketAddr) -> bool {
        let own = self.local.ip();
        own.is_ipv4() == target.is_ipv4() && (!own.is_loopback() || target.ip().is_loopback())
    }

    pub(super) fn is_port(&self, port: u16) -> bool {
        port == self.port || port == self.local.port()
    }
}

/// Separates these hosts into IP addresses and host names. The names have no final dot.
fn hosts(all: &[String]) -> (Box<[IpAddr]>, Box<[Box<str>]>) {
    let ip = |host: &String| Host::parse(host.as_bytes())?.ip();
    let name = |host: &&String| ip(host).is_none();
    let bare = |host: &String| Box::<str>::from(host.strip_suffix('.').unwrap_or(host));
    (all.iter().filter_map(ip).collect(), all.iter().filter(name).map(bare).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: our Via and Record-Route had the scope of the address, so no other element
    /// could read them.
    ///
    /// RFC 3261 §25.1: "IPv6reference = "[" IPv6address "]"".
    #[test]
    fn a_link_local_address_is_advertised_without_its_scope() {
        let own = Own::new(&Listener::new("[fe80::1%3]:5060".parse().unwrap()));
        assert_eq!(&*own.via, "Via: SIP/2.0/UDP [fe80::1]:5060;rport;branch=");
        assert_eq!(&*own.record_route, "@[fe80::1]:5060;lr>\r\n");
    }
}
