//! The Via header (RFC 3261 §20.42, RFC 3581).

use crate::element::split_element;
use crate::lexical::{find, is_space, is_visible_but, port, split_token, trim, trim_start};
use crate::lines::Lines;
use crate::{HeaderName, Host, Params};

/// The transport of a Via's sent-protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViaTransport {
    /// `UDP`.
    Udp,
    /// `TCP`.
    Tcp,
    /// `TLS`.
    Tls,
    /// `WS`, RFC 7118.
    Ws,
    /// `WSS`, RFC 7118.
    Wss,
    /// `SCTP`, RFC 4168.
    Sctp,
    /// Any other transport.
    Other,
}

/// The `rport` parameter (RFC 3581).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rport {
    /// There is no value: the sender asks the server to write its source port here.
    Asked,
    /// The source port of the request.
    Port(u16),
}

/// An element of a Via header: one hop that a request has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via<'a> {
    /// The whole element, trimmed.
    pub element: &'a [u8],
    /// The transport of the sent-protocol.
    pub transport: ViaTransport,
    /// The transport as written.
    pub transport_name: &'a [u8],
    /// The host of sent-by.
    pub host: Host<'a>,
    /// The host and port of sent-by, as written.
    pub sent_by: &'a [u8],
    /// The port of sent-by, or `None` if none is written.
    pub port: Option<u16>,
    /// The parameters of the Via.
    pub params: Params<'a>,
    /// The parameters of the Via that are needed for a reply.
    pub(crate) answering: Answering<'a>,
    /// True if it is known that all parts of the Via follow the grammar.
    is_usual: bool,
}

/// The parts of a Via that identify a message.
pub(crate) struct TopVia<'a> {
    /// The whole element, trimmed.
    pub(crate) element: &'a [u8],
    /// The host and port of sent-by, as written.
    pub(crate) sent_by: &'a [u8],
    /// The branch, or `None` if there is none or it is empty.
    pub(crate) branch: Option<&'a [u8]>,
}

impl<'a> TopVia<'a> {
    /// Reads the first element of the value of a Via line. Returns the element, and the text after
    /// its comma if there is one. Returns `None` if the element violates the grammar.
    #[inline]
    pub(crate) fn first(value: &'a [u8]) -> Option<(Self, Option<&'a [u8]>)> {
        if let Some(via) = Self::usual(value) {
            return Some((via, None));
        }
        if let Some((parts, answering)) = Parts::usual(value) {
            let Parts { sent_by, .. } = parts;
            let branch = value_in(answering.branch);
            return Some((Self { element: value, sent_by, branch }, None));
        }
        let (element, rest) = split_element(value)?;
        let parts = Parts::of(element)?;
        Some((Self { element, sent_by: parts.sent_by, branch: parts.branch() }, rest))
    }

    /// Reads the value of a Via line that has one element, names UDP, and has its branch before all
    /// parameters except `rport`. Returns `None` for other values. Does not check the grammar, but
    /// only looks for bytes that would change the meaning of the value.
    #[inline(always)]
    fn usual(value: &'a [u8]) -> Option<Self> {
        let rest = value.strip_prefix(b"SIP/2.0/UDP ")?;
        if !is_visible_but([b'"', b','], rest) {
            return None;
        }
        let (sent_by, params) = rest.split_at(find(b';', rest).filter(|&end| end > 0)?);
        let params = params.strip_prefix(b";rport").unwrap_or(params);
        let branch = params.strip_prefix(b";branch=")?;
        let branch = &branch[..find(b';', branch).unwrap_or(branch.len())];
        (!branch.is_empty()).then_some(Self { element: value, sent_by, branch: Some(branch) })
    }
}

/// A Via element, split into its parts. The sent-by is not parsed yet.
pub(crate) struct Parts<'a> {
    transport_name: &'a [u8],
    sent_by: &'a [u8],
    pub(crate) params: Params<'a>,
}

impl<'a> Parts<'a> {
    /// Splits one trimmed Via element. Returns `None` if the element violates the grammar.
    pub(crate) fn of(element: &'a [u8]) -> Option<Self> {
        let (transport_name, rest) = split_token(match element.strip_prefix(b"SIP/2.0/") {
            Some(rest) => rest,
            None => after_slash(after_slash(element)?)?,
        })?;
        if !rest.first().is_some_and(|&b| is_space(b)) {
            return None;
        }
        let rest = trim_start(rest);
        let (sent_by, params) = rest.split_at(find(b';', rest).unwrap_or(rest.len()));
        let sent_by = trim(sent_by);
        (!sent_by.is_empty()).then(|| Self { transport_name, sent_by, params: Params::new(params) })
    }

    /// Splits the value of a Via line that has the most frequent form: one element, no parameters
    /// except `branch`, `rport` and `received`, and no quotes or additional white space. Returns
    /// `None` for other values. Reads each byte once. The sent-by of the result may violate the
    /// grammar, but no other part.
    #[inline(always)]
    fn usual(value: &'a [u8]) -> Option<(Self, Answering<'a>)> {
        let named = value.strip_prefix(b"SIP/2.0/")?;
        let (transport_name, rest) = match named.strip_prefix(b"UDP ") {
            Some(rest) => (&named[..3], rest),
            None => {
                let (name, rest) = split_token(named)?;
                (name, rest.strip_prefix(b" ")?)
            }
        };
        let (sent_by, params) = Params::split_plain_text(rest)?;
        Some((Self { transport_name, sent_by, params }, Answering::usual(params)?))
    }

    /// Returns the branch, or `None` if there is none or it is empty.
    fn branch(&self) -> Option<&'a [u8]> {
        self.params.value("branch")
    }
}

/// The parameters of a Via that are needed for a reply, found in one pass: the
/// [text](crate::Param::text) of each. If a name occurs twice, the first one counts, as in
/// [`Params::param`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answering<'a> {
    branch: Option<&'a [u8]>,
    pub(crate) rport: Option<&'a [u8]>,
    pub(crate) received: Option<&'a [u8]>,
    /// True if the Via may have overload control parameters (RFC 7339).
    may_have_overload_control: bool,
}

impl<'a> Answering<'a> {
    fn of(params: Params<'a>) -> Self {
        let mut found = Self::default();
        for param in params {
            let place = match param.name.len() {
                5 if param.is("rport") => &mut found.rport,
                6 if param.is("branch") => &mut found.branch,
                8 if param.is("received") => &mut found.received,
                _ => {
                    found.may_have_overload_control |=
                        matches!(param.name, [b'o' | b'O', b'c' | b'C', ..]);
                    continue;
                }
            };
            place.get_or_insert(param.text);
        }
        found
    }

    /// Reads a list that contains only the parameters `branch`, `rport` and `received`, each at most
    /// once, without quotes or white space. Returns `None` for other lists.
    #[inline]
    fn usual(params: Params<'a>) -> Option<Self> {
        let mut found = Self::default();
        let mut rest = params;
        while !rest.text().is_empty() {
            let (place, (param, behind)) = match rest.text().get(2)? {
                b'r' => (&mut found.branch, rest.split_plain(b";branch=")?),
                b'e' => (&mut found.received, rest.split_plain(b";received=")?),
                _ => {
                    let bare = rest.split_bare(b";rport");
                    (&mut found.rport, bare.or_else(|| rest.split_plain(b";rport="))?)
                }
            };
            if place.replace(param).is_some() {
                return None;
            }
            rest = behind;
        }
        Some(found)
    }
}

/// Returns the value in the text of a parameter, if it is not empty.
#[inline]
fn value_in(text: Option<&[u8]>) -> Option<&[u8]> {
    Params::value_in(text?).filter(|value| !value.is_empty())
}

/// Returns whether the sent-protocol of a well-formed Via is SIP/2.0.
#[inline]
fn is_sip_2(element: &[u8]) -> bool {
    element.starts_with(b"SIP/2.0/") || is_sip_2_in_other_words(element)
}

#[cold]
fn is_sip_2_in_other_words(element: &[u8]) -> bool {
    let mut parts = element.splitn(3, |&b| b == b'/');
    let mut is = |name: &[u8]| parts.next().is_some_and(|p| trim(p).eq_ignore_ascii_case(name));
    is(b"SIP") && is(b"2.0")
}

/// Returns the text after a token and a slash, or `None` if `text` does not begin with them. White
/// space around the slash is allowed.
fn after_slash(text: &[u8]) -> Option<&[u8]> {
    let (_, rest) = split_token(text)?;
    Some(trim_start(trim_start(rest).strip_prefix(b"/")?))
}

impl<'a> Via<'a> {
    /// Parses one trimmed Via element. Returns `None` if the element violates the grammar.
    #[inline]
    pub(crate) fn parse(element: &'a [u8]) -> Option<Self> {
        let Parts { transport_name, sent_by, params } = Parts::of(element)?;
        let (host, port, rest) = Host::split_with_port(sent_by)?;
        let transport = transport(transport_name);
        rest.is_empty().then_some(Self {
            element,
            transport,
            transport_name,
            host,
            sent_by,
            port,
            params,
            answering: Answering::of(params),
            is_usual: false,
        })
    }

    /// Parses the first element of the value of a Via line. If its [`element`](Self::element) is
    /// shorter than the value, other Vias follow on the line.
    #[inline(always)]
    pub(crate) fn first(value: &'a [u8]) -> Option<Self> {
        Self::usual(value).or_else(|| Self::parse(split_element(value)?.0))
    }

    /// Parses the value of a Via line that has the most frequent form: one element, no parameters
    /// except `branch`, `rport` and `received`, and no quotes or additional white space. Returns
    /// `None` for other values.
    #[inline(always)]
    fn usual(value: &'a [u8]) -> Option<Self> {
        let (Parts { transport_name, sent_by, params }, answering) = Parts::usual(value)?;
        let (host, port, rest) = Host::split_with_port(sent_by)?;
        rest.is_empty().then_some(Self {
            element: value,
            transport: transport(transport_name),
            transport_name,
            host,
            sent_by,
            port,
            params,
            answering,
            is_usual: true,
        })
    }

    /// Returns the branch, which identifies the transaction (RFC 3261 §8.1.1.7), or `None` if there
    /// is none.
    #[inline]
    pub fn branch(&self) -> Option<&'a [u8]> {
        value_in(self.answering.branch)
    }

    /// Returns the `received` parameter, the source address of the request as the next hop saw it
    /// (RFC 3261 §18.2.1), or `None` without one.
    pub fn received(&self) -> Option<&'a [u8]> {
        value_in(self.answering.received)
    }

    /// Returns the `rport` parameter, the source port of the request (RFC 3581). Returns `None` if
    /// it is absent, or if its value is not a port.
    pub fn rport(&self) -> Option<Rport> {
        read_rport(Params::value_in(self.answering.rport?))
    }

    /// Returns the `maddr` parameter, the multicast group for responses (RFC 3261 §18.2.2), or
    /// `None` without one.
    pub fn maddr(&self) -> Option<&'a [u8]> {
        self.params.value("maddr")
    }

    /// Returns whether the Via has parameters whose names begin like those of
    /// [`OverloadControl`](crate::OverloadControl).
    #[inline]
    pub fn may_have_overload_control(&self) -> bool {
        self.answering.may_have_overload_control
    }

    /// Returns whether the Via violates the grammar in a part that [`parse`](Self::parse) does not
    /// check, or names another protocol.
    ///
    /// RFC 3261 §8.1.1.7: "The protocol name and protocol version in the header field MUST be SIP
    /// and 2.0, respectively." §7.3.1: "any given parameter-name MUST NOT appear more than once". RFC
    /// 4475 §3.1.2.1: 400 to a Via of `SIP/2.0/UDP 192.0.2.15;;,;,,`.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        !self.is_usual && self.is_unsound()
    }

    // Kept out of `is_broken`, which is inlined, because few Vias come here.
    #[inline(never)]
    fn is_unsound(&self) -> bool {
        let repeats = |name: &&str| self.params.repeats(name);
        !is_sip_2(self.element)
            || !self.params.is_complete()
            || ["branch", "received", "rport"].iter().any(repeats)
    }

    /// Returns whether the branch begins with `z9hG4bK`, so that it is unique (RFC 3261 §8.1.1.7).
    pub fn has_magic_cookie(&self) -> bool {
        self.branch().is_some_and(|branch| branch.starts_with(b"z9hG4bK"))
    }
}

#[inline]
fn read_rport(value: Option<&[u8]>) -> Option<Rport> {
    match value {
        None | Some(b"") => Some(Rport::Asked),
        Some(value) => port(value).map(Rport::Port),
    }
}

#[inline]
fn transport(name: &[u8]) -> ViaTransport {
    if name == b"UDP" { ViaTransport::Udp } else { other_transport(name) }
}

fn other_transport(name: &[u8]) -> ViaTransport {
    const NAMES: [(&[u8], ViaTransport); 6] = [
        (b"UDP", ViaTransport::Udp),
        (b"TCP", ViaTransport::Tcp),
        (b"TLS", ViaTransport::Tls),
        (b"WSS", ViaTransport::Wss),
        (b"WS", ViaTransport::Ws),
        (b"SCTP", ViaTransport::Sctp),
    ];
    let known = NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
    known.map_or(ViaTransport::Other, |&(_, transport)| transport)
}

/// Returns the first Via of a message, and reads no line after it. Returns `None` if there is no
/// Via, or if it violates the grammar.
pub fn top_via(message: &[u8]) -> Option<Via<'_>> {
    Via::first(Lines::of(message, HeaderName::Via).next()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The fast path for usual values gives the same result as the path for all values.
        #[test]
        fn usual_values_are_read_like_all_others(
            protocol in "SIP/2\\.0/(UDP|TCP|Udp|U P)? {0,2}",
            sent_by in "(1\\.2\\.3\\.4|example\\.com|\\[::1\\]|a b|01\\.2\\.3\\.4)?( ?: ?(5060|65536))?",
            text in "(( |\r\n )?;(branch|rport|received|Branch|x)( ?= ?(\"[a;]{0,2}\"?|[a1:,< \"]{0,3}))?){0,5};?",
            more in "( ?, ?SIP/2\\.0/UDP b)?",
        ) {
            let value = format!("{protocol}{sent_by}{text}{more}");
            let value = trim(value.as_bytes());
            let (element, rest) = split_element(value).unwrap_or_default();
            let expected = Via::parse(element);
            let unknown = |via| Via { is_usual: false, ..via };
            let is_sound = Via::usual(value).is_none_or(|via| !unknown(via).is_broken());
            prop_assert!(is_sound);
            prop_assert_eq!(Via::first(value).map(unknown), expected);
            prop_assert!(element.is_empty() || rest.is_some() == (element.len() < value.len()));
            let top = TopVia::first(value).map(|(via, rest)| (via.element, via.sent_by, via.branch, rest));
            let parts = Parts::of(element);
            prop_assert_eq!(top, parts.map(|parts| (element, parts.sent_by, parts.branch(), rest)));

            let params = Params::new(text.as_bytes());
            for param in params {
                prop_assert_eq!(Params::value_in(param.text), param.value);
            }
        }
    }

    fn via(text: &str) -> Via<'_> {
        Via::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?}"))
    }

    /// Examples of RFC 3261 §20.42.
    #[test]
    fn examples_of_the_rfc() {
        let v = via("SIP/2.0/UDP erlang.bell-telephone.com:5060;branch=z9hG4bK87asdks7");
        assert_eq!((v.transport, v.port), (ViaTransport::Udp, Some(5060)));
        assert_eq!(v.host, Host::Name(b"erlang.bell-telephone.com"));
        assert_eq!(v.branch(), Some(&b"z9hG4bK87asdks7"[..]));
        assert!(v.has_magic_cookie());

        let v = via(
            "SIP / 2.0 / UDP first.example.com: 4000;ttl=16\r\n ;maddr=224.2.0.1 ;branch=z9hG4bKa7c6a8dlze.1",
        );
        assert_eq!((v.sent_by, v.port), (&b"first.example.com: 4000"[..], Some(4000)));
        assert_eq!(v.maddr(), Some(&b"224.2.0.1"[..]));
        assert_eq!(v.branch(), Some(&b"z9hG4bKa7c6a8dlze.1"[..]));
    }

    #[test]
    fn transports_in_any_case() {
        use ViaTransport::*;
        for (name, transport) in [
            ("UDP", Udp),
            ("tcp", Tcp),
            ("Tls", Tls),
            ("ws", Ws),
            ("WSS", Wss),
            ("SCTP", Sctp),
            ("UNKNOWN", Other),
            ("TLS-SCTP", Other),
        ] {
            assert_eq!(via(&format!("SIP/2.0/{name} a")).transport, transport);
        }
    }

    #[test]
    fn not_a_via() {
        let bad = [
            "",
            "SIP/2.0/UDP",
            "SIP/2.0/UDP ",
            "SIP/2.0/UDP;branch=a",
            "SIP/2.0 a",
            "SIP/2.0//UDP a",
            "/2.0/UDP a",
            "SIP/2.0/UDP ;branch=a",
            "SIP/2.0/UDP a b",
            "SIP/2.0/UDP a:x",
            "SIP/2.0/UDP a:",
            "SIP/2.0/ a",
            "SIP/2.0/UDP 2001:db8::9:1",
            "SIP/2.0/UDP [::1",
        ];
        for text in bad {
            assert_eq!(Via::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn all_readers_find_the_same_branch() {
        let some = |branch: &'static str| Some(branch.as_bytes());
        for (params, branch) in [
            (";branch=a", some("a")),
            (";rport;branch=a", some("a")),
            (";rport;branch= a ;x", some("a")),
            (";rport;branch=\"a;b\"", some("a;b")),
            (";rport;x;branch=a", some("a")),
            (";rport=1;branch=a", some("a")),
            (";rport ;branch=a", some("a")),
            (";rportx;branch=a", some("a")),
            (";RPORT;BRANCH=a", some("a")),
            (";rport;branch=;branch=a", None),
            (";rport;rport", None),
            (";rport", None),
        ] {
            let text = format!("SIP/2.0/UDP a{params}");
            assert_eq!(via(&text).branch(), branch, "{params}");
            assert_eq!(Parts::of(text.as_bytes()).unwrap().branch(), branch, "{params}");
        }
    }

    #[test]
    fn rport_with_and_without_value() {
        assert_eq!(via("SIP/2.0/UDP a;rport").rport(), Some(Rport::Asked));
        assert_eq!(via("SIP/2.0/UDP a;rport=").rport(), Some(Rport::Asked));
        assert_eq!(via("SIP/2.0/UDP a;RPORT=1").rport(), Some(Rport::Port(1)));
        assert_eq!(via("SIP/2.0/UDP a;rport=x").rport(), None);
        assert_eq!(via("SIP/2.0/UDP a").rport(), None);
    }
}
