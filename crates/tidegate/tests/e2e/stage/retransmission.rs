//! Retransmission of unanswered requests, as user agents do over UDP.

use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Message;

/// T1 of RFC 3261 §17.1.1.1, the estimated round-trip time.
const T1: Duration = Duration::from_millis(500);
/// T2 of §17.1.2.2, the longest interval between retransmissions of a non-INVITE request.
const T2: Duration = Duration::from_secs(4);

thread_local! {
    /// The sockets of the peers of a test.
    static SOCKETS: RefCell<Vec<Weak<State>>> = const { RefCell::new(Vec::new()) };
}

/// The socket of a peer.
pub struct Socket(Arc<State>);

struct State {
    udp: UdpSocket,
    /// Last request without a response.
    unanswered: Mutex<Option<Unanswered>>,
}

struct Unanswered {
    to: SocketAddr,
    request: Message,
    interval: Duration,
    due: Instant,
    /// End of the retransmissions: §17.1.1.2, Timer B, and §17.1.2.2, Timer F.
    until: Instant,
}

impl Socket {
    /// Wraps a socket that has sent nothing yet.
    pub fn new(udp: UdpSocket) -> Self {
        let state = Arc::new(State { udp, unanswered: Mutex::default() });
        SOCKETS.with_borrow_mut(|sockets| {
            sockets.retain(|socket| socket.strong_count() > 0);
            sockets.push(Arc::downgrade(&state));
        });
        Self(state)
    }

    /// Returns the socket itself.
    pub fn udp(&self) -> &UdpSocket {
        &self.0.udp
    }

    /// Records a sent message. From now on, a request is retransmitted instead of an earlier
    /// request. An ACK is not retransmitted, because nothing answers it.
    pub fn has_sent(&self, to: SocketAddr, message: &Message) {
        if message.status() == 0 && !message.start().starts_with("ACK ") {
            let now = Instant::now();
            let (interval, request) = (T1, message.clone());
            let unanswered =
                Unanswered { to, request, interval, due: now + T1, until: now + 64 * T1 };
            *self.unanswered() = Some(unanswered);
        }
    }

    /// Records a received message. A request that it answers is no longer retransmitted.
    pub fn has_received(&self, message: &Message) {
        let is_same = |request: &Message| {
            ["Call-ID", "CSeq"].iter().all(|name| request.fields(name).eq(message.fields(name)))
        };
        if message.status() > 0 {
            self.unanswered().take_if(|unanswered| is_same(&unanswered.request));
        }
    }

    fn unanswered(&self) -> MutexGuard<'_, Option<Unanswered>> {
        self.0.unanswered()
    }
}

impl State {
    fn unanswered(&self) -> MutexGuard<'_, Option<Unanswered>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Retransmits the due requests of this thread's peers. Returns the time until the next one is due.
pub fn repeat_what_is_due() -> Duration {
    let now = Instant::now();
    let sockets = SOCKETS.with_borrow(Clone::clone);
    let states = sockets.iter().filter_map(Weak::upgrade);
    let next = states.filter_map(|state| {
        let mut unanswered = state.unanswered();
        let Unanswered { to, request, interval, due, until } = unanswered.as_mut()?;
        if *until <= now {
            *unanswered = None;
            return None;
        }
        if *due <= now {
            if !has_unread(&state.udp) {
                // This call may return the ICMP error of an earlier datagram to a process that has
                // ended.
                let _ = state.udp.send_to(request.0.as_bytes(), *to);
            }
            let longest = if request.start().starts_with("INVITE ") { 64 * T1 } else { T2 };
            *interval = (2 * *interval).min(longest);
            *due = now + *interval;
        }
        Some(due.saturating_duration_since(now))
    });
    next.min().unwrap_or(T1).clamp(Duration::from_millis(1), T1)
}

/// Returns whether an unread datagram is waiting, which may be the response.
fn has_unread(udp: &UdpSocket) -> bool {
    udp.set_nonblocking(true).expect("an open socket");
    let has_unread = udp.peek(&mut [0; 1]).is_ok();
    udp.set_nonblocking(false).expect("an open socket");
    has_unread
}

/// The first copy of the request is lost, because the callee binds its address only after that.
#[test]
fn a_request_is_repeated_until_it_is_answered() {
    let stage = super::Stage::new();
    let (caller, callee) = (super::Peer::new(stage.ip()), stage.free_address());
    let options = caller.request("OPTIONS", "sip:bob@example.com", 1, 1);
    caller.send(callee, &options);
    let callee = super::Peer::at(callee);
    let request = callee.receive();
    assert_eq!(request.0, options.0);
    callee.send(caller.address(), &callee.response(&request, "200 OK"));
    assert_eq!(caller.receive().status(), 200);
    assert_eq!(repeat_what_is_due(), T1, "nothing is left to be repeated");
}
