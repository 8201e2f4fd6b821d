//! Words in a configuration: names, methods, domains, directories, and the source and destination
//! of a route.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use rustls::pki_types::ServerName;
use tidegate_proxy::Senders;
use tidegate_sip::{Scheme, Uri};

use super::address::{in_uri, is_host_name, network, not_a_host, unbracketed};
use super::shape::Wrong;

/// The methods of RFC 3261 and its extensions. Any other method is valid too, but causes a warning,
/// and one of these methods in lower or mixed case is an error.
pub(super) const METHODS: [&str; 14] = [
    "INVITE",
    "ACK",
    "CANCEL",
    "BYE",
    "OPTIONS",
    "REGISTER",
    "PRACK",
    "SUBSCRIBE",
    "NOTIFY",
    "PUBLISH",
    "INFO",
    "REFER",
    "MESSAGE",
    "UPDATE",
];

/// The value of a route's `to` that sends requests to the address in their Request-URI.
pub(super) const REQUEST_URI: &str = "request-uri";

/// The value of a route's `to` that sends requests to the contacts of the user in their
/// Request-URI.
pub(super) const USERS: &str = "users";

/// The destination of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A pool, by its name.
    Pool(String),
    /// The address in the Request-URI.
    RequestUri,
    /// The contacts of the user in the Request-URI.
    Users,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool(name) => name,
            Self::RequestUri => REQUEST_URI,
            Self::Users => USERS,
        })
    }
}

/// Reads a name that appears in labels of metrics and that operators type in commands.
pub(super) fn name(text: &str) -> Result<String, Wrong> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    match text.chars().next() {
        None => Err("empty".into()),
        Some(c) if !c.is_ascii_alphanumeric() => {
            Err("the name does not begin with a letter or digit".into())
        }
        _ if text.len() > 64 => Err(format!("{} characters", text.chars().count()).into()),
        _ => match text.chars().find(|c| !fits(*c)) {
            Some(c) => Err(format!("contains `{}`", c.escape_debug()).into()),
            None => Ok(text.to_owned()),
        },
    }
}

/// Returns the error for a text of more than `max` bytes.
fn too_long(text: &str, max: usize) -> Wrong {
    Wrong::with_help(format!("{} bytes", text.len()), format!("write at most {max} bytes"))
}

/// Reads a host name of a URL. Returns the name in lower case and without a final dot.
pub(super) fn host(text: &str) -> Result<String, Wrong> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match text.chars().find(|c| !fits(*c)) {
        _ if text.is_empty() => Err("empty".into()),
        _ if text.len() > 253 => Err(too_long(text, 253)),
        Some(c) => Err(format!("contains `{}`", c.escape_debug()).into()),
        None => Ok(text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()),
    }
}

/// Reads the origin of a web page as browsers write it (RFC 6454 §6.2). Returns the origin in lower
/// case.
pub(super) fn origin(text: &str) -> Result<String, Wrong> {
    let text = text.to_ascii_lowercase();
    let (rest, usual) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (rest, 443),
        (_, Some(rest)) => (rest, 80),
        _ => return Err("the origin begins with neither `https://` nor `http://`".into()),
    };
    if let Some(at) = rest.find(['/', '?', '#', '@']) {
        let help = format!("write `\"{}\"`", &text[..text.len() - rest.len() + at]);
        return Err(Wrong::with_help("an origin has only scheme, host and port", help));
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    if !is_host_name(host) && unbracketed(host).parse::<IpAddr>().is_err() {
        return Err("not a host name or address".into());
    }
    match port.map(str::parse::<u16>) {
        None => Ok(text),
        Some(Ok(port)) if port == usual => {
            let help = format!("write `\"{}\"`", text.trim_end_matches(&format!(":{port}")));
            Err(Wrong::with_help("browsers leave out the default port", help))
        }
        Some(Ok(1..)) => Ok(text),
        Some(_) => Err("the port is not a number from 1 to 65535".into()),
    }
}

/// Reads a SIP URI that fits between the angle brackets of a From header.
pub(super) fn sip_uri(text: &str) -> Result<String, Wrong> {
    let uri = Uri::parse(text.as_bytes()).ok().filter(|uri| uri.scheme == Scheme::Sip);
    match text.chars().find(|c| !c.is_ascii_graphic() || "<>;?\"".contains(*c)) {
        _ if text.len() > 255 => Err(too_long(text, 255)),
        Some(c) => Err(format!("contains `{}`", c.escape_debug()).into()),
        None if uri.is_none() => Err("not a SIP URI".into()),
        None => Ok(text.to_owned()),
    }
}

/// Reads the value of a Server header: up to 64 printable ASCII characters. Does not check the
/// grammar of products and comments (RFC 3261 §25.1, `server-val`). An empty value is valid.
pub(super) fn server_name(text: &str) -> Result<String, Wrong> {
    let fits = |c: char| c.is_ascii_graphic() || c == ' ';
    match text.chars().find(|c| !fits(*c)) {
        Some(c) => Err(format!("contains `{}`", c.escape_debug()).into()),
        None if text.len() > 64 => Err(format!("{} characters", text.len()).into()),
        None if text.trim() != text => Err("the text begins or ends with a space".into()),
        None => Ok(text.to_owned()),
    }
}

/// Reads a pool's name: any name except `request-uri` and `users`, which have another meaning in
/// the `to` of a route.
pub(super) fn pool_name(text: &str) -> Result<String, Wrong> {
    if [REQUEST_URI, USERS].contains(&text) {
        let label = "this word has another meaning in `to` of a `[[route]]`";
        return Err(Wrong::with_help(label, "choose another name for the pool"));
    }
    name(text)
}

/// Reads a method, RFC 3261 §25.1: a case-sensitive token.
pub(super) fn method(text: &str) -> Result<String, Wrong> {
    let token = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
    if text.is_empty() || !text.chars().all(token) {
        return Err("not a method".into());
    }
    let upper = text.to_ascii_uppercase();
    if upper != text && METHODS.contains(&&*upper) {
        return Err(Wrong::with_help("methods are case-sensitive", format!("write `\"{upper}\"`")));
    }
    Ok(text.to_owned())
}

/// Reads a `domain` of a route. Returns a host name in lower case and without a final dot, or an IP
/// address in the form of a URI.
pub(super) fn domain(text: &str) -> Result<String, Wrong> {
    if let Ok(ip) = unbracketed(text).parse::<IpAddr>() {
        return Ok(in_uri(ip));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if is_host_name(name) {
        return Ok(name.to_ascii_lowercase());
    }
    if text.contains('*') {
        return Err("this version does not support patterns with `*`".into());
    }
    Err(not_a_host(text, "a domain matches every port"))
}

/// Reads `from` of a route: the senders whose requests the route matches.
pub(super) fn source(text: &str) -> Result<Senders, Wrong> {
    match text {
        "any" => Ok(Senders::Any),
        "trusted" => Ok(Senders::Trusted),
        "pool" => Ok(Senders::Pool),
        _ => match network(text) {
            Ok(net) => Ok(Senders::Net(net)),
            Err(_) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                Err("not `any`, `trusted`, `pool` or a network".into())
            }
            Err(wrong) => Err(wrong),
        },
    }
}

/// Returns the text that [`source`] reads as these senders.
pub(super) fn source_text(senders: &Senders) -> String {
    match senders {
        Senders::Any => "any".to_owned(),
        Senders::Trusted => "trusted".to_owned(),
        Senders::Pool => "pool".to_owned(),
        Senders::Net(net) => net.to_string(),
    }
}

/// Reads `to` of a route: the destination of its requests.
pub(super) fn destination(text: &str) -> Result<Destination, Wrong> {
    match text {
        REQUEST_URI => Ok(Destination::RequestUri),
        USERS => Ok(Destination::Users),
        _ => name(text).map(Destination::Pool),
    }
}

/// Reads the path of a directory or a file. The path must be absolute, so that the working
/// directory does not matter.
pub(super) fn directory(text: &str) -> Result<PathBuf, Wrong> {
    let path = PathBuf::from(text);
    if text.contains('\0') {
        Err("the path contains a zero byte".into())
    } else if path.is_absolute() {
        Ok(path)
    } else {
        Err("not an absolute path".into())
    }
}

/// Parses the host name or IP address that a certificate must contain.
pub(super) fn peer_name(text: &str) -> Result<ServerName<'static>, Wrong> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| "neither a host name nor an IP address".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        assert_eq!(name("app-1.eu:5070").as_deref(), Ok("app-1.eu:5070"));
        for wrong in ["", "-x", "a b", "a\"b", "é", &"x".repeat(65)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert!(pool_name("request-uri").is_err() && pool_name("users").is_err());
    }

    #[test]
    fn a_host_is_the_same_with_and_without_the_dot_of_the_root() {
        assert_eq!(host("Sip1.example.com.").as_deref(), Ok("sip1.example.com"));
        assert_eq!(host("sip1").as_deref(), Ok("sip1"));
    }

    #[test]
    fn the_name_of_a_server_is_printable_and_may_be_empty() {
        for right in ["", "edge", "Acme SBC/1.2 (north)", &"x".repeat(64)] {
            assert_eq!(server_name(right).as_deref(), Ok(right));
        }
        for wrong in ["a\r\nX: y", " a", "a ", "\t", "é", &"x".repeat(65)] {
            assert!(server_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn methods_keep_their_case_and_misspellings_are_reported() {
        assert_eq!(method("INVITE").as_deref(), Ok("INVITE"));
        assert_eq!(method("x-Foo").as_deref(), Ok("x-Foo"));
        assert_eq!(method("Invite").unwrap_err().help.unwrap(), "write `\"INVITE\"`");
        assert!(method("IN VITE").is_err());
        assert!(method("").is_err());
    }

    #[test]
    fn domains_are_hosts_without_a_port() {
        assert_eq!(domain("Example.COM").as_deref(), Ok("example.com"));
        assert_eq!(domain("2001:DB8::1").as_deref(), Ok("[2001:db8::1]"));
        assert_eq!(domain("[::1]").as_deref(), Ok("[::1]"));
        assert_eq!(domain("Example.COM.").as_deref(), Ok("example.com"));
        let help = |text: &str| domain(text).unwrap_err().help.unwrap();
        for wrong in ["example.com:5060", "[2001:db8::1]:5060"] {
            assert!(help(wrong).ends_with("`: a domain matches every port"), "{wrong}");
        }
        for wrong in ["sip:example.com", "alice@example.com", "sips:alice@example.com:5061"] {
            assert_eq!(help(wrong), "write `\"example.com\"`");
        }
        assert_eq!(
            domain("*.example.com").unwrap_err().label,
            "this version does not support patterns with `*`"
        );
        for wrong in ["", "a..b", "-a.com", "1.2.3", "a_b.com"] {
            assert!(domain(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sources_are_words_or_networks() {
        assert_eq!(source("any"), Ok(Senders::Any));
        assert_eq!(source("10.0.0.0/8"), Ok(Senders::Net("10.0.0.0/8".parse().unwrap())));
        assert_eq!(
            source("anyone").unwrap_err().label,
            "not `any`, `trusted`, `pool` or a network"
        );
        assert!(source("10.0.0.1/8").unwrap_err().help.is_some());
    }
}
