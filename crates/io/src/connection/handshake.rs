//! The handshakes of a connection: first TLS, then the WebSocket.

use std::borrow::Cow;

use rustls::AlertDescription;
use tidegate_world::{Buffer, Counter, Pool, Timestamp};

use super::reading::Unfilled;
use super::{Connection, State};
use crate::Counters;
use crate::tls::HandshakeFailure;
use crate::tls_errors::ENDED;
use crate::websocket::{Upgrade, UpgradeFailure};

/// The result of one step of a handshake.
pub(crate) enum Shaken {
    /// The handshake is complete.
    Done,
    /// Some bytes were read, and more may follow.
    More,
    /// There are no bytes to read now.
    Nothing,
    /// The TLS handshake has failed with this error, so the connection ends.
    Failed(HandshakeFailure, Cow<'static, str>),
    /// The handshake of the WebSocket has failed, so the connection ends.
    Rejected(UpgradeFailure),
}

impl Connection {
    /// Returns whether the connection uses TLS and its TLS handshake is not complete yet.
    pub(crate) fn has_tls_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns whether a handshake of TLS or of a WebSocket is not complete yet.
    pub(crate) fn has_handshake(&self) -> bool {
        let is_websocket_open = self.websocket.as_ref().is_none_or(|websocket| websocket.is_open());
        self.has_tls_handshake() || !is_websocket_open
    }

    /// Returns whether the connection is queued for the first step of a TLS handshake.
    pub(crate) fn waits_for_first_step(&self) -> bool {
        let waits = self.state == State::Handshaking && self.is_queued && self.steps == 0;
        waits && self.has_tls_handshake()
    }

    /// Returns whether the connection uses TLS, and nothing has arrived since the TLS handshake.
    pub(crate) fn is_silent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_silent())
    }

    /// Returns the alert by which the peer has ended the TLS session, if it has.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        self.tls.as_ref().and_then(|tls| tls.alert())
    }

    /// Returns the counter to increment if the present handshake is not completed in time.
    pub(crate) fn late<'c>(&self, counters: &'c Counters) -> &'c Counter {
        self.failed(counters, HandshakeFailure::TimedOut, UpgradeFailure::TimedOut)
    }

    /// Returns the counter to increment if the connection ends during the present handshake.
    pub(crate) fn closed<'c>(&self, counters: &'c Counters) -> &'c Counter {
        self.failed(counters, HandshakeFailure::Closed, UpgradeFailure::Closed)
    }

    /// Returns the counter of failures for the present handshake: the counter of the reason `tls`
    /// during a TLS handshake, or the counter of the reason `upgrade` during a WebSocket handshake.
    fn failed<'c>(
        &self,
        counters: &'c Counters,
        tls: HandshakeFailure,
        upgrade: UpgradeFailure,
    ) -> &'c Counter {
        match self.has_tls_handshake() || self.websocket.is_none() {
            true => tls.counter(counters),
            false => upgrade.counter(counters),
        }
    }

    /// Takes one step of the handshake, and reads bytes with at most one system call. The arguments
    /// are those of [`read`](Self::read).
    pub(crate) fn shake_hands(
        &mut self,
        now: Timestamp,
        quiet_until: Timestamp,
        pool: &Pool,
    ) -> Shaken {
        if !self.is_readable {
            return Shaken::Nothing;
        }
        self.steps = self.steps.saturating_add(1);
        let filled = self.fill(now, quiet_until);
        if self.has_tls_handshake() {
            return self.unfinished(filled, Shaken::Failed(HandshakeFailure::Closed, ENDED.into()));
        }
        if let Some(websocket) = self.websocket.as_mut().filter(|websocket| !websocket.is_open()) {
            match websocket.upgrade(&self.held) {
                Upgrade::Incomplete => {
                    return self.unfinished(filled, Shaken::Rejected(UpgradeFailure::Closed));
                }
                Upgrade::Accepted(response) => self.out.extend(own(&response, pool)),
                Upgrade::Rejected(failure, response) => {
                    self.out.extend(own(&response, pool));
                    self.send_last();
                    return Shaken::Rejected(failure);
                }
            }
        }
        // Messages that arrived after the handshake and before the error are still read.
        if let Err(Unfilled::Tls(error)) = &filled {
            self.fail(error);
        }
        Shaken::Done
    }

    /// Returns the result of a step that did not complete the handshake. The result is `closed` if
    /// the peer has ended the connection.
    fn unfinished(&mut self, filled: Result<(), Unfilled>, closed: Shaken) -> Shaken {
        match filled {
            Ok(()) if self.is_readable => Shaken::More,
            Ok(()) | Err(Unfilled::Empty) => Shaken::Nothing,
            Err(Unfilled::Tls(error)) => {
                // The alert tells the peer the reason. A peer that takes no bytes now does not get
                // the alert. With TLS 1.3, the alert of a client that rejects our certificate
                // follows the handshake.
                let _ = self.send();
                Shaken::Failed(HandshakeFailure::from(&error), error.to_string().into())
            }
            Err(Unfilled::Ended(_)) => closed,
        }
    }
}

/// Copies our response to a WebSocket handshake into a buffer. Returns `None` if the response is
/// empty: a client has none to send.
fn own(response: &[u8], pool: &Pool) -> Option<Buffer> {
    (!response.is_empty()).then(|| pool.copy(response))
}
