//! The memory from which the kernel reads the datagrams to send.
#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use libc::{c_uint, iovec, mmsghdr};

use super::{Outgoing, PAD_MAX};
use crate::BATCH;
use crate::address::Address;
use crate::control::Control;
use crate::gso::{GsoBatch, GsoPlan, Segment};

/// Maximum number of pieces in memory that form a padded datagram: its beginning, the padding, and
/// its rest.
const PIECES: usize = 3;

/// White space, from which the padding of a datagram is taken.
static SPACES: [u8; PAD_MAX] = [b' '; PAD_MAX];

const _: () = assert!(PIECES * BATCH <= u8::MAX as usize, "the index of a vector exceeds a byte");

/// The headers, I/O vectors and addresses that `sendmmsg` reads. They are valid only during a
/// flush.
pub(super) struct Frames {
    headers: [mmsghdr; BATCH],
    vectors: [iovec; PIECES * BATCH],
    /// For each message to the kernel, the index of its first I/O vector.
    starts: [u8; BATCH],
    names: [Address; BATCH],
    controls: [Control; BATCH],
}

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            // SAFETY: headers and vectors are integers and pointers, for which zero is valid.
            headers: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            vectors: unsafe { std::mem::zeroed() },
            starts: [0; BATCH],
            names: [Address::empty(); BATCH],
            controls: [Control::empty(); BATCH],
        }
    }

    /// Forms batches of the `pending` entries of `queue` that belong to `socket`, and fills one
    /// frame for each batch. Returns the batches. An entry shares a batch with others only if its
    /// bit is set in `may_join`. Then at most `pad_max` bytes are added to it.
    pub(super) fn fill(
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

    /// Sends `gso_batches`. The first of them has the number `first`. Their frames must have been
    /// filled by [`fill`](Self::fill), and their datagrams must still exist. Returns the number of
    /// batches that the kernel took.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        gso_batches: &[GsoBatch],
        first: usize,
    ) -> io::Result<usize> {
        let frames = &raw mut *self;
        let count = gso_batches.len();
        assert!(first + count <= BATCH, "the frames have no room for these batches");
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
