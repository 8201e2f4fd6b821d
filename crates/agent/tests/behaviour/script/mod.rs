//! Scripts for one agent alone, whose packets are compared with the text of the RFC.

pub mod one_call;

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{Core, Flow, Pool, Received, Timestamp};

pub fn uac() -> SocketAddr {
    "192.0.2.1:5060".parse().unwrap()
}

pub fn uas() -> SocketAddr {
    "192.0.2.2:5060".parse().unwrap()
}

/// A packet the agent sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time, in ms.
    pub ms: u64,
    pub to: SocketAddr,
    pub text: String,
}

impl Sent {
    /// Returns the method or status.
    pub fn what(&self) -> &str {
        self.text.strip_prefix("SIP/2.0 ").unwrap_or(&self.text).split(' ').next().unwrap()
    }

    /// Returns the value of the first header of this name.
    pub fn header(&self, name: &str) -> &str {
        self.headers(name).first().copied().unwrap_or_else(|| panic!("no {name}: {}", self.text))
    }

    /// Returns the values of all headers of this name.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        self.text
            .split("\r\n")
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .collect()
    }

    pub fn branch(&self) -> &str {
        self.header("Via").split("branch=").nth(1).unwrap().split(';').next().unwrap()
    }

    pub fn request_uri(&self) -> &str {
        self.text.split(' ').nth(1).unwrap()
    }
}

/// An agent and its time.
pub struct Script<C> {
    pub agent: C,
    local: SocketAddr,
    now: Timestamp,
    pool: Pool,
    sent: Vec<Sent>,
}

impl<C: Core> Script<C> {
    pub fn new(agent: C, local: SocketAddr) -> Self {
        Self { agent, local, now: Timestamp::ZERO, pool: Pool::new(), sent: Vec::new() }
    }

    /// Advances the time to `ms` after the start. Each timer fires on time.
    pub fn until(&mut self, ms: u64) -> &mut Self {
        let end = Timestamp::ZERO + Duration::from_millis(ms);
        while let Some(at) = self.agent.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.agent.handle_timeout(self.now);
            self.gather();
        }
        self.now = end;
        self
    }

    /// Gives the agent a packet from `remote`. LF stands for CRLF.
    pub fn tell(&mut self, remote: SocketAddr, text: &str) -> &mut Self {
        self.tell_bytes(remote, text.replace("\r\n", "\n").replace('\n', "\r\n").as_bytes())
    }

    pub fn tell_bytes(&mut self, remote: SocketAddr, bytes: &[u8]) -> &mut Self {
        let flow = Flow::udp(self.local, remote);
        self.agent.offer(self.now, Received::new(self.now, flow, self.pool.copy(bytes)));
        self.gather();
        self
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the packets that were sent and not returned before.
    pub fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Returns the only packet that was sent and not returned before.
    pub fn sent_one(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:#?}");
        sent.remove(0)
    }

    /// Returns the times (ms) and kinds of the packets that were sent and not returned before.
    pub fn schedule(&mut self) -> Vec<(u64, String)> {
        self.sent().iter().map(|sent| (sent.ms, sent.what().to_owned())).collect()
    }

    fn gather(&mut self) {
        while let Some(transmit) = self.agent.poll_transmit() {
            assert_eq!(transmit.flow.local, self.local);
            self.sent.push(Sent {
                ms: self.now.as_nanos() / 1_000_000,
                to: transmit.flow.remote,
                text: String::from_utf8_lossy(&transmit.bytes).into_owned(),
            });
        }
    }
}

/// Returns the times (ms) at which `what` is sent.
pub fn at(what: &str, ms: &[u64]) -> Vec<(u64, String)> {
    ms.iter().map(|&ms| (ms, what.to_owned())).collect()
}

/// Returns a request over two proxies.
pub fn request(method: &str, branch: &str, to_tag: &str, cseq: u32) -> String {
    format!(
        "{method} sip:service@192.0.2.2 SIP/2.0\n\
         Via: SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bK{branch}\n\
         Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKfirst\n\
         Record-Route: <sip:192.0.2.1;lr>\n\
         Record-Route: <sip:192.0.2.9;lr;a=b>\n\
         Max-Forwards: 68\n\
         From: <sip:alice@192.0.2.9>;tag=a\n\
         To: <sip:service@192.0.2.2>{to_tag}\n\
         Call-ID: one@192.0.2.9\n\
         CSeq: {cseq} {method}\n\
         Contact: <sip:alice@192.0.2.9>\n\
         Content-Length: 0\n\n"
    )
}

/// Returns a response to `request`. Its To ends in `to`, and it has the further `headers`.
pub fn response(request: &Sent, status: u16, to: &str, headers: &str) -> String {
    format!(
        "SIP/2.0 {status} Whatever\nVia: {}\nFrom: {}\nTo: {}{to}\nCall-ID: {}\nCSeq: {}\n{headers}\
         Content-Length: 0\n\n",
        request.header("Via"),
        request.header("From"),
        request.header("To"),
        request.header("Call-ID"),
        request.header("CSeq"),
    )
}
