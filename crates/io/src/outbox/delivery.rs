//! Passes datagrams and batches to the kernel, and finds the outcome of each.

use std::io;
use std::net::UdpSocket;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_world::Cause;

use crate::inbox::is_pending_report;

/// Number of failed send calls for one datagram after which the error counts as an error of this
/// datagram. Before that, the error may be an ICMP report for an earlier datagram, which the kernel
/// returns once from a later send call.
pub(super) const TRIES: usize = 3;

/// The outcome of sending a datagram or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    Sent,
    Full,
    /// The kernel refused the datagram or the batch, with this error code.
    Refused(Cause, i32),
}

/// Passes `count` datagrams or batches to `send`, and reports the outcome of each to `settle`. Ends
/// when each has an outcome, or when `settle` breaks at a refused one. `send` gets an index, sends
/// the items from this index on, and returns the number of sent items. `wait` waits for room, or
/// returns false if no time is left. Returns whether there was an error that may be an ICMP report.
pub(super) fn deliver(
    count: usize,
    mut send: impl FnMut(usize) -> io::Result<usize>,
    mut wait: impl FnMut() -> bool,
    mut settle: impl FnMut(usize, SendOutcome) -> ControlFlow<()>,
) -> bool {
    let mut next = 0;
    let mut tries = 0;
    let mut saw_report = false;
    while next < count {
        let code = match send(next) {
            // A result of zero counts as an error, because the call has neither sent anything nor
            // failed.
            Ok(sent @ 1..) => {
                let _ = (next..next + sent).try_for_each(|k| settle(k, SendOutcome::Sent));
                next += sent;
                tries = 0;
                saw_report |= next < count;
                continue;
            }
            Ok(0) => 0,
            Err(error) => error.raw_os_error().unwrap_or(0),
        };
        if code == libc::EAGAIN {
            if wait() {
                continue;
            }
            let _ = (next..count).try_for_each(|k| settle(k, SendOutcome::Full));
            break;
        }
        tries += 1;
        saw_report |= is_pending_report(code);
        if (code == libc::EINTR || is_pending_report(code)) && tries < TRIES {
            continue;
        }
        let outcome = match code {
            // Returned by sockets with IP_RECVERR when a device's queue is full.
            libc::ENOBUFS | libc::ENOMEM | libc::EINTR => SendOutcome::Full,
            code => SendOutcome::Refused(send_cause(code), code),
        };
        if settle(next, outcome).is_break() {
            break;
        }
        next += 1;
        tries = 0;
    }
    saw_report
}

/// Returns the cause for an error code that a send call still returns after [`TRIES`] attempts.
fn send_cause(code: i32) -> Cause {
    match cause(code) {
        // The sockets are not connected, so this is always a report about an earlier datagram,
        // perhaps to another peer. A flood of such reports must not make this peer seem refused.
        Cause::Refused => Cause::Other,
        cause => cause,
    }
}

/// Returns the cause for an error code of a send call or of an ICMP report.
pub(crate) fn cause(code: i32) -> Cause {
    match code {
        libc::ECONNREFUSED => Cause::Refused,
        libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::EHOSTDOWN
        | libc::ENETDOWN
        | libc::ENONET => Cause::Unreachable,
        libc::EMSGSIZE => Cause::TooLarge,
        _ => Cause::Other,
    }
}

/// The remaining time for which a flush may wait.
pub(super) struct Patience {
    left: Duration,
}

impl Patience {
    pub(super) fn new(left: Duration) -> Self {
        Self { left }
    }

    /// Waits until the socket has room. Returns `false` when no time is left.
    pub(super) fn wait_for_room(&mut self, socket: &UdpSocket) -> bool {
        if self.left.is_zero() {
            return false;
        }
        let began = Instant::now();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
        let timeout = Timespec::try_from(self.left).ok();
        // If the wait is interrupted or ends with a pending error, it is only shorter.
        let _ = poll(&mut fds, timeout.as_ref());
        // Counts at least a microsecond, so that waits that take no time are not repeated forever.
        let waited = began.elapsed().max(Duration::from_micros(1));
        self.left = self.left.saturating_sub(waited);
        fds[0].revents().contains(PollFlags::OUT) || !self.left.is_zero()
    }
}
