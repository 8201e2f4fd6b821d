//! Runs a proxy on inputs decoded from bytes, and checks invariants that hold for every input.
//!
//! The first byte is the setup of the proxy. Each further operation is one byte for the kind of
//! event, followed by the bytes that it needs. Events are a datagram from one of a few sources
//! (made from fragments or raw), a repetition, a packet of the proxy (answered or sent back to it),
//! time, a failed delivery, and a drain. Back ends are reached by datagrams, or over TCP. Missing
//! bytes count as zero, so that any bytes are a valid input. A fuzzer in `fuzz/` and proptest in
//! `torture_endpoint.rs` call [`run`]. With `NARRATE` in the environment, each run prints the
//! packets received and sent.

mod fragments;
mod ledger;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fragments::{Input, answer, request, within};
use ledger::{Ledger, Step};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_control::registry;
use tidegate_proxy::{
    Choice, Counters, Listener, Mode, PoolSettings, Proxy, Queueing, Secret, Settings,
};
use tidegate_world::{Cause, Core, Failure, Flow, Load, Pool, Received, Timestamp, Transport};

/// The addresses of the listeners.
pub const LISTENERS: [&str; 2] = ["192.0.2.1:5060", "[2001:db8::10]:5060"];
/// The addresses of the back ends.
pub const BACKENDS: [&str; 3] = ["10.0.0.1:5070", "10.0.0.2:5070", "10.0.0.3:5070"];
/// The only source besides the back ends that may direct requests elsewhere.
pub const TRUSTED: &str = "198.51.100.8:5060";
/// All other sources.
pub const STRANGERS: [&str; 3] = ["198.51.100.7:5060", "198.51.100.9:40000", "[2001:db8::7]:5060"];

/// The number of sources. A byte of the input selects one.
pub const SOURCES: usize = STRANGERS.len() + BACKENDS.len() + 1;

/// The most operations of one run.
const OPERATIONS_MAX: usize = 96;
/// The most received and sent packets that are remembered for repetition and responses.
const REMEMBERED_MAX: usize = 24;
/// The periods by which time may advance at once, in ms: the duration of each kind of timer, and
/// shorter periods.
const STEPS_MS: [u64; 12] =
    [0, 1, 30, 500, 1_000, 3_999, 4_000, 5_000, 32_000, 64_000, 190_000, 300_000];
/// A time that is longer than any state lasts: Timer C for each of two groups of a fork, then 64·T1
/// for its CANCEL, 64·T1 for the ACK, and T4. The call table keeps an idle call for a shorter time.
const SILENCE: Duration = Duration::from_secs(2 * 190 + 2 * 32 + 5 + 60 + 64);

/// Runs one input.
///
/// # Panics
/// Panics if an invariant is violated.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(Setup(input.byte()));
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        world.operate(&mut input);
    }
    world.fall_silent();
}

/// The setup of the proxy, one bit for each choice.
#[derive(Clone, Copy)]
struct Setup(u8);

impl Setup {
    fn is_stateless(self) -> bool {
        self.0 & 1 != 0
    }

    fn forks(self) -> bool {
        self.0 & 2 != 0
    }

    fn is_tiny(self) -> bool {
        self.0 & 4 != 0
    }

    fn has_law(self) -> bool {
        self.0 & 8 != 0
    }

    fn is_fifo(self) -> bool {
        self.0 & 16 != 0
    }

    fn has_streams(self) -> bool {
        self.0 & 32 != 0
    }

    fn settings(self) -> Settings {
        let names = ["a", "b", "c"];
        let listed: Vec<_> = names.iter().zip(BACKENDS).map(|(n, a)| (*n, address(a), 1)).collect();
        let mut pool = PoolSettings::new(balance::Pool::new("app", &listed), Policy::Rr);
        if self.is_stateless() {
            pool.mode = Mode::Stateless;
        } else if self.forks() {
            pool.choice = Choice::All(vec![1000, 1000, 500]);
        }
        let trust = vec!["198.51.100.8/32".parse().expect("a network")];
        let listeners =
            LISTENERS.map(|at| Listener { trust: trust.clone(), ..Listener::new(address(at)) });
        let mut listeners = listeners.to_vec();
        if self.has_streams() {
            pool.listener = Some(listeners.len());
            listeners.push(Listener { transport: Transport::Tcp, ..listeners[0].clone() });
        }
        let secret = Secret::of([7; 32]);
        let mut settings = Settings::new(listeners, vec![pool], secret);
        settings.idle_max = Duration::from_secs(60);
        (settings.transactions_max, settings.calls_max, settings.queue_max) = (256, 256, 256);
        settings.overload.gate.memory_max = 256;
        if self.is_tiny() {
            (settings.transactions_max, settings.calls_max, settings.queue_max) = (2, 2, 2);
        }
        if self.has_law() {
            let pi = registry::find("pi").expect("it is registered");
            settings.overload.gate.law = pi.defaults();
        }
        if self.is_fifo() {
            settings.overload.queueing = Queueing::Fifo;
        }
        settings
    }
}

struct World {
    setup: Setup,
    proxy: Proxy,
    counters: Arc<Counters>,
    pool: Pool,
    now: Timestamp,
    ledger: Ledger,
    narrates: bool,
    offered: Vec<(SocketAddr, Vec<u8>)>,
    sent: Vec<(SocketAddr, Vec<u8>)>,
}

impl World {
    fn new(setup: Setup) -> Self {
        let (pool, counters) = (Pool::new(), Arc::<Counters>::default());
        let proxy = Proxy::new(setup.settings(), Arc::clone(&counters), pool.clone());
        let now = Timestamp::from_nanos(1_000_000_000);
        let ledger = Ledger::new(!setup.is_stateless() && !setup.is_tiny());
        Self {
            setup,
            proxy,
            counters,
            pool,
            now,
            ledger,
            narrates: std::env::var_os("NARRATE").is_some(),
            offered: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 => {
                let from = self.source(input);
                let raw = input.field().to_vec();
                self.offer(from, raw);
            }
            1..=4 => {
                let from = self.source(input);
                let text = request(input);
                self.offer(from, text);
            }
            5 => {
                let from = self.source(input);
                let text = request(input);
                self.offer(from, input.mutated(text));
            }
            // The receiver's response, sometimes from another source.
            6..=9 => {
                let Some((to, text)) = input.pick(&self.sent).cloned() else { return };
                let from = if input.one_in(16) { self.source(input) } else { to };
                if let Some(response) = answer(input, &text) {
                    self.offer(from, response);
                }
            }
            10 => {
                let Some((from, text)) = input.pick(&self.offered).cloned() else { return };
                self.offer(from, text);
            }
            // The ACK, the CANCEL or a later request for a sent packet.
            11 => {
                let Some((from, text)) = input.pick(&self.offered).cloned() else { return };
                let sent = input.pick(&self.sent).map(|(_, text)| text.clone());
                if let Some(follower) = within(input, &text, sent.as_deref()) {
                    self.offer(from, follower);
                }
            }
            // A sent packet returns unchanged or damaged: a loop or a spiral.
            12 => {
                let Some((to, text)) = input.pick(&self.sent).cloned() else { return };
                self.offer(to, input.mutated(text));
            }
            13 => self.pass(Duration::from_millis(STEPS_MS[input.below(STEPS_MS.len())])),
            14 => {
                let remote = self.source(input);
                let causes = [Cause::Refused, Cause::Unreachable, Cause::TooLarge, Cause::Other];
                let cause = causes[input.below(causes.len())];
                let flow = Flow::udp(local_for(remote), remote);
                let quote =
                    input.pick(&self.sent).map(|(_, text)| text.to_vec()).unwrap_or_default();
                self.proxy.on_failed(self.now, Failure::new(flow, cause, &quote));
                self.drain(Step::Other);
            }
            _ => {
                if input.one_in(8) {
                    self.proxy.on_drain(self.now);
                }
                let busy = self.now.since(Timestamp::from_nanos(0)).mul_f64(input.share());
                self.proxy.on_load(
                    self.now,
                    Load { busy, cpu: busy, socket_fill: 0.5, ..Load::default() },
                );
                self.drain(Step::Other);
            }
        }
    }

    fn narrate(&self, way: &str, peer: SocketAddr, bytes: &[u8]) {
        if self.narrates {
            eprintln!("{:?} {way} {peer}\n{}", self.now, String::from_utf8_lossy(bytes));
        }
    }

    fn source(&self, input: &mut Input<'_>) -> SocketAddr {
        let all = [&STRANGERS[..], &BACKENDS[..], &[TRUSTED]].concat();
        address(all[input.below(SOURCES)])
    }

    /// Delivers a datagram.
    fn offer(&mut self, from: SocketAddr, bytes: Vec<u8>) {
        self.narrate("from", from, &bytes);
        self.ledger.received(from, &bytes);
        let flow = Flow::udp(local_for(from), from);
        let received = Received::new(self.now, flow, self.pool.copy(&bytes));
        remember(&mut self.offered, (from, bytes));
        self.proxy.offer(self.now, received);
        self.drain(Step::One);
        self.serve();
    }

    fn serve(&mut self) {
        while self.proxy.serve(self.now) {
            self.drain(Step::One);
        }
    }

    fn drain(&mut self, step: Step) {
        let mut count = 0;
        while let Some(transmit) = self.proxy.poll_transmit() {
            count += 1;
            let (to, bytes) = (transmit.flow.remote, transmit.bytes.to_vec());
            self.narrate("to", to, &bytes);
            self.ledger.sent(self.now, to, &bytes);
            remember(&mut self.sent, (to, bytes));
        }
        assert!(self.proxy.poll_handoff().is_none(), "there is one shard");
        self.ledger.check_count(step, count);
    }

    fn pass(&mut self, by: Duration) {
        // A law reads the signals every few milliseconds.
        let by = if self.setup.has_law() { by.min(Duration::from_secs(1)) } else { by };
        let end = self.now + by;
        let mut last = None;
        let mut again = 0;
        while let Some(at) = self.proxy.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            again = if last == Some(at) { again + 1 } else { 0 };
            assert!(again < 64, "timers fire without end at {at:?}");
            last = Some(at);
            self.proxy.handle_timeout(self.now);
            self.drain(Step::Timers);
            // Serve messages whose release by a law is due.
            self.serve();
        }
        self.now = end;
    }

    /// Passes a long time without input and checks that no state is left.
    fn fall_silent(&mut self) {
        self.serve();
        self.pass(SILENCE);
        let Counters { server_transactions, client_transactions, calls, queued, .. } =
            &*self.counters;
        let left = [server_transactions, client_transactions, calls, queued].map(|c| c.get());
        // A law may hold back new calls for an unlimited time.
        if !self.setup.has_law() {
            assert_eq!(left, [0; 4], "server and client transactions, calls, messages queued");
            assert_eq!(self.pool.used().live, 0, "buffers");
            assert!(self.proxy.is_drained());
        }
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Returns the listener that receives packets from `remote`.
fn local_for(remote: SocketAddr) -> SocketAddr {
    address(LISTENERS[usize::from(remote.is_ipv6())])
}

fn remember<T>(list: &mut Vec<T>, item: T) {
    if list.len() == REMEMBERED_MAX {
        list.remove(0);
    }
    list.push(item);
}
