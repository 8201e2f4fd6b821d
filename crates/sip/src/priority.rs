//! Reads the priority that a request claims.
//!
//! Any sender can claim a priority, so the caller must decide whether to trust the claim.

use crate::HeaderName;
use crate::lexical::{is_token, trim};
use crate::lines::Lines;

/// A value of a Resource-Priority header: a namespace, and the priority of the request within it.
///
/// RFC 4412 §3.1: "Namespaces and priorities are case-insensitive ASCII tokens that do not contain
/// periods."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceValue<'a> {
    /// The namespace.
    pub namespace: &'a [u8],
    /// The priority within the namespace.
    pub priority: &'a [u8],
}

impl<'a> ResourceValue<'a> {
    /// Parses `namespace.priority`. Returns `None` for any other text.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let dot = text.iter().position(|&b| b == b'.')?;
        let (namespace, priority) = (&text[..dot], &text[dot + 1..]);
        let is_name =
            |name: &[u8]| !name.is_empty() && name.iter().all(|&b| is_token(b) && b != b'.');
        (is_name(namespace) && is_name(priority)).then_some(Self { namespace, priority })
    }

    /// Returns whether the value has this namespace and this priority, in any case.
    pub fn is(&self, namespace: &str, priority: &str) -> bool {
        self.namespace.eq_ignore_ascii_case(namespace.as_bytes())
            && self.priority.eq_ignore_ascii_case(priority.as_bytes())
    }
}

/// Returns whether a Request-URI addresses an emergency service: `urn:service:sos`, or a
/// sub-service such as `urn:service:sos.fire`.
///
/// RFC 5031 §4.2 registers this service. Labels compare without regard to case (RFC 5031 §3), and
/// so do `urn` and the namespace (RFC 8141 §3.1).
pub fn is_emergency(uri: &[u8]) -> bool {
    const SOS: &[u8] = b"urn:service:sos";
    let Some((head, rest)) = uri.split_at_checked(SOS.len()) else { return false };
    head.eq_ignore_ascii_case(SOS) && matches!(rest, [] | [b'.', _, ..])
}

/// Returns the resource values in all Resource-Priority lines of a request.
///
/// Text that is not a resource value is skipped, because RFC 4412 §4.6.2 treats values that are not
/// understood as absent. A line that violates the grammar is skipped too.
pub fn resource_values(message: &[u8]) -> impl Iterator<Item = ResourceValue<'_>> {
    let lines = Lines::of(message, HeaderName::ResourcePriority);
    lines.flat_map(tokens).filter_map(ResourceValue::parse)
}

/// Returns whether a Require header of the request lists this option.
pub fn requires(message: &[u8], option: &str) -> bool {
    let mut listed = Lines::of(message, HeaderName::Require).flat_map(tokens);
    listed.any(|listed| listed.eq_ignore_ascii_case(option.as_bytes()))
}

/// Returns the elements of a list that contains no quoted strings.
fn tokens(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&b| b == b',').map(trim)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(headers: &str) -> Vec<String> {
        let message = format!("INVITE sip:x@y SIP/2.0\r\nVia: a\r\n{headers}To: b\r\n\r\nbody");
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        resource_values(message.as_bytes())
            .map(|value| text(value.namespace) + "." + &text(value.priority))
            .collect()
    }

    // RFC 4412 §3.1: "the following three header snippets are equivalent".
    #[test]
    fn rfc4412_3_1_one_line_or_several() {
        for headers in [
            "Resource-Priority: dsn.flash, wps.3\r\n",
            "Resource-Priority: dsn.flash\r\nResource-Priority: wps.3\r\n",
            "resource-priority:dsn.flash\r\nSubject: r\r\nRoute: <sip:x>\r\nRESOURCE-PRIORITY : wps.3\r\n",
            "Resource-Priority: dsn.flash,\r\n wps.3\r\n",
        ] {
            assert_eq!(values(headers), ["dsn.flash", "wps.3"], "{headers:?}");
        }
    }

    // RFC 4412 §3.1: "'dsn.flash' and 'DSN.Flash', for example, are equivalent".
    #[test]
    fn rfc4412_3_1_case_does_not_matter() {
        let value = ResourceValue::parse(b"DSN.Flash").unwrap();
        assert!(value.is("dsn", "flash") && !value.is("dsn", "flash-override"));
        assert!(!value.is("drsn", "flash"));
    }

    #[test]
    fn invalid_values_are_skipped() {
        assert_eq!(values(""), [""; 0]);
        assert_eq!(
            values("Resource-Priority: , dsn, .flash, dsn., a.b.c, \"x.y\", d n.flash, ets.0\r\n"),
            ["ets.0"]
        );
        assert_eq!(values("Resource-Priority:\r\nResource-Priority: wps.1\r\n"), ["wps.1"]);
        assert_eq!(values("X-Resource-Priority: wps.1\r\n"), [""; 0]);
    }

    #[test]
    fn the_body_is_no_header() {
        let message = b"INVITE sip:x@y SIP/2.0\r\n\r\nResource-Priority: wps.1\r\n\r\n";
        assert_eq!(resource_values(message).count(), 0);
    }

    #[test]
    fn an_option_is_required_if_it_is_listed() {
        let message = |headers| format!("INVITE sip:x@y SIP/2.0\r\n{headers}\r\n\r\n");
        for (headers, is_required) in [
            ("Require: 100rel, Resource-Priority", true),
            ("Require: 100rel\r\nRequire:resource-priority", true),
            ("Require: 100rel", false),
            ("Supported: resource-priority", false),
            ("Proxy-Require: resource-priority", false),
        ] {
            let message = message(headers);
            assert_eq!(requires(message.as_bytes(), "resource-priority"), is_required, "{headers}");
        }
    }

    #[test]
    fn rfc5031_4_2_sos_and_what_is_below_it() {
        for uri in ["urn:service:sos", "URN:Service:SOS", "urn:service:sos.animal-control"] {
            assert!(is_emergency(uri.as_bytes()), "{uri}");
        }
        for uri in [
            "",
            "urn:service:so",
            "urn:service:sosx",
            "urn:service:sos.",
            "urn:service:counseling",
            "sip:urn:service:sos",
            "sip:sos@urn:service",
            "tel:112",
        ] {
            assert!(!is_emergency(uri.as_bytes()), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (resource_values(&message).count(), requires(&message, "x"));
            let _ = is_emergency(&message);
        }
    }
}
