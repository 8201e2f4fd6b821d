//! TLS on a connection (RFC 5246, RFC 8446): decrypts the bytes of the socket and encrypts
//! messages. It does no I/O of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, ServerConfig,
    ServerConnection, SupportedCipherSuite,
};
use tidegate_world::{Buffer, Counter};

use crate::Counters;

/// Number of bytes of messages after which one call of [`Tls::seal`] encrypts no further message.
const SEALED_TOGETHER: usize = 16 * 1024;

/// Maximum number of bytes of a message in one record (RFC 8446 §5.1).
const RECORD_MAX: usize = 1 << 14;

/// Number of records that are reserved for the end of the handshake and for alerts, out of the
/// records that the keys of a session may encrypt.
const RECORDS_KEPT: u64 = 4;

/// Number of bytes of the header of a record (RFC 8446 §5.1).
const HEADER: usize = 5;

/// Number of bytes of complete records without plaintext, such as session tickets, up to which
/// these records do not count among the bytes that the session keeps. If they have more bytes, all
/// of them count.
const QUIET_MAX: usize = 8 * 1024;

/// The TLS settings of a listener: its certificates, and its requirements for clients.
#[derive(Clone)]
pub struct TlsServer(Arc<RwLock<Arc<ServerConfig>>>);

impl TlsServer {
    /// Creates the TLS settings of a listener from `config`.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(RwLock::new(config)))
    }

    /// Replaces the settings in every clone. Existing connections keep the settings with which they
    /// began.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

/// The TLS settings for connections that we open to a peer.
#[derive(Clone, Debug)]
pub struct TlsPeer {
    /// The TLS settings of this side.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate of the peer must have.
    pub name: ServerName<'static>,
}

/// A function that finds the TLS settings toward the peer at an address. If there are none,
/// Tidegate opens no TLS connection to this peer, because it could not verify the identity of the
/// peer.
pub type TlsPeers = Arc<dyn Fn(SocketAddr) -> Option<TlsPeer> + Send + Sync>;

/// The TLS state of a connection.
pub(crate) struct Tls {
    session: rustls::Connection,
    /// True if the peer has announced that it sends nothing more.
    is_ended: bool,
    /// True if no plaintext has arrived yet.
    is_silent: bool,
    /// The alert by which the peer has ended the session.
    alert: Option<AlertDescription>,
    /// The record that has not arrived completely.
    record: Record,
    /// Number of bytes that have arrived since the last plaintext, or since the beginning or the end
    /// of the handshake.
    quiet: usize,
    /// Number of records with messages that the session has encrypted.
    records: u64,
    /// Number of bytes of messages that were encrypted since the last time at which all encrypted
    /// bytes had been sent.
    unsent: usize,
}

/// The progress of a record: its header, and the number of its bytes that have arrived.
#[derive(Debug, Default)]
struct Record {
    header: [u8; HEADER],
    arrived: usize,
}

impl Record {
    /// Updates the progress with further bytes of the stream.
    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = match self.header {
                _ if self.arrived < HEADER => HEADER - self.arrived,
                [.., high, low] => {
                    HEADER + usize::from(u16::from_be_bytes([high, low])) - self.arrived
                }
            };
            let (taken, rest) = bytes.split_at(left.min(bytes.len()));
            if self.arrived < HEADER {
                self.header[self.arrived..][..taken.len()].copy_from_slice(taken);
            }
            // These are the last bytes of the record, which may consist of its header alone.
            let is_whole = self.arrived >= HEADER && taken.len() == left;
            self.arrived = if is_whole { 0 } else { self.arrived + taken.len() };
            bytes = rest;
        }
    }
}

impl Tls {
    /// Creates the state of a connection on which a client is expected to begin the handshake.
    pub(crate) fn accept(server: &TlsServer) -> Result<Self, Error> {
        Ok(Self::of(ServerConnection::new(server.current())?.into()))
    }

    /// Creates the state of a connection on which we begin the handshake with a server.
    pub(crate) fn connect(peer: TlsPeer) -> Result<Self, Error> {
        Ok(Self::of(ClientConnection::new(peer.config, peer.name)?.into()))
    }

    fn of(mut session: rustls::Connection) -> Self {
        // `seal` limits the bytes handed to the session. A message must fit as a whole.
        session.set_buffer_limit(None);
        let (is_ended, is_silent, record) = (false, true, Record::default());
        let alert = None;
        Self { session, is_ended, is_silent, alert, record, quiet: 0, records: 0, unsent: 0 }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Returns whether the peer has announced that it sends nothing more.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns whether no plaintext has arrived yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Returns the alert by which the peer has ended the session, if it has.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        self.alert
    }

    /// Returns whether encrypted bytes are left to send.
    pub(crate) fn has_output(&self) -> bool {
        self.session.wants_write()
    }

    /// Returns the number of bytes that the session keeps, because the rest of a record or of a
    /// handshake message has not arrived.
    ///
    /// A peer also sends a few records without plaintext that the session has processed, such as
    /// session tickets and most of a handshake. These records count only if there are many of them.
    pub(crate) fn pending(&self) -> usize {
        let complete = self.quiet.saturating_sub(self.record.arrived);
        self.record.arrived + if complete > QUIET_MAX { complete } else { 0 }
    }

    /// Takes bytes of the socket, and appends the plaintext in them to `held`.
    ///
    /// # Errors
    /// Returns an error if the peer violates the protocol, or if its certificate does not prove the
    /// required identity. An alert to the peer may be left to send. `held` has the plaintext before
    /// the error.
    pub(crate) fn open(&mut self, mut bytes: &[u8], held: &mut Vec<u8>) -> Result<(), Error> {
        self.record.follow(bytes);
        while !bytes.is_empty() && !self.is_ended {
            let (before, was_handshaking) = (bytes.len(), self.session.is_handshaking());
            let taken = self.session.read_tls(&mut bytes);
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    let before = held.len();
                    // Keeps the plaintext before the error. The reader then fails too.
                    let _ = self.session.reader().read_to_end(held);
                    self.is_silent &= held.len() == before;
                    if let Error::AlertReceived(alert) = error {
                        self.alert = Some(alert);
                    }
                    return Err(error);
                }
            };
            let (start, count) = (held.len(), state.plaintext_bytes_to_read());
            let is_quiet = count == 0 && was_handshaking == self.session.is_handshaking();
            self.quiet = if is_quiet { self.quiet + before - bytes.len() } else { 0 };
            self.is_silent &= count == 0;
            held.resize(start + count, 0);
            let read = self.session.reader().read_exact(&mut held[start..]);
            debug_assert!(read.is_ok(), "all of the plaintext is there");
            self.is_ended = state.peer_has_closed();
            // An error here means that the buffer for handshake messages is full.
            taken.map_err(|_| Error::General("a TLS handshake message is too long".to_owned()))?;
        }
        Ok(())
    }

    /// Encrypts messages from the front of `out` until they have [`SEALED_TOGETHER`] bytes or more,
    /// and removes them. Returns false if the session may encrypt no further message.
    pub(crate) fn seal(&mut self, out: &mut VecDeque<Buffer>) -> bool {
        let records_max = self.records_max();
        let mut sealed = 0;
        while sealed < SEALED_TOGETHER
            && let Some(bytes) = out.front()
        {
            let records = self.records + bytes.len().div_ceil(RECORD_MAX) as u64;
            if records > records_max {
                return sealed > 0;
            }
            self.records = records;
            sealed += bytes.len();
            self.unsent += bytes.len();
            let written = self.session.writer().write_all(bytes);
            debug_assert!(written.is_ok(), "there is no limit on it");
            out.pop_front();
        }
        true
    }

    /// Returns the number of records with messages that the session may encrypt. With TLS 1.3 a
    /// session replaces its keys in time. With TLS 1.2 a session cannot replace its keys. After the
    /// limit of the keys, it would drop all messages without an error.
    ///
    /// RFC 8446 §5.5: "There are cryptographic limits on the amount of plaintext which can be safely
    /// encrypted under a given set of keys."
    fn records_max(&self) -> u64 {
        match self.session.negotiated_cipher_suite() {
            Some(SupportedCipherSuite::Tls12(suite)) => {
                suite.common.confidentiality_limit.saturating_sub(RECORDS_KEPT)
            }
            _ => u64::MAX,
        }
    }

    /// Sends encrypted bytes. Returns the number of bytes that the socket took.
    pub(crate) fn write(&mut self, mut stream: &TcpStream) -> io::Result<usize> {
        let written = self.session.write_tls(&mut stream)?;
        if !self.has_output() {
            self.unsent = 0;
        }
        Ok(written)
    }

    /// Returns the number of bytes of encrypted messages that may still be unsent.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Tells the peer that nothing more follows (RFC 8446 §6.1).
    pub(crate) fn end(&mut self) {
        // RFC 8446 §6.1: "Each party MUST send a "close_notify" alert before closing its write side
        // of the connection, unless it has already sent some error alert."
        self.session.send_close_notify();
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("is_ended", &self.is_ended).finish_non_exhaustive()
    }
}

/// The reason why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    /// The peer does not speak TLS, or there is no common version or cipher suite.
    Protocol,
    /// The certificate of the peer is missing, is not signed by a known authority, or names another
    /// host.
    Certificate,
    /// The certificate of the peer has expired, or is not valid yet.
    Expired,
    /// The peer ended the handshake with an alert, for example because it does not accept our
    /// certificate.
    Rejected,
    /// The handshake took too long.
    TimedOut,
    /// The peer ended the connection.
    Closed,
}

impl HandshakeFailure {
    /// Returns the counter of this reason.
    pub(crate) fn counter(self, counters: &Counters) -> &Counter {
        match self {
            Self::Protocol => &counters.tls_failed_protocol,
            Self::Certificate => &counters.tls_failed_certificate,
            Self::Expired => &counters.tls_failed_expired,
            Self::Rejected => &counters.tls_failed_rejected,
            Self::TimedOut => &counters.tls_failed_slow,
            Self::Closed => &counters.tls_failed_closed,
        }
    }
}

impl From<&Error> for HandshakeFailure {
    fn from(error: &Error) -> Self {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        match error {
            Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            ) => Self::Expired,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Self::Certificate,
            Error::AlertReceived(_) => Self::Rejected,
            _ => Self::Protocol,
        }
    }
}
