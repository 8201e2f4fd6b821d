//! Listening sockets for connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use tidegate_world::Transport;

use crate::group::OpenError;
use crate::{Origins, TlsServer, sockopt};

/// Maximum number of connections that the kernel keeps for one shard until the shard accepts them.
/// The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Maximum number of unsent bytes that the kernel holds for one connection. With a small number,
/// the driver soon notices a peer that does not read. Bytes beyond this number stay in the process,
/// which can decide about them.
const UNSENT_MAX: i32 = 32 * 1024;

/// Number of unanswered keep-alive probes after which the kernel ends a connection.
const TESTS: u32 = 4;

/// The times by which the kernel notices that a peer is gone.
struct Liveness {
    /// Idle time after which the kernel sends a keep-alive probe to the peer.
    idle: Duration,
    /// Time between two keep-alive probes.
    every: Duration,
}

impl Liveness {
    /// The times for connections of peers. The kernel rarely probes a phone that sleeps. The phone
    /// must not lose its connection because of one lost packet: no request can reach it until it
    /// connects again.
    const ACCEPTED: Self = Self { idle: Duration::from_secs(120), every: Duration::from_secs(15) };
    /// The times for connections to back ends. These connections are given up early, because a new
    /// connection may reach the back end.
    const OPENED: Self = Self { idle: Duration::from_secs(18), every: Duration::from_secs(3) };

    /// Returns the time after which a connection is given up if the peer acknowledges nothing.
    ///
    /// tcp(7): with a keep-alive, this time "will override keepalive to determine when to close a
    /// connection due to keepalive failure". So it includes the idle time: if it were shorter, one
    /// lost probe would end an idle connection.
    fn unacknowledged(&self) -> Duration {
        self.idle + TESTS * self.every
    }
}

/// The parameters of a listening address for connections.
#[derive(Clone, Debug)]
pub struct StreamListen {
    /// The transport that the accepted connections use.
    pub transport: Transport,
    /// The address. With port 0, the kernel selects a free port.
    pub address: SocketAddr,
    /// Number of shards that share the address. The kernel distributes connections among them by a
    /// hash of both addresses.
    pub shards: u16,
    /// True if other processes of the same user may also listen at the address. Those processes
    /// must also set this to true.
    pub shared: bool,
    /// The TLS settings, for the transports over TLS.
    pub tls: Option<TlsServer>,
    /// The origins whose pages may open a WebSocket, for the transports over WebSockets.
    pub origins: Origins,
}

/// The sockets of one listening address, one for each shard.
///
/// RFC 3261 §18: "All SIP elements MUST implement UDP and TCP."
#[derive(Debug)]
pub struct StreamGroup {
    transport: Transport,
    local: SocketAddr,
    sockets: Vec<Arc<TcpListener>>,
    shared: bool,
    tls: Option<TlsServer>,
    origins: Origins,
}

impl StreamGroup {
    /// Opens the sockets of a listening address.
    ///
    /// # Errors
    /// Returns the system call that failed, with the address. If another process already listens at
    /// the address, this is an error, unless both listeners are [shared](StreamListen::shared).
    pub fn open(listen: &StreamListen) -> Result<Self, OpenError> {
        let alone = listen.shards == 1 && !listen.shared;
        // The bind of a socket that does not share the address fails if another process has it.
        let mut first = if listen.shared { None } else { Some(new_socket(listen, false)?) };
        let local = first.as_ref().map_or(listen.address, |(_, local)| *local);
        let listen = StreamListen { address: local, ..listen.clone() };
        if !alone {
            first = None;
        }
        let mut sockets: Vec<_> = first.into_iter().collect();
        while sockets.len() < usize::from(listen.shards) {
            sockets.push(new_socket(&listen, true)?);
        }
        let local = sockets.first().map_or(local, |(_, local)| *local);
        let sockets = sockets.into_iter().map(|(socket, _)| Arc::new(socket)).collect();
        let StreamListen { transport, shared, tls, origins, .. } = listen;
        Ok(Self { transport, local, sockets, shared, tls, origins })
    }

    /// Returns the address, with the port that the kernel picked if none was given.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the transport that the connections of the group use.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the socket of one shard.
    ///
    /// # Panics
    /// Panics if there is no such shard.
    pub fn listener(&self, shard: u16) -> StreamListener {
        let Self { transport, local, shared, .. } = *self;
        let socket = Arc::clone(&self.sockets[usize::from(shard)]);
        let (tls, origins) = (self.tls.clone(), self.origins.clone());
        StreamListener { transport, local, socket, shared, tls, origins }
    }
}

/// One shard's socket of one listening address.
#[derive(Clone, Debug)]
pub struct StreamListener {
    pub(crate) transport: Transport,
    pub(crate) local: SocketAddr,
    pub(crate) socket: Arc<TcpListener>,
    pub(crate) tls: Option<TlsServer>,
    pub(crate) origins: Origins,
    shared: bool,
}

impl StreamListener {
    /// Returns whether other processes may share the address.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Stops accepting connections. New connections then go to the other processes that share the
    /// address.
    ///
    /// # Errors
    /// Returns the errors of `shutdown(2)`.
    pub(crate) fn leave(&self) -> io::Result<()> {
        Ok(shutdown(self.socket.as_fd(), Shutdown::Read)?)
    }
}

/// Creates a listening socket. Returns the socket and its address.
fn new_socket(
    listen: &StreamListen,
    admits_others: bool,
) -> Result<(TcpListener, SocketAddr), OpenError> {
    let address = listen.address;
    let failed = |call: &'static str| move |error| OpenError { address, call, error };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .map_err(failed("socket"))?;
    socket.set_nonblocking(true).map_err(failed("O_NONBLOCK"))?;
    if address.is_ipv6() {
        // An IPv6 wildcard must not include IPv4. The default of RFC 3493 §5.3 differs.
        socket.set_only_v6(true).map_err(failed("IPV6_V6ONLY"))?;
    }
    // Connections of an earlier process may still be in TIME-WAIT.
    socket.set_reuse_address(true).map_err(failed("SO_REUSEADDR"))?;
    if admits_others {
        socket.set_reuse_port(true).map_err(failed("SO_REUSEPORT"))?;
    }
    set_options_of(&socket, &Liveness::ACCEPTED).map_err(failed("setsockopt"))?;
    socket.bind(&SockAddr::from(address)).map_err(failed("bind"))?;
    socket.listen(BACKLOG).map_err(failed("listen"))?;
    let local = socket
        .local_addr()
        .and_then(|local| local.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into()))
        .map_err(failed("getsockname"))?;
    Ok((socket.into(), local))
}

/// Sets the options of a connection that we open.
pub(crate) fn set_options(socket: &Socket) -> io::Result<()> {
    set_options_of(socket, &Liveness::OPENED)
}

/// Sets the options of every connection. Accepted connections inherit them from the listening
/// socket.
fn set_options_of(socket: &Socket, liveness: &Liveness) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    let Liveness { idle, every } = *liveness;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(every).with_retries(TESTS);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(liveness.unacknowledged()))?;
    sockopt::set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str, shards: u16, shared: bool) -> StreamListen {
        let address = address.parse().unwrap();
        let transport = Transport::Tcp;
        StreamListen { transport, address, shards, shared, tls: None, origins: None }
    }

    #[test]
    fn an_address_in_use_is_an_error_unless_it_is_shared() {
        for shards in [1, 2] {
            let first = StreamGroup::open(&listen("127.0.0.1:0", shards, false)).unwrap();
            let again = listen(&first.local().to_string(), shards, false);
            let refused = StreamGroup::open(&again).unwrap_err();
            assert_eq!(refused.error.kind(), io::ErrorKind::AddrInUse, "{shards} shards");
        }
        let first = StreamGroup::open(&listen("127.0.0.1:0", 1, true)).unwrap();
        let second = StreamGroup::open(&listen(&first.local().to_string(), 2, true)).unwrap();
        assert_eq!(first.local(), second.local());
    }

    #[test]
    fn every_shard_has_a_socket_at_the_one_address() {
        let group = StreamGroup::open(&listen("[::1]:0", 3, false)).unwrap();
        for shard in 0..3 {
            let listener = group.listener(shard);
            assert_eq!(listener.socket.local_addr().unwrap(), group.local());
        }
    }
}
