//! Runs a core on real sockets, from its start to its end.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use rustix::time::{ClockId, clock_gettime};
use tidegate_agent::{StreamUsage, Usage, WebSocketFailures};
use tidegate_io::{
    Clock, Counters, Drive, Ended, Group, Handoffs, Limits, Listen, Shard, Stop, StreamGroup,
    StreamLimits, StreamListen, Summary, TlsPeers, WebSocketClient, open,
};
use tidegate_server::signal::Signals;
use tidegate_transport::{ConnectionCounters, ConnectionLimits, Streams};
use tidegate_world::{Core, Pool, Timestamp, Transport};

use tidegate::trouble::Trouble;

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_secs(1);

/// Maximum time that open calls may take to end after a signal.
const DRAIN: Duration = Duration::from_secs(5);

/// Maximum time for which the driver pauses, so that one wake serves several datagrams.
const PAUSE_MAX: Duration = Duration::from_micros(500);

/// The sockets of a core, and the clock of its driver.
pub struct Stage {
    groups: Vec<Group>,
    connected: Option<Connected>,
    clock: Clock,
    counters: Arc<Counters>,
    stop: Stop,
    pool: Pool,
    slack: Duration,
}

/// The connections of a stage.
struct Connected {
    side: Side,
    transport: Transport,
    local: SocketAddr,
    limits: ConnectionLimits,
    tls_peers: TlsPeers,
    counters: Arc<ConnectionCounters>,
}

/// The role of an agent on its connections.
enum Side {
    /// The agent listens, and may also open connections.
    Server(StreamGroup),
    /// The agent only opens WebSockets.
    Client(WebSocketClient),
}

/// The result of a run.
pub struct Run {
    /// Resources that the run used.
    pub usage: Usage,
    /// True if a signal stopped the run.
    pub interrupted: bool,
    /// True if the agent had finished all its work before the run ended, so that no call or
    /// registration was open.
    pub drained: bool,
}

impl Stage {
    /// Binds `addresses`, at least one. Port 0 means any free port. The agent may get a datagram up
    /// to `slack` late, so that one wake serves several datagrams.
    pub fn open(addresses: &[SocketAddr], slack: Duration) -> Result<Self, Trouble> {
        let bind = |&address| open(&Listen { split: false, ..Listen::new(address) });
        let groups = addresses.iter().map(bind).collect::<Result<_, _>>();
        Ok(Self::new(groups.map_err(Trouble::usage)?, None, slack))
    }

    /// Listens for connections. The agent may also open connections, with the settings `tls_peers`
    /// if they use TLS. `limits` apply to all connections.
    pub fn listen(
        listen: &StreamListen,
        tls_peers: TlsPeers,
        limits: ConnectionLimits,
        slack: Duration,
    ) -> Result<Self, Trouble> {
        let group = StreamGroup::open(listen).map_err(Trouble::usage)?;
        let (transport, local) = (group.transport(), group.local());
        let side = Side::Server(group);
        let counters = Arc::default();
        let connected = Connected { side, transport, local, limits, tls_peers, counters };
        Ok(Self::new(Vec::new(), Some(connected), slack))
    }

    /// Creates the stage of an agent that opens WebSockets from `local`. If `transport` has TLS,
    /// the connections have the settings `tls_peers`. `limits` apply to all connections.
    pub fn client(
        client: WebSocketClient,
        transport: Transport,
        local: SocketAddr,
        tls_peers: TlsPeers,
        limits: ConnectionLimits,
        slack: Duration,
    ) -> Self {
        let (side, counters) = (Side::Client(client), Arc::default());
        let connected = Connected { side, transport, local, limits, tls_peers, counters };
        Self::new(Vec::new(), Some(connected), slack)
    }

    fn new(groups: Vec<Group>, connected: Option<Connected>, slack: Duration) -> Self {
        Self {
            groups,
            connected,
            clock: Clock::start(),
            counters: Arc::new(Counters::default()),
            stop: Stop::new(),
            pool: Pool::new(),
            slack,
        }
    }

    /// Returns the first bound address. If the agent only opens WebSockets, returns the address
    /// from which it opens them, with port 0 unless a port was given.
    pub fn local(&self) -> SocketAddr {
        match &self.connected {
            Some(connected) => connected.local,
            None => self.groups[0].local(),
        }
    }

    /// Returns all bound addresses, in the order in which [`open`](Self::open) got them.
    pub fn locals(&self) -> Vec<SocketAddr> {
        self.groups.iter().map(Group::local).collect()
    }

    /// Returns the buffer pool for an agent.
    pub fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// Returns the handle with which an agent ends its run.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Returns the current time on the clock of the agent.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Drives `agent` as [`run`](Self::run) does, with the connections of the stage if it has any.
    /// Returns the agent as well.
    pub fn run_agent<C: Core>(
        self,
        mut agent: C,
        progress: impl FnMut() + Send + 'static,
    ) -> Result<(Run, C), Trouble> {
        let Some(connected) = &self.connected else {
            return Ok((self.run(&mut agent, progress)?, agent));
        };
        let Connected { limits, counters, .. } = connected;
        let mut streams =
            Streams::counting(agent, *limits, self.pool.clone(), Arc::clone(counters));
        let run = self.run(&mut streams, progress)?;
        Ok((run, streams.into_core()))
    }

    /// Drives `agent` until it stops itself or a signal arrives. Another thread calls `progress`
    /// once a second.
    pub fn run(
        self,
        agent: &mut impl Core,
        progress: impl FnMut() + Send + 'static,
    ) -> Result<Run, Trouble> {
        let signals = Signals::catch_stops().map_err(Trouble::uncaught_signals)?;
        let watch = thread::Builder::new().name("watch".to_owned()).spawn({
            let (receiver, stop) = (signals.stops().clone(), self.stop.clone());
            move || watch(&receiver, &stop, progress)
        });
        let unstarted = |error| {
            Trouble::failure(format!(
                "cannot start a thread: {error}; raise the limit of threads (`ulimit -u`, \
                 `TasksMax` of systemd)"
            ))
        };
        let watch = watch.map_err(unstarted)?;

        let cpu = process_cpu();
        let began = self.clock.now();
        let driven = drive(&self, agent);
        let usage = Usage {
            cpu_s: (process_cpu() - cpu).as_secs_f64(),
            wall_s: self.clock.now().since(began).as_secs_f64(),
            socket_drops: self.counters.overflow.get(),
            send_drops: self.counters.send_dropped(),
            streams: self.connected.as_ref().map(|connected| connected.usage(&self.counters)),
        };
        drop(signals);
        let interrupted = watch.join().unwrap_or(true);
        let summary = driven.map_err(Trouble::failure)?;
        Ok(Run { usage, interrupted, drained: summary.ended == Ended::Drained })
    }
}

impl Connected {
    /// Returns the counts of the connections. Some of them come from the counters of the driver.
    fn usage(&self, driver: &Counters) -> StreamUsage {
        StreamUsage {
            transport: self.transport,
            opened: self.counters.opened.get(),
            accepted: self.counters.accepted.get(),
            failed: self.counters.failed.get(),
            excess: self.counters.excess.get() + driver.stream_accepts_failed.get(),
            handshakes: driver.tls_handshakes.get(),
            handshakes_failed: driver.tls_failed(),
            websockets: driver.websocket_handshakes.get(),
            websockets_failed: WebSocketFailures {
                status: driver.websocket_failed_status.get(),
                protocol: driver.websocket_failed_protocol.get(),
                subprotocol: driver.websocket_failed_subprotocol.get(),
                closed: driver.websocket_failed_closed.get(),
                slow: driver.websocket_failed_slow.get(),
            },
            sent: driver.stream_sent.get(),
            sent_bytes: driver.stream_sent_bytes.get(),
            received: driver.stream_received.get(),
            received_bytes: driver.stream_received_bytes.get(),
            overflow: self.counters.overflow.get(),
            unsent: self.counters.unsent.get(),
        }
    }
}

fn drive(stage: &Stage, agent: &mut impl Core) -> io::Result<Summary> {
    let mut drive = Drive::new(Shard {
        clock: stage.clock,
        limits: Limits {
            drain: DRAIN,
            coalesce: stage.slack.min(PAUSE_MAX),
            gso: false,
            ..Limits::default()
        },
        listeners: stage.groups.iter().map(|group| group.listener(0)).collect(),
        handoffs: Handoffs::alone()?,
        counters: Arc::clone(&stage.counters),
        stop: stage.stop.clone(),
        pool: stage.pool.clone(),
    })?;
    if let Some(Connected { side, tls_peers, .. }) = &stage.connected {
        let (limits, tls_peers) = (StreamLimits::default(), Arc::clone(tls_peers));
        drive = match side {
            Side::Server(group) => {
                drive.with_streams(vec![group.listener(0)], limits, tls_peers)?
            }
            Side::Client(client) => drive.with_websockets(client.clone(), limits, tls_peers)?,
        };
    }
    drive.run(agent)
}

/// Forwards signals and reports progress until signals are no longer caught. Returns whether a
/// signal arrived.
fn watch(
    signals: &crossbeam_channel::Receiver<()>,
    stop: &Stop,
    mut progress: impl FnMut(),
) -> bool {
    let mut came = false;
    loop {
        match signals.recv_timeout(PROGRESS) {
            Ok(()) => {
                came = true;
                stop.request();
            }
            Err(RecvTimeoutError::Timeout) => progress(),
            Err(RecvTimeoutError::Disconnected) => return came,
        }
    }
}

/// Returns the CPU time of all threads of this process, in user mode and in the kernel.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // The clock counts from zero, so neither field is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the local address from which packets to `remote` leave, with port 0, which means any
/// free port.
pub fn towards(remote: SocketAddr) -> std::io::Result<SocketAddr> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    // Connecting a datagram socket sends nothing. It only queries the routing table.
    let socket = UdpSocket::bind(any)?;
    socket.connect(remote)?;
    Ok(SocketAddr::new(socket.local_addr()?.ip(), 0))
}

/// Parses `ADDRESS` or `ADDRESS:PORT`. Without a port, the port is 0, which means any
/// free port.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0)))
        .map_err(|_| "not an address such as 127.0.0.1 or 127.0.0.1:5070".to_owned())?;
    if address.ip().is_unspecified() {
        // The address is written into Via and Contact, so peers send to it.
        return Err("peers cannot send to a wildcard address: give the address of one interface, \
                    such as 127.0.0.1"
            .to_owned());
    }
    Ok(address)
}

/// Returns a random seed for a run without `--seed`. With random seeds, two runs against one server
/// have different Call-IDs.
pub fn random_seed() -> Result<u64, Trouble> {
    getrandom::u64().map_err(|error| {
        Trouble::failure(format!(
            "cannot get a random seed from the system: {error}; give one with --seed"
        ))
    })
}
