//! Connections that an agent opens itself, with identifiers that it chooses. An agent does so over
//! WebSockets, and over TCP and TLS if its calls do not all share one connection. Otherwise the
//! connection layer opens the only connection.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use tidegate_world::{Cause, Connect, ConnectionId, Flow, Timestamp, Transport};

use crate::table::Id;

/// Identifier of the first connection. It is in the upper half of the range, because the connection
/// layer numbers its own connections from 1.
const FIRST: ConnectionId = ConnectionId::new((1 << 31) | 1).expect("it is odd");

/// The use of connections by the users of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// This number of connections stay open. User number `n` uses connection number `n` modulo the
    /// number of connections. A connection is opened for its first message, and again for the next
    /// message after it was closed.
    Shared(u32),
    /// Each call, or each registration, opens its own connection and closes it at its end.
    Each,
}

impl ConnectionUse {
    /// Returns whether the agent opens its connections over `transport` itself. If not, the
    /// connection layer opens the only connection. The layer opens no WebSockets, because the proxy
    /// also uses the layer and must not open any.
    pub(crate) fn is_named(self, transport: Transport) -> bool {
        transport.is_websocket() || transport.is_reliable() && self != Self::Shared(1)
    }

    /// Returns whether the agent itself opens connections over `transport` that stay open.
    pub(crate) fn names_lasting(self, transport: Transport) -> bool {
        self.is_named(transport) && self != Self::Each
    }

    /// Returns whether `users` users can use connections over `transport` in this way. More than one
    /// connection needs a stream transport. Shared connections also need at least one user each.
    pub(crate) fn fits(self, transport: Transport, users: u32) -> bool {
        match self {
            Self::Shared(count) => count == 1 || transport.is_reliable() && count <= users,
            Self::Each => transport.is_reliable(),
        }
    }
}

impl Default for ConnectionUse {
    fn default() -> Self {
        Self::Shared(1)
    }
}

/// Formats the value as a number of shared connections, or as `each`.
impl fmt::Display for ConnectionUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(count) => count.fmt(f),
            Self::Each => f.write_str("each"),
        }
    }
}

impl FromStr for ConnectionUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(Self::Each),
            _ => match text.parse() {
                Ok(count) if count > 0 => Ok(Self::Shared(count)),
                _ => Err("expected a number of connections, at least 1, or `each`".to_owned()),
            },
        }
    }
}

/// The users or the call to which a connection belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The users that share the connection with this number.
    Users(u32),
    Call(Id),
}

/// The connections that an agent opens itself. There are none over UDP. Over TCP and TLS there are
/// none if all calls share one connection, because the connection layer opens that one.
///
/// Also keeps the last failure of each connection, and of each remote address without connections.
#[derive(Debug)]
pub(crate) struct Connections {
    /// The use of connections, or `None` if the agent opens none itself.
    by: Option<ConnectionUse>,
    transport: Transport,
    local: SocketAddr,
    remote: SocketAddr,
    by_owner: BTreeMap<Owner, ConnectionId>,
    /// The owner of each connection by its identifier. A closing connection stays here until its
    /// end is reported.
    owners: BTreeMap<ConnectionId, Owner>,
    /// Time and cause of the last failure for each owner, and for each address to which the agent
    /// opens no connection itself.
    failures: BTreeMap<(SocketAddr, Option<Owner>), (Timestamp, Cause)>,
    next: ConnectionId,
    connects: VecDeque<Connect>,
    closes: VecDeque<ConnectionId>,
}

impl Connections {
    /// Creates the set of connections from `local` to `remote`. No connection is opened yet.
    pub fn new(
        by: ConnectionUse,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Self {
        Self {
            by: by.is_named(transport).then_some(by),
            transport,
            local,
            remote,
            by_owner: BTreeMap::new(),
            owners: BTreeMap::new(),
            failures: BTreeMap::new(),
            next: FIRST,
            connects: VecDeque::new(),
            closes: VecDeque::new(),
        }
    }

    /// Returns the connection for a message of `user` to `remote`, and opens it if necessary.
    /// `call` is the call of the message, or `None` if the call has ended, because an ended call
    /// opens no connection of its own. Returns `None` if the connection layer must choose the
    /// connection.
    pub fn name(
        &mut self,
        call: Option<Id>,
        user: u32,
        remote: SocketAddr,
    ) -> Option<ConnectionId> {
        let owner = self.owner(call, user, remote)?;
        if let Some(&id) = self.by_owner.get(&owner) {
            return Some(id);
        }
        while self.owners.contains_key(&self.next) {
            self.next = self.next.next();
        }
        let id = self.next;
        self.next = id.next();
        self.by_owner.insert(owner, id);
        self.owners.insert(id, owner);
        let Self { transport, local, remote, .. } = *self;
        self.connects.push_back(Connect { id, transport, local, remote });
        Some(id)
    }

    /// Closes the connection that belongs to this call alone, if there is one, because the call has
    /// ended.
    pub fn end(&mut self, call: Id) {
        if let Some(id) = self.by_owner.remove(&Owner::Call(call)) {
            self.closes.push_back(id);
        }
        self.failures.remove(&(self.remote, Some(Owner::Call(call))));
    }

    /// Records a failure after which it is unknown which messages on `flow` are lost. The agent
    /// must limit the number of different remote addresses, because one failure is kept for each.
    pub fn on_failed(&mut self, now: Timestamp, flow: Flow, cause: Cause) {
        let owner = flow.connection.and_then(|id| self.owners.get(&id).copied());
        // The owner of a closing connection has ended.
        if owner.is_some_and(|owner| self.by_owner.get(&owner) != flow.connection.as_ref()) {
            return;
        }
        self.failures.insert((flow.remote, owner), (now, cause));
    }

    /// Returns the cause of the last failure that may have lost a message of `call` to `remote`, or
    /// `None` if there was none at `since` or later.
    pub(crate) fn failure_since(
        &self,
        since: Timestamp,
        call: Id,
        user: u32,
        remote: SocketAddr,
    ) -> Option<Cause> {
        let owner = self.owner(Some(call), user, remote);
        let &(at, cause) = self.failures.get(&(remote, owner))?;
        (at >= since).then_some(cause)
    }

    /// Forgets a connection that has ended.
    pub fn on_closed(&mut self, id: ConnectionId) {
        if let Some(owner) = self.owners.remove(&id)
            && self.by_owner.get(&owner) == Some(&id)
        {
            self.by_owner.remove(&owner);
        }
    }

    /// Returns whether the connection `id` has been opened and has not ended.
    pub fn has(&self, id: ConnectionId) -> bool {
        self.owners.contains_key(&id)
    }

    /// Returns the next connection to open, if there is one.
    pub fn poll_connect(&mut self) -> Option<Connect> {
        self.connects.pop_front()
    }

    /// Returns the next connection to close, if there is one.
    pub fn poll_close(&mut self) -> Option<ConnectionId> {
        self.closes.pop_front()
    }

    /// Returns the owner of the connection for a message of `user` to `remote`, or `None` if the
    /// agent opens no connection for it.
    fn owner(&self, call: Option<Id>, user: u32, remote: SocketAddr) -> Option<Owner> {
        let owner = match self.by? {
            ConnectionUse::Shared(count) => Owner::Users(user % count),
            ConnectionUse::Each => Owner::Call(call?),
        };
        (remote == self.remote).then_some(owner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LOCAL: &str = "192.0.2.1:5060";
    const REMOTE: &str = "192.0.2.2:5060";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn connections(by: ConnectionUse) -> Connections {
        over(Transport::Tcp, by)
    }

    fn over(transport: Transport, by: ConnectionUse) -> Connections {
        Connections::new(by, transport, address(LOCAL), address(REMOTE))
    }

    fn id(serial: u32) -> Id {
        Id { slot: 0, serial }
    }

    fn call(serial: u32) -> Option<Id> {
        Some(id(serial))
    }

    #[test]
    fn users_share_connections_in_turn() {
        let mut connections = connections(ConnectionUse::Shared(2));
        let mut name = |user| connections.name(call(user), user, address(REMOTE)).unwrap();
        let names = [0, 1, 2, 3].map(&mut name);
        assert!(names[0] != names[1] && names[0] == names[2] && names[1] == names[3]);
        assert!(names.iter().all(|id| id.is_opened()));
        let opened: Vec<_> = std::iter::from_fn(|| connections.poll_connect()).collect();
        assert_eq!(opened.iter().map(|c| c.id).collect::<Vec<_>>(), names[..2]);
        assert_eq!(opened[0].remote, address(REMOTE));
        // The end of a call does not close a shared connection. After the end of the connection,
        // the next message opens another one.
        connections.end(id(0));
        assert_eq!(connections.poll_close(), None);
        connections.on_closed(names[0]);
        let again = connections.name(call(4), 4, address(REMOTE)).unwrap();
        assert!(!names.contains(&again));
    }

    #[test]
    fn each_call_has_a_connection_and_closes_it() {
        let mut connections = connections(ConnectionUse::Each);
        let mut name = |serial| connections.name(call(serial), 0, address(REMOTE)).unwrap();
        let (first, second) = (name(7), name(8));
        assert!(first != second && name(7) == first);
        connections.end(id(7));
        assert_eq!((connections.poll_close(), connections.poll_close()), (Some(first), None));
        // If the connection of a call breaks, the call opens another one.
        connections.on_closed(second);
        let again = connections.name(call(8), 0, address(REMOTE)).unwrap();
        connections.on_closed(first);
        assert_eq!(connections.name(call(8), 0, address(REMOTE)), Some(again));
        // The last messages of an ended call open no connection.
        assert_eq!(connections.name(None, 0, address(REMOTE)), None);
    }

    /// The connection layer would open no WebSocket.
    #[test]
    fn a_websocket_has_a_name_even_if_all_calls_share_it() {
        for transport in [Transport::Ws, Transport::Wss] {
            let mut connections = over(transport, ConnectionUse::Shared(1));
            let mut name = |call, user| connections.name(call, user, address(REMOTE));
            let only = name(call(1), 1);
            assert!(only.is_some() && name(call(2), 2) == only && name(None, 3) == only);
            let opened = connections.poll_connect().expect("a connection");
            assert_eq!((opened.transport, Some(opened.id)), (transport, only));
            assert_eq!(connections.poll_connect(), None);
        }
    }

    #[test]
    fn a_failure_counts_for_the_calls_of_its_connection_or_address() {
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let (local, remote) = (address(LOCAL), address(REMOTE));
        let flow = |connection| Flow { transport: Transport::Tcp, local, remote, connection };
        let failed = |connections: &Connections, since, number| {
            connections.failure_since(at(since), id(number), number, remote)
        };

        let mut each = connections(ConnectionUse::Each);
        let [own, _] = [7, 8].map(|number| each.name(call(number), number, remote));
        each.on_failed(at(5), flow(own), Cause::Closed);
        assert_eq!([4, 5].map(|since| failed(&each, since, 7)), [Some(Cause::Closed); 2]);
        assert_eq!((failed(&each, 6, 7), failed(&each, 4, 8)), (None, None));
        each.end(id(7));
        each.on_failed(at(6), flow(own), Cause::Closed);
        assert!(each.failures.is_empty(), "nothing is left of a call that has ended");

        let mut two = connections(ConnectionUse::Shared(2));
        let own = two.name(call(0), 0, remote);
        two.on_failed(at(5), flow(own), Cause::Closed);
        assert_eq!([0, 1, 2].map(|n| failed(&two, 4, n).is_some()), [true, false, true]);

        let mut udp = over(Transport::Udp, ConnectionUse::default());
        udp.on_failed(at(5), Flow::udp(local, remote), Cause::Refused);
        assert_eq!(failed(&udp, 4, 1), Some(Cause::Refused));
        assert_eq!(udp.failure_since(at(4), id(1), 1, local), None);
    }

    #[test]
    fn messages_to_others_and_datagrams_name_no_connection() {
        let mut each = connections(ConnectionUse::Each);
        assert_eq!(each.name(call(1), 0, address("192.0.2.9:5060")), None);
        let mut one = connections(ConnectionUse::Shared(1));
        assert_eq!(one.name(call(1), 0, address(REMOTE)), None);
        let mut udp = over(Transport::Udp, ConnectionUse::Each);
        assert_eq!(udp.name(call(1), 0, address(REMOTE)), None);
    }

    #[test]
    fn the_use_is_read_as_it_is_written() {
        for text in ["1", "20", "each"] {
            assert_eq!(text.parse::<ConnectionUse>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "call", "1.5"] {
            assert!(text.parse::<ConnectionUse>().is_err(), "{text}");
        }
    }
}
