//! Socket options for which `socket2` has no function.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{c_int, c_void, sock_filter, sock_fprog, socklen_t};

/// Number of 32-bit words in `SO_MEMINFO` (linux/sock_diag.h, `SK_MEMINFO_VARS`).
const MEMINFO_WORDS: usize = 9;

/// Length of the part of `TCP_INFO` that is read, in 32-bit words. The part ends with
/// `tcpi_bytes_received` (linux/tcp.h, `struct tcp_info`).
const TCP_INFO_WORDS: usize = 34;

/// Index of `tcpi_last_data_sent` in `TCP_INFO`: the milliseconds since the last bytes were sent.
const LAST_DATA_SENT: usize = 11;

/// Index of `tcpi_last_data_recv` in `TCP_INFO`: the milliseconds since the last bytes were
/// received.
const LAST_DATA_RECEIVED: usize = 13;

/// Index of the first of the two words of `tcpi_bytes_received` in `TCP_INFO`.
const BYTES_RECEIVED: usize = 32;

/// Sets an option whose value is an integer.
pub(crate) fn set(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_value(fd, level, name, &value)
}

/// Attaches a classic-BPF program to an `SO_REUSEPORT` group. For each datagram, the program
/// selects the socket of the group that gets it.
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
    /// Share of the buffer's memory that is in use, 0 to 1. While datagrams wait, up to a quarter
    /// may belong to datagrams that were already read, because UDP returns memory in pieces.
    pub(crate) fill: f32,
}

/// Reads the state of a socket's receive buffer.
pub(crate) fn receive_buffer(fd: BorrowedFd<'_>) -> io::Result<ReceiveBuffer> {
    let mut words = [0u32; MEMINFO_WORDS];
    read_words(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words)?;
    let word = |index: c_int| words[index as usize];
    let [used, limit] = [libc::SK_MEMINFO_RMEM_ALLOC, libc::SK_MEMINFO_RCVBUF].map(word);
    // The last datagram that is admitted may exceed the limit.
    let fill = (used as f32 / limit.max(1) as f32).min(1.0);
    Ok(ReceiveBuffer { drops: word(libc::SK_MEMINFO_DROPS), fill })
}

/// The state of a connection that was just accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Time since the connection opened. The kernel counts in ticks of some milliseconds.
    pub(crate) waited: Duration,
    /// Time since the last bytes of the peer arrived, with the same precision. Without bytes, it is
    /// the time since the connection opened.
    pub(crate) quiet: Duration,
    /// True if the peer has sent any bytes, or has ended the connection.
    pub(crate) has_bytes: bool,
}

/// Reads how long a connection that was just accepted has waited. The caller must not have sent
/// anything on it: until something is sent, the kernel counts from the time at which the connection
/// opened.
pub(crate) fn arrival(fd: BorrowedFd<'_>) -> io::Result<Arrival> {
    let mut words = [0u32; TCP_INFO_WORDS];
    read_words(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut words)?;
    let millis = |word: usize| Duration::from_millis(words[word].into());
    Ok(Arrival {
        waited: millis(LAST_DATA_SENT),
        quiet: millis(LAST_DATA_RECEIVED),
        has_bytes: words[BYTES_RECEIVED..].iter().any(|&word| word > 0),
    })
}

/// Reads an option into `words`. The value of the option is a structure of 32-bit words. `words`
/// does not change after the end of the structure.
fn read_words(fd: BorrowedFd<'_>, level: c_int, name: c_int, words: &mut [u32]) -> io::Result<()> {
    let mut len = size_of_val(words) as socklen_t;
    // SAFETY: `words` is writable for `len` bytes, and the kernel writes no more.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, words.as_mut_ptr().cast::<c_void>(), &mut len)
    };
    checked(result)
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
