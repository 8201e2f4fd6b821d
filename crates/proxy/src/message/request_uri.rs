//! Removal of parts that a forwarded Request-URI must not have: RFC 3261 §16.4 and §16.6 item 2.

use tidegate_sip::{Scheme, Uri};

use crate::resolution::{default_port, transport_of};

/// Returns the Request-URI to forward if it differs from the received one. `is_own_maddr` is true
/// if the `maddr` of `uri` names us.
pub(crate) fn cleaned(uri: &Uri<'_>, is_own_maddr: bool) -> Option<Vec<u8>> {
    let params = uri.params.text();
    if !matches!(uri.scheme, Scheme::Sip | Scheme::Sips) {
        return None;
    }
    // RFC 3261 §16.4: "the proxy MUST strip the maddr and any non-default port or transport parameter".
    // Table 1 of §19.1.1: "The default port value is transport and scheme dependent." "The default
    // transport is scheme dependent."
    let rest = || uri.without_params();
    let strips_transport = is_own_maddr && transport_of(uri) != transport_of(&rest());
    let goes = |name: &[u8]| {
        // RFC 3261 §16.6 item 2: "If the URI contains any parameters not allowed in a Request-URI,
        // they MUST be removed." By table 1 of §19.1.1 that is `method`.
        name.eq_ignore_ascii_case(b"method")
            || is_own_maddr && name.eq_ignore_ascii_case(b"maddr")
            || strips_transport && name.eq_ignore_ascii_case(b"transport")
    };
    // By the same table, headers are not allowed either. A received Request-URI with headers is
    // rejected. A URI from a Route or from a contact, which becomes the Request-URI, loses them.
    if uri.headers.is_none() && !uri.params.iter().any(|param| goes(param.name)) {
        return None;
    }
    let tail = params.len() + uri.headers.map_or(0, |headers| headers.len() + 1);
    let mut base = &uri.text[..uri.text.len() - tail];
    // A port that is the default of a stripped transport stays only if it is also the default of
    // the transport without the parameter. Otherwise the URI would name another port than intended.
    let is_default = |port: u16| {
        [*uri, rest()].iter().all(|uri| transport_of(uri).map(default_port) == Some(port))
    };
    if is_own_maddr
        && uri.port.is_some_and(|port| !is_default(port))
        && let Some(colon) = base.iter().rposition(|&b| b == b':')
    {
        base = &base[..colon];
    }
    let mut text = base.to_vec();
    for param in uri.params.iter().filter(|param| !goes(param.name)) {
        text.push(b';');
        text.extend_from_slice(param.text);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str, is_own_maddr: bool) -> Option<String> {
        let uri = Uri::parse(text.as_bytes()).unwrap();
        cleaned(&uri, is_own_maddr).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn foreign_parameters_are_removed() {
        for (text, left) in [
            ("sip:b@h;method=REGISTER", "sip:b@h"),
            ("sip:b@h:5070;x=1;METHOD=a;user=phone;method", "sip:b@h:5070;x=1;user=phone"),
            ("sip:b@h;method=INVITE;lr?Subject=x&a=b", "sip:b@h;lr"),
            ("sip:b@h?Subject=x", "sip:b@h"),
            ("sips:b@h:5061;method=BYE;transport=tcp?Subject=x", "sips:b@h:5061;transport=tcp"),
        ] {
            assert_eq!(clean(text, false).as_deref(), Some(left));
        }
        for (text, left) in [
            ("sip:b@h:5070;maddr=192.0.2.1;lr", "sip:b@h;lr"),
            ("sip:b@h:5060;Maddr=192.0.2.1", "sip:b@h:5060"),
            ("sip:b@[2001:db8::1]:5070;maddr=a;method=b", "sip:b@[2001:db8::1]"),
        ] {
            assert_eq!(clean(text, true).as_deref(), Some(left));
        }
    }

    /// RFC 3261 §16.4: "any non-default port or transport parameter".
    #[test]
    fn a_transport_that_is_not_the_default_goes_with_the_maddr() {
        for (text, left) in [
            ("sip:b@h:5060;transport=udp;maddr=192.0.2.1", "sip:b@h:5060;transport=udp"),
            ("sip:b@h;Transport=TCP;maddr=192.0.2.1;lr", "sip:b@h;lr"),
            ("sip:b@h:5060;maddr=192.0.2.1;transport=tcp", "sip:b@h:5060"),
            ("sip:b@h:5060;maddr=192.0.2.1;transport=tls", "sip:b@h"),
            ("sip:b@h:5061;maddr=192.0.2.1;transport=tls", "sip:b@h"),
            ("sip:b@h:80;maddr=192.0.2.1;transport=ws", "sip:b@h"),
            ("sips:b@h:5061;maddr=192.0.2.1", "sips:b@h:5061"),
            ("sips:b@h:5060;maddr=192.0.2.1", "sips:b@h"),
            ("sips:b@h:5061;maddr=192.0.2.1;transport=tcp", "sips:b@h:5061;transport=tcp"),
            ("sips:b@h:443;maddr=192.0.2.1;transport=ws", "sips:b@h"),
        ] {
            assert_eq!(clean(text, true).as_deref(), Some(left), "{text}");
        }
        assert_eq!(clean("sip:b@h:5061;transport=tls", false), None);
    }

    #[test]
    fn allowed_headers_stay() {
        assert_eq!(clean("sip:b;method=x@h;methods=1;user=phone;maddr=192.0.2.1", false), None);
        assert_eq!(clean("sip:b@h", true), None);
        assert_eq!(clean("tel:+1;method=x", false), None);
    }
}
