//! A SIP message parsed as text: a start line, a list of header lines, a body.

use std::fmt;
use std::net::SocketAddr;

/// RFC 3261 §8.1.1.7: "These 7 characters are used as a magic cookie".
pub const COOKIE: &str = "z9hG4bK";

/// A message. Each header line holds one value, as the scripts write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub start: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// A message with its source and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub message: Message,
}

impl Message {
    /// Parses a message.
    ///
    /// # Panics
    /// Panics if the text is not SIP. The scripts send only SIP.
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("an empty line ends the head");
        let mut lines = head.split("\r\n");
        let start = lines.next().expect("a start line").to_owned();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').expect("a colon in a header line");
            (name.trim().to_owned(), value.trim().to_owned())
        });
        Self { start, headers: headers.collect(), body: body.to_owned() }
    }

    /// Returns the status of a response, or `None` for a request.
    pub fn status(&self) -> Option<u16> {
        self.start.strip_prefix("SIP/2.0 ").map(|rest| rest[..3].parse().expect("a status"))
    }

    /// Returns the method of a request, or of the request that a response answers.
    pub fn method(&self) -> &str {
        self.first("CSeq").split_once(' ').expect("CSeq has a number and a method").1
    }

    pub fn cseq_number(&self) -> &str {
        self.first("CSeq").split_once(' ').expect("CSeq has a number and a method").0
    }

    pub fn uri(&self) -> &str {
        self.start.split(' ').nth(1).expect("a request line has three parts")
    }

    /// Returns another request with the same topmost Via, Call-ID, CSeq number and so on.
    pub fn sibling(&self, method: &str) -> Self {
        let mut headers = vec![("Via".to_owned(), self.first("Via").to_owned())];
        for name in ["Route", "From", "To", "Call-ID"] {
            for value in self.all(name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        headers.push(("CSeq".to_owned(), format!("{} {method}", self.cseq_number())));
        // RFC 3261 §8.1.1: "A valid SIP request formulated by a UAC MUST, at a minimum, contain
        // [...] Max-Forwards". §8.1.1.6: its value "SHOULD be 70".
        headers.push(("Max-Forwards".to_owned(), "70".to_owned()));
        Self { start: format!("{method} {} SIP/2.0", self.uri()), headers, body: String::new() }
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub fn first(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("no {name} in\n{self}"))
    }

    /// Replaces the first value of this name, or adds the value at the end if there is none.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.position(name) {
            Some(at) => self.headers[at].1 = value.to_owned(),
            None => self.headers.push((name.to_owned(), value.to_owned())),
        }
    }

    /// Inserts a value before the others of this name.
    pub fn push_first(&mut self, name: &str, value: &str) {
        let at = self.position(name).unwrap_or(0);
        self.headers.insert(at, (name.to_owned(), value.to_owned()));
    }

    pub fn remove_first(&mut self, name: &str) {
        let at = self.position(name).expect("there is one to remove");
        self.headers.remove(at);
    }

    pub fn tag(&self, name: &str) -> Option<&str> {
        parameter(self.first(name), "tag")
    }

    pub fn branch(&self) -> Option<&str> {
        parameter(self.first("Via"), "branch")
    }

    /// Returns `host:port` of the topmost Via.
    pub fn sent_by(&self) -> &str {
        sent_by(self.first("Via"))
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.headers.iter().position(|(n, _)| n.eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\r\n", self.start)?;
        for (name, value) in &self.headers {
            write!(f, "{name}: {value}\r\n")?;
        }
        write!(f, "\r\n{}", self.body)
    }
}

/// Returns a parameter after the address in a header value: empty if the parameter has no value,
/// `None` if it is missing.
pub fn parameter<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    let outside = value.rsplit_once('>').map_or(value, |(_, outside)| outside);
    let (_, parameters) = outside.split_once(';')?;
    parameters.split(';').find_map(|p| {
        let (n, v) = p.split_once('=').unwrap_or((p, ""));
        (n == name).then_some(v)
    })
}

/// Returns `host:port` of a Via.
pub fn sent_by(via: &str) -> &str {
    let (_, rest) = via.split_once(' ').expect("a Via has a protocol and a sender");
    rest.split(';').next().expect("a split yields at least one part")
}

/// Returns a response to a request, with copies of the header fields that identify it.
///
/// RFC 3261 §8.2.6.2: "The From field of the response MUST equal the From header field of the
/// request. The Call-ID header field of the response MUST equal the Call-ID header field of
/// the request. [...] The Via header field values in the response MUST equal the Via header
/// field values in the request and MUST maintain the same ordering."
pub fn response_to(request: &Message, status: &str, tag: Option<&str>) -> Message {
    let mut headers = Vec::new();
    for name in ["Via", "From", "To", "Call-ID", "CSeq"] {
        for value in request.all(name) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let mut response = Message { start: format!("SIP/2.0 {status}"), headers, body: String::new() };
    // "If a request contained a To tag in the request, the To header field in the response
    // MUST equal that of the request. However, if the To header field in the request did not
    // contain a tag, the URI in the To header field in the response MUST equal the URI in the
    // To header field; additionally, the UAS MUST add a tag to the To header
    // field in the response (with the exception of the 100 (Trying) response [...])."
    if let (None, Some(tag)) = (request.tag("To"), tag) {
        response.set("To", &format!("{};tag={tag}", request.first("To")));
    }
    response
}
