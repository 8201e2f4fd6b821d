//! Reads the addresses of sockets, networks, servers and hosts in a configuration.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::shape::Wrong;

/// The port of SIP over UDP and TCP, RFC 3261 §19.1.2.
pub(super) const SIP_PORT: u16 = 5060;

/// The port of DNS, RFC 1035 §4.2.
const DNS_PORT: u16 = 53;

/// The label of an IPv6 address that lacks its brackets.
const WITHOUT_BRACKETS: &str = "an IPv6 address without brackets";

/// A host and a port, as in a Via or a Record-Route (`sent-by`, RFC 3261 §20.42).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name in lower case, an IPv4 address, or an IPv6 address in brackets.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Reads an address to listen at, such as `127.0.0.1:5060` or `[::]:5060`. Port 0 means any free
/// port.
pub(super) fn listening(text: &str) -> Result<SocketAddr, Wrong> {
    let address = socket(text)?;
    if is_group(address.ip()) {
        return Err("a multicast or broadcast address, not the address of one machine".into());
    }
    Ok(address)
}

/// Reads an address to listen at, or `off`.
pub(super) fn listening_or_off(text: &str) -> Result<Option<SocketAddr>, Wrong> {
    if text == "off" { Ok(None) } else { listening(text).map(Some) }
}

/// Reads the address of a DNS server. The default port is 53.
pub(super) fn name_server(text: &str) -> Result<SocketAddr, Wrong> {
    let address = match unbracketed(text).parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, DNS_PORT),
        Err(_) => socket(text)?,
    };
    reachable(address)?;
    Ok(address)
}

/// Reads a network or a single address, such as `10.0.0.0/8` or `2001:db8::1`.
pub(super) fn network(text: &str) -> Result<IpNet, Wrong> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return unmapped(ip).map(IpNet::from);
    }
    let net: IpNet = text.parse().map_err(|_| match text.split_once('/') {
        Some((ip, _)) if ip.parse::<IpAddr>().is_ok() => {
            Wrong::from("the prefix length is not a number from 0 to 32 (IPv4) or 128 (IPv6)")
        }
        _ => "not an IP address or network".into(),
    })?;
    unmapped(net.addr())?;
    if net.trunc() != net {
        let help = format!("write `\"{}\"`", net.trunc());
        return Err(Wrong::with_help("the address has bits set beyond the prefix length", help));
    }
    Ok(net)
}

/// Reads an address to advertise to peers, such as `sip.example.com:5060` or `192.0.2.1:5060`.
pub(super) fn advertised(text: &str) -> Result<HostPort, Wrong> {
    if let Ok(ip) = unbracketed(text).parse::<IpAddr>() {
        return Err(Wrong::with_help("no port", add_port("", text, ip)));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        reachable(address)?;
        return Ok(HostPort { host: in_uri(address.ip()), port: address.port() });
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(if is_host_name(text) {
            Wrong::with_help("no port", format!("write `\"{text}:{SIP_PORT}\"`"))
        } else {
            "not a host and a port".into()
        });
    };
    if !is_host_name(host) {
        let brackets = bracketed(text).map(|address| unbracketed_error("", address));
        return Err(brackets.unwrap_or_else(|| "not a host name or address".into()));
    }
    match port.parse() {
        Ok(0) | Err(_) => Err("the port is not a number from 1 to 65535".into()),
        Ok(port) => Ok(HostPort { host: host.to_ascii_lowercase(), port }),
    }
}

/// Reads a host by which peers reach a listener, such as `sip.example.com` or `192.0.2.1`. Returns
/// a host name in lower case and without a final dot, or an IP address as in a URI (an IPv6 address
/// in brackets).
pub(super) fn own_host(text: &str) -> Result<String, Wrong> {
    if let Ok(ip) = unbracketed(text).parse::<IpAddr>() {
        reachable(SocketAddr::new(ip, SIP_PORT))?;
        return Ok(in_uri(ip));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if is_host_name(name) {
        return Ok(name.to_ascii_lowercase());
    }
    Err(not_a_host(text, "the port is that of the listener"))
}

/// Returns the error for `text`, which is not a host name or IP address. If the text contains one,
/// as `sip:alice@example.com:5060` does, the remedy is to write only this host. `ports` is the
/// reason why the host has no port.
pub(super) fn not_a_host(text: &str, ports: &str) -> Wrong {
    if let Some(host) = part_of_uri(text).and_then(without_port) {
        Wrong::with_help("more than a host name or address", format!("write `\"{host}\"`"))
    } else if let Some(host) = without_port(text) {
        Wrong::with_help("contains a port", format!("write `\"{host}\"`: {ports}"))
    } else {
        "not a host name or address".into()
    }
}

/// Returns the host and port of a URI, which may lack its scheme. Returns `None` if `text` contains
/// nothing else.
fn part_of_uri(text: &str) -> Option<&str> {
    let begins_with = |scheme: &&str| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = ["sip:", "sips:"].into_iter().find(begins_with).map_or(0, str::len);
    let rest = &text[scheme..];
    // RFC 3261 §25.1 (`user-unreserved`): the part before the `@` may contain `;` and `?`.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let part = rest.split([';', '?']).next()?;
    (part.len() < text.len()).then_some(part)
}

/// Returns the host at the beginning of `text`, which may end with a port. Returns `None` if it is
/// an address to which no packet can be sent.
fn without_port(text: &str) -> Option<&str> {
    let is_host = |host: &&str| match unbracketed(host).parse::<IpAddr>() {
        Ok(ip) => reachable(SocketAddr::new(ip, SIP_PORT)).is_ok(),
        Err(_) => is_host_name(host.strip_suffix('.').unwrap_or(host)),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = text.rsplit_once(':').filter(|(_, port)| is_port(port)).map(|(host, _)| host);
    [Some(text), host].into_iter().flatten().find(is_host)
}

/// Returns the address as the host of a URI: an IPv6 address in brackets.
pub(super) fn in_uri(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// Returns `[::1]` without its brackets, and any other text unchanged.
pub(super) fn unbracketed(text: &str) -> &str {
    text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text)
}

/// Reads the IP address and port of a SIP peer to which Tidegate can send. The default port is
/// 5060.
pub(super) fn sip_address(text: &str) -> Result<SocketAddr, Wrong> {
    let address = match unbracketed(text).parse::<IpAddr>() {
        Ok(ip @ IpAddr::V6(_)) if !text.starts_with('[') => {
            return Err(Wrong::with_help(WITHOUT_BRACKETS, add_port("sip:", text, ip)));
        }
        Ok(ip) => SocketAddr::new(unmapped(ip)?, SIP_PORT),
        Err(_) => match bracketed(text) {
            Some(address) => return Err(unbracketed_error("sip:", address)),
            None => socket(text)?,
        },
    };
    reachable(address)?;
    Ok(address)
}

fn socket(text: &str) -> Result<SocketAddr, Wrong> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        unmapped(address.ip())?;
        return Ok(address);
    }
    if let Ok(ip) = unbracketed(text).parse::<IpAddr>() {
        return Err(Wrong::with_help("no port", add_port("", text, ip)));
    }
    if let Some(address) = bracketed(text) {
        return Err(unbracketed_error("", address));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    if is_host_name(host) {
        let help = "write the IP address of this name: Tidegate does not look up names here";
        return Err(Wrong::with_help("a host name, not an IP address", help));
    }
    if unbracketed(host).parse::<IpAddr>().is_ok() && port.parse::<u16>().is_err() {
        return Err("the port is not a number from 0 to 65535".into());
    }
    Err("not an IP address and a port".into())
}

/// Returns the remedy for `text`, which is the address `ip` without a port. `scheme` is written in
/// front. The last group of an IPv6 address may be meant as its port. The remedy then names both
/// addresses.
fn add_port(scheme: &str, text: &str, ip: IpAddr) -> String {
    let whole = SocketAddr::new(ip, SIP_PORT);
    match bracketed(text) {
        Some(address) => format!(
            "write `\"{scheme}{address}\"` if `{}` is the port, and otherwise \
             `\"{scheme}{whole}\"`",
            address.port()
        ),
        None => format!("write `\"{scheme}{whole}\"`"),
    }
}

/// Returns the address and port that `text` means if it is an IPv6 address without brackets,
/// followed by a port. RFC 3261 §25.1 (`IPv6reference`): a URI has the address in brackets.
fn bracketed(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.rsplit_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
    Some(SocketAddr::new(ip.parse::<Ipv6Addr>().ok()?.into(), port))
}

/// Returns the error for an IPv6 address without brackets that is followed by a port.
fn unbracketed_error(scheme: &str, address: SocketAddr) -> Wrong {
    Wrong::with_help(WITHOUT_BRACKETS, format!("write `\"{scheme}{address}\"`"))
}

fn reachable(address: SocketAddr) -> Result<(), Wrong> {
    unmapped(address.ip())?;
    if address.ip().is_unspecified() {
        Err("no packet can be sent to the wildcard address".into())
    } else if is_group(address.ip()) {
        Err("a multicast or broadcast address, not the address of one machine".into())
    } else if address.port() == 0 {
        Err("no packet can be sent to port 0".into())
    } else {
        Ok(())
    }
}

/// Rejects an IPv4-mapped IPv6 address such as `::ffff:192.0.2.1`. A socket has one address family,
/// so no arriving packet would match the address.
fn unmapped(ip: IpAddr) -> Result<IpAddr, Wrong> {
    match ip.to_canonical() {
        v4 if v4 != ip => {
            Err(Wrong::with_help("an IPv4-mapped IPv6 address", format!("write `{v4}`")))
        }
        _ => Ok(ip),
    }
}

fn is_group(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Returns whether `text` is a host name by RFC 3261 §25.1 (`hostname`), without a final dot.
pub(super) fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let top = text.rsplit('.').next().unwrap_or(text);
    text.len() <= 253
        && text.split('.').all(label)
        // §25.1: the top label begins with a letter, which distinguishes a name from an address.
        && top.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label<T: fmt::Debug>(result: Result<T, Wrong>) -> String {
        result.unwrap_err().label
    }

    fn help<T: fmt::Debug>(result: Result<T, Wrong>) -> String {
        result.unwrap_err().help.expect("a remedy of its own")
    }

    #[test]
    fn name_servers() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(name_server("192.0.2.53"), Ok(addr("192.0.2.53:53")));
        assert_eq!(name_server("::1"), Ok(addr("[::1]:53")));
        assert_eq!(name_server("[::1]:5353"), Ok(addr("[::1]:5353")));
        assert_eq!(label(name_server("ns.example.com:53")), "a host name, not an IP address");
        assert_eq!(label(name_server("0.0.0.0")), "no packet can be sent to the wildcard address");
        assert_eq!(label(name_server("192.0.2.53:0")), "no packet can be sent to port 0");
    }

    #[test]
    fn listening_addresses() {
        assert!(listening("0.0.0.0:0").is_ok());
        assert!(listening("[::]:5060").is_ok());
        assert_eq!(help(listening("::1")), "write `\"[::1]:5060\"`");
        assert_eq!(label(listening("127.0.0.1:99999")), "the port is not a number from 0 to 65535");
        assert_eq!(label(listening("localhost:5060")), "a host name, not an IP address");
        assert_eq!(
            label(listening("255.255.255.255:5060")),
            "a multicast or broadcast address, not the address of one machine"
        );
        assert_eq!(listening_or_off("off"), Ok(None));
    }

    /// RFC 3261 §25.1: `IPv6reference = "[" IPv6address "]"`. Without brackets, the last group may
    /// be meant as the port.
    #[test]
    fn an_ipv6_address_without_brackets_may_have_a_port() {
        let both = |scheme: &str| {
            format!(
                "write `\"{scheme}[2001:db8::10]:5070\"` if `5070` is the port, and otherwise \
                 `\"{scheme}[2001:db8::10:5070]:5060\"`"
            )
        };
        assert_eq!(help(sip_address("2001:db8::10:5070")), both("sip:"));
        assert_eq!(help(listening("2001:db8::10:5070")), both(""));
        assert_eq!(help(advertised("2001:db8::10:5070")), both(""));
        // These texts are no addresses, because a group has at most four digits.
        let long = "2001:db8::10:15070";
        assert_eq!(label(sip_address(long)), WITHOUT_BRACKETS);
        assert_eq!(help(sip_address(long)), "write `\"sip:[2001:db8::10]:15070\"`");
        for help in [help(listening(long)), help(advertised(long)), help(name_server(long))] {
            assert_eq!(help, "write `\"[2001:db8::10]:15070\"`");
        }
        // The last group is no port.
        for (text, whole) in [("2001:db8::a", "[2001:db8::a]"), ("::1", "[::1]"), ("1::0", "[1::]")]
        {
            assert_eq!(help(sip_address(text)), format!("write `\"sip:{whole}:5060\"`"));
        }
    }

    #[test]
    fn networks() {
        assert_eq!(network("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
        assert_eq!(network("2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
        assert_eq!(help(network("10.1.2.3/8")), "write `\"10.0.0.0/8\"`");
        assert_eq!(
            label(network("10.0.0.0/33")),
            "the prefix length is not a number from 0 to 32 (IPv4) or 128 (IPv6)"
        );
        assert_eq!(label(network("office")), "not an IP address or network");
    }

    #[test]
    fn advertised_hosts() {
        let shown = |text| advertised(text).unwrap().to_string();
        assert_eq!(shown("SIP.example.com:5060"), "sip.example.com:5060");
        assert_eq!(shown("[2001:DB8::1]:5062"), "[2001:db8::1]:5062");
        assert_eq!(help(advertised("sip.example.com")), "write `\"sip.example.com:5060\"`");
        assert_eq!(help(advertised("192.0.2.1")), "write `\"192.0.2.1:5060\"`");
        assert_eq!(
            label(advertised("0.0.0.0:5060")),
            "no packet can be sent to the wildcard address"
        );
        assert_eq!(
            label(advertised("sip.example.com:0")),
            "the port is not a number from 1 to 65535"
        );
        assert_eq!(label(advertised("under_score:5060")), "not a host name or address");
    }

    #[test]
    fn own_hosts_have_no_port_and_no_final_dot() {
        assert_eq!(own_host("SIP.example.com.").as_deref(), Ok("sip.example.com"));
        assert_eq!(own_host("2001:DB8::1").as_deref(), Ok("[2001:db8::1]"));
        assert_eq!(own_host("[2001:db8::1]").as_deref(), Ok("[2001:db8::1]"));
        assert_eq!(own_host("192.0.2.1").as_deref(), Ok("192.0.2.1"));
        for (wrong, right) in
            [("a.example:5060", "a.example"), ("[::1]:5060", "[::1]"), ("192.0.2.1:1", "192.0.2.1")]
        {
            let remedy = format!("write `\"{right}\"`: the port is that of the listener");
            assert_eq!(help(own_host(wrong)), remedy);
        }
        for (wrong, right) in [
            ("sip:a.example", "a.example"),
            ("SIPS:a.example:5061;transport=tls", "a.example"),
            ("alice@a.example", "a.example"),
            ("sip:alice@[::1]:5060", "[::1]"),
            // The first is an example of RFC 3261 §19.1.3.
            ("sip:alice;day=tuesday@a.example", "a.example"),
            ("sip:+1;phone-context=b.example@a.example;user=phone?to=c", "a.example"),
        ] {
            assert_eq!(label(own_host(wrong)), "more than a host name or address", "{wrong}");
            assert_eq!(help(own_host(wrong)), format!("write `\"{right}\"`"));
        }
        // The colon is not before a port, or the host is called `sip`.
        assert_eq!(label(own_host("a.example:b")), "not a host name or address");
        assert_eq!(help(own_host("sip:5060")), "write `\"sip\"`: the port is that of the listener");
        assert_eq!(label(own_host("0.0.0.0")), "no packet can be sent to the wildcard address");
        // A remedy to write these addresses would be an error again.
        for wrong in ["sip:0.0.0.0", "0.0.0.0:5060", "sip:::ffff:192.0.2.1", "sip:a@[ff02::1]"] {
            assert!(own_host(wrong).unwrap_err().help.is_none(), "{wrong}");
        }
        for wrong in ["", ".", "a..b", "a_b", "*.example.com", "1.2.3", "::ffff:192.0.2.1"] {
            assert!(own_host(wrong).is_err(), "{wrong}");
        }
    }
}
