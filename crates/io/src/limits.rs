//! The limits of a shard's turn.

use std::fmt;
use std::time::Duration;

/// How much a shard may do of each kind before it turns to the next, and how long it
/// may wait. The defaults suit a proxy; none needs to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Datagrams of the sockets for everything but new INVITEs, a turn, and as many of those for
    /// responses; 1 to 4096, default 256. They come first, because they end work already begun.
    pub ordinary: usize,
    /// Datagrams of the INVITE sockets, a turn; 1 to 1024, default 64. Unlimited
    /// reception livelocks: under a flood nothing else would ever be done.
    pub invites: usize,
    /// Messages taken over from other shards, a turn; 1 to 1024, default 64.
    pub handoffs: usize,
    /// ICMP reports taken from error queues, a turn; 1 to 256, default 32.
    pub reports: usize,
    /// The shortest quantum of service a turn, when messages wait; 10 µs to 10 ms,
    /// default 500 µs. A turn whose reception took longer serves as long as that, so
    /// service has half of every turn or more; one message is served in any case.
    pub quantum: Duration,
    /// The longest pause by which wakes are coalesced; 0 (off) to 2 ms, default
    /// 500 µs. Taken only while it is expected to gather several datagrams, and shorter the more
    /// come.
    pub coalesce: Duration,
    /// How long a flush may wait for room in a full send buffer before the rest is
    /// dropped; 0 to 10 ms, default 1 ms.
    pub send_wait: Duration,
    /// Whether datagrams of one length to one destination leave as one train (`UDP_SEGMENT`);
    /// default `true`. Off for what stands for many: those on one machine receive a train
    /// together, at the socket to which its first datagram is steered.
    pub gso: bool,
    /// How many bytes of white space may be added to a datagram so that it joins a train, where the
    /// core allows it; 0 to 64, default 32.
    pub padding: usize,
    /// How long the core may take to drain after the first request to stop; 0 to
    /// one hour, default 30 s.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ordinary: 256,
            invites: 64,
            handoffs: 64,
            reports: 32,
            quantum: Duration::from_micros(500),
            coalesce: Duration::from_micros(500),
            send_wait: Duration::from_millis(1),
            gso: true,
            padding: 32,
            drain: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Checks every limit against its bounds.
    ///
    /// # Errors
    /// The first one that lies outside.
    pub fn check(&self) -> Result<(), OutOfBounds> {
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let hour = 3_600_000_000;
        for (name, value, least, most) in [
            ("ordinary", self.ordinary as u64, 1, 4096),
            ("invites", self.invites as u64, 1, 1024),
            ("crossings", self.handoffs as u64, 1, 1024),
            ("reports", self.reports as u64, 1, 256),
            ("quantum (µs)", micros(self.quantum), 10, 10_000),
            ("padding (bytes)", self.padding as u64, 0, 64),
            ("coalesce (µs)", micros(self.coalesce), 0, 2000),
            ("send_wait (µs)", micros(self.send_wait), 0, 10_000),
            ("drain (µs)", micros(self.drain), 0, hour),
        ] {
            if value < least || value > most {
                return Err(OutOfBounds { name, value, least, most });
            }
        }
        Ok(())
    }
}

/// A limit set outside its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    /// Which limit, with its unit.
    pub name: &'static str,
    /// What it was set to.
    pub value: u64,
    /// The least it may be.
    pub least: u64,
    /// The most it may be.
    pub most: u64,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, least, most } = self;
        write!(f, "{name} is {value}, but may be {least} to {most}")
    }
}

impl std::error::Error for OutOfBounds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_lie_within_bounds() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn what_lies_outside_is_named() {
        let refused = |limits: Limits| limits.check().unwrap_err().to_string();
        let limits = Limits::default();
        assert_eq!(refused(Limits { invites: 0, ..limits }), "invites is 0, but may be 1 to 1024",);
        assert_eq!(
            refused(Limits { coalesce: Duration::from_millis(3), ..limits }),
            "coalesce (µs) is 3000, but may be 0 to 2000",
        );
        assert!(refused(Limits { drain: Duration::MAX, ..limits }).starts_with("drain"));
    }
}
