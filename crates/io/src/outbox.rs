//! Datagrams sent in batches, from several sockets to many destinations, using segmentation offload
//! for datagrams to one destination.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use libc::{c_uint, iovec, mmsghdr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_world::{Batching, Buffer, Cause};

use crate::BATCH;
use crate::address::Address;
use crate::control::Control;
use crate::gso::{GsoBatch, GsoPlan, Segment};
use crate::inbox::is_pending_report;
use crate::sockopt;

/// Number of failed send calls for one datagram after which the error counts as an error of this
/// datagram. Before that, the error may be an ICMP report for an earlier datagram, which the kernel
/// returns once from a later send call.
const TRIES: usize = 3;

/// The discard port (RFC 863), to which a socket is connected but sends nothing.
const DISCARD_PORT: u16 = 9;

const _: () = assert!(PIECES * BATCH <= u8::MAX as usize, "the index of a vector fits into a byte");
const _: () = assert!(BATCH == u64::BITS as usize, "a flush keeps one bit for each entry");

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Number of datagrams sent.
    pub sent: u64,
    /// Number of bytes of the datagrams sent.
    pub bytes: u64,
    /// GSO batches sent: several datagrams to one destination in one message to the kernel.
    pub gso_batches: u64,
    /// Datagrams sent in GSO batches.
    pub in_gso_batches: u64,
    /// Bytes of white space added to datagrams so that they could join a batch.
    pub padding: u64,
    /// Datagrams dropped because the send buffer or the queue of the device stayed full.
    pub full: u64,
    /// Datagrams that the kernel refused. The flush reports each of them separately.
    pub refused: u64,
    /// Whether a send call may have returned an ICMP report. If so, the error queue of a socket has
    /// entries. A call that ends early because of a report does not return the report, so such a
    /// call counts too.
    pub saw_report: bool,
}

/// Up to [`BATCH`] datagrams to send. The order of datagrams from one socket to one destination is
/// kept, except for different [sequences](Batching::sequence). Sending allocates nothing.
///
/// Datagrams of one length from one socket to one destination leave as a GSO batch, if the kernel
/// supports it (Linux 4.18) and the path allows it. Datagrams that [may be
/// padded](Batching::pad_at) are padded to one length. If the kernel refuses batches to two
/// addresses but sends their datagrams one by one, the socket forms no more batches (see
/// [`Forming`]).
pub struct Outbox {
    queue: ArrayVec<Outgoing, BATCH>,
    frames: Box<Frames>,
    gso: bool,
    /// Maximum number of bytes added to a datagram.
    pad_max: usize,
    /// For each socket number, whether the socket may form batches. `None` until it was checked.
    forming: Vec<Option<Forming>>,
}

/// The permission of a socket to send GSO batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forming {
    Allowed,
    /// A batch to this address was refused, and its datagrams were sent one by one. The reason may
    /// be the path to this peer only: Linux before 6.14 returns EINVAL for a segment longer than
    /// the path MTU. One peer must not prevent batches to all other peers.
    RefusedTo(IpAddr),
    /// The kernel does not support batches, or refused batches to two addresses.
    Impossible,
}

impl Forming {
    /// Returns the state after the kernel refused a batch to `to` but sent its datagrams one by
    /// one.
    fn after_refusal(self, to: IpAddr) -> Self {
        match self {
            Self::Allowed => Self::RefusedTo(to),
            Self::RefusedTo(other) if other == to => self,
            Self::RefusedTo(_) | Self::Impossible => Self::Impossible,
        }
    }
}

struct Outgoing {
    socket: usize,
    to: SocketAddr,
    /// The local address from which the datagram leaves, if the socket is bound to a wildcard.
    source: Option<IpAddr>,
    bytes: Buffer,
    batching: Batching,
}

/// Maximum number of pieces in memory that form a padded datagram: its beginning, the padding, and
/// its rest.
const PIECES: usize = 3;

/// Maximum number of bytes added to a datagram.
pub(crate) const PAD_MAX: usize = 64;

/// The padding of a datagram.
static SPACES: [u8; PAD_MAX] = [b' '; PAD_MAX];

/// The memory that the kernel reads. It is valid only during a flush.
struct Frames {
    headers: [mmsghdr; BATCH],
    vectors: [iovec; PIECES * BATCH],
    /// For each message to the kernel, the index of its first I/O vector.
    starts: [u8; BATCH],
    names: [Address; BATCH],
    controls: [Control; BATCH],
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbox {
    /// Creates an empty outbox that pads nothing.
    pub fn new() -> Self {
        Self::of(true, 0)
    }

    /// Creates an empty outbox that adds up to `pad_max` bytes to a datagram, at most 64.
    pub fn with_padding(pad_max: usize) -> Self {
        Self::of(true, pad_max.min(PAD_MAX))
    }

    /// Creates an empty outbox that sends each datagram separately.
    pub fn without_gso() -> Self {
        Self::of(false, 0)
    }

    fn of(gso: bool, pad_max: usize) -> Self {
        let frames = Box::new(Frames {
            // SAFETY: headers and vectors are integers and pointers, for which zero is valid.
            headers: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            vectors: unsafe { std::mem::zeroed() },
            starts: [0; BATCH],
            names: [Address::empty(); BATCH],
            controls: [Control::empty(); BATCH],
        });
        Self { queue: ArrayVec::new(), frames, gso, pad_max, forming: Vec::new() }
    }

    /// Returns whether the outbox must be flushed before the next push.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Returns whether there is nothing to flush.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a datagram to send by the socket numbered `socket`, from address `source` if that
    /// socket is bound to a wildcard. If the machine does not have this address, the datagram leaves
    /// from the address that the kernel selects.
    ///
    /// # Panics
    /// Panics if the outbox is full.
    #[inline]
    pub fn push(&mut self, socket: usize, source: Option<IpAddr>, to: SocketAddr, bytes: Buffer) {
        self.push_with(socket, source, to, bytes, Batching::default());
    }

    /// Adds a datagram like [`push`](Self::push). It may leave together with others by the rules of
    /// `batching`.
    ///
    /// # Panics
    /// Panics if the outbox is full, or if `pad_at` is beyond the end of the datagram.
    #[inline]
    pub fn push_with(
        &mut self,
        socket: usize,
        source: Option<IpAddr>,
        to: SocketAddr,
        bytes: Buffer,
        batching: Batching,
    ) {
        assert!(
            usize::from(batching.pad_at) <= bytes.len(),
            "the padding begins within the datagram"
        );
        self.queue.push(Outgoing { socket, to, source, bytes, batching });
    }

    /// Sends everything through the sockets that `sockets` returns, and empties the outbox. A flush
    /// waits for a full send buffer, at most `wait` in all, and then drops the rest of that
    /// socket's datagrams. `refused` gets each datagram that the kernel would not send: its socket,
    /// source, destination and the cause.
    pub fn flush<'s>(
        &mut self,
        sockets: impl Fn(usize) -> &'s UdpSocket,
        wait: Duration,
        mut refused: impl FnMut(usize, Option<IpAddr>, SocketAddr, Cause),
    ) -> Flushed {
        let Self { queue, frames, gso, pad_max, forming } = self;
        let mut flushed = Flushed::default();
        let mut patience = Patience { left: wait };
        // One bit for each entry without an outcome.
        let mut pending = u64::MAX.checked_shr((BATCH - queue.len()) as u32).unwrap_or(0);
        // `alone` has one bit for each entry that goes alone, because a batch with this entry was
        // refused. `suspects` has the bits of those entries whose batch may have been refused only
        // because it was a batch.
        let (mut alone, mut suspects) = (0, 0);
        let mut checked = None;
        while pending != 0 {
            let number = queue[pending.trailing_zeros() as usize].socket;
            let socket = sockets(number);
            let may_form = *gso && may_form(forming, number, socket);
            let may_join = if may_form { !alone } else { 0 };
            let plan = frames.fill(queue, pending, number, may_join, *pad_max);
            let made_up = plan.gso_batches();
            let mut settled = 0;
            flushed.saw_report |= deliver(
                made_up.len(),
                |next| frames.send(socket, &made_up[next..], next),
                || patience.wait_for_room(socket),
                |k, outcome| {
                    let members = plan.members(k);
                    let bits = members.iter().fold(0, |bits, &entry| bits | 1 << entry);
                    if let SendOutcome::Refused(_, code) = outcome
                        && members.len() > 1
                        && let Some(is_suspect) = refuses_gso(code)
                    {
                        // The datagrams after this batch must not overtake it.
                        alone |= bits;
                        suspects |= if is_suspect { bits } else { 0 };
                        return ControlFlow::Break(());
                    }
                    // The source may have moved to another machine since the peer sent to it. Linux
                    // then returns EINVAL, or ENETUNREACH in newer versions such as 6.18. Both
                    // errors have other causes too, for example no route from this source to the
                    // peer.
                    if let SendOutcome::Refused(_, libc::EINVAL | libc::ENETUNREACH) = outcome
                        && forget_lost_source(queue, members, &mut checked)
                    {
                        suspects &= !bits;
                        return ControlFlow::Break(());
                    }
                    settled |= bits;
                    if outcome == SendOutcome::Sent && members.len() > 1 {
                        flushed.gso_batches += 1;
                        flushed.in_gso_batches += members.len() as u64;
                    }
                    if outcome == SendOutcome::Sent && suspects & bits != 0 {
                        let to = queue[bits.trailing_zeros() as usize].to.ip();
                        forming[number] = forming[number].map(|known| known.after_refusal(to));
                    }
                    for (place, &entry) in members.iter().enumerate() {
                        let Outgoing { source, to, ref bytes, .. } = queue[usize::from(entry)];
                        match outcome {
                            SendOutcome::Sent => {
                                let padding = plan.padding(k, place, bytes.len());
                                flushed.sent += 1;
                                flushed.bytes += (bytes.len() + padding) as u64;
                                flushed.padding += padding as u64;
                            }
                            SendOutcome::Full => flushed.full += 1,
                            SendOutcome::Refused(cause, _) => {
                                flushed.refused += 1;
                                refused(number, source, to, cause);
                            }
                        }
                    }
                    ControlFlow::Continue(())
                },
            );
            pending &= !settled;
        }
        queue.clear();
        flushed
    }
}

/// Returns whether the socket with this number may form batches. The kernel is asked once. A kernel
/// without support would send the bytes of all datagrams as one datagram.
fn may_form(forming: &mut Vec<Option<Forming>>, number: usize, socket: &UdpSocket) -> bool {
    if forming.len() <= number {
        forming.resize(number + 1, None);
    }
    let known = forming[number].get_or_insert_with(|| {
        // Zero is the default and changes nothing. The call only shows whether the kernel knows the
        // option.
        match sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0) {
            Ok(()) => Forming::Allowed,
            Err(_) => Forming::Impossible,
        }
    });
    *known != Forming::Impossible
}

/// Returns what the error of a batch means: `None` if its datagrams would also fail one by one,
/// `Some(true)` if the other batches of the socket may fail too, and `Some(false)` if the error
/// concerns only this batch. In the last two cases the datagrams should be sent one by one.
fn refuses_gso(code: i32) -> Option<bool> {
    match code {
        // EIO: the device computes no checksums. EINVAL has other causes too, such as port 0.
        libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP => Some(true),
        // The path MTU is smaller than one of its datagrams.
        libc::EMSGSIZE => Some(false),
        _ => None,
    }
}

impl Frames {
    /// Fills frames for the pending entries of one socket, a frame for each batch, and returns the
    /// batches. Entries whose bit is set in `may_join` may be in batches, with up to `pad_max`
    /// bytes added to each.
    fn fill(
        &mut self,
        queue: &[Outgoing],
        pending: u64,
        socket: usize,
        may_join: u64,
        pad_max: usize,
    ) -> GsoPlan {
        let chosen =
            |&(i, entry): &(usize, &Outgoing)| pending >> i & 1 == 1 && entry.socket == socket;
        let datagram = |(i, entry): (usize, &Outgoing)| Segment {
            entry: i as u8,
            to: entry.to,
            source: entry.source,
            len: entry.bytes.len(),
            may_join: may_join >> i & 1 == 1,
            batching: entry.batching,
        };
        let datagrams = queue.iter().enumerate().filter(chosen).map(datagram);
        let plan = GsoPlan::of(datagrams, pad_max);
        let mut end = 0;
        for (k, gso_batch) in plan.gso_batches().iter().enumerate() {
            let start = end;
            for (place, &entry) in plan.members(k).iter().enumerate() {
                let Outgoing { bytes, batching, .. } = &queue[usize::from(entry)];
                let mut put = |part: &[u8]| {
                    // The kernel only reads, despite the type.
                    let iov_base = part.as_ptr().cast_mut().cast();
                    self.vectors[end] = iovec { iov_base, iov_len: part.len() };
                    end += 1;
                };
                match plan.padding(k, place, bytes.len()) {
                    0 => put(bytes),
                    padding => {
                        let (before, after) = bytes.split_at(batching.pad_at.into());
                        [before, &SPACES[..padding], after].into_iter().for_each(put);
                    }
                }
            }
            let first = &queue[usize::from(plan.members(k)[0])];
            let (name, name_len) = Address::encode(first.to);
            self.names[k] = name;
            self.starts[k] = start as u8;
            let control = &mut self.controls[k];
            let used = first.source.map_or(0, |ip| control.leave_from(ip));
            let used = gso_batch.segment().map_or(used, |segment| control.cut_into(used, segment));
            let header = &mut self.headers[k].msg_hdr;
            header.msg_namelen = name_len;
            header.msg_iovlen = (end - start) as _;
            header.msg_controllen = used as _;
        }
        plan
    }

    /// Sends `gso_batches`. The first of them has the number `first`. The frames must have been
    /// filled by `fill`, and the entries must still exist. Returns the number of batches that the
    /// kernel took.
    fn send(
        &mut self,
        socket: &UdpSocket,
        gso_batches: &[GsoBatch],
        first: usize,
    ) -> io::Result<usize> {
        let frames = &raw mut *self;
        let count = gso_batches.len();
        assert!(first + count <= BATCH, "the frames have room for BATCH batches");
        // SAFETY: the pointers to names, vectors and controls are set here from the one raw pointer
        // that the call uses too, and each has the length that `fill` stated. From its start on, a
        // batch has as many vectors as `fill` counted. The bytes lie in buffers that the queue
        // holds until the flush ends, and in a static.
        let result = unsafe {
            for k in first..first + count {
                let header = &raw mut (*frames).headers[k].msg_hdr;
                (*header).msg_name = (&raw mut (*frames).names[k]).cast();
                let vectors = (&raw mut (*frames).vectors).cast::<iovec>();
                (*header).msg_iov = vectors.add(usize::from((*frames).starts[k]));
                (*header).msg_control = (&raw mut (*frames).controls[k]).cast();
            }
            libc::sendmmsg(
                socket.as_raw_fd(),
                (&raw mut (*frames).headers).cast::<mmsghdr>().add(first),
                count as c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// The outcome of sending a datagram or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendOutcome {
    Sent,
    Full,
    /// Refused, with the kernel's code.
    Refused(Cause, i32),
}

/// Passes `count` datagrams or batches to `send` until each has an outcome, or until `settle` stops
/// at a refused one. `send` gets an index, sends the items from this index on, and returns the
/// number of sent items. `wait` waits for room, or returns false if no time is left. Returns
/// whether there was an error that may be an ICMP report.
fn deliver(
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
            // A send call that neither sends nor fails would return zero. This is treated as an
            // error.
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

/// If the machine has lost the source of these datagrams, lets them leave from the address that the
/// kernel selects. They are one datagram or one batch, so they have one source. Returns whether the
/// machine has lost it. `checked` is the source that was checked last in this flush, and whether the
/// machine has it, because peers could cause many checks of one source.
fn forget_lost_source(
    queue: &mut [Outgoing],
    members: &[u8],
    checked: &mut Option<(IpAddr, bool)>,
) -> bool {
    let source = members.first().and_then(|&entry| queue[usize::from(entry)].source);
    let Some(source) = source else { return false };
    let has_it = match *checked {
        Some((ip, has_it)) if ip == source => has_it,
        _ => is_here(source),
    };
    *checked = Some((source, has_it));
    if has_it {
        return false;
    }
    for &entry in members {
        queue[usize::from(entry)].source = None;
    }
    true
}

/// Returns whether the machine has this address. A bind alone does not show this, because with
/// `ip_nonlocal_bind` a socket can be bound to any address. So the socket is also connected to the
/// address itself, which needs a route from this address.
fn is_here(ip: IpAddr) -> bool {
    let tried = UdpSocket::bind((ip, 0)).and_then(|socket| socket.connect((ip, DISCARD_PORT)));
    tried.err().is_none_or(|error| !is_about_address(&error))
}

/// Returns whether an error of [`is_here`] shows something about the address. A lack of files,
/// ports or memory does not, nor does a security policy.
fn is_about_address(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(
            libc::EMFILE
                | libc::ENFILE
                | libc::EADDRINUSE
                | libc::EAGAIN
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::EINTR
                | libc::EPERM
                | libc::EACCES
        )
    )
}

/// Returns the cause for an error code of a send call that is still there after [`TRIES`].
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
struct Patience {
    left: Duration,
}

impl Patience {
    /// Waits until the socket has room. Returns `false` when no time is left.
    fn wait_for_room(&mut self, socket: &UdpSocket) -> bool {
        if self.left.is_zero() {
            return false;
        }
        let began = Instant::now();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
        let timeout = Timespec::try_from(self.left).ok();
        // A wait that was interrupted, or ended by a pending error, is a shorter wait.
        let _ = poll(&mut fds, timeout.as_ref());
        // A wait that takes no time must not be repeated forever.
        let waited = began.elapsed().max(Duration::from_micros(1));
        self.left = self.left.saturating_sub(waited);
        fds[0].revents().contains(PollFlags::OUT) || !self.left.is_zero()
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
