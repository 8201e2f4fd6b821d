//! A user agent over TLS.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, DEFAULT_VERSIONS, RootCertStore, StreamOwned};

use super::certificates::{Authority, Identity};
use super::records_tls;
use crate::stage::{Message, Peer, TextStream};

/// A client with one connection.
pub struct Client {
    stream: TextStream<StreamOwned<ClientConnection, TcpStream>>,
    /// Writes the client's messages.
    peer: Peer,
    to: SocketAddr,
}

impl Client {
    /// Connects to a server whose certificate this authority has signed for its address.
    pub fn connect(authority: &Authority, to: SocketAddr) -> io::Result<Self> {
        Self::connect_as(authority, to, &to.ip().to_string(), None)
    }

    /// Connects to a server with this name. The client presents the certificate `identity`, if any.
    pub fn connect_as(
        authority: &Authority,
        to: SocketAddr,
        name: &str,
        identity: Option<&Identity>,
    ) -> io::Result<Self> {
        let stream = secured(authority, to, name, identity)?;
        let peer = Peer::new(to.ip());
        Ok(Self { stream: TextStream::new(stream), peer, to })
    }
    /// Returns a request over TLS.
    pub fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        let request = self.peer.request(method, uri, number, cseq);
        Message(request.0.replace("SIP/2.0/UDP ", "SIP/2.0/TLS "))
    }

    pub fn send(&mut self, message: &Message) {
        self.send_bytes(message.0.as_bytes());
    }

    /// Sends bytes. The server may have closed the connection.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.send_bytes(bytes);
    }

    /// Returns the next message.
    #[track_caller]
    pub fn receive(&mut self) -> Message {
        self.stream.next().expect("a message before the end of the connection")
    }

    /// Returns whether the server answers.
    pub fn is_served(&mut self) -> bool {
        let options = self.request("OPTIONS", &format!("sip:{}", self.to), 99, 1);
        self.send(&options);
        self.stream.next().is_ok_and(|answer| answer.status() == 200)
    }

    /// Sets up a call. Returns its 200.
    #[track_caller]
    pub fn begin(&mut self, number: u32) -> Message {
        let invite = self.request("INVITE", &format!("sip:bob@{}", self.to), number, 1);
        self.send(&invite);
        loop {
            let answer = self.receive();
            if answer.status() >= 200 {
                assert_eq!(answer.status(), 200, "{}", answer.0);
                assert!(records_tls(&answer), "{}", answer.0);
                let ack = self.in_dialog("ACK", &answer, 1);
                self.send(&ack);
                return answer;
            }
        }
    }

    /// Ends a call.
    #[track_caller]
    pub fn end(&mut self, ok: &Message) {
        let bye = self.in_dialog("BYE", ok, 2);
        self.send(&bye);
        assert_eq!(self.receive().status(), 200);
    }

    /// Makes a call from its beginning to its end.
    #[track_caller]
    pub fn call(&mut self, number: u32) {
        let ok = self.begin(number);
        self.end(&ok);
    }

    fn in_dialog(&self, method: &str, ok: &Message, cseq: u32) -> Message {
        let target = ok.field("Contact").trim_matches(['<', '>']);
        within(self.request(method, target, 0, cseq), ok)
    }
}

/// Returns `request` as a request within the dialog that `ok` has created. RFC 3261 §12.1.2: the
/// route set is that of Record-Route "in reverse order".
pub fn within(request: Message, ok: &Message) -> Message {
    let mut request = request
        .with("From", ok.field("From"))
        .with("To", ok.field("To"))
        .with("Call-ID", ok.field("Call-ID"));
    let routes: Vec<_> = ok.fields("Record-Route").map(ToOwned::to_owned).collect();
    for route in routes.iter().rev() {
        request = request.and("Route", route);
    }
    let mark =
        format!("branch=z9hG4bK-{}-", ok.field("Call-ID").replace(['@', ':', '[', ']'], "-"));
    Message(request.0.replacen("branch=z9hG4bK-0-", &mark, 1))
}

/// Connects to a server with this name, and completes the handshake.
pub fn secured(
    authority: &Authority,
    to: SocketAddr,
    name: &str,
    identity: Option<&Identity>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&authority.path).expect("a certificate")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(DEFAULT_VERSIONS)
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_file(certificate).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut session = ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}
