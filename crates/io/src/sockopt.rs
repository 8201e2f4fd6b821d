//! Socket options for which `socket2` has no function.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_void, sock_filter, sock_fprog, socklen_t};

/// Words of `SO_MEMINFO` (linux/sock_diag.h, `SK_MEMINFO_VARS`).
const MEMINFO_WORDS: usize = 9;

/// Sets an option whose value is an integer.
pub(crate) fn set(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_value(fd, level, name, &value)
}

/// Attaches a classic-BPF program that selects a member of the socket's `SO_REUSEPORT` group.
pub(crate) fn attach_reuseport(fd: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Attaches a classic-BPF program that returns how much of each datagram the socket keeps.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, program)
}

fn attach(fd: BorrowedFd<'_>, name: c_int, program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the instructions. The field is mutable for historical reasons.
    let value = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    set_value(fd, libc::SOL_SOCKET, name, &value)
}

/// The receive buffer of a socket, as the kernel accounts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReceiveBuffer {
    /// Datagrams dropped since the socket was opened, modulo 2^32.
    pub(crate) drops: u32,
    /// Share of its memory in use, 0 to 1. While datagrams wait, up to a quarter may belong to
    /// datagrams that were already read, because UDP returns memory in pieces.
    pub(crate) fill: f32,
}

/// Reads the state of a socket's receive buffer.
pub(crate) fn receive_buffer(fd: BorrowedFd<'_>) -> io::Result<ReceiveBuffer> {
    let mut words = [0u32; MEMINFO_WORDS];
    let mut len = size_of_val(&words) as socklen_t;
    // SAFETY: `words` is writable for `len` bytes, and the kernel writes no more.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast::<c_void>(),
            &mut len,
        )
    };
    checked(result)?;
    let word = |index: c_int| words[index as usize];
    let [used, limit] = [libc::SK_MEMINFO_RMEM_ALLOC, libc::SK_MEMINFO_RCVBUF].map(word);
    // The last datagram that is admitted may exceed the limit.
    let fill = (used as f32 / limit.max(1) as f32).min(1.0);
    Ok(ReceiveBuffer { drops: word(libc::SK_MEMINFO_DROPS), fill })
}

fn set_value<T>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is readable for its size during the call. The pointer inside a
    // `sock_fprog` is that of a slice, borrowed by the caller for longer than the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    checked(result)
}

fn checked(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
