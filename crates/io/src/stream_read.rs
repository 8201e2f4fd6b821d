//! Bytes read from a connection, with the time of their arrival.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::slice;
use std::time::Duration;

use libc::{iovec, msghdr};

use crate::control::{Control, ControlMessages};

/// Reads bytes with one system call. Returns the bytes, and the time at which the kernel received
/// the last of them (CLOCK_REALTIME, since 1970). Without `SO_TIMESTAMPNS`, the time is `None`.
///
/// # Errors
/// Returns the errors of `recvmsg(2)`.
pub(crate) fn read<'b>(
    fd: BorrowedFd<'_>,
    bytes: &'b mut [MaybeUninit<u8>],
) -> io::Result<(&'b [u8], Option<Duration>)> {
    let mut control = Control::empty();
    let mut vector = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a header is made of integers and pointers, for which zero is valid.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = Control::ROOM as _;
    // SAFETY: the header points to one vector with the room of `bytes`, and to the room of
    // `control`. Both live until the end of this function, and nothing else uses them meanwhile.
    let result = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, 0) };
    let count = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled `control` and has set its length in the header.
    let stamp = unsafe { ControlMessages::read(&header) }.stamp;
    // SAFETY: the kernel has written the first `count` bytes.
    let read = unsafe { slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), count) };
    Ok((read, stamp))
}
