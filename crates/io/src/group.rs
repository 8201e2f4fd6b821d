//! Listening addresses, and the sockets that let shards share them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use libc::c_int;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tidegate_world::Shedding;

use crate::gate::KernelGate;
use crate::sockopt;
use crate::steer::{self, Family, Layout, Share};

/// Maximum number of shards in one group.
const SHARDS_MAX: u16 = 256;

/// The parameters of a listening address.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address. With port 0, the kernel selects a free port.
    pub address: SocketAddr,
    /// Number of shards that share the address. The value is from 1 to 256, and the default is 1.
    pub shards: u16,
    /// True if each shard has separate sockets for INVITEs and REGISTERs, for responses, and for
    /// all other messages. Otherwise it has one socket. The default is true.
    pub split: bool,
    /// Receive buffer of each socket, in the bytes that the kernel counts (a datagram of 100 bytes
    /// counts as 832). The default is 4 MiB.
    pub receive_buffer: usize,
    /// True if the kernel records the arrival time of each datagram. The default is true. When the
    /// first socket of a machine with this option is opened, the kernel needs some milliseconds to
    /// begin. Until then, the recorded time is that at which the datagram is read.
    pub stamps: bool,
    /// True if other processes of the same user may also listen at the address. Those processes
    /// must also set this to true. The default is false. If it is true, the kernel divides the
    /// datagrams among all sockets by a hash of both addresses, because no BPF program can steer
    /// datagrams to sockets that other processes open and close at any time. So there are no
    /// separate sockets and no gate, even if `split` or `gate` is set.
    pub shared: bool,
    /// True if the core can tell the kernel to drop some of the datagrams. This needs one more
    /// socket per shard. The default is false.
    pub gate: bool,
}

impl Listen {
    /// Creates the parameters for an address, with the defaults.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            shards: 1,
            split: true,
            receive_buffer: 4 << 20,
            stamps: true,
            shared: false,
            gate: false,
        }
    }
}

/// The sockets of one listening address: an `SO_REUSEPORT` group in fixed order.
///
/// Keep the group until every shard has ended. If one socket is closed, the kernel renumbers the
/// other sockets, and steers their datagrams to the wrong shard.
#[derive(Debug)]
pub struct Group {
    local: SocketAddr,
    sockets: Vec<Arc<UdpSocket>>,
    layout: Layout,
    shared: bool,
    receive_buffer: usize,
    gate: Option<KernelGate>,
}

impl Group {
    /// Returns the address, with the port that the kernel picked if none was given.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size of the receive buffer that the kernel granted each socket, in bytes. It is
    /// less than requested if `net.core.rmem_max` is lower and the process lacks CAP_NET_ADMIN.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Returns the gate that makes the kernel drop datagrams, or `None` unless it was
    /// [requested](Listen::gate).
    pub fn gate(&self) -> Option<&KernelGate> {
        self.gate.as_ref()
    }

    /// Returns the sockets of one shard.
    ///
    /// # Panics
    /// Panics if there is no such shard.
    pub fn listener(&self, shard: u16) -> Listener {
        let first = self.layout.each() * usize::from(shard);
        let own = |kind| self.layout.split.then(|| Arc::clone(&self.sockets[first + kind]));
        Listener {
            local: self.local,
            ordinary: Arc::clone(&self.sockets[first]),
            invite: own(1),
            response: own(2),
            gate: self.gate.clone(),
            shared: self.shared,
            shard,
        }
    }
}

/// One shard's sockets of one listening address.
#[derive(Clone, Debug)]
pub struct Listener {
    local: SocketAddr,
    ordinary: Arc<UdpSocket>,
    invite: Option<Arc<UdpSocket>>,
    response: Option<Arc<UdpSocket>>,
    gate: Option<KernelGate>,
    shared: bool,
    shard: u16,
}

impl Listener {
    /// Returns the listening address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the socket that sends all messages. It also receives the messages that have no
    /// socket of their own.
    pub fn ordinary(&self) -> &UdpSocket {
        &self.ordinary
    }

    /// Returns the socket for INVITEs and REGISTERs, or `None` if they have no socket of their own.
    pub fn invite(&self) -> Option<&UdpSocket> {
        self.invite.as_deref()
    }

    /// Returns the socket for responses, or `None` if they have no socket of their own.
    pub fn response(&self) -> Option<&UdpSocket> {
        self.response.as_deref()
    }

    /// Returns the socket to which the kernel sends the datagrams to shed. It keeps ICMP reports,
    /// but no datagrams.
    pub(crate) fn sink(&self) -> Option<&UdpSocket> {
        self.gate.as_ref().map(|gate| gate.sink(self.shard))
    }

    /// Makes the kernel drop the datagrams of this shard that `shedding` selects, if the group has
    /// a gate.
    ///
    /// # Errors
    /// Returns the errors of [`KernelGate::set_of`].
    pub(crate) fn shed(&self, shedding: &Shedding) -> io::Result<()> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate.set_of(self.shard, shedding))
    }

    /// Stops receiving new datagrams if other processes share the address. New datagrams then go to
    /// those processes. Datagrams that have arrived before can still be received, and the sockets
    /// can still send. Returns whether the address is shared.
    ///
    /// # Errors
    /// Returns the error of connect(2).
    pub(crate) fn leave(&self) -> io::Result<bool> {
        // The kernel gives a connected socket only datagrams from its peer, and here the peer is
        // the socket's own address. Closing the socket would lose its waiting datagrams.
        if self.shared {
            self.ordinary.connect(self.local)?;
        }
        Ok(self.shared)
    }

    /// Returns whether the listener is bound to every address of the machine.
    pub fn is_wildcard(&self) -> bool {
        self.local.ip().is_unspecified()
    }

    /// Returns `Some` if packets with the local address `local` leave through these sockets. The
    /// inner value is the source address to set on each packet, or `None` if the sockets are bound
    /// to one address.
    pub(crate) fn sends_from(&self, local: SocketAddr) -> Option<Option<IpAddr>> {
        if local == self.local {
            return Some(None);
        }
        let covered = self.is_wildcard()
            && local.port() == self.local.port()
            && local.is_ipv4() == self.local.is_ipv4();
        covered.then(|| Some(local.ip()))
    }
}

/// Opens the sockets of a listening address, and attaches the BPF program that steers datagrams to
/// them by shard and by kind of message.
///
/// All steps are in one function, because a datagram may arrive between any two steps, and the
/// order of the steps determines the socket to which it goes.
///
/// # Errors
/// Returns the system call or the option that failed, with the address. If another group or another
/// process already uses the address, this is an error, unless both groups are
/// [shared](Listen::shared).
pub fn open(listen: &Listen) -> Result<Group, OpenError> {
    let failed = |call: &'static str| {
        let address = listen.address;
        move |error| OpenError { address, call, error }
    };
    if listen.shards == 0 || listen.shards > SHARDS_MAX {
        let error = io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{} shards were requested, but only 1 to {SHARDS_MAX} are possible",
                listen.shards
            ),
        );
        return Err(failed("open")(error));
    }
    let family = if listen.address.is_ipv4() { Family::V4 } else { Family::V6 };
    let split = listen.split && !listen.shared;
    let layout = Layout { family, shards: listen.shards, split };
    let count = layout.read();

    // The first socket is bound without SO_REUSEPORT, so that the bind fails if any other socket
    // has the address. It gets the option before the others are bound. With the option from the
    // start, it would silently join the group of another process, or that process would join this
    // one.
    let first = new_socket(listen)?;
    if listen.shared {
        first.set_reuse_port(true).map_err(failed("SO_REUSEPORT"))?;
    }
    first.bind(&SockAddr::from(listen.address)).map_err(failed("bind"))?;
    let local = first
        .local_addr()
        .and_then(|a| a.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into()))
        .map_err(failed("getsockname"))?;
    let receive_buffer = first.recv_buffer_size().map_err(failed("SO_RCVBUF"))?;
    let mut sockets = Vec::with_capacity(count);
    let gate = listen.gate && !listen.shared;
    if count > 1 || gate {
        first.set_reuse_port(true).map_err(failed("SO_REUSEPORT"))?;
    }
    sockets.push(first);
    let join = |next: Socket| {
        next.set_reuse_port(true).map_err(failed("SO_REUSEPORT"))?;
        next.bind(&SockAddr::from(local)).map_err(failed("bind"))?;
        Ok(next)
    };
    while sockets.len() < count {
        sockets.push(join(new_socket(listen)?)?);
    }
    let steer = || {
        let program = steer::program(layout, &Share::default(), &[], &[]);
        sockopt::attach_reuseport(sockets[0].as_fd(), &program)
            .map_err(failed("SO_ATTACH_REUSEPORT_CBPF"))
    };
    // This comes before the sinks are opened, so that a sink gets only shed datagrams. A group
    // begins with its second socket, and takes no program before that. If the second socket is a
    // sink, datagrams that arrive before the program is attached may be lost.
    if count > 1 && !listen.shared {
        steer()?;
    }
    let mut sinks = Vec::new();
    if gate {
        for _ in 0..listen.shards {
            let sink = new_socket(listen)?;
            sockopt::attach_filter(sink.as_fd(), &steer::DROP_ALL)
                .map_err(failed("SO_ATTACH_FILTER"))?;
            sinks.push(join(sink)?.into());
        }
        if count == 1 {
            steer()?;
        }
    }
    let sockets: Vec<Arc<UdpSocket>> =
        sockets.into_iter().map(|socket| Arc::new(socket.into())).collect();
    let gate = gate.then(|| KernelGate::new(layout, Arc::clone(&sockets[0]), sinks));
    Ok(Group { local, sockets, layout, shared: listen.shared, receive_buffer, gate })
}

/// Creates a socket with every option except the one that lets other sockets bind to the same
/// address.
fn new_socket(listen: &Listen) -> Result<Socket, OpenError> {
    let address = listen.address;
    let failed = |call: &'static str| move |error| OpenError { address, call, error };
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(failed("socket"))?;
    socket.set_nonblocking(true).map_err(failed("O_NONBLOCK"))?;
    if address.is_ipv6() {
        // An IPv6 wildcard must not include IPv4. The default of RFC 3493 §5.3 differs.
        socket.set_only_v6(true).map_err(failed("IPV6_V6ONLY"))?;
    }
    let option = |call: &'static str, level: c_int, name: c_int| {
        sockopt::set(socket.as_fd(), level, name, 1).map_err(failed(call))
    };
    option("SO_RXQ_OVFL", libc::SOL_SOCKET, libc::SO_RXQ_OVFL)?;
    if listen.stamps {
        option("SO_TIMESTAMPNS", libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    }
    let wildcard = address.ip().is_unspecified();
    match address {
        SocketAddr::V4(_) => {
            option("IP_RECVERR", libc::IPPROTO_IP, libc::IP_RECVERR)?;
            if wildcard {
                option("IP_PKTINFO", libc::IPPROTO_IP, libc::IP_PKTINFO)?;
            }
        }
        SocketAddr::V6(_) => {
            option("IPV6_RECVERR", libc::IPPROTO_IPV6, libc::IPV6_RECVERR)?;
            if wildcard {
                option("IPV6_RECVPKTINFO", libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
            }
        }
    }
    set_receive_buffer(socket.as_fd(), listen.receive_buffer).map_err(failed("SO_RCVBUF"))?;
    Ok(socket)
}

/// Sets the size of the buffer to `bytes`, even beyond the system's limit if the process may do
/// this.
fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles the given value, to account for its own structures. Here, `bytes` is the
    // doubled value.
    let half = c_int::try_from(bytes / 2).unwrap_or(c_int::MAX / 2);
    sockopt::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half)
        .or_else(|_| sockopt::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, half))
}

/// The error for a listening address that could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The address that was requested.
    pub address: SocketAddr,
    /// The system call or option that failed.
    pub call: &'static str,
    /// The error that the call returned.
    pub error: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {} failed: {}", self.address, self.call, self.error)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
