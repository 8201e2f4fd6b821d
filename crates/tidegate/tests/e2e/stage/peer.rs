//! Minimal user agent: one socket, and messages as text.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{PATIENCE, retransmission};

/// UDP socket that sends and receives single messages.
///
/// An unanswered request is retransmitted while any peer of the thread waits for a message (RFC
/// 3261 §17.1.1.2, Timer A, and §17.1.2.2, Timer E).
pub struct Peer {
    socket: retransmission::Socket,
    address: SocketAddr,
    /// Number that differs between all peers of this process.
    mark: u32,
}

impl Peer {
    /// Creates a peer on a free port of `ip`.
    pub fn new(ip: IpAddr) -> Self {
        Self::at(SocketAddr::new(ip, 0))
    }

    /// Creates a peer at a given address.
    pub fn at(address: SocketAddr) -> Self {
        static PEERS: AtomicU32 = AtomicU32::new(1);
        let socket = UdpSocket::bind(address).expect("a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        let mark = PEERS.fetch_add(1, Ordering::Relaxed);
        Self { socket: retransmission::Socket::new(socket), address, mark }
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the Call-ID of request `number`.
    ///
    /// RFC 3261 §8.1.1.4: it "MUST be selected by the UAC as a globally unique identifier over
    /// space and time". The port alone is not unique: the kernel reuses it for another peer after
    /// this one has ended, and the requests of that peer would look like retransmissions.
    pub fn call_id(&self, number: u32) -> String {
        format!("{number}-{}@{}", self.mark, self.address)
    }

    /// Returns a request from this peer to `uri`. The Call-ID and From-tag are derived from
    /// `number`, and the branch from both `number` and the CSeq.
    pub fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        let Self { address: here, mark, .. } = self;
        let call_id = self.call_id(number);
        Message(format!(
            "{method} {uri} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {here};branch=z9hG4bK-{number}-{mark}-{cseq}-{method}\r\n\
             From: <sip:caller@{here}>;tag=from-{number}\r\n\
             To: <{uri}>\r\n\
             Call-ID: {call_id}\r\n\
             CSeq: {cseq} {method}\r\n\
             Contact: <sip:caller@{here}>\r\n\
             Max-Forwards: 70\r\n\
             Content-Length: 0\r\n\r\n"
        ))
    }

    /// Returns a request within the dialog that the response `ok` to an INVITE of this peer
    /// created, RFC 3261 §12.2.1.1.
    pub fn in_dialog(&self, method: &str, ok: &Message, cseq: u32) -> Message {
        let target = ok.field("Contact").trim_matches(['<', '>']);
        let mut request = self
            .request(method, target, 0, cseq)
            .with("From", ok.field("From"))
            .with("To", ok.field("To"))
            .with("Call-ID", ok.field("Call-ID"));
        for route in ok.fields("Record-Route") {
            request = request.and("Route", route);
        }
        request
    }

    /// Returns a response of this peer to `request` that can create a dialog (RFC 3261 §8.2.6.2).
    pub fn response(&self, request: &Message, status: &str) -> Message {
        let mut lines = vec![format!("SIP/2.0 {status}")];
        for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
            lines.extend(request.fields(name).map(|value| {
                let tag = if name == "To" && !value.contains(";tag=") { ";tag=to" } else { "" };
                format!("{name}: {value}{tag}")
            }));
        }
        lines.push(format!("Contact: <sip:callee@{}>", self.address));
        lines.push("Content-Length: 0\r\n\r\n".to_owned());
        Message(lines.join("\r\n"))
    }

    /// Sends a message.
    pub fn send(&self, to: SocketAddr, message: &Message) {
        self.send_bytes(to, message.0.as_bytes());
        self.socket.has_sent(to, message);
    }

    /// Sends a datagram.
    pub fn send_bytes(&self, to: SocketAddr, bytes: &[u8]) {
        self.socket.udp().send_to(bytes, to).expect("a datagram can be sent");
    }

    /// Returns the next message and its source.
    #[track_caller]
    pub fn receive_from(&self) -> (Message, SocketAddr) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(received) = self.next_within(retransmission::repeat_what_is_due()) {
                return received;
            }
            let is_over = Instant::now() >= deadline;
            assert!(!is_over, "{} has received nothing within {PATIENCE:?}", self.address);
        }
    }

    /// Returns the next message.
    #[track_caller]
    pub fn receive(&self) -> Message {
        self.receive_from().0
    }

    /// Sends `request` and returns the first final response to it.
    #[track_caller]
    pub fn ask(&self, to: SocketAddr, request: &Message) -> Message {
        self.send(to, request);
        loop {
            let response = self.receive();
            if response.status() >= 200 {
                return response;
            }
        }
    }

    /// Accepts an INVITE that `caller` sent through `proxy`, and waits for the ACK. Returns the 200
    /// as the caller received it.
    #[track_caller]
    pub fn accept(&self, invite: &Message, proxy: SocketAddr, caller: &Self) -> Message {
        self.send(proxy, &self.response(invite, "200 OK"));
        let ok = caller.receive();
        assert_eq!(ok.status(), 200);
        caller.send(proxy, &caller.in_dialog("ACK", &ok, 1));
        assert!(self.receive().start().starts_with("ACK "));
        ok
    }

    /// Sets up a call through `proxy`. Returns the 200.
    #[track_caller]
    pub fn set_up(&self, proxy: SocketAddr) -> Message {
        let ok = self.ask(proxy, &self.request("INVITE", &format!("sip:bob@{proxy}"), 1, 1));
        assert_eq!(ok.status(), 200, "{}", ok.0);
        self.send(proxy, &self.in_dialog("ACK", &ok, 1));
        ok
    }

    /// Ends the call that `ok` has set up. Returns the status of the response to the BYE.
    #[track_caller]
    pub fn hang_up(&self, proxy: SocketAddr, ok: &Message) -> u16 {
        self.send(proxy, &self.in_dialog("BYE", ok, 2));
        loop {
            // The callee may have repeated its 200 to the INVITE.
            let response = self.receive();
            if response.field("CSeq") == "2 BYE" {
                return response.status();
            }
        }
    }

    /// Returns the next message, if it has already arrived.
    pub fn next_now(&self) -> Option<Message> {
        Some(self.next_from_now()?.0)
    }

    /// Returns the next message and its source, if it has already arrived.
    pub fn next_from_now(&self) -> Option<(Message, SocketAddr)> {
        self.socket.udp().set_nonblocking(true).expect("an open socket");
        let next = self.next();
        self.socket.udp().set_nonblocking(false).expect("an open socket");
        next
    }

    /// Returns the next message and its source, if the message arrives within `wait`.
    pub fn next_within(&self, wait: Duration) -> Option<(Message, SocketAddr)> {
        self.socket.udp().set_read_timeout(Some(wait)).expect("a timeout above zero");
        self.next()
    }

    /// Returns the next message. Skips 100 responses: they concern client transactions, and no
    /// script waits for one.
    fn next(&self) -> Option<(Message, SocketAddr)> {
        let mut buffer = [0; 65_536];
        loop {
            let (length, from) = self.socket.udp().recv_from(&mut buffer).ok()?;
            let message = Message(String::from_utf8_lossy(&buffer[..length]).into_owned());
            self.socket.has_received(&message);
            if message.status() != 100 {
                return Some((message, from));
            }
        }
    }
}

/// A SIP message.
#[derive(Clone, Debug)]
pub struct Message(pub String);

impl Message {
    /// Returns the first line.
    pub fn start(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// Returns the status of a response, 0 for a request.
    pub fn status(&self) -> u16 {
        let status = self.start().strip_prefix("SIP/2.0 ").and_then(|rest| rest.get(..3));
        status.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Returns the values of a header field, in order.
    pub fn fields(&self, name: &str) -> impl Iterator<Item = &str> {
        let lines = self.0.lines().take_while(|line| !line.is_empty());
        lines.filter_map(move |line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the value of a header field.
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        self.fields(name).next().unwrap_or_else(|| panic!("no {name} in\n{}", self.0))
    }

    /// Returns the message with another value of a header field.
    #[track_caller]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let old = format!("\r\n{name}: {}\r\n", self.field(name));
        Self(self.0.replacen(&old, &format!("\r\n{name}: {value}\r\n"), 1))
    }

    /// Returns the message with another header field before the From.
    pub fn and(&self, name: &str, value: &str) -> Self {
        Self(self.0.replacen("\r\nFrom: ", &format!("\r\n{name}: {value}\r\nFrom: "), 1))
    }
}
