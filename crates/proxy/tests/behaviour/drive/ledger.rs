//! A record of the packets that the proxy received and sent, with the invariants that they obey.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_sip::{Message, Method};
use tidegate_world::Timestamp;

use super::{BACKENDS, LISTENERS, TRUSTED, address};

/// The last action before the test took packets from the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One message was offered, or served.
    One,
    /// Timers fired.
    Timers,
    /// Another function of the proxy was called.
    Other,
}

/// The most packets that one message may cause. With three back ends a request causes a 100 and
/// three copies. A 6xx causes an ACK, two CANCELs and its forwarding.
const PACKETS_MAX: usize = 8;

/// The most back ends that all pools have together.
const BACKENDS_MAX: usize = 8;

/// The shortest life of a transaction after its final response: T4, once that response is
/// acknowledged (RFC 3261 §17.2.1, Timer I).
const LIFE_MIN: Duration = Duration::from_secs(5);

/// The identity of a server transaction by RFC 3261 §17.2.3: branch, sent-by, method.
type Key = (Vec<u8>, Vec<u8>, Vec<u8>);

/// The requests with one key. The checks apply if all these requests are equal.
#[derive(Default)]
struct Asked {
    datagrams: HashSet<(SocketAddr, Vec<u8>)>,
    /// The different final responses sent upstream, and the time of the last one.
    answers: Vec<Vec<u8>>,
    answered_at: Timestamp,
}

/// The record of received and sent packets, which checks each sent packet.
pub struct Ledger {
    /// True if each request has a transaction.
    has_transactions: bool,
    sources: HashSet<IpAddr>,
    /// The sources of the requests before the last message of a source that may direct requests
    /// elsewhere. A route token of a forwarded request names the flow on which the request came,
    /// and a back end may send requests to this flow.
    named: HashSet<IpAddr>,
    /// The bytes sent by sources that may direct requests elsewhere.
    allowed: Vec<u8>,
    requests: usize,
    asked: HashMap<Key, Asked>,
}

impl Ledger {
    pub fn new(has_transactions: bool) -> Self {
        Self {
            has_transactions,
            sources: HashSet::new(),
            named: HashSet::new(),
            allowed: Vec::new(),
            requests: 0,
            asked: HashMap::new(),
        }
    }

    pub fn received(&mut self, from: SocketAddr, bytes: &[u8]) {
        if from == address(TRUSTED) || is_backend(from) {
            self.allowed.extend_from_slice(bytes);
            self.named.extend(&self.sources);
        }
        let Ok(message) = Message::parse_head(bytes) else { return };
        if message.is_request() {
            self.requests += 1;
            self.sources.insert(from.ip());
            if let Some(key) = key(&message) {
                let asked = self.asked.entry(key).or_default();
                asked.datagrams.insert((from, bytes.to_vec()));
            }
        }
    }

    pub fn sent(&mut self, now: Timestamp, to: SocketAddr, bytes: &[u8]) {
        assert!(LISTENERS.iter().all(|own| address(own) != to), "it sends to itself");
        if bytes.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(b"SIP/")) {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("cannot be rewritten"), "its edits overlap: {text}");
            assert!(self.sources.contains(&to.ip()), "no request has come from {to}");
            // The proxy reads only the parts of a response that it needs to forward it: the rest
            // may be malformed.
            if let Ok(response) = Message::parse(bytes) {
                self.sent_response(now, &response);
            }
        } else {
            let request = Message::parse(bytes).expect("a request that is sent is well-formed");
            self.sent_request(to, &request);
        }
    }

    /// Checks that no input causes more packets than allowed.
    pub fn check_count(&self, step: Step, count: usize) {
        let most = match step {
            Step::One | Step::Other => PACKETS_MAX,
            // For each request at most a copy and a CANCEL for each back end, and a response. Also
            // a probe of each back end that has evidence against it.
            Step::Timers => PACKETS_MAX * self.requests + BACKENDS_MAX,
        };
        assert!(count <= most, "{count} packets after {step:?}");
    }

    fn sent_request(&self, to: SocketAddr, request: &Message<'_>) {
        // RFC 3261 §17.1.1.3: an ACK has the To of the response, even a malformed one.
        let is_fit = request.check().is_ok() || request.method() == Some(Method::Ack);
        assert!(is_fit, "what is forwarded is well-formed");
        let own = request.top_via().expect("ours");
        let listener = LISTENERS.iter().any(|listener| listener.as_bytes() == own.sent_by);
        assert!(listener && own.has_magic_cookie(), "its Via stands on top");
        assert!(request.max_forwards().is_ok_and(|hops| hops.is_some_and(|n| n < 255)));
        // Accept any IPv6 address, because it has too many spellings to search for.
        let is_allowed = to.is_ipv6() && !self.allowed.is_empty() || {
            let ip = to.ip().to_string();
            self.allowed.windows(ip.len()).any(|part| part == ip.as_bytes())
        };
        let is_named = self.named.contains(&to.ip());
        assert!(is_backend(to) || is_allowed || is_named, "no trusted source has named {to}");
    }

    fn sent_response(&mut self, now: Timestamp, response: &Message<'_>) {
        let status = response.status().expect("a response");
        if status < 200 || !self.has_transactions {
            return;
        }
        // Stateless replies may repeat, and a different one may follow once a transaction exists.
        // The same applies to responses to requests forwarded without state: a CANCEL, and an ACK,
        // which should get no response.
        let tag = response.to().ok().and_then(|to| to.tag()).unwrap_or_default();
        let is_stateless = is_own(response) && !tag.starts_with(b"tx");
        let Some(key) = key(response).filter(|_| !is_stateless) else { return };
        let method = Method::from_bytes(&key.2);
        let Some(asked) = self.asked.get_mut(&key) else { return };
        if asked.datagrams.len() != 1 || matches!(method, Method::Cancel | Method::Ack) {
            return;
        }
        if now.since(asked.answered_at) > LIFE_MIN {
            asked.answers.clear();
        }
        asked.answered_at = now;
        let bytes = response.bytes();
        if asked.answers.iter().any(|answer| answer == bytes) {
            return;
        }
        // RFC 3261 §16.7 item 5: every 2xx to an INVITE is forwarded, whatever was sent before.
        let may_follow = method == Method::Invite && status < 300;
        if let Some(first) = asked.answers.first().filter(|_| !may_follow) {
            panic!(
                "two final responses to one request:\n{}\n{}",
                String::from_utf8_lossy(first),
                String::from_utf8_lossy(bytes)
            );
        }
        asked.answers.push(bytes.to_vec());
    }
}

/// Returns whether the proxy generated the response itself.
fn is_own(response: &Message<'_>) -> bool {
    response.fields().any(|f| f.raw_name == b"Server" && f.value.starts_with(b"Tidegate/"))
}

fn is_backend(address: SocketAddr) -> bool {
    BACKENDS.iter().any(|backend| super::address(backend) == address)
}

/// Returns the key of a request, or of the request of a response, or `None` without a unique
/// branch.
fn key(message: &Message<'_>) -> Option<Key> {
    let (via, cseq) = (message.top_via().ok()?, message.cseq().ok()?);
    let branch = via.branch().filter(|_| via.has_magic_cookie())?;
    (branch.len() > 7).then(|| (branch.to_vec(), via.sent_by.to_vec(), cseq.method_name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1);

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(true);
        ledger.received(address("198.51.100.7:5060"), &message("OPTIONS sip:b SIP/2.0"));
        ledger
    }

    fn message(start: &str) -> Vec<u8> {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKx\r\nFrom: <sip:a>;tag=a\r\n\
             To: <sip:b>;tag=b\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 69\r\n\r\n"
        )
        .into_bytes()
    }

    #[test]
    #[should_panic(expected = "two final responses")]
    fn a_second_final_response_is_noticed() {
        let mut ledger = ledger();
        for start in ["SIP/2.0 200 A", "SIP/2.0 200 A", "SIP/2.0 404 B"] {
            ledger.sent(NOW, address("198.51.100.7:5060"), &message(start));
        }
    }

    #[test]
    #[should_panic(expected = "no request has come from")]
    fn a_response_to_nobody_is_noticed() {
        ledger().sent(NOW, address("203.0.113.1:5060"), &message("SIP/2.0 200 A"));
    }

    #[test]
    #[should_panic(expected = "no trusted source has named")]
    fn a_relay_is_noticed() {
        ledger().sent(NOW, address("203.0.113.1:5060"), &message("OPTIONS sip:b SIP/2.0"));
    }

    #[test]
    #[should_panic(expected = "9 packets after One")]
    fn an_amplifier_is_noticed() {
        ledger().check_count(Step::One, 9);
    }
}
