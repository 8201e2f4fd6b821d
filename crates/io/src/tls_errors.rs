//! The last failed TLS handshakes with servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tidegate_world::Timestamp;

/// Maximum number of servers whose errors are kept. A further error replaces the oldest one.
const SERVERS_MAX: usize = 64;

/// Maximum number of characters of an error. A certificate with many names brings a long error.
const CHARS_MAX: usize = 200;

/// For each server with which the last TLS handshake failed, the time of the failure and the error.
/// The shard writes it, and any thread may read it.
#[derive(Debug, Default)]
pub struct TlsErrors(Mutex<BTreeMap<SocketAddr, (Timestamp, String)>>);

impl TlsErrors {
    /// Returns the error of the last handshake with `server`, with its time. Returns `None` if this
    /// handshake succeeded.
    pub fn last(&self, server: SocketAddr) -> Option<(Timestamp, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&server).cloned()
    }

    /// Records that a handshake with `server` failed at `now`. If a reader has locked the errors,
    /// leaves this one out, so that the shard does not wait.
    pub fn record(&self, now: Timestamp, server: SocketAddr, error: &str) {
        let Ok(mut known) = self.0.try_lock() else { return };
        if known.len() >= SERVERS_MAX && !known.contains_key(&server) {
            let oldest = known.iter().min_by_key(|(_, (at, _))| *at).map(|(server, _)| *server);
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        // The error may contain names from the certificate of the server.
        let text = error.chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect();
        known.insert(server, (now, text));
    }

    /// Removes the error of `server` after a handshake that succeeded.
    pub(crate) fn clear(&self, server: SocketAddr) {
        let Ok(mut known) = self.0.try_lock() else { return };
        known.remove(&server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_each_server_is_kept_until_a_handshake_succeeds() {
        let errors = TlsErrors::default();
        let at = Timestamp::from_nanos;
        let server = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        errors.record(at(1), server(1), "one");
        errors.record(at(2), server(1), "two\r\n");
        assert_eq!(errors.last(server(1)), Some((at(2), "two".to_owned())));
        errors.clear(server(1));
        assert_eq!(errors.last(server(1)), None);
        (0..100).for_each(|port| errors.record(at(u64::from(port) + 3), server(port), "three"));
        assert_eq!(errors.last(server(35)), None);
        assert!(errors.last(server(36)).is_some() && errors.last(server(99)).is_some());
        errors.record(at(200), server(1), &"x".repeat(999));
        assert_eq!(errors.last(server(1)).unwrap().1.len(), CHARS_MAX);
    }
}
