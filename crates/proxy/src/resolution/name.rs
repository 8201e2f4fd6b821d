//! Domain names in normalized spelling.

use arrayvec::ArrayString;
use tidegate_world::NAME_MAX;

/// The longest name without its final dot. RFC 1035 §2.3.4 allows 255 octets in a message, where a
/// name is two octets longer than this text.
const TEXT_MAX: usize = 253;

/// The longest label of a name (RFC 1035 §2.3.4).
const LABEL_MAX: usize = 63;

/// A domain name in lower case. It is absolute, with a final dot, unless it was a single label
/// without a dot. The search list of the machine may complete such a label.
///
/// A name of several labels is never completed. So a missing name costs one query, and a name from
/// a message cannot lead to a domain that its sender did not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(ArrayString<NAME_MAX>);

impl Name {
    /// Reads a name. Returns `None` if it is not valid in the DNS or has characters that SIP does
    /// not allow in a host name (RFC 3261 §25.1). `_` is allowed, because the names of services
    /// contain it, and in practice some host names do too.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=LABEL_MAX).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if bare.len() > TEXT_MAX || !bare.split('.').all(is_label) {
            return None;
        }
        let mut name = ArrayString::from(bare).ok()?;
        name.make_ascii_lowercase();
        if text.contains('.') {
            name.try_push('.').ok()?;
        }
        Some(Self(name))
    }

    /// Returns the name of a service in this domain, such as `_sip._udp.example.com.`, or `None` if
    /// it is too long for the DNS.
    pub(super) fn service(&self, prefix: &str) -> Option<Self> {
        let mut name = ArrayString::from(prefix).ok()?;
        name.try_push_str(&self.0).ok()?;
        (name.trim_end_matches('.').len() <= TEXT_MAX).then_some(Self(name))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        Name::parse(text).map(|name| name.as_str().to_owned())
    }

    #[test]
    fn names_have_one_spelling() {
        for (text, name) in [
            ("Example.COM", "example.com."),
            ("example.com.", "example.com."),
            ("localhost", "localhost"),
            ("localhost.", "localhost."),
            ("_sip._udp.a-b.c", "_sip._udp.a-b.c."),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(name));
        }
        for bad in ["", ".", "..", "a..b", ".a", "a b", "a/b", "h\u{f6}st", "a\\046b", "*"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_bounded() {
        let label = "a".repeat(LABEL_MAX);
        assert!(parsed(&label).is_some() && parsed(&format!("{label}a.b")).is_none());
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(longest.len(), TEXT_MAX);
        let name = Name::parse(&longest).unwrap();
        assert!(parsed(&format!("a{longest}")).is_none());
        assert_eq!(name.service("_sip._udp."), None);
        let short = Name::parse("a.example").unwrap();
        assert_eq!(short.service("_sip._udp.").unwrap().as_str(), "_sip._udp.a.example.");
        assert_eq!(
            Name::parse("a").unwrap().service("_sip._udp.").unwrap().as_str(),
            "_sip._udp.a"
        );
    }
}
