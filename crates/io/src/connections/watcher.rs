//! The descriptors by which the kernel reports the events of connections and listeners.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use tidegate_world::ConnectionId;

use crate::stream_group::StreamListener;

/// Maximum number of events that one system call takes from the kernel.
pub(super) const EVENTS: usize = 256;

/// The mark (`epoll` data) of the events of the inner descriptor. Lower marks are connection ids.
const INNER: u64 = 1 << 32;

/// The lowest mark that denotes a listener.
const LISTENERS_FROM: u64 = INNER + 1;

/// Two `epoll` descriptors. The outer one watches the connections of peers and the inner descriptor.
/// The inner one watches the listeners, and the connections that the core has opened, for example to
/// back ends.
///
/// One system call returns a limited number of events, and each call reports the unread connections
/// again. If very many connections of peers wait to be read, the next event of a connection may
/// come many system calls later. With a descriptor of their own, back ends and new connections do
/// not wait that long.
#[derive(Debug)]
pub(super) struct Watcher {
    outer: OwnedFd,
    inner: OwnedFd,
}

/// One of the two `epoll` descriptors of a [`Watcher`], with the sockets that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Outer,
    Inner,
}

/// The source of an event that the kernel reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Connection(ConnectionId),
    /// The listener with this index.
    Listener(usize),
    /// The inner descriptor, which has events.
    Inner,
}

impl Watched {
    pub(super) fn of(event: &epoll::Event) -> Self {
        let mark = event.data.u64();
        match u32::try_from(mark).ok().and_then(ConnectionId::new) {
            Some(id) => Self::Connection(id),
            None if mark == INNER => Self::Inner,
            None => Self::Listener((mark - LISTENERS_FROM) as usize),
        }
    }
}

impl Watcher {
    /// Creates the descriptors, and watches the listeners.
    pub(super) fn new(listeners: &[StreamListener]) -> io::Result<Self> {
        let [outer, inner] = [(); 2].map(|()| epoll::create(epoll::CreateFlags::CLOEXEC));
        let (outer, inner) = (outer?, inner?);
        epoll::add(&outer, &inner, EventData::new_u64(INNER), EventFlags::IN)?;
        for (mark, listener) in (LISTENERS_FROM..).zip(listeners) {
            epoll::add(&inner, &listener.socket, EventData::new_u64(mark), EventFlags::IN)?;
        }
        Ok(Self { outer, inner })
    }

    /// Returns the descriptor that is readable if there is any event.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.outer.as_fd()
    }

    /// Takes at most [`EVENTS`] events of one descriptor. `events` must be empty, with room for
    /// that many.
    pub(super) fn wait(&self, set: Set, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let epoll = match set {
            Set::Outer => &self.outer,
            Set::Inner => &self.inner,
        };
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(epoll, spare_capacity(events), Some(&none)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins to watch a connection.
    pub(super) fn add(
        &self,
        id: ConnectionId,
        stream: &TcpStream,
        flags: EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::add(self.of(id), stream, EventData::new_u64(id.get().into()), flags)?)
    }

    /// Sets the events that the kernel reports for a connection.
    pub(super) fn modify(
        &self,
        id: ConnectionId,
        stream: &TcpStream,
        flags: EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::modify(self.of(id), stream, EventData::new_u64(id.get().into()), flags)?)
    }

    /// Sets the events that the kernel reports for the listener with this index.
    pub(super) fn modify_listener(
        &self,
        index: usize,
        listener: &StreamListener,
        flags: EventFlags,
    ) -> io::Result<()> {
        let mark = EventData::new_u64(LISTENERS_FROM + index as u64);
        Ok(epoll::modify(&self.inner, &listener.socket, mark, flags)?)
    }

    /// Stops watching a connection.
    #[cfg(test)]
    pub(super) fn remove(&self, id: ConnectionId, stream: &TcpStream) -> io::Result<()> {
        Ok(epoll::delete(self.of(id), stream)?)
    }

    /// Stops watching a listener.
    pub(super) fn remove_listener(&self, listener: &StreamListener) -> io::Result<()> {
        Ok(epoll::delete(&self.inner, &listener.socket)?)
    }

    /// Returns the descriptor that watches a connection.
    fn of(&self, id: ConnectionId) -> &OwnedFd {
        if id.is_opened() { &self.inner } else { &self.outer }
    }
}
