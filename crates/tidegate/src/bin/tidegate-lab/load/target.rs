//! The target of a generator on the command line.

use std::net::{SocketAddr, ToSocketAddrs};

use tidegate_sip::Uri;
use tidegate_world::Transport;

use super::streams::parse_transport;
use tidegate::trouble::Trouble;

/// The user to call or to register, and the address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URI of the user.
    pub uri: String,
    /// The host as given on the command line, without brackets.
    pub host: String,
    address: SocketAddr,
    has_port: bool,
    /// The transport that the URI names, or `None` if it names none.
    transport: Option<Transport>,
}

impl Target {
    /// Returns the transport of the requests: the one that the option `--transport` names
    /// (`asked`), or else the one in the URI, or else UDP.
    ///
    /// RFC 3263 §4.1: "If the URI specifies a transport protocol in the transport parameter, that transport
    /// protocol SHOULD be used."
    pub fn transport(&self, asked: Option<Transport>) -> Result<Transport, Trouble> {
        match (asked, self.transport) {
            // RFC 7118 §5.2 defines one value for WebSockets with and without TLS.
            (Some(Transport::Wss), Some(Transport::Ws)) => Ok(Transport::Wss),
            (Some(asked), Some(named)) if asked != named => Err(Trouble::usage(format!(
                "--transport {} contradicts the target, which has transport={}: leave one out",
                asked.name().to_lowercase(),
                named.name().to_lowercase()
            ))),
            (asked, named) => Ok(asked.or(named).unwrap_or(Transport::Udp)),
        }
    }

    /// Returns the address of the server. If the target has no port, the port is the default of
    /// `transport`.
    pub fn address(&self, transport: Transport) -> SocketAddr {
        let mut address = self.address;
        if !self.has_port {
            address.set_port(default_port(transport));
        }
        address
    }

    /// Returns the value of `Host` in a request for a WebSocket.
    ///
    /// RFC 6455 §4.1: "The request MUST contain a |Host| header field whose value contains /host/ plus
    /// optionally ":" followed by /port/ (when not using the default port)."
    pub fn http_host(&self, transport: Transport) -> String {
        let (bare, port) = (&self.host, self.address(transport).port());
        let host = if bare.contains(':') { format!("[{bare}]") } else { bare.clone() };
        if port == default_port(transport) { host } else { format!("{host}:{port}") }
    }
}

/// Returns the port of a server if its URI has no port.
fn default_port(transport: Transport) -> u16 {
    match transport {
        // RFC 3261 §19.1.2.
        Transport::Udp | Transport::Tcp => 5060,
        Transport::Tls => 5061,
        // RFC 7118 §5.5: "the default port for a SIP URI using the "sip" scheme and the "ws" transport
        // parameter is 80, and the default port for a SIP URI using the "sips" scheme and the "ws" transport
        // parameter is 443."
        Transport::Ws => 80,
        Transport::Wss => 443,
    }
}

/// The error for a URI with `transport=wss`.
const NO_WSS: &str = "a URI has transport=ws for WebSockets with and without TLS (RFC 7118 §5.2): \
                      write transport=ws, and add --transport wss";

/// Parses the transport parameter of a URI.
fn parse_parameter(value: &str) -> Result<Transport, String> {
    match parse_transport(value)? {
        Transport::Wss => Err(NO_WSS.to_owned()),
        transport => Ok(transport),
    }
}

/// Parses `HOST[:PORT]` or `sip:USER@HOST[:PORT]`.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let (user, host) = match text.strip_prefix("sip:") {
        Some(rest) => match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        },
        None => (None, text),
    };
    let parameters = host.split_once('?').map_or(host, |(before, _)| before);
    let host = parameters.split(';').next().unwrap_or_default();
    let named = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.eq_ignore_ascii_case("transport").then_some(value)
    });
    let wanted = "expected HOST[:PORT] or sip:USER@HOST[:PORT]";
    let address = host
        .to_socket_addrs()
        .or_else(|_| format!("{host}:5060").to_socket_addrs())
        .map_err(|error| format!("{wanted}: {error}"))?
        .next()
        .ok_or_else(|| format!("{wanted}: the name has no address"))?;
    let uri = match user {
        None if text == host => format!("sip:service@{host}"),
        _ => text.to_owned(),
    };
    let parsed = Uri::parse(uri.as_bytes()).map_err(|_| wanted.to_owned())?;
    let bare = host.rsplit_once(':').filter(|_| parsed.port.is_some()).map_or(host, |(h, _)| h);
    Ok(Target {
        host: bare.trim_matches(['[', ']']).to_owned(),
        has_port: parsed.port.is_some(),
        transport: named.map(parse_parameter).transpose()?,
        uri,
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_addresses_and_uris() {
        let target = |text| {
            parse_target(text).map(|t| (t.address(Transport::Udp).to_string(), t.uri, t.host))
        };
        let is = |uri: &str, address: &str, host: &str| {
            Ok((address.to_owned(), uri.to_owned(), host.to_owned()))
        };
        let local = "127.0.0.1";
        assert_eq!(target(local), is("sip:service@127.0.0.1", "127.0.0.1:5060", local));
        assert_eq!(target("127.0.0.1:70"), is("sip:service@127.0.0.1:70", "127.0.0.1:70", local));
        assert_eq!(target("[::1]:70"), is("sip:service@[::1]:70", "[::1]:70", "::1"));
        assert_eq!(target("[::1]"), is("sip:service@[::1]", "[::1]:5060", "::1"));
        assert_eq!(
            target("sip:bob@127.0.0.1:70"),
            is("sip:bob@127.0.0.1:70", "127.0.0.1:70", local)
        );
        assert_eq!(target("sip:127.0.0.1;x=y"), is("sip:127.0.0.1;x=y", "127.0.0.1:5060", local));
        assert!(target("").is_err() && target("a b").is_err() && target("127.0.0.1:x").is_err());
    }

    /// RFC 3263 §4.1: "If the URI specifies a transport protocol in the transport parameter, that transport
    /// protocol SHOULD be used."
    #[test]
    fn the_transport_comes_from_the_option_or_the_uri() {
        let plain = parse_target("127.0.0.1").unwrap();
        let named = parse_target("sip:bob@127.0.0.1;transport=TLS").unwrap();
        assert_eq!(plain.transport(None).unwrap(), Transport::Udp);
        assert_eq!(plain.transport(Some(Transport::Tcp)).unwrap(), Transport::Tcp);
        assert_eq!(named.transport(None).unwrap(), Transport::Tls);
        assert_eq!(named.transport(Some(Transport::Tls)).unwrap(), Transport::Tls);
        assert!(named.transport(Some(Transport::Tcp)).is_err());
        assert!(parse_target("sip:127.0.0.1;transport=carrier-pigeon").is_err());
        // RFC 3261 §19.1.2: the default port is 5061 over TLS.
        assert_eq!(named.address(Transport::Tls).port(), 5061);
        assert_eq!(parse_target("127.0.0.1:5060").unwrap().address(Transport::Tls).port(), 5060);
    }

    /// RFC 7118 §5.5: "In the absence of DNS SRV resource records or an explicit port, the default port for a
    /// SIP URI using the "sip" scheme and the "ws" transport parameter is 80".
    #[test]
    fn a_websocket_has_the_ports_of_http() {
        let named = parse_target("sip:bob@127.0.0.1;transport=ws").unwrap();
        assert_eq!(named.transport(None).unwrap(), Transport::Ws);
        assert_eq!(named.transport(Some(Transport::Wss)).unwrap(), Transport::Wss);
        assert!(named.transport(Some(Transport::Tls)).is_err());
        assert!(parse_target("sip:bob@127.0.0.1;transport=wss").is_err());
        assert_eq!(named.address(Transport::Ws).port(), 80);
        assert_eq!(named.address(Transport::Wss).port(), 443);
        for (target, host) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1:443", "127.0.0.1"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]", "[::1]"),
            ("[::1]:8443", "[::1]:8443"),
            ("sip:bob@127.0.0.1:8443;transport=ws", "127.0.0.1:8443"),
        ] {
            assert_eq!(parse_target(target).unwrap().http_host(Transport::Wss), host);
        }
    }
}
