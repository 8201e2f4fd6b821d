//! The outcomes of the last TLS handshakes with servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tidegate_world::Timestamp;

/// Maximum number of servers whose outcomes are kept. All outcomes are forgotten when a further
/// server comes. Only configured servers get here, but the address of a name may change often.
const SERVERS_MAX: usize = 4_096;

/// Maximum number of characters of an error. A certificate with many names brings a long error.
const CHARS_MAX: usize = 200;

/// The error of a handshake whose connection has ended.
pub(crate) const ENDED: &str = "the connection ended before the handshake was complete";

/// The error of a handshake that took too long. A SIP server without TLS waits for the rest of a
/// message.
pub(crate) const TIMED_OUT: &str =
    "it was not complete in time; does the server speak TLS at this port?";

/// For each server, the time of the last TLS handshake, and its error if it failed. The shard writes
/// it, and any thread may read it.
#[derive(Debug, Default)]
pub struct TlsErrors(Mutex<BTreeMap<SocketAddr, (Timestamp, Option<String>)>>);

impl TlsErrors {
    /// Returns the time of the last handshake with `server`, and its error, or `None` if this
    /// handshake succeeded. Returns `None` for a server without a known handshake.
    pub fn last(&self, server: SocketAddr) -> Option<(Timestamp, Option<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&server).cloned()
    }

    /// Records that a handshake with `server` ended at `now`, with `error` if it failed. A success
    /// is recorded because another shard may have an earlier error of the same server.
    pub fn record(&self, now: Timestamp, server: SocketAddr, error: Option<&str>) {
        // A reader has the lock for one look-up.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SERVERS_MAX && !known.contains_key(&server) {
            known.clear();
        }
        known.insert(server, (now, error.map(printable)));
    }
}

/// Returns an error as one line of limited length. The error may contain names from the certificate
/// of the server.
fn printable(error: &str) -> String {
    let mut text: String = error.chars().filter(|c| !c.is_control()).collect();
    if let Some((end, _)) = text.char_indices().nth(CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_outcome_of_each_server_is_kept() {
        let errors = TlsErrors::default();
        let at = Timestamp::from_nanos;
        let server = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        errors.record(at(1), server(1), Some("one"));
        errors.record(at(2), server(1), Some("two\r\n"));
        assert_eq!(errors.last(server(1)), Some((at(2), Some("two".to_owned()))));
        errors.record(at(3), server(1), None);
        assert_eq!(errors.last(server(1)), Some((at(3), None)));
        assert_eq!(errors.last(server(2)), None);
    }

    #[test]
    fn a_limited_number_of_errors_of_limited_length_is_kept() {
        let errors = TlsErrors::default();
        let at = Timestamp::from_nanos;
        let server = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        let max = SERVERS_MAX as u16;
        for port in 0..max {
            errors.record(at(1), server(port), Some("one"));
        }
        assert!((0..max).all(|port| errors.last(server(port)).is_some()));
        errors.record(at(101), server(max), Some(&"ä".repeat(999)));
        assert!((0..max).all(|port| errors.last(server(port)).is_none()));
        let expected = "ä".repeat(CHARS_MAX) + "…";
        assert_eq!(errors.last(server(max)), Some((at(101), Some(expected))));
    }
}
