//! Measures the CPU time of the whole cycle of a message: from a socket through the server's core
//! to a socket. The core is driven as `tidegate run` drives it.
//!
//! The server's thread is held while a batch of messages arrives, so the whole batch waits in the
//! receive buffer, as it would at an overloaded server. Then the thread is released until it has
//! handled the batch. The cost of the batch is the CPU time that the thread uses after its release,
//! minus the CPU time for a batch without messages.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tidegate_io::{Group, Limits, Listen, open};
use tidegate_world::{Core, Received, Timestamp, delegate};

use super::messages::Parties;
use super::script::{Passed, Side, Way};
use super::subject::{State, Subject};
use super::{empty_ns, thread_ns};
use crate::real::{CoreThread, Socket};

/// The datagram that makes the server's thread hold: a keep-alive, which never reaches the server's
/// core.
const HOLD: &[u8] = b"\r\n\r\n";

/// Time limit for a batch. If a batch takes longer, datagrams were lost or the server has ended.
const BATCH_MAX: Duration = Duration::from_secs(5);

/// Number of batches without messages that are measured first. The median of their CPU times is
/// subtracted from the CPU time of each later batch.
const EMPTY: usize = 21;

/// A command to a server whose thread is held.
enum Command {
    /// Let about a minute pass in the time of the server's core.
    Rest,
    /// Release the thread until the server has processed this number of messages.
    Go(usize),
}

/// A report of the server's thread to the measurement.
enum Told {
    /// The thread is held. `ns` is its CPU time since its last release. `rejected` is the number of
    /// messages that the server has not admitted since then.
    Held { ns: f64, rejected: u64 },
    /// The server has handled the whole batch.
    Done,
}

/// A server whose thread can be held.
struct Held {
    core: Subject,
    commands: Receiver<Command>,
    told: Sender<Told>,
    begun_ns: u64,
    /// Number of messages of the batch that have not arrived yet, or `None` after the server has
    /// reported the end of the batch.
    expected: Option<usize>,
}

impl Held {
    fn hold(&mut self) {
        let ns = (thread_ns() - self.begun_ns) as f64;
        // Sending fails if the measurement has ended, because the receiver no longer exists then.
        let _ = self.told.send(Told::Held { ns, rejected: self.core.take_rejected() });
        while let Ok(command) = self.commands.recv() {
            match command {
                Command::Rest => self.core.rest(),
                Command::Go(messages) => {
                    self.expected = Some(messages);
                    self.begun_ns = thread_ns();
                    return;
                }
            }
        }
    }
}

impl Core for Held {
    fn offer(&mut self, now: Timestamp, received: Received) {
        if &*received.bytes == HOLD {
            return self.hold();
        }
        self.expected = self.expected.map(|expected| expected.saturating_sub(1));
        self.core.offer(now, received);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let served = self.core.serve(now);
        if !served && self.expected == Some(0) {
            self.expected = None;
            let _ = self.told.send(Told::Done);
        }
        served
    }

    delegate!(self.core, but offer, serve);
}

/// The socket of the callers or of the back end.
struct Peer {
    group: Group,
}

impl Peer {
    fn open() -> io::Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let group = open(&Listen { split: false, ..Listen::new(any) }).map_err(io::Error::other)?;
        group.listener(0).ordinary().set_nonblocking(true)?;
        Ok(Self { group })
    }

    fn send(&self, to: SocketAddr, message: &[u8]) -> io::Result<()> {
        self.group.listener(0).ordinary().send_to(message, to).map(|_| ())
    }

    /// Reads and returns all datagrams that wait at the socket.
    fn take(&self, buffer: &mut [u8]) -> Vec<Vec<u8>> {
        let listener = self.group.listener(0);
        let receive = || listener.ordinary().recv(buffer).ok().map(|n| buffer[..n].to_vec());
        std::iter::from_fn(receive).collect()
    }
}

/// A server on a loopback socket, with the sockets of its peers.
pub(crate) struct Loopback {
    /// The channel to the server's thread. This field is dropped before `_server`, because the
    /// thread waits until the channel is closed.
    commands: Sender<Command>,
    told: Receiver<Told>,
    caller: Peer,
    backend: Peer,
    pub parties: Parties,
    /// CPU time that the measurement shows for a batch without messages, in ns.
    empty_ns: f64,
    buffer: Vec<u8>,
    _server: CoreThread<()>,
}

impl Loopback {
    pub fn start(state: &State) -> Result<Self, String> {
        let failed = |error: io::Error| error.to_string();
        let (caller, backend) = (Peer::open().map_err(failed)?, Peer::open().map_err(failed)?);
        let socket = Socket::open(true).map_err(failed)?;
        let parties = Parties {
            server: socket.local(),
            caller: caller.group.local(),
            backend: backend.group.local(),
        };
        // At most two commands wait at a time: a `Rest`, to which the server does not reply, and a
        // `Go`.
        let ((commands, received), (telling, told)) = (bounded(4), bounded(4));
        let state = state.clone();
        let make = move |pool| Held {
            core: Subject::new(&state, &parties, &pool).expect("a socket could be opened just now"),
            commands: received,
            told: telling,
            begun_ns: 0,
            expected: None,
        };
        // With GSO, the equal messages of a batch would cost less than the different messages of a
        // real server.
        let limits = Limits { gso: false, ..Limits::default() };
        let server = CoreThread::start("server", socket, limits, make, drop).map_err(failed)?;
        let buffer = vec![0; 65_536];
        let mut loopback = Self {
            commands,
            told,
            caller,
            backend,
            parties,
            empty_ns: 0.0,
            buffer,
            _server: server,
        };
        loopback.hold()?;
        let empty = || loopback.turn(Side::Caller, &[]).map(|(ns, _)| ns);
        loopback.empty_ns = empty_ns(EMPTY, empty)?;
        Ok(loopback)
    }

    /// Holds the thread of the server. Returns its CPU time in ns since its last release, and the
    /// number of messages that the server has not admitted since then.
    fn hold(&self) -> Result<(f64, u64), String> {
        self.caller.send(self.parties.server, HOLD).map_err(|error| error.to_string())?;
        match self.hear()? {
            Told::Held { ns, rejected } => Ok((ns, rejected)),
            Told::Done => {
                Err("the server reported the end of a batch that it did not get".to_owned())
            }
        }
    }

    fn turn(&self, from: Side, batch: &[Vec<u8>]) -> Result<(f64, u64), String> {
        let peer = match from {
            Side::Caller => &self.caller,
            Side::Backend => &self.backend,
        };
        for message in batch {
            peer.send(self.parties.server, message).map_err(|error| error.to_string())?;
        }
        self.command(Command::Go(batch.len()))?;
        match self.hear()? {
            Told::Done => self.hold(),
            Told::Held { .. } => Err("the server was held twice".to_owned()),
        }
    }

    fn command(&self, command: Command) -> Result<(), String> {
        self.commands.send(command).map_err(|_| "the server has ended".to_owned())
    }

    fn hear(&self) -> Result<Told, String> {
        self.told.recv_timeout(BATCH_MAX).map_err(|_| {
            let s = BATCH_MAX.as_secs();
            format!("a batch was not done within {s} s: datagrams were lost, or the server ended")
        })
    }
}

impl Way for Loopback {
    fn pass(&mut self, from: Side, batch: &[Vec<u8>]) -> Result<Passed, String> {
        // Discards retransmissions that came since the last batch.
        for peer in [&self.caller, &self.backend] {
            peer.take(&mut self.buffer);
        }
        let (ns, rejected) = self.turn(from, batch)?;
        let mut sent = Vec::new();
        for (side, peer) in [(Side::Caller, &self.caller), (Side::Backend, &self.backend)] {
            // On a busy machine a packet may be retransmitted. Each packet counts once.
            let mut once = peer.take(&mut self.buffer);
            once.sort_unstable();
            once.dedup();
            sent.extend(once.into_iter().map(|bytes| (side, bytes)));
        }
        Ok(Passed { ns: (ns - self.empty_ns).max(0.0), rejected, sent })
    }

    fn rest(&mut self) -> Result<(), String> {
        self.command(Command::Rest)
    }
}
