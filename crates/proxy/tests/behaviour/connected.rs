//! A proxy with its connections, and a clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::script::{BACKEND_A, PROXY, Sent, address, only, secret};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Counters, Listener, Mode, PoolSettings, Proxy, Settings};
use tidegate_transport::{ConnectionLimits, Streams};
use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Flow, Pool, Received, Timestamp, Transport,
};

/// A packet that was sent, with its flow.
pub type Carried = (Flow, Sent);

/// Returns the number of the connection of a flow, or 0 for a datagram.
pub fn number_of(flow: Flow) -> u32 {
    flow.connection.map_or(0, ConnectionId::get)
}

/// A proxy with its connections, at a time that only the test advances.
pub struct Scene {
    pub streams: Streams<Proxy>,
    pub counters: Arc<Counters>,
    pub now: Timestamp,
    pub pool: Pool,
    /// The back ends of the first pool.
    pub backends: balance::Pool,
}

impl Scene {
    pub fn of(settings: Settings, limits: ConnectionLimits) -> Self {
        let backends = settings.pools[0].pool.clone();
        let (pool, counters) = (Pool::new(), Arc::<Counters>::default());
        let proxy = Proxy::new(settings, Arc::clone(&counters), pool.clone());
        let streams = Streams::new(proxy, limits, pool.clone());
        Self { streams, counters, now: Timestamp::from_nanos(1_000_000_000), pool, backends }
    }

    /// Makes a proxy with these listeners in front of one back end, which it reaches from the first
    /// of them. `adjust` changes its settings.
    pub fn in_front(
        listeners: &[(Transport, &str)],
        mode: Mode,
        adjust: impl FnOnce(&mut Settings),
    ) -> Self {
        let listener = |&(transport, local): &(Transport, &str)| Listener {
            transport,
            ..Listener::new(address(local))
        };
        let backends = balance::Pool::new("app", &[("a", address(BACKEND_A), 1)]);
        let pool =
            PoolSettings { mode, listener: Some(0), ..PoolSettings::new(backends, Policy::Rr) };
        let listeners = listeners.iter().map(listener).collect();
        let mut settings = Settings::new(listeners, vec![pool], secret(1));
        adjust(&mut settings);
        Self::of(settings, ConnectionLimits::default())
    }

    pub fn sent(&mut self) -> Vec<Carried> {
        let transmits = std::iter::from_fn(|| self.streams.poll_transmit());
        transmits.map(|t| (t.flow, Sent::of(&t))).collect()
    }

    /// Delivers a message and serves it. Returns the packets that the proxy sends.
    pub fn offer(&mut self, flow: Flow, text: &str) -> Vec<Carried> {
        let received = Received::new(self.now, flow, self.pool.copy(text.as_bytes()));
        self.streams.offer(self.now, received);
        while self.streams.serve(self.now) {}
        self.sent()
    }

    /// Does the same as [`offer`](Self::offer), and then fires the timers that are due now.
    pub fn send(&mut self, flow: Flow, text: &str) -> Vec<Carried> {
        let mut sent = self.offer(flow, text);
        sent.extend(self.pass(Duration::ZERO));
        sent
    }

    /// Opens a connection from a peer over TCP.
    pub fn accept(&mut self, number: u32, remote: &str) -> Flow {
        self.accept_by(Transport::Tcp, PROXY, remote, number)
    }

    pub fn accept_by(
        &mut self,
        transport: Transport,
        local: &str,
        remote: &str,
        number: u32,
    ) -> Flow {
        let id = ConnectionId::new(number).expect("not zero");
        let flow = Flow::connected(transport, address(local), address(remote), id);
        self.streams.on_connected(self.now, flow);
        flow
    }

    /// Opens the connection that the proxy wants. Returns the messages that waited for it.
    pub fn open(&mut self) -> (Flow, Vec<Carried>) {
        let Connect { id, transport, local, remote } = self.streams.poll_connect().expect("one");
        let local = SocketAddr::new(local.ip(), 50_000);
        let flow = Flow::connected(transport, local, remote, id);
        self.streams.on_connected(self.now, flow);
        (flow, self.sent())
    }

    /// Does the same as [`open`](Self::open), and returns the message that begins with `start`.
    pub fn open_for(&mut self, start: &str) -> (Flow, Sent) {
        let (flow, sent) = self.open();
        (flow, only(sent, start).1)
    }

    /// Refuses the connection that the proxy wants.
    pub fn refuse(&mut self) -> Connect {
        let refused = self.streams.poll_connect().expect("one");
        self.streams.on_closed(self.now, refused.id, CloseCause::Refused);
        refused
    }

    pub fn close(&mut self, flow: Flow, cause: CloseCause) {
        self.streams.on_closed(self.now, flow.connection.expect("a stream"), cause);
    }

    pub fn pass(&mut self, by: Duration) -> Vec<Carried> {
        let (end, mut sent) = (self.now + by, Vec::new());
        while let Some(at) = self.streams.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.streams.handle_timeout(self.now);
            sent.extend(self.sent());
        }
        self.now = end;
        sent
    }
}
