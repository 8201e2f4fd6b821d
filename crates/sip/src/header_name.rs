//! Names of header fields.

use std::fmt;

use crate::lexical::find_by_words;

macro_rules! header_names {
    ($($variant:ident $text:literal $($compact:literal)?,)*) => {
        /// The name of a header field. The text in a message may be long or compact, in upper or
        /// lower case (RFC 3261 §7.3.1, §7.3.3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum HeaderName {
            $(#[doc = concat!("`", $text, "`", $(", compact `", $compact, "`")?)] $variant,)*
            /// Any other name. The message itself contains its text.
            Other,
        }

        impl HeaderName {
            /// All names that have a variant of their own: all but [`Other`](Self::Other).
            pub const KNOWN: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the long form in its usual spelling, or empty for [`Other`](Self::Other).
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other => "",
                }
            }

            /// Returns the compact form (a lower-case letter), or `None` if the name has none.
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
    MaxBreadth "Max-Breadth",
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
    AllowEvents "Allow-Events" "u",
    ContentDisposition "Content-Disposition",
    Date "Date",
    Event "Event" "o",
    Geolocation "Geolocation",
    Identity "Identity" "y",
    MimeVersion "MIME-Version",
    MinExpires "Min-Expires",
    MinSe "Min-SE",
    Organization "Organization",
    PAssertedIdentity "P-Asserted-Identity",
    PPreferredIdentity "P-Preferred-Identity",
    Flow "Flow",
    Priority "Priority",
    Privacy "Privacy",
    RAck "RAck",
    Reason "Reason",
    ReferTo "Refer-To" "r",
    ReferredBy "Referred-By" "b",
    RejectContact "Reject-Contact" "j",
    Replaces "Replaces",
    ReplyTo "Reply-To",
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
    AcceptEncoding "Accept-Encoding",
    AcceptLanguage "Accept-Language",
    AlertInfo "Alert-Info",
    CallInfo "Call-Info",
    ContentEncoding "Content-Encoding" "e",
    ContentLanguage "Content-Language",
    ErrorInfo "Error-Info",
    IdentityInfo "Identity-Info" "n",
    InReplyTo "In-Reply-To",
    RequestDisposition "Request-Disposition" "d",
}

/// The length of the longest known name, in bytes.
const LENGTH_MAX: usize = 24;

/// A hash table of the known names. A name is in its [`slot`], or in the next free slot if that
/// slot is taken.
static BY_BEGINNING: [HeaderName; 256] = {
    let mut table = [HeaderName::Other; 256];
    let mut i = 0;
    while i < HeaderName::KNOWN.len() {
        let name = HeaderName::KNOWN[i];
        let mut slot = slot(name.text().as_bytes());
        while !matches!(table[slot], HeaderName::Other) {
            slot = (slot + 1) % table.len();
        }
        table[slot] = name;
        i += 1;
    }
    table
};

/// Returns the slot of a name in [`BY_BEGINNING`]. The slot depends on the length of the name and
/// on its first eight characters, without regard to case.
#[inline(always)]
const fn slot(name: &[u8]) -> usize {
    let word = match name.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let (mut word, mut i) = (0, 0);
            while i < name.len() {
                word |= (name[i] as u64) << (8 * i);
                i += 1;
            }
            word
        }
    };
    // Upper-case and lower-case letters differ in this bit.
    let word = (word | 0x2020_2020_2020_2020) ^ name.len() as u64;
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// Returns the first known name, from the [`slot`] of `name` on, for which `is_it` returns true, or
/// `Other` if there is none.
#[inline(always)]
fn known(name: &[u8], is_it: impl Fn(&[u8]) -> bool) -> HeaderName {
    let mut slot = slot(name);
    loop {
        let candidate = BY_BEGINNING[slot];
        if candidate == HeaderName::Other || is_it(TEXTS[candidate as usize]) {
            return candidate;
        }
        slot = (slot + 1) % BY_BEGINNING.len();
    }
}

/// The usual spelling of each known name.
static TEXTS: [&[u8]; HeaderName::KNOWN.len()] = {
    let mut texts: [&[u8]; HeaderName::KNOWN.len()] = [b""; HeaderName::KNOWN.len()];
    let mut i = 0;
    while i < texts.len() {
        texts[i] = HeaderName::KNOWN[i].text().as_bytes();
        i += 1;
    }
    texts
};

/// The known names, indexed by their compact forms from `a` to `z`.
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
    /// Returns the name for the text `name`, long or compact, in any case.
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Self {
        if let [letter] = name {
            let index = usize::from(letter.to_ascii_lowercase().wrapping_sub(b'a'));
            return BY_LETTER.get(index).copied().unwrap_or(Self::Other);
        }
        known(name, |text| name.eq_ignore_ascii_case(text))
    }

    /// Returns the name at the beginning of a line, and the position of its colon. Finds only a
    /// name that occurs in nearly every message, in its usual spelling, and followed by a colon and
    /// a space.
    ///
    /// This is a shortcut: a name that is not found here may still be a known one, for example on a
    /// line of less than 16 bytes at the end of the message.
    #[inline(always)]
    pub(crate) fn at_start(line: &[u8]) -> Option<(Self, usize)> {
        let words = u128::from_le_bytes(*line.first_chunk()?);
        let mut slot = usual_slot(words as u32);
        loop {
            let Usual { text, mask, name, colon, shares } = USUAL[slot];
            if words & mask == text {
                return Some((name, usize::from(colon)));
            }
            if !shares {
                return None;
            }
            slot = (slot + 1) % USUAL.len();
        }
    }

    /// Returns the same as [`at_start`](Self::at_start), but finds all known names. The name must
    /// be in its usual spelling and directly followed by the colon.
    pub(crate) fn usual_at_start(line: &[u8]) -> Option<(Self, usize)> {
        let colon = find_by_words(b':', &line[..line.len().min(LENGTH_MAX + 1)])?;
        let name = &line[..colon];
        match known(name, |text| text == name) {
            Self::Other => None,
            found => Some((found, colon)),
        }
    }

    /// Returns whether a proxy uses the header and the header may occur only once, because its
    /// value is not a comma-separated list (RFC 3261 §7.3.1).
    pub(crate) const fn is_single(self) -> bool {
        SINGLE & self.bit() != 0
    }

    /// Returns the bit of this name in a set of names. All names with a number of at least
    /// [`SHARED`] share the last bit.
    #[inline(always)]
    pub(crate) const fn bit(self) -> u64 {
        let number = self as u8;
        1 << if number < SHARED { number } else { SHARED }
    }
}

/// The number of the first name without a bit of its own in a set of names. This name and all later
/// ones share the last bit. They are rare and may occur on several lines.
const SHARED: u8 = 63;

/// One of the names found in nearly every message, in the form in which it begins a line.
#[derive(Clone, Copy)]
struct Usual {
    /// The name, a colon and a space, as the lowest bytes of a word.
    text: u128,
    /// A mask for the bytes of a line that are compared with `text`.
    mask: u128,
    name: HeaderName,
    colon: u8,
    /// True if the next slot has another name that begins with the same four bytes.
    shares: bool,
}

/// A hash table of the usual names, indexed by [`usual_slot`]. Names that begin with the same four
/// bytes are next to each other, in the order in which they are tried.
static USUAL: [Usual; 32] = {
    use HeaderName::*;
    const NAMES: [HeaderName; 16] = [
        Via,
        From,
        To,
        CallId,
        CSeq,
        ContentLength,
        Contact,
        ContentType,
        MaxForwards,
        Route,
        RecordRoute,
        Allow,
        Supported,
        Subject,
        UserAgent,
        Expires,
    ];
    // No line matches this text with this mask.
    let free = Usual { text: 1, mask: 0, name: Other, colon: 0, shares: false };
    let mut table = [free; 32];
    let mut i = 0;
    while i < NAMES.len() {
        let (text, length) = beginning(NAMES[i].text().as_bytes());
        let mut slot = usual_slot(text as u32);
        while table[slot].mask != 0 {
            assert!(table[slot].text as u32 == text as u32, "another beginning has this slot");
            table[slot].shares = true;
            slot += 1;
        }
        let mask = u128::MAX >> (128 - 8 * length);
        table[slot] = Usual { text, mask, name: NAMES[i], colon: length as u8 - 2, shares: false };
        i += 1;
    }
    table
};

/// Returns the slot in [`USUAL`] of the names that begin with these four bytes. The factor gives
/// each beginning a different slot.
#[inline(always)]
const fn usual_slot(beginning: u32) -> usize {
    (beginning.wrapping_mul(0xfe17_5331) >> 27) as usize
}

/// Returns `name` (at most 14 bytes), a colon and a space as the lowest bytes of a word, and the
/// number of these bytes.
const fn beginning(name: &[u8]) -> (u128, u32) {
    let (mut word, mut i) = (0, 0);
    while i < name.len() {
        word |= (name[i] as u128) << (8 * i);
        i += 1;
    }
    word |= (u16::from_le_bytes(*b": ") as u128) << (8 * i);
    (word, i as u32 + 2)
}

/// The set of the names that may occur only on one line, with one [bit](HeaderName::bit) for each.
///
/// These are the headers with a single value that a proxy uses itself, and the Content-Length, by
/// which it and the next element find the end of the body. A server may accept or reject a request
/// that repeats another header.
///
/// RFC 3261 §16.3: "Any other components, well-formed or not, SHOULD be ignored and remain
/// unchanged when the message is forwarded."
pub(crate) const SINGLE: u64 = {
    use HeaderName::*;
    let names = [CallId, ContentLength, CSeq, From, MaxBreadth, MaxForwards, To];
    let mut set = 0;
    let mut i = 0;
    while i < names.len() {
        set |= names[i].bit();
        i += 1;
    }
    assert!(set >> SHARED == 0, "names that share a bit may be repeated");
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

    #[test]
    fn the_shortcut_finds_the_same_names() {
        let mut found = 0;
        for &name in HeaderName::KNOWN {
            let line = format!("{name}: a usual value");
            if let Some(shortcut) = HeaderName::at_start(line.as_bytes()) {
                assert_eq!(shortcut, (name, name.text().len()));
                found += 1;
            }
            let found = Some((name, name.text().len()));
            assert_eq!(HeaderName::usual_at_start(line.as_bytes()), found);
            assert_eq!(HeaderName::usual_at_start(format!("{name}:").as_bytes()), found);
            let spaced = format!("{name} : x");
            assert_eq!(HeaderName::at_start(spaced.as_bytes()), None);
            assert_eq!(HeaderName::usual_at_start(spaced.as_bytes()), None);
        }
        assert_eq!(found, 16);
        assert_eq!(HeaderName::at_start(b""), None);
        for line in ["", ":", "X-Via: x", "Subjects: x", "Subject", &"Subject".repeat(9)] {
            assert_eq!(HeaderName::usual_at_start(line.as_bytes()), None, "{line}");
        }
    }

    /// The compact forms are those of RFC 3261 §7.3.3, and those that were registered later.
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
    fn lists_and_unused_headers_may_be_repeated_and_single_values_not() {
        assert!(HeaderName::CallId.is_single() && HeaderName::MaxForwards.is_single());
        for list in [HeaderName::Via, HeaderName::Route, HeaderName::Contact, HeaderName::Other] {
            assert!(!list.is_single(), "{list}");
        }
        assert!(!HeaderName::UserAgent.is_single() && !HeaderName::Expires.is_single());
    }
}
