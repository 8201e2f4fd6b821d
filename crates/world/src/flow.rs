//! The flow of a message: its transport, the addresses of both ends, and its connection.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use crate::unit_enum;

unit_enum! {
    /// A transport protocol for SIP messages. A Via header field uses these names (RFC 3261 §20.42,
    /// RFC 7118 §5.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Transport {
        /// Datagrams, RFC 3261 §18.
        Udp = "UDP",
        /// A byte stream, RFC 3261 §18.
        Tcp = "TCP",
        /// TLS over TCP, RFC 3261 §26.2.1.
        Tls = "TLS",
        /// WebSocket over TCP, RFC 7118.
        Ws = "WS",
        /// WebSocket over TLS, RFC 7118.
        Wss = "WSS",
        // SCTP (RFC 4168) would be a further variant: reliable, and with messages that keep their
        // boundaries. `tidegate-io` would need a socket of its own for it. It is left out because
        // the kernels on which Tidegate is tested have no SCTP (`CONFIG_IP_SCTP` is not set).
    }
}

impl Transport {
    /// Returns whether the transport is reliable: it delivers data, or reports that it could not
    /// deliver them.
    ///
    /// RFC 3261 §17: "a reliable transport (such as TCP)" needs no retransmissions. RFC 7118 §5: "Thus, client
    /// and server transactions using WebSocket for transport MUST follow the procedures and timer values for
    /// reliable transports as defined in \[RFC3261\]."
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// Returns whether the transport protects messages from being read or changed on the way.
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Returns whether each SIP message travels as one WebSocket message. Only clients open
    /// WebSocket connections, because a browser accepts none.
    pub const fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The index of a shard, and the number of shards of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    index: u16,
    count: u16,
}

impl ShardIndex {
    /// The only shard of its process.
    pub const ALONE: Self = Self { index: 0, count: 1 };

    /// Returns the shard with the number `index` in a process with `count` shards.
    ///
    /// # Panics
    /// Panics if `index` is not less than `count`.
    pub const fn new(index: u16, count: u16) -> Self {
        assert!(index < count, "no such shard");
        Self { index, count }
    }

    /// Returns the number of the shard. The first one has the number 0.
    pub const fn get(self) -> u16 {
        self.index
    }

    /// Returns the numbers of the other shards of the process.
    pub fn others(self) -> impl Iterator<Item = u16> {
        (0..self.count).filter(move |&other| other != self.index)
    }
}

/// The name that a core and its driver use for a connection. The name is unique in a process while
/// the connection lasts.
///
/// The core names the connections that it [opens](crate::Core::poll_connect) by odd numbers, and
/// the driver names those that it accepts by even numbers, so neither has to ask the other. The odd
/// and the even numbers are assigned to the shards of a process in turn, so a number also shows the
/// [shard](Self::shard) that has the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(NonZeroU32);

impl ConnectionId {
    /// The name of the first connection that the core of the first shard opens.
    pub const FIRST_OPENED: Self = Self(NonZeroU32::MIN);
    /// The name of the first connection that the driver of the first shard accepts.
    pub const FIRST_ACCEPTED: Self = Self(NonZeroU32::new(2).expect("not zero"));

    /// Returns the name with this number, or `None` if the number is 0. No connection has the
    /// number 0.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number of the connection, which is above 0.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns whether the core opened the connection. False means that the driver accepted it.
    pub const fn is_opened(self) -> bool {
        self.0.get() % 2 == 1
    }

    /// Returns the name of the first connection that a shard opens.
    pub const fn first_opened(shard: ShardIndex) -> Self {
        Self::FIRST_OPENED.plus(shard.index)
    }

    /// Returns the name of the first connection that a shard accepts.
    pub const fn first_accepted(shard: ShardIndex) -> Self {
        Self::FIRST_ACCEPTED.plus(shard.index)
    }

    /// Returns the number of the shard that has the connection. `any` may be any shard of the
    /// process, because only the number of shards that it contains is used.
    pub const fn shard(self, any: ShardIndex) -> u16 {
        ((self.0.get() - 1) / 2 % any.count as u32) as u16
    }

    /// Returns the next name with the same parity (odd or even) in a process with one shard. After
    /// the last of about 2^31 names, the first is used again.
    #[must_use]
    pub const fn next(self) -> Self {
        self.next_of(ShardIndex::ALONE)
    }

    /// Returns the next name with the same parity (odd or even) that belongs to `shard`. There are
    /// about 2^31 such names, divided by the number of shards. After the last name, the first is
    /// used again.
    #[must_use]
    pub const fn next_of(self, shard: ShardIndex) -> Self {
        match self.0.checked_add(2 * shard.count as u32) {
            Some(number) => Self(number),
            None if self.is_opened() => Self::first_opened(shard),
            None => Self::first_accepted(shard),
        }
    }

    const fn plus(self, steps: u16) -> Self {
        Self(self.0.saturating_add(2 * steps as u32))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// The flow of a message: its transport, the addresses of both ends, and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The transport on which the message travels.
    pub transport: Transport,
    /// The local address. A received message arrived at this address. A message to send leaves from
    /// this address. If it is the wildcard address of a listener, the operating system chooses the
    /// address.
    pub local: SocketAddr,
    /// The address of the peer.
    pub remote: SocketAddr,
    /// The connection of the message, or `None` over UDP or while the connection is not known.
    pub connection: Option<ConnectionId>,
}

impl Flow {
    /// Returns a flow over UDP.
    pub const fn udp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { transport: Transport::Udp, local, remote, connection: None }
    }

    /// Returns a flow on a connection.
    pub const fn connected(
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
        connection: ConnectionId,
    ) -> Self {
        Self { transport, local, remote, connection: Some(connection) }
    }
}

/// A request of a core to open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connect {
    /// The name of the connection from now on, an [odd](ConnectionId::is_opened) number.
    pub id: ConnectionId,
    /// The transport of the connection, which is not UDP.
    pub transport: Transport,
    /// The address of the listener for which the connection is opened. The driver uses the IP
    /// address of the listener, and the operating system chooses the port.
    pub local: SocketAddr,
    /// The address of the peer.
    pub remote: SocketAddr,
}

unit_enum! {
    /// The reason why a connection ended, or was never opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CloseCause {
        /// The core asked to close the connection.
        Asked,
        /// The peer ended the connection between two messages.
        Ended,
        /// The peer ended the connection within a message.
        CutOff,
        /// The peer reset the connection.
        Reset,
        /// Nothing listens at the peer's port.
        Refused,
        /// The network or the host is unreachable.
        Unreachable,
        /// The peer did not answer in time, did not complete a handshake or a message in time, or
        /// did not read in time.
        TimedOut,
        /// The TLS handshake failed, or the identity of the peer cannot be verified.
        Insecure,
        /// The peer's data cannot be cut into messages (RFC 3261 §18.3), a WebSocket handshake
        /// failed, or the memory for incomplete messages is used up.
        Garbled,
        /// Any other reason, such as another error of the operating system or a limit on
        /// connections.
        Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 §20.42: transport = "UDP" / "TCP" / "TLS" / ...; RFC 7118 §5.1: "WS" / "WSS".
    ///
    /// RFC 7118 §5: "Thus, client and server transactions using WebSocket for transport MUST follow the
    /// procedures and timer values for reliable transports as defined in [RFC3261]."
    #[test]
    fn transports_have_the_properties_in_their_rfcs() {
        let facts = Transport::ALL.map(|t| (t.name(), t.is_reliable(), t.is_secure()));
        let expected = [
            ("UDP", false, false),
            ("TCP", true, false),
            ("TLS", true, true),
            ("WS", true, false),
            ("WSS", true, true),
        ];
        assert_eq!(facts, expected);
        assert_eq!(Transport::Tls.to_string(), "TLS");
    }

    #[test]
    fn an_optional_connection_id_takes_no_extra_room() {
        assert_eq!(size_of::<Option<ConnectionId>>(), 4);
        assert_eq!(ConnectionId::new(0), None);
        assert_eq!(ConnectionId::new(7).map(ConnectionId::get), Some(7));
    }

    #[test]
    fn each_side_numbers_its_own_connections_and_wraps_around() {
        let after = |number| ConnectionId::new(number).unwrap().next();
        for (first, opened) in
            [(ConnectionId::FIRST_OPENED, true), (ConnectionId::FIRST_ACCEPTED, false)]
        {
            assert_eq!(first.is_opened(), opened);
            assert_eq!(first.next().get(), first.get() + 2);
        }
        assert_eq!(after(u32::MAX), ConnectionId::FIRST_OPENED);
        assert_eq!(after(u32::MAX - 1), ConnectionId::FIRST_ACCEPTED);
    }

    #[test]
    fn each_shard_has_names_of_its_own_and_repeats_them_after_many() {
        for count in [1, 3, 256] {
            for index in [0, count / 2, count - 1] {
                let shard = ShardIndex::new(index, count);
                let firsts =
                    [ConnectionId::first_opened(shard), ConnectionId::first_accepted(shard)];
                for (first, is_opened) in firsts.into_iter().zip([true, false]) {
                    let step = 2 * u32::from(count);
                    let last = first.get() + (u32::MAX - first.get()) / step * step;
                    let last = ConnectionId::new(last).unwrap();
                    for id in [first, first.next_of(shard), last] {
                        assert_eq!((id.shard(shard), id.is_opened()), (index, is_opened), "{id:?}");
                    }
                    assert_eq!(last.next_of(shard), first);
                }
            }
        }
        assert_eq!(ShardIndex::new(1, 3).others().collect::<Vec<_>>(), [0, 2]);
    }
}
