//! Addresses of record and contacts in a configuration.

use std::sync::Arc;

use tidegate_proxy::address_of_record;
use tidegate_sip::{Host, Scheme, Uri};
use tidegate_world::KEY_MAX;

use super::address::{in_uri, sip_address};
use super::shape::Wrong;

/// Maximum length of a contact, in bytes.
const CONTACT_MAX: usize = 512;

/// An address of record: the SIP URI under which a user is known (RFC 3261 §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aor {
    /// The key by which look-ups find the user.
    pub(super) key: Arc<[u8]>,
    /// The host of the address of record in lower case, in the form of a route's `domain`.
    pub(super) domain: String,
}

/// Reads an address of record.
pub(super) fn aor(text: &str) -> Result<Aor, Wrong> {
    let uri = sip_uri(text)?;
    let (Some(key), Some(host)) = (address_of_record(&uri), uri.host) else {
        return Err(Wrong::with_help("no user", format!("write `\"sip:USER@{}\"`", rest(text))));
    };
    let user = String::from_utf8_lossy(uri.user.unwrap_or_default());
    let domain = domain(&host);
    let is_bare = uri.port.is_none()
        && uri.password.is_none()
        && uri.headers.is_none()
        && uri.params.text().is_empty();
    if !is_bare {
        let help = format!("write `\"sip:{user}@{domain}\"`: ports and parameters are ignored");
        return Err(Wrong::with_help("an address of record has only a user and a domain", help));
    }
    if key.len() > KEY_MAX {
        let help = format!("write at most {KEY_MAX} bytes, which is the limit of look-ups");
        return Err(Wrong::with_help(format!("{} bytes", key.len()), help));
    }
    Ok(Aor { key, domain })
}

/// Reads a contact: a URI to which a request can be sent over UDP.
pub(super) fn contact(text: &str) -> Result<String, Wrong> {
    let uri = sip_uri(text)?;
    if text.len() > CONTACT_MAX {
        let help = format!("write at most {CONTACT_MAX} bytes");
        return Err(Wrong::with_help(format!("{} bytes", text.len()), help));
    }
    if uri.headers.is_some() {
        return Err("the URI has headers, which a Request-URI cannot have".into());
    }
    if uri.transport().is_some_and(|transport| !transport.eq_ignore_ascii_case(b"udp")) {
        let help = "remove `transport`: in this version contacts are reached over UDP only";
        return Err(Wrong::with_help("another transport than UDP", help));
    }
    match uri.host.and_then(|host| host.ip()) {
        Some(ip) => sip_address(&format!("{}:{}", in_uri(ip), uri.port_or_default())).map(drop)?,
        None if uri.port == Some(0) => return Err("no packet can be sent to port 0".into()),
        None => {}
    }
    Ok(text.to_owned())
}

fn sip_uri(text: &str) -> Result<Uri<'_>, Wrong> {
    let uri = Uri::parse(text.as_bytes()).ok();
    match uri.map(|uri| (uri, uri.scheme)) {
        Some((uri, Scheme::Sip)) => Ok(uri),
        Some((_, Scheme::Sips)) => {
            let help = "write `sip:`: this version does not support `sips:`";
            Err(Wrong::with_help("a `sips:` URI", help))
        }
        // `alice@example.com` has no scheme.
        _ if Uri::parse(format!("sip:{text}").as_bytes()).is_ok() => {
            Err(Wrong::with_help("no `sip:`", format!("write `\"sip:{}\"`", text.escape_debug())))
        }
        _ => Err("not a SIP URI".into()),
    }
}

/// Returns the part of a URI after its scheme.
fn rest(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, rest)| rest)
}

/// Returns a host in the form of a route's `domain`.
fn domain(host: &Host<'_>) -> String {
    match (host.ip(), host) {
        (Some(ip), _) => in_uri(ip),
        (None, Host::Name(name)) => {
            let name = name.strip_suffix(b".").unwrap_or(name);
            String::from_utf8_lossy(name).to_ascii_lowercase()
        }
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        let aor = aor(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        format!("{} in {}", String::from_utf8_lossy(&aor.key), aor.domain)
    }

    #[test]
    fn an_address_of_record_is_a_user_at_a_domain() {
        assert_eq!(key("sip:Alice@Example.COM."), "sip:Alice@example.com in example.com");
        assert_eq!(key("sip:%61@[2001:DB8::1]"), "sip:a@[2001:db8::1] in [2001:db8::1]");
        let help = |text: &str| aor(text).unwrap_err().help.unwrap();
        assert_eq!(help("alice@example.com"), "write `\"sip:alice@example.com\"`");
        assert_eq!(help("sip:example.com"), "write `\"sip:USER@example.com\"`");
        for more in ["sip:a@b.example:5060", "sip:a:x@b.example", "sip:a@b.example;user=phone"] {
            assert!(help(more).starts_with("write `\"sip:a@b.example\"`"), "{more}");
        }
        assert_eq!(aor("sips:a@b.example").unwrap_err().label, "a `sips:` URI");
        assert_eq!(aor("a b").unwrap_err().label, "not a SIP URI");
    }

    #[test]
    fn an_address_of_record_is_no_longer_than_a_key_of_a_store() {
        let text = |user: usize| format!("sip:{}@example.com", "a".repeat(user));
        let user_max = KEY_MAX - text(0).len();
        assert_eq!(aor(&text(user_max)).unwrap().key.len(), KEY_MAX);
        let wrong = aor(&text(user_max + 1)).unwrap_err();
        assert_eq!(wrong.label, "513 bytes");
        assert_eq!(wrong.help.unwrap(), "write at most 512 bytes, which is the limit of look-ups");
    }

    #[test]
    fn a_contact_is_a_uri_that_can_be_sent_to() {
        for right in ["sip:10.0.0.7:5062", "sip:a@phone.example;ob", "sip:[::1];transport=UDP"] {
            assert_eq!(contact(right).as_deref(), Ok(right));
        }
        let long = format!("sip:{}@a.example", "a".repeat(CONTACT_MAX));
        for (wrong, label) in [
            ("10.0.0.7:5062", "no `sip:`"),
            ("sip:a@b?Subject=x", "the URI has headers, which a Request-URI cannot have"),
            ("sip:a@b.example;transport=tcp", "another transport than UDP"),
            ("sip:0.0.0.0", "no packet can be sent to the wildcard address"),
            ("sip:b.example:0", "no packet can be sent to port 0"),
            ("<sip:a@b>", "not a SIP URI"),
            (&long, "526 bytes"),
        ] {
            assert_eq!(contact(wrong).unwrap_err().label, label, "{wrong}");
        }
    }
}
