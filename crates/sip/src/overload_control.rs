//! The overload control parameters of a Via: RFC 7339 §4 and §9.
//!
//! A client offers algorithms by `;oc;oc-algo="loss,rate"`. A server fills the values into the same
//! Via of the response: `;oc=20;oc-algo="loss";oc-validity=500;oc-seq=1282321615.782`. A malformed
//! value is ignored, and does not make the message malformed.
//!
//! `oc-tgload` is our own parameter. A server writes it without a value to ask the client for its
//! original load: the calls a second that the client would send without overload control. The
//! client answers with `oc-tgload=12.3` beside its offer. No RFC defines this parameter. The
//! grammar allows it as a `via-extension` (RFC 3261 §25.1).

mod rewrite;

use std::io::{self, Write};

use crate::lexical::{find, is_space, run, trim};
use crate::params::{Param, Params};
use crate::via::Parts;

pub(crate) use self::rewrite::can_write_overload_control;
pub use self::rewrite::write_overload_control;

/// Maximum number of algorithm names that are read from one `oc-algo` parameter.
pub const ALGORITHMS_MAX: usize = 16;

/// The overload control parameters of one Via.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverloadControl<'a> {
    /// The `oc` parameter, or `None` if it is missing or malformed.
    pub oc: Option<Oc>,
    /// The text between the quotes of `oc-algo`, or `None` if the parameter or its value is
    /// missing.
    algorithms: Option<&'a [u8]>,
    /// The value of `oc-validity` in milliseconds, or `None` if it is missing or malformed. A
    /// number above `u32::MAX` is read as `u32::MAX`.
    pub validity_ms: Option<u32>,
    /// The value of `oc-seq`, or `None` if it is missing or malformed.
    pub sequence: Option<OcSequence>,
    /// The `oc-tgload` parameter, or `None` if it is missing or malformed.
    pub load: Option<OcLoad>,
}

/// The `oc-tgload` parameter, which no RFC defines. A client tells a server its original load: the
/// calls a second that it would send without overload control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcLoad {
    /// There is no value: a server asks the client for its original load.
    Wanted,
    /// The original load of the client, in tenths of a call a second. A number above `u32::MAX` is
    /// read as `u32::MAX`.
    TenthsCps(u32),
}

impl OcLoad {
    /// Writes the parameter with a leading semicolon.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write(self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        match self {
            Self::Wanted => out.write_all(b";oc-tgload"),
            Self::TenthsCps(tenths) => write!(out, ";oc-tgload={}.{}", tenths / 10, tenths % 10),
        }
    }
}

/// The `oc` parameter (RFC 7339 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oc {
    /// There is no value: a client offers overload control.
    Offered,
    /// The value that a server states. A number above `u32::MAX` is read as `u32::MAX`.
    Value(u32),
}

/// The `oc-seq` parameter (RFC 7339 §4.4). The order of two values is the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OcSequence {
    /// The number before the dot, which has up to 12 digits.
    pub seconds: u64,
    /// The decimals after the dot, in 1/100,000: 78,200 for `.782`.
    pub fraction: u32,
}

impl<'a> OverloadControl<'a> {
    /// Reads the parameters of a Via. If a name occurs twice, the first counts.
    pub fn of(params: Params<'a>) -> Self {
        let mut found = Self::default();
        let mut seen = [false; NAMES.len()];
        for Param { name, value, .. } in params {
            let Some(index) = index_of(name) else { continue };
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            match index {
                0 => found.oc = oc(value),
                1 => found.algorithms = value.map(trim),
                2 => found.validity_ms = value.and_then(saturating),
                3 => found.sequence = value.and_then(sequence),
                _ => found.load = load(value),
            }
        }
        found
    }

    /// Reads the parameters of one Via element. Returns `None` if there are none, or if the element
    /// violates the grammar. A server cannot remove the parameters of such an element, so they may
    /// come from an element behind the server.
    #[inline]
    pub fn in_via(element: &'a [u8]) -> Option<Self> {
        if !may_have_overload_control(element) {
            return None;
        }
        let params = Parts::of(element)?.params;
        let found = params.is_well_formed().then(|| Self::of(params));
        found.filter(|found| *found != Self::default())
    }

    /// Returns the names of the algorithms in `oc-algo` in their order, at most [`ALGORITHMS_MAX`]
    /// of them.
    pub fn algorithms(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let names = self.algorithms.unwrap_or_default().split(|&b| b == b',').map(trim);
        names.filter(|name| !name.is_empty()).take(ALGORITHMS_MAX)
    }

    /// Writes the parameters with which a server answers an offer: the value, the name of one
    /// algorithm, the validity in milliseconds and the sequence number. A semicolon precedes each
    /// parameter.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write(
        value: u32,
        algorithm: &str,
        validity_ms: u32,
        OcSequence { seconds, fraction }: OcSequence,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        write!(
            out,
            ";oc={value};oc-algo=\"{algorithm}\";oc-validity={validity_ms};oc-seq={seconds}.{fraction:05}"
        )
    }
}

/// The names of the overload control parameters.
const NAMES: [&[u8]; 5] = [b"oc", b"oc-algo", b"oc-validity", b"oc-seq", b"oc-tgload"];

fn index_of(name: &[u8]) -> Option<usize> {
    match name {
        [b'o' | b'O', b'c' | b'C', ..] => {
            NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))
        }
        _ => None,
    }
}

/// Parses the value of `oc`. RFC 7339 §9: `oc = "oc" [EQUAL oc-num]`.
fn oc(value: Option<&[u8]>) -> Option<Oc> {
    match value {
        None => Some(Oc::Offered),
        Some(value) => saturating(value).map(Oc::Value),
    }
}

/// Parses the value of `oc-tgload`: `1*DIGIT ["." DIGIT]`. No value means [`OcLoad::Wanted`].
fn load(value: Option<&[u8]>) -> Option<OcLoad> {
    let Some(value) = value else { return Some(OcLoad::Wanted) };
    let (whole, tenth) = match find(b'.', value) {
        Some(dot) => (&value[..dot], &value[dot + 1..]),
        None => (value, &b"0"[..]),
    };
    let tenth = saturating(tenth).filter(|_| tenth.len() == 1)?;
    let tenths = saturating(whole)?.saturating_mul(10).saturating_add(tenth);
    Some(OcLoad::TenthsCps(tenths))
}

/// Reads `1*DIGIT`. A number above `u32::MAX` counts as `u32::MAX`.
fn saturating(text: &[u8]) -> Option<u32> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let digit = |number: u32, b: &u8| number.saturating_mul(10).saturating_add(u32::from(b - b'0'));
    is_number.then(|| text.iter().fold(0, digit))
}

/// Parses the value of `oc-seq`. RFC 7339 §9: `oc-seq = "oc-seq" EQUAL 1*12DIGIT "." 1*5DIGIT`. A
/// number without decimals is accepted too, because §4.4 says "an unsigned integer value".
fn sequence(text: &[u8]) -> Option<OcSequence> {
    let dot = find(b'.', text);
    let (seconds, decimals) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let is_number = |text: &[u8], max: usize| {
        (1..=max).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
    };
    if !is_number(seconds, 12) || !is_number(decimals, 5) {
        return None;
    }
    let digits = |text: &[u8]| text.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0'));
    let fraction = digits(decimals) * 10_u64.pow(5 - decimals.len() as u32);
    Some(OcSequence { seconds: digits(seconds), fraction: fraction as u32 })
}

/// Returns whether the value of a Via line may have overload control parameters. A quoted string
/// that looks like such a parameter counts as one.
pub fn may_have_overload_control(mut value: &[u8]) -> bool {
    while let Some(at) = find(b';', value) {
        value = &value[at + 1..];
        let name = &value[run(value, is_space)..];
        if matches!(name, [b'o' | b'O', b'c' | b'C', ..]) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: &str) -> OverloadControl<'_> {
        OverloadControl::of(Params::new(params.as_bytes()))
    }

    fn names<'a>(read: &OverloadControl<'a>) -> Vec<&'a str> {
        read.algorithms().map(|name| std::str::from_utf8(name).unwrap()).collect()
    }

    /// The examples of RFC 7339 §6 and RFC 7415 §4.
    #[test]
    fn examples_of_the_rfcs() {
        let offer = read(r#";branch=z9hG4bK2d4790.1;oc;oc-algo="loss,A""#);
        assert_eq!((offer.oc, names(&offer)), (Some(Oc::Offered), vec!["loss", "A"]));
        assert_eq!((offer.validity_ms, offer.sequence), (None, None));

        let at = |seconds, fraction| Some(OcSequence { seconds, fraction });
        let value = read(
            ";received=192.0.2.111;\r\n  oc=20;oc-algo=\"loss\";oc-validity=500;\r\n oc-seq=1282321615.782",
        );
        assert_eq!((value.oc, value.validity_ms), (Some(Oc::Value(20)), Some(500)));
        assert_eq!(value.sequence, at(1_282_321_615, 78_200));
        let none = read(r#";oc=0;oc-algo="rate";oc-validity=0;oc-seq=1282321615.781"#);
        assert_eq!((none.oc, names(&none)), (Some(Oc::Value(0)), vec!["rate"]));
        assert_eq!(none.validity_ms, Some(0));
        assert!(none.sequence < value.sequence, "a later value has a larger number");
    }

    #[test]
    fn names_are_read_in_any_case_and_with_spaces() {
        let value =
            read("; OC = 7 ;Oc-Algo = \" Loss ,, RATE ,\" ; oc-VALIDITY =1;oc-seq = 5.00001");
        assert_eq!((value.oc, value.validity_ms), (Some(Oc::Value(7)), Some(1)));
        assert_eq!(names(&value), ["Loss", "RATE"]);
        assert_eq!(value.sequence, Some(OcSequence { seconds: 5, fraction: 1 }));
        // Some senders omit the quotes.
        assert_eq!(names(&read(";oc;oc-algo=loss")), ["loss"]);
        // The first of each name counts.
        assert_eq!(read(";oc=x;oc=1").oc, None);
        assert_eq!(read(";oc-x=1;ocx;o;oc").oc, Some(Oc::Offered));
    }

    #[test]
    fn bad_values_are_ignored() {
        for bad in ["", "-1", "1.5", "x", "\"\"", "1 2", "0x1"] {
            let text = format!(";oc={bad};oc-validity={bad};oc-seq={bad};branch=a");
            let value = read(&text);
            assert_eq!((value.oc, value.validity_ms), (None, None), "{bad:?}");
            assert!(bad == "1.5" || value.sequence.is_none(), "{bad:?}");
        }
        for bad in ["1.", ".1", "1.123456", "1234567890123.1", "1.1.1", "1,1", "1.x"] {
            assert_eq!(read(&format!(";oc-seq={bad}")).sequence, None, "{bad:?}");
        }
        let huge = read(";oc=99999999999999999999999;oc-validity=4294967296");
        assert_eq!((huge.oc, huge.validity_ms), (Some(Oc::Value(u32::MAX)), Some(u32::MAX)));
        let many = format!(";oc;oc-algo=\"{}\"", "a,".repeat(5000));
        assert_eq!(read(&many).algorithms().count(), ALGORITHMS_MAX);
    }

    #[test]
    fn decimals_are_of_one_unit() {
        let fraction = |text: &str| read(text).sequence.map(|sequence| sequence.fraction);
        assert_eq!(fraction(";oc-seq=1.1"), Some(10_000));
        assert_eq!(fraction(";oc-seq=1.10000"), Some(10_000));
        assert_eq!(fraction(";oc-seq=1.00009"), Some(9));
        assert_eq!(fraction(";oc-seq=1"), Some(0));
        assert_eq!(
            read(";oc-seq=999999999999.99999").sequence,
            Some(OcSequence { seconds: 999_999_999_999, fraction: 99_999 })
        );
    }

    #[test]
    fn parameters_that_are_written_are_read_again() {
        let sequence = OcSequence { seconds: 1_282_321_615, fraction: 78 };
        let mut out = Vec::new();
        OverloadControl::write(20, "loss", 500, sequence, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, r#";oc=20;oc-algo="loss";oc-validity=500;oc-seq=1282321615.00078"#);
        let value = read(&text);
        assert_eq!((value.oc, names(&value)), (Some(Oc::Value(20)), vec!["loss"]));
        assert_eq!((value.validity_ms, value.sequence), (Some(500), Some(sequence)));
    }

    #[test]
    fn a_load_is_asked_for_and_stated_in_tenths() {
        for (text, expected) in [
            (";oc-tgload", Some(OcLoad::Wanted)),
            (";oc-tgload=12.3", Some(OcLoad::TenthsCps(123))),
            (";OC-TGLOAD=7", Some(OcLoad::TenthsCps(70))),
            (";oc-tgload=99999999999.9", Some(OcLoad::TenthsCps(u32::MAX))),
            (";oc-tgload=1.23", None),
            (";oc-tgload=1.", None),
            (";oc-tgload=-1", None),
            (";oc-tgload=.5", None),
            (";oc", None),
        ] {
            assert_eq!(read(text).load, expected, "{text}");
        }
        for load in [OcLoad::Wanted, OcLoad::TenthsCps(0), OcLoad::TenthsCps(u32::MAX)] {
            let mut out = Vec::new();
            load.write(&mut out).unwrap();
            assert_eq!(read(std::str::from_utf8(&out).unwrap()).load, Some(load));
        }
    }

    /// RFC 7339 §11: "If this feedback is added to the second Via header (or all Via headers), it
    /// will reach the next upstream proxy." A proxy cannot remove it from such a Via.
    #[test]
    fn nothing_is_read_in_a_via_that_violates_the_grammar() {
        for odd in ["x=<y>", "x=\"y\"<z>", "x=y\"z", "x=\"y\" z", "x<y", ";x", ""] {
            for text in [format!(";oc=100;{odd}"), format!(";{odd};oc=100")] {
                let element = format!("SIP/2.0/UDP a;branch=b{text}");
                assert_eq!(OverloadControl::in_via(element.as_bytes()), None, "{element}");
            }
        }
        let quoted = b"SIP/2.0/UDP a;branch=b;x=\"<y>\";oc=100;rport=";
        assert_eq!(OverloadControl::in_via(quoted).unwrap().oc, Some(Oc::Value(100)));
    }

    #[test]
    fn a_via_without_such_parameters_is_recognised() {
        for (text, may) in [
            ("SIP/2.0/UDP a;branch=b;rport", false),
            ("SIP/2.0/UDP oc", false),
            ("SIP/2.0/UDP a;oc", true),
            ("SIP/2.0/UDP a; \r\n Oc-seq=1", true),
            ("SIP/2.0/UDP a;x;y, SIP/2.0/UDP b;oc=1", true),
        ] {
            assert_eq!(may_have_overload_control(text.as_bytes()), may, "{text:?}");
            assert_eq!(
                OverloadControl::in_via(text.split(',').next().unwrap().as_bytes()).is_some(),
                may && !text.contains("x;y"),
                "{text:?}"
            );
        }
        assert_eq!(OverloadControl::in_via(b"SIP/2.0/UDP a;ocx=1"), None);
    }
}
