//! Attackers: nodes that send SIP messages to disturb the proxies, not to make calls.
//!
//! An attacker makes one [`Attack`], at a fixed rate and with a limited number of packets. It sends
//! from its own address, or forges the address of a caller or an unused address. It may see some
//! packets of other nodes, like an observer on the path ([`Wiretap`]). Each attacker draws its
//! random numbers from its own stream.

mod forgery;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_sim::{NodeId, Tap};
use tidegate_world::{
    Core, Flow, Pool, Purpose, Received, Seed, Stream, Timestamp, Transmit, unit_enum,
};

use forgery::{Request, Text};

/// Number of requests that share a Call-ID, with [`Attack::Tags`] and [`Attack::Copies`].
const PER_CALL: u32 = 40;

/// Maximum length of the body of a request of [`Attack::Hoard`], in bytes.
pub(super) const BODY_MAX: usize = 60_000;

/// Maximum number of recent packets of other nodes that a [`Wiretap`] keeps.
const SEEN_MAX: usize = 64;

/// Number of packets waiting to be sent at which the attacker stops reacting to responses.
const REACTIONS_MAX: usize = 64;

/// The description of an attacker in a world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attacker {
    /// Index of the attacked proxy, among the proxies to which callers send.
    pub to: usize,
    /// The kind of attack.
    pub attack: Attack,
    /// Rate of the attacker's packets, in packets a second.
    pub rate_pps: f64,
    /// Number of packets that the attacker sends.
    pub count: u32,
    /// Time of the attacker's first packet, in milliseconds after the start of the run.
    pub begins_ms: u64,
    /// Probability, 0 to 1, that the attacker sees a recent packet of another node when it writes a
    /// packet.
    #[serde(default)]
    pub sees: f64,
    /// Source address of the attacker's packets.
    #[serde(default)]
    pub source: Source,
}

/// The source address of an attacker's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The attacker's own address, at which it gets the responses.
    #[default]
    Own,
    /// A forged unused address, different for each packet.
    Nobody,
    /// The forged address of the group of callers with this index.
    Crowd(usize),
}

unit_enum! {
    /// A kind of attack.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Attack {
        /// INVITEs with the Call-ID of an admitted call and an invented To-tag.
        Tags,
        /// INVITEs with the Call-ID and CSeq of an admitted call and a different From-tag. Some
        /// lack the magic cookie in the branch.
        Copies,
        /// Calls that are answered, and BYEs with a wrong To-tag for these calls.
        Byes,
        /// BYEs and CANCELs for calls of other nodes.
        Hangups,
        /// Responses to requests of other nodes.
        Responses,
        /// INVITEs to a number for which the back end answers 503 with a Retry-After of an hour.
        Closed,
        /// INVITEs to a number for which the back end never answers.
        Void,
        /// INVITEs whose second Via violates the grammar. No back end answers these INVITEs.
        Vias,
        /// "Port unreachable" ICMP errors that seem to come from back ends.
        Icmp,
        /// INVITEs to the number that all callers call. Some require the proxy to make as many
        /// changes as possible.
        Flood,
        /// BYEs, ACKs, INFOs and responses that do not belong to a call.
        Noise,
        /// Large INVITEs to a number that rings forever.
        Hoard,
    }
}

impl Attacker {
    /// Returns the time at which the attacker sends its packet number `n`, counted from 0.
    pub(super) fn due(&self, n: u32) -> Timestamp {
        let after = Duration::from_secs_f64(f64::from(n) / self.rate_pps);
        Timestamp::ZERO + Duration::from_millis(self.begins_ms) + after
    }

    /// Returns whether the attacker is possible: its rate and its probability are within their
    /// ranges, it starts within the first day, and it sends for at most a day.
    pub(super) fn is_possible(&self) -> bool {
        (0.01..=1e6).contains(&self.rate_pps)
            && (0.0..=1.0).contains(&self.sees)
            && self.begins_ms <= 86_400_000
            && f64::from(self.count) / self.rate_pps <= 86_400.0
    }
}

/// The most recent packets in a network, kept for attackers that observe them.
#[derive(Clone, Debug)]
pub(super) struct Wiretap {
    seen: Rc<RefCell<VecDeque<Box<[u8]>>>>,
    /// Only the packets of nodes with an index below this value are kept.
    below: usize,
    listens: bool,
}

impl Wiretap {
    /// Creates a wiretap that keeps the packets of the first `below` nodes. If `listens` is false,
    /// no packets are kept.
    pub(super) fn new(below: usize, listens: bool) -> Self {
        Self { seen: Rc::default(), below, listens }
    }

    fn choose(&self, stream: &mut Stream) -> Option<String> {
        let seen = self.seen.borrow();
        let chosen = seen.get(stream.below(seen.len() as u64) as usize)?;
        String::from_utf8(chosen.to_vec()).ok()
    }
}

impl Tap for Wiretap {
    fn sent(&mut self, _: Timestamp, from: NodeId, _: Flow, bytes: &[u8]) {
        if !self.listens || from.index() >= self.below {
            return;
        }
        let mut seen = self.seen.borrow_mut();
        if seen.len() == SEEN_MAX {
            seen.pop_front();
        }
        seen.push_back(bytes.into());
    }
}

/// A running attacker.
pub(super) struct Hostile {
    stranger: Attacker,
    local: SocketAddr,
    target: SocketAddr,
    /// The address of innocent callers, which the attacker forges, or `None` if there are none.
    innocent: Option<SocketAddr>,
    wiretap: Wiretap,
    stream: Stream,
    sent: u32,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Hostile {
    /// Creates an attacker at the address `local` that sends to `target`. `innocent` is the address
    /// to forge. `element` is the attacker's number, from which its random stream is made.
    pub(super) fn new(
        stranger: Attacker,
        [local, target]: [SocketAddr; 2],
        innocent: Option<SocketAddr>,
        wiretap: Wiretap,
        (seed, element): (Seed, u32),
    ) -> Self {
        let stream = seed.stream(Purpose::Strangers, element);
        let (pool, out) = (Pool::new(), VecDeque::new());
        Self { stranger, local, target, innocent, wiretap, stream, sent: 0, pool, out }
    }

    /// Returns the next packet with its source address. Returns `None` for [`Attack::Icmp`],
    /// because the run itself delivers ICMP errors.
    fn forge(&mut self) -> Option<(SocketAddr, Text)> {
        let source = self.source();
        let seen = (self.stream.unit() < self.stranger.sees)
            .then(|| self.wiretap.choose(&mut self.stream))
            .flatten();
        let (n, target) = (self.sent, self.target);
        let nonce = self.stream.next_u64();
        // With `Tags` and `Copies`, several requests have one Call-ID. The first of them is an
        // ordinary INVITE.
        let of_call = n % PER_CALL;
        let known = format!("call-{}@{}", n / PER_CALL, self.local);
        let new = Request::new("INVITE", "service", source, nonce);
        let text = match self.stranger.attack {
            Attack::Icmp => return None,
            Attack::Flood if nonce.is_multiple_of(4) => {
                Request { bare_for: Some(target), ..new }.text()
            }
            Attack::Flood | Attack::Byes => new.text(),
            Attack::Closed => Request { number: "closed", ..new }.text(),
            Attack::Void => Request { number: "void", ..new }.text(),
            Attack::Hoard => {
                let body = self.stream.below(BODY_MAX as u64) as usize;
                Request { number: "endless", body, ..new }.text()
            }
            Attack::Vias => {
                let lower = forgery::BROKEN_VIAS[(nonce % 3) as usize];
                Request { lower, ..new }.text()
            }
            Attack::Tags if of_call == 0 => Request { call: known, ..new }.text(),
            Attack::Tags => {
                let call = match seen.as_deref().and_then(forgery::call_id) {
                    Some(call) => call.to_owned(),
                    None => known,
                };
                let to_tag = Some(format!("{nonce:x}"));
                Request { call, to_tag, cseq: 1 + of_call, ..new }.text()
            }
            Attack::Copies if of_call == 0 => Request { call: known, ..new }.text(),
            Attack::Copies => {
                let cookie = if nonce.is_multiple_of(2) { "" } else { new.cookie };
                Request { call: known, cookie, ..new }.text()
            }
            Attack::Hangups => forgery::hang_up(seen.as_deref(), source, nonce),
            Attack::Responses => forgery::response(seen.as_deref(), target, nonce),
            Attack::Noise => forgery::noise(source, target, nonce),
        };
        Some((source, text))
    }

    fn source(&mut self) -> SocketAddr {
        match self.stranger.source {
            Source::Own => self.local,
            Source::Crowd(_) => self.innocent.unwrap_or(self.local),
            Source::Nobody => {
                let [_, a, b, c] = (self.stream.next_u64() as u32).to_be_bytes();
                SocketAddr::from((Ipv4Addr::new(10, a | 128, b, c), 5060))
            }
        }
    }

    fn send(&mut self, source: SocketAddr, text: &[u8]) {
        let flow = Flow::udp(source, self.target);
        self.out.push_back(Transmit::new(flow, self.pool.copy(text)));
    }
}

impl Core for Hostile {
    /// With [`Attack::Byes`], answers each 200 to an INVITE with an ACK and with a BYE for a
    /// different dialog. With other attacks, ignores the packet, like an attacker that forges its
    /// address.
    fn offer(&mut self, _: Timestamp, received: Received) {
        let acts = self.stranger.attack == Attack::Byes && self.out.len() < REACTIONS_MAX;
        let Some(text) = std::str::from_utf8(&received.bytes).ok().filter(|_| acts) else { return };
        let nonce = self.stream.next_u64();
        for text in forgery::bye_to_another_dialog(text, self.local, nonce) {
            self.send(self.local, &text);
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            if let Some((source, text)) = self.forge() {
                self.send(source, &text);
            }
            self.sent += 1;
        }
    }

    fn on_drain(&mut self, _: Timestamp) {}

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let sends = self.stranger.attack != Attack::Icmp && self.sent < self.stranger.count;
        sends.then(|| self.stranger.due(self.sent))
    }

    fn is_drained(&self) -> bool {
        true
    }
}
