//! The session interval of session timers (RFC 4028): the time after which a session ends without a
//! refresh.

use std::time::Duration;

use crate::HeaderName;
use crate::lexical::{split_decimal, trim_start};
use crate::lines::Lines;

/// Returns the session interval in the Session-Expires of a request or response.
///
/// Returns `None` if there is no Session-Expires or if it violates the grammar. In both cases the
/// session does not expire. A value above 2^32 - 1 seconds counts as 2^32 - 1 (as RFC 3261 §20.19
/// says for Expires). If there are two Session-Expires lines, the first counts.
pub(crate) fn session_interval(message: &[u8]) -> Option<Duration> {
    let value = Lines::of(message, HeaderName::SessionExpires).next()?;
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let seconds = match split_decimal(value, u32::MAX) {
        Some((seconds, _)) => seconds,
        None if digits > 0 => u32::MAX,
        None => return None,
    };
    // RFC 4028 §4: delta-seconds *(SEMI se-params)
    let is_whole = matches!(trim_start(&value[digits..]).first(), None | Some(b';'));
    is_whole.then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Passage;

    fn interval_s(headers: &str) -> Option<u64> {
        let message = format!("SIP/2.0 200 OK\r\nVia: a\r\n{headers}To: b\r\n\r\nx: 7\r\n");
        let interval = session_interval(message.as_bytes());
        let passed = message.replacen("Via: a", "Via: SIP/2.0/UDP a\r\ni: 1\r\nCSeq: 1 INVITE", 1);
        assert_eq!(interval, Passage::parse(passed.as_bytes()).unwrap().session_interval());
        interval.map(|interval| interval.as_secs())
    }

    // RFC 4028 §4: "Session-Expires = ("Session-Expires" / "x") HCOLON delta-seconds
    // *(SEMI se-params)".
    #[test]
    fn rfc4028_4_long_and_compact_with_parameters_and_without() {
        for (headers, seconds) in [
            ("Session-Expires: 1800\r\n", Some(1800)),
            ("Session-Expires:4000;refresher=uac\r\n", Some(4000)),
            ("Supported: timer\r\nX : 90 ;refresher=uas;x=y\r\n", Some(90)),
            ("session-expires:\r\n 0090\r\nx: 100\r\n", Some(90)),
            ("Session-Expires: 99999999999999\r\n", Some(u32::MAX.into())),
        ] {
            assert_eq!(interval_s(headers), seconds, "{headers:?}");
        }
    }

    #[test]
    fn not_an_interval() {
        for headers in [
            "",
            "Session-Expires:\r\n",
            "Session-Expires: soon\r\n",
            "Session-Expires: -90\r\n",
            "Session-Expires: 90s\r\n",
            "Session-Expires: 90 91\r\n",
            "Min-SE: 90\r\n",
            "Expires: 90\r\n",
            "X-Session-Expires: 90\r\n",
        ] {
            assert_eq!(interval_s(headers), None, "{headers:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = session_interval(&message);
        }
    }
}
