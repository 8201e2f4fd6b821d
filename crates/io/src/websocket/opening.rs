//! The opening handshake of a WebSocket on the side of the client (RFC 6455 §4.1, RFC 7118 §4.1).

use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::{Request, Response, generate_request};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::TryParse;
use tungstenite::http::{HeaderValue, StatusCode, Uri};

use super::upgrade::{HANDSHAKE_MAX, SIP, Upgrade, UpgradeFailure, elements};

/// The request with which a client opens its WebSockets.
#[derive(Clone, Debug)]
pub struct WebSocketClient {
    /// The URI of the server. Its scheme does not matter, because the request does not contain it.
    uri: Uri,
    origin: Option<HeaderValue>,
}

impl WebSocketClient {
    /// Creates the request to the server at `host`, which includes the port unless that is the
    /// default port. `path` begins with `/`. `origin` is the web site that a browser would name as
    /// its origin, if any.
    ///
    /// # Errors
    /// Returns a text that names the part that a request cannot contain.
    pub fn new(host: &str, path: &str, origin: Option<&str>) -> Result<Self, String> {
        // RFC 6455 §3: "Fragment identifiers are meaningless in the context of WebSocket URIs and MUST
        // NOT be used on these URIs."
        if !path.starts_with('/') || path.contains('#') {
            return Err(format!(
                "`{path}` is not a path: write one that begins with `/` and has no `#`, such as \
                 `/ws`"
            ));
        }
        let uri = Uri::builder().scheme("ws").authority(host).path_and_query(path).build();
        let uri = uri.map_err(|error| {
            format!("the host `{host}` and the path `{path}` do not form a URI: {error}")
        })?;
        let origin = origin.map(|origin| {
            let value = HeaderValue::from_str(origin);
            value.map_err(|_| format!("`{origin}` is not an origin such as `https://example.com`"))
        });
        let client = Self { uri, origin: origin.transpose()? };
        if Opening::begin(&client).1.len() > HANDSHAKE_MAX {
            return Err(format!(
                "the WebSocket handshake has more than {HANDSHAKE_MAX} bytes: use a shorter path \
                 or origin"
            ));
        }
        Ok(client)
    }

    /// Returns a new request, with a random key.
    ///
    /// RFC 7118 §4.1: "The client MUST include the value "sip" in the Sec-WebSocket-Protocol header in its
    /// handshake request."
    fn request(&self) -> Request {
        let mut request = self.uri.clone().into_client_request().expect("the URI has a host");
        let headers = request.headers_mut();
        headers.insert("Sec-WebSocket-Protocol", HeaderValue::from_static(SIP));
        if let Some(origin) = &self.origin {
            headers.insert("Origin", origin.clone());
        }
        request
    }
}

/// A handshake whose response has not arrived completely.
#[derive(Debug)]
pub(super) struct Opening {
    /// The value by which the server proves that it has read the request.
    accept: String,
}

impl Opening {
    /// Begins a handshake. Also returns its request.
    pub(super) fn begin(client: &WebSocketClient) -> (Self, Vec<u8>) {
        let (request, key) = generate_request(client.request()).expect("nothing is missing in it");
        (Self { accept: derive_accept_key(key.as_bytes()) }, request)
    }

    /// Reads the response at the beginning of `held`. If the response is complete, also returns its
    /// length.
    pub(super) fn read(&self, held: &[u8]) -> (Upgrade, usize) {
        let rejected = |failure| Upgrade::Rejected(failure, Vec::new());
        match Response::try_parse(held) {
            Ok(Some((length, response))) => {
                let failure = self.fault_of(&response);
                (failure.map_or(Upgrade::Accepted(Vec::new()), rejected), length)
            }
            Ok(None) if held.len() <= HANDSHAKE_MAX => (Upgrade::Incomplete, 0),
            Ok(None) | Err(_) => (rejected(UpgradeFailure::Protocol), 0),
        }
    }

    /// Returns the reason why a response does not open the WebSocket, or `None` if it does.
    ///
    /// RFC 6455 §4.1: "The client MUST validate the server's response".
    fn fault_of(&self, response: &Response) -> Option<UpgradeFailure> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Some(UpgradeFailure::Status);
        }
        let headers = response.headers();
        let has = |name: &str, wanted: &str| {
            elements(headers, name).any(|element| element.eq_ignore_ascii_case(wanted))
        };
        let is_handshake = has("Upgrade", "websocket")
            && has("Connection", "Upgrade")
            && elements(headers, "Sec-WebSocket-Accept").eq([self.accept.as_str()])
            // The request has offered no extension.
            && !headers.contains_key("Sec-WebSocket-Extensions");
        if !is_handshake {
            return Some(UpgradeFailure::Protocol);
        }
        // RFC 7118 §4.1: "The 101 reply from the server MUST contain "sip" in its corresponding
        // Sec-WebSocket-Protocol header."
        let is_sip = elements(headers, "Sec-WebSocket-Protocol").eq([SIP]);
        (!is_sip).then_some(UpgradeFailure::Subprotocol)
    }
}

#[cfg(test)]
#[path = "opening_tests.rs"]
mod tests;
