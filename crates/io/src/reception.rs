//! The receiving half of a shard: its sockets, which are read within limits.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags};
use tidegate_world::{Failure, Flow, Received, Timestamp};

use crate::machine::{Buffers, Kind, Ready};
use crate::{BATCH, Clock, Counters, ErrorQueue, Inbox, Listener, sockopt};

/// Maximum number of listening addresses of one shard.
pub(crate) const LISTENERS_MAX: usize = 16;

/// Maximum number of sockets of one shard.
pub(crate) const SOCKETS_MAX: usize = 4 * LISTENERS_MAX;

/// Fill of a receive buffer, 0 to 1, from which on its drops count as an overflow. The kernel also
/// drops datagrams for other reasons, for example because of a wrong checksum. At this fill, the
/// buffer may have been too full for a datagram, because a datagram can be as large as a quarter of
/// a small buffer.
const FULL: f32 = 0.75;

/// The sockets of a shard for reading.
pub(crate) struct Reception {
    listeners: Rc<[Listener]>,
    sockets: ArrayVec<Watched, SOCKETS_MAX>,
    inbox: Inbox,
    errors: ErrorQueue,
    counters: Arc<Counters>,
    /// Datagrams lost since the start because a buffer for new work was full.
    overflow: u64,
    /// True if error queues may still have entries.
    reports_left: bool,
    /// Index of the socket that is read first in the present turn.
    first: usize,
}

struct Watched {
    listener: usize,
    role: Role,
    /// True if new work arrives at this socket.
    has_invites: bool,
    /// Number of datagrams dropped at this socket that are already in the counters, modulo 2^32.
    drops: u32,
    /// Number of counted drops for which it is not known yet whether the buffer was full.
    unexplained: u32,
    /// True if the last read may have left datagrams in the buffer, because it reached a limit.
    is_behind: bool,
}

/// The role of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A socket from which datagrams of this kind are received.
    Reads(Kind),
    /// A sink for shed datagrams. It also gets some of the ICMP reports, because the kernel selects
    /// a socket of the group for each report by its own hash.
    Sink,
}

impl Watched {
    fn new(listener: usize, role: Role, has_invites: bool) -> Self {
        Self { listener, role, has_invites, drops: 0, unexplained: 0, is_behind: false }
    }

    fn socket<'l>(&self, listeners: &'l [Listener]) -> &'l UdpSocket {
        let listener = &listeners[self.listener];
        match self.role {
            Role::Reads(Kind::Ordinary) => listener.ordinary(),
            Role::Reads(Kind::Invite) => listener.invite().expect("watched, so it exists"),
            Role::Reads(Kind::Response) => listener.response().expect("watched, so it exists"),
            Role::Sink => listener.sink().expect("watched, so it exists"),
        }
    }

    /// Adds new drops to the counters. `drops` is the kernel's number of drops at this socket. A
    /// number that came with a datagram is ignored if a later number was already read.
    fn count_drops(&mut self, drops: u32, counters: &Counters) {
        let more = drops.wrapping_sub(self.drops);
        if more <= u32::MAX / 2 {
            self.drops = drops;
            self.unexplained = self.unexplained.saturating_add(more);
            let counter = match self.role {
                Role::Reads(_) => &counters.overflow,
                Role::Sink => &counters.filtered,
            };
            counter.add(more.into());
        }
    }

    /// Decides whether the drops that were counted since the last call of this function were an
    /// overflow. `was_full` is true if the buffer was full. Returns the number of datagrams that
    /// were lost because a buffer for new work was full.
    fn take_overflow(&mut self, was_full: bool) -> u64 {
        let unexplained = std::mem::take(&mut self.unexplained);
        if was_full && self.has_invites { unexplained.into() } else { 0 }
    }
}

impl Reception {
    /// Creates the receiver of up to [`LISTENERS_MAX`] listeners.
    pub(crate) fn new(listeners: Rc<[Listener]>, inbox: Inbox, counters: Arc<Counters>) -> Self {
        let mut sockets = ArrayVec::new();
        for (listener, l) in listeners.iter().enumerate() {
            let is_split = l.invite().is_some();
            sockets.push(Watched::new(listener, Role::Reads(Kind::Ordinary), !is_split));
            if is_split {
                sockets.push(Watched::new(listener, Role::Reads(Kind::Invite), true));
            }
            if l.response().is_some() {
                sockets.push(Watched::new(listener, Role::Reads(Kind::Response), false));
            }
            if l.sink().is_some() {
                sockets.push(Watched::new(listener, Role::Sink, false));
            }
        }
        Self {
            listeners,
            sockets,
            inbox,
            errors: ErrorQueue::new(),
            counters,
            overflow: 0,
            reports_left: false,
            first: 0,
        }
    }

    /// Starts a turn. Each turn begins with another socket: the one after the socket with which the
    /// previous turn began.
    pub(crate) fn rotate(&mut self) {
        self.first += 1;
        if self.first >= self.sockets.len() {
            self.first = 0;
        }
    }

    /// Receives up to `limit` datagrams from the ready sockets of one kind, and passes each to
    /// `offer`. Returns the number of datagrams. If it equals the limit, more datagrams may wait.
    ///
    /// # Errors
    /// Returns the errors of `recvmmsg(2)` that no peer and no shortage of memory can cause.
    pub(crate) fn receive(
        &mut self,
        clock: &Clock,
        kind: Kind,
        ready: Ready,
        limit: usize,
        mut offer: impl FnMut(Timestamp, Received),
    ) -> io::Result<usize> {
        let mut total = 0;
        for index in in_turn(self.first, self.sockets.len()) {
            let watched = &mut self.sockets[index];
            if watched.role != Role::Reads(kind) || ready.readable >> index & 1 == 0 {
                continue;
            }
            while total < limit {
                let asked = BATCH.min(limit - total);
                let socket = watched.socket(&self.listeners);
                let filled = match self.inbox.receive(socket, asked) {
                    Ok(filled) => filled,
                    Err(error) if is_shortage(&error) => {
                        self.counters.receive_errors.add(1);
                        0
                    }
                    Err(error) => return Err(error),
                };
                total += filled;
                if filled > 0 {
                    let local = self.listeners[watched.listener].local();
                    offer_all(&mut self.inbox, clock, local, watched, &self.counters, &mut offer);
                }
                if filled < asked {
                    break;
                }
            }
            watched.is_behind = total == limit;
            self.overflow += watched.take_overflow(watched.is_behind);
        }
        match kind {
            Kind::Ordinary => self.counters.received_ordinary.add(total as u64),
            Kind::Invite => self.counters.received_invite.add(total as u64),
            Kind::Response => self.counters.received_response.add(total as u64),
        }
        Ok(total)
    }

    /// Takes up to `limit` entries from the error queues of the sockets that have ICMP reports, and
    /// passes the reports on. Returns whether more reports may wait.
    ///
    /// # Errors
    /// Returns the errors of `recvmsg(2)` that no peer and no shortage of memory can cause.
    pub(crate) fn reports(
        &mut self,
        ready: Ready,
        limit: usize,
        mut hand_on: impl FnMut(Failure),
    ) -> io::Result<bool> {
        let signed = self.inbox.take_report_sign() | std::mem::take(&mut self.reports_left);
        let reporting = if signed { u64::MAX } else { ready.reporting };
        if reporting == 0 {
            return Ok(false);
        }
        let mut left = limit;
        for index in in_turn(self.first, self.sockets.len()) {
            if reporting >> index & 1 == 0 {
                continue;
            }
            let watched = &self.sockets[index];
            let local = self.listeners[watched.listener].local();
            let socket = watched.socket(&self.listeners);
            let counters = &self.counters;
            let taken = self.errors.drain(socket, left, |report| {
                counters.icmp_reports.add(1);
                let local = report.to.map_or(local, |ip| SocketAddr::new(ip, local.port()));
                hand_on(Failure::new(Flow::udp(local, report.remote), report.cause, report.quote));
            });
            left -= match taken {
                Ok(taken) => taken,
                Err(error) if is_shortage(&error) => {
                    counters.receive_errors.add(1);
                    0
                }
                Err(error) => return Err(error),
            };
        }
        self.reports_left = left == 0;
        Ok(self.reports_left)
    }

    /// Reads from the kernel the drops that no datagram has reported yet, and returns the state of
    /// the receive buffers. Makes one system call for each socket.
    pub(crate) fn read_drop_counters(&mut self) -> Buffers {
        let mut fullest = 0.0f32;
        for watched in &mut self.sockets {
            // A kernel without SO_MEMINFO reports drops only with datagrams.
            if let Ok(state) = sockopt::receive_buffer(watched.socket(&self.listeners).as_fd()) {
                watched.count_drops(state.drops, &self.counters);
                match watched.role {
                    Role::Reads(_) => {
                        fullest = fullest.max(state.fill);
                        let was_full = state.fill >= FULL || watched.is_behind;
                        self.overflow += watched.take_overflow(was_full);
                    }
                    // A sink keeps no datagrams. So its fill shows that ICMP reports wait there,
                    // which no other call shows.
                    Role::Sink => self.reports_left |= state.fill > 0.0,
                }
            }
        }
        Buffers { fill: fullest, overflow: self.overflow, ..Buffers::default() }
    }

    /// Returns the descriptors to poll, one for each socket.
    pub(crate) fn poll_fds<const N: usize>(&self) -> ArrayVec<PollFd<'_>, N> {
        let fd = |w: &Watched| {
            // A poll reports errors, such as ICMP reports, even if no event is requested.
            let wanted = if w.role == Role::Sink { PollFlags::empty() } else { PollFlags::IN };
            PollFd::new(w.socket(&self.listeners), wanted)
        };
        self.sockets.iter().map(fd).collect()
    }

    /// Returns the sockets that the poll of [`poll_fds`](Self::poll_fds) has found ready.
    pub(crate) fn ready(polled: &[PollFd<'_>]) -> Ready {
        let bits = |flag: PollFlags| {
            polled
                .iter()
                .enumerate()
                .fold(0, |bits, (i, fd)| bits | u64::from(fd.revents().intersects(flag)) << i)
        };
        // An invalid descriptor counts as readable, so that the receive call returns the error.
        let reporting = bits(PollFlags::ERR);
        let readable = bits(PollFlags::IN | PollFlags::NVAL) | reporting;
        Ready { readable, reporting, streams: false }
    }
}

/// Returns the indices below `count` in turn, starting at `first`.
fn in_turn(first: usize, count: usize) -> impl Iterator<Item = usize> {
    (first..count).chain(0..first)
}

/// Returns whether the kernel lacked memory or was interrupted, which is temporary.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENOBUFS | libc::EINTR))
}

fn offer_all(
    inbox: &mut Inbox,
    clock: &Clock,
    local: SocketAddr,
    watched: &mut Watched,
    counters: &Counters,
    offer: &mut impl FnMut(Timestamp, Received),
) {
    let stamps = clock.stamps();
    let mut drops = None;
    while let Some(datagram) = inbox.take() {
        drops = datagram.drops.or(drops);
        if datagram.bytes.len() > tidegate_world::SMALL {
            counters.received_large.add(1);
        }
        if datagram.cut {
            counters.received_cut.add(1);
            continue;
        }
        let local = datagram.to.map_or(local, |ip| SocketAddr::new(ip, local.port()));
        let flow = Flow::udp(local, datagram.remote);
        offer(stamps.now(), Received::new(stamps.arrived(datagram.stamp), flow, datagram.bytes));
    }
    if let Some(drops) = drops {
        watched.count_drops(drops, counters);
    }
}

#[cfg(test)]
#[path = "reception_tests.rs"]
mod tests;
