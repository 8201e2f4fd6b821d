//! Accepts the connections of leaders.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tidegate_io::Clock;
use tidegate_world::Timestamp;

use super::super::protocol::FromFollower;
use super::super::wire;
use super::{Allowed, tell};

/// Maximum number of accepted connections that wait until the follower serves them.
const WAITING_MAX: usize = 4;

/// Pause after a connection could not be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(200);

/// Minimum time between two printed lines about rejected peers.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A flag that is true while the follower works for a leader.
#[derive(Clone, Default)]
pub struct Busy(Arc<AtomicBool>);

impl Busy {
    /// Sets the flag.
    pub fn set(&self, is_busy: bool) {
        self.0.store(is_busy, Ordering::SeqCst);
    }
}

/// A thread that accepts connections, and rejects those that cannot be served.
pub struct Entrance {
    listener: TcpListener,
    from: Allowed,
    busy: Busy,
    leaders: Sender<TcpStream>,
    /// Time of the last line about a rejected peer.
    told: Option<Timestamp>,
    clock: Clock,
}

impl Entrance {
    /// Starts the thread. Returns the channel of the accepted connections.
    pub fn open(
        listener: TcpListener,
        from: Allowed,
        busy: Busy,
    ) -> io::Result<Receiver<TcpStream>> {
        let (leaders, accepted) = bounded(WAITING_MAX);
        let entrance = Self { listener, from, busy, leaders, told: None, clock: Clock::start() };
        thread::Builder::new().name("accept".to_owned()).spawn(move || entrance.run())?;
        Ok(accepted)
    }

    fn run(mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(_) => thread::park_timeout(PAUSE),
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        if !self.from.contains(peer.ip()) {
            let ip = peer.ip().to_canonical();
            self.tell_rejected(peer);
            return reject(
                &stream,
                format!("the follower accepts no load plans from {ip}: start it with --from {ip}"),
            );
        }
        if self.busy.0.load(Ordering::SeqCst) {
            return reject(
                &stream,
                "the follower works for another leader: try again when that load has ended"
                    .to_owned(),
            );
        }
        if let Err(full) = self.leaders.try_send(stream) {
            let why = "too many leaders wait for the follower: try again later".to_owned();
            reject(&full.into_inner(), why);
        }
    }

    /// Prints that a peer is rejected, but at most once in [`TELL_EVERY`], because any machine can
    /// cause these lines.
    fn tell_rejected(&mut self, peer: SocketAddr) {
        let now = self.clock.now();
        if self.told.is_none_or(|told| now.since(told) >= TELL_EVERY) {
            self.told = Some(now);
            tell(format_args!("rejected {peer}: --from does not name this address"));
        }
    }
}

/// Sends a peer the reason why it is rejected. The thread never waits for the peer, because other
/// peers would have to wait too. A leader sends nothing before it has read the reason. So nothing
/// is unread when the connection is closed, and the kernel delivers the reason.
fn reject(stream: &TcpStream, reason: String) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = wire::send(stream, &FromFollower::Rejected(reason));
    }
}
