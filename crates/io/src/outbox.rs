//! Datagrams sent in batches, from several sockets to many destinations, using segmentation offload
//! for datagrams to one destination.

mod delivery;
mod frames;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use tidegate_world::{Batching, Buffer, Cause};

pub(crate) use self::delivery::cause;
use self::delivery::{Patience, SendOutcome, deliver};
use self::frames::Frames;
use crate::BATCH;
use crate::sockopt;

/// The discard port (RFC 863), to which a socket is connected but sends nothing.
const DISCARD_PORT: u16 = 9;

const _: () = assert!(BATCH == u64::BITS as usize, "a flush does not keep one bit for each entry");

/// The counts of one [flush](Outbox::flush) of an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Number of datagrams sent.
    pub sent: u64,
    /// GSO batches sent: several datagrams to one destination in one message to the kernel.
    pub gso_batches: u64,
    /// Datagrams sent in GSO batches.
    pub in_gso_batches: u64,
    /// Bytes of white space added to datagrams so that they could join a batch.
    pub padding: u64,
    /// Datagrams dropped because the send buffer or the queue of the device stayed full.
    pub full: u64,
    /// True if an error queue may have entries: a send call has returned an ICMP report, or has
    /// sent only some of its datagrams, perhaps because of a report.
    pub saw_report: bool,
}

/// Up to [`BATCH`] datagrams to send. The order of datagrams from one socket to one destination is
/// kept, except for different [sequences](Batching::sequence). Sending allocates nothing.
///
/// Datagrams of one length from one socket to one destination leave as a GSO batch, if the kernel
/// supports it (Linux 4.18) and the path allows it. Datagrams that [may be
/// padded](Batching::pad_at) are padded to one length. If the kernel refuses batches to two
/// addresses but sends their datagrams one by one, the socket forms no batches for a minute (see
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
    /// The kernel refused batches to two addresses. The socket forms none until this time. Then it
    /// tries again, because both paths may have a small MTU.
    SuspendedUntil(Instant),
    /// The kernel does not support batches.
    Impossible,
}

/// Time for which a socket forms no batches after the kernel has refused batches to two addresses.
const SUSPENDED_FOR: Duration = Duration::from_secs(60);

impl Forming {
    /// Returns the state after the kernel refused a batch to `to` but sent its datagrams one by
    /// one.
    fn after_refusal(self, to: IpAddr) -> Self {
        match self {
            Self::Allowed => Self::RefusedTo(to),
            Self::RefusedTo(other) if other == to => self,
            Self::RefusedTo(_) => Self::SuspendedUntil(Instant::now() + SUSPENDED_FOR),
            Self::SuspendedUntil(_) | Self::Impossible => self,
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

/// Maximum number of bytes added to a datagram.
const PAD_MAX: usize = 64;

impl Outbox {
    /// Creates an empty outbox. Without `gso` it sends each datagram separately. Otherwise it adds
    /// up to `pad_max` bytes to a datagram that joins a batch, at most 64.
    pub fn new(gso: bool, pad_max: usize) -> Self {
        let (frames, pad_max) = (Box::new(Frames::new()), pad_max.min(PAD_MAX));
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
    /// from the address that the kernel selects. `batching` states the rules for combining the
    /// datagram with others in a GSO batch.
    ///
    /// # Panics
    /// Panics if the outbox is full, or if `pad_at` is beyond the end of the datagram.
    #[inline]
    pub fn push(
        &mut self,
        socket: usize,
        source: Option<IpAddr>,
        to: SocketAddr,
        bytes: Buffer,
        batching: Batching,
    ) {
        assert!(
            usize::from(batching.pad_at) <= bytes.len(),
            "the padding begins after the end of the datagram"
        );
        self.queue.push(Outgoing { socket, to, source, bytes, batching });
    }

    /// Sends all datagrams, and empties the outbox. `sockets` returns the socket for each number.
    /// If a send buffer is full, the flush waits, for at most `wait` in all, and then drops the
    /// remaining datagrams of that socket. `refused` is called for each datagram that the kernel
    /// does not send, with the number of its socket, its source, its destination, and the cause.
    pub fn flush<'s>(
        &mut self,
        sockets: impl Fn(usize) -> &'s UdpSocket,
        wait: Duration,
        mut refused: impl FnMut(usize, Option<IpAddr>, SocketAddr, Cause),
    ) -> Flushed {
        let Self { queue, frames, gso, pad_max, forming } = self;
        let mut flushed = Flushed::default();
        let mut patience = Patience::new(wait);
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
                        // Stops here: the datagrams after this batch must not overtake it.
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
                                flushed.sent += 1;
                                flushed.padding += plan.padding(k, place, bytes.len()) as u64;
                            }
                            SendOutcome::Full => flushed.full += 1,
                            SendOutcome::Refused(cause, _) => refused(number, source, to, cause),
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
    if let Forming::SuspendedUntil(until) = *known
        && until <= Instant::now()
    {
        *known = Forming::Allowed;
    }
    matches!(known, Forming::Allowed | Forming::RefusedTo(_))
}

/// Returns the meaning of the error of a batch. `None`: its datagrams would also fail one by one.
/// `Some(true)`: the other batches of the socket may fail too. `Some(false)`: the error concerns
/// only this batch. In the last two cases the datagrams should be sent one by one.
fn refuses_gso(code: i32) -> Option<bool> {
    match code {
        // EIO: the device computes no checksums. EINVAL has other causes too, such as port 0.
        libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP => Some(true),
        // The path MTU is smaller than one of its datagrams.
        libc::EMSGSIZE => Some(false),
        _ => None,
    }
}

/// Removes the source address from the datagrams `members` if the machine no longer has this
/// address. The kernel then selects the source. `members` are one datagram or one batch, so they
/// have one source. Returns whether the source was removed.
///
/// `checked` is the source that was checked last in this flush, and whether the machine has it. It
/// saves repeated checks of one source, which peers could cause.
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

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
