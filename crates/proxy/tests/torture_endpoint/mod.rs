//! A proxy under inputs that are decoded from bytes, and what must hold whatever they are.
//!
//! The first byte says how the proxy is set up. Each further operation is a byte that says
//! what happens (a datagram from one of a few sources, made of fragments or raw; the same
//! again; what the proxy sent, answered or thrown back at it; time; a delivery that failed; a
//! drain) and the bytes that this takes. Bytes that are lacking count as zero, so that any
//! input can be cut or joined. `fuzz/` feeds it from a fuzzer, `torture_endpoint.rs` from
//! proptest. With `NARRATE` in the environment it writes
//! what is received and sent.

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
use tidegate_world::{Cause, Core, Failure, Flow, Load, Pool, Received, Timestamp};

/// Where the proxy listens.
pub const LISTENERS: [&str; 2] = ["192.0.2.1:5060", "[2001:db8::10]:5060"];
/// Its back ends.
pub const BACKENDS: [&str; 3] = ["10.0.0.1:5070", "10.0.0.2:5070", "10.0.0.3:5070"];
/// The only source besides them that may have something sent elsewhere.
pub const TRUSTED: &str = "198.51.100.8:5060";
/// Everybody else.
pub const STRANGERS: [&str; 3] = ["198.51.100.7:5060", "198.51.100.9:40000", "[2001:db8::7]:5060"];

/// All of them: what a byte of an input chooses from.
pub const SOURCES: usize = STRANGERS.len() + BACKENDS.len() + 1;

/// Inputs of one run, at the most.
const OPERATIONS_MAX: usize = 96;
/// What is remembered of what was offered and sent, to be repeated and answered.
const REMEMBERED_MAX: usize = 24;
/// What time may pass at once, in ms: a timer of each kind, and less.
const STEPS_MS: [u64; 12] =
    [0, 1, 30, 500, 1_000, 3_999, 4_000, 5_000, 32_000, 64_000, 190_000, 300_000];
/// Longer than anything waits: Timer C for each of two groups of a fork, then 64·T1 for its CANCEL
/// and 64·T1 for the ACK, then T4; and what the call table keeps of an idle call.
const SILENCE: Duration = Duration::from_secs(2 * 190 + 2 * 32 + 5 + 60 + 64);

/// Runs one input.
///
/// # Panics
/// If something does not hold.
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

/// How the proxy is set up, one bit for each choice.
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
        let secret = Secret::of([7; 32]);
        let mut settings = Settings::new(listeners.to_vec(), vec![pool], secret);
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
            // As its receiver answers it; sometimes as another would.
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
            // The ACK, the CANCEL or a later request of what was sent.
            11 => {
                let Some((from, text)) = input.pick(&self.offered).cloned() else { return };
                let sent = input.pick(&self.sent).map(|(_, text)| text.clone());
                if let Some(follower) = within(input, &text, sent.as_deref()) {
                    self.offer(from, follower);
                }
            }
            // What was sent comes back as it is: a loop, or a spiral.
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

    fn narrate(&self, way: &str, whom: SocketAddr, bytes: &[u8]) {
        if self.narrates {
            eprintln!("{:?} {way} {whom}\n{}", self.now, String::from_utf8_lossy(bytes));
        }
    }

    fn source(&self, input: &mut Input<'_>) -> SocketAddr {
        let all = [&STRANGERS[..], &BACKENDS[..], &[TRUSTED]].concat();
        address(all[input.below(SOURCES)])
    }

    /// A datagram arrives.
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
        assert!(self.proxy.poll_crossing().is_none(), "there is one shard");
        self.ledger.check_count(step, count);
    }

    fn pass(&mut self, by: Duration) {
        // A law looks at what there is every few milliseconds.
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
            // What a law holds back goes when it says so.
            self.serve();
        }
        self.now = end;
    }

    /// Nobody says anything any more: nothing is left in the end.
    fn fall_silent(&mut self) {
        self.serve();
        self.pass(SILENCE);
        let Counters { server_transactions, client_transactions, calls, queued, .. } =
            &*self.counters;
        let left = [server_transactions, client_transactions, calls, queued].map(|c| c.get());
        // A law may hold new calls back for as long as it likes.
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

/// The listener where a packet from there arrives.
fn local_for(remote: SocketAddr) -> SocketAddr {
    address(LISTENERS[usize::from(remote.is_ipv6())])
}

fn remember<T>(list: &mut Vec<T>, item: T) {
    if list.len() == REMEMBERED_MAX {
        list.remove(0);
    }
    list.push(item);
}
