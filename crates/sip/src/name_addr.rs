//! The value of From, To, Contact, Route and similar headers: `name-addr / addr-spec` with
//! parameters (RFC 3261 §20.10, §25.1).

use crate::lexical::{find, quoted_end, run, trim, trim_end, trim_start};
use crate::{Malformed, Params, Uri};

/// The value of a From, To, Contact, Route or similar header: a display name, a URI and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameAddr<'a> {
    /// The whole element of the header, trimmed.
    pub element: &'a [u8],
    /// The display name without its quotes, or `None` without one. Escapes are kept.
    pub display: Option<&'a [u8]>,
    /// The URI without angle brackets, not yet checked. For `Contact: *` it is `*`.
    pub uri: &'a [u8],
    /// The parameters of the header, not of the URI.
    pub params: Params<'a>,
}

impl<'a> NameAddr<'a> {
    /// Parses one trimmed element. Returns `None` if it does not follow the grammar.
    ///
    /// A display name that is neither quoted nor made of tokens is accepted, because unquoted UTF-8
    /// names occur in practice. But a comma in it (`Bell, Alexander <sip:…>`) is not accepted,
    /// because the comma ends the value for the next parser. RFC 4475 §3.1.2.15: a proxy "must not
    /// propagate the error into the request it forwards".
    #[inline]
    pub fn parse(element: &'a [u8]) -> Option<Self> {
        if element.first() == Some(&b'"') {
            let (quoted, rest) = element.split_at(quoted_end(element)?);
            return Self::bracketed(element, Some(&quoted[1..quoted.len() - 1]), trim_start(rest));
        }
        let name = run(element, |b| !matches!(b, b'<' | b':' | b';' | b'"' | b','));
        match element.get(name) {
            Some(b'<') => {
                let (display, rest) = element.split_at(name);
                let display = Some(trim_end(display)).filter(|display| !display.is_empty());
                return Self::bracketed(element, display, rest);
            }
            Some(b',') => return None,
            _ => {}
        }
        // RFC 3261 §20.10: without brackets, everything after a semicolon belongs to the header,
        // not to the URI.
        let (uri, params) = element.split_at(run(element, |b| b != b';'));
        let uri = trim_end(uri);
        (!uri.is_empty()).then(|| Self { element, display: None, uri, params: Params::new(params) })
    }

    #[inline]
    fn bracketed(
        element: &'a [u8],
        display: Option<&'a [u8]>,
        bracketed: &'a [u8],
    ) -> Option<Self> {
        let inside = bracketed.strip_prefix(b"<")?;
        let close = find(b'>', inside)?;
        let uri = trim(&inside[..close]);
        let params = trim_start(&inside[close + 1..]);
        let well_formed = !uri.is_empty() && matches!(params.first(), None | Some(b';'));
        well_formed.then(|| Self { element, display, uri, params: Params::new(params) })
    }

    /// Returns the `tag` parameter of a From or To (RFC 3261 §19.3), or `None` if there is none or
    /// it is empty.
    pub fn tag(&self) -> Option<&'a [u8]> {
        self.params.usual(b";tag=", "tag")
    }

    /// Parses the URI.
    ///
    /// # Errors
    /// Returns [`Malformed::Uri`].
    pub fn parse_uri(&self) -> Result<Uri<'a>, Malformed> {
        Uri::parse(self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Option<&str>, &str, &str) {
        let utf8 = |b| std::str::from_utf8(b).unwrap();
        let n = NameAddr::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?}"));
        assert_eq!(n.element, text.as_bytes());
        (n.display.map(utf8), utf8(n.uri), utf8(n.params.text()))
    }

    /// Examples of RFC 3261 §20.10, §20.20 and §20.34.
    #[test]
    fn the_three_forms() {
        assert_eq!(
            parse("\"Mr. Watson\" <sip:watson@worcester.example>;q=0.7; expires=3600"),
            (Some("Mr. Watson"), "sip:watson@worcester.example", ";q=0.7; expires=3600")
        );
        assert_eq!(
            parse("Anonymous <sip:c8oqz84zk7z@privacy.org>;tag=hyh8"),
            (Some("Anonymous"), "sip:c8oqz84zk7z@privacy.org", ";tag=hyh8")
        );
        assert_eq!(
            parse("sip:+12125551212@server.phone2net.com;tag=887s"),
            (None, "sip:+12125551212@server.phone2net.com", ";tag=887s")
        );
        assert_eq!(parse("<sip:a;lr>"), (None, "sip:a;lr", ""));
        assert_eq!(parse("*"), (None, "*", ""));
    }

    #[test]
    fn quotes_hide_brackets_and_folds_are_white_space() {
        assert_eq!(
            parse("\"<sip:x>\\\" , ;tag=no\"\r\n\t< sip:a@b >\r\n ;\r\n tag = t"),
            (Some("<sip:x>\\\" , ;tag=no"), "sip:a@b", ";\r\n tag = t")
        );
        let n = NameAddr::parse(b"sip:a@b ;\r\n  tag\r\n = t").unwrap();
        assert_eq!((n.uri, n.tag()), (&b"sip:a@b"[..], Some(&b"t"[..])));
        let n = NameAddr::parse(b"sip:a@b;x=\"<sip:c>\";tag=t").unwrap();
        assert_eq!((n.uri, n.tag()), (&b"sip:a@b"[..], Some(&b"t"[..])));
    }

    #[test]
    fn liberal_display_names() {
        assert_eq!(parse("A. (Bell) <sip:a@b>").0, Some("A. (Bell)"));
        assert_eq!(parse("J\u{f6}rg <sip:a@b>").0, Some("J\u{f6}rg"));
        assert_eq!(parse("\"\" <sip:a@b>").0, Some(""));
    }

    #[test]
    fn not_an_address() {
        for bad in [
            "",
            "<>",
            "< >",
            "<sip:a@b",
            "\"x <sip:a@b>",
            "\"x\" sip:a@b",
            "<sip:a>x",
            ";tag=1",
            "Bell, Alexander <sip:a@b>",
        ] {
            assert_eq!(NameAddr::parse(bad.as_bytes()), None, "{bad:?}");
        }
        // "sip" is not a display name here: the brackets come too late.
        assert_eq!(NameAddr::parse(b"sip:a <sip:b>").unwrap().parse_uri(), Err(Malformed::Uri));
    }
}
