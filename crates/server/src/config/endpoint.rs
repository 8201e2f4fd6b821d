//! The location of a server in a configuration: an address, a host name or a domain.

use std::fmt;
use std::net::SocketAddr;

use super::address::{HostPort, is_host_name, sip_address, unbracketed};
use super::shape::Wrong;

/// The location of a server, from the `uri` of a back end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port.
    Address(SocketAddr),
    /// A host name and a port. Resolving the name gives the addresses.
    Name(HostPort),
    /// A domain, in lower case. The DNS lists its servers (RFC 3263).
    Domain(String),
}

impl Endpoint {
    /// Returns the address, or `None` if the location is a host name or a domain.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name(_) | Self::Domain(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Domain(domain) => domain.fmt(f),
        }
    }
}

/// Reads a location: `sip:ADDRESS:PORT`, `sip:ADDRESS`, `sip:NAME:PORT` or `sip:DOMAIN`. An address
/// without a port gets port 0, which stands for the default port of the pool's transport.
pub(super) fn server(text: &str) -> Result<Endpoint, Wrong> {
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err("not a SIP URI".into());
    };
    if scheme.eq_ignore_ascii_case("sips") {
        let help = "write `sip:`, and `transport = \"tls\"` in the `[[pool]]` of this back end";
        return Err(Wrong::with_help("TLS is set for the whole pool, not in the URI", help));
    }
    if !scheme.eq_ignore_ascii_case("sip") {
        // `localhost:5070` has no scheme, and `http://10.0.0.1` a wrong one.
        return Err(match endpoint(text) {
            Ok(endpoint) => Wrong::with_help("no `sip:`", format!("write `\"sip:{endpoint}\"`")),
            Err(_) => "not a SIP URI".into(),
        });
    }
    let (user, rest) = match rest.split_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let (host, parameters) = rest.split_at(rest.find([';', '?']).unwrap_or(rest.len()));
    let bare = || format!("write `\"sip:{}\"`", host.escape_debug());
    if user.is_some() {
        return Err(Wrong::with_help("the URI names a user, not a server", bare()));
    }
    if let Some(transport) = parameters.strip_prefix(";transport=") {
        let key = transport.to_ascii_lowercase();
        let help = format!(
            "{}, and `transport = \"{}\"` in the `[[pool]]` of this back end",
            bare(),
            key.escape_debug()
        );
        return Err(Wrong::with_help(
            "a back end cannot set its own transport: the pool sets it for all its back ends",
            help,
        ));
    }
    if !parameters.is_empty() {
        return Err(Wrong::with_help(
            "this version does not support parameters or headers in this URI",
            bare(),
        ));
    }
    endpoint(host)
}

fn endpoint(text: &str) -> Result<Endpoint, Wrong> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    // An IPv4 address has no letter, and an IPv6 address still has a colon here.
    let is_name = host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !host.starts_with('[')
        && !host.contains(':')
        && unbracketed(text).parse::<std::net::IpAddr>().is_err();
    if !is_name {
        let mut address = sip_address(text)?;
        if unbracketed(text).parse::<std::net::IpAddr>().is_ok() {
            address.set_port(0);
        }
        return Ok(Endpoint::Address(address));
    }
    // A name that ends with a dot is absolute: no search list is tried (RFC 3261 §25.1).
    if !is_host_name(host.strip_suffix('.').unwrap_or(host)) {
        let help = "write labels with dots between them; a label has 1 to 63 letters, digits and \
                    hyphens, and no hyphen at its ends; the last label begins with a letter (RFC \
                    1123 §2.1)";
        return Err(Wrong::with_help("not a host name", help));
    }
    let host = host.to_ascii_lowercase();
    let port = match port.map(str::parse) {
        // RFC 3263 §4.2: "If no port was present in the URI, the client performs an SRV query".
        None => return Ok(Endpoint::Domain(host)),
        Some(Ok(0)) => return Err("no packet can be sent to port 0".into()),
        Some(Ok(port)) => port,
        Some(Err(_)) => return Err("the port is not a number from 1 to 65535".into()),
    };
    Ok(Endpoint::Name(HostPort { host, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> String {
        server(text).unwrap_err().label
    }

    fn help(text: &str) -> String {
        server(text).unwrap_err().help.expect("a remedy of its own")
    }

    #[test]
    fn servers_by_their_addresses() {
        let at = |text: &str| Ok(Endpoint::Address(text.parse().unwrap()));
        assert_eq!(server("sip:127.0.0.1:5070"), at("127.0.0.1:5070"));
        assert_eq!(server("SIP:127.0.0.1"), at("127.0.0.1:0"));
        assert_eq!(server("sip:[::1]"), at("[::1]:0"));
        assert_eq!(server("sip:[2001:db8::a]:5070"), at("[2001:db8::a]:5070"));
        assert_eq!(help("127.0.0.1:5070"), "write `\"sip:127.0.0.1:5070\"`");
        assert_eq!(help("sip:::1"), "write `\"sip:[::1]:5060\"`");
        assert_eq!(help("sip:2001:db8::a"), "write `\"sip:[2001:db8::a]:5060\"`");
        assert_eq!(help("sip:alice@10.0.0.1"), "write `\"sip:10.0.0.1\"`");
        assert_eq!(help("sip:10.0.0.1;lr"), "write `\"sip:10.0.0.1\"`");
        assert_eq!(
            help("sip:10.0.0.1;transport=TCP"),
            "write `\"sip:10.0.0.1\"`, and `transport = \"tcp\"` in the `[[pool]]` of this back \
             end",
        );
        assert_eq!(help("sip:[::ffff:10.0.0.1]:5060"), "write `10.0.0.1`");
        assert_eq!(label("sips:10.0.0.1"), "TLS is set for the whole pool, not in the URI");
        assert_eq!(label("sip:0.0.0.0:5060"), "no packet can be sent to the wildcard address");
        assert_eq!(label("sip:10.0.0.1:0"), "no packet can be sent to port 0");
        assert_eq!(
            label("sip:224.0.1.75"),
            "a multicast or broadcast address, not the address of one machine"
        );
        assert_eq!(label("http://10.0.0.1"), "not a SIP URI");
    }

    #[test]
    fn servers_by_their_names() {
        let named = |text: &str| match server(text) {
            Ok(Endpoint::Name(name)) => name.to_string(),
            Ok(Endpoint::Domain(domain)) => domain,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(named("sip:kam1.Example.com:5070"), "kam1.example.com:5070");
        assert_eq!(named("sip:kam1:5060"), "kam1:5060");
        assert_eq!(named("sip:Kam1"), "kam1", "a domain, whose servers the DNS lists");
        assert_eq!(named("sip:1and1.example."), "1and1.example.");
        assert_eq!(named("sip:abc.de"), "abc.de", "hexadecimal digits make no address");
        assert_eq!(help("localhost:5070"), "write `\"sip:localhost:5070\"`");
        assert_eq!(help("sip:alice@kam1.example.com"), "write `\"sip:kam1.example.com\"`");
        let long = format!("sip:{}.example", "a".repeat(64));
        let longest = format!("sip:{}example", "abcdefg.".repeat(32));
        for wrong in [
            "sip:under_score.example",
            "sip:-a.example",
            "sip:a-.example",
            "sip:a..example",
            "sip:a.example..",
            "sip:.example",
            "sip:a.example.1",
            "sip:bücher.example",
            "sip:a b.example",
            &long,
            &longest,
        ] {
            assert_eq!(label(wrong), "not a host name", "{wrong}");
        }
        assert_eq!(label("sip:a.example:0"), "no packet can be sent to port 0");
        assert_eq!(label("sip:a.example:99999"), "the port is not a number from 1 to 65535");
        assert_eq!(label("sip:a.example:"), "the port is not a number from 1 to 65535");
    }
}
