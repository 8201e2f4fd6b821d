//! Names of header fields.

use std::fmt;

use crate::lexical::every;

macro_rules! header_names {
    ($($variant:ident $text:literal $($compact:literal)?,)*) => {
        /// The name of a header field, whatever its case and form (RFC 3261 §7.3.1, §7.3.3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum HeaderName {
            $(#[doc = concat!("`", $text, "`", $(", compact `", $compact, "`")?)] $variant,)*
            /// Any other; its name stays beside it in the message.
            Other,
        }

        impl HeaderName {
            /// The names known here, that is, all but [`Other`](Self::Other).
            pub const KNOWN: &'static [Self] = &[$(Self::$variant),*];

            /// The long form in its usual spelling; empty for [`Other`](Self::Other).
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other => "",
                }
            }

            /// The compact form, a lower-case letter, if there is one.
            pub const fn compact(self) -> Option<u8> {
                match self {
                    $($(Self::$variant => Some($compact.as_bytes()[0]),)?)*
                    _ => None,
                }
            }
        }
    };
}

header_names! {
    Via "Via" "v",
    From "From" "f",
    To "To" "t",
    CallId "Call-ID" "i",
    CSeq "CSeq",
    MaxForwards "Max-Forwards",
    Contact "Contact" "m",
    Route "Route",
    RecordRoute "Record-Route",
    ContentLength "Content-Length" "l",
    ContentType "Content-Type" "c",
    Expires "Expires",
    Require "Require",
    ProxyRequire "Proxy-Require",
    Supported "Supported" "k",
    Unsupported "Unsupported",
    Allow "Allow",
    UserAgent "User-Agent",
    Server "Server",
    Authorization "Authorization",
    ProxyAuthorization "Proxy-Authorization",
    WwwAuthenticate "WWW-Authenticate",
    ProxyAuthenticate "Proxy-Authenticate",
    AuthenticationInfo "Authentication-Info",
    Accept "Accept",
    AcceptContact "Accept-Contact" "a",
    AcceptEncoding "Accept-Encoding",
    AcceptLanguage "Accept-Language",
    AlertInfo "Alert-Info",
    AllowEvents "Allow-Events" "u",
    CallInfo "Call-Info",
    ContentDisposition "Content-Disposition",
    ContentEncoding "Content-Encoding" "e",
    ContentLanguage "Content-Language",
    Date "Date",
    ErrorInfo "Error-Info",
    Event "Event" "o",
    Geolocation "Geolocation",
    Identity "Identity" "y",
    IdentityInfo "Identity-Info" "n",
    InReplyTo "In-Reply-To",
    MimeVersion "MIME-Version",
    MinExpires "Min-Expires",
    MinSe "Min-SE",
    Organization "Organization",
    PAssertedIdentity "P-Asserted-Identity",
    PPreferredIdentity "P-Preferred-Identity",
    Path "Path",
    Priority "Priority",
    Privacy "Privacy",
    RAck "RAck",
    Reason "Reason",
    ReferTo "Refer-To" "r",
    ReferredBy "Referred-By" "b",
    RejectContact "Reject-Contact" "j",
    Replaces "Replaces",
    ReplyTo "Reply-To",
    RequestDisposition "Request-Disposition" "d",
    ResourcePriority "Resource-Priority",
    AcceptResourcePriority "Accept-Resource-Priority",
    RetryAfter "Retry-After",
    RSeq "RSeq",
    ServiceRoute "Service-Route",
    SessionExpires "Session-Expires" "x",
    SipETag "SIP-ETag",
    SipIfMatch "SIP-If-Match",
    Subject "Subject" "s",
    SubscriptionState "Subscription-State",
    Timestamp "Timestamp",
    Warning "Warning",
}

/// Slots of the table of names: a power of two, with most of them free.
const SLOTS: usize = 256;

/// A known name as it is compared: its length and its ends.
#[derive(Clone, Copy)]
struct Known {
    name: HeaderName,
    len: u8,
    ends: (u64, u64),
}

/// The known names of two letters and more, by a hash of their ends; one that finds
/// its slot taken lies in the next free one.
static KNOWN: [Known; SLOTS] = {
    let none = Known { name: HeaderName::Other, len: 0, ends: (0, 0) };
    let mut table = [none; SLOTS];
    let mut i = 0;
    while i < HeaderName::KNOWN.len() {
        let name = HeaderName::KNOWN[i];
        let ends = ends(name.text().as_bytes());
        let mut slot = slot(ends);
        while !matches!(table[slot].name, HeaderName::Other) {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = Known { name, len: name.text().len() as u8, ends };
        i += 1;
    }
    table
};

/// The names that a letter abbreviates, from `a` on.
static BY_LETTER: [HeaderName; 26] = {
    let mut table = [HeaderName::Other; 26];
    let mut i = 0;
    while i < HeaderName::KNOWN.len() {
        if let Some(letter) = HeaderName::KNOWN[i].compact() {
            table[(letter - b'a') as usize] = HeaderName::KNOWN[i];
        }
        i += 1;
    }
    table
};

impl HeaderName {
    /// The name written as `name`, long or compact, in any case.
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Self {
        if let [letter] = name {
            let index = usize::from(letter.to_ascii_lowercase().wrapping_sub(b'a'));
            return BY_LETTER.get(index).copied().unwrap_or(Self::Other);
        }
        let ends = ends(name);
        let mut slot = slot(ends);
        loop {
            let known = &KNOWN[slot];
            if known.is(name, ends) || known.name == Self::Other {
                return known.name;
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// True for a header that stands once at the most and whose value is no
    /// comma-separated list (RFC 3261 §7.3.1).
    pub const fn is_single(self) -> bool {
        SINGLE & self.bit() != 0
    }

    /// This name's bit in a set of names.
    pub(crate) const fn bit(self) -> u128 {
        1 << self as u8
    }
}

impl Known {
    /// True if `name`, whose ends are `ends`, is this one but for case.
    #[inline]
    fn is(&self, name: &[u8], (head, tail): (u64, u64)) -> bool {
        let different = difference(head, self.ends.0) | difference(tail, self.ends.1);
        different == 0
            && usize::from(self.len) == name.len()
            && (name.len() <= 16 || name.eq_ignore_ascii_case(self.name.text().as_bytes()))
    }
}

/// The bytes at both ends of a name as two words. Up to sixteen bytes they overlap
/// and cover it, so that comparing names takes no loop over bytes.
#[inline]
const fn ends(name: &[u8]) -> (u64, u64) {
    if let (Some(head), Some(tail)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
    } else if let (Some(head), Some(tail)) = (name.first_chunk(), name.last_chunk()) {
        (u32::from_le_bytes(*head) as u64, u32::from_le_bytes(*tail) as u64)
    } else if let (Some(head), Some(tail)) = (name.first_chunk(), name.last_chunk()) {
        (u16::from_le_bytes(*head) as u64, u16::from_le_bytes(*tail) as u64)
    } else {
        (0, 0)
    }
}

/// The bits in which bytes of a name differ from those of a known one, case apart.
#[inline]
const fn difference(name: u64, known: u64) -> u64 {
    // Known names are made of letters, which have bit 6 and of which bit 5 is the
    // case, and of hyphens, which have no bit 6.
    let case = (known & every(0x40)) >> 1;
    (name ^ known) & !case
}

/// Where in the table a name with these ends is looked for first, whatever its case.
#[inline]
const fn slot((head, tail): (u64, u64)) -> usize {
    let folded = (head | every(0x20)) ^ (tail | every(0x20)).rotate_left(29);
    // Multiplying by 2^64 / φ spreads the low bits into the high ones.
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

const _: () = assert!((HeaderName::Other as u8) < 128, "a set of names is a u128");

const SINGLE: u128 = {
    use HeaderName::*;
    let names = [
        CallId,
        ContentDisposition,
        ContentLength,
        ContentType,
        CSeq,
        Date,
        Event,
        Expires,
        From,
        MaxForwards,
        MimeVersion,
        MinExpires,
        MinSe,
        Organization,
        Priority,
        RAck,
        ReferTo,
        ReferredBy,
        Replaces,
        ReplyTo,
        RetryAfter,
        RSeq,
        Server,
        SessionExpires,
        SipETag,
        SipIfMatch,
        Subject,
        SubscriptionState,
        Timestamp,
        To,
        UserAgent,
    ];
    let mut set = 0;
    let mut i = 0;
    while i < names.len() {
        set |= names[i].bit();
        i += 1;
    }
    set
};

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Other { "(other)" } else { self.text() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_and_in_its_compact_form() {
        for &name in HeaderName::KNOWN {
            let text = name.text();
            assert_eq!(HeaderName::from_bytes(text.as_bytes()), name);
            assert_eq!(HeaderName::from_bytes(text.to_uppercase().as_bytes()), name);
            assert_eq!(HeaderName::from_bytes(text.to_lowercase().as_bytes()), name);
            if let Some(letter) = name.compact() {
                assert_eq!(HeaderName::from_bytes(&[letter]), name);
                assert_eq!(HeaderName::from_bytes(&[letter.to_ascii_uppercase()]), name);
            }
        }
    }

    /// RFC 3261 §7.3.3 and the registry of later ones.
    #[test]
    fn compact_forms_are_the_registered_ones() {
        let forms: String = (b'a'..=b'z')
            .filter(|&b| HeaderName::from_bytes(&[b]) != HeaderName::Other)
            .map(char::from)
            .collect();
        assert_eq!(forms, "abcdefijklmnorstuvxy");
    }

    #[test]
    fn other_names_are_other() {
        for name in ["", "q", "X-Via", "Vi", "Vias", "Call_ID", "1", "Accept-Resource-Priorities"] {
            assert_eq!(HeaderName::from_bytes(name.as_bytes()), HeaderName::Other, "{name}");
        }
        assert_eq!(HeaderName::from_bytes(&[0xff; 300]), HeaderName::Other);
    }

    #[test]
    fn a_name_with_one_byte_changed_is_another() {
        for &name in HeaderName::KNOWN {
            for at in 0..name.text().len() {
                for b in 0..=u8::MAX {
                    let mut text = name.text().as_bytes().to_vec();
                    let same = text[at].eq_ignore_ascii_case(&b);
                    text[at] = b;
                    assert_eq!(HeaderName::from_bytes(&text) == name, same, "{name} {at} {b:#x}");
                }
            }
        }
    }

    #[test]
    fn lists_may_be_repeated_and_single_values_not() {
        assert!(HeaderName::CallId.is_single() && HeaderName::MaxForwards.is_single());
        for list in [HeaderName::Via, HeaderName::Route, HeaderName::Contact, HeaderName::Other] {
            assert!(!list.is_single(), "{list}");
        }
    }
}
