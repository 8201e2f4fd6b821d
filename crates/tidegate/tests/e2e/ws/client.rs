//! A user agent as it runs in a browser: it knows no address of its own, and sends SIP over a
//! WebSocket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tungstenite::client::IntoClientRequest;
use tungstenite::error::Error;
use tungstenite::http::HeaderValue;
use tungstenite::{HandshakeError, WebSocket};

use crate::stage::{Message, Peer};
use crate::tls::certificates::Authority;
use crate::tls::client::{secured, within};

/// The host of the client's Via and Contact (RFC 7118 §8.1).
const HOST: &str = "df7jal23ls0d.invalid";

/// A stream with or without TLS.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A client with one connection.
pub struct Client {
    pub websocket: WebSocket<Box<dyn Stream>>,
    transport: &'static str,
    /// Writes the client's messages.
    peer: Peer,
    to: SocketAddr,
}

impl Client {
    /// Connects without TLS.
    pub fn connect(to: SocketAddr) -> Self {
        Self::connect_with(to, &[("Sec-WebSocket-Protocol", "sip")])
            .expect("the handshake succeeds")
    }

    /// Connects without TLS, with these header fields of the handshake.
    pub fn connect_with(to: SocketAddr, headers: &[(&'static str, &str)]) -> Result<Self, Error> {
        let stream = TcpStream::connect(to).expect("it accepts");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout above zero");
        Self::upgrade("WS", to, Box::new(stream), headers)
    }

    /// Connects over TLS.
    pub fn connect_secured(authority: &Authority, to: SocketAddr) -> Self {
        let stream = secured(authority, to, &to.ip().to_string(), None).expect("a TLS handshake");
        let headers = [("Sec-WebSocket-Protocol", "sip")];
        Self::upgrade("WSS", to, Box::new(stream), &headers).expect("the handshake succeeds")
    }

    fn upgrade(
        transport: &'static str,
        to: SocketAddr,
        stream: Box<dyn Stream>,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, Error> {
        let mut request = format!("ws://{to}/").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).expect("a value"));
        }
        match tungstenite::client(request, stream) {
            Ok((websocket, _)) => Ok(Self { websocket, transport, peer: Peer::new(to.ip()), to }),
            Err(HandshakeError::Failure(error)) => Err(error),
            Err(HandshakeError::Interrupted(_)) => panic!("the handshake takes too long"),
        }
    }

    /// Returns a request as JavaScript writes it, without Content-Length.
    pub fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        let (transport, here) = (self.transport, self.peer.address());
        let request = self.peer.request(method, uri, number, cseq).0;
        let request = request
            .replace(&format!("SIP/2.0/UDP {here}"), &format!("SIP/2.0/{transport} {HOST}"))
            .replace(&format!("sip:caller@{here}"), &format!("sip:caller@{HOST}"))
            .replace("Content-Length: 0\r\n", "");
        Message(request).with("Contact", &format!("<sip:caller@{HOST};transport=ws>"))
    }

    pub fn send(&mut self, message: &Message) {
        self.websocket.send(message.0.as_str().into()).expect("it takes the message");
    }

    /// Returns the next message.
    #[track_caller]
    pub fn receive(&mut self) -> Message {
        let text = match self.websocket.read().expect("a message before the end of the connection")
        {
            tungstenite::Message::Text(text) => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        let message = Message(text);
        let is_request = message.start().ends_with(" SIP/2.0");
        assert!(is_request || message.status() > 0, "{}", message.0);
        message
    }

    /// Returns the final response to a request.
    #[track_caller]
    pub fn ask(&mut self, request: &Message) -> Message {
        self.send(request);
        loop {
            let answer = self.receive();
            if answer.status() >= 200 {
                return answer;
            }
        }
    }

    /// Sets up a call. Returns its 200.
    #[track_caller]
    pub fn begin(&mut self, number: u32) -> Message {
        let ok = self.ask(&self.request("INVITE", &format!("sip:bob@{}", self.to), number, 1));
        assert_eq!(ok.status(), 200, "{}", ok.0);
        // RFC 7118 §5.2: the transport parameter is `ws` with and without TLS.
        let own = format!("@{};transport=ws;lr>", self.to);
        assert!(ok.fields("Record-Route").any(|route| route.ends_with(&own)), "{}", ok.0);
        self.send(&self.in_dialog("ACK", &ok, 1));
        ok
    }

    /// Makes a call from its beginning to its end.
    #[track_caller]
    pub fn call(&mut self, number: u32) {
        let ok = self.begin(number);
        assert_eq!(self.ask(&self.in_dialog("BYE", &ok, 2)).status(), 200);
    }

    /// Answers the BYE of the callee.
    #[track_caller]
    pub fn is_hung_up_on(&mut self) {
        let bye = self.receive();
        assert!(bye.start().starts_with(&format!("BYE sip:caller@{HOST};transport=ws ")));
        let own = format!("SIP/2.0/{} {};", self.transport, self.to);
        assert!(bye.field("Via").starts_with(&own), "{}", bye.0);
        self.send(&self.peer.response(&bye, "200 OK"));
    }

    fn in_dialog(&self, method: &str, ok: &Message, cseq: u32) -> Message {
        let target = ok.field("Contact").trim_matches(['<', '>']);
        within(self.request(method, target, 0, cseq), ok)
    }
}
