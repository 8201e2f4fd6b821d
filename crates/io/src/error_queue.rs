//! ICMP reports from a socket's error queue.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use tidegate_world::{Cause, QUOTE_MAX};

use crate::address::Address;
use crate::control::{Control, ControlMessages};
use crate::outbox::cause;

/// An ICMP report about a datagram that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The destination of the datagram.
    pub remote: SocketAddr,
    /// The reason why the datagram did not arrive.
    pub cause: Cause,
    /// The local address to which the report came, if the socket is bound to a wildcard.
    pub to: Option<IpAddr>,
    /// The beginning of the datagram, as far as the report quotes it, at most [`QUOTE_MAX`] bytes.
    /// If the datagram was part of a GSO batch, the quote may be of the first datagram of the batch
    /// instead.
    pub quote: &'a [u8],
}

/// A reader of error queues, which sockets with `IP_RECVERR` have.
///
/// The kernel finds the socket for an ICMP report by a hash of the addresses, not by the BPF
/// program that steers datagrams. So within a `SO_REUSEPORT` group, a report may come to a socket
/// other than the one that sent the datagram, and so to another shard.
pub struct ErrorQueue {
    name: Address,
    control: Control,
    quote: [u8; QUOTE_MAX],
}

impl Default for ErrorQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl ErrorQueue {
    /// Creates a reader of error queues.
    pub fn new() -> Self {
        Self { name: Address::empty(), control: Control::empty(), quote: [0; QUOTE_MAX] }
    }

    /// Takes up to `max` entries from the socket's error queue and passes on those that report a
    /// lost datagram. Returns the number of entries. If it is less than `max`, the queue is empty.
    ///
    /// # Errors
    /// Returns the errors of `recvmsg(2)`, other than an empty queue.
    pub fn drain(
        &mut self,
        socket: &UdpSocket,
        max: usize,
        mut hand_on: impl FnMut(Report<'_>),
    ) -> io::Result<usize> {
        for taken in 0..max {
            let Some((notes, quoted)) = self.next(socket)? else { return Ok(taken) };
            if let Some(report) = self.report(notes, quoted) {
                hand_on(report);
            }
        }
        Ok(max)
    }

    /// Reads the next entry, and the length of its quote. Returns `None` if the queue is empty.
    fn next(&mut self, socket: &UdpSocket) -> io::Result<Option<(ControlMessages, usize)>> {
        // SAFETY: zero is valid for every field of a `msghdr`.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut self.name).cast();
        header.msg_namelen = Address::ROOM;
        // The part of the datagram for which there is no room is cut off.
        let mut vector = libc::iovec { iov_base: (&raw mut self.quote).cast(), iov_len: QUOTE_MAX };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut self.control).cast();
        header.msg_controllen = Control::ROOM as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: name, vector and control messages have the room stated.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        if result < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: the kernel has just filled the control messages of `header`.
        let notes = unsafe { ControlMessages::read(&header) };
        Ok(Some((notes, usize::try_from(result).unwrap_or(0))))
    }

    fn report(&self, notes: ControlMessages, quoted: usize) -> Option<Report<'_>> {
        let entry = notes.report?;
        match entry.ee_origin {
            libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => {}
            // SO_EE_ORIGIN_LOCAL: the send call that failed has already reported it, and over IPv4
            // the entry lacks the port.
            _ => return None,
        }
        let remote = self.name.decode()?;
        let cause = match cause(i32::try_from(entry.ee_errno).unwrap_or(0)) {
            // Only the host itself can report that nothing listens at a port. The kernel accepts a
            // report from any sender that knows our port, without comparing the report with our
            // packets.
            Cause::Refused if notes.offender != Some(remote.ip()) => Cause::Other,
            cause => cause,
        };
        Some(Report { remote, cause, to: notes.to, quote: self.quote.get(..quoted)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockopt;
    use std::os::fd::AsFd;

    /// Returns the number of entries, and the destination, the cause and the quote of each report
    /// among them.
    fn drained(socket: &UdpSocket, max: usize) -> (usize, Vec<(SocketAddr, Cause, Vec<u8>)>) {
        let mut reports = Vec::new();
        let taken = ErrorQueue::new().drain(socket, max, |report| {
            assert_eq!(report.to, None);
            reports.push((report.remote, report.cause, report.quote.to_vec()));
        });
        (taken.unwrap(), reports)
    }

    fn report_of_closed_port(any: &str, level: i32, name: i32) {
        let socket = UdpSocket::bind(any).unwrap();
        sockopt::set(socket.as_fd(), level, name, 1).unwrap();
        let closed = UdpSocket::bind(any).unwrap().local_addr().unwrap();
        assert_eq!(drained(&socket, 9), (0, vec![]));
        // This datagram is longer than the limit on quotes, and longer than the quote of a report
        // over IPv4.
        let long: Vec<u8> = (0..=u8::MAX).cycle().take(2000).collect();
        for bytes in [b"anyone?", b"at all?", &long[..]] {
            // A later send may return the report of an earlier one.
            while socket.send_to(bytes, closed).is_err() {}
        }
        let report = |quote: &[u8]| (closed, Cause::Refused, quote.to_vec());
        assert_eq!(drained(&socket, 2), (2, vec![report(b"anyone?"), report(b"at all?")]));
        let (taken, reports) = drained(&socket, 9);
        let [(remote, cause, quote)] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((taken, *remote, *cause), (1, closed, Cause::Refused));
        // RFC 1812 §4.3.2.3: as much as fits into 576 bytes, headers included.
        assert!((500..=QUOTE_MAX).contains(&quote.len()) && long.starts_with(quote));
    }

    #[test]
    fn a_closed_port_is_reported_with_its_address() {
        report_of_closed_port("127.0.3.3:0", libc::IPPROTO_IP, libc::IP_RECVERR);
        report_of_closed_port("[::1]:0", libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
    }

    #[test]
    fn a_datagram_that_the_send_call_refused_is_not_reported_again() {
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        let set = |name, value| {
            sockopt::set(socket.as_fd(), libc::IPPROTO_IPV6, name, value).unwrap();
        };
        set(libc::IPV6_RECVERR, 1);
        set(libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO);
        // With its headers of 48 bytes, the datagram is longer than the MTU of the loopback, which
        // is 65,536.
        let to = socket.local_addr().unwrap();
        let error = socket.send_to(&[0; 65_500], to).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(drained(&socket, 9), (1, vec![]));
    }
}
