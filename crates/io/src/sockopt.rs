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

/// Attaches a classic-BPF program that picks a member of the socket's `SO_REUSEPORT` group.
pub(crate) fn attach_reuseport(fd: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the instructions; the field is mutable by history.
    let value = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    set_value(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &value)
}

/// Datagrams the kernel has dropped at the socket since it was opened, modulo 2^32.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
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
    Ok(words[libc::SK_MEMINFO_DROPS as usize])
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
