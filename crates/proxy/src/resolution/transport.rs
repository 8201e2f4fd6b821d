//! Reads the transport protocols that URIs and DNS records name.

use arrayvec::ArrayVec;
use tidegate_sip::{Scheme, Uri};
use tidegate_world::Transport::{self, Tcp, Tls, Udp, Ws, Wss};

/// Reads the transport parameter of a SIP URI, or of a SIPS URI if `secure` is true. Returns `None`
/// if URIs with this scheme have no such transport.
pub(super) fn of_param(value: &[u8], secure: bool) -> Option<Transport> {
    // RFC 3261 §19.1.1: "For a SIPS URI, the transport parameter MUST indicate a reliable
    // transport."; §26.2.2: TLS is then used over it. RFC 7118 §5.5 defines `ws` for both schemes.
    // Some clients write `wss`.
    let known = [
        (&b"udp"[..], Some(Udp), None),
        (b"tcp", Some(Tcp), Some(Tls)),
        (b"tls", Some(Tls), Some(Tls)),
        (b"ws", Some(Ws), Some(Wss)),
        (b"wss", Some(Wss), Some(Wss)),
    ];
    let (_, open, sips) = known.iter().find(|(name, ..)| value.eq_ignore_ascii_case(name))?;
    if secure { *sips } else { *open }
}

/// Returns the transport that a URI asks for, if it is a known one. RFC 3261 §16.6 item 6:
/// "Furthermore, if the Request-URI contains a SIPS URI, TLS MUST be used to communicate with that
/// proxy." The same applies to a SIPS URI in a Route (§26.2.2).
pub(crate) fn transport_of(uri: &Uri<'_>) -> Option<Transport> {
    let is_secure = uri.scheme == Scheme::Sips;
    match uri.transport() {
        Some(name) => of_param(name, is_secure),
        None if is_secure => Some(Tls),
        None => Some(Udp),
    }
}

/// Reads the service field of a NAPTR record. Returns `None` if it is not a known SIP service.
pub(super) fn of_service(service: &str) -> Option<Transport> {
    // RFC 3263 §9 and RFC 7118 §10.2. "A record with a SIPS+D2U service field SHOULD NOT be
    // placed into the DNS, since it is not possible to use TLS over UDP."
    let known =
        [("SIP+D2U", Udp), ("SIP+D2T", Tcp), ("SIPS+D2T", Tls), ("SIP+D2W", Ws), ("SIPS+D2W", Wss)];
    let (_, transport) = known.iter().find(|(name, _)| service.eq_ignore_ascii_case(name))?;
    Some(*transport)
}

/// Returns the part before the domain in the name of the SRV records for a transport.
pub(crate) fn service_prefix(transport: Transport) -> &'static str {
    // RFC 3263 §4.2: "For a SIP URI, if the client wishes to use TLS, it also uses the service
    // identifier "_sips" for that specific transport, otherwise, it uses "_sip"."
    match transport {
        Udp => "_sip._udp.",
        Tcp => "_sip._tcp.",
        Tls => "_sips._tcp.",
        Ws => "_sip._ws.",
        Wss => "_sips._ws.",
    }
}

/// Returns the default port of a transport (RFC 3261 §19.1.2, RFC 7118 §5.5).
pub(crate) fn default_port(transport: Transport) -> u16 {
    match transport {
        Udp | Tcp => 5060,
        Tls => 5061,
        Ws => 80,
        Wss => 443,
    }
}

/// The transports that the client supports, the preferred one first.
#[derive(Clone, Debug)]
pub struct Transports(ArrayVec<Transport, 5>);

impl Transports {
    /// Collects the transports. Duplicates are ignored.
    pub fn new(transports: impl IntoIterator<Item = Transport>) -> Self {
        let mut all = ArrayVec::new();
        for transport in transports {
            if !all.contains(&transport) {
                all.push(transport);
            }
        }
        Self(all)
    }

    pub(super) fn supports(&self, transport: Transport) -> bool {
        self.0.contains(&transport)
    }

    /// Returns the position of a supported transport in the order of preference.
    pub(super) fn rank(&self, transport: Transport) -> Option<usize> {
        self.0.iter().position(|known| *known == transport)
    }

    /// Returns the transports for which SRV records are queried if there are no NAPTR records.
    /// `secure` is true for a SIPS URI.
    pub(super) fn of_scheme(&self, secure: bool) -> impl Iterator<Item = Transport> + use<'_> {
        // RFC 3263 §4.1: "Queries are done using the service identifier "_sip" for SIP URIs and
        // "_sips" for SIPS URIs."
        self.0.iter().copied().filter(move |transport| transport.is_secure() == secure)
    }

    /// Returns the transport for a URI without a transport parameter, or `None` if the client
    /// supports no transport for such a URI. `secure` is true for a SIPS URI, and `large` for a
    /// request that is too long for a datagram.
    pub(super) fn default(&self, secure: bool, large: bool) -> Option<Transport> {
        // RFC 3263 §4.1: "the client SHOULD use UDP for a SIP URI, and TCP for a SIPS URI." [...]
        // "However, another transport, such as TCP, MAY be used if the guidelines of SIP mandate
        // it for this particular request. That is the case, for example, for requests that exceed
        // the path MTU."
        // RFC 3263 §4.1: "If no SRV records are found, the client SHOULD use TCP for a SIPS URI,
        // and UDP for a SIP URI."
        let usual = match (secure, large) {
            (true, _) => Tls,
            (false, true) if self.supports(Tcp) => Tcp,
            (false, _) => Udp,
        };
        // A SIP URI may be reached over TLS, and a SIPS URI only over TLS.
        let any = || self.0.first().copied().filter(|_| !secure);
        let other = || self.of_scheme(secure).next().or_else(any);
        if self.supports(usual) { Some(usual) } else { other() }
    }
}

#[cfg(test)]
mod tests {
    use Transport::{Tcp, Tls, Udp, Ws, Wss};

    use super::*;

    #[test]
    fn a_parameter_means_another_transport_in_a_sips_uri() {
        for (value, open, sips) in [
            ("udp", Some(Udp), None),
            ("TCP", Some(Tcp), Some(Tls)),
            ("tls", Some(Tls), Some(Tls)),
            ("ws", Some(Ws), Some(Wss)),
            ("sctp", None, None),
            ("", None, None),
        ] {
            assert_eq!(of_param(value.as_bytes(), false), open, "{value}");
            assert_eq!(of_param(value.as_bytes(), true), sips, "{value}");
        }
    }

    #[test]
    fn services_name_transports() {
        for (service, transport) in [
            ("SIP+D2U", Some(Udp)),
            ("sip+d2t", Some(Tcp)),
            ("SIPS+D2T", Some(Tls)),
            ("SIP+D2W", Some(Ws)),
            ("SIPS+D2W", Some(Wss)),
            ("SIPS+D2U", None),
            ("SIP+D2S", None),
            ("E2U+sip", None),
        ] {
            assert_eq!(of_service(service), transport, "{service}");
        }
    }

    #[test]
    fn the_default_is_udp_or_tls_as_far_as_it_is_supported() {
        let all = Transports::new([Tls, Udp, Tcp, Tls]);
        assert_eq!(all.default(false, false), Some(Udp));
        assert_eq!(all.default(false, true), Some(Tcp));
        assert_eq!(all.default(true, true), Some(Tls));
        let udp = Transports::new([Udp]);
        assert_eq!(udp.default(false, true), Some(Udp));
        assert_eq!(udp.default(true, false), None);
        assert_eq!(Transports::new([Ws, Wss]).default(false, false), Some(Ws));
        assert_eq!(Transports::new([Ws, Wss]).default(true, false), Some(Wss));
        assert_eq!(Transports::new([Tls]).default(false, false), Some(Tls));
    }
}
