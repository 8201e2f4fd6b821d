//! Datagrams received in batches, into pooled buffers.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::time::Duration;

use libc::{c_uint, iovec, mmsghdr};
use tidegate_world::{Buffer, LARGE, Pool, SMALL};

use crate::BATCH;
use crate::address::Address;
use crate::control::{Control, ControlMessages};

/// Maximum number of bytes by which a datagram exceeds an ordinary buffer.
const SPILL: usize = LARGE - SMALL;

/// Maximum number of repeated system calls if a call returns a pending error or is interrupted.
const RETRIES: usize = 4;

/// A received datagram, with the kernel's control data.
#[derive(Debug)]
pub struct Datagram {
    /// Address of the sender.
    pub remote: SocketAddr,
    /// The bytes of the datagram.
    pub bytes: Buffer,
    /// Time at which the kernel received the datagram, since 1970 (CLOCK_REALTIME), if the kernel
    /// records this time for the socket.
    pub stamp: Option<Duration>,
    /// Number of datagrams that the socket had dropped up to this datagram, modulo 2^32, or `None`
    /// before the first drop.
    pub drops: Option<u32>,
    /// The local address to which the datagram came, if the socket is bound to a wildcard.
    pub to: Option<IpAddr>,
    /// True if the datagram is longer than any buffer. Then `bytes` is only its beginning.
    pub cut: bool,
}

/// A receiver of up to [`BATCH`] datagrams by one system call.
///
/// Each of the [`BATCH`] slots receives a datagram into a pooled buffer of [`SMALL`] bytes. The
/// rest of a longer datagram goes into a separate area, whose memory is used only after a large
/// datagram has arrived. Receiving allocates memory only for large datagrams.
pub struct Inbox {
    slots: NonNull<Slots>,
    buffers: Vec<Buffer>,
    pool: Pool,
    /// Slots with datagrams that have not been taken yet.
    held: std::ops::Range<usize>,
    /// Number of slots that the last system call filled. They must be prepared again before the
    /// next system call.
    stale: usize,
    saw_report: bool,
}

/// The memory that the kernel reads and writes. The code accesses it only through a raw pointer,
/// and never through a reference to the whole struct, so that the pointers in it stay valid between
/// system calls.
struct Slots {
    headers: [mmsghdr; BATCH],
    vectors: [[iovec; 2]; BATCH],
    names: [Address; BATCH],
    controls: [Control; BATCH],
    spills: NonNull<u8>,
}

impl Inbox {
    /// Creates an inbox that fills buffers of `pool`.
    pub fn new(pool: &Pool) -> Self {
        // The allocator maps zeroed memory of this size without writing to it, so a page takes
        // memory only when the kernel writes to it.
        let spills = Box::into_raw(vec![0u8; BATCH * SPILL].into_boxed_slice());
        let slots = Box::new(Slots {
            // SAFETY: headers and vectors are integers and pointers, for which zero is valid.
            headers: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            vectors: unsafe { std::mem::zeroed() },
            names: [Address::empty(); BATCH],
            controls: [Control::empty(); BATCH],
            spills: NonNull::new(spills.cast()).expect("an allocation is not null"),
        });
        Self {
            slots: NonNull::from(Box::leak(slots)),
            buffers: (0..BATCH).map(|_| pool.take()).collect(),
            pool: pool.clone(),
            held: 0..0,
            stale: BATCH,
            saw_report: false,
        }
    }

    /// Receives waiting datagrams, up to `max` and at most [`BATCH`], without waiting for more.
    /// Datagrams received before but not taken are discarded. Returns zero if no datagram waits.
    ///
    /// # Errors
    /// Returns the errors of `recvmmsg(2)`, other than an empty queue. A pending ICMP report is no
    /// error: it is skipped, and stays in the error queue.
    pub fn receive(&mut self, socket: &UdpSocket, max: usize) -> io::Result<usize> {
        self.held = 0..0;
        self.prepare();
        let mut tries = 0;
        loop {
            // SAFETY: `prepare` made every header point to names, vectors and controls of its own
            // slot, and every vector to a buffer and a spill of the stated length. All of them are
            // owned by `self`, and no other code reads or writes them during the call. `max`
            // headers exist.
            let result = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    (&raw mut (*self.slots.as_ptr()).headers).cast::<mmsghdr>(),
                    max.min(BATCH) as c_uint,
                    libc::MSG_DONTWAIT as _,
                    ptr::null_mut(),
                )
            };
            if let Ok(filled) = usize::try_from(result) {
                self.held = 0..filled;
                self.stale = filled;
                return Ok(filled);
            }
            let error = io::Error::last_os_error();
            tries += 1;
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(0),
                Some(libc::EINTR) if tries <= RETRIES => {}
                Some(code) if is_pending_report(code) => {
                    self.saw_report = true;
                    if tries > RETRIES {
                        return Ok(0);
                    }
                }
                _ => return Err(error),
            }
        }
    }

    /// Takes the next datagram of the last [`receive`](Self::receive), in the order of arrival.
    #[inline]
    pub fn take(&mut self) -> Option<Datagram> {
        loop {
            let slot = self.held.next()?;
            // SAFETY: the slot was filled by the last call, so its header, name and control
            // messages are as the kernel left them. No reference to them is kept.
            let (len, remote, notes, cut) = unsafe {
                let slots = self.slots.as_ptr();
                let header = &(*slots).headers[slot];
                let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
                let remote = (*slots).names[slot].decode();
                (header.msg_len as usize, remote, ControlMessages::read(&header.msg_hdr), cut)
            };
            // Only IP sockets are read, so a sender always has an address.
            let Some(remote) = remote else { continue };
            let bytes = self.take_bytes(slot, len);
            let ControlMessages { stamp, drops, to, report: _, offender: _ } = notes;
            return Some(Datagram { remote, bytes, stamp, drops, to, cut });
        }
    }

    /// Returns whether a receive call has returned an ICMP report since the last call of this
    /// function. If so, the error queue of its socket has entries.
    pub(crate) fn take_report_sign(&mut self) -> bool {
        std::mem::take(&mut self.saw_report)
    }

    fn take_bytes(&mut self, slot: usize, len: usize) -> Buffer {
        let mut bytes = std::mem::replace(&mut self.buffers[slot], self.pool.take());
        let room = bytes.room_mut().len();
        bytes.set_len(len.min(room));
        if len > room {
            // SAFETY: the kernel wrote `len - room` bytes of the slot's spill, which lies within
            // the allocation. Nothing writes there while the slice lives.
            let spill = unsafe {
                let spills = (*self.slots.as_ptr()).spills;
                std::slice::from_raw_parts(spills.add(slot * SPILL).as_ptr(), len - room)
            };
            bytes.push(spill).expect("a buffer can hold the longest datagram");
        }
        bytes
    }

    /// Makes the slots that the last system call filled ready for the next one. The other slots are
    /// ready already.
    fn prepare(&mut self) {
        for slot in 0..self.stale {
            let room = self.buffers[slot].room_mut();
            debug_assert_eq!(room.len(), SMALL, "the pool did not yield a small buffer");
            // SAFETY: `slot` is less than BATCH. Every place is inside an allocation owned by
            // `self`. The buffer's bytes stay where they are until `take_bytes` takes the buffer,
            // after which this slot is prepared again.
            unsafe {
                let slots = self.slots.as_ptr();
                (*slots).vectors[slot] = [
                    iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
                    iovec {
                        iov_base: (*slots).spills.add(slot * SPILL).as_ptr().cast(),
                        iov_len: SPILL,
                    },
                ];
                let header = &raw mut (*slots).headers[slot].msg_hdr;
                (*header).msg_name = (&raw mut (*slots).names[slot]).cast();
                (*header).msg_namelen = Address::ROOM;
                (*header).msg_iov = (&raw mut (*slots).vectors[slot]).cast();
                (*header).msg_iovlen = 2;
                (*header).msg_control = (&raw mut (*slots).controls[slot]).cast();
                (*header).msg_controllen = Control::ROOM as _;
                (*header).msg_flags = 0;
            }
        }
        self.stale = 0;
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // SAFETY: both allocations were leaked by `new` and are freed here only. The spills have
        // the length they were allocated with.
        unsafe {
            let slots = Box::from_raw(self.slots.as_ptr());
            let spills = ptr::slice_from_raw_parts_mut(slots.spills.as_ptr(), BATCH * SPILL);
            drop(Box::from_raw(spills));
        }
    }
}

/// Returns whether an error code can be an ICMP report for an earlier datagram. The kernel returns
/// such a report once, from the next system call on the socket, whatever the call does.
pub(crate) fn is_pending_report(code: i32) -> bool {
    matches!(
        code,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EOPNOTSUPP
            | libc::EMSGSIZE
            | libc::EACCES
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        a.connect(b.local_addr().unwrap()).unwrap();
        (a, b)
    }

    fn taken(inbox: &mut Inbox) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| inbox.take()).map(|d| d.bytes.to_vec()).collect()
    }

    #[test]
    fn a_batch_is_taken_in_the_order_of_arrival() {
        let (from, to) = pair();
        let mut inbox = Inbox::new(&Pool::new());
        assert_eq!(inbox.receive(&to, BATCH).unwrap(), 0);
        for i in 0..100u8 {
            from.send(&[i; 3]).unwrap();
        }
        let mut got = Vec::new();
        for expected in [10, 64, 26, 0] {
            let max = if got.is_empty() { 10 } else { 1000 };
            assert_eq!(inbox.receive(&to, max).unwrap(), expected);
            got.extend(taken(&mut inbox));
        }
        assert_eq!(got, (0..100u8).map(|i| vec![i; 3]).collect::<Vec<_>>());
    }

    #[test]
    fn lengths_around_a_buffers_end_survive() {
        let (from, to) = pair();
        let pool = Pool::new();
        let mut inbox = Inbox::new(&pool);
        for len in [0, 1, SMALL - 1, SMALL, SMALL + 1, 60 * 1024, 65_507, 3] {
            let sent: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
            from.send(&sent).unwrap();
            assert_eq!(inbox.receive(&to, BATCH).unwrap(), 1);
            let datagram = inbox.take().unwrap();
            assert!(datagram.bytes[..] == sent[..], "{len} bytes");
            assert!(!datagram.cut);
            assert_eq!(datagram.remote, from.local_addr().unwrap());
        }
    }

    #[test]
    fn untaken_messages_are_discarded_and_their_buffers_reused() {
        let (from, to) = pair();
        let pool = Pool::new();
        let mut inbox = Inbox::new(&pool);
        for text in ["discarded", "too"] {
            from.send(text.as_bytes()).unwrap();
        }
        assert_eq!(inbox.receive(&to, BATCH).unwrap(), 2);
        from.send(b"taken").unwrap();
        assert_eq!(inbox.receive(&to, BATCH).unwrap(), 1);
        assert_eq!(taken(&mut inbox), [b"taken".to_vec()]);
        assert!(inbox.take().is_none());
        drop(inbox);
        assert_eq!(pool.used().live, 0);
    }

    #[test]
    fn receiving_uses_the_same_buffers_over_and_over() {
        let (from, to) = pair();
        let pool = Pool::new();
        let mut inbox = Inbox::new(&pool);
        for _ in 0..200 {
            from.send(b"again").unwrap();
            assert_eq!(inbox.receive(&to, BATCH).unwrap(), 1);
            assert_eq!(taken(&mut inbox).len(), 1);
        }
        assert_eq!(pool.used().small_allocated, BATCH as u64 + 1);
    }
}
