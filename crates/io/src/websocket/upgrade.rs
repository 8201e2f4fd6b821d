//! The opening handshake of a WebSocket on the side of the server: an HTTP request and its response
//! (RFC 6455 §4.2, RFC 7118 §4.1).

use std::sync::Arc;

use tidegate_world::Counter;
use tungstenite::error::{Error, ProtocolError};
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::{HeaderMap, HeaderValue};

use crate::Counters;

/// Maximum number of bytes of the request or the response of a handshake. Browsers send less than 1
/// KiB, without cookies.
pub(super) const HANDSHAKE_MAX: usize = 8192;

/// The name of the subprotocol for SIP.
pub(super) const SIP: &str = "sip";

/// The origins of the web pages that may open a WebSocket, or `None` if all pages may.
pub type Origins = Option<Arc<[String]>>;

/// The result of a step of a handshake.
#[derive(Debug)]
pub(crate) enum Upgrade {
    /// The request or the response has not arrived completely.
    Incomplete,
    /// The connection becomes a WebSocket when we have sent this response. The response is empty if
    /// we are the client.
    Accepted(Vec<u8>),
    /// The connection ends when we have sent this response. The response is empty if we are the
    /// client.
    Rejected(UpgradeFailure, Vec<u8>),
}

/// The reason why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpgradeFailure {
    /// The peer sent something other than a valid request of a WebSocket handshake, or other than a
    /// valid response to our request.
    Protocol,
    /// The peer does not offer the subprotocol `sip`, or does not accept it.
    Subprotocol,
    /// The server answered our request with another status than 101.
    Status,
    /// The page of the peer comes from an origin that is not allowed.
    Origin,
    /// The handshake took too long.
    TimedOut,
    /// The peer ended the connection.
    Closed,
}

impl UpgradeFailure {
    /// Returns the counter of this reason.
    pub(crate) fn counter(self, counters: &Counters) -> &Counter {
        match self {
            Self::Protocol => &counters.websocket_failed_protocol,
            Self::Subprotocol => &counters.websocket_failed_subprotocol,
            Self::Status => &counters.websocket_failed_status,
            Self::Origin => &counters.websocket_failed_origin,
            Self::TimedOut => &counters.websocket_failed_slow,
            Self::Closed => &counters.websocket_failed_closed,
        }
    }
}

/// Reads the request at the beginning of `held` and answers it. If the request is complete, also
/// returns its length.
pub(super) fn upgrade(held: &[u8], origins: &Origins) -> (Upgrade, usize) {
    match Request::try_parse(held) {
        Ok(Some((taken, request))) => (decide(&request, origins), taken),
        Ok(None) if held.len() <= HANDSHAKE_MAX => (Upgrade::Incomplete, 0),
        Ok(None) => {
            let status = "431 Request Header Fields Too Large";
            (rejected(status, "", "the WebSocket handshake is too long"), 0)
        }
        Err(error) => (malformed(&error), 0),
    }
}

/// Accepts or rejects the request of a handshake.
fn decide(request: &Request, origins: &Origins) -> Upgrade {
    let mut response = match create_response(request) {
        Ok(response) => response,
        Err(error) => return malformed(&error),
    };
    // RFC 9112 §3.2: a server answers 400 to a request without Host.
    if !request.headers().contains_key("Host") {
        return rejected("400 Bad Request", "", "the request has no Host header");
    }
    if !offers_sip(request) {
        let (status, text) =
            ("400 Bad Request", "the request must offer the WebSocket subprotocol sip");
        return Upgrade::Rejected(UpgradeFailure::Subprotocol, answer(status, "", text));
    }
    if !is_allowed(request, origins) {
        let (status, text) = (
            "403 Forbidden",
            "web pages of this origin may not connect; to allow it, add the origin to `origins` of \
             the `[[listen]]`",
        );
        return Upgrade::Rejected(UpgradeFailure::Origin, answer(status, "", text));
    }
    // RFC 7118 §4.1: "The 101 reply from the server MUST contain "sip" in its corresponding
    // Sec-WebSocket-Protocol header."
    let headers = response.headers_mut();
    headers.insert("Sec-WebSocket-Protocol", HeaderValue::from_static(SIP));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).expect("memory takes everything");
    Upgrade::Accepted(bytes)
}

/// Returns whether the client offers the subprotocol of SIP.
///
/// RFC 7118 §4.1: "The client MUST include the value "sip" in the Sec-WebSocket-Protocol header in its
/// handshake request."
fn offers_sip(request: &Request) -> bool {
    elements(request.headers(), "Sec-WebSocket-Protocol").any(|name| name == SIP)
}

/// Returns the elements of the lists in all header fields with this name.
pub(super) fn elements<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Returns whether the page that has opened the connection may do so. A client that names no origin
/// is not a browser, and could name any origin (RFC 6455 §10.2).
fn is_allowed(request: &Request, origins: &Origins) -> bool {
    let (Some(origins), Some(origin)) = (origins, request.headers().get("Origin")) else {
        return true;
    };
    origins.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
}

/// Rejects a request that is not a handshake.
fn malformed(error: &Error) -> Upgrade {
    match error {
        Error::Protocol(ProtocolError::WrongHttpMethod) => rejected(
            "405 Method Not Allowed",
            "Allow: GET\r\n",
            "this server accepts only WebSocket handshakes: use GET",
        ),
        Error::Protocol(
            ProtocolError::MissingConnectionUpgradeHeader
            | ProtocolError::MissingUpgradeWebSocketHeader,
        ) => rejected(
            "426 Upgrade Required",
            "Upgrade: websocket\r\n",
            "this server accepts only WebSocket handshakes",
        ),
        // RFC 6455 §4.4: the answer names the versions that the server knows.
        Error::Protocol(ProtocolError::MissingSecWebSocketVersionHeader) => rejected(
            "426 Upgrade Required",
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            "this server supports only version 13 of the WebSocket protocol",
        ),
        _ => rejected("400 Bad Request", "", "the request is not a valid WebSocket handshake"),
    }
}

fn rejected(status: &str, headers: &str, text: &str) -> Upgrade {
    Upgrade::Rejected(UpgradeFailure::Protocol, answer(status, headers, text))
}

/// Returns a response that rejects a handshake and ends the connection.
fn answer(status: &str, headers: &str, text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    let response = format!(
        "HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {length}\r\n\r\n{text}\n"
    );
    response.into_bytes()
}
