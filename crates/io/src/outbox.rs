//! Datagrams sent in batches, from several sockets to many destinations.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use libc::{c_uint, iovec, mmsghdr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_world::{Buffer, Cause};

use crate::BATCH;
use crate::address::Address;
use crate::control::Control;
use crate::inbox::is_pending_report;

/// Calls made for one datagram before the error is taken to be its own. An ICMP report
/// for an earlier datagram is returned by a later call, once, but others may follow.
const TRIES: usize = 3;

const _: () = assert!(BATCH == u64::BITS as usize, "a flush keeps one bit an entry");

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams dropped because send buffer or device queue stayed full.
    pub full: u64,
    /// Datagrams the kernel refused, each reported by itself.
    pub refused: u64,
    /// Whether an ICMP report may have been returned: then the error queue of a socket
    /// has entries. A call that ends early because of one does not say so.
    pub saw_report: bool,
}

/// Up to [`BATCH`] datagrams on their way out. The order of datagrams from one socket
/// is kept. Sending allocates nothing.
pub struct Outbox {
    queue: ArrayVec<Outgoing, BATCH>,
    frames: Box<Frames>,
}

struct Outgoing {
    socket: usize,
    to: SocketAddr,
    /// The local address to leave from, if the socket is bound to a wildcard.
    source: Option<IpAddr>,
    bytes: Buffer,
}

/// What the kernel reads: valid during a flush only.
struct Frames {
    headers: [mmsghdr; BATCH],
    vectors: [iovec; BATCH],
    names: [Address; BATCH],
    controls: [Control; BATCH],
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Self {
        let frames = Box::new(Frames {
            // SAFETY: headers and vectors are integers and pointers, for which zero is valid.
            headers: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            vectors: unsafe { std::mem::zeroed() },
            names: [Address::empty(); BATCH],
            controls: [Control::empty(); BATCH],
        });
        Self { queue: ArrayVec::new(), frames }
    }

    /// Whether it must be flushed before more is put in.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Whether there is nothing to flush.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Puts in a datagram that is to leave by the socket numbered `socket`, from
    /// address `source` if that socket is bound to a wildcard.
    ///
    /// # Panics
    /// If it is full.
    #[inline]
    pub fn push(&mut self, socket: usize, source: Option<IpAddr>, to: SocketAddr, bytes: Buffer) {
        self.queue.push(Outgoing { socket, to, source, bytes });
    }

    /// Sends everything by the sockets that `sockets` names, and empties the outbox.
    /// A full send buffer is waited for, `wait` at the most in all; then the rest of
    /// that socket's datagrams is dropped. `refused` hears of each datagram the kernel
    /// would not send: its socket, source and destination, and why.
    pub fn flush<'s>(
        &mut self,
        sockets: impl Fn(usize) -> &'s UdpSocket,
        wait: Duration,
        mut refused: impl FnMut(usize, Option<IpAddr>, SocketAddr, Cause),
    ) -> Flushed {
        let Self { queue, frames } = self;
        let mut flushed = Flushed::default();
        let mut patience = Patience { left: wait };
        // One bit an entry that has not met its fate.
        let mut pending = u64::MAX.checked_shr((BATCH - queue.len()) as u32).unwrap_or(0);
        while pending != 0 {
            let number = queue[pending.trailing_zeros() as usize].socket;
            let socket = sockets(number);
            let chosen = frames.fill(queue, pending, number);
            flushed.saw_report |= deliver(
                chosen.len(),
                |next| frames.send(socket, next..chosen.len()),
                || patience.wait_for_room(socket),
                |k, fate| {
                    let Outgoing { source, to, ref bytes, .. } = queue[usize::from(chosen[k])];
                    match fate {
                        Fate::Sent => {
                            flushed.sent += 1;
                            flushed.bytes += bytes.len() as u64;
                        }
                        Fate::Full => flushed.full += 1,
                        Fate::Refused(cause) => {
                            flushed.refused += 1;
                            refused(number, source, to, cause);
                        }
                    }
                },
            );
            pending = chosen.iter().fold(pending, |rest, &entry| rest & !(1 << entry));
        }
        queue.clear();
        flushed
    }
}

impl Frames {
    /// Fills frames for the pending entries of one socket, in order; returns which.
    fn fill(&mut self, queue: &[Outgoing], pending: u64, socket: usize) -> ArrayVec<u8, BATCH> {
        let mut chosen = ArrayVec::new();
        for (i, entry) in queue.iter().enumerate() {
            if pending >> i & 1 == 0 || entry.socket != socket {
                continue;
            }
            let k = chosen.len();
            chosen.push(i as u8);
            let (name, name_len) = Address::encode(entry.to);
            self.names[k] = name;
            self.vectors[k] = iovec {
                // The kernel only reads, whatever the type says.
                iov_base: entry.bytes.as_ptr().cast_mut().cast(),
                iov_len: entry.bytes.len(),
            };
            let source_len = entry.source.map_or(0, |ip| self.controls[k].leave_from(ip));
            let header = &mut self.headers[k].msg_hdr;
            header.msg_namelen = name_len;
            header.msg_iovlen = 1;
            header.msg_controllen = source_len as _;
        }
        chosen
    }

    /// Sends the frames of `range`, which `fill` has filled from entries that still
    /// live; how many the kernel took.
    fn send(&mut self, socket: &UdpSocket, range: Range<usize>) -> io::Result<usize> {
        let frames = &raw mut *self;
        // SAFETY: the pointers to names, vectors and controls are set here from the one
        // raw pointer that the call uses too, and each has the length `fill` stated;
        // the bytes lie in buffers that the queue holds until the flush ends.
        let result = unsafe {
            for k in range.clone() {
                let header = &raw mut (*frames).headers[k].msg_hdr;
                (*header).msg_name = (&raw mut (*frames).names[k]).cast();
                (*header).msg_iov = &raw mut (*frames).vectors[k];
                (*header).msg_control = (&raw mut (*frames).controls[k]).cast();
            }
            libc::sendmmsg(
                socket.as_raw_fd(),
                (&raw mut (*frames).headers).cast::<mmsghdr>().add(range.start),
                range.len() as c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// What became of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Full,
    Refused(Cause),
}

/// Gives `count` datagrams to `send` until each has its fate. `send` takes those from
/// an index on and says how many went; `wait` waits for room, or says that it will not.
/// Returns whether there was an error that may be an ICMP report.
fn deliver(
    count: usize,
    mut send: impl FnMut(usize) -> io::Result<usize>,
    mut wait: impl FnMut() -> bool,
    mut settle: impl FnMut(usize, Fate),
) -> bool {
    let mut next = 0;
    let mut tries = 0;
    let mut saw_report = false;
    while next < count {
        let code = match send(next) {
            // Zero would be a call that neither sent nor said why: taken as an error.
            Ok(sent @ 1..) => {
                (next..next + sent).for_each(|k| settle(k, Fate::Sent));
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
            (next..count).for_each(|k| settle(k, Fate::Full));
            break;
        }
        tries += 1;
        saw_report |= is_pending_report(code);
        if (code == libc::EINTR || is_pending_report(code)) && tries < TRIES {
            continue;
        }
        let fate = match code {
            // Returned by sockets with IP_RECVERR when a device's queue is full.
            libc::ENOBUFS | libc::ENOMEM | libc::EINTR => Fate::Full,
            code => Fate::Refused(cause(code)),
        };
        settle(next, fate);
        next += 1;
        tries = 0;
    }
    saw_report
}

/// The cause that an error code of a send call or of an ICMP report stands for.
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

/// How much longer a flush may wait.
struct Patience {
    left: Duration,
}

impl Patience {
    /// Waits until the socket has room; `false` when there is no time left for that.
    fn wait_for_room(&mut self, socket: &UdpSocket) -> bool {
        if self.left.is_zero() {
            return false;
        }
        let began = Instant::now();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
        let timeout = Timespec::try_from(self.left).ok();
        // An interrupted wait, or one ended by a pending error, is a shorter wait.
        let _ = poll(&mut fds, timeout.as_ref());
        // A wait that takes no time must not be repeated for ever.
        let waited = began.elapsed().max(Duration::from_micros(1));
        self.left = self.left.saturating_sub(waited);
        fds[0].revents().contains(PollFlags::OUT) || !self.left.is_zero()
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
