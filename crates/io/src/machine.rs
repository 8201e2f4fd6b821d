//! What a drive stands on: a clock, a way in, a way out, and sleep.

use std::io;
use std::time::Duration;

use tidegate_world::{Failure, Received, Shedding, Timestamp, Transmit};

use crate::Waker;

/// What a [`Drive`](crate::Drive) stands on. [`Sockets`](crate::Sockets) are the real thing; on
/// another machine the same turns take place in another time.
pub trait Machine {
    /// Where packets leave.
    type Outlet: Outlet;

    /// The time. It never goes back.
    fn now(&self) -> Timestamp;

    /// CPU time of the thread that drives.
    fn cpu(&self) -> Duration;

    /// Begins a turn.
    fn begin_turn(&mut self);

    /// Receives up to `limit` datagrams of one kind that have arrived, and offers each, with the
    /// time at which it was read. Returns how many; if that is the limit, more may wait.
    ///
    /// # Errors
    /// Those that no peer and no shortage of memory can cause.
    fn receive(
        &mut self,
        kind: Kind,
        ready: Ready,
        limit: usize,
        offer: impl FnMut(&mut Self::Outlet, Timestamp, Received),
    ) -> io::Result<usize>;

    /// Tells of up to `limit` deliveries that the network reports as failed. Returns whether
    /// more may wait.
    ///
    /// # Errors
    /// Those that no peer and no shortage of memory can cause.
    fn reports(
        &mut self,
        ready: Ready,
        limit: usize,
        tell: impl FnMut(&mut Self::Outlet, Failure),
    ) -> io::Result<bool>;

    /// Where packets leave.
    fn outlet(&mut self) -> &mut Self::Outlet;

    /// Sends all that was posted.
    fn flush(&mut self);

    /// How many packets could not be sent, of which nobody was told yet.
    fn failures(&self) -> usize;

    /// The oldest of them.
    fn take_failure(&mut self) -> Option<Failure>;

    /// Counts what was dropped at full buffers. Returns the fill of the fullest, 0 to 1.
    fn read_drop_counters(&mut self) -> f32;

    /// Leaves the addresses that are shared with other processes to those. Returns whether there
    /// are any; what has arrived can still be received.
    fn leave(&mut self) -> bool {
        false
    }

    /// Drops datagrams before they are received, as the core wants it, until it wants otherwise.
    /// They are counted as filtered.
    fn shed(&mut self, shedding: &Shedding);

    /// Lets time pass, whatever comes.
    fn pause(&mut self, time: Duration);

    /// Sleeps until a datagram is there, until `waker` wakes, or until `timeout` has passed.
    /// Returns what is worth a look, and whether it was the waker.
    fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> (io::Result<Ready>, bool);
}

/// Where packets leave.
pub trait Outlet {
    /// Takes a packet that leaves with the next flush.
    fn post(&mut self, transmit: Transmit);
}

/// Which messages a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything that has no socket of its own.
    Ordinary,
    /// New INVITEs.
    Invite,
    /// Responses.
    Response,
}

/// Which sockets are worth a call: one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub(crate) readable: u64,
    pub(crate) reporting: u64,
}

impl Ready {
    /// None of them.
    pub const NONE: Self = Self { readable: 0, reporting: 0 };
    /// Unknown: every socket may have a datagram. Reports make themselves known by the
    /// errors of other calls.
    pub const UNKNOWN: Self = Self { readable: u64::MAX, reporting: 0 };

    /// The same, and any may have ICMP reports.
    pub(crate) fn and_reports(self) -> Self {
        Self { reporting: u64::MAX, ..self }
    }
}
