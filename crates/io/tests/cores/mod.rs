//! An echo core for the tests, and the thread that drives it.

#![allow(dead_code)] // Each test file uses some of them.
#![allow(clippy::disallowed_methods)] // One core keeps its thread waiting.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_io::*;
use tidegate_world::*;

/// An input of a core, or the service of a message, as the core reports it to the test.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Offered { bytes: Vec<u8>, flow: Flow, sojourn: Duration, handoffs: u8 },
    Served,
    Timeout(Timestamp),
    Failed(Failure),
    Command(Vec<u8>),
    Drain,
}

/// The parameters of an echo core. A core belongs to its thread, so the thread gets the parameters
/// and creates the core.
pub struct Echo {
    seen: Sender<Seen>,
    /// Index of the shard to which packets are handed off. If `None`, packets are echoed.
    pub pass_to: Option<u16>,
    /// The time of the next timer, if there is one.
    pub timer: Option<Timestamp>,
    /// Time for which the thread of the core is blocked with each offered packet.
    pub stall: Duration,
    /// Cost of each service, in rounds of arithmetic.
    pub work: u32,
    /// True if the core reports that it has drained.
    pub drains: Arc<AtomicBool>,
    /// The datagrams that the core asks the kernel to drop.
    pub shedding: Shedding,
    /// The last load that the core got.
    pub load: Arc<Mutex<Load>>,
}

impl Echo {
    pub fn new() -> (Self, Receiver<Seen>) {
        let (seen, sight) = channel();
        let drains = Arc::new(AtomicBool::new(true));
        let (shedding, stall) = (Shedding::NONE, Duration::ZERO);
        let (pass_to, timer, load) = Default::default();
        (Self { seen, pass_to, timer, stall, work: 0, drains, shedding, load }, sight)
    }
}

/// A core that echoes each packet when it is served, and reports its inputs to the test.
struct EchoCore {
    echo: Echo,
    waiting: VecDeque<Received>,
    out: VecDeque<Transmit>,
    handoff: VecDeque<Handoff>,
}

impl EchoCore {
    fn new(echo: Echo) -> Self {
        let (waiting, out, handoff) = Default::default();
        Self { echo, waiting, out, handoff }
    }

    fn tell(&self, seen: Seen) {
        // The test may have stopped listening.
        let _ = self.echo.seen.send(seen);
    }
}

impl Core for EchoCore {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.tell(Seen::Offered {
            bytes: received.bytes.to_vec(),
            flow: received.flow,
            sojourn: now.since(received.arrived),
            handoffs: received.handoffs,
        });
        assert!(received.arrived <= now);
        if self.echo.stall > Duration::ZERO {
            thread::sleep(self.echo.stall);
        }
        match self.echo.pass_to {
            Some(shard) if received.handoffs == 0 => {
                let input = HandoffInput::Received(received);
                self.handoff.push_back(Handoff { shard, input });
            }
            _ => self.waiting.push_back(received),
        }
    }

    fn serve(&mut self, _: Timestamp) -> bool {
        let Some(Received { flow, bytes, .. }) = self.waiting.pop_front() else { return false };
        let mut x = 1u64;
        for i in 0..self.echo.work {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005) + u64::from(i));
        }
        self.tell(Seen::Served);
        self.out.push_back(Transmit::new(flow, bytes));
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        if self.echo.timer.is_some_and(|timer| timer <= now) {
            self.echo.timer = None;
            // This timer was the last work of the core, so the core has drained.
            self.echo.drains.store(true, Relaxed);
        }
        self.tell(Seen::Timeout(now));
    }

    fn on_failed(&mut self, _: Timestamp, failure: Failure) {
        self.tell(Seen::Failed(failure));
    }

    fn on_load(&mut self, _: Timestamp, load: Load) {
        *self.echo.load.lock().unwrap() = load;
    }

    fn on_command(&mut self, _: Timestamp, command: &[u8]) {
        self.tell(Seen::Command(command.to_vec()));
    }

    fn on_drain(&mut self, _: Timestamp) {
        self.tell(Seen::Drain);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoff.pop_front()
    }

    fn poll_shedding(&self) -> &Shedding {
        &self.echo.shedding
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.echo.timer
    }

    fn is_drained(&self) -> bool {
        self.echo.drains.load(Relaxed) && self.waiting.is_empty()
    }
}

/// A shard in a thread of its own.
pub struct Running {
    pub counters: Arc<Counters>,
    pub stop: Stop,
    pub commands: CommandSender,
    thread: JoinHandle<Summary>,
}

impl Running {
    /// Stops the shard and waits for its end.
    pub fn end(self) -> (Summary, Arc<Counters>) {
        self.stop.request();
        self.join()
    }

    /// Waits for the end of the shard.
    pub fn join(self) -> (Summary, Arc<Counters>) {
        (self.thread.join().expect("the shard does not panic"), self.counters)
    }
}

/// Starts an echo core that receives datagrams at `listeners`.
pub fn start(
    echo: Echo,
    clock: Clock,
    limits: Limits,
    listeners: Vec<Listener>,
    handoffs: Handoffs,
) -> Running {
    start_with(echo, clock, limits, listeners, handoffs, Stop::new())
}

/// Starts an echo core as [`start`] does. Other shards may have the same `stop`, and then all of
/// them stop together.
pub fn start_with(
    echo: Echo,
    clock: Clock,
    limits: Limits,
    listeners: Vec<Listener>,
    handoffs: Handoffs,
    stop: Stop,
) -> Running {
    let shard = move |counters, stop| {
        let pool = Pool::new();
        Drive::new(Shard { clock, limits, listeners, handoffs, counters, stop, pool }).unwrap()
    };
    run(echo, stop, shard)
}

/// Starts an echo core that receives only on connections.
pub fn start_over(echo: Echo, limits: Limits, streams: Vec<StreamListener>) -> Running {
    start_over_within(echo, limits, StreamLimits::default(), streams)
}

/// Starts an echo core that receives only on connections, within these limits.
pub fn start_over_within(
    echo: Echo,
    limits: Limits,
    of_streams: StreamLimits,
    streams: Vec<StreamListener>,
) -> Running {
    let handoffs = Handoffs::alone().unwrap();
    run(echo, Stop::new(), move |counters, stop| {
        let (clock, pool) = (Clock::start(), Pool::new());
        let shard = Shard { clock, limits, listeners: vec![], handoffs, counters, stop, pool };
        Drive::new(shard).unwrap().with_streams(streams, of_streams, Arc::new(|_| None)).unwrap()
    })
}

/// Runs a core in a thread. The thread creates the driver.
fn run(
    echo: Echo,
    stop: Stop,
    drive: impl FnOnce(Arc<Counters>, Stop) -> Drive + Send + 'static,
) -> Running {
    let counters = Arc::new(Counters::default());
    let running = (Arc::clone(&counters), stop.clone());
    let commands = CommandSender::to(1);
    let receiver = commands.clone();
    let thread = thread::spawn(move || {
        let mut core = EchoCore::new(echo);
        drive(counters, stop).with_commands(&receiver).run(&mut core).unwrap()
    });
    Running { counters: running.0, stop: running.1, commands, thread }
}

/// Opens a group of sockets at `ip`, on a free port.
pub fn group(ip: &str, shards: u16, split: bool) -> Group {
    let address = SocketAddr::new(ip.parse().unwrap(), 0);
    open(&Listen { shards, split, ..Listen::new(address) }).unwrap()
}

/// Opens the socket of a peer at `ip`, on a free port. The socket waits at most 10 s for a
/// datagram.
pub fn peer(ip: &str) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Receives the next datagram at a peer. Returns the datagram and its source.
pub fn received(peer: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; LARGE];
    let (len, from) = peer.recv_from(&mut bytes).expect("a datagram within ten seconds");
    bytes.truncate(len);
    (bytes, from)
}

/// Returns the next input of a core.
pub fn next(sight: &Receiver<Seen>) -> Seen {
    sight.recv_timeout(Duration::from_secs(10)).expect("something within ten seconds")
}

/// Returns the datagrams that wait at a socket, as text.
pub fn waiting(socket: &UdpSocket) -> Vec<String> {
    let mut inbox = Inbox::new(&Pool::new());
    let mut texts = Vec::new();
    while inbox.receive(socket, BATCH).unwrap() > 0 {
        while let Some(datagram) = inbox.take() {
            texts.push(String::from_utf8_lossy(&datagram.bytes).into_owned());
        }
    }
    texts
}
