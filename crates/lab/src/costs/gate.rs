//! Measures the CPU time that the kernel gate saves. The kernel gate drops datagrams before the
//! program reads them. The cost of such a datagram is compared with the cost of a datagram that the
//! program reads and drops.
//!
//! A thread alternately sends datagrams to itself on the loopback interface and reads them, so that
//! the CPU time of sending and of reading is measured separately. Sending includes all work of the
//! kernel until the datagram is in a buffer or dropped. Between two machines, the kernel of the
//! receiver does this work. Datagrams that the gate drops are never read, so reading costs nothing
//! for them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use serde::Serialize;
use tidegate_io::{BATCH, Group, Inbox, Listen, open};
use tidegate_world::{Pool, Shedding};

use super::Cost;
use crate::measure::thread_ns;

/// Length of a typical INVITE, in bytes.
const INVITE: usize = 500;

/// Number of batches for one measured value. The value is the mean over these batches.
const BATCHES: u32 = 4;

/// The CPU time for a datagram in µs, separately for sending and for reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Halves {
    /// Cost of sending a datagram, including all the kernel's work on its arrival.
    pub sender: Cost,
    /// Cost of reading a datagram.
    pub reader: Cost,
}

/// The cost of a datagram that the program drops, and of one that the kernel gate drops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gate {
    /// Cost if the program reads the datagram, and drops it because of its first bytes.
    pub read: Halves,
    /// Cost if the kernel gate drops the datagram, so that the program never reads it.
    pub shed: Halves,
}

impl Gate {
    /// Measures another round with `datagrams` datagrams that the program reads, and as many that
    /// the kernel gate drops.
    ///
    /// # Errors
    /// Returns an error when a socket cannot be created, or when datagrams are lost or dropped
    /// unexpectedly.
    pub(super) fn measure(&mut self, datagrams: u32) -> Result<(), String> {
        let none = Shedding::NONE;
        let all = Shedding { shares: [1.0; 2], ..Shedding::NONE };
        for (halves, shedding) in [(&mut self.read, &none), (&mut self.shed, &all)] {
            let mut way = Way::open(shedding).map_err(|error| error.to_string())?;
            let (sender, reader) = way.pass(datagrams)?;
            halves.sender.add(&sender);
            halves.reader.add(&reader);
        }
        Ok(())
    }

    /// Returns the CPU time that the kernel gate saves for each datagram, including CPU time in the
    /// kernel, in µs. The function computes it from the medians.
    pub fn saved_us(&self) -> f64 {
        let both = |halves: &Halves| halves.sender.median_us + halves.reader.median_us;
        both(&self.read) - both(&self.shed)
    }
}

struct Way {
    group: Group,
    peer: UdpSocket,
    inbox: Inbox,
    sheds: bool,
}

impl Way {
    fn open(shedding: &Shedding) -> io::Result<Self> {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let group = open(&Listen { gate: true, ..Listen::new(local) }).map_err(io::Error::other)?;
        group.gate().expect("asked for").set(shedding)?;
        let inbox = Inbox::new(&Pool::new());
        Ok(Self { group, peer: UdpSocket::bind(local)?, inbox, sheds: shedding.drops_shares() })
    }

    /// Sends at least `datagrams` datagrams, and reads those that the kernel gate does not drop.
    /// Returns the measured times for sending a datagram, and for reading one, in µs. Each time is
    /// the mean over [`BATCHES`] batches.
    fn pass(&mut self, datagrams: u32) -> Result<(Vec<f64>, Vec<f64>), String> {
        let told = |error: io::Error| error.to_string();
        let times = datagrams.div_ceil(BATCHES * BATCH as u32);
        let (mut sender, mut reader) = (Vec::new(), Vec::new());
        // The first batches warm the caches.
        for time in 0..=times {
            let (sent, read) = self.turn(time).map_err(told)?;
            if time > 0 {
                sender.push(sent);
                reader.push(read);
            }
        }
        let sent = u64::from(times + 1) * u64::from(BATCHES) * BATCH as u64;
        let filtered = self.group.gate().expect("asked for").filtered();
        let wanted = if self.sheds { sent } else { 0 };
        match filtered == wanted {
            true => Ok((sender, reader)),
            false => Err(format!(
                "the kernel gate dropped {filtered} of {sent} datagrams, but must drop {wanted}"
            )),
        }
    }

    fn turn(&mut self, time: u32) -> io::Result<(f64, f64)> {
        let mut text = [b'x'; INVITE];
        text[..7].copy_from_slice(b"INVITE ");
        let (mut sender, mut reader) = (0, 0);
        for batch in 0..BATCHES {
            let began = thread_ns();
            for number in 0..BATCH as u32 {
                let number = (time * BATCHES + batch) * BATCH as u32 + number;
                text[40..44].copy_from_slice(&number.to_be_bytes());
                self.peer.send_to(&text, self.group.local())?;
            }
            let sent = thread_ns();
            let read = if self.sheds { 0 } else { self.read()? };
            reader += thread_ns() - sent;
            sender += sent - began;
            if !self.sheds && read != BATCH {
                return Err(io::Error::other(format!(
                    "only {read} of {BATCH} datagrams were read; repeat the measurement on an \
                     idle machine"
                )));
            }
        }
        let each = |ns: u64| ns as f64 / 1e3 / f64::from(BATCHES) / BATCH as f64;
        Ok((each(sender), each(reader)))
    }

    /// Reads all waiting datagrams and drops those that begin like an INVITE. Returns the number of
    /// dropped datagrams.
    fn read(&mut self) -> io::Result<usize> {
        let listener = self.group.listener(0);
        let socket = listener.invite().expect("a socket of their own");
        let mut count = 0;
        while self.inbox.receive(socket, BATCH)? > 0 {
            while let Some(datagram) = self.inbox.take() {
                count += usize::from(datagram.bytes.starts_with(b"INVITE "));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_and_shedding_are_measured_without_losing_a_datagram() {
        let mut gate = Gate::default();
        // The measurement fails if the kernel dropped one datagram too many or too few.
        gate.measure(1000).unwrap();
        gate.measure(1000).unwrap();
        for halves in [&gate.read, &gate.shed] {
            assert_eq!(halves.sender.rounds_us.len(), 2);
            assert_eq!(halves.reader.rounds_us.len(), 2);
            assert!(halves.sender.median_us > 0.0);
        }
    }
}
