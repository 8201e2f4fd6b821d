//! Control messages: data that the kernel passes along with a datagram.
#![allow(unsafe_code)]

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;
use std::time::Duration;

use crate::address::Address;
use libc::{c_int, in_pktinfo, in6_pktinfo, msghdr, sock_extended_err, timespec};

/// Maximum size of the control messages of a datagram, in bytes: a timestamp (32), the number of
/// drops (24) and the destination address (40 for IPv6). An entry of an error queue has a
/// timestamp, the destination address, and an error report with the address of its sender (64).
const ROOM: usize = 192;

/// Memory for a datagram's control messages, aligned as `cmsghdr` requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control([u8; ROOM]);

impl Control {
    /// The size of a [`Control`], in bytes.
    pub(crate) const ROOM: usize = ROOM;

    /// Creates memory without control messages.
    pub(crate) const fn empty() -> Self {
        Self([0; ROOM])
    }

    /// Writes a control message with the source address of a datagram that a wildcard socket sends.
    /// Returns the length of the control message.
    pub(crate) fn leave_from(&mut self, source: IpAddr) -> usize {
        match source {
            IpAddr::V4(ip) => {
                let s_addr = u32::from_ne_bytes(ip.octets());
                let info = in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.write(0, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
            }
            IpAddr::V6(ip) => {
                let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                let info = in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                self.write(0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
            }
        }
    }

    /// Appends a control message (`UDP_SEGMENT`) that tells the kernel to cut the payload into
    /// datagrams of `segment` bytes. The last datagram may be shorter. `used` is the length of the
    /// control messages that are already written. Returns the total length.
    pub(crate) fn cut_into(&mut self, used: usize, segment: u16) -> usize {
        used + self.write(used, libc::SOL_UDP, libc::UDP_SEGMENT, segment)
    }

    /// Writes a control message at offset `at`. Returns its length.
    fn write<T: Copy>(&mut self, at: usize, level: c_int, kind: c_int, value: T) -> usize {
        let room = size_of::<T>() + size_of::<libc::cmsghdr>() + 8;
        assert!(
            at.is_multiple_of(8) && at + room <= ROOM,
            "the control message is not aligned to 8 bytes, or there is no room for it"
        );
        // SAFETY: CMSG_LEN and CMSG_SPACE only compute. The room is aligned for a
        // `cmsghdr` there and holds one with a `T` behind it, by the assertion above.
        unsafe {
            let message = self.0.as_mut_ptr().add(at).cast::<libc::cmsghdr>();
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
            ptr::write_unaligned(libc::CMSG_DATA(message).cast::<T>(), value);
            libc::CMSG_SPACE(size_of::<T>() as u32) as usize
        }
    }
}

/// The control messages of one datagram.
#[derive(Clone, Copy, Default)]
pub(crate) struct ControlMessages {
    /// Time at which the kernel received the datagram: CLOCK_REALTIME, since 1970.
    pub(crate) stamp: Option<Duration>,
    /// Number of datagrams that the socket had dropped up to this datagram, modulo 2^32, or `None`
    /// before the first drop.
    pub(crate) drops: Option<u32>,
    /// The local destination address, if the socket is bound to a wildcard.
    pub(crate) to: Option<IpAddr>,
    /// The kernel's report on a datagram that could not be delivered, if these messages come from
    /// an error queue.
    pub(crate) report: Option<sock_extended_err>,
    /// The address that sent the report, if it comes from an error queue and the kernel knows it.
    pub(crate) offender: Option<IpAddr>,
}

impl ControlMessages {
    /// Reads the control messages of a received header.
    ///
    /// # Safety
    /// `msg_control` of `header` is readable for `msg_controllen` bytes and was filled
    /// by the kernel.
    pub(crate) unsafe fn read(header: &msghdr) -> Self {
        let mut notes = Self::default();
        // SAFETY: as this function demands. CMSG_FIRSTHDR and CMSG_NXTHDR yield only messages that
        // lie within the room, and the kernel writes each message completely. So a message of a
        // given level and type has at least the size of its structure.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while !message.is_null() {
                let data = libc::CMSG_DATA(message);
                match ((*message).cmsg_level, (*message).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let stamp = ptr::read_unaligned(data.cast::<timespec>());
                        notes.stamp = Some(since_1970(stamp));
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        notes.drops = Some(ptr::read_unaligned(data.cast::<u32>()));
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        // `ipi_addr` may be a broadcast address, which cannot be a source. But with
                        // an ICMP report, the kernel gives no other address.
                        let info = ptr::read_unaligned(data.cast::<in_pktinfo>());
                        let ip = [info.ipi_spec_dst, info.ipi_addr]
                            .map(|a| Ipv4Addr::from(a.s_addr.to_ne_bytes()));
                        notes.to = ip.into_iter().find(|ip| !ip.is_unspecified()).map(Into::into);
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = ptr::read_unaligned(data.cast::<in6_pktinfo>());
                        notes.to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    (libc::IPPROTO_IP, libc::IP_RECVERR)
                    | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                        let report = ptr::read_unaligned(data.cast::<sock_extended_err>());
                        notes.report = Some(report);
                        // The address of the report's sender follows the report (`SO_EE_OFFENDER`),
                        // and takes the rest of the message.
                        let head = libc::CMSG_LEN(size_of::<sock_extended_err>() as u32) as usize;
                        let rest = ((*message).cmsg_len as usize).saturating_sub(head);
                        let mut offender = Address::empty();
                        let length = rest.min(size_of::<Address>());
                        ptr::copy_nonoverlapping(
                            data.add(size_of::<sock_extended_err>()),
                            (&raw mut offender).cast::<u8>(),
                            length,
                        );
                        notes.offender = offender.decode().map(|address| address.ip());
                    }
                    _ => {}
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        notes
    }
}

fn since_1970(stamp: timespec) -> Duration {
    let seconds = u64::try_from(stamp.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(stamp.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(source: IpAddr) -> ControlMessages {
        let mut control = Control::empty();
        let len = control.leave_from(source);
        // SAFETY: zero is valid for every field of a `msghdr`.
        let mut header: msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = len as _;
        // SAFETY: the room outlives the call, and `leave_from` filled `len` bytes of it.
        unsafe { ControlMessages::read(&header) }
    }

    #[test]
    fn a_source_is_written_as_the_kernel_writes_a_destination() {
        for text in ["192.0.2.1", "2001:db8::1"] {
            let source: IpAddr = text.parse().unwrap();
            assert_eq!(read_back(source).to, Some(source));
        }
    }

    #[test]
    fn control_messages_are_written_one_after_the_other() {
        for (text, space) in [("192.0.2.1", 32), ("2001:db8::1", 40)] {
            let mut control = Control::empty();
            let used = control.leave_from(text.parse().unwrap());
            assert_eq!((used, control.cut_into(used, 600)), (space, space + 24));
            let value = &control.0[used + size_of::<libc::cmsghdr>()..][..2];
            assert_eq!(value, 600u16.to_ne_bytes());
        }
    }
}
