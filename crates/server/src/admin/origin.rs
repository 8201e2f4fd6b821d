//! Protection of the admin interface against web pages that make a browser send requests to it.
//!
//! The interface has no password, so anyone who can reach its address may use it. The author of a
//! web page may not be able to reach the address, but a script of the page runs in the browser of a
//! user who can reach it. There are two attacks. In the first, the script sends a request to the
//! address of the interface. Then the browser adds an `Origin` header with the origin of the page.
//! In the second, the author makes the host name of the page resolve to the address of the
//! interface after the page was loaded (DNS rebinding). Then the `Host` header contains the host
//! name of the page.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};

/// Returns the reason to reject a request, or `None` if the request is accepted. `hosts` are the
/// host names, in lower case, that are accepted besides `localhost` and IP addresses.
pub(super) fn rejection(uri: &Uri, headers: &HeaderMap, hosts: &[String]) -> Option<&'static str> {
    // Programs that use HTTP/1.0 may send no Host header. Every browser sends one.
    let named = headers.get_all(HOST).iter().map(HeaderValue::to_str);
    let mut authorities =
        uri.authority().map(|authority| Ok(authority.as_str())).into_iter().chain(named);
    let is_ours = |authority: Result<&str, _>| authority.is_ok_and(|text| is_named(text, hosts));
    if !authorities.all(is_ours) {
        return Some(
            "The Host header does not name this server. To allow the name, add it to `[admin] \
             hosts`.\n",
        );
    }
    let own = headers.get(HOST).and_then(|host| host.to_str().ok());
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.zip(own).is_some_and(|((_, origin), own)| origin.eq_ignore_ascii_case(own))
    };
    let is_foreign = headers.get_all(ORIGIN).iter().any(|origin| !is_own(origin));
    is_foreign.then_some(
        "The Origin header shows that a web page of another site sent the request. Only pages of \
         this server may do so.\n",
    )
}

/// Returns whether `authority`, which is `host` or `host:port`, has an accepted host. Every IP
/// address is accepted, because DNS rebinding needs a host name.
fn is_named(authority: &str, hosts: &[String]) -> bool {
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => return inside.parse::<Ipv6Addr>().is_ok(),
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    // A fully qualified name may end with a dot.
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.parse::<IpAddr>().is_ok() || hosts.contains(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_rejected(uri: &str, headers: &[(&'static str, &'static str)]) -> bool {
        let map = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let hosts = ["sip1.example.com".to_owned()];
        rejection(&uri.parse().unwrap(), &map.collect(), &hosts).is_some()
    }

    #[test]
    fn only_addresses_and_our_names_are_ours() {
        let ours = [
            "127.0.0.1:8060",
            "[::1]:8060",
            "[::1]",
            "localhost",
            "LocalHost:1",
            "10.0.0.1",
            "SIP1.example.com:8060",
            "sip1.example.com.",
            "127.0.0.1",
        ];
        for host in ours {
            assert!(!is_rejected("/", &[("host", host)]), "{host}");
        }
        let foreign = [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8060",
            "sip1.example.com.evil.example",
            "[evil]:1",
            "",
            "evil@127.0.0.1",
            "[::1",
        ];
        for host in foreign {
            assert!(is_rejected("/", &[("host", host)]), "{host}");
        }
        assert!(!is_rejected("/", &[]), "no browser");
    }

    #[test]
    fn a_name_in_the_request_line_counts_as_well() {
        assert!(is_rejected("http://evil.example/", &[("host", "localhost")]));
        assert!(!is_rejected("http://localhost/", &[("host", "localhost")]));
        assert!(is_rejected("/", &[("host", "localhost"), ("host", "evil.example")]));
    }

    #[test]
    fn only_pages_of_our_own_may_ask() {
        let origin = |origin| is_rejected("/", &[("host", "localhost:8060"), ("origin", origin)]);
        assert!(!origin("http://localhost:8060"));
        for foreign in [
            "http://evil.example",
            "null",
            "http://localhost:9",
            "http://localhost",
            "https://localhost:8060.evil.example",
        ] {
            assert!(origin(foreign), "{foreign}");
        }
        assert!(is_rejected("/", &[("origin", "http://localhost:8060")]));
    }
}
