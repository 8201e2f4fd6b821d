//! Writes the messages of callers and back ends: requests and responses as user agents write them.
//!
//! Each call has a number. This number and the received messages determine the text of each message
//! of the call.

use std::net::SocketAddr;

/// The addresses of a measured server and of its peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties {
    /// The server that is measured.
    pub server: SocketAddr,
    /// Source address of the calls.
    pub caller: SocketAddr,
    /// Destination address of the calls.
    pub backend: SocketAddr,
}

/// An address to which the server does not relay, from TEST-NET-1 (RFC 5737).
const NOBODY: &str = "192.0.2.1:5060";

const BODY: &str = "v=0\r\no=user1 53655765 2353687637 IN IP4 127.0.0.1\r\ns=-\r\n\
    c=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// The To tag in responses of callees.
const CALLEE: &str = ";tag=callee";

/// The parts of a caller's request before it is written.
struct Request<'a> {
    method: &'a str,
    uri: String,
    call: u64,
    cseq: u32,
    /// Value of the To header field, with its parameters.
    to: String,
    /// Values of the Route header fields, in the order in which the request visits them.
    routes: Vec<&'a str>,
    body: &'a str,
}

impl Parties {
    /// Returns a request outside a dialog. If `good` is true, the request goes to a target that the
    /// server's rules select, otherwise to an address to which the server does not relay.
    pub fn initial(&self, method: &str, call: u64, good: bool) -> Vec<u8> {
        let body = if method == "INVITE" { BODY } else { "" };
        self.write(&Request { body, ..self.request(method, call, self.uri(good)) })
    }

    /// Returns the CANCEL of the INVITE of `call` (RFC 3261 §9.1: the same branch, CSeq number and
    /// URI).
    pub fn cancel(&self, call: u64) -> Vec<u8> {
        self.write(&self.request("CANCEL", call, self.uri(true)))
    }

    /// Returns the ACK of a final response other than 2xx (RFC 3261 §17.1.1.3: the branch of the
    /// INVITE and the To of the response).
    pub(crate) fn ack_of_rejection(&self, response: &[u8], good: bool) -> Vec<u8> {
        let text = text(response);
        let to = value(&text, "To").to_owned();
        self.write(&Request { to, ..self.request("ACK", number(&text), self.uri(good)) })
    }

    /// Returns a request within a call. `answer` is the 200 that set up the call, as the caller got
    /// it. The request goes to the Contact of `answer`, along the reversed Record-Route (RFC 3261
    /// §12.2.1.1).
    pub fn within(&self, method: &str, answer: &[u8]) -> Vec<u8> {
        let text = text(answer);
        let mut routes: Vec<&str> = values(&text, "Record-Route").collect();
        routes.reverse();
        let uri = value(&text, "Contact").trim_matches(['<', '>']).to_owned();
        let cseq = if method == "ACK" { 1 } else { 2 };
        let to = value(&text, "To").to_owned();
        self.write(&Request { cseq, to, routes, ..self.request(method, number(&text), uri) })
    }

    /// Returns a request within a call that the server does not know.
    pub(crate) fn astray(&self, method: &str, call: u64) -> Vec<u8> {
        let cseq = if method == "CANCEL" { 1 } else { 2 };
        let request = self.request(method, call, self.uri(true));
        let tag = if method == "CANCEL" { "" } else { CALLEE };
        self.write(&Request { cseq, to: request.to.clone() + tag, ..request })
    }

    /// Returns the response of a back end to `request`. The response copies the header fields that
    /// RFC 3261 §8.2.6.2 requires.
    pub fn response(&self, request: &[u8], status: &str) -> Vec<u8> {
        let text = text(request);
        let copied = ["Via", "From", "Call-ID", "CSeq", "Record-Route"];
        let is_copied = |line: &&str| copied.contains(&line.split(':').next().unwrap_or(""));
        let lines = text.split("\r\n").filter(is_copied);
        let head: String = lines.map(|line| format!("{line}\r\n")).collect();
        let to = value(&text, "To");
        let tag = if to.contains(";tag=") { "" } else { CALLEE };
        let Self { backend, .. } = self;
        format!(
            "SIP/2.0 {status}\r\n{head}To: {to}{tag}\r\nContact: <sip:{backend}>\r\n\
             Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    /// Returns a response to a request that the server never sent.
    pub(crate) fn response_astray(&self, call: u64, status: &str) -> Vec<u8> {
        let Self { server, caller, backend } = self;
        format!(
            "SIP/2.0 {status}\r\nVia: SIP/2.0/UDP {server};branch=z9hG4bKnobody{call}\r\n\
             Via: SIP/2.0/UDP {caller};branch=z9hG4bK-{call}-1\r\n\
             From: <sip:caller@{caller}>;tag={call}\r\nTo: <sip:service@{server}>{CALLEE}\r\n\
             Call-ID: {call}@caller\r\nCSeq: 1 INVITE\r\nContact: <sip:{backend}>\r\n\
             Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    fn uri(&self, good: bool) -> String {
        if good { format!("sip:service@{}", self.server) } else { format!("sip:service@{NOBODY}") }
    }

    fn request<'a>(&self, method: &'a str, call: u64, uri: String) -> Request<'a> {
        let to = format!("<{uri}>");
        Request { method, uri, call, cseq: 1, to, routes: Vec::new(), body: "" }
    }

    fn write(&self, request: &Request<'_>) -> Vec<u8> {
        let Request { method, uri, call, cseq, to, routes, body } = request;
        let Self { caller, .. } = self;
        // The ACK of a rejection and a CANCEL have the branch of their INVITE. Any other request
        // has its own branch.
        let branch = match (*method, routes.is_empty()) {
            ("ACK", false) => "ack".to_owned(),
            _ => cseq.to_string(),
        };
        let routes: String = routes.iter().map(|route| format!("Route: {route}\r\n")).collect();
        let content = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {caller};branch=z9hG4bK-{call}-{branch}\r\n\
             {routes}From: <sip:caller@{caller}>;tag={call}\r\nTo: {to}\r\n\
             Call-ID: {call}@caller\r\nCSeq: {cseq} {method}\r\nContact: <sip:caller@{caller}>\r\n\
             Max-Forwards: 70\r\n{content}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

fn text(message: &[u8]) -> String {
    String::from_utf8_lossy(message).into_owned()
}

fn values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.split("\r\n");
    lines.filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns the first value of the header field `name`, or an empty text if there is none.
fn value<'a>(text: &'a str, name: &'a str) -> &'a str {
    values(text, name).next().unwrap_or("")
}

fn number(text: &str) -> u64 {
    value(text, "Call-ID").split('@').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
